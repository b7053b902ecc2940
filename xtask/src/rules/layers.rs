//! Which module of a crate may import from which: its layers, from the lowest up.
//!
//! A module may use those of its own layer and of lower ones. What points up is counted by pair of
//! modules (`fs data -> client`): those arrows may only become fewer. Tests may use anything.

use super::Source;
use super::paths::{passed_on, used};
use super::ratchet::Places;
use std::collections::BTreeMap;
use std::path::Path;

/// A crate's layers.
#[derive(Debug)]
struct Crate {
    folder: String,
    /// Modules, as paths from the root, with the number of their layer. A module is where its
    /// longest prefix is.
    modules: Vec<(Vec<String>, usize)>,
}

/// What `layers.txt` says.
#[derive(Debug)]
pub struct Layers(Vec<Crate>);

impl Layers {
    /// Lines of `crate FOLDER`, each followed by its layers, the lowest first:
    /// `layer MODULE MODULE::PART ..`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut crates: Vec<Crate> = Vec::new();
        let mut layer = 0;
        for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("crate") => {
                    let folder = words.next().ok_or("layers.txt: a crate without a folder")?.to_owned();
                    crates.push(Crate { folder, modules: Vec::new() });
                }
                Some("layer") if !crates.is_empty() => {
                    layer += 1;
                    let modules = words.map(|word| (word.split("::").map(str::to_owned).collect(), layer));
                    crates.last_mut().expect("there is one").modules.extend(modules);
                }
                _ => return Err(format!("layers.txt: {line:?} is neither a crate nor a layer of one")),
            }
        }
        Ok(Self(crates))
    }

    /// The arrows that point up, and what has no layer.
    pub fn arrows(&self, sources: &[Source]) -> (BTreeMap<String, Places>, Vec<String>) {
        let (mut found, mut unplaced) = (BTreeMap::new(), Vec::new());
        for one in &self.0 {
            one.arrows(sources, &mut found, &mut unplaced);
        }
        (found, unplaced)
    }
}

impl Crate {
    fn arrows(&self, sources: &[Source], found: &mut BTreeMap<String, Places>, unplaced: &mut Vec<String>) {
        let root = format!("{}/src", self.folder);
        let own = sources.iter().filter_map(|source| Some((source.path.strip_prefix(&root).ok()?, source)));
        let own: Vec<(&Path, &Source)> = own.collect();
        let is_root = |path: &Path| path == Path::new("lib.rs") || path == Path::new("main.rs");
        let roots = own.iter().filter(|(path, _)| is_root(path));
        let passed: BTreeMap<String, Vec<String>> = roots.flat_map(|(_, source)| passed_on(&source.text)).collect();
        for &(path, source) in &own {
            let mut module: Vec<String> =
                path.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
            // The root puts its parts together; tests may use anything.
            if is_root(path) || module.contains(&"tests".to_owned()) {
                continue;
            }
            if module.last().is_some_and(|last| last == "mod") {
                module.pop();
            }
            let used = used(&source.text, &module);
            let Some((from, layer)) = self.place(&module) else {
                unplaced.push(format!("{}: it has no layer in xtask/rules/layers.txt", source.path.display()));
                continue;
            };
            for path in used {
                let target = match (self.place(&path), passed.get(&path[0])) {
                    (None, Some(origin)) => [origin, &path[1..]].concat(),
                    _ => path,
                };
                let Some((to, above)) = self.place(&target).filter(|(to, _)| *to != from) else { continue };
                if above > layer {
                    let arrow = format!("{} {} -> {}", self.folder, from.join("::"), to.join("::"));
                    let place = format!("{}: crate::{}", source.path.display(), target.join("::"));
                    found.entry(arrow).or_default().add(place);
                }
            }
        }
    }

    /// The module of the list that a path lies in, and its layer.
    fn place(&self, path: &[String]) -> Option<(&[String], usize)> {
        let fitting = self.modules.iter().filter(|(module, _)| path.starts_with(module));
        fitting.max_by_key(|(module, _)| module.len()).map(|(module, layer)| (module.as_slice(), *layer))
    }
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;

    const LAYERS: &str = "# Lowest first.\ncrate fs\nlayer error\nlayer data\nlayer volume data::plans\nlayer client\n";

    fn arrows(files: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
        let sources: Vec<Source> = files.iter().map(|(path, text)| source(path, text)).collect();
        let (found, unplaced) = Layers::parse(LAYERS).unwrap().arrows(&sources);
        let found =
            found.into_iter().map(|(arrow, found)| format!("{arrow} {}: {}", found.count, found.places.join(", ")));
        (found.collect(), unplaced)
    }

    #[test]
    fn imports_of_lower_layers_and_of_the_own_one_are_allowed() {
        let files = [
            ("fs/src/lib.rs", "pub use client::Client; mod data;"),
            ("fs/src/client/mod.rs", "use crate::{data::Buffer, error::Error, volume::open}; use super::data;"),
            ("fs/src/volume/open.rs", "use crate::data::plans::Plan; use super::label;"),
            ("fs/src/data/plans.rs", "use crate::volume::label; use super::buffer;"),
            ("fs/src/data/tests.rs", "use crate::client::Client;"),
            ("meta/src/other.rs", "use crate::client::Client;"),
        ];
        assert_eq!(arrows(&files), (vec![], vec![]));
    }

    #[test]
    fn imports_of_higher_layers_are_found_also_through_the_root_and_super() {
        let files = [
            ("fs/src/lib.rs", "pub use client::ending::Ending;"),
            (
                "fs/src/data/write.rs",
                "use crate::client::{A, fence::B}; use crate::Ending; fn f() { crate::error::g() }",
            ),
            ("fs/src/data/mod.rs", "use super::volume::C;\n#[cfg(test)]\nmod tests { use crate::client::D; }"),
            ("fs/src/new.rs", ""),
        ];
        let (found, unplaced) = arrows(&files);
        assert_eq!(
            found,
            [
                "fs data -> client 3: fs/src/data/write.rs: crate::client::ending::Ending, \
                 fs/src/data/write.rs: crate::client::A, fs/src/data/write.rs: crate::client::fence::B",
                "fs data -> volume 1: fs/src/data/mod.rs: crate::volume::C",
            ]
        );
        assert_eq!(unplaced, ["fs/src/new.rs: it has no layer in xtask/rules/layers.txt"]);
        assert!(Layers::parse("layer a").is_err());
    }
}

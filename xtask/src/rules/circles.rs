//! Circles between the files of a crate: a file imports another one, which imports, directly or by
//! others, the first.
//!
//! Each arrow of a circle is counted: those arrows may only become fewer. What a file only passes
//! on (`pub use`) is no arrow of that file; another one that takes it from there imports the file
//! that it is from. The root of a crate puts its parts together, and tests may use anything: both
//! do not count.

use super::Source;
use super::paths::{Imports, imports};
use super::ratchet::Places;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

type Module = Vec<String>;

/// How often a name may be passed on.
const MAX_PASSES: usize = 8;

/// The arrows of circles, by crate and pair of modules.
pub fn arrows(sources: &[Source]) -> BTreeMap<String, Places> {
    let folders: BTreeSet<String> = sources.iter().map(Source::folder).collect();
    let mut found = BTreeMap::new();
    for folder in folders {
        Files::of(&folder, sources).arrows(&folder, &mut found);
    }
    found
}

/// The files of a crate, by module.
struct Files(BTreeMap<Module, Imports>);

impl Files {
    fn of(folder: &str, sources: &[Source]) -> Self {
        let root = Path::new(folder).join("src");
        let mut files = BTreeMap::new();
        for source in sources {
            let Ok(path) = source.path.strip_prefix(&root) else { continue };
            let names = path.with_extension("");
            let mut module: Module = names.iter().map(|part| part.to_string_lossy().into_owned()).collect();
            if module.last().is_some_and(|last| last == "mod") || module == ["lib"] || module == ["main"] {
                module.pop();
            }
            let imports = imports(&source.text, &module);
            files.insert(module, imports);
        }
        let tests: Vec<Module> = files
            .iter()
            .flat_map(|(module, imports)| {
                imports.tests.iter().map(|test| [&module[..], std::slice::from_ref(test)].concat())
            })
            .collect();
        files.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
        Self(files)
    }

    /// The file that a path leads to. A name that a file passes on leads to where it comes from.
    fn file(&self, path: &[String]) -> Module {
        let mut path = path.to_vec();
        for _ in 0..MAX_PASSES {
            let length = (0..=path.len()).rev().find(|&length| self.0.contains_key(&path[..length])).unwrap_or(0);
            let (module, rest) = path.split_at(length);
            let passed = self.0.get(module).zip(rest.first()).and_then(|(imports, name)| {
                imports.names.iter().find(|(known, _)| known == name).map(|(_, from)| from)
            });
            match passed {
                Some(from) if *from != path => path = [&from[..], &rest[1..]].concat(),
                _ => return module.to_vec(),
            }
        }
        Vec::new()
    }

    fn arrows(&self, folder: &str, found: &mut BTreeMap<String, Places>) {
        let mut graph: BTreeMap<&Module, BTreeMap<Module, Vec<String>>> = BTreeMap::new();
        for (module, imports) in self.0.iter().filter(|(module, _)| !module.is_empty()) {
            for path in &imports.needed {
                let to = self.file(path);
                if to != *module && !to.is_empty() {
                    graph.entry(module).or_default().entry(to).or_default().push(path.join("::"));
                }
            }
        }
        let reaches = |from: &Module, to: &Module| {
            let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
            while let Some(one) = next.pop() {
                if one == to {
                    return true;
                }
                if seen.insert(one) {
                    next.extend(graph.get(one).into_iter().flat_map(BTreeMap::keys));
                }
            }
            false
        };
        for (from, all) in &graph {
            for (to, paths) in all.iter().filter(|(to, _)| reaches(to, from)) {
                let places = found.entry(format!("{folder} {} -> {}", from.join("::"), to.join("::"))).or_default();
                paths.iter().for_each(|path| places.add(format!("{}: crate::{path}", from.join("::"))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> = files.iter().map(|(path, text)| source(path, text)).collect();
        arrows(&sources).into_iter().map(|(arrow, places)| format!("{arrow} {}", places.count)).collect()
    }

    #[test]
    fn a_circle_is_found_also_through_what_is_passed_on() {
        let files = [
            ("fs/src/lib.rs", "pub use data::Buffer; mod data; mod client;"),
            ("fs/src/data/mod.rs", "mod buffer; mod read; pub use buffer::{Buffer, MAX};"),
            ("fs/src/data/buffer.rs", "use super::read::Read; fn a() { crate::client::b() }"),
            ("fs/src/data/read.rs", "use crate::client::C;"),
            ("fs/src/client.rs", "use crate::Buffer; use crate::data::MAX;"),
            ("meta/src/client.rs", "use crate::data::Buffer;"),
        ];
        assert_eq!(
            found(&files),
            [
                "fs client -> data::buffer 2",
                "fs data::buffer -> client 1",
                "fs data::buffer -> data::read 1",
                "fs data::read -> client 1"
            ]
        );
    }

    #[test]
    fn a_file_that_needs_what_it_passes_on_is_in_a_circle() {
        let child = ("fs/src/data/buffer.rs", "use super::Limit;");
        let passes = ("fs/src/data/mod.rs", "mod buffer; pub use buffer::Buffer; pub struct Limit;");
        assert_eq!(found(&[passes, child]), [""; 0]);
        let needs = ("fs/src/data/mod.rs", "mod buffer; pub use buffer::Buffer; pub struct Limit(Buffer);");
        assert_eq!(found(&[needs, child]), ["fs data -> data::buffer 1", "fs data::buffer -> data 1"]);
    }

    #[test]
    fn tests_and_the_root_may_use_anything() {
        let files = [
            ("fs/src/lib.rs", "mod data; mod client; #[cfg(test)] mod testing; fn a() { data::b() }"),
            ("fs/src/data.rs", "use crate::a; #[cfg(test)] mod tests { use crate::client::C; }"),
            ("fs/src/client.rs", "use crate::data::D;"),
            ("fs/src/testing.rs", "use crate::client::C;"),
            ("fs/src/client/more.rs", "use crate::testing::T;"),
        ];
        assert_eq!(found(&files), [""; 0]);
    }
}

//! The house rules that no other tool knows: which crate and which module may use which, which
//! files import each other in a circle, how wide a line and how long a file may be.
//!
//! The rules are data in `xtask/rules`. Where the code does not obey one yet, today's count is
//! written down there, and may only fall: a ratchet.

mod circles;
mod crates;
mod layers;
mod paths;
mod ratchet;
mod sizes;
mod widths;

use ratchet::Ratchet;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A Rust file: its path below the root, and its text.
struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    /// The folder of its crate: the first of its path.
    fn folder(&self) -> String {
        let first = self.path.components().next();
        first.map(|first| first.as_os_str().to_string_lossy().into_owned()).unwrap_or_default()
    }
}

/// Checks all rules. With `write`, counts that fell are written down.
///
/// # Errors
/// Every rule that is broken, and where.
pub fn check(root: &Path, write: bool) -> Result<(), String> {
    let sources = sources(root)?;
    let rules = root.join("xtask/rules");
    let read = |path: &Path| fs::read_to_string(path).map_err(|why| format!("{}: {why}", path.display()));
    let mut broken = crates::check(root, &read(&root.join("ARCHITECTURE.md"))?)?;
    let (layers, unplaced) = layers::Layers::parse(&read(&rules.join("layers.txt"))?)?.arrows(&sources);
    broken.extend(unplaced);
    let sizes = read(&rules.join("sizes.txt"))?;
    for (name, allowed, found) in [
        ("arrows.txt", 0, layers),
        ("circles.txt", 0, circles::arrows(&sources)),
        ("widths.txt", 0, widths::wide_lines(&sources)),
        ("sizes.txt", sizes::MAX_LINES, sizes::long_files(&sources, &Ratchet::parse(&sizes)?)),
    ] {
        let path = rules.join(name);
        let known = Ratchet::parse(&read(&path)?)?;
        broken.extend(known.risen(&found, allowed).into_iter().map(|what| format!("{name}: {what}")));
        let lower = known.lowered(&found);
        if write && lower != known {
            fs::write(&path, lower.to_string()).map_err(|why| format!("{}: {why}", path.display()))?;
        } else if lower != known {
            eprintln!("rules: counts of {name} fell; `cargo xtask rules --write` writes them down");
        }
    }
    eprintln!("== rules for {} Rust files", sources.len());
    if broken.is_empty() { Ok(()) } else { Err(format!("rules that are broken:\n{}", broken.join("\n"))) }
}

/// Every Rust file that git knows, new ones included.
fn sources(root: &Path) -> Result<Vec<Source>, String> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "*.rs"])
        .current_dir(root)
        .output()
        .map_err(|why| format!("git could not be started: {why}"))?;
    // In the middle of a merge a file is listed several times.
    let paths: BTreeSet<PathBuf> = String::from_utf8_lossy(&listed.stdout).lines().map(PathBuf::from).collect();
    // What git knows may be removed already.
    let sources: Vec<Source> = paths
        .into_iter()
        .filter_map(|path| Some(Source { text: fs::read_to_string(root.join(&path)).ok()?, path }))
        .collect();
    if sources.is_empty() { Err("git knows no Rust files here".into()) } else { Ok(sources) }
}

#[cfg(test)]
fn source(path: &str, text: &str) -> Source {
    Source { path: path.into(), text: text.into() }
}

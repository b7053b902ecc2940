//! The lengths of files. A file that is too long may not grow; a file that moves takes its length
//! along.

use super::Source;
use super::ratchet::{Places, Ratchet};
use std::collections::BTreeMap;
use std::path::Path;

/// Lines of a file.
pub const MAX_LINES: usize = 600;

/// The files that are too long, by path: the one that is written down where a file of that name has
/// moved.
pub fn long_files(sources: &[Source], known: &Ratchet) -> BTreeMap<String, Places> {
    let is_there = |path: &str| sources.iter().any(|source| source.path == Path::new(path));
    let mut gone: Vec<&String> = known.keys().filter(|path| !is_there(path)).collect();
    let mut found = BTreeMap::new();
    for source in sources {
        let count = source.text.lines().count();
        if count <= MAX_LINES {
            continue;
        }
        let path = source.path.display().to_string();
        let same_name = |old: &&String| Path::new(old).file_name() == source.path.file_name();
        let moved = gone.iter().position(same_name).filter(|_| known.get(&path).is_none());
        let key = moved.map_or(path.clone(), |at| gone.swap_remove(at).clone());
        let most = known.get(&key).unwrap_or(MAX_LINES);
        found.insert(key, Places { count, places: vec![format!("{path}: split it, or keep it within {most} lines")] });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;

    #[test]
    fn a_long_file_may_move_and_not_grow() {
        let known = Ratchet::parse("fs/src/open.rs 700\n").unwrap();
        let lines = |count: usize| "\n".repeat(count);
        let risen = |path: &str, count| known.risen(&long_files(&[source(path, &lines(count))], &known), MAX_LINES);
        assert!(risen("fs/src/open.rs", 700).is_empty() && risen("fs/src/new.rs", 600).is_empty());
        assert!(risen("fs/src/volume/open.rs", 700).is_empty());
        assert!(risen("fs/src/volume/open.rs", 701)[0].contains("within 700 lines"));
        assert!(risen("fs/src/new.rs", 601)[0].contains("within 600 lines"));
    }
}

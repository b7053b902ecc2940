//! The names that recovered files get.

use super::{PRIVATE, Recovered};
use plan::Ino;
use std::collections::{BTreeSet, HashMap};

/// Where files are whose own name is unknown or cannot be used.
pub(super) const UNNAMED: &[u8] = b"lost+found";

/// The names that files get: those of their manifests where they are usable and free.
pub(super) struct Names {
    files: BTreeSet<Vec<u8>>,
    directories: BTreeSet<Vec<u8>>,
    /// The next number of names that several files had.
    next: HashMap<Vec<u8>, u32>,
}

impl Default for Names {
    fn default() -> Self {
        let directories = BTreeSet::from([UNNAMED.to_vec()]);
        Self { files: BTreeSet::new(), directories, next: HashMap::new() }
    }
}

impl Names {
    pub fn give(&mut self, ino: Ino, path: Option<&[u8]>, done: &mut Recovered) -> Vec<u8> {
        let named = path.and_then(usable).filter(|path| {
            let above = above(path);
            !self.directories.contains(path) && above.iter().all(|path| !self.files.contains(*path))
        });
        done.unnamed += usize::from(named.is_none());
        let path = named.unwrap_or_else(|| unnamed(ino));
        let mut free = path.clone();
        // Two files had the name one after the other. The later number is the later file.
        while self.has(&free) {
            let next = self.next.entry(path.clone()).or_insert(0);
            *next += 1;
            free = numbered(&path, *next);
        }
        above(&free).into_iter().for_each(|path| _ = self.directories.insert(path.to_vec()));
        self.files.insert(free.clone());
        free
    }

    /// Whether a file or a directory has this name.
    pub fn has(&self, path: &[u8]) -> bool {
        self.files.contains(path) || self.directories.contains(path)
    }
}

/// The name of a file whose own name is unknown.
pub(super) fn unnamed(ino: Ino) -> Vec<u8> {
    [UNNAMED, format!("/inode-{ino}").as_bytes()].concat()
}

/// The name itself, or with a number behind it.
pub(super) fn numbered(path: &[u8], number: u32) -> Vec<u8> {
    if number == 0 { path.to_vec() } else { [path, format!(".{number}").as_bytes()].concat() }
}

/// A path that leads nowhere else, as a manifest may be anybody's.
fn usable(path: &[u8]) -> Option<Vec<u8>> {
    let names: Vec<&[u8]> = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).collect();
    let is_name = |name: &&[u8]| !matches!(*name, b"." | b"..") && !name.contains(&0) && name.len() <= 255;
    // Where the case of letters does not count, either.
    let is_private = names.first().is_some_and(|first| first.eq_ignore_ascii_case(PRIVATE.as_bytes()));
    (!names.is_empty() && !is_private && names.iter().all(is_name)).then(|| names.join(&b'/'))
}

/// The directories above a file.
fn above(path: &[u8]) -> Vec<&[u8]> {
    (0..path.len()).filter(|&at| path[at] == b'/').map(|at| &path[..at]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_nowhere_else_and_are_given_once() {
        assert_eq!(usable(b"a//b"), Some(b"a/b".to_vec()));
        for bad in
            [&b""[..], b"/", b"../a", b"a/..", b"a/./b", b"a\0b", &[b'x'; 256], b"/.weft-recover/a", b".Weft-Recover"]
        {
            assert_eq!(usable(bad), None, "{bad:?}");
        }
        let (mut names, mut done) = (Names::default(), Recovered::default());
        let mut give = |ino, path: &str| String::from_utf8(names.give(Ino(ino), Some(path.as_bytes()), &mut done));
        assert_eq!(give(16, "a/b").unwrap(), "a/b");
        assert_eq!(give(17, "a/b").unwrap(), "a/b.1");
        assert_eq!(give(18, "a/b/c").unwrap(), "lost+found/inode-18", "a file is in the way");
        assert_eq!(give(19, "a").unwrap(), "lost+found/inode-19", "a directory is in the way");
        assert_eq!(give(20, "../x").unwrap(), "lost+found/inode-20");
        assert_eq!(give(21, "lost+found").unwrap(), "lost+found/inode-21", "a directory may be needed there");
        assert_eq!(give(22, "a/b").unwrap(), "a/b.2");
        assert_eq!(give(23, "a/b.2").unwrap(), "a/b.2.1");
        assert_eq!(done.unnamed, 4);
    }
}

//! Selects files by glob patterns.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Selects files. A pattern with a slash applies to the path below the source, a pattern without
/// one to any name.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    include: Globs,
    exclude: Globs,
}

#[derive(Clone, Debug, Default)]
struct Globs {
    names: GlobSet,
    paths: GlobSet,
}

impl Globs {
    fn new(patterns: &[String]) -> Result<Self, String> {
        let (mut names, mut paths) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        for pattern in patterns {
            let plain = pattern.trim_matches('/');
            let glob = GlobBuilder::new(plain).literal_separator(true).backslash_escape(true).build();
            let glob = glob.map_err(|why| format!("{pattern} is not a pattern: {}", why.kind()))?;
            if plain.contains('/') || pattern.starts_with('/') { &mut paths } else { &mut names }.add(glob);
        }
        let build = |set: GlobSetBuilder| set.build().map_err(|why| why.to_string());
        Ok(Self { names: build(names)?, paths: build(paths)? })
    }

    fn is_empty(&self) -> bool {
        self.names.is_empty() && self.paths.is_empty()
    }

    fn has(&self, path: &[u8], name: &[u8]) -> bool {
        let is = |set: &GlobSet, bytes: &[u8]| !set.is_empty() && set.is_match(Path::new(OsStr::from_bytes(bytes)));
        is(&self.names, name) || is(&self.paths, path)
    }
}

impl Filter {
    /// Selects files that match a pattern of `include`, or all files if it is empty. Files that
    /// match a pattern of `exclude`, and the content of directories that match one, are left out.
    ///
    /// # Errors
    /// Names the invalid pattern.
    pub fn new(include: &[String], exclude: &[String]) -> Result<Self, String> {
        Ok(Self { include: Globs::new(include)?, exclude: Globs::new(exclude)? })
    }

    /// Whether all files are selected.
    pub fn is_open(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty()
    }

    /// Whether a directory is walked.
    pub fn enters(&self, path: &[u8], name: &[u8]) -> bool {
        !self.exclude.has(path, name)
    }

    /// Whether a file is taken.
    pub fn takes(&self, path: &[u8], name: &[u8]) -> bool {
        (self.include.is_empty() || self.include.has(path, name)) && !self.exclude.has(path, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(include: &[&str], exclude: &[&str]) -> Filter {
        let owned = |patterns: &[&str]| patterns.iter().map(ToString::to_string).collect::<Vec<_>>();
        Filter::new(&owned(include), &owned(exclude)).unwrap()
    }

    fn takes(filter: &Filter, path: &[u8]) -> bool {
        filter.takes(path, path.rsplit(|&byte| byte == b'/').next().unwrap())
    }

    #[test]
    fn names_match_anywhere_and_paths_from_the_source() {
        let only = filter(&["*.h5", "runs/*/log"], &["tmp*", "/old"]);
        for (path, taken) in [
            (&b"a.h5"[..], true),
            (b"deep/er/b.h5", true),
            (b"a.txt", false),
            (b"runs/7/log", true),
            (b"more/runs/7/log", false),
            (b"runs/7/8/log", false),
            (b"tmp.h5", false),
            (b"new\nline\xFF.h5", true),
        ] {
            assert_eq!(takes(&only, path), taken, "{}", String::from_utf8_lossy(path));
        }
        assert!(!only.enters(b"x/tmpdir", b"tmpdir") && only.enters(b"runs", b"runs"));
        assert!(!only.enters(b"old", b"old") && only.enters(b"x/old", b"old"));
        assert!(takes(&filter(&[], &[]), b"anything"));
        assert!(Filter::new(&["[".into()], &[]).is_err());
    }
}

//! The directory of a restore, and access to everything below it.

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;
use std::os::fd::AsFd;

/// How directories are opened: never through a symbolic link.
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The directory that is restored into.
pub struct Root(OwnedFd);

impl Root {
    /// Opens the directory. Creates it, but not its parents, if it does not exist.
    ///
    /// # Errors
    /// The errors of the system calls.
    pub fn open(path: &[u8]) -> Result<Self, Errno> {
        match mkdirat(CWD, path, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
        // The path is the user's own: links in it are intended.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(CWD, path, flags, Mode::empty()).map(Self)
    }

    /// Opens a directory below it.
    ///
    /// # Errors
    /// If it does not exist, or if a link is on the way.
    pub fn directory(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        open_below(&self.0, path)
    }

    /// Opens a directory below the root. Creates it and its parents if they do not exist, with
    /// permissions for the owner only: it gets its mode when all files are in it.
    ///
    /// # Errors
    /// If it cannot be created, or if a link is on the way.
    pub fn make(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let mut at = self.0.as_fd().try_clone_to_owned().map_err(|_| Errno::MFILE)?;
        for name in names(path) {
            check(name)?;
            at = match openat(&at, name, DIRECTORY, Mode::empty()) {
                Err(Errno::NOENT) => {
                    match mkdirat(&at, name, Mode::RWXU) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(error) => return Err(error),
                    }
                    openat(&at, name, DIRECTORY, Mode::empty())?
                }
                opened => opened?,
            };
        }
        Ok(at)
    }
}

fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/').filter(|name| !name.is_empty())
}

/// Refuses names that lead elsewhere.
fn check(name: &[u8]) -> Result<(), Errno> {
    if matches!(name, b"." | b"..") || name.contains(&0) { Err(Errno::INVAL) } else { Ok(()) }
}

/// Opens a directory below another, one name at a time; no link is followed.
///
/// # Errors
/// If it does not exist, or if a link is on the way.
pub fn open_below(root: &OwnedFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    let mut at = root.as_fd().try_clone_to_owned().map_err(|_| Errno::MFILE)?;
    for name in names(path) {
        check(name)?;
        at = openat(&at, name, DIRECTORY, Mode::empty())?;
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn no_way_leads_out() {
        let scratch = std::env::temp_dir().join(format!("weft-restore-root-{}", std::process::id()));
        let target = scratch.join("target");
        std::fs::create_dir_all(scratch.join("outside")).unwrap();
        let root = Root::open(target.as_os_str().as_bytes()).unwrap();
        std::os::unix::fs::symlink("../outside", target.join("link")).unwrap();
        root.make(b"a/b/c").unwrap();
        assert!(target.join("a/b/c").is_dir());
        for path in [&b"link"[..], b"link/x", b"..", b"a/../../outside", b"../outside/x", b"a/b/../.."] {
            assert!(root.make(path).is_err(), "{}", String::from_utf8_lossy(path));
            assert!(root.directory(path).is_err());
        }
        assert_eq!(std::fs::read_dir(scratch.join("outside")).unwrap().count(), 0);
        assert!(root.directory(b"a/b").is_ok() && root.directory(b"a/x").is_err());
        std::fs::remove_dir_all(&scratch).unwrap();
    }
}

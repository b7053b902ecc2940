//! The directory that is restored into, and the ways to what is below it.

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;
use std::os::fd::AsFd;

/// How directories are opened: never through a link.
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The directory that is restored into.
pub struct Root(OwnedFd);

impl Root {
    /// Opens it; makes it, but nothing above it, when it is not there.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn open(path: &[u8]) -> Result<Self, Errno> {
        match mkdirat(CWD, path, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
        // The path is the user's own: links in it are meant.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(CWD, path, flags, Mode::empty()).map(Self)
    }

    /// Opens a directory below it.
    ///
    /// # Errors
    /// When it is not there, or something on the way is a link.
    pub fn directory(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        open_below(&self.0, path)
    }

    /// Opens a directory below it, and makes it and what is above it when it is not there, for the owner alone: it gets its mode when it is full.
    ///
    /// # Errors
    /// When it cannot be made, or something on the way is a link.
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

/// Names that lead elsewhere are none.
fn check(name: &[u8]) -> Result<(), Errno> {
    if matches!(name, b"." | b"..") || name.contains(&0) { Err(Errno::INVAL) } else { Ok(()) }
}

/// Opens a directory below another, a name at a time; no link is followed.
///
/// # Errors
/// When it is not there, or something on the way is a link.
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

//! From paths to files, as a kernel does it: `.`, `..` and symbolic links.

use crate::failure::{Failure, Result};
use fs::{Attributes, FileKind, FileSystem, Ino, ROOT};
use rustix::io::Errno;
use std::collections::VecDeque;

/// How many symbolic links a path may lead through.
const MAX_LINKS: usize = 40;

/// What a path leads to.
#[derive(Clone, Debug)]
pub enum Found {
    /// A file of any kind.
    There(Attributes),
    /// No file has the last name of the path; this directory would have it.
    Missing(Ino, Vec<u8>),
}

/// Follows a path from the root. With `follow`, also the link that is its last name.
///
/// # Errors
/// `ENOENT` and `ENOTDIR` on the way, `ELOOP`, and `EXDEV` for a link to an absolute path, which is
/// one of the machine.
pub fn walk(fs: &FileSystem, path: &[u8], follow: bool) -> Result<Found> {
    let mut rest: VecDeque<Vec<u8>> = names(path).collect();
    let mut at = fs.attributes(ROOT)?;
    let mut links = 0;
    while let Some(name) = rest.pop_front() {
        if at.kind != FileKind::Directory {
            return Err(Failure::Errno(Errno::NOTDIR, "not a directory"));
        }
        if name == b".." {
            at = fs.attributes(fs.parent(at.ino)?)?;
            continue;
        }
        let found = match fs.lookup(at.ino, &name) {
            Ok(found) => found,
            Err(error) if rest.is_empty() && is(&error, Errno::NOENT) => return Ok(Found::Missing(at.ino, name)),
            Err(error) => return Err(error.into()),
        };
        if found.kind != FileKind::Symlink || (rest.is_empty() && !follow) {
            at = found;
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(Failure::Errno(Errno::LOOP, "too many symbolic links"));
        }
        let target = match fs.read_link(found.ino) {
            Ok(target) => target,
            // Another one replaced the link meanwhile.
            Err(error) if is(&error, Errno::NOENT) => {
                rest.push_front(name);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        if target.first() == Some(&b'/') {
            return Err(Failure::Errno(Errno::XDEV, "a symbolic link leads out of the volume"));
        }
        names(&target).collect::<Vec<_>>().into_iter().rev().for_each(|name| rest.push_front(name));
    }
    Ok(Found::There(at))
}

/// The file at a path.
///
/// # Errors
/// As [`walk`], and `ENOENT` when it is missing.
pub fn find(fs: &FileSystem, path: &[u8], follow: bool) -> Result<Attributes> {
    match walk(fs, path, follow)? {
        Found::There(found) => Ok(found),
        Found::Missing(..) => Err(missing()),
    }
}

/// The directory of the last name of a path, and that name.
///
/// # Errors
/// As [`walk`], and `EBUSY` when the path does not end with a name: it is empty or ends with `..`.
pub fn split(fs: &FileSystem, path: &[u8]) -> Result<(Ino, Vec<u8>)> {
    let mut all: Vec<Vec<u8>> = names(path).collect();
    let name = all.pop().filter(|name| name != b"..");
    let name = name.ok_or(Failure::Errno(Errno::BUSY, "this is the root or a directory on the way, not a name"))?;
    let above = find(fs, &all.join(&b'/'), true)?;
    if above.kind != FileKind::Directory {
        return Err(Failure::Errno(Errno::NOTDIR, "not a directory"));
    }
    Ok((above.ino, name))
}

/// The names of a path.
fn names(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    path.split(|&byte| byte == b'/').filter(|name| !name.is_empty() && *name != b".").map(<[u8]>::to_vec)
}

/// That a file is not there.
pub fn missing() -> Failure {
    Failure::Errno(Errno::NOENT, "no such file or directory")
}

/// Whether an error has this errno.
pub fn is(error: &fs::Error, errno: Errno) -> bool {
    error.errno() == errno.raw_os_error()
}

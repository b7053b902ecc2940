//! The paths of a command line: where they begin, and how those of targets are stored.

use super::hosted::serves_others;
use crate::failure::Failure;
use cluster::StoreAddress;
use std::cell::RefCell;
use std::path::{Path, PathBuf};

thread_local! {
    /// Where the command that this thread carries out was given.
    static DIRECTORY: RefCell<PathBuf> = RefCell::default();
}

/// From now on the commands that this thread carries out were given there.
pub fn begin_at(directory: PathBuf) {
    DIRECTORY.set(directory);
}

/// A path of the command line, which does not depend on the directory of this process.
pub fn resolve(path: &Path) -> PathBuf {
    DIRECTORY.with_borrow(|directory| directory.join(path))
}

/// The path of a target as it is stored: absolute and without `..`, but with symbolic links, which
/// may be what names the disk.
pub fn plain(path: &Path) -> PathBuf {
    if StoreAddress::of(path).is_some() {
        return path.to_path_buf();
    }
    let path = resolve(path);
    let absolute = std::path::absolute(&path).unwrap_or(path);
    if !absolute.components().any(|part| part == std::path::Component::ParentDir) {
        return absolute;
    }
    let above = absolute.parent().and_then(|above| above.canonicalize().ok());
    match (absolute.canonicalize(), above, absolute.file_name()) {
        (Ok(path), ..) => path,
        (_, Some(above), Some(name)) => above.join(name),
        _ => absolute,
    }
}

/// The plain path of a new target. Labels are text, so the path must be text, too.
pub fn new_target(path: &Path) -> Result<PathBuf, Failure> {
    if serves_others() && StoreAddress::of(path).is_none() {
        let what = "a volume that is served has its targets on stores: give store://HOST:PORT/NAME";
        return Err(Failure::Other(format!("{}: {what}", volume::Shown(path))));
    }
    let path = plain(path);
    match path.to_str() {
        Some(_) => Ok(path),
        None => Err(Failure::Usage(format!("{}: the path of a target must be UTF-8", volume::Shown(&path)))),
    }
}

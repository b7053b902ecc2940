//! The directories in which the gateway keeps what is not an object: keys, uploads, and objects
//! that have no name yet. They are below `.weft-s3` in the directory of the buckets. No bucket has
//! a name that begins with a dot, so S3 does not show it; a mount shows it, and only its owner may
//! enter.

use fs::object_name::HOME;
use fs::{FileKind, FileSystem, Ino, New};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};

/// Where everything is.
#[derive(Clone, Copy, Debug)]
pub struct Home {
    /// The directory of the buckets.
    pub root: Ino,
    /// All of the following.
    pub home: Ino,
    /// One file for each access key.
    pub keys: Ino,
    /// Objects that are whole and have no name yet.
    pub temporary: Ino,
    /// One directory for each multipart upload.
    pub uploads: Ino,
    /// What the sweeper removes.
    pub trash: Ino,
}

impl Home {
    /// Finds the directories below a path of the volume, and makes those that are missing; the path
    /// itself must be there.
    ///
    /// # Errors
    /// When the path is not a directory, or one cannot be made.
    pub fn open(fs: &FileSystem, path: &str) -> fs::Result<Self> {
        let mut root = fs::ROOT;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let found = fs.lookup(root, name.as_bytes()).map_err(|error| match is_missing(&error) {
                true => fs::Error::NotFound(format!("the volume has no directory {path}")),
                false => error,
            })?;
            if found.kind != FileKind::Directory {
                return Err(fs::Error::Invalid(format!("{path} is not a directory")));
            }
            root = found.ino;
        }
        let home = private(fs, root, HOME)?;
        Ok(Self {
            root,
            home,
            keys: private(fs, home, b"keys")?,
            temporary: private(fs, home, b"new")?,
            uploads: private(fs, home, b"uploads")?,
            trash: private(fs, home, b"trash")?,
        })
    }
}

/// Whether an error says that nothing is there.
pub fn is_missing(error: &fs::Error) -> bool {
    error.errno() == Errno::NOENT.raw_os_error()
}

/// A directory for the owner of this process alone, made if it is not there.
fn private(fs: &FileSystem, parent: Ino, name: &[u8]) -> fs::Result<Ino> {
    match fs.lookup(parent, name) {
        Ok(found) if found.kind == FileKind::Directory => return Ok(found.ino),
        Ok(_) => return Err(fs::Error::Conflict(".weft-s3 in the volume has a file where a directory must be".into())),
        Err(error) if is_missing(&error) => {}
        Err(error) => return Err(error),
    }
    match fs.make(parent, name, &new(FileKind::Directory, 0o700)) {
        Ok(made) => Ok(made.ino),
        // Another gateway was faster.
        Err(error) if error.errno() == Errno::EXIST.raw_os_error() => Ok(fs.lookup(parent, name)?.ino),
        Err(error) => Err(error),
    }
}

/// A file or directory that belongs to the user of this process.
pub fn new(kind: FileKind, mode: u32) -> New {
    New { kind, mode, uid: geteuid().as_raw(), gid: getegid().as_raw(), device: 0, link: Vec::new() }
}

//! Commands on volumes. Each takes a volume directory, or `VOLUME:/path` for files in it.
//!
//! A volume is open in one process. While that is a mount, commands are sent to it through a socket in the volume directory, so that an
//! operator can look after a volume that is in use.

pub mod create;
pub mod demo;
pub mod files;
pub mod fsck;
pub mod mount;
pub mod remote;
pub mod status;
pub mod target;
pub mod verify;

use crate::failure::Failure;
use crate::show;
use fs::{FileSystem, OpenOptions};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A volume that is mounted by this process.
pub struct Serving {
    fs: Arc<FileSystem>,
    /// Where it is mounted.
    pub mountpoint: PathBuf,
}

static SERVED: OnceLock<Serving> = OnceLock::new();

/// The volume that this process serves, if it is a mount.
pub fn served() -> Option<&'static Serving> {
    SERVED.get()
}

/// A volume that a command works on.
pub struct Open {
    fs: Arc<FileSystem>,
    served: bool,
}

impl std::ops::Deref for Open {
    type Target = FileSystem;

    fn deref(&self) -> &FileSystem {
        &self.fs
    }
}

impl Open {
    /// Commits everything; what could not be is an error of the command.
    pub fn finish(self) -> Result<(), Failure> {
        if self.served { Ok(self.fs.sync_all()?) } else { Ok(self.fs.close_volume()?) }
    }
}

/// How long to wait for who is about to close a volume.
const CLOSING: Duration = Duration::from_secs(3);

/// Does something again for a while when a volume or a target is in use: the end of a command, or of a mount, cannot be far. A mount that
/// answers does not end, and can be asked instead.
pub fn patiently<T>(volume: &Path, mut work: impl FnMut() -> Result<T, fs::Error>) -> Result<T, Failure> {
    let begun = Instant::now();
    loop {
        let error = match work() {
            Ok(done) => return Ok(done),
            Err(error @ (fs::Error::Conflict(_) | fs::Error::Volume(volume::Error::Conflict { .. }))) => error,
            Err(error) => return Err(error.into()),
        };
        if remote::answers(volume) || begun.elapsed() > CLOSING {
            return Err(Failure::Busy(volume.to_path_buf(), error.to_string()));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Opens a volume, or uses it if this process serves it.
pub fn open(directory: &Path, read_only: bool) -> Result<Open, Failure> {
    if let Some(serving) = served() {
        return Ok(Open { fs: serving.fs.clone(), served: true });
    }
    let fs = patiently(directory, || {
        let warn = Box::new(|what: &str| show::warning(what));
        FileSystem::open_volume(directory, OpenOptions { read_only, warn: Some(warn) })
    })?;
    Ok(Open { fs, served: false })
}

/// The path of a target as it is stored: absolute and without `..`, but with symbolic links, which may be what names the disk.
pub fn plain(path: &Path) -> PathBuf {
    let path = remote::resolve(path);
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

/// The plain path of what is to be a target. Labels are text, so that it must be, too.
pub fn new_target(path: &Path) -> Result<PathBuf, Failure> {
    let path = plain(path);
    match path.to_str() {
        Some(_) => Ok(path),
        None => Err(Failure::Usage(format!("{}: the path of a target must be UTF-8", volume::Shown(&path)))),
    }
}

/// A file in a volume, as it is given on the command line.
#[derive(Clone, Debug)]
pub struct Address {
    /// The volume directory.
    pub volume: PathBuf,
    /// The path in it, without slashes at its ends; empty for the root.
    pub path: Vec<u8>,
}

impl Address {
    /// Reads `VOLUME:/path`; None when it has no `:/`, and so is a path of this machine.
    pub fn parse(given: &OsStr) -> Option<Self> {
        let bytes = given.as_bytes();
        let at = bytes.windows(2).position(|pair| pair == b":/")?;
        let path = &bytes[at + 2..];
        let first = path.iter().position(|&byte| byte != b'/').unwrap_or(path.len());
        let last = path.iter().rposition(|&byte| byte != b'/').map_or(first, |last| last + 1);
        Some(Self { volume: PathBuf::from(OsString::from_vec(bytes[..at].to_vec())), path: path[first..last].to_vec() })
    }

    /// As `parse`, or a usage error.
    pub fn required(given: &OsStr) -> Result<Self, Failure> {
        Self::parse(given).ok_or_else(|| {
            Failure::Usage(format!(
                "{} is no file of a volume; give it as VOLUME:/path",
                volume::Shown(Path::new(given))
            ))
        })
    }

    /// The names of the path.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.path.split(|&byte| byte == b'/').filter(|name| !name.is_empty())
    }

    /// The address as it is shown.
    pub fn shown(&self) -> String {
        format!("{}:/{}", volume::Shown(&self.volume), volume::Shown(Path::new(OsStr::from_bytes(&self.path))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_a_volume_and_a_path() {
        let parsed =
            |given: &str| Address::parse(OsStr::new(given)).map(|a| (a.volume, String::from_utf8(a.path).unwrap()));
        assert_eq!(parsed("v:/a/b/"), Some(("v".into(), "a/b".into())));
        assert_eq!(parsed("/x/v:/"), Some(("/x/v".into(), String::new())));
        assert_eq!(parsed("v://a"), Some(("v".into(), "a".into())));
        assert_eq!(parsed("a:b"), None);
    }
}

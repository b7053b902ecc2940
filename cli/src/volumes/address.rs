//! How the command line names volumes, and files in them.

use crate::failure::Failure;
use cluster::VolumeAddress;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The servers of a volume that is given as `weft://HOST:PORT/VOLUME`.
pub fn server_of(volume: &Path) -> Result<Option<VolumeAddress>, Failure> {
    Ok(VolumeAddress::of(volume).transpose()?)
}

/// A file in a volume, as the command line names it.
#[derive(Clone, Debug)]
pub struct Address {
    /// The volume directory.
    pub volume: PathBuf,
    /// The path in it, without slashes at its ends; empty for the root.
    pub path: Vec<u8>,
}

impl Address {
    /// Reads `VOLUME:/path`; None if it has no `:/` and so is a path of this machine.
    pub fn parse(given: &OsStr) -> Option<Self> {
        let bytes = given.as_bytes();
        // The address of a server has a `:/` itself, and its name may have none.
        let begin = if bytes.starts_with(b"weft://") { b"weft://".len() } else { 0 };
        let at = begin + bytes[begin..].windows(2).position(|pair| pair == b":/")?;
        let path = &bytes[at + 2..];
        let first = path.iter().position(|&byte| byte != b'/').unwrap_or(path.len());
        let last = path.iter().rposition(|&byte| byte != b'/').map_or(first, |last| last + 1);
        Some(Self { volume: PathBuf::from(OsString::from_vec(bytes[..at].to_vec())), path: path[first..last].to_vec() })
    }

    /// As `parse`, or a usage error.
    pub fn required(given: &OsStr) -> Result<Self, Failure> {
        Self::parse(given).ok_or_else(|| {
            Failure::Usage(format!(
                "{} is not a file of a volume; give it as VOLUME:/path",
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
        format!("{}:/{}", volume::Shown(&self.volume), volume::shown(&self.path))
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
        assert_eq!(parsed("weft://h:1/v:/a"), Some(("weft://h:1/v".into(), "a".into())));
        assert_eq!(parsed("weft://h:1/v"), None);
    }
}

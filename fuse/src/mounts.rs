//! What is mounted where, as the kernel lists it. Reading that list never waits for the server of a
//! mount, as a `stat` would.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// `major:minor` of the device number that `stat` shows for its files.
    pub device: OsString,
    /// Where it is.
    pub path: PathBuf,
    /// The kind of file system, such as `fuse.weft`.
    pub kind: OsString,
    /// What is mounted.
    pub source: PathBuf,
}

/// The uppermost mount at exactly that path.
pub(crate) fn at(path: &Path) -> Option<Mount> {
    mounts().into_iter().rfind(|mount| mount.path == path)
}

/// All mounts, in the order in which they were made.
pub fn mounts() -> Vec<Mount> {
    let list = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    list.split(|&byte| byte == b'\n').filter_map(parse).collect()
}

/// Reads a line of `/proc/self/mountinfo`, see proc_pid_mountinfo(5).
fn parse(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|&byte| byte == b' ').map(unescape);
    let (device, path) = (words.nth(2)?, words.nth(1)?.into());
    words.find(|word| word == "-")?;
    let (kind, source) = (words.next()?, words.next()?.into());
    Some(Mount { device, path, kind, source })
}

/// Blanks and backslashes are three octal digits there.
fn unescape(word: &[u8]) -> OsString {
    let (mut bytes, mut rest) = (Vec::new(), word);
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.filter(|_| first == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &behind[3..] } else { behind };
    }
    OsString::from_vec(bytes)
}

/// The path without links, `.` and `..`, found without asking the server of a mount that may be
/// there: only the directory above is looked at.
pub(crate) fn plain(path: &Path) -> std::io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => {
            let plain = parent.canonicalize()?.join(name);
            // A link to a mount point is followed, which again asks no server.
            match std::fs::read_link(&plain) {
                Ok(target) if at(&plain).is_none() => self::plain(&plain.with_file_name("").join(target)),
                _ => Ok(plain),
            }
        }
        _ => path.canonicalize(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let line =
            br"36 35 0:52 / /mnt/a\040b\134c rw,nosuid master:1 propagate_from:2 - fuse.weft my\040volume rw,user_id=0";
        let (path, source) = (r"/mnt/a b\c".into(), "my volume".into());
        assert_eq!(parse(line), Some(Mount { device: "0:52".into(), path, kind: "fuse.weft".into(), source }));
        assert_eq!(parse(b"nonsense"), None);
        assert_eq!(unescape(br"/srv/a\040b\134c\012"), "/srv/a b\\c\n");
        assert_eq!(unescape(br"plain\9"), r"plain\9");
        assert!(at(Path::new("/proc")).is_some_and(|mount| mount.kind == "proc"));
    }
}

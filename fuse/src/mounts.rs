//! What is mounted where, as the kernel lists it. Reading that list never waits for the server of a
//! mount, as a `stat` would.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// `major:minor` of the device number that `stat` shows for its files.
    pub device: String,
    /// Where it is.
    pub path: PathBuf,
    /// The kind of file system, such as `fuse.weft`.
    pub kind: String,
}

/// The uppermost mount at exactly that path.
pub(crate) fn at(path: &Path) -> Option<Mount> {
    let list = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    list.lines().filter_map(parse).rfind(|mount| mount.path == path)
}

/// Reads a line of `/proc/self/mountinfo`, see proc_pid_mountinfo(5).
fn parse(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let mut fields = left.split(' ').skip(2);
    let device = fields.next()?.to_owned();
    let path = PathBuf::from(unescape(fields.nth(1)?));
    Some(Mount { device, path, kind: right.split(' ').next()?.to_owned() })
}

/// Blanks and backslashes are three octal digits there.
fn unescape(text: &str) -> OsString {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&first, behind)) = rest.split_first() {
        let code = behind.get(..3).and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match code.filter(|_| first == b'\\') {
            Some(code) => {
                bytes.push(code);
                rest = &behind[3..];
            }
            None => {
                bytes.push(first);
                rest = behind;
            }
        }
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
            r"36 35 0:52 / /mnt/a\040b\134c rw,nosuid master:1 propagate_from:2 - fuse.weft my\040volume rw,user_id=0";
        let mount = Mount { device: "0:52".into(), path: r"/mnt/a b\c".into(), kind: "fuse.weft".into() };
        assert_eq!(parse(line), Some(mount));
        assert_eq!(parse("nonsense"), None);
        assert!(at(Path::new("/proc")).is_some_and(|mount| mount.kind == "proc"));
    }
}

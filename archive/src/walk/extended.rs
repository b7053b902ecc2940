//! Extended attributes of files of the machine.

use rustix::fs::{fgetxattr, flistxattr, lgetxattr, llistxattr};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd};

/// The prefix of Weft's own attributes. In a volume they store what an archive knows of a file;
/// they are neither read from a source nor restored.
pub const OWN: &[u8] = b"user.weft.";

/// Names and values.
pub type Extended = Vec<(Vec<u8>, Vec<u8>)>;

/// The most bytes of a list of names, and of a value.
const MAX_VALUE_BYTES: usize = 64 << 10;

/// The extended attributes of an open file; empty if the file system does not support them.
///
/// # Errors
/// The errors of the system calls.
pub fn read_attributes(file: impl AsFd) -> Result<Extended, Errno> {
    let file = file.as_fd();
    read(|names| flistxattr(file, names), |name, value| fgetxattr(file, name, value))
}

/// The extended attributes of a file that cannot be opened (a link or special file), by its name.
///
/// # Errors
/// The errors of the system calls.
pub fn read_attributes_at(directory: impl AsFd, name: &[u8]) -> Result<Extended, Errno> {
    let path = path_of(directory, name);
    read(|names| llistxattr(&path[..], names), |name, value| lgetxattr(&path[..], name, value))
}

/// A path to a file in an open directory, for system calls that need a path. No link is followed on
/// the way; the call itself may follow the last one.
pub fn path_of(directory: impl AsFd, name: &[u8]) -> Vec<u8> {
    let directory = format!("/proc/self/fd/{}/", directory.as_fd().as_raw_fd());
    [directory.as_bytes(), name].concat()
}

fn read(
    list: impl Fn(&mut [u8]) -> Result<usize, Errno>,
    get: impl Fn(&[u8], &mut [u8]) -> Result<usize, Errno>,
) -> Result<Extended, Errno> {
    let mut names = [0u8; 1024];
    let listed = match list(&mut names) {
        Ok(0) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Vec::new()),
        Ok(length) => names[..length].to_vec(),
        Err(Errno::RANGE) => {
            let mut more = vec![0; MAX_VALUE_BYTES];
            let length = list(&mut more)?;
            more.truncate(length);
            more
        }
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for name in listed.split(|&byte| byte == 0).filter(|name| !name.is_empty() && !name.starts_with(OWN)) {
        let mut value = vec![0; 1024];
        let length = match get(name, &mut value) {
            Err(Errno::RANGE) => {
                value.resize(MAX_VALUE_BYTES, 0);
                get(name, &mut value)?
            }
            // The attribute was removed meanwhile.
            Err(Errno::NODATA) => continue,
            got => got?,
        };
        value.truncate(length);
        found.push((name.to_vec(), value));
    }
    found.sort();
    Ok(found)
}

//! Extended attributes of files of the machine.

use rustix::fs::{fgetxattr, flistxattr};
use rustix::io::Errno;
use std::os::fd::AsFd;

/// Attributes whose names begin so are Weft's own: in a volume they say what an archive knows of a file; they are neither taken from a source nor restored.
pub const OWN: &[u8] = b"user.weft.";

/// Names and values.
pub type Extended = Vec<(Vec<u8>, Vec<u8>)>;

/// A list of names may be so long, and a value.
const MOST: usize = 64 << 10;

/// The extended attributes of an open file; none where the file system has none.
///
/// # Errors
/// Those of the system calls.
pub fn read_attributes(file: impl AsFd) -> Result<Extended, Errno> {
    let file = file.as_fd();
    let mut names = [0u8; 1024];
    let listed = match flistxattr(file, &mut names) {
        Ok(0) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Vec::new()),
        Ok(length) => names[..length].to_vec(),
        Err(Errno::RANGE) => {
            let mut more = vec![0; MOST];
            let length = flistxattr(file, &mut more)?;
            more.truncate(length);
            more
        }
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for name in listed.split(|&byte| byte == 0).filter(|name| !name.is_empty() && !name.starts_with(OWN)) {
        let mut value = vec![0; 1024];
        let length = match fgetxattr(file, name, &mut value[..]) {
            Err(Errno::RANGE) => {
                value.resize(MOST, 0);
                fgetxattr(file, name, &mut value[..])?
            }
            // It was removed meanwhile.
            Err(Errno::NODATA) => continue,
            got => got?,
        };
        value.truncate(length);
        found.push((name.to_vec(), value));
    }
    found.sort();
    Ok(found)
}

//! Opens directories and files for reading.

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::os::fd::AsFd;

/// A longer path is opened step by step: the kernel takes at most 4096 bytes at a time.
const MAX_OPEN_PATH_BYTES: usize = 3000;

/// Opens a directory to list it, however long its path is.
///
/// # Errors
/// The errors of the system call.
pub fn open_directory(path: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mut at: Option<OwnedFd> = None;
    let mut rest = if path.is_empty() { &b"."[..] } else { path };
    loop {
        let (step, behind) = match rest.len() > MAX_OPEN_PATH_BYTES {
            true => match rest[..MAX_OPEN_PATH_BYTES].iter().rposition(|&byte| byte == b'/').filter(|&cut| cut > 0) {
                Some(cut) => (&rest[..cut], &rest[cut + 1..]),
                None => (rest, &b""[..]),
            },
            false => (rest, &b""[..]),
        };
        let next = match &at {
            Some(directory) => openat(directory, step, flags, Mode::empty())?,
            None => openat(CWD, step, flags, Mode::empty())?,
        };
        // Consecutive slashes count as one.
        let skipped = behind.iter().position(|&byte| byte != b'/').unwrap_or(behind.len());
        rest = &behind[skipped..];
        if rest.is_empty() {
            return Ok(next);
        }
        at = Some(next);
    }
}

/// Opens a file of a directory for reading. It does not follow a link, does not wait for a FIFO,
/// and leaves the access time unchanged where that is permitted.
///
/// # Errors
/// The errors of the system call.
pub fn open_file(directory: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    match openat(directory.as_fd(), name, flags | OFlags::NOATIME, Mode::empty()) {
        // Only the owner may open without changing the access time.
        Err(Errno::PERM) => openat(directory, name, flags, Mode::empty()),
        opened => opened,
    }
}

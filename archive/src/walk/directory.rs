//! Opening directories and files to read.

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::os::fd::AsFd;

/// A path that is longer is opened step by step: the kernel takes no more than 4096 bytes at a time.
const STEP: usize = 3000;

/// Opens a directory to list it, whatever the length of its path.
///
/// # Errors
/// Those of the system call.
pub fn open_directory(path: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mut at: Option<OwnedFd> = None;
    let mut rest = if path.is_empty() { &b"."[..] } else { path };
    loop {
        let (step, behind) = match rest.len() > STEP {
            true => match rest[..STEP].iter().rposition(|&byte| byte == b'/').filter(|&cut| cut > 0) {
                Some(cut) => (&rest[..cut], &rest[cut + 1..]),
                None => (rest, &b""[..]),
            },
            false => (rest, &b""[..]),
        };
        let next = match &at {
            Some(directory) => openat(directory, step, flags, Mode::empty())?,
            None => openat(CWD, step, flags, Mode::empty())?,
        };
        // Slashes that follow each other are one.
        let skipped = behind.iter().position(|&byte| byte != b'/').unwrap_or(behind.len());
        rest = &behind[skipped..];
        if rest.is_empty() {
            return Ok(next);
        }
        at = Some(next);
    }
}

/// Opens a file of a directory to read it; a link is not followed, a fifo not waited for, and the time of its last access stays where that is allowed.
///
/// # Errors
/// Those of the system call.
pub fn open_file(directory: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    match openat(directory.as_fd(), name, flags | OFlags::NOATIME, Mode::empty()) {
        // Only for the owner.
        Err(Errno::PERM) => openat(directory, name, flags, Mode::empty()),
        opened => opened,
    }
}

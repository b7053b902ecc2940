//! Reads the attributes of files by system calls.

use crate::message::Stat;
use fs::{FileKind, Time};
use rustix::fs::{AtFlags, FileType, Statx, StatxFlags, StatxTimestamp, statx};
use rustix::io::Errno;
use std::os::fd::AsFd;

/// The kernel's number of a device in 32 bits (`new_encode_dev`).
fn device(major: u32, minor: u32) -> u32 {
    (minor & 0xFF) | (major << 8) | ((minor & !0xFF) << 12)
}

fn time(time: StatxTimestamp) -> Time {
    Time { seconds: time.tv_sec, nanoseconds: time.tv_nsec }
}

fn stat(found: &Statx) -> Stat {
    let kind = match FileType::from_raw_mode(found.stx_mode.into()) {
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::CharacterDevice => FileKind::CharacterDevice,
        _ => FileKind::File,
    };
    let system = (u64::from(found.stx_dev_major) << 32) | u64::from(found.stx_dev_minor);
    Stat {
        kind,
        mode: u32::from(found.stx_mode) & 0o7777,
        uid: found.stx_uid,
        gid: found.stx_gid,
        links: found.stx_nlink,
        device: device(found.stx_rdev_major, found.stx_rdev_minor),
        size: found.stx_size,
        allocated: found.stx_blocks.saturating_mul(512),
        accessed: time(found.stx_atime),
        modified: time(found.stx_mtime),
        changed: time(found.stx_ctime),
        identity: (system, found.stx_ino),
    }
}

/// The attributes of a file in a directory; a link is not followed.
///
/// # Errors
/// The errors of the system call.
pub fn stat_at(directory: impl AsFd, name: &[u8]) -> Result<Stat, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    statx(directory, name, flags, StatxFlags::BASIC_STATS).map(|found| stat(&found))
}

/// The attributes of an open file.
///
/// # Errors
/// The errors of the system call.
pub fn stat_of(file: impl AsFd) -> Result<Stat, Errno> {
    statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS).map(|found| stat(&found))
}

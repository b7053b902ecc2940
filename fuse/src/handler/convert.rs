//! Attributes, in the form of the kernel and in that of the file system.

use fs::{Attributes, FileKind, New, SetTime, Time};
use fuser::{FileAttr, FileType, Generation, INodeNo, Request, TimeOrNow};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Numbers of files are never used again, so that one generation is enough.
pub(super) const GENERATION: Generation = Generation(0);
/// The length that programs are advised to read and write at once.
const BLOCK: u32 = 128 << 10;

/// The attributes of a file that is not there.
pub(super) const NONE: FileAttr = FileAttr {
    ino: INodeNo(0),
    size: 0,
    blocks: 0,
    atime: UNIX_EPOCH,
    mtime: UNIX_EPOCH,
    ctime: UNIX_EPOCH,
    crtime: UNIX_EPOCH,
    kind: FileType::RegularFile,
    perm: 0,
    nlink: 0,
    uid: 0,
    gid: 0,
    rdev: 0,
    blksize: BLOCK,
    flags: 0,
};

/// A file that a program makes.
pub(super) fn new_file(request: &Request, kind: FileKind, mode: u32) -> New {
    // The kernel has applied the umask.
    New { kind, mode: mode & 0o7777, uid: request.uid(), gid: request.gid(), device: 0, link: Vec::new() }
}

pub(super) fn file_attributes(attributes: &Attributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(attributes.ino.0),
        size: attributes.size,
        blocks: attributes.allocated.div_ceil(512),
        atime: system_time(attributes.accessed),
        mtime: system_time(attributes.modified),
        ctime: system_time(attributes.changed),
        crtime: system_time(attributes.created),
        kind: file_type(attributes.kind),
        perm: (attributes.mode & 0o7777) as u16,
        nlink: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: attributes.device,
        ..NONE
    }
}

pub(super) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::CharacterDevice => FileType::CharDevice,
    }
}

/// The kinds of file that mknod(2) makes; no kind means a regular file.
pub(super) fn kind_of_mode(mode: u32) -> Option<FileKind> {
    match mode & libc::S_IFMT {
        0 | libc::S_IFREG => Some(FileKind::File),
        libc::S_IFIFO => Some(FileKind::Fifo),
        libc::S_IFSOCK => Some(FileKind::Socket),
        libc::S_IFBLK => Some(FileKind::BlockDevice),
        libc::S_IFCHR => Some(FileKind::CharacterDevice),
        _ => None,
    }
}

fn system_time(time: Time) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = if time.seconds < 0 { UNIX_EPOCH.checked_sub(seconds) } else { UNIX_EPOCH.checked_add(seconds) };
    whole.and_then(|whole| whole.checked_add(Duration::new(0, time.nanoseconds))).unwrap_or(UNIX_EPOCH)
}

/// fuser takes the nanoseconds of times before 1970 for backwards ones (it subtracts seconds and
/// nanoseconds of the kernel), which is undone here.
pub(super) fn time(time: SystemTime) -> Time {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => {
            Time { seconds: i64::try_from(after.as_secs()).unwrap_or(i64::MAX), nanoseconds: after.subsec_nanos() }
        }
        Err(before) => {
            let before = before.duration();
            Time { seconds: 0i64.saturating_sub_unsigned(before.as_secs()), nanoseconds: before.subsec_nanos() }
        }
    }
}

pub(super) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::To(self::time(time)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_survive() {
        let shown = system_time(Time { seconds: -2, nanoseconds: 800_000_000 });
        assert_eq!(shown, UNIX_EPOCH - Duration::from_millis(1200));
        // What fuser makes of the same seconds and nanoseconds.
        let told = UNIX_EPOCH - Duration::new(2, 800_000_000);
        assert_eq!(time(told), Time { seconds: -2, nanoseconds: 800_000_000 });
        let after = Time { seconds: 5, nanoseconds: 7 };
        assert_eq!(time(system_time(after)), after);
        let first = Time { seconds: i64::MIN, nanoseconds: 0 };
        assert_eq!(time(system_time(first)), first);
    }
}

//! Whether a program may open a file that another client made where the program wanted to make one.
//! As a rule the kernel decides that, but it has not looked at the file. The answer ESTALE says
//! that it knows too little: then it looks again, once, and the next time gives the error to the
//! program.

use fs::{Attributes, FileKind, Ino, New, lock};
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long the kernel may take to look again.
const RECHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// The most openings that are kept in mind.
const MAX_OPENINGS: usize = 4096;

/// Whether a program may open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Yes,
    /// It gets this error.
    No(i32),
    /// Only the kernel can decide that. If it cannot, the program gets this error.
    AskKernel(i32),
}

/// The supplementary groups of a process; None for one that cannot be seen from here.
pub(super) fn groups_of(process: u32) -> Option<Vec<u32>> {
    groups_in(&std::fs::read_to_string(format!("/proc/{process}/status")).ok()?)
}

/// The groups in a status file of proc(5).
fn groups_in(status: &str) -> Option<Vec<u32>> {
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"))?;
    line.split_whitespace().map(|group| group.parse().ok()).collect()
}

/// Whether the kernel protects regular files of others in directories that others may write to, too
/// (see sysctl `fs.protected_regular`).
pub(super) fn protection() -> u32 {
    let value = std::fs::read_to_string("/proc/sys/fs/protected_regular");
    value.ok().and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

/// Whether the program that wanted to make a file in a directory may open the one that is there.
/// `groups` are the program's supplementary groups, if they are known.
pub(super) fn may_open(
    by: &New,
    groups: Option<&[u32]>,
    directory: &Attributes,
    found: &Attributes,
    flags: i32,
    protection: u32,
) -> Verdict {
    match found.kind {
        FileKind::File => {}
        FileKind::Directory => return Verdict::No(libc::EISDIR),
        // The kernel follows links, and opens devices and pipes.
        _ => return Verdict::AskKernel(libc::EIO),
    }
    let is_protected = directory.mode & libc::S_ISVTX != 0
        && found.uid != by.uid
        && found.uid != directory.uid
        && (protection >= 1 && directory.mode & 0o002 != 0 || protection >= 2 && directory.mode & 0o020 != 0);
    if is_protected {
        return Verdict::No(libc::EACCES);
    }
    let needed = match flags & libc::O_ACCMODE {
        libc::O_RDONLY if flags & libc::O_TRUNC == 0 => 0o4,
        libc::O_WRONLY => 0o2,
        _ => 0o6,
    };
    let classes: &[u32] = match (by.uid, by.gid, groups) {
        (0, ..) => &[],
        (uid, ..) if uid == found.uid => &[6],
        (_, gid, _) if gid == found.gid => &[3],
        (_, _, Some(groups)) if groups.contains(&found.gid) => &[3],
        (_, _, Some(_)) => &[0],
        (_, _, None) => &[3, 0],
    };
    let allowed = classes.iter().filter(|class| found.mode >> **class & needed == needed).count();
    match allowed {
        all if all == classes.len() => Verdict::Yes,
        0 => Verdict::No(libc::EACCES),
        _ => Verdict::AskKernel(libc::EACCES),
    }
}

/// Openings for which the kernel looks again, with the time of that answer.
#[derive(Debug, Default)]
pub(super) struct LooksAgain(Mutex<HashMap<Opening, Instant>>);

/// An opening: the process, the file or directory, and the name.
type Opening = (u32, Ino, Box<[u8]>);

impl LooksAgain {
    /// The answer that makes the kernel look again: ESTALE, but `otherwise` if it did already.
    pub fn answer(&self, process: u32, ino: Ino, name: &[u8], otherwise: i32) -> i32 {
        let now = Instant::now();
        let mut all = lock(&self.0);
        if all.len() >= MAX_OPENINGS {
            all.retain(|_, asked| now.saturating_duration_since(*asked) < RECHECK_TIMEOUT);
        }
        if all.len() >= MAX_OPENINGS {
            all.clear();
        }
        match all.remove(&(process, ino, name.into())) {
            Some(asked) if now.saturating_duration_since(asked) < RECHECK_TIMEOUT => otherwise,
            _ => {
                all.insert((process, ino, name.into()), now);
                libc::ESTALE
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fs::Time;

    fn found(mode: u32, uid: u32, gid: u32) -> Attributes {
        let zero = Time { seconds: 0, nanoseconds: 0 };
        let (accessed, modified, changed, created) = (zero, zero, zero, zero);
        let (ino, kind, links, device, size, allocated) = (Ino(9), FileKind::File, 1, 0, 0, 0);
        Attributes { ino, kind, mode, links, uid, gid, device, size, allocated, accessed, modified, changed, created }
    }

    fn by(uid: u32, gid: u32) -> New {
        New { kind: FileKind::File, mode: 0o644, uid, gid, device: 0, link: Vec::new() }
    }

    const NO: Verdict = Verdict::No(libc::EACCES);

    #[test]
    fn a_file_of_somebody_else_is_opened_only_if_that_is_allowed() {
        let directory = Attributes { kind: FileKind::Directory, ..found(0o755, 0, 0) };
        let may = |by: New, groups: Option<&[u32]>, found: Attributes, flags: i32| {
            may_open(&by, groups, &directory, &found, flags, 2)
        };
        assert_eq!(may(by(0, 0), None, found(0, 5, 5), libc::O_RDWR), Verdict::Yes);
        let link = Attributes { kind: FileKind::Symlink, ..found(0o777, 0, 0) };
        assert_eq!(may(by(0, 0), None, link, libc::O_RDONLY), Verdict::AskKernel(libc::EIO));
        assert_eq!(may(by(0, 0), None, directory, libc::O_RDONLY), Verdict::No(libc::EISDIR));
        assert_eq!(may(by(5, 1), None, found(0o400, 5, 6), libc::O_RDONLY), Verdict::Yes);
        assert_eq!(may(by(5, 1), None, found(0o400, 5, 6), libc::O_RDONLY | libc::O_TRUNC), NO);
        assert_eq!(may(by(5, 6), None, found(0o477, 5, 6), libc::O_WRONLY), NO, "its owner's bits alone count");
        assert_eq!(may(by(1, 6), None, found(0o660, 5, 6), libc::O_RDWR), Verdict::Yes);
        let unsure = Verdict::AskKernel(libc::EACCES);
        assert_eq!(may(by(1, 1), None, found(0o606, 5, 6), libc::O_RDWR), unsure, "it may be in the group");
        assert_eq!(may(by(1, 1), Some(&[4, 6]), found(0o606, 5, 6), libc::O_RDWR), NO);
        assert_eq!(may(by(1, 1), Some(&[4, 6]), found(0o660, 5, 6), libc::O_RDWR), Verdict::Yes);
        assert_eq!(may(by(1, 1), Some(&[4]), found(0o606, 5, 6), libc::O_RDWR), Verdict::Yes);
        assert_eq!(may(by(1, 1), Some(&[4]), found(0o660, 5, 6), libc::O_RDWR), NO);
        assert_eq!(may(by(1, 1), None, found(0o666, 5, 6), libc::O_RDWR), Verdict::Yes);
    }

    /// See `fs.protected_regular` in the kernel's Documentation/admin-guide/sysctl/fs.rst.
    #[test]
    fn a_file_of_somebody_else_in_a_directory_of_all_is_protected_as_the_kernel_does_it() {
        let may = |uid: u32, mode: u32, owner: u32, protection: u32| {
            let directory = Attributes { kind: FileKind::Directory, ..found(mode, 7, 0) };
            may_open(&by(uid, 1), Some(&[]), &directory, &found(0o666, owner, 6), libc::O_RDWR, protection)
        };
        assert_eq!(may(1, 0o1777, 5, 0), Verdict::Yes);
        assert_eq!((may(1, 0o1777, 5, 1), may(0, 0o1777, 5, 1)), (NO, NO));
        assert_eq!((may(1, 0o0777, 5, 2), may(1, 0o1755, 5, 2)), (Verdict::Yes, Verdict::Yes));
        assert_eq!((may(1, 0o1775, 5, 1), may(1, 0o1775, 5, 2)), (Verdict::Yes, NO));
        // Its own files, and those of the directory's owner.
        assert_eq!((may(5, 0o1777, 5, 2), may(1, 0o1777, 7, 2)), (Verdict::Yes, Verdict::Yes));
    }

    #[test]
    fn groups_are_those_of_the_process() {
        assert_eq!(groups_in("Name:\tcat\nGroups:\t4 24 1000 \nNgid:\t0\n"), Some(vec![4, 24, 1000]));
        assert_eq!((groups_in("Groups:\t\n"), groups_in("Name:\tcat\n")), (Some(vec![]), None));
        assert!(groups_of(std::process::id()).is_some());
        assert_eq!(groups_of(0), None);
    }

    /// The kernel looks again once, and hands ESTALE to the program after that.
    #[test]
    fn no_program_hears_that_the_kernel_should_look_again() {
        let again = LooksAgain::default();
        for _ in 0..2 {
            assert_eq!(again.answer(1, Ino(9), b"a", libc::EIO), libc::ESTALE);
            assert_eq!(again.answer(2, Ino(9), b"a", libc::EIO), libc::ESTALE);
            assert_eq!(again.answer(1, Ino(9), b"b", libc::EIO), libc::ESTALE);
            assert_eq!(again.answer(1, Ino(9), b"a", libc::EACCES), libc::EACCES);
            assert_eq!(again.answer(2, Ino(9), b"a", libc::EIO), libc::EIO);
            assert_eq!(again.answer(1, Ino(9), b"b", libc::EIO), libc::EIO);
        }
        (0..3 * MAX_OPENINGS as u64)
            .for_each(|ino| assert_eq!(again.answer(1, Ino(ino), b"a", libc::EIO), libc::ESTALE));
        assert!(again.0.lock().unwrap().len() <= MAX_OPENINGS);
    }
}

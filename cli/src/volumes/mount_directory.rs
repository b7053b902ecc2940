//! The directory in which a mount of a cluster has its log and its socket. The process of the mount
//! has it locked, and removes it at its end. The next mount removes what killed processes left.

use super::remote::{Presence, SOCKET, presence};
use super::runtime::{LOG, append_to, base, check, make, name};
use crate::failure::Failure;
use crate::show;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use volume::Shown;

const LOCK: &str = "lock";
/// The log of a mount that failed is kept for this long.
const LOG_KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);
/// How long a mount waits for the one before it to end.
pub const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(300);
/// After this time a message tells the user why nothing happens.
const NOTICE_AFTER: Duration = Duration::from_secs(3);

/// The directory of a mount that this process has.
#[derive(Debug)]
pub struct MountDirectory {
    pub path: PathBuf,
    lock: File,
}

impl MountDirectory {
    /// Takes the directory of a mount point once the mount before this one is over, and removes
    /// what others left.
    pub fn take(mountpoint: &Path) -> Result<Self, Failure> {
        Self::take_in(&base()?, mountpoint)
    }

    fn take_in(base: &Path, mountpoint: &Path) -> Result<Self, Failure> {
        let path = base.join(name(mountpoint));
        let begun = Instant::now();
        let mut has_warned = false;
        loop {
            let failed = |why: std::io::Error| Failure::Other(format!("cannot use {}: {why}", Shown(&path)));
            match make(base).and_then(|()| make(&path)).and_then(|()| locked(&path)) {
                Ok(Some(lock)) => {
                    clear(base, &path);
                    return Ok(Self { path, lock });
                }
                // The mount before this one has just removed it, or another one that clears up.
                Err(why) if why.kind() == std::io::ErrorKind::NotFound && begun.elapsed() < UNMOUNT_TIMEOUT => continue,
                Err(why) => return Err(failed(why)),
                Ok(None) => {}
            }
            let point = Shown(mountpoint);
            if presence(&path) == Presence::Mounted {
                let what = "a Weft volume is mounted here already; unmount it first (weft unmount)";
                return Err(Failure::Other(format!("{point}: {what}")));
            }
            if begun.elapsed() > UNMOUNT_TIMEOUT {
                return Err(Failure::Other(format!("{point}: the mount before this one does not end")));
            }
            if begun.elapsed() > NOTICE_AFTER && !has_warned {
                show::warning(format_args!("{point}: waiting for the mount before this one to commit what it has"));
                has_warned = true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The same, if the process that started this one took it and holds it.
    pub fn given(mountpoint: &Path) -> Result<Self, Failure> {
        let path = base()?.join(name(mountpoint));
        let failed = |why: std::io::Error| Failure::Other(format!("cannot use {}: {why}", Shown(&path)));
        let lock = File::open(path.join(LOCK)).map_err(failed)?;
        Ok(Self { path, lock })
    }

    /// A handle on the lock, to be given to the process that goes on with it.
    pub fn lock(&self) -> std::io::Result<File> {
        self.lock.try_clone()
    }

    /// To be called at the end of the mount. Its log is kept for a while if the mount failed.
    pub fn end(self, well: bool) {
        if well {
            remove(&self.path);
        }
    }
}

/// The lock of a directory, if no process has it.
fn locked(path: &Path) -> std::io::Result<Option<File>> {
    let file = append_to(&path.join(LOCK))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
        Err(why) => return Err(why.into()),
    }
    // Its last holder may have removed it.
    let (ours, there) = (file.metadata()?, path.join(LOCK).symlink_metadata()?);
    if (ours.dev(), ours.ino()) == (there.dev(), there.ino()) { Ok(Some(file)) } else { Ok(None) }
}

/// Removes the directories of processes that are gone.
fn clear(base: &Path, own: &Path) {
    for entry in base.read_dir().into_iter().flatten().flatten() {
        let path = entry.path();
        let is_one = entry.file_name().len() == 16 && entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !is_one || path == own || check(&path).is_err() {
            continue;
        }
        let Ok(Some(_lock)) = locked(&path) else { continue };
        let said = path.join(LOG).symlink_metadata();
        let is_recent =
            |log: &std::fs::Metadata| log.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age < LOG_KEPT_FOR));
        if said.is_ok_and(|log| log.len() > 0 && is_recent(&log)) {
            continue;
        }
        remove(&path);
    }
}

/// Removes a directory and what a mount puts into it, and nothing else. The lock goes last.
fn remove(path: &Path) {
    for name in [SOCKET, LOG, LOCK] {
        let _ = std::fs::remove_file(path.join(name));
    }
    let _ = std::fs::remove_dir(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_that_clear_up_are_no_trouble_for_others_that_begin() {
        let base = std::env::temp_dir().join(format!("weft-begin-{}", std::process::id()));
        std::thread::scope(|scope| {
            for mount in 0..4 {
                let base = &base;
                scope.spawn(move || {
                    for _ in 0..2000 {
                        let taken = MountDirectory::take_in(base, Path::new(&format!("/absent/{mount}"))).unwrap();
                        assert!(taken.path.is_dir());
                        taken.end(true);
                    }
                });
            }
        });
        std::fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn what_is_locked_or_was_said_lately_stays() {
        let base = std::env::temp_dir().join(format!("weft-clear-{}", std::process::id()));
        make(&base).unwrap();
        let [own, held, left, said] = ["0", "1", "2", "3"].map(|digit| base.join(digit.repeat(16)));
        for path in [&own, &held, &left, &said] {
            make(path).unwrap();
            std::fs::write(path.join(LOG), if path == &said { "weft: lost" } else { "" }).unwrap();
            std::fs::write(path.join(SOCKET), "").unwrap();
        }
        let _lock = locked(&held).unwrap().unwrap();
        clear(&base, &own);
        assert_eq!([&own, &held, &left, &said].map(|path| path.exists()), [true, true, false, true]);
        std::fs::remove_dir_all(base).unwrap();
    }
}

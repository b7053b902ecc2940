//! Where a mount of a cluster has its log and its socket: a directory that only its user may enter.
//! The process of the mount has it locked, and removes it at its end. The next mount removes what
//! killed processes left.

use super::remote;
use crate::failure::Failure;
use crate::show;
use rustix::fs::{FlockOperation, flock};
use std::fs::{DirBuilder, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use volume::Shown;

/// Says where these directories are, if not in the system's default place.
const VARIABLE: &str = "WEFT_RUNTIME_DIR";
const LOCK: &str = "lock";
/// The log of a mount.
pub const LOG: &str = "mount.log";
/// The log of a mount that failed is kept for this long.
const LOG_KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);
/// How long a mount waits for the one before it to end.
pub const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(300);
/// After this time a message tells the user why nothing happens.
const NOTICE_AFTER: Duration = Duration::from_secs(3);

/// Where the directories may be, the best first.
fn candidates() -> Vec<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(path) = variable(VARIABLE) {
        return vec![path];
    }
    let user = rustix::process::geteuid();
    // A mount of root outlives its session, and is found from all sessions.
    let of_system = match user.is_root() {
        true => Some(PathBuf::from("/run/weft")),
        false => variable("XDG_RUNTIME_DIR").map(|path| path.join("weft")),
    };
    let elsewhere = std::env::temp_dir().join(format!("weft-{}", user.as_raw()));
    of_system.into_iter().chain([elsewhere]).collect()
}

/// Whether a directory is this user's alone, and no link.
fn check(path: &Path) -> std::io::Result<()> {
    let found = path.symlink_metadata()?;
    let refused = |why: &str| Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, why));
    if !found.is_dir() {
        return refused("it is not a directory");
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return refused("it belongs to another user");
    }
    if found.mode() & 0o022 != 0 {
        return refused("others may write to it");
    }
    // Others may read it: nothing in it is theirs, so it may stay.
    if found.mode() & 0o077 != 0 {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

fn make(path: &Path) -> std::io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(why) if why.kind() != std::io::ErrorKind::AlreadyExists => Err(why),
        _ => check(path),
    }
}

/// Opens a file for appending, made for this user alone. A link is refused.
pub fn append_to(path: &Path) -> std::io::Result<File> {
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits();
    File::options().create(true).append(true).mode(0o600).custom_flags(flags.cast_signed()).open(path)
}

/// The directory of all these directories, made if it is not there.
fn base() -> Result<PathBuf, Failure> {
    let mut refused = None;
    for path in candidates() {
        match make(&path) {
            Ok(()) => return Ok(path),
            Err(why) => {
                let advice = format!("use another directory: {VARIABLE}=DIR");
                refused = Some(Failure::Other(format!("cannot use {}: {why}; {advice}", Shown(&path))));
                // An entry of another user there is a reason to look at it, not to go elsewhere.
                if why.kind() == std::io::ErrorKind::PermissionDenied && path.exists() && check(&path).is_err() {
                    break;
                }
            }
        }
    }
    Err(refused.unwrap_or_else(|| Failure::Other("there is no place for a log".into())))
}

/// A log for the mount that this process starts, of a volume whose directory cannot be written.
/// Nobody else may put anything there.
pub fn log_elsewhere() -> Result<PathBuf, Failure> {
    Ok(base()?.join(format!("mount-{}.log", std::process::id())))
}

/// What the directory of a mount point is called.
fn name(mountpoint: &Path) -> String {
    let mountpoint = mountpoint.canonicalize().unwrap_or_else(|_| mountpoint.to_path_buf());
    format!("{:016x}", gf::checksum::crc64(mountpoint.as_os_str().as_bytes()))
}

/// The directory of the mount at a mount point, if there is one.
pub fn find(mountpoint: &Path) -> Option<PathBuf> {
    let bases = candidates().into_iter().filter(|base| check(base).is_ok());
    bases.map(|base| base.join(name(mountpoint))).find(|place| check(place).is_ok())
}

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
        let base = base()?;
        let path = base.join(name(mountpoint));
        let begun = Instant::now();
        let mut has_warned = false;
        loop {
            let failed = |why: std::io::Error| Failure::Other(format!("cannot use {}: {why}", Shown(&path)));
            make(&path).map_err(failed)?;
            match locked(&path) {
                Ok(Some(lock)) => {
                    clear(&base, &path);
                    return Ok(Self { path, lock });
                }
                // The one before has just removed it.
                Err(why) if why.kind() == std::io::ErrorKind::NotFound => continue,
                Err(why) => return Err(failed(why)),
                Ok(None) => {}
            }
            let point = Shown(mountpoint);
            if remote::presence(&path) == remote::Presence::Mounted {
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
    for name in [remote::SOCKET, LOG, LOCK] {
        let _ = std::fs::remove_file(path.join(name));
    }
    let _ = std::fs::remove_dir(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_others_or_a_link_is_refused() {
        let scratch = std::env::temp_dir().join(format!("weft-runtime-{}", std::process::id()));
        std::fs::create_dir(&scratch).unwrap();
        let (own, open, link) = (scratch.join("own"), scratch.join("open"), scratch.join("link"));
        make(&own).unwrap();
        make(&own).unwrap();
        assert_eq!(own.metadata().unwrap().mode() & 0o777, 0o700);
        std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o755)).unwrap();
        make(&own).unwrap();
        assert_eq!(own.metadata().unwrap().mode() & 0o777, 0o700);
        make(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
        std::os::unix::fs::symlink(&own, &link).unwrap();
        for (path, why) in [(&open, "others may write"), (&link, "not a directory")] {
            let refused = make(path).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
        // A log that is a link is not followed.
        std::os::unix::fs::symlink("/etc/passwd", own.join(LOG)).unwrap();
        assert_eq!(append_to(&own.join(LOG)).unwrap_err().raw_os_error(), Some(rustix::io::Errno::LOOP.raw_os_error()));
        std::fs::remove_dir_all(scratch).unwrap();
    }

    #[test]
    fn what_is_locked_or_was_said_lately_stays() {
        let base = std::env::temp_dir().join(format!("weft-clear-{}", std::process::id()));
        make(&base).unwrap();
        let [own, held, left, said] = ["0", "1", "2", "3"].map(|digit| base.join(digit.repeat(16)));
        for path in [&own, &held, &left, &said] {
            make(path).unwrap();
            std::fs::write(path.join(LOG), if path == &said { "weft: lost" } else { "" }).unwrap();
            std::fs::write(path.join(remote::SOCKET), "").unwrap();
        }
        let _lock = locked(&held).unwrap().unwrap();
        clear(&base, &own);
        assert_eq!([&own, &held, &left, &said].map(|path| path.exists()), [true, true, false, true]);
        std::fs::remove_dir_all(base).unwrap();
    }
}

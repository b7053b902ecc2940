//! Where a mount of a cluster has its log and its socket: a directory that only its user may enter.

use crate::failure::Failure;
use std::fs::{DirBuilder, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use volume::Shown;

/// Says where these directories are, if not in the system's default place.
const VARIABLE: &str = "WEFT_RUNTIME_DIR";
/// The log of a mount.
pub const LOG: &str = "mount.log";
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
pub fn check(path: &Path) -> std::io::Result<()> {
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

pub fn make(path: &Path) -> std::io::Result<()> {
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
pub fn base() -> Result<PathBuf, Failure> {
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
pub fn name(mountpoint: &Path) -> String {
    let mountpoint = mountpoint.canonicalize().unwrap_or_else(|_| mountpoint.to_path_buf());
    format!("{:016x}", gf::checksum::crc64(mountpoint.as_os_str().as_bytes()))
}

/// The directory of the mount at a mount point, if there is one.
pub fn find(mountpoint: &Path) -> Option<PathBuf> {
    let bases = candidates().into_iter().filter(|base| check(base).is_ok());
    bases.map(|base| base.join(name(mountpoint))).find(|place| check(place).is_ok())
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
}

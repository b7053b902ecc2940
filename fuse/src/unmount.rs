//! Taking a mount away.

use crate::device::{HELPER, SUBTYPE};
use crate::{Error, mounts};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::io;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Unmounts what is mounted there and returns when it is gone. `lazy` takes it out of sight even
/// while files are in use; its server ends with their last use.
///
/// # Errors
/// If no Weft volume is mounted there, if it is in use, or if this user may not do it.
pub fn unmount(mountpoint: &Path, lazy: bool) -> Result<(), Error> {
    let path = mounts::plain(mountpoint).map_err(|_| Error::NotMounted(mountpoint.to_owned()))?;
    let mount = mounts::at(&path).filter(|mount| mount.kind == *format!("fuse.{SUBTYPE}"));
    detach(&mount.ok_or(Error::NotMounted(path))?, lazy)
}

/// Unmounts this mount, unless it is gone already.
pub(crate) fn detach(mount: &mounts::Mount, lazy: bool) -> Result<(), Error> {
    if mounts::at(&mount.path).as_ref() != Some(mount) {
        return Ok(());
    }
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(&mount.path, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => {}
        Err(Errno::BUSY) => return Err(Error::Busy(mount.path.clone(), users(&mount.path))),
        Err(Errno::PERM) => by_helper(&mount.path, lazy)?,
        // Somebody else was faster.
        Err(Errno::INVAL) => {}
        Err(error) => return Err(Error::System(format!("unmounting {} failed", mount.path.display()), error.into())),
    }
    // The helper may return a little early.
    let start = Instant::now();
    while mounts::at(&mount.path).as_ref() == Some(mount) {
        if start.elapsed() > Duration::from_secs(30) {
            return Err(Error::Busy(mount.path.clone(), users(&mount.path)));
        }
        sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn by_helper(path: &Path, lazy: bool) -> Result<(), Error> {
    let mut command = Command::new(HELPER);
    command.arg("-u").args(lazy.then_some("-z")).arg("--").arg(path);
    let output = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::NoHelper,
        _ => Error::System(format!("{HELPER} cannot be run"), error),
    })?;
    let words = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(()),
        false if words.contains("busy") => Err(Error::Busy(path.to_owned(), users(path))),
        false if words.contains("not found in /etc/mtab") || words.contains("permitted") => {
            Err(Error::NotPermitted(path.to_owned()))
        }
        false => Err(Error::Helper(words.trim().replace('\n', "; "))),
    }
}

/// The processes that have files or their working directory there, as far as this user may know.
/// Only links are read, so that no server is asked.
fn users(mountpoint: &Path) -> Vec<String> {
    let is_there = |link: &Path| std::fs::read_link(link).is_ok_and(|target| target.starts_with(mountpoint));
    let mut users = Vec::new();
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let path = process.path();
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let descriptors = || std::fs::read_dir(path.join("fd")).into_iter().flatten().flatten();
        let maps = || std::fs::read_dir(path.join("map_files")).into_iter().flatten().flatten();
        if ["cwd", "root", "exe"].iter().any(|link| is_there(&path.join(link)))
            || descriptors().any(|entry| is_there(&entry.path()))
            || maps().any(|entry| is_there(&entry.path()))
        {
            let name = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
            users.push(format!("{} ({pid})", name.trim_end()));
        }
    }
    users
}

//! The mount of the Weft volume, and bind mounts of directories in it.

use crate::volumes::is_at;
use rustix::fs::{StatVfs, StatVfsMountFlags, fstatvfs, statvfs};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount_bind, mount_change, mount_remount, unmount,
};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use tonic::Status;

/// The mount of the Weft volume, which all persistent volumes of this machine share.
pub struct WeftMount {
    weft: PathBuf,
    volume: OsString,
    point: PathBuf,
    /// Held while it is mounted.
    mounting: Mutex<()>,
    /// Held while a bind mount is made, on a directory of its own.
    binding: Mutex<()>,
}

fn failed(what: &str, path: &Path, why: Errno) -> Status {
    Status::internal(format!("cannot {what} {}: {why}", path.display()))
}

impl WeftMount {
    pub fn new(weft: PathBuf, volume: OsString, point: PathBuf) -> Self {
        Self { weft, volume, point, mounting: Mutex::default(), binding: Mutex::default() }
    }

    /// Its directory. It is mounted if it is not, or if its process died.
    ///
    /// # Errors
    /// `UNAVAILABLE` when it cannot be mounted.
    pub fn point(&self) -> Result<&Path, Status> {
        let _one_at_a_time = self.mounting.lock().unwrap_or_else(PoisonError::into_inner);
        let device = |path: &Path| fs::metadata(path).map(|data| data.dev());
        if is_dead(&self.point) {
            eprintln!("weft-csi: the mount at {} has no process: it is mounted again", self.point.display());
            let _ = unmount(&self.point, UnmountFlags::DETACH);
        }
        let above = self.point.join("..");
        let is_there = device(&self.point).is_ok_and(|own| device(&above).is_ok_and(|above| above != own));
        if !is_there {
            self.mount()?;
        }
        Ok(&self.point)
    }

    fn mount(&self) -> Result<(), Status> {
        let unavailable = |why: String| Status::unavailable(format!("cannot mount {:?}: {why}", self.volume));
        fs::create_dir_all(&self.point).map_err(|why| unavailable(why.to_string()))?;
        let mut command = Command::new(&self.weft);
        command.arg("mount").arg(&self.volume).arg(&self.point).stdin(Stdio::null());
        let done = command.output().map_err(|why| unavailable(format!("{}: {why}", self.weft.display())))?;
        match done.status.success() {
            true => Ok(()),
            false => Err(unavailable(String::from_utf8_lossy(&done.stderr).trim().to_owned())),
        }
    }

    /// Makes a directory of the volume appear at another path, too, which is created. If it does
    /// already, that is enough.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if it is there with other rights; when it cannot be mounted there.
    pub fn publish(&self, source: &File, target: &Path, read_only: bool) -> Result<(), Status> {
        while is_dead(target) {
            unmount(target, UnmountFlags::DETACH).map_err(|why| failed("unmount", target, why))?;
        }
        match fs::create_dir(target) {
            Ok(()) => {}
            Err(why) if why.kind() == ErrorKind::AlreadyExists => {}
            Err(why) => return Err(Status::internal(format!("cannot create {}: {why}", target.display()))),
        }
        if !is_at(source, target) {
            return self.bind(source, target, read_only);
        }
        let is_read_only = |space: StatVfs| space.f_flag.contains(StatVfsMountFlags::RDONLY);
        let is = is_read_only(statvfs(target).map_err(|why| failed("look at", target, why))?);
        // All of a mount that is read-only itself is.
        match is == (read_only || fstatvfs(source).is_ok_and(is_read_only)) {
            true => Ok(()),
            false => Err(Status::already_exists(format!("{} is there with other rights", target.display()))),
        }
    }

    /// A mount has its options before it appears at the target: there it appears in the
    /// namespaces of the machine and of pods at once, and later changes would not.
    fn bind(&self, source: &File, target: &Path, read_only: bool) -> Result<(), Status> {
        let _one_at_a_time = self.binding.lock().unwrap_or_else(PoisonError::into_inner);
        let aside = self.point.with_extension("aside");
        let result = (|| {
            match fs::create_dir_all(&aside) {
                Ok(()) => {}
                Err(why) => return Err(Status::internal(format!("cannot create {}: {why}", aside.display()))),
            }
            // Nothing that is mounted there appears elsewhere.
            mount_bind(&aside, &aside)
                .and_then(|()| mount_change(&aside, MountPropagationFlags::PRIVATE))
                .and_then(|()| mount_bind(format!("/proc/self/fd/{}", source.as_raw_fd()), &aside))
                .map_err(|why| failed("mount at", &aside, why))?;
            // A change of options sets all of them.
            let always = MountFlags::BIND | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
            let flags = if read_only { always | MountFlags::RDONLY } else { always };
            mount_remount(&aside, flags, "").map_err(|why| failed("set the options of", &aside, why))?;
            mount_bind(&aside, target).map_err(|why| failed("mount at", target, why))
        })();
        while unmount(&aside, UnmountFlags::DETACH).is_ok() {}
        result
    }
}

/// Whether something is mounted whose process died. The kernel may still know attributes, so the
/// file system itself is asked.
fn is_dead(path: &Path) -> bool {
    matches!(statvfs(path), Err(Errno::NOTCONN))
}

/// Ends what is mounted at a path, and removes its directory. If nothing is there, that is enough.
///
/// # Errors
/// When it is in use.
pub fn unpublish(target: &Path) -> Result<(), Status> {
    loop {
        match unmount(target, UnmountFlags::empty()) {
            Ok(()) => {}
            // It is no mount.
            Err(Errno::INVAL | Errno::NOENT) => break,
            Err(why) => return Err(failed("unmount", target, why)),
        }
    }
    match fs::remove_dir(target) {
        Err(why) if why.kind() != ErrorKind::NotFound => {
            Err(Status::internal(format!("cannot remove {}: {why}", target.display())))
        }
        _ => Ok(()),
    }
}

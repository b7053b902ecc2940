//! The mounts of this machine, and where their processes have their logs and sockets.

use super::address::server_of;
use super::runtime::find;
use std::path::{Path, PathBuf};

/// Where the process of the mount at a directory listens for commands, if one is mounted there.
pub fn directory_of_mountpoint(mountpoint: &Path) -> Option<PathBuf> {
    directory_of_mount(mounted_volume(mountpoint)?, mountpoint)
}

/// Where the log and the socket of a mount are: in the volume directory, or, when a server has the
/// volume, in one for the mount point.
pub fn directory_of_mount(volume: PathBuf, mountpoint: &Path) -> Option<PathBuf> {
    if server_of(&volume).ok()?.is_some() { find(mountpoint) } else { Some(volume) }
}

/// Whether a mount whose log and socket are there is in the kernel's list.
pub fn is_to_be_seen(directory: &Path) -> bool {
    let Ok(directory) = directory.canonicalize() else { return false };
    mounts().any(|mount| directory_of_mount(mount.source, &mount.path).is_some_and(|of_mount| of_mount == directory))
}

/// The volume directory that is mounted there, as the mount says.
pub fn mounted_volume(mountpoint: &Path) -> Option<PathBuf> {
    let mountpoint = mountpoint.canonicalize().ok()?;
    mounts().rfind(|mount| mount.path == mountpoint).map(|mount| mount.source)
}

/// The volumes that are mounted, by the kernel's list: no mount is asked.
fn mounts() -> impl DoubleEndedIterator<Item = fuse::Mount> {
    fuse::mounts().into_iter().filter(|mount| mount.kind == "fuse.weft")
}

//! What can go wrong with a mount, and what to do about it.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// An error of this crate; each is shown as one line.
#[derive(Debug)]
pub enum Error {
    /// The kernel has no FUSE, or this process may not use it.
    NoFuse(io::Error),
    /// Mounting needs root or the program `fusermount3`, and there is neither.
    NoHelper,
    /// `fusermount3` refused; its own words.
    Helper(String),
    /// The mount point cannot be used.
    MountPoint(PathBuf, &'static str),
    /// Nothing of Weft is mounted there.
    NotMounted(PathBuf),
    /// Files of the mount are in use, by these processes if they are known.
    Busy(PathBuf, Vec<String>),
    /// Only root, or the user who mounted it, may unmount it.
    NotPermitted(PathBuf),
    /// This many writes of the kernel's cache were refused, and the files still lack them.
    Lost(u64),
    /// A system call failed.
    System(String, io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFuse(error) => match error.kind() {
                io::ErrorKind::NotFound => f.write_str(
                    "/dev/fuse is missing: load the kernel module (modprobe fuse), or in a container start it with \
                     --device /dev/fuse",
                ),
                io::ErrorKind::PermissionDenied => f.write_str(
                    "/dev/fuse may not be opened: run as root, or in a container start it with --device /dev/fuse \
                     --cap-add SYS_ADMIN",
                ),
                _ => write!(f, "/dev/fuse cannot be opened: {error}"),
            },
            Self::NoHelper => f.write_str(
                "mounting needs root or the program fusermount3: install the package fuse3, or in a container start \
                 it with --cap-add SYS_ADMIN",
            ),
            Self::Helper(words) if words.contains("user_allow_other") => f.write_str(
                "allow_other needs the line user_allow_other in /etc/fuse.conf; or mount without it, or \
                    as root",
            ),
            Self::Helper(words) => write!(f, "{words}"),
            Self::MountPoint(path, what) => write!(f, "{}: {what}", path.display()),
            Self::NotMounted(path) => write!(f, "{}: no Weft volume is mounted here", path.display()),
            Self::Busy(path, users) => {
                write!(f, "{} is in use", path.display())?;
                if !users.is_empty() {
                    write!(f, " by {}", users.join(", "))?;
                }
                f.write_str(": end those programs or have them leave it")
            }
            Self::NotPermitted(path) => {
                write!(f, "{}: only root or the user who mounted it can unmount it", path.display())
            }
            Self::Lost(1) => f.write_str("1 write was refused: data was lost"),
            Self::Lost(count) => write!(f, "{count} writes were refused: data was lost"),
            Self::System(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for Error {}

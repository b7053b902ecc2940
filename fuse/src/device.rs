//! Mounting itself: the connection to the kernel, by mount(2) or through the helper `fusermount3`.
//!
//! fuser would do it too, but it hides the kind of file system from `mount`. And it then refuses
//! the kernel's own requests (writing times back) if the mount is not for all users.

use crate::{Error, Options};
use rustix::mount::MountFlags;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::ffi::{CString, OsStr};
use std::fs::OpenOptions;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

/// What `mount` shows as `fuse.weft`.
pub(crate) const SUBTYPE: &str = "weft";
/// The helper with set-user-ID, for those who are not root.
pub(crate) const HELPER: &str = "fusermount3";

/// Mounts and returns the connection to the kernel.
pub(crate) fn mount(path: &Path, options: &Options) -> Result<OwnedFd, Error> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse").map_err(Error::NoFuse)?;
    let device = OwnedFd::from(device);
    match by_system_call(path, options, &device) {
        Ok(()) => Ok(device),
        Err(rustix::io::Errno::PERM) => by_helper(path, options),
        Err(rustix::io::Errno::NODEV) => Err(Error::NoFuse(io::ErrorKind::NotFound.into())),
        Err(error) => Err(Error::System(format!("mounting at {} failed", path.display()), error.into())),
    }
}

fn by_system_call(path: &Path, options: &Options, device: &OwnedFd) -> Result<(), rustix::io::Errno> {
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        uid.as_raw(),
        gid.as_raw()
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let mut flags = MountFlags::NOATIME;
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOSUID, !options.suid);
    flags.set(MountFlags::NODEV, !options.dev);
    flags.set(MountFlags::NOEXEC, !options.exec);
    flags.set(MountFlags::SYNCHRONOUS, options.sync);
    let data = CString::new(data).map_err(|_| rustix::io::Errno::INVAL)?;
    rustix::mount::mount(options.fs_name.as_str(), path, format!("fuse.{SUBTYPE}").as_str(), flags, data.as_c_str())
}

/// Has the helper mount; it hands the connection over through a socket.
fn by_helper(path: &Path, options: &Options) -> Result<OwnedFd, Error> {
    let (ours, theirs) =
        UnixStream::pair().map_err(|error| Error::System("a pair of sockets cannot be made".into(), error))?;
    // Commas separate options there.
    let name = options.fs_name.replace('\\', "\\\\").replace(',', "\\,");
    let mut list = format!("fsname={name},subtype={SUBTYPE},default_permissions,noatime");
    let switches = [
        (options.read_only, ",ro", ",rw"),
        (options.suid, ",suid", ",nosuid"),
        (options.dev, ",dev", ",nodev"),
        (options.exec, ",exec", ",noexec"),
        (options.sync, ",sync", ",async"),
        (options.allow_other, ",allow_other", ""),
    ];
    for (is_on, on, off) in switches {
        list.push_str(if is_on { on } else { off });
    }
    // As standard input, the child inherits the socket without further work.
    let output = Command::new(HELPER)
        .args([OsStr::new("-o"), OsStr::new(&list), OsStr::new("--"), path.as_os_str()])
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .output()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::NoHelper,
            _ => Error::System(format!("{HELPER} cannot be run"), error),
        })?;
    if !output.status.success() {
        return Err(Error::Helper(String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ")));
    }
    receive(&ours).map_err(|error| Error::System(format!("{HELPER} handed no connection over"), error))
}

/// Receives a file descriptor.
fn receive(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    descriptors.flatten().next().ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

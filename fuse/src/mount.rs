//! Mounting and serving a mount.

use crate::files::Files;
use crate::handler::{Handler, Refused};
use crate::unmount::detach;
use crate::{Error, Options, device, mounts};
use fs::lock;
use fuser::{BackgroundSession, Config, Session, SessionACL};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How much of the memory for unwritten pages they may take, in percent. The kernel gives FUSE 1,
/// at which writers wait for each request; the rest stays for the disks that the volume is on, so
/// that this process can always write.
const DIRTY_PERCENT: usize = 20;

/// How often the thread looks whether a mount is over.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// A mount that this process serves. It goes on when this is dropped.
#[derive(Debug)]
pub struct Mounted {
    mount: mounts::Mount,
    session: Mutex<Option<BackgroundSession>>,
    refused: Arc<Refused>,
}

/// Shows a file system under a directory; returns when it is there.
///
/// # Errors
/// When the directory cannot be used, or FUSE not; says what to do.
pub fn mount(fs: Arc<fs::FileSystem>, mountpoint: &Path, options: &Options) -> Result<Mounted, Error> {
    mount_files(fs, mountpoint, options)
}

pub(crate) fn mount_files<F: Files>(files: Arc<F>, mountpoint: &Path, options: &Options) -> Result<Mounted, Error> {
    let mut options = options.clone();
    options.read_only |= files.is_read_only();
    let path = check(mountpoint, options.nonempty)?;
    let device = device::mount(&path, &options)?;
    let mount = mounts::at(&path).ok_or_else(|| Error::NotMounted(path.clone()))?;
    let refused = Arc::new(Refused::default());
    let read_ahead_kib = files.read_ahead_bytes() >> 10;
    let session = serve(files, &options, device, refused.clone()).map_err(|error| {
        // The reason why serving failed matters more than whether the mount went away.
        let _ = detach(&mount, true);
        Error::System(format!("serving {} failed", path.display()), error)
    })?;
    for (name, value) in [("read_ahead_kb", read_ahead_kib), ("max_ratio", DIRTY_PERCENT)] {
        // It takes root, and without it the mount is only slower.
        let _ = std::fs::write(format!("/sys/class/bdi/{}/{name}", mount.device.display()), value.to_string());
    }
    Ok(Mounted { mount, session: Mutex::new(Some(session)), refused })
}

/// Agrees with the kernel on how to talk, and starts the threads that do.
fn serve<F: Files>(
    files: Arc<F>,
    options: &Options,
    device: OwnedFd,
    refused: Arc<Refused>,
) -> io::Result<BackgroundSession> {
    let mut config = Config::default();
    config.n_threads = Some(options.threads);
    // Each thread has its own queue to the kernel.
    config.clone_fd = true;
    if files.is_shared() {
        watch(&files, device.try_clone()?)?;
    }
    let (handler, late) = Handler::new(files, options, refused);
    // The kernel itself keeps other users out where it should. fuser does not know that requests of
    // the kernel's own threads come from other users, too.
    let session = Session::from_fd(handler, device, SessionACL::All, config)?;
    late.start(session.notifier())?;
    session.spawn()
}

/// Tells a file system whose server may be gone of the end as soon as the kernel no longer needs
/// the mount: requests in progress may wait long.
fn watch<F: Files>(files: &Arc<F>, device: OwnedFd) -> io::Result<()> {
    let files = Arc::downgrade(files);
    let work = move || {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        loop {
            std::thread::sleep(CHECK_INTERVAL);
            let Some(files) = files.upgrade() else { return };
            let mut looked = [PollFd::new(&device, PollFlags::empty())];
            // Without waiting: each request would wake this thread, too.
            let done = poll(&mut looked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
            if done.is_ok() && looked[0].revents().contains(PollFlags::ERR) {
                return files.begin_end();
            }
        }
    };
    std::thread::Builder::new().name("weft-end".into()).spawn(work).map(drop)
}

/// The mount point's plain path, if it can be one.
fn check(mountpoint: &Path, nonempty: bool) -> Result<std::path::PathBuf, Error> {
    let error = |what| Error::MountPoint(mountpoint.to_owned(), what);
    let from = |why: io::Error| match why.raw_os_error() {
        Some(libc::ENOENT) => error("no such directory to mount at; make it first"),
        Some(libc::ENOTDIR) => error("not a directory, so that nothing can be mounted here"),
        Some(libc::ENOTCONN) => {
            error("the mount of a server that is gone is still here; unmount it first (weft unmount)")
        }
        Some(libc::EACCES) => error("this user may not look into that directory"),
        _ => Error::System(mountpoint.display().to_string(), why),
    };
    let path = mountpoint.canonicalize().map_err(from)?;
    let mut entries = path.read_dir().map_err(from)?;
    if mounts::at(&path).is_some_and(|mount| mount.kind == *format!("fuse.{}", device::SUBTYPE)) {
        return Err(error("a Weft volume is mounted here already; unmount it first (weft unmount)"));
    }
    if !nonempty && entries.next().is_some() {
        return Err(error(
            "the directory has entries, which the mount would hide; use an empty one, or the option nonempty",
        ));
    }
    Ok(path)
}

impl Mounted {
    /// Returns when the mount is gone, no matter how it ended, and everything that was written is
    /// durable.
    ///
    /// # Errors
    /// When the connection to the kernel broke, and when data was lost that programs believe to be
    /// written.
    pub fn wait(&self) -> Result<(), Error> {
        // All other callers wait for this lock.
        let mut session = lock(&self.session);
        match session.take() {
            Some(session) => match session.join() {
                // The kernel's answer to a read of a request (a release that no program waits for)
                // at the moment when the mount goes away.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                ended => ended
                    .map_err(|error| Error::System(format!("serving {} failed", self.mount.path.display()), error))?,
            },
            None => return Ok(()),
        }
        match self.refused.count() {
            0 => Ok(()),
            count => Err(Error::Lost(count)),
        }
    }

    /// Takes the mount away, from any thread; [`wait`](Self::wait) then returns. `lazy` takes it
    /// out of sight even while files are in use; `wait` then returns with their last use.
    ///
    /// # Errors
    /// When files are in use; the mount is then still there.
    pub fn unmount(&self, lazy: bool) -> Result<(), Error> {
        detach(&self.mount, lazy)
    }

    /// Whether it is still visible under its directory; if not, [`wait`](Self::wait) returns with
    /// its last use.
    pub fn is_there(&self) -> bool {
        mounts::at(&self.mount.path).as_ref() == Some(&self.mount)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mount.path
    }
}

//! Opening a volume for a command, or using it if this process has it open already.

use super::address::server_of;
use super::hosted::served;
use super::mount_directory::UNMOUNT_TIMEOUT;
use super::remote::{Presence, presence};
use crate::failure::Failure;
use crate::show;
use cluster::VolumeAddress;
use fs::{FileSystem, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A volume that a command works on.
pub struct Open {
    pub(super) fs: Arc<FileSystem>,
    served: bool,
}

impl std::ops::Deref for Open {
    type Target = FileSystem;

    fn deref(&self) -> &FileSystem {
        &self.fs
    }
}

impl Open {
    /// The volume itself, for several threads.
    pub fn shared(&self) -> &Arc<FileSystem> {
        &self.fs
    }

    /// Commits everything; if that fails, the command fails.
    pub fn finish(self) -> Result<(), Failure> {
        if self.served { Ok(self.fs.sync_all()?) } else { Ok(self.fs.close_volume()?) }
    }
}

/// How long to wait for a process that is about to close a volume.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Repeats something for a while if a volume or a target is in use: a command ends soon, and a
/// mount that was unmounted commits what it has. A mount that is still visible can carry the
/// command out instead.
pub fn patiently<T>(volume: &Path, mut work: impl FnMut() -> Result<T, fs::Error>) -> Result<T, Failure> {
    let begun = Instant::now();
    loop {
        let error = match work() {
            Ok(done) => return Ok(done),
            Err(error @ (fs::Error::Conflict(_) | fs::Error::Volume(volume::Error::Conflict { .. }))) => error,
            Err(error) => return Err(error.into()),
        };
        let timeout = match presence(volume) {
            Presence::Mounted => Duration::ZERO,
            Presence::Ending => UNMOUNT_TIMEOUT,
            Presence::Gone => CLOSE_TIMEOUT,
        };
        if begun.elapsed() >= timeout {
            return Err(Failure::Busy(volume.to_path_buf(), error.to_string()));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Where targets are, for all commands.
pub fn places() -> Arc<cluster::ClusterPlaces> {
    static PLACES: OnceLock<Arc<cluster::ClusterPlaces>> = OnceLock::new();
    PLACES.get_or_init(Arc::default).clone()
}

/// Whether commands that only read may do so with too few targets.
static POSSIBLY_OLD: AtomicBool = AtomicBool::new(false);

/// Lets commands that only read take what there is.
pub fn allow_possibly_old() {
    POSSIBLY_OLD.store(true, Ordering::Relaxed);
}

/// How a command opens a volume.
pub fn options(read_only: bool) -> OpenOptions {
    let warn = Box::new(|what: &str| show::warning(what));
    let possibly_old = POSSIBLY_OLD.load(Ordering::Relaxed);
    OpenOptions { read_only, possibly_old, warn: Some(warn), places: places(), ..OpenOptions::default() }
}

/// Opens a volume, or uses it if this process serves it.
pub fn open(volume: &Path, read_only: bool) -> Result<Open, Failure> {
    open_with(volume, read_only, &Writing::default())
}

/// How stripes are written; None as in [`OpenOptions`].
#[derive(Clone, Debug, Default)]
pub struct Writing {
    pub coding: Option<fs::Coding>,
    pub stripe_bytes: Option<usize>,
    pub master: Option<PathBuf>,
    pub at: Option<fs::Coordinates>,
}

/// The same, and says how stripes are written.
pub fn open_with(volume: &Path, read_only: bool, writing: &Writing) -> Result<Open, Failure> {
    open_as(volume, || {
        let Writing { coding, stripe_bytes, master, at } = writing.clone();
        OpenOptions { coding, stripe_bytes, master, at, ..options(read_only) }
    })
}

/// The same as `open`, for a job that may take `memory` bytes in all.
pub fn open_within(volume: &Path, read_only: bool, memory: u64) -> Result<Open, Failure> {
    let share = usize::try_from(memory / 8).unwrap_or(usize::MAX);
    let metadata_bytes = share.clamp(*fs::METADATA_BYTES.start(), *fs::METADATA_BYTES.end());
    open_as(volume, || OpenOptions { metadata_bytes, files_only: true, ..options(read_only) })
}

fn open_as(volume: &Path, options: impl Fn() -> OpenOptions) -> Result<Open, Failure> {
    if let Some(serving) = served() {
        return Ok(Open { fs: serving.fs.clone(), served: true });
    }
    let open = || cluster::open(volume, options());
    // A server has no socket here to ask for how long it has the volume.
    let fs = if VolumeAddress::is_one(volume) { open()? } else { patiently(volume, open)? };
    Ok(Open { fs, served: false })
}

/// As `open`, for commands that look after a volume. Where a server has it, the server carries them
/// out.
pub fn open_own(volume: &Path, read_only: bool) -> Result<Open, Failure> {
    match server_of(volume)?.filter(|_| served().is_none()) {
        Some(address) => Err(Failure::Busy(volume.to_path_buf(), format!("{} does not answer", address.server_list()))),
        None => open(volume, read_only),
    }
}

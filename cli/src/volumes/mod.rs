//! Commands on volumes. Each takes a volume directory, or `VOLUME:/path` for files in it.
//!
//! A volume is open in one process. While that is a mount, commands are sent to it through a socket
//! in the volume directory, so that an operator can look after a volume that is in use.

pub mod archive;
pub mod create;
pub mod demo;
pub mod files;
pub mod fsck;
pub mod group;
pub mod helper;
pub mod job_progress;
pub mod meta;
pub mod metrics;
pub mod mount;
pub mod processes;
pub mod remote;
pub mod restore;
pub mod runtime;
pub mod seat;
pub mod serve;
pub mod status;
pub mod target;
pub mod upgrade;
pub mod verify;
pub mod write_cost;

use crate::failure::Failure;
use crate::show;
use cluster::{StoreAddress, VolumeAddress};
use fs::{FileSystem, OpenOptions};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// A volume that is mounted by this process.
pub struct Serving {
    fs: Arc<FileSystem>,
    /// Where it is mounted or served, and what to do.
    pub place: String,
    /// Others have it over the network: paths of this machine mean nothing to them, nor theirs to
    /// it.
    pub to_others: bool,
}

static SERVED: RwLock<Option<Arc<Serving>>> = RwLock::new(None);

/// The volume that this process serves, if it is a mount, or the metadata server that has it.
pub fn served() -> Option<Arc<Serving>> {
    SERVED.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// From now on this process serves a volume.
fn set_served(serving: Serving) {
    *SERVED.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(serving));
}

/// This process no longer serves a volume.
fn clear_served() {
    SERVED.write().unwrap_or_else(PoisonError::into_inner).take();
}

/// Whether this process serves the volume to a cluster.
pub fn serves_others() -> bool {
    served().is_some_and(|served| served.to_others)
}

/// A volume that a command works on.
pub struct Open {
    fs: Arc<FileSystem>,
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
        let timeout = match remote::presence(volume) {
            remote::Presence::Mounted => Duration::ZERO,
            remote::Presence::Ending => runtime::UNMOUNT_TIMEOUT,
            remote::Presence::Gone => CLOSE_TIMEOUT,
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
    open_with(volume, read_only, None)
}

/// The same, and says which side codes stripes.
pub fn open_with(volume: &Path, read_only: bool, coding: Option<fs::Coding>) -> Result<Open, Failure> {
    open_as(volume, || OpenOptions { coding, ..options(read_only) })
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
    let fs = match server_of(volume)? {
        Some(address) => cluster::connect(&address, &client_name(), options())?,
        None => patiently(volume, || FileSystem::open_volume(volume, options()))?,
    };
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

/// The servers of a volume that is given as `weft://HOST:PORT/VOLUME`.
pub fn server_of(volume: &Path) -> Result<Option<VolumeAddress>, Failure> {
    if !VolumeAddress::is_one(volume) {
        return Ok(None);
    }
    Ok(Some(volume.to_str().unwrap_or_default().parse()?))
}

/// What a server calls this process.
pub fn client_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}:{}", host.trim(), std::process::id())
}

/// The path of a target as it is stored: absolute and without `..`, but with symbolic links, which
/// may be what names the disk.
pub fn plain(path: &Path) -> PathBuf {
    if StoreAddress::of(path).is_some() {
        return path.to_path_buf();
    }
    let path = remote::resolve(path);
    let absolute = std::path::absolute(&path).unwrap_or(path);
    if !absolute.components().any(|part| part == std::path::Component::ParentDir) {
        return absolute;
    }
    let above = absolute.parent().and_then(|above| above.canonicalize().ok());
    match (absolute.canonicalize(), above, absolute.file_name()) {
        (Ok(path), ..) => path,
        (_, Some(above), Some(name)) => above.join(name),
        _ => absolute,
    }
}

/// The plain path of a new target. Labels are text, so the path must be text, too.
pub fn new_target(path: &Path) -> Result<PathBuf, Failure> {
    if serves_others() && StoreAddress::of(path).is_none() {
        let what = "a volume that is served has its targets on stores: give store://HOST:PORT/NAME";
        return Err(Failure::Other(format!("{}: {what}", volume::Shown(path))));
    }
    let path = plain(path);
    match path.to_str() {
        Some(_) => Ok(path),
        None => Err(Failure::Usage(format!("{}: the path of a target must be UTF-8", volume::Shown(&path)))),
    }
}

/// A file in a volume, as the command line names it.
#[derive(Clone, Debug)]
pub struct Address {
    /// The volume directory.
    pub volume: PathBuf,
    /// The path in it, without slashes at its ends; empty for the root.
    pub path: Vec<u8>,
}

impl Address {
    /// Reads `VOLUME:/path`; None if it has no `:/` and so is a path of this machine.
    pub fn parse(given: &OsStr) -> Option<Self> {
        let bytes = given.as_bytes();
        // The address of a server has a `:/` itself, and its name may have none.
        let begin = if bytes.starts_with(b"weft://") { b"weft://".len() } else { 0 };
        let at = begin + bytes[begin..].windows(2).position(|pair| pair == b":/")?;
        let path = &bytes[at + 2..];
        let first = path.iter().position(|&byte| byte != b'/').unwrap_or(path.len());
        let last = path.iter().rposition(|&byte| byte != b'/').map_or(first, |last| last + 1);
        Some(Self { volume: PathBuf::from(OsString::from_vec(bytes[..at].to_vec())), path: path[first..last].to_vec() })
    }

    /// As `parse`, or a usage error.
    pub fn required(given: &OsStr) -> Result<Self, Failure> {
        Self::parse(given).ok_or_else(|| {
            Failure::Usage(format!(
                "{} is not a file of a volume; give it as VOLUME:/path",
                volume::Shown(Path::new(given))
            ))
        })
    }

    /// The names of the path.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.path.split(|&byte| byte == b'/').filter(|name| !name.is_empty())
    }

    /// The address as it is shown.
    pub fn shown(&self) -> String {
        format!("{}:/{}", volume::Shown(&self.volume), volume::Shown(Path::new(OsStr::from_bytes(&self.path))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_a_volume_and_a_path() {
        let parsed =
            |given: &str| Address::parse(OsStr::new(given)).map(|a| (a.volume, String::from_utf8(a.path).unwrap()));
        assert_eq!(parsed("v:/a/b/"), Some(("v".into(), "a/b".into())));
        assert_eq!(parsed("/x/v:/"), Some(("/x/v".into(), String::new())));
        assert_eq!(parsed("v://a"), Some(("v".into(), "a".into())));
        assert_eq!(parsed("a:b"), None);
        assert_eq!(parsed("weft://h:1/v:/a"), Some(("weft://h:1/v".into(), "a".into())));
        assert_eq!(parsed("weft://h:1/v"), None);
    }
}

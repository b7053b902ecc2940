//! The targets of a store. Each of its directories, usually a disk, is a target or can become one.
//! A disk can also be shared by several volumes: each has a target of its own in a directory below
//! `volumes/` of the disk. `disk1` is the disk itself, `disk1:films` the target of `films` on it.
//! Targets of one disk share its free space and the limits of its operations.

use super::append::{AppendLimits, Appending, Ledger};
use super::claim::Gate;
use super::counts::Looked;
use crate::ranks::{Formatting, ServedTarget, ServedVolume, StoreSlots};
use crate::shares::Shares;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use volume::ranked::{self, Ranked};
use volume::target::{Disk, ReadAt, Target, TargetFile, make_private};

/// Maximum number of operations of a disk at a time.
const MAX_RUNNING_OPERATIONS: usize = 8;
/// Maximum number of operations of a disk that run or wait.
const MAX_OPERATIONS: usize = 256;
/// The same for operations on the claim of a target.
const MAX_RUNNING_CLAIMS: usize = 2;
const MAX_CLAIMS: usize = 64;
/// The pause between two tries to read a label.
const LABEL_PAUSE: Duration = Duration::from_secs(1);
/// The directory of a disk with the targets of volumes that share it.
const SHARED: &str = "volumes";
/// Maximum number of volumes that share the disks of a store.
const MAX_SHARED: usize = 1000;
/// Maximum length of the name of a shared target, in bytes.
const MAX_NAME_BYTES: usize = 255;
/// Between the name of a disk and that of a volume.
const SEPARATOR: char = ':';

/// A directory that is a target or can become one.
pub(super) struct TargetSlot {
    path: PathBuf,
    target: Ranked<Option<Arc<dyn Target>>, ServedTarget>,
    /// Held while the directory becomes a target.
    formatting: Ranked<(), Formatting>,
    /// Why the directory could not be used when the store started.
    fault: Option<String>,
    /// The volume that the target's label names.
    volume: Ranked<Option<Of>, ServedVolume>,
    /// How often the label changed: what was read before is not kept.
    labels: AtomicU64,
    /// The label could not be read, and whether a thread tries that.
    unread: AtomicBool,
    reading: AtomicBool,
    /// What clients wrote to the target's chunks.
    ledger: Arc<Ledger>,
    /// Orders changes of the claim among the operations.
    pub gate: Gate,
    /// Limits operations of the disk, with those of its other targets.
    pub disk: Lane,
    /// Limits changes of the claim. A lease is renewed every second or so, however much waits for
    /// the disk, or for the claims of other volumes.
    pub claims: Lane,
    pub looked: Arc<Looked>,
}

/// The limits of one kind of operations.
#[derive(Clone)]
pub(super) struct Lane {
    pub depth: Arc<Semaphore>,
    /// Limits the operations that run or wait. The store refuses more, which tells the client that
    /// the disk hangs.
    pub queue: Arc<Shares>,
}

impl Lane {
    fn new(running: usize, all: usize) -> Self {
        Self { depth: Arc::new(Semaphore::new(running)), queue: Arc::new(Shares::new(all)) }
    }
}

impl Default for Lane {
    fn default() -> Self {
        Self::new(MAX_RUNNING_OPERATIONS, MAX_OPERATIONS)
    }
}

/// The volume of a target.
#[derive(Clone)]
pub(super) struct Of {
    pub id: [u8; 16],
    /// The volume's code as clients write it; None when this store does not know the code.
    pub code: Option<String>,
    limits: AppendLimits,
}

/// The volume that the label of a target names; None without a label.
///
/// # Errors
/// When the label cannot be read.
fn volume_of(target: &dyn Target) -> fs::Result<Option<Of>> {
    let Some(label) = fs::label::Label::read(target, "it")? else { return Ok(None) };
    // Nothing can be appended with a code that this store does not know.
    let code = ec::parse(&label.code).ok();
    let blocks = code.as_ref().map_or(0, |code| code.shape().blocks());
    let limits =
        AppendLimits { chunk_bytes: label.chunk_bytes.into(), blocks: u16::try_from(blocks).unwrap_or(u16::MAX) };
    Ok(Some(Of { id: label.id()?, code: code.map(|code| code.spec().to_string()), limits }))
}

impl TargetSlot {
    pub fn new(path: PathBuf, target: Option<Arc<dyn Target>>, disk: Lane) -> Self {
        let slot = Self {
            path,
            fault: None,
            volume: Ranked::default(),
            labels: AtomicU64::new(0),
            unread: AtomicBool::new(target.is_some()),
            reading: AtomicBool::new(false),
            target: Ranked::new(target),
            formatting: Ranked::default(),
            ledger: Arc::default(),
            gate: Gate::default(),
            disk,
            claims: Lane::new(MAX_RUNNING_CLAIMS, MAX_CLAIMS),
            looked: Arc::default(),
        };
        slot.learn_volume(0);
        slot
    }

    /// A directory that cannot be used until the store is started again.
    fn faulty(path: PathBuf, why: String, disk: Lane) -> Self {
        Self { fault: Some(why), ..Self::new(path, None, disk) }
    }

    /// A label that could not be read is read again, by a thread that a hanging disk may keep.
    /// Without it, clients get nothing of the target.
    pub fn read_label_again(self: &Arc<Self>) {
        if !self.unread.load(Ordering::Acquire) || self.reading.swap(true, Ordering::AcqRel) {
            return;
        }
        let slot = self.clone();
        let read = move || {
            slot.learn_volume(slot.labels.load(Ordering::Acquire));
            std::thread::sleep(LABEL_PAUSE);
            slot.reading.store(false, Ordering::Release);
        };
        if std::thread::Builder::new().name("weft-label".into()).spawn(read).is_err() {
            self.reading.store(false, Ordering::Release);
        }
    }

    /// Reads the label that is there since its last change, of that number.
    fn learn_volume(&self, number: u64) {
        let Ok(target) = self.target() else { return };
        let found = volume_of(&*target);
        let mut volume = self.volume.lock();
        if self.labels.load(Ordering::Acquire) == number {
            self.unread.store(found.is_err(), Ordering::Release);
            *volume = found.ok().flatten();
        }
    }

    /// The label changed.
    pub fn label_changed(&self) {
        let number = self.labels.fetch_add(1, Ordering::AcqRel) + 1;
        self.learn_volume(number);
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn volume(&self) -> ranked::Guard<'_, Option<Of>, ServedVolume> {
        self.volume.lock()
    }

    /// The target as clients see it, which may only append, or as servers see it.
    pub fn kept(&self, target: Arc<dyn Target>, for_client: bool) -> Arc<dyn Target> {
        let none = AppendLimits { chunk_bytes: 0, blocks: 0 };
        let limits = for_client.then(|| self.volume().as_ref().map_or(none, |of| of.limits));
        Arc::new(Appending { target, ledger: self.ledger.clone(), limits })
    }

    /// Number of operations of its disk that run or wait.
    pub fn queued(&self) -> usize {
        self.disk.queue.taken()
    }

    /// Fails if the directory could not be used when the store started.
    ///
    /// # Errors
    /// With the reason.
    pub fn check_fault(&self) -> io::Result<()> {
        let told = |why| Err(io::Error::other(format!("{why}; when it is mended, start the store again")));
        self.fault.as_ref().map_or(Ok(()), told)
    }

    pub fn target(&self) -> io::Result<Arc<dyn Target>> {
        self.check_fault()?;
        let target = self.target.lock();
        target.clone().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "it is not a target yet"))
    }

    pub fn format(&self) -> io::Result<()> {
        let _one_at_a_time = self.formatting.lock();
        self.check_fault()?;
        let Ok(target) = self.target() else {
            // An earlier one may have failed in its last step.
            if !Disk::is_one(&self.path).map_err(io::Error::other)? {
                Disk::format(&self.path).map_err(io::Error::other)?;
            }
            let new = open(&self.path).map_err(io::Error::other)?;
            *self.target.lock() = Some(new.clone());
            return check_unlabelled(&*new);
        };
        check_unlabelled(&*target)
    }
}

/// Fails if a target has a label. One that is formatted and has none is left over from an
/// interrupted attempt.
fn check_unlabelled(target: &dyn Target) -> io::Result<()> {
    match target.read_at(TargetFile::Label, 0, &mut [0]) {
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(why) => Err(why),
    }
}

/// Opens a target and locks it for this process.
fn open(path: &Path) -> fs::Result<Arc<dyn Target>> {
    fs::Directories.serve(path)
}

/// Whether a disk fails. Everything else is for the operator to mend first: another process has the
/// disk, its path is wrong, or there are too few open files.
fn is_fault(error: &fs::Error) -> bool {
    let fs::Error::Volume(volume::Error::Io { source, .. }) = error else { return false };
    let of_disks = [
        Errno::IO,
        Errno::NXIO,
        Errno::NODEV,
        Errno::NOMEDIUM,
        Errno::ROFS,
        Errno::STALE,
        Errno::NOTCONN,
        Errno::TIMEDOUT,
        Errno::HOSTDOWN,
        Errno::UCLEAN,
        Errno::BADMSG,
        Errno::NODATA,
        Errno::REMOTEIO,
        Errno::NOLINK,
        Errno::ILSEQ,
    ];
    source.raw_os_error().is_some_and(|number| of_disks.iter().any(|of| of.raw_os_error() == number))
}

/// The target of a disk, if it is one, and those of the volumes that share it.
type OnDisk = (Option<Arc<dyn Target>>, Vec<(String, TargetSlot)>);

fn open_disk(path: &Path, disk: &Lane) -> fs::Result<OnDisk> {
    let found = std::fs::metadata(path).map_err(volume::Error::io("look at", path))?;
    if !found.is_dir() {
        return Err(fs::Error::NotFound(format!("{} is not a directory", path.display())));
    }
    let shared = shared_on(path)?.into_iter().map(|(volume, below)| {
        let slot = TargetSlot::new(below.clone(), Some(open(&below)?), disk.clone());
        Ok((volume, slot))
    });
    let shared = shared.collect::<fs::Result<_>>()?;
    // A directory that is not a target yet becomes one when a volume is created on it.
    let target = if Disk::is_one(path)? { Some(open(path)?) } else { None };
    Ok((target, shared))
}

/// All targets of a store by name. New ones come when volumes are created on shared disks.
pub(super) struct Slots {
    all: Ranked<BTreeMap<String, Arc<TargetSlot>>, StoreSlots>,
}

impl Slots {
    /// Opens these directories, and what is shared of them. The last component of its path names
    /// each disk. The existing targets are locked for this process. A disk that fails is left out
    /// with a warning, if there is another one.
    ///
    /// # Errors
    /// When two directories have the same name, or one is locked or is no directory; when all fail.
    pub fn open(directories: &[PathBuf]) -> fs::Result<Self> {
        Self::open_with(directories, open_disk)
    }

    fn open_with(directories: &[PathBuf], open: impl Fn(&Path, &Lane) -> fs::Result<OnDisk>) -> fs::Result<Self> {
        let (mut all, mut usable, mut faults) = (BTreeMap::new(), 0, Vec::new());
        for path in directories {
            let path = std::path::absolute(path).map_err(|why| fs::Error::Invalid(why.to_string()))?;
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_string();
            if name.is_empty() {
                return Err(fs::Error::Invalid(format!("{} has no name to be called by", path.display())));
            }
            let disk = Lane::default();
            let slot = match open(&path, &disk) {
                Ok((target, shared)) => {
                    all.extend(shared.into_iter().map(|(of, slot)| (format!("{name}{SEPARATOR}{of}"), Arc::new(slot))));
                    usable += 1;
                    TargetSlot::new(path, target, disk)
                }
                Err(why) if is_fault(&why) => {
                    faults.push(why.to_string());
                    TargetSlot::faulty(path, why.to_string(), disk)
                }
                Err(why) => return Err(why),
            };
            if all.insert(name.clone(), Arc::new(slot)).is_some() {
                return Err(fs::Error::Invalid(format!(
                    "two directories are called {name}; a store's targets need different names"
                )));
            }
        }
        if usable == 0 && !faults.is_empty() {
            return Err(fs::Error::Unavailable(faults.join("; ")));
        }
        faults.iter().for_each(|why| tracing::error!("the store goes on without a disk: {why}"));
        Ok(Self { all: Ranked::new(all) })
    }

    /// One target that the caller has.
    #[cfg(test)]
    pub fn one(name: &str, target: Arc<dyn Target>) -> Self {
        let slot = TargetSlot::new(PathBuf::new(), Some(target), Lane::default());
        Self { all: Ranked::new(BTreeMap::from([(name.into(), Arc::new(slot))])) }
    }

    pub fn get(&self, name: &str) -> Option<Arc<TargetSlot>> {
        self.all.lock().get(name).cloned()
    }

    /// A target, or a part of a shared disk that no volume has yet: that has no target.
    ///
    /// # Errors
    /// [`NotFound`](io::ErrorKind::NotFound) for a name that no disk has.
    pub fn get_or_shared(&self, name: &str) -> io::Result<Arc<TargetSlot>> {
        self.get(name).map_or_else(|| self.blank(name), Ok)
    }

    fn blank(&self, name: &str) -> io::Result<Arc<TargetSlot>> {
        let (disk, volume) = self.disk_of(name)?;
        let slot = TargetSlot::new(disk.path.join(SHARED).join(volume), None, disk.disk.clone());
        // What is on a disk that fails is not known.
        Ok(Arc::new(TargetSlot { fault: disk.fault.clone(), ..slot }))
    }

    /// All of them, in the order of their names.
    pub fn all(&self) -> Vec<(String, Arc<TargetSlot>)> {
        self.all.lock().iter().map(|(name, slot)| (name.clone(), slot.clone())).collect()
    }

    /// Makes a target of this name a target of a volume: a disk, or a part of a shared disk.
    ///
    /// # Errors
    /// [`NotFound`](io::ErrorKind::NotFound) for a name that no disk has, and when the disk cannot
    /// be written.
    pub fn format(&self, name: &str) -> io::Result<Arc<TargetSlot>> {
        if let Some(slot) = self.get(name) {
            slot.format()?;
            return Ok(slot);
        }
        let slot = self.blank(name)?;
        slot.check_fault()?;
        let shared = slot.path.parent().expect("it is below a disk");
        make_private(shared)?;
        slot.format()?;
        for directory in [shared, shared.parent().expect("a disk has it")] {
            std::fs::File::open(directory)?.sync_all()?;
        }
        // Another one may have come meanwhile: its directory was not empty for one of them.
        Ok(self.all.lock().entry(name.into()).or_insert(slot).clone())
    }

    /// The disk of a shared target, and the volume's part of the name.
    fn disk_of<'a>(&self, name: &'a str) -> io::Result<(Arc<TargetSlot>, &'a str)> {
        let all = self.all.lock();
        let mut parts = name.match_indices(SEPARATOR).map(|(at, _)| (&name[..at], &name[at + SEPARATOR.len_utf8()..]));
        let found = parts.find_map(|(disk, volume)| Some((all.get(disk)?.clone(), volume)));
        let (disk, volume) =
            found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("the store has no target {name}")))?;
        let is_name = !volume.is_empty()
            && volume != "."
            && volume != ".."
            && volume.len() <= MAX_NAME_BYTES
            && !volume.contains(|c: char| c == '/' || c.is_control());
        if !is_name {
            let what = format!("{volume:?} cannot be the name of a volume on a shared disk");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let shared = all.keys().filter(|name| name.contains(SEPARATOR)).count();
        if shared >= MAX_SHARED {
            let what = format!("the disks of this store are shared by {MAX_SHARED} volumes already");
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, what));
        }
        Ok((disk, volume))
    }
}

/// The targets of volumes that share a disk: names and directories.
fn shared_on(disk: &Path) -> fs::Result<Vec<(String, PathBuf)>> {
    let below = disk.join(SHARED);
    let cannot = |why: io::Error| fs::Error::from(volume::Error::io("list", &below)(why));
    let entries = match std::fs::read_dir(&below) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(cannot)?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(cannot)?.path();
        if path.file_name().is_some_and(|name| name == "lost+found") {
            continue;
        }
        // What an interrupted creation left is formatted again by the next one.
        let is_one = Disk::is_one(&path)?;
        if let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|_| is_one) {
            found.push((name.to_string(), path.clone()));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that is removed at the end, with a disk in it.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let place = std::env::temp_dir().join(format!("weft-slots-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&place);
            std::fs::create_dir_all(place.join("d1")).unwrap();
            Self(place)
        }

        fn disk(&self) -> [PathBuf; 1] {
            [self.0.join("d1")]
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn volumes_share_a_disk_and_its_limits() {
        let place = Place::new("shared");
        let slots = Slots::open(&place.disk()).unwrap();
        let films = slots.format("d1:films").unwrap();
        let music = slots.format("d1:music: old").unwrap();
        let (one, other) = (&films.disk, &music.disk);
        assert!(Arc::ptr_eq(&one.depth, &other.depth) && Arc::ptr_eq(&one.queue, &other.queue));
        assert!(films.target().is_ok() && slots.get("d1").unwrap().target().is_err());
        let names = |slots: &Slots| slots.all().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(&slots), ["d1", "d1:films", "d1:music: old"]);
        // A disk with volumes below it becomes no target of one volume.
        assert!(slots.format("d1").is_err());
        drop((films, music, slots));
        let again = Slots::open(&place.disk()).unwrap();
        assert_eq!(names(&again), ["d1", "d1:films", "d1:music: old"]);
        assert!(again.get("d1:films").unwrap().target().is_ok());
        // One process has them.
        assert!(Slots::open(&place.disk()).is_err());
    }

    #[test]
    fn a_disk_that_is_a_target_can_be_shared_too() {
        let place = Place::new("both");
        let slots = Slots::open(&place.disk()).unwrap();
        slots.format("d1").unwrap();
        slots.format("d1:films").unwrap();
        let listed = slots.get("d1").unwrap().target().unwrap().list().unwrap();
        assert!(listed.iter().all(|(file, _)| !matches!(file, TargetFile::Chunk { .. })), "{listed:?}");
        drop(slots);
        assert_eq!(Slots::open(&place.disk()).unwrap().all().len(), 2);
    }

    /// After a start of the machine, one of many disks does not answer: the others are served.
    #[test]
    fn a_disk_that_fails_is_left_out() {
        let place = Place::new("fails");
        let [good, bad] = ["d1", "d2"].map(|name| place.0.join(name));
        std::fs::create_dir(&bad).unwrap();
        let fails = |number: Errno| {
            let bad = bad.clone();
            move |path: &Path, disk: &Lane| match path == bad {
                true => Err(volume::Error::io("look at", path)(number).into()),
                false => open_disk(path, disk),
            }
        };
        let slots = Slots::open_with(&[good.clone(), bad.clone()], fails(Errno::IO)).unwrap();
        assert!(slots.format("d1").unwrap().target().is_ok());
        // It is not known whether they are there.
        for name in ["d2", "d2:films"] {
            for why in [slots.get_or_shared(name).unwrap().target().err(), slots.format(name).err()] {
                let why = why.unwrap();
                assert_ne!(why.kind(), io::ErrorKind::NotFound);
                assert!(why.to_string().contains("start the store again"), "{why}");
            }
        }
        assert_eq!(std::fs::read_dir(&bad).unwrap().count(), 0);
        drop(slots);
        assert!(Slots::open_with(std::slice::from_ref(&bad), fails(Errno::IO)).is_err(), "there is no other");
        for number in [Errno::MFILE, Errno::ACCESS, Errno::NOENT] {
            assert!(Slots::open_with(&[good.clone(), bad.clone()], fails(number)).is_err());
        }
    }

    #[test]
    fn a_label_that_could_not_be_read_is_read_again() {
        let place = Place::new("label");
        let slots = Slots::open(&place.disk()).unwrap();
        drop(slots.format("d1").unwrap());
        drop(slots);
        let label = place.0.join("d1/weft.label");
        std::fs::create_dir(&label).unwrap();
        let slot = Slots::open(&place.disk()).unwrap().get("d1").unwrap();
        let is_unread = || slot.unread.load(Ordering::Acquire);
        assert!(is_unread());
        std::fs::remove_dir(&label).unwrap();
        while is_unread() {
            slot.read_label_again();
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn names_stay_below_the_disk() {
        let place = Place::new("names");
        let slots = Slots::open(&place.disk()).unwrap();
        let long = format!("d1:{}", "x".repeat(MAX_NAME_BYTES + 1));
        for name in ["d1:", "d1:.", "d1:..", "d1:../../x", "d1:a/b", "d1:a\0b", "d2:films", "other", &long] {
            assert!(slots.format(name).is_err(), "{name:?}");
        }
        assert_eq!(slots.all().len(), 1);
        assert_eq!(std::fs::read_dir(&place.0).unwrap().count(), 1);
    }
}

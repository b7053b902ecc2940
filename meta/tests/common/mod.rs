//! What the tests of the engines share: a target that forgets, fails and lies, and a merge.
#![allow(dead_code, missing_docs)]

use meta::journal::{Access, JournalLimits, MirrorTarget, Options};
use meta::kv::{Index, KvError, MemoryIndex, RedbIndex};
use plan::TargetId;
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use volume::target::{
    Allocation, ClaimRequest, ClaimState, Disk, Durable, Holder, Memory, Owner, Presence, ReadPart, Space, Target,
    TargetFile, Wait, look_by_reading, read_each, timed,
};

pub const VOLUME: [u8; 16] = *b"the test volume!";

/// Adds little-endian numbers; zero removes the key.
pub fn add(_key: &[u8], old: Option<&[u8]>, operand: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
    let number = |bytes: &[u8]| bytes.get(..8).map_or(0, |bytes| i64::from_le_bytes(bytes.try_into().unwrap()));
    let sum = old.map_or(0, number).wrapping_add(number(operand));
    Ok((sum != 0).then(|| sum.to_le_bytes().to_vec()))
}

/// A target in memory that keeps unsynced data apart.
#[derive(Debug, Default)]
pub struct Flaky {
    files: Mutex<BTreeMap<TargetFile, File>>,
    pub dead: AtomicBool,
    /// Dies after this many more writes, if not negative.
    pub writes_left: AtomicI64,
    pub hang: AtomicBool,
    pub syncs: AtomicU64,
    /// This many bytes fit on it, if not zero.
    pub capacity: AtomicU64,
    /// Has the claim.
    pub claims: Memory,
}

#[derive(Clone, Debug, Default)]
struct File {
    now: Vec<u8>,
    synced: Option<Vec<u8>>,
    /// What was written since, in pieces.
    unsynced: Vec<(usize, Vec<u8>)>,
}

impl Flaky {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { writes_left: AtomicI64::new(-1), ..Self::default() })
    }

    fn alive(&self) -> io::Result<()> {
        while self.hang.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if self.dead.load(Ordering::Relaxed) { Err(io::Error::other("dead")) } else { Ok(()) }
    }

    /// The power fails: some of the unsynced data stays.
    pub fn crash(&self, rng: &mut fastrand::Rng) {
        let mut files = self.files.lock().unwrap();
        files.retain(|_, file| file.synced.is_some() || rng.bool());
        for file in files.values_mut() {
            let mut bytes = file.synced.take().unwrap_or_default();
            let keep_all = rng.bool();
            for (at, written) in file.unsynced.drain(..) {
                for (number, page) in written.chunks(64).enumerate() {
                    let at = at + number * 64;
                    if keep_all || rng.u8(..) < 200 {
                        bytes.resize(bytes.len().max(at + page.len()), 0);
                        bytes[at..at + page.len()].copy_from_slice(page);
                    }
                }
            }
            *file = File { synced: Some(bytes.clone()), now: bytes, unsynced: Vec::new() };
        }
    }

    /// As after the end of a process that had written these last bytes of a file, and not synced
    /// them.
    pub fn unsync(&self, file: TargetFile, last: usize) {
        let mut files = self.files.lock().unwrap();
        let file = files.get_mut(&file).unwrap();
        let at = file.now.len() - last;
        file.synced = Some(file.now[..at].to_vec());
        file.unsynced = vec![(at, file.now[at..].to_vec())];
    }

    /// The power fails: no unsynced data stays.
    pub fn lose_unsynced(&self) {
        let mut files = self.files.lock().unwrap();
        files.values_mut().for_each(|file| file.unsynced.clear());
        files.retain(|_, file| file.synced.is_some());
        files.values_mut().for_each(|file| file.now = file.synced.clone().unwrap());
    }

    /// The bytes of a file, to damage.
    pub fn damage(&self, file: TargetFile, change: impl FnOnce(&mut Vec<u8>)) {
        let mut files = self.files.lock().unwrap();
        let file = files.get_mut(&file).unwrap();
        change(&mut file.now);
        file.synced = Some(file.now.clone());
        file.unsynced.clear();
    }

    pub fn copy(&self) -> Arc<Self> {
        let files = Mutex::new(self.files.lock().unwrap().clone());
        let copy = Self { files, writes_left: AtomicI64::new(-1), ..Self::default() };
        let held = self.claims.claim(&ClaimRequest::Read).unwrap();
        if let Some(claim) = held.claim {
            copy.claims.claim(&ClaimRequest::Take { claim, lease: Duration::ZERO, blank: held.blank }).unwrap();
        }
        Arc::new(copy)
    }

    pub fn used(&self) -> u64 {
        self.files.lock().unwrap().values().map(|file| file.now.len() as u64).sum()
    }

    pub fn names(&self) -> Vec<TargetFile> {
        self.files.lock().unwrap().keys().copied().collect()
    }
}

impl Flaky {
    fn write_parts(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.alive()?;
        if self.writes_left.load(Ordering::Relaxed) >= 0 && self.writes_left.fetch_sub(1, Ordering::Relaxed) == 0 {
            self.dead.store(true, Ordering::Relaxed);
        }
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let mut files = self.files.lock().unwrap();
        let (used, capacity) =
            (files.values().map(|file| file.now.len()).sum::<usize>(), self.capacity.load(Ordering::Relaxed));
        let length = files.entry(file).or_default().now.len();
        if capacity > 0 && used + (offset as usize + bytes.len()).saturating_sub(length) > capacity as usize {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let file = files.entry(file).or_default();
        let at = offset as usize;
        file.now.resize(file.now.len().max(at + bytes.len()), 0);
        file.now[at..at + bytes.len()].copy_from_slice(&bytes);
        file.unsynced.push((at, bytes));
        drop(files);
        self.alive()
    }

    fn sync_file(&self, file: TargetFile) -> io::Result<()> {
        self.alive()?;
        self.syncs.fetch_add(1, Ordering::Relaxed);
        let mut files = self.files.lock().unwrap();
        let file = files.get_mut(&file).ok_or(io::ErrorKind::NotFound)?;
        if !file.unsynced.is_empty() || file.synced.is_none() {
            let mut synced = file.synced.take().unwrap_or_default();
            synced.resize(file.now.len(), 0);
            for (at, bytes) in file.unsynced.drain(..) {
                synced[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            file.synced = Some(synced);
        }
        Ok(())
    }
}

impl Target for Flaky {
    fn write(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>], durable: Durable) -> io::Result<Duration> {
        timed(|| {
            self.write_parts(file, offset, parts)?;
            if durable == Durable::Now { self.sync_file(file) } else { Ok(()) }
        })
    }

    fn read(&self, file: TargetFile, parts: &mut [ReadPart<'_>], wait: Wait) -> io::Result<()> {
        self.alive()?;
        let files = self.files.lock().unwrap();
        let file = files.get(&file).ok_or(io::ErrorKind::NotFound)?;
        read_each(parts, wait, |offset, into| {
            let from = file.now.get(offset as usize..).unwrap_or_default();
            let have = from.len().min(into.len());
            into[..have].copy_from_slice(&from[..have]);
            Ok(have)
        })
    }

    fn sync(&self, file: TargetFile) -> io::Result<Duration> {
        timed(|| self.sync_file(file))
    }

    fn allocate(&self, _file: TargetFile, _change: Allocation) -> io::Result<()> {
        self.alive()
    }

    fn seal(&self, _file: TargetFile) -> io::Result<()> {
        self.alive()
    }

    fn rename(&self, from: TargetFile, to: TargetFile) -> io::Result<()> {
        self.alive()?;
        let mut files = self.files.lock().unwrap();
        let file = files.remove(&from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to, file);
        Ok(())
    }

    fn remove(&self, file: TargetFile) -> io::Result<()> {
        self.alive()?;
        self.files.lock().unwrap().remove(&file);
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        self.alive()?;
        Ok(self.files.lock().unwrap().iter().map(|(&name, file)| (name, file.now.len() as u64)).collect())
    }

    fn list_metadata(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        Ok(self.list()?.into_iter().filter(|(file, _)| file.is_metadata()).collect())
    }

    fn claim(&self, ask: &ClaimRequest) -> io::Result<ClaimState> {
        self.alive()?;
        self.claims.claim(ask)
    }

    fn space(&self) -> io::Result<Space> {
        let used = self.used();
        match self.capacity.load(Ordering::Relaxed) {
            0 => Ok(Space { total: 1 << 40, free: 1 << 39, system: std::ptr::from_ref(self) as u64 }),
            capacity => Ok(Space {
                total: capacity,
                free: capacity.saturating_sub(used),
                system: std::ptr::from_ref(self) as u64,
            }),
        }
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn owner(&self) -> Option<Owner<'_>> {
        None
    }

    fn look(&self, files: &[TargetFile]) -> io::Result<Vec<Presence>> {
        look_by_reading(self, files)
    }
}

pub fn places(targets: &[Arc<Flaky>]) -> Vec<MirrorTarget> {
    targets.iter().enumerate().map(|(id, target)| (TargetId(id as u16), target.clone() as Arc<dyn Target>)).collect()
}

/// Small limits, so that everything happens often.
pub fn small() -> JournalLimits {
    JournalLimits {
        segment_bytes: 4 << 10,
        group_bytes: 1 << 10,
        pending_bytes: 64 << 10,
        delay: Duration::from_millis(5),
        overlay_bytes: 8 << 10,
        snapshot_bytes: 16 << 10,
        deadline: Duration::from_millis(500),
        // Longer than any test, but those that are about it.
        retry: Duration::from_secs(3600),
    }
}

pub fn options(targets: &[Arc<Flaky>], mirrors: usize, index: Box<dyn Index>, limits: JournalLimits) -> Options {
    of_places(places(targets), mirrors, index, limits)
}

/// Options for a volume that has these targets and no others.
pub fn of_places(targets: Vec<MirrorTarget>, mirrors: usize, index: Box<dyn Index>, limits: JournalLimits) -> Options {
    Options {
        volume: VOLUME,
        voters: targets.iter().map(|(id, _)| *id).collect(),
        targets,
        losses: mirrors - 1,
        generation: 1,
        holder: Holder::default(),
        lease: None,
        access: Access::Write,
        index,
        merge: add,
        limits,
        accept_loss: false,
        local_wal: None,
    }
}

pub fn memory() -> Box<dyn Index> {
    Box::new(MemoryIndex::default())
}

pub fn redb(path: &Path) -> Box<dyn Index> {
    Box::new(RedbIndex::open(path).unwrap())
}

/// A directory that goes away.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("weft-meta-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// A directory in it as a target.
    pub fn disk(&self, name: &str) -> Arc<dyn Target> {
        Arc::new(Disk::format(&self.0.join(name)).unwrap())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

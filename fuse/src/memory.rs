//! A file system in memory for tests: names and attributes as in any volume, content in vectors.

use crate::files::Files;
use fs::{Allocate, Attributes, Ino, Listed, New, RenameMode, Result, Seek, SetAttributes, Time, Usage};
use meta::kv::{Direct, MemoryIndex};
use meta::{AttributeChange, ContentEdit, Meta, Resize};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

/// Data is where a piece of that size is not all zeroes.
const PIECE_BYTES: usize = 4096;

pub(crate) struct Memory {
    meta: Meta,
    state: Mutex<State>,
    /// Requests of some kinds, counted.
    pub attribute_calls: AtomicU64,
    pub syncs: AtomicU64,
    /// The longest write, and how many there were.
    pub longest_write: AtomicU64,
    pub writes: AtomicU64,
    /// Others use it, too.
    pub shared: AtomicBool,
    /// How often the session ended.
    pub fences: AtomicU64,
    /// Makes reading fail.
    pub broken: AtomicBool,
    /// Makes writing fail for lack of space.
    pub full: AtomicBool,
    /// Makes reading panic.
    pub defective: AtomicBool,
    /// Reading waits while a test holds this lock.
    pub hanging: RwLock<()>,
    /// What another client does before the next files are opened, one after the other, and how
    /// opening then ends.
    pub before_opening: Mutex<VecDeque<Before>>,
    /// The same for the next truncation, and for the next question for
    /// attributes of another file than the root.
    pub before_truncation: Mutex<Option<Before>>,
    pub before_attributes: Mutex<Option<Before>>,
}

pub(crate) type Before = Box<dyn FnOnce(&Memory) -> Result<()> + Send>;

#[derive(Default)]
struct State {
    contents: HashMap<Ino, Vec<u8>>,
    opens: HashMap<Ino, u32>,
    /// How often the kernel got a file in an answer.
    known: HashMap<Ino, u64>,
}

impl State {
    fn is_needed(&self, ino: Ino) -> bool {
        self.opens.contains_key(&ino) || self.known.contains_key(&ino)
    }
}

fn now() -> Time {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Time { seconds: now.as_secs() as i64, nanoseconds: now.subsec_nanos() }
}

impl Memory {
    pub fn new() -> Self {
        let meta = Meta::open(Arc::new(Direct::<MemoryIndex>::new(meta::MERGE)), (0, 0), now()).unwrap();
        let owner = AttributeChange { uid: Some(rustix::process::geteuid().as_raw()), ..AttributeChange::default() };
        meta.set_attributes(meta::ROOT, owner, now()).unwrap();
        Self {
            meta,
            state: Mutex::default(),
            attribute_calls: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            longest_write: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            shared: AtomicBool::new(false),
            fences: AtomicU64::new(0),
            broken: AtomicBool::new(false),
            full: AtomicBool::new(false),
            defective: AtomicBool::new(false),
            hanging: RwLock::default(),
            before_opening: Mutex::default(),
            before_truncation: Mutex::default(),
            before_attributes: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// How many are open.
    pub fn opens(&self) -> u32 {
        self.state().opens.values().sum()
    }

    /// How many files the kernel knows.
    pub fn known(&self) -> usize {
        self.state().known.len()
    }

    fn let_go(&self, state: &mut State, ino: Ino) {
        if !state.is_needed(ino) && self.meta.orphans().unwrap().contains(&ino) {
            self.meta.drop_orphan(ino, |_, _| ()).unwrap();
            state.contents.remove(&ino);
        }
    }

    fn resize(&self, ino: Ino, resize: Resize) -> Result<()> {
        let edit = ContentEdit { ranges: Vec::new(), resize, modified: Some(now()) };
        self.meta.change_content(ino, &edit)?;
        Ok(())
    }

    fn shown(&self, mut attributes: Attributes) -> Attributes {
        if attributes.kind == fs::FileKind::File {
            let state = self.state();
            let content = state.contents.get(&attributes.ino).map_or(&[][..], Vec::as_slice);
            let pieces = content.chunks(PIECE_BYTES).filter(|piece| piece.iter().any(|byte| *byte != 0)).count();
            attributes.allocated = (pieces * PIECE_BYTES) as u64;
        }
        attributes
    }
}

impl Files for Memory {
    fn append(&self, ino: Ino, data: &[u8]) -> Result<()> {
        self.write(ino, self.attributes(ino)?.size, data)
    }
    fn lock(&self, _: Ino, _: &fs::FileLock, _: Option<&dyn Fn() -> bool>) -> Result<bool> {
        Err(fs::Error::Unsupported("it is not shared"))
    }
    fn check_loss_at_close(&self, _: Ino) -> Result<()> {
        Ok(())
    }
    fn commit_at_close(&self, _: Ino) -> Result<()> {
        Ok(())
    }

    fn unlock(&self, _: Ino, _: u64, _: u64, _: u64) -> Result<()> {
        Ok(())
    }
    fn conflicting_lock(&self, _: Ino, _: &fs::FileLock) -> Result<Option<fs::FileLock>> {
        Ok(None)
    }
    fn begin_end(&self) {}
    fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }
    fn knows(&self, ino: Ino) -> bool {
        self.state().known.contains_key(&ino)
    }
    fn alone(&self) -> Option<u64> {
        None
    }
    fn losses(&self, _: Ino) -> u64 {
        0
    }
    fn path_of(&self, ino: Ino) -> Option<Vec<u8>> {
        self.meta.describe(ino).ok()?.1
    }
    fn note_refused_write(&self, _: Ino) {}
    fn fences(&self) -> u64 {
        self.fences.load(Ordering::Relaxed)
    }
    fn has_lost_locks(&self) -> bool {
        false
    }
    fn take_lost_locks(&self) -> Vec<(Ino, u64)> {
        Vec::new()
    }
    fn valid_for(&self) -> std::time::Duration {
        std::time::Duration::from_secs(if self.is_shared() { 0 } else { 1000 })
    }
    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attributes> {
        Ok(self.shown(self.meta.lookup(parent, name)?))
    }
    fn attributes(&self, ino: Ino) -> Result<Attributes> {
        self.attribute_calls.fetch_add(1, Ordering::Relaxed);
        if ino != fs::ROOT {
            let before = self.before_attributes.lock().unwrap().take();
            before.map_or(Ok(()), |before| before(self))?;
        }
        Ok(self.shown(self.meta.attributes(ino)?))
    }
    fn set_attributes(&self, ino: Ino, set: SetAttributes) -> Result<Attributes> {
        if let Some(size) = set.size {
            let before = self.before_truncation.lock().unwrap().take();
            before.map_or(Ok(()), |before| before(self))?;
            self.state().contents.entry(ino).or_default().resize(size as usize, 0);
            self.resize(ino, Resize::To(size))?;
        }
        let SetAttributes { mode, uid, gid, accessed, modified, changed, created, .. } = set;
        let change = AttributeChange { mode, uid, gid, accessed, modified, changed, created };
        Ok(self.shown(self.meta.set_attributes(ino, change, now())?.0))
    }
    fn take_privileges(&self, ino: Ino) -> Result<bool> {
        if !self.meta.has_privileges(ino)? {
            return Ok(false);
        }
        let mode = Some(fs::unprivileged(self.meta.attributes(ino)?.mode));
        self.meta.set_attributes(ino, AttributeChange { mode, ..AttributeChange::default() }, now())?;
        match self.meta.remove_attribute(ino, meta::FILE_CAPABILITIES, now()) {
            Ok(_) | Err(meta::Error::NoAttribute) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
    fn make(&self, parent: Ino, name: &[u8], new: &New) -> Result<Attributes> {
        Ok(self.meta.make(parent, name, new, now())?.0)
    }
    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attributes> {
        Ok(self.shown(self.meta.link(ino, parent, name, now())?.0))
    }
    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        Ok(self.meta.read_link(ino)?)
    }
    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.unlink_file(parent, name, self.meta.lookup(parent, name)?.ino)
    }
    fn unlink_file(&self, parent: Ino, name: &[u8], ino: Ino) -> Result<()> {
        let mut state = self.state();
        let is_open = state.is_needed(ino);
        if self.meta.unlink(parent, name, ino, is_open, now())?.last && !is_open {
            state.contents.remove(&ino);
        }
        Ok(())
    }
    fn remove_directory(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let ino = self.meta.lookup(parent, name)?.ino;
        let is_open = self.state().is_needed(ino);
        self.meta.remove_directory(parent, name, ino, is_open, now())?;
        Ok(())
    }
    fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), mode: RenameMode) -> Result<()> {
        let replaced = match self.meta.lookup(to.0, to.1) {
            Err(meta::Error::NotFound) => None,
            found => Some(found?.ino),
        };
        let is_open = replaced.is_some_and(|ino| self.state().is_needed(ino));
        let (from, to) = ((from.0, from.1.to_vec()), (to.0, to.1.to_vec()));
        self.meta.rename(&meta::Rename { from, to, mode, replaced, keep: is_open }, now())?;
        Ok(())
    }
    fn list(&self, parent: Ino, cookie: u64, limit: usize) -> Result<Vec<Listed>> {
        let listed = self.meta.list(parent, cookie, limit)?.into_iter();
        Ok(listed.map(|entry| Listed { attributes: self.shown(entry.attributes), ..entry }).collect())
    }
    fn parent(&self, ino: Ino) -> Result<Ino> {
        Ok(self.meta.parent(ino)?)
    }
    fn attribute(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        Ok(self.meta.attribute(ino, name)?)
    }
    fn attribute_names(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        Ok(self.meta.attribute_names(ino)?)
    }
    fn set_attribute(&self, ino: Ino, name: &[u8], value: &[u8], must_exist: Option<bool>) -> Result<()> {
        self.meta.set_attribute(ino, name, value, must_exist, now())?;
        Ok(())
    }
    fn remove_attribute(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.meta.remove_attribute(ino, name, now())?;
        Ok(())
    }
    fn open(&self, ino: Ino, _: bool) -> Result<()> {
        let before = self.before_opening.lock().unwrap().pop_front();
        before.map_or(Ok(()), |before| before(self))?;
        self.meta.attributes(ino)?;
        *self.state().opens.entry(ino).or_default() += 1;
        Ok(())
    }
    fn close(&self, ino: Ino) {
        let mut state = self.state();
        let opens = state.opens.get_mut(&ino).expect("every close has its open");
        *opens -= 1;
        if *opens == 0 {
            state.opens.remove(&ino);
            self.let_go(&mut state, ino);
        }
    }
    fn looking_up(&self) -> Option<fs::Lookup<'_>> {
        None
    }
    fn looked_up(&self, ino: Ino) {
        *self.state().known.entry(ino).or_default() += 1;
    }
    fn forget(&self, ino: Ino, count: u64) {
        let mut state = self.state();
        let known = state.known.get_mut(&ino).expect("the kernel was told of it");
        *known = known.checked_sub(count).expect("so often");
        if *known == 0 {
            state.known.remove(&ino);
            self.let_go(&mut state, ino);
        }
    }
    fn read(&self, ino: Ino, offset: u64, into: &mut [u8]) -> Result<usize> {
        assert!(!self.defective.load(Ordering::Relaxed), "a defect");
        let _wait = self.hanging.read().unwrap();
        if self.broken.load(Ordering::Relaxed) {
            return Err(meta::Error::Unavailable("no target answers".into()).into());
        }
        let state = self.state();
        let content = state.contents.get(&ino).map_or(&[][..], Vec::as_slice);
        let rest = &content[content.len().min(offset as usize)..];
        let length = rest.len().min(into.len());
        into[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }
    fn in_this_session<T>(&self, work: impl FnOnce() -> T) -> T {
        work()
    }
    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        if self.full.load(Ordering::Relaxed) {
            return Err(fs::Error::Meta(meta::Error::NoSpace));
        }
        self.longest_write.fetch_max(data.len() as u64, Ordering::Relaxed);
        self.writes.fetch_add(1, Ordering::Relaxed);
        let end = offset as usize + data.len();
        {
            let mut state = self.state();
            let content = state.contents.entry(ino).or_default();
            let longer = content.len().max(end);
            content.resize(longer, 0);
            content[offset as usize..end].copy_from_slice(data);
        }
        self.resize(ino, Resize::AtLeast(end as u64))
    }
    fn sync(&self, _: Ino) -> Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
    fn sync_all(&self) -> Result<()> {
        self.sync(Ino(0))
    }
    fn allocate(&self, ino: Ino, how: Allocate, offset: u64, length: u64) -> Result<()> {
        let end = offset + length;
        let grows = matches!(how, Allocate::Grow | Allocate::Zero);
        if how != Allocate::Grow && how != Allocate::KeepSize {
            let mut state = self.state();
            let content = state.contents.entry(ino).or_default();
            let (from, to) = (content.len().min(offset as usize), content.len().min(end as usize));
            content[from..to].fill(0);
        }
        if grows && self.meta.attributes(ino)?.size < end {
            self.state().contents.entry(ino).or_default().resize(end as usize, 0);
            self.resize(ino, Resize::AtLeast(end))?;
        }
        Ok(())
    }
    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        let state = self.state();
        let content = state.contents.get(&ino).map_or(&[][..], Vec::as_slice);
        let none = || fs::Error::Meta(meta::Error::NotFound);
        if offset as usize >= content.len() {
            return Err(none());
        }
        let first = offset as usize / PIECE_BYTES;
        let found = content
            .chunks(PIECE_BYTES)
            .enumerate()
            .skip(first)
            .find(|(_, piece)| piece.iter().any(|byte| *byte != 0) == (what == Seek::Data));
        match found {
            Some((number, _)) => Ok(offset.max((number * PIECE_BYTES) as u64)),
            None if what == Seek::Hole => Ok(content.len() as u64),
            None => Err(none()),
        }
    }
    fn copy_range(&self, from: (Ino, u64), to: (Ino, u64), length: u64) -> Result<u64> {
        let mut data = vec![0; length.min(16 << 20) as usize];
        let length = self.read(from.0, from.1, &mut data)?;
        self.write(to.0, to.1, &data[..length])?;
        Ok(length as u64)
    }
    fn usage(&self) -> Result<Usage> {
        Ok(Usage { total: 10 << 30, free: 7 << 30, files: 3 })
    }
    fn read_ahead_bytes(&self) -> usize {
        1 << 20
    }

    fn is_read_only(&self) -> bool {
        false
    }
}

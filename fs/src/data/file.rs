//! The table of files that are open or have uncommitted content, and the locks of a file.

use crate::data::buffer::Buffer;
use crate::data::known::Known;
use crate::ranks::{FileContent, FileNames, FileStates, FileTable};
use ::volume::ranked::{Guard, Ranked};
use plan::{Ino, RecordOffset, SetId};
use std::collections::{BTreeMap, HashMap};
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar};
use std::time::Instant;

/// The table is split by inode number into this many shards, each with its own lock.
const SHARDS: usize = 16;

/// The locked state of a file. Hold it only for a moment.
pub(crate) type Locked<'a> = Guard<'a, FileState, FileStates>;

/// A file that is open or has uncommitted content.
#[derive(Debug)]
pub(crate) struct File {
    pub ino: Ino,
    /// Held while the committed content is changed. Lock it before `state`, and before the same
    /// lock of files with higher numbers. Readers do not take it. A thread may hold it during a
    /// request to the server, which is forbidden for `state`.
    content: Ranked<(), FileContent>,
    /// Held while the file gets or loses a name, and while it is closed; while it is opened, too,
    /// by a client only when the server has answered. Lock it before `state`.
    naming: Ranked<(), FileNames>,
    state: Ranked<FileState, FileStates>,
    /// Signalled when a piece was written into a stripe, or failed.
    arrived: Condvar,
}

/// The state of a file in this process.
#[derive(Debug, Default)]
pub(crate) struct FileState {
    pub buffer: Buffer,
    pub openers: u32,
    /// How often this process changed the committed content.
    pub changes: u64,
    /// This process is changing the committed content: what it knows may be the old state.
    pub changing: bool,
    /// Committed extents, if no other process changes the file.
    pub known: Known,
    /// The time of the oldest uncommitted write.
    pub dirty_since: Option<Instant>,
    /// The file has no name any more. It is removed when it is not open and the kernel has
    /// forgotten it.
    pub orphan: bool,
    /// The file lost its last name here, and no program here needs it. Other clients may still open
    /// it, and then they must find what this one wrote.
    pub is_left: bool,
    /// The file is removed.
    pub gone: bool,
    /// The error of a background write; the next sync reports it.
    pub failed: Option<crate::Error>,
    /// Written data was lost; the next sync or close reports it, once.
    pub lost: bool,
    /// The same, until a sync reports it or the file is rewritten: it must not replace another file
    /// unnoticed. A report by a close is not enough.
    pub lacks_data: bool,
    /// A write of the kernel's cache was refused since the last sync, which the kernel reports.
    pub lacks_pages: bool,
    /// How often data was lost.
    pub losses: u64,
}

impl FileState {
    /// A value that changes whenever this process changes the committed content.
    pub fn seen(&self) -> (u64, bool) {
        (self.changes, self.changing)
    }

    /// Ends a change of the committed content.
    pub fn changed(&mut self) {
        self.changes += 1;
        self.changing = false;
    }
}

impl File {
    pub fn state(&self) -> Locked<'_> {
        self.state.lock()
    }

    pub fn content(&self) -> Guard<'_, (), FileContent> {
        self.content.lock_by(self.ino.0)
    }

    pub fn naming(&self) -> Guard<'_, (), FileNames> {
        self.naming.lock()
    }

    /// Signals that a piece was written into a stripe, or failed.
    pub fn arrived(&self) {
        self.arrived.notify_all();
    }

    /// Waits until nothing is on its way in these ranges. What is taken from others is not waited
    /// for: a program may write all the time. With a deadline, waits no longer: None then.
    pub fn wait_for_arrivals(&self, due: &[Range<u64>], deadline: Option<Instant>) -> Option<Locked<'_>> {
        // Those before it have arrived. All are looked at again at the end, as they may be taken
        // anew meanwhile.
        let mut next = 0;
        let mut waits = |state: &FileState| {
            let is_in_flight = |range: &Range<u64>| state.buffer.is_in_flight(range);
            let rest = due[next..].iter().position(is_in_flight).map(|number| next + number);
            let found = rest.or_else(|| due[..next].iter().position(is_in_flight));
            next = found.unwrap_or(due.len());
            found.is_some()
        };
        let Some(deadline) = deadline else { return Some(self.state().wait_while(&self.arrived, |of| waits(of))) };
        let left = deadline.saturating_duration_since(Instant::now());
        let state = self.state().wait_timeout_while(&self.arrived, left, |of| waits(of));
        Some(state).filter(|state| !waits(state))
    }
}

/// All files that are open or have uncommitted content.
#[derive(Debug)]
pub(crate) struct Table {
    shards: [Ranked<HashMap<Ino, Arc<File>>, FileTable>; SHARDS],
    /// How many files were removed from the table.
    departures: AtomicU64,
}

/// A reference to a file of the table. When the last one is dropped, the table removes the file,
/// unless it is open, kept without a name, or has uncommitted content.
pub(crate) struct Held<'a> {
    table: &'a Table,
    /// Always present except in `drop`.
    file: Option<Arc<File>>,
}

impl Deref for Held<'_> {
    type Target = Arc<File>;

    fn deref(&self) -> &Arc<File> {
        self.file.as_ref().expect("it goes with this")
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            self.table.leave(file);
        }
    }
}

impl Table {
    pub fn new() -> Self {
        Self { shards: std::array::from_fn(|_| Ranked::default()), departures: AtomicU64::new(0) }
    }

    fn shard(&self, ino: Ino) -> Guard<'_, HashMap<Ino, Arc<File>>, FileTable> {
        self.shards[ino.0 as usize % SHARDS].lock()
    }

    /// Wraps a file into a reference.
    pub fn hold(&self, file: Arc<File>) -> Held<'_> {
        Held { table: self, file: Some(file) }
    }

    /// The file with this number; adds it if it is not in the table.
    pub fn enter(&self, ino: Ino) -> Held<'_> {
        let new = || {
            let (content, naming, state, arrived) = Default::default();
            Arc::new(File { ino, content, naming, state, arrived })
        };
        let file = self.shard(ino).entry(ino).or_insert_with(new).clone();
        self.hold(file)
    }

    /// The file with this number, if it is in the table.
    pub fn find(&self, ino: Ino) -> Option<Held<'_>> {
        let file = self.shard(ino).get(&ino).cloned();
        file.map(|file| self.hold(file))
    }

    /// How many files left the table so far. Their content is committed.
    pub fn departures(&self) -> u64 {
        self.departures.load(Ordering::Relaxed)
    }

    fn leave(&self, file: Arc<File>) {
        let mut shard = self.shard(file.ino);
        // One reference is this one, the other the table's. While the shard is locked, no other
        // thread can get a new one.
        let last = Arc::strong_count(&file) <= 2;
        let idle = last && {
            let state = file.state();
            let has_news = state.failed.is_some() || state.lost || state.lacks_data || state.lacks_pages;
            state.openers == 0 && !state.orphan && (state.gone || !has_news && state.buffer.is_clean())
        };
        if idle {
            shard.remove(&file.ino);
            self.departures.fetch_add(1, Ordering::Relaxed);
        }
        // Drop it while the shard is locked: if two references are dropped at the same time, the
        // second sees that it is the last.
        drop(file);
    }

    /// The stripes to which buffers refer and which no transaction names yet: set and record, with
    /// the length of the blocks.
    pub fn uncommitted(&self) -> BTreeMap<(SetId, RecordOffset), u32> {
        let mut found = BTreeMap::new();
        for shard in &self.shards {
            // Take no references: they could keep a file from leaving the table.
            for file in shard.lock().values() {
                found.extend(file.state().buffer.stripes().map(|span| (span.stripe(), span.block)));
            }
        }
        found
    }

    /// The uncommitted stripes of one set.
    pub fn uncommitted_in(&self, set: SetId) -> BTreeMap<RecordOffset, u32> {
        let all = self.uncommitted().into_iter();
        all.filter(|((of, _), _)| *of == set).map(|((_, record), block)| (record, block)).collect()
    }

    /// All files, ordered by number.
    pub fn all(&self) -> Vec<Held<'_>> {
        let mut all: Vec<Held<'_>> = Vec::new();
        for shard in &self.shards {
            all.extend(shard.lock().values().cloned().map(|file| self.hold(file)));
        }
        all.sort_by_key(|file| file.ino);
        all
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Lab, make};
    use crate::{ROOT, SetAttributes, SetTime};
    use plan::Ino;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    /// The table removes a file after every kind of operation.
    #[test]
    fn no_file_stays_in_the_table() {
        let lab = Lab::new("rs:2+1", 3);
        let fs = lab.open();
        let stop = AtomicBool::new(false);
        let work = |seed: u64| {
            let mut dice = fastrand::Rng::with_seed(seed);
            for round in 0..60 {
                let name = format!("f{}", dice.u8(..12));
                let ino = fs.lookup(ROOT, name.as_bytes()).map_or_else(
                    |_| fs.make(ROOT, name.as_bytes(), &new()).map_or(Ino(0), |made| made.ino),
                    |found| found.ino,
                );
                let open = fs.open(ino, true).is_ok();
                let _ = fs.write(ino, dice.u64(..100_000), &vec![seed as u8; dice.usize(1..60_000)]);
                let _ = match dice.u8(..6) {
                    0 => fs.sync(ino),
                    1 => fs.unlink(ROOT, name.as_bytes()),
                    2 => fs.copy_range((ino, 0), (make(&fs, &format!("c{seed}-{round}")), 0), 5000).map(drop),
                    3 => fs.rename((ROOT, name.as_bytes()), (ROOT, b"f1"), crate::RenameMode::Replace),
                    4 => fs
                        .set_attributes(ino, SetAttributes { modified: Some(SetTime::Now), ..Default::default() })
                        .map(drop),
                    _ => fs.read(ino, 0, &mut [0; 5000]).map(drop),
                };
                if open {
                    fs.close(ino);
                }
            }
        };
        std::thread::scope(|scope| {
            let looking = scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let _ = fs.list(ROOT, 0, 100);
                    let _ = fs.commit_all(Some(std::time::Instant::now()));
                }
            });
            let working: Vec<_> = (0..4).map(|seed| scope.spawn(move || work(seed))).collect();
            working.into_iter().for_each(|thread| thread.join().unwrap());
            stop.store(true, Ordering::Relaxed);
            looking.join().unwrap();
        });
        fs.sync_all().unwrap();
        // Background threads may hold references for a moment.
        for _ in 0..50 {
            if fs.table.len() > 0 {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        assert_eq!(fs.table.len(), 0);
    }

    fn new() -> crate::New {
        crate::New { kind: crate::FileKind::File, mode: 0o644, uid: 1, gid: 2, device: 0, link: Vec::new() }
    }

    /// With a stream of writes and commits, no reader sees a smaller size or an older time than
    /// before.
    #[test]
    fn sizes_and_times_do_not_go_back() {
        let lab = Lab::new("rs:2+1", 3);
        let fs = lab.open();
        let ino = make(&fs, "file");
        // A failed assertion ends the commits, too.
        struct Going<'a>(&'a AtomicBool);
        impl Drop for Going<'_> {
            fn drop(&mut self) {
                self.0.store(false, Ordering::Relaxed);
            }
        }
        let goes_on = AtomicBool::new(true);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while goes_on.load(Ordering::Relaxed) {
                    fs.commit_all(None).unwrap();
                }
            });
            let _going = Going(&goes_on);
            let begun = std::time::Instant::now();
            let mut last = fs.attributes(ino).unwrap();
            for round in 1u64.. {
                // The kernel's clock, with which this change is stamped, runs ahead of the coarse
                // one; several writes get the same time.
                if round % 32 == 0 {
                    let touched = SetAttributes { modified: Some(SetTime::Now), ..Default::default() };
                    fs.set_attributes(ROOT, touched).unwrap();
                }
                fs.write(ino, round * 100, &[1; 100]).unwrap();
                let seen = match round % 3 {
                    0 => fs.attributes(ino).unwrap(),
                    1 => fs.lookup(ROOT, b"file").unwrap(),
                    _ => fs.list(ROOT, 0, 10).unwrap()[0].attributes,
                };
                assert_eq!(seen.size, round * 100 + 100, "round {round}");
                assert!(seen.modified >= last.modified, "round {round}: {seen:?} after {last:?}");
                last = seen;
                if begun.elapsed() > Duration::from_secs(3) {
                    break;
                }
            }
        });
    }
}

//! What of a disk's files is in the page cache only. Short writes go there, and the system takes
//! them at the speed of memory until a good part of it is full. Then nobody notices that a disk is
//! slow, and a sync of all that takes longer than anybody waits. So a thread writes back what was
//! written, and writers wait when it is far behind, as they do with direct I/O.

use super::TargetFile;
use super::open::Open;
use crate::{lock, unpoisoned};
use rustix::fs::{Advice, fadvise};
use std::collections::HashMap;
use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};

/// What a disk writes in this time is written back at once. Writers wait when there is twice as
/// much. No wait is much longer, so that a slow disk is not taken for one that hangs: that takes a
/// second at least.
const WRITE_BACK_TIME: Duration = Duration::from_millis(200);
/// How much that is before anything is known of the disk, and its bounds.
const FIRST_BYTES: u64 = 4 << 20;
const MIN_BYTES: u64 = 1 << 20;
const MAX_BYTES: u64 = 32 << 20;
/// How long the end of the thread is waited for.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// What is unsynced.
#[derive(Debug, Default)]
pub(super) struct Unsynced(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// There is less of it, or the thread ended.
    less: Condvar,
}

#[derive(Debug)]
struct State {
    files: HashMap<TargetFile, Written>,
    bytes: u64,
    /// What is on its way to the disk.
    leaving: u64,
    /// How much is written back at once.
    part: u64,
    /// The thread runs.
    running: bool,
    /// The disk is not used any more.
    closed: bool,
}

/// What was written to a file. A file that is no longer open does not stay so because of this.
#[derive(Debug, Default)]
struct Written {
    open: Weak<Open>,
    bytes: u64,
    range: Range<u64>,
}

impl Default for State {
    fn default() -> Self {
        Self { files: HashMap::new(), bytes: 0, leaving: 0, part: FIRST_BYTES, running: false, closed: false }
    }
}

impl State {
    /// Whether writers must wait.
    fn is_far_behind(&self) -> bool {
        self.running && self.bytes + self.leaving >= 2 * self.part
    }
}

impl Unsynced {
    /// Counts a write.
    pub fn wrote(&self, file: TargetFile, open: &Arc<Open>, range: Range<u64>) {
        let mut state = lock(&self.0.state);
        let bytes = range.end - range.start;
        state.bytes += bytes;
        let written = state.files.entry(file).or_insert_with(|| Written { range: range.clone(), ..Written::default() });
        // It may have been closed and opened again.
        written.open = Arc::downgrade(open);
        written.bytes += bytes;
        written.range = written.range.start.min(range.start)..written.range.end.max(range.end);
        if state.bytes >= state.part && !state.running {
            let shared = self.0.clone();
            let begun = std::thread::Builder::new().name("write-back".into()).spawn(move || shared.write_back());
            // Without a thread, the next sync writes it.
            state.running = begun.is_ok();
        }
    }

    /// The file is about to be synced, or is gone.
    pub fn forget(&self, file: TargetFile) {
        let mut state = lock(&self.0.state);
        if let Some(written) = state.files.remove(&file) {
            state.bytes -= written.bytes;
            self.0.less.notify_all();
        }
    }

    /// Waits until the disk is not far behind.
    pub fn wait(&self) {
        drop(unpoisoned(self.0.less.wait_while(lock(&self.0.state), |state| state.is_far_behind())));
    }
}

impl Drop for Unsynced {
    /// Nothing holds files of the disk open after it. One that hangs is not waited for.
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.closed = true;
        drop(unpoisoned(self.0.less.wait_timeout_while(state, CLOSE_TIMEOUT, |state| state.running)));
    }
}

impl Shared {
    /// Writes files back while there is enough.
    fn write_back(&self) {
        while let Some(files) = self.take() {
            let begun = Instant::now();
            // Several are on their way to the disk before the first one is waited for, and one
            // commit of the file system is enough for all.
            let several = files.len() > 1;
            let open: Vec<(u64, Option<Arc<Open>>)> =
                files.into_values().map(|written| (written.bytes, begin(written, several))).collect();
            let mut done = 0;
            for (bytes, open) in open {
                let closed = lock(&self.state).closed;
                if open.is_some_and(|open| !closed && open.write_back()) {
                    done += bytes;
                }
                lock(&self.state).leaving -= bytes;
                self.less.notify_all();
            }
            let mut state = lock(&self.state);
            state.part = part(done, begun.elapsed(), state.part);
        }
    }

    /// What to write back now. None ends the thread.
    fn take(&self) -> Option<HashMap<TargetFile, Written>> {
        let mut state = lock(&self.state);
        if state.bytes < state.part || state.closed {
            state.running = false;
            self.less.notify_all();
            return None;
        }
        state.leaving = std::mem::take(&mut state.bytes);
        Some(std::mem::take(&mut state.files))
    }
}

/// Begins to write a file back, if it is still open and others follow.
fn begin(written: Written, several: bool) -> Option<Arc<Open>> {
    let open = written.open.upgrade()?;
    if several {
        begin_write_back(&open.file, written.range);
    }
    Some(open)
}

/// Begins to write a part of a file back, without waiting for its end.
pub(crate) fn begin_write_back(file: &File, range: Range<u64>) {
    // This advice begins to write the pages that are not on the disk, and keeps most of them.
    let _ = fadvise(file, range.start, NonZeroU64::new(range.end - range.start), Advice::DontNeed);
}

/// How much to write back at once on a disk that wrote this many bytes in this time, after
/// `before`. It grows slowly: the disk may have written some of it before.
fn part(bytes: u64, took: Duration, before: u64) -> u64 {
    let speed = bytes as f64 / took.as_secs_f64().max(1e-6);
    let part = if bytes > 0 { (speed * WRITE_BACK_TIME.as_secs_f64()) as u64 } else { before };
    part.min(2 * before).clamp(MIN_BYTES, MAX_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::{Position, SetId};

    fn file(set: u64) -> TargetFile {
        TargetFile::Chunk { set: SetId(set), position: Position(0) }
    }

    #[test]
    fn a_part_is_what_the_disk_writes_in_a_moment() {
        let second = Duration::from_secs(1);
        assert_eq!(part(16 << 20, second, 4 << 20), (16 << 20) / 5);
        assert_eq!(part(16 << 20, 60 * second, 4 << 20), MIN_BYTES);
        assert_eq!(part(16 << 20, Duration::ZERO, 4 << 20), 8 << 20);
        assert_eq!(part(16 << 20, Duration::ZERO, 30 << 20), MAX_BYTES);
        assert_eq!(part(0, second, 4 << 20), 4 << 20);
    }

    fn open() -> Arc<Open> {
        Arc::new(Open::new(Arc::new(File::open("/dev/null").unwrap()), false, 0).unwrap())
    }

    fn until(is_so: impl Fn() -> bool) {
        while !is_so() {
            std::thread::yield_now();
        }
    }

    /// What is on its way to the disk counts until it is there.
    #[test]
    fn writers_wait_for_a_disk_that_is_far_behind() {
        let unsynced = Unsynced::default();
        let state = || lock(&unsynced.0.state);
        let behind = |bytes| {
            state().bytes = bytes;
            state().is_far_behind()
        };
        assert!(!behind(2 * FIRST_BYTES), "without a thread, nothing would end the wait");
        state().running = true;
        assert_eq!([2 * FIRST_BYTES - 1, 2 * FIRST_BYTES].map(behind), [false, true]);
        assert!(unsynced.0.take().is_some());
        assert!(state().is_far_behind());
        std::thread::scope(|scope| {
            scope.spawn(|| unsynced.wait());
            state().leaving -= FIRST_BYTES;
            unsynced.0.less.notify_all();
        });
        assert!(!state().is_far_behind());
        assert!(unsynced.0.take().is_none() && !state().running);
    }

    /// This file cannot be synced, which its next sync is to report.
    #[test]
    fn a_write_back_that_fails_is_remembered() {
        let (open, unsynced) = (open(), Unsynced::default());
        unsynced.wrote(file(0), &open, 0..FIRST_BYTES);
        until(|| !lock(&unsynced.0.state).running);
        let state = lock(&unsynced.0.state);
        assert_eq!((state.bytes, state.leaving, state.files.len()), (0, 0, 0));
        let why = open.is_sound().unwrap_err();
        assert!(why.to_string().contains("Invalid argument"), "{why}");
    }

    /// What a sync writes need not be written back.
    #[test]
    fn a_file_that_is_being_synced_is_left_out() {
        let (open, unsynced) = (open(), Unsynced::default());
        let sync = open.syncing.read().unwrap();
        unsynced.wrote(file(0), &open, 0..FIRST_BYTES);
        until(|| !lock(&unsynced.0.state).running);
        open.is_sound().unwrap();
        drop(sync);
    }

    #[test]
    fn what_is_synced_does_not_count() {
        let (open, unsynced) = (open(), Unsynced::default());
        for set in 0..1000 {
            unsynced.wrote(file(set), &open, 0..FIRST_BYTES - 1);
            unsynced.forget(file(set));
            unsynced.wait();
        }
        assert!(!lock(&unsynced.0.state).running);
    }
}

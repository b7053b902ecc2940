//! What of a disk's files is in the page cache only. Short writes go there, and the system takes
//! them at the speed of memory until a good part of it is full. Then nobody notices that a disk is
//! slow, and a sync of all that takes longer than anybody waits. So a thread writes back what was
//! written, and writers wait when it is far behind, as they do with direct I/O.

use super::TargetFile;
use super::open::Open;
use crate::{lock, unpoisoned};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};

/// What a disk writes in this time is written back at once. Writers wait when there is twice as
/// much. No wait is much longer, so that a slow disk is not taken for one that hangs: that takes a
/// second at least.
const WRITE_BACK_TIME: Duration = Duration::from_millis(200);
/// How much that is before anything is known of the disk, and its bounds.
const FIRST_BYTES: u64 = 4 << 20;
const MIN_BYTES: u64 = 1 << 20;
const MAX_BYTES: u64 = 64 << 20;

/// What is unsynced.
#[derive(Debug, Default)]
pub(super) struct Unsynced(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Something was written back.
    less: Condvar,
}

#[derive(Debug)]
struct State {
    /// By file. Files that are no longer open do not stay so because of this.
    files: HashMap<TargetFile, (Weak<Open>, u64)>,
    bytes: u64,
    /// What is on its way to the disk.
    leaving: u64,
    /// How much is written back at once.
    part: u64,
    /// The thread runs.
    running: bool,
}

impl Default for State {
    fn default() -> Self {
        Self { files: HashMap::new(), bytes: 0, leaving: 0, part: FIRST_BYTES, running: false }
    }
}

impl Unsynced {
    /// Counts a write.
    pub fn wrote(&self, file: TargetFile, open: &Arc<Open>, bytes: u64) {
        let mut state = lock(&self.0.state);
        state.bytes += bytes;
        state.files.entry(file).or_insert_with(|| (Arc::downgrade(open), 0)).1 += bytes;
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
        if let Some((_, bytes)) = state.files.remove(&file) {
            state.bytes -= bytes;
        }
    }

    /// Waits until the disk is not far behind.
    pub fn wait(&self) {
        let is_far_behind = |state: &mut State| state.running && state.bytes + state.leaving >= 2 * state.part;
        drop(unpoisoned(self.0.less.wait_while(lock(&self.0.state), is_far_behind)));
    }
}

impl Shared {
    /// Writes files back while there is enough.
    fn write_back(&self) {
        loop {
            let (files, bytes) = {
                let mut state = lock(&self.state);
                if state.bytes < state.part {
                    state.running = false;
                    self.less.notify_all();
                    return;
                }
                state.leaving = std::mem::take(&mut state.bytes);
                (std::mem::take(&mut state.files), state.leaving)
            };
            let begun = Instant::now();
            for (open, bytes) in files.into_values() {
                open.upgrade().inspect(|open| open.write_back());
                lock(&self.state).leaving -= bytes;
                self.less.notify_all();
            }
            lock(&self.state).part = part(bytes, begun.elapsed());
        }
    }
}

/// How much to write back at once on a disk that wrote this many bytes in this time.
fn part(bytes: u64, took: Duration) -> u64 {
    let speed = bytes as f64 / took.as_secs_f64().max(1e-6);
    ((speed * WRITE_BACK_TIME.as_secs_f64()) as u64).clamp(MIN_BYTES, MAX_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::{Position, SetId};
    use std::fs::File;
    use std::sync::atomic::Ordering;

    fn file(set: u64) -> TargetFile {
        TargetFile::Chunk { set: SetId(set), position: Position(0) }
    }

    #[test]
    fn a_part_is_what_the_disk_writes_in_a_moment() {
        assert_eq!(part(16 << 20, Duration::from_secs(1)), (16 << 20) / 5);
        assert_eq!(part(16 << 20, Duration::from_secs(60)), MIN_BYTES);
        assert_eq!(part(16 << 20, Duration::ZERO), MAX_BYTES);
    }

    /// The disk is slow for as long as a lock is held. Then it refuses to sync, which a later sync
    /// reports.
    #[test]
    fn writers_wait_for_a_disk_that_is_far_behind() {
        let open = Arc::new(Open::new(Arc::new(File::open("/dev/null").unwrap()), false, 0).unwrap());
        let (unsynced, slow) = (Unsynced::default(), open.syncing.read().unwrap());
        unsynced.wrote(file(0), &open, 2 * FIRST_BYTES);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| unsynced.wait());
            while lock(&unsynced.0.state).leaving == 0 {
                std::thread::yield_now();
            }
            assert!(open.is_needed() && !waits.is_finished());
            drop(slow);
        });
        while lock(&unsynced.0.state).running {
            std::thread::yield_now();
        }
        let state = lock(&unsynced.0.state);
        assert_eq!((state.bytes, state.leaving, state.files.len(), state.part), (0, 0, 0, MAX_BYTES));
        assert!(open.poisoned.load(Ordering::SeqCst));
    }

    #[test]
    fn what_is_synced_does_not_count() {
        let open = Arc::new(Open::new(Arc::new(File::open("/dev/null").unwrap()), false, 0).unwrap());
        let unsynced = Unsynced::default();
        for set in 0..1000 {
            unsynced.wrote(file(set), &open, FIRST_BYTES - 1);
            unsynced.forget(file(set));
            unsynced.wait();
        }
        assert!(!lock(&unsynced.0.state).running);
    }
}

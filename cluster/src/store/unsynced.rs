//! What a client remembers of the files of a target that it wrote and did not sync: whether the
//! store's machine restarted since, and may have lost the data.

use super::protocol::method;
use std::collections::HashMap;
use std::io;
use volume::target::TargetFile;

/// Maximum number of files of a target that are remembered. Beyond that, any is forgotten for each
/// new one.
const MAX_FILES: usize = 1 << 16;

/// The files of a target with data that is not synced.
#[derive(Default)]
pub(super) struct UnsyncedFiles {
    files: HashMap<TargetFile, Unsynced>,
    /// How many writes were answered.
    writes: u64,
}

/// Data of a file that is not synced.
#[derive(Clone, Copy)]
struct Unsynced {
    /// The store's boot number at the time of the last write.
    boot: u64,
    /// The machine restarted since the first of these writes.
    lost: bool,
    /// The numbers of the first and the last of these writes.
    first: u64,
    last: u64,
}

/// A moment: the number of writes that were answered before it. A sync that is sent then makes
/// these durable, and perhaps no later one.
#[derive(Clone, Copy)]
pub(super) struct Moment(u64);

impl UnsyncedFiles {
    /// Now.
    pub fn moment(&self) -> Moment {
        Moment(self.writes)
    }

    /// Notes that an operation was done which was sent at a moment, when the store's machine had
    /// this boot number.
    ///
    /// # Errors
    /// When the machine restarted after a write, and data may be lost: the next write and the next
    /// sync tell that, although they were done. Of a chunk, every sync does until the chunk is
    /// removed or replaced.
    pub fn note(&mut self, method: u16, file: TargetFile, boot: u64, sent: Moment) -> io::Result<()> {
        let before = self.files.get(&file).copied();
        let is_told = match method {
            method::WRITE => {
                let restarted = before.is_some_and(|before| before.boot != boot);
                self.writes += 1;
                let lost = restarted || before.is_some_and(|before| before.lost);
                let first = before.map_or(self.writes, |before| before.first);
                self.insert(file, Unsynced { boot, lost, first, last: self.writes });
                restarted
            }
            method::REMOVE => {
                self.files.remove(&file);
                false
            }
            _ => before.is_some_and(|before| self.synced(method, file, before, boot, sent)),
        };
        if is_told { Err(started_again()) } else { Ok(()) }
    }

    /// Notes that what was written to a file before a moment is durable. Returns whether some of it
    /// may be lost.
    fn synced(&mut self, method: u16, file: TargetFile, before: Unsynced, boot: u64, sent: Moment) -> bool {
        let lost = before.lost || before.first <= sent.0 && before.boot != boot;
        // The caller may have given up waiting for a sync before its answer. So the next sync of a
        // chunk must fail, too.
        let stays = lost && method == method::SYNC && matches!(file, TargetFile::Chunk { .. });
        // A write that was answered meanwhile may have come to the store after the sync.
        if before.last > sent.0 {
            let first = before.first.max(sent.0 + 1);
            self.insert(file, Unsynced { lost: stays, first, ..before });
        } else if stays {
            self.insert(file, Unsynced { boot, lost, ..before });
        } else {
            self.files.remove(&file);
        }
        lost
    }

    fn insert(&mut self, file: TargetFile, unsynced: Unsynced) {
        if self.files.len() >= MAX_FILES && !self.files.contains_key(&file) {
            let any = self.files.iter().find(|(_, other)| !other.lost).map(|(file, _)| *file);
            if let Some(any) = any.or_else(|| self.files.keys().next().copied()) {
                self.files.remove(&any);
            }
        }
        self.files.insert(file, unsynced);
    }

    /// The file has another content, which is durable, or it is gone.
    pub fn forget(&mut self, file: TargetFile) {
        self.files.remove(&file);
    }

    /// The boot number of the store's machine at the last write to a file. None if it is not known.
    ///
    /// # Errors
    /// When the machine restarted since an earlier write.
    pub fn boot_of(&self, file: TargetFile) -> io::Result<Option<u64>> {
        match self.files.get(&file) {
            Some(Unsynced { lost: true, .. }) => Err(started_again()),
            Some(&Unsynced { boot, .. }) => Ok((boot > 0).then_some(boot)),
            None => Ok(None),
        }
    }
}

fn started_again() -> io::Error {
    io::Error::other("its machine was started again: what was not synced may be lost")
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::{Position, SetId};

    const CHUNK: TargetFile = TargetFile::Chunk { set: SetId(1), position: Position(0) };

    impl UnsyncedFiles {
        /// An operation that was sent and answered with nothing between.
        fn asks(&mut self, method: u16, file: TargetFile, boot: u64) -> bool {
            self.note(method, file, boot, self.moment()).is_ok()
        }
    }

    /// The answers of Masters may come in any order, and after a write of this process.
    #[test]
    fn a_restart_after_a_write_of_another_process_is_told_too() {
        for boots in [[1, 2], [2, 1]] {
            let mut files = UnsyncedFiles::default();
            assert_eq!(files.boot_of(CHUNK).unwrap(), None);
            assert!(files.asks(method::WRITE, CHUNK, 1));
            assert_eq!(files.boot_of(CHUNK).unwrap(), Some(1));
            assert!(files.asks(method::SYNC, CHUNK, 1));
            assert!(files.asks(method::SYNC, CHUNK, 2), "nothing was written since");
            assert!(files.asks(method::WRITE, CHUNK, boots[0]) && !files.asks(method::WRITE, CHUNK, boots[1]));
            files.boot_of(CHUNK).unwrap_err();
            assert!(!files.asks(method::SYNC, CHUNK, 1) && !files.asks(method::SYNC, CHUNK, 2));
        }
        // Of a store that tells no number.
        let mut files = UnsyncedFiles::default();
        assert!(files.asks(method::WRITE, CHUNK, 0));
        assert_eq!(files.boot_of(CHUNK).unwrap(), None);
    }

    /// Nobody may have waited for the sync that noticed the restart.
    #[test]
    fn a_restart_between_write_and_sync_is_told_until_a_chunk_is_another_one() {
        let mut files = UnsyncedFiles::default();
        let mut asks = |method, file, boot: u64| files.asks(method, file, boot);
        assert!(asks(method::WRITE, CHUNK, 1) && asks(method::SYNC, CHUNK, 1));
        assert!(asks(method::SYNC, CHUNK, 2), "there was nothing to lose");
        assert!(asks(method::WRITE, CHUNK, 2) && !asks(method::SYNC, CHUNK, 3) && !asks(method::SYNC, CHUNK, 3));
        assert!(asks(method::REMOVE, CHUNK, 3) && asks(method::WRITE, CHUNK, 3) && asks(method::SYNC, CHUNK, 3));
        // The write that notices it, and the sync after it.
        for file in [CHUNK, TargetFile::Label] {
            assert!(asks(method::WRITE, file, 3) && !asks(method::WRITE, file, 4) && asks(method::WRITE, file, 4));
            assert!(!asks(method::SYNC, file, 4));
        }
        // A file that is not a chunk is told of once.
        assert!(asks(method::SYNC, TargetFile::Label, 4) && !asks(method::SYNC, CHUNK, 4));
    }

    /// The write may have come to the store behind the sync, whose answer comes later.
    #[test]
    fn a_write_while_a_sync_is_on_its_way_is_not_synced_by_it() {
        for method in [method::SYNC, method::WRITE_DURABLY] {
            let mut files = UnsyncedFiles::default();
            assert!(files.asks(method::WRITE, CHUNK, 1));
            let sent = files.moment();
            assert!(files.asks(method::WRITE, CHUNK, 1));
            files.note(method, CHUNK, 1, sent).unwrap();
            assert!(!files.asks(method::SYNC, CHUNK, 2), "the second write may be lost");
            // The sync came to the store after the restart.
            let mut files = UnsyncedFiles::default();
            assert!(files.asks(method::WRITE, CHUNK, 1));
            let sent = files.moment();
            assert!(files.asks(method::WRITE, CHUNK, 1));
            files.note(method, CHUNK, 2, sent).unwrap_err();
            assert!(!files.asks(method::SYNC, CHUNK, 2));
            // Without a restart, the next sync ends it.
            let mut files = UnsyncedFiles::default();
            let sent = files.moment();
            assert!(files.asks(method::WRITE, CHUNK, 1));
            files.note(method, CHUNK, 1, sent).unwrap();
            assert!(files.asks(method::SYNC, CHUNK, 1) && files.asks(method::SYNC, CHUNK, 2));
        }
    }

    #[test]
    fn many_files_are_remembered_in_bounded_memory() {
        let mut files = UnsyncedFiles::default();
        let chunk = |set| TargetFile::Chunk { set: SetId(set), position: Position(0) };
        assert!(files.asks(method::WRITE, CHUNK, 1) && !files.asks(method::WRITE, CHUNK, 2));
        for set in 2..MAX_FILES as u64 + 100 {
            assert!(files.asks(method::WRITE, chunk(set), 2));
        }
        assert_eq!(files.files.len(), MAX_FILES);
        assert!(!files.asks(method::SYNC, CHUNK, 2), "a loss is not forgotten");
    }
}

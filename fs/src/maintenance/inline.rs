//! Data that was synced into the metadata, and moves into stripes.

use crate::{Error, FileSystem, Result};
use plan::inline::{Credit, Moment, PIECE_BYTES, Pace, pace};
use plan::{ExtentPlace, Ino};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use volume::lock;

/// Files with data in the metadata that belongs in stripes.
#[derive(Debug, Default)]
pub(crate) struct Inline(Mutex<All>);

#[derive(Debug, Default)]
struct All {
    files: BTreeMap<Ino, Waiting>,
    named_bytes: u64,
    unnamed_bytes: u64,
    /// When somebody last waited for a sync.
    synced: Option<Instant>,
    credit: Credit,
    /// When the credit was last counted.
    earned: Option<Instant>,
}

/// What a file has in the metadata.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    since: Instant,
    bytes: u64,
    /// What came of it since a move began.
    fresh: u64,
    /// Where the move goes on.
    at: u64,
    /// Without a name, it goes when nobody has it open any more.
    is_named: bool,
}

impl Waiting {
    fn new() -> Self {
        Self { since: Instant::now(), bytes: 0, fresh: 0, at: 0, is_named: true }
    }
}

impl All {
    fn sum(&mut self, is_named: bool) -> &mut u64 {
        if is_named { &mut self.named_bytes } else { &mut self.unnamed_bytes }
    }

    fn take(&mut self, ino: Ino) -> Option<Waiting> {
        let waiting = self.files.remove(&ino)?;
        *self.sum(waiting.is_named) -= waiting.bytes;
        Some(waiting)
    }

    /// Puts a file back, beside what came of it meanwhile.
    fn put(&mut self, ino: Ino, mut waiting: Waiting) {
        if let Some(meanwhile) = self.take(ino) {
            waiting.bytes += meanwhile.bytes;
            waiting.fresh += meanwhile.bytes;
        }
        *self.sum(waiting.is_named) += waiting.bytes;
        self.files.insert(ino, waiting);
    }

    fn moment(&self) -> Moment {
        Moment {
            named_bytes: self.named_bytes,
            unnamed_bytes: self.unnamed_bytes,
            quiet: self.synced.map_or(Duration::MAX, |synced| synced.elapsed()),
            credit: self.credit,
        }
    }
}

impl Inline {
    /// A file got this many bytes that are in the metadata.
    pub fn add(&self, ino: Ino, bytes: u64) {
        let mut all = lock(&self.0);
        let old = all.take(ino).unwrap_or_else(Waiting::new);
        all.put(ino, Waiting { bytes: old.bytes + bytes, fresh: old.fresh + bytes, ..old });
    }

    /// A file is gone.
    pub fn forget(&self, ino: Ino) {
        lock(&self.0).take(ino);
    }

    /// Somebody waits for a sync.
    pub fn note_sync(&self) {
        lock(&self.0).synced = Some(Instant::now());
    }

    fn oldest_first(&self) -> Vec<Ino> {
        let mut all = lock(&self.0);
        let now = Instant::now();
        let went_by = now - all.earned.replace(now).unwrap_or(now);
        all.credit.earn(went_by);
        let mut files: Vec<_> = all.files.iter().map(|(&ino, waiting)| (waiting.since, ino)).collect();
        files.sort_unstable();
        files.into_iter().map(|(_, ino)| ino).collect()
    }

    /// Takes a file whose turn it is.
    fn next(&self, ino: Ino) -> Option<(Pace, Waiting)> {
        let mut all = lock(&self.0);
        let waiting = all.files.get(&ino)?;
        let pace = pace(&all.moment(), waiting.is_named, waiting.since.elapsed());
        if pace == Pace::Wait { None } else { all.take(ino).map(|waiting| (pace, waiting)) }
    }

    fn put(&self, ino: Ino, waiting: Waiting) {
        lock(&self.0).put(ino, waiting);
    }
}

/// What became of a file.
enum Moved {
    /// The offset to go on at, and the bytes that were moved.
    Part(u64, u64),
    /// Nothing is left, or the little that stays.
    All,
    /// Nothing was done: it has lost its name.
    Unnamed,
}

impl FileSystem {
    /// Moves data that was synced into the metadata into stripes, as far as it is time for that.
    pub(crate) fn move_inline(&self) -> Result<()> {
        for ino in self.inline.oldest_first() {
            // A handover waits for what is under way. As after a crash, the rest stays in the
            // metadata until its files are written again.
            while !self.is_closed()
                && let Some((pace, waiting)) = self.inline.next(ino)
            {
                let begun = Instant::now();
                let moved = self.move_inline_of(ino, &waiting, pace);
                if pace == Pace::Slowly {
                    lock(&self.inline.0).credit.spend(begun.elapsed());
                }
                match moved {
                    Ok(Moved::Part(at, bytes)) => {
                        let fresh = if waiting.at == 0 { 0 } else { waiting.fresh };
                        self.inline
                            .put(ino, Waiting { at, bytes: waiting.bytes.saturating_sub(bytes), fresh, ..waiting });
                    }
                    // What came since the move began may be before the place where it came.
                    Ok(Moved::All) if waiting.at > 0 && waiting.fresh > 0 => {
                        self.inline.put(ino, Waiting { bytes: waiting.fresh, ..Waiting::new() });
                        break;
                    }
                    Ok(Moved::All) | Err(Error::Meta(meta::Error::NotFound) | Error::Stale) => break,
                    Ok(Moved::Unnamed) => self.inline.put(ino, Waiting { is_named: false, ..waiting }),
                    Err(error) => {
                        self.inline.put(ino, waiting);
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }

    fn move_inline_of(&self, ino: Ino, waiting: &Waiting, pace: Pace) -> Result<Moved> {
        let meta = &self.engine()?.meta;
        // A small amount of data stays in the inode for good.
        if !meta.has_many_extents(ino)? {
            return Ok(Moved::All);
        }
        if waiting.is_named && meta.attributes(ino)?.links == 0 {
            return Ok(Moved::Unnamed);
        }
        let most = if pace == Pace::Slowly { PIECE_BYTES } else { self.store.stripe_bytes() as u64 };
        let inline = |extent: &plan::Extent| matches!(extent.place, ExtentPlace::Bytes(_));
        let (rest, moved) = self.restripe_some(ino, waiting.at, most, inline)?;
        Ok(rest.map_or(Moved::All, |at| Moved::Part(at, moved)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ROOT;
    use crate::testing::{Lab, make};

    const RECORD: usize = 30_000;

    fn append(fs: &FileSystem, ino: Ino, records: usize) {
        let size = fs.attributes(ino).unwrap().size;
        for number in 0..records {
            fs.write(ino, size + (number * RECORD) as u64, &[number as u8; RECORD]).unwrap();
            fs.sync(ino).unwrap();
        }
    }

    /// From now on no time goes by: nothing gets old, and somebody syncs.
    fn stop_clock(fs: &FileSystem, credit: Credit) {
        let never = Instant::now() + Duration::from_secs(1 << 20);
        let mut all = lock(&fs.inline.0);
        all.files.values_mut().for_each(|waiting| waiting.since = never);
        (all.synced, all.earned, all.credit) = (Some(never), Some(never), credit);
    }

    fn credit() -> Credit {
        let mut credit = Credit::default();
        credit.earn(Duration::from_nanos(3));
        credit
    }

    fn inline_bytes(fs: &FileSystem) -> u64 {
        let found = fs.check().unwrap();
        assert_eq!(found.problems, [""; 0]);
        found.inline_bytes
    }

    /// The thread of the volume moves data, too, and must not do so in these tests.
    fn quiet_lab() -> std::sync::Arc<FileSystem> {
        let fs = Lab::new("rs:2+1", 3).open();
        fs.counts.breaks(Some("moving data out of the metadata"));
        fs
    }

    #[test]
    fn syncs_wait_for_a_piece_at_most() {
        let fs = quiet_lab();
        let ino = make(&fs, "log");
        append(&fs, ino, 200);
        let before = inline_bytes(&fs);
        assert_eq!(before, 200 * RECORD as u64);
        stop_clock(&fs, Credit::default());
        fs.move_inline().unwrap();
        assert_eq!(inline_bytes(&fs), before, "there is no time for it");
        for pieces in 1..=2 {
            stop_clock(&fs, credit());
            fs.move_inline().unwrap();
            let moved = before - inline_bytes(&fs);
            let most = pieces * (PIECE_BYTES + RECORD as u64);
            assert!((pieces * PIECE_BYTES..=most).contains(&moved), "{moved} after {pieces}");
        }
        // Nobody syncs any more, and there is more than enough.
        lock(&fs.inline.0).synced = None;
        fs.move_inline().unwrap();
        let left = inline_bytes(&fs);
        assert!(left <= plan::inline::ENOUGH_BYTES, "{left}");
        // What is left is old.
        lock(&fs.inline.0).files.values_mut().for_each(|waiting| waiting.since -= Duration::from_secs(2 << 20));
        fs.move_inline().unwrap();
        assert_eq!(inline_bytes(&fs), 0);
        let all = lock(&fs.inline.0);
        assert_eq!((all.files.len(), all.named_bytes, all.unnamed_bytes), (0, 0, 0));
        drop(all);
        for number in [0, 77, 199] {
            let mut bytes = [0xff; RECORD];
            fs.read(ino, (number * RECORD) as u64, &mut bytes).unwrap();
            assert!(bytes == [number as u8; RECORD], "record {number}");
        }
        fs.abandon();
    }

    /// However busy the syncs are.
    #[test]
    fn there_is_a_most_that_the_metadata_has() {
        let fs = quiet_lab();
        let ino = make(&fs, "log");
        append(&fs, ino, plan::inline::MOST_BYTES as usize / RECORD + 40);
        stop_clock(&fs, Credit::default());
        fs.move_inline().unwrap();
        let left = inline_bytes(&fs);
        assert!(left <= plan::inline::MOST_BYTES && left > plan::inline::ENOUGH_BYTES, "{left}");
        fs.abandon();
    }

    /// A removed file that a program has open is dropped when it is closed. A move of its data, or
    /// of others' because of it, is for nothing.
    #[test]
    fn removed_files_hurry_nobody() {
        let fs = quiet_lab();
        let (removed, other) = (make(&fs, "removed"), make(&fs, "other"));
        fs.open(removed, true).unwrap();
        append(&fs, removed, 160);
        append(&fs, other, 30);
        fs.unlink(ROOT, b"removed").unwrap();
        let before = inline_bytes(&fs);
        assert!(before > plan::inline::ENOUGH_BYTES, "{before}");
        for quiet in [false, true] {
            stop_clock(&fs, credit());
            if quiet {
                lock(&fs.inline.0).synced = None;
            }
            fs.move_inline().unwrap();
            assert_eq!(inline_bytes(&fs), before);
        }
        fs.close(removed);
        fs.collect(true).unwrap();
        assert_eq!(lock(&fs.inline.0).unnamed_bytes, 0);
        fs.abandon();
    }
}

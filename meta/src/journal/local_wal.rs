//! The local WAL: committed transactions that are not on any target yet, in files of this machine
//! that are not synced. A killed process loses nothing that it acknowledged, and a commit waits
//! only for a copy to the page cache.
//!
//! Each opening has two files, `EPOCH.0` and `EPOCH.1`: a head and records, as in a segment. One
//! receives the records of the journal thread's next write to the targets; the other holds those of
//! the write in progress. Only records that directly follow what the targets have are used, and
//! only if no other machine opened the volume in between: then the epoch before has no files here.
//! A file of an earlier version has no head.

use super::frame::{Epoch, EpochId, Frame, HEAD_BYTES, Origin, RecordKind, VolumeId};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The files of this opening.
pub(super) struct LocalWal {
    files: [File; 2],
    current: usize,
    at: u64,
}

fn path(directory: &Path, epoch: u64, which: usize) -> PathBuf {
    directory.join(format!("{epoch}.{which}"))
}

/// Creates the directory. Other users must not read names and attributes, whatever the umask, not
/// even in the files of an earlier version, which did not set their modes.
fn make(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    fs::set_permissions(directory, Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(directory)? {
        fs::set_permissions(entry?.path(), Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// The epochs that have files.
fn epochs(directory: &Path) -> io::Result<BTreeSet<u64>> {
    let mut epochs = BTreeSet::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let epoch: Option<u64> =
            name.to_str().and_then(|name| name.split_once('.')).and_then(|(epoch, _)| epoch.parse().ok());
        epochs.extend(epoch);
    }
    Ok(epochs)
}

impl LocalWal {
    /// Creates the files of an epoch.
    /// `before` is the epoch before this one.
    pub fn begin(directory: &Path, volume: &VolumeId, epoch: Epoch, before: EpochId) -> io::Result<Self> {
        make(directory)?;
        let (mut head, origin) = (Vec::new(), Origin { parent: before, before });
        Frame::new(RecordKind::Segment, epoch.first.0, epoch, epoch.first.previous()).encode_head(
            volume,
            &origin,
            &[],
            &mut head,
        );
        let file = |which| {
            let path = path(directory, epoch.number, which);
            let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
            file.write_all_at(&head, 0).map(|()| file)
        };
        Ok(Self { files: [file(0)?, file(1)?], current: 0, at: HEAD_BYTES as u64 })
    }

    /// Records a committed transaction.
    pub fn add(&mut self, record: &[u8]) -> io::Result<()> {
        self.files[self.current].write_all_at(record, self.at)?;
        self.at += record.len() as u64;
        Ok(())
    }

    /// Switches files: the journal thread takes what was added, and has written what it took
    /// before.
    pub fn turn(&mut self) {
        (self.current, self.at) = (1 - self.current, HEAD_BYTES as u64);
    }

    /// Makes the files durable on this machine.
    pub fn sync(&self) -> io::Result<()> {
        self.files.iter().try_for_each(File::sync_all)
    }

    /// Removes the files of earlier epochs.
    pub fn forget_before(directory: &Path, epoch: Epoch) -> io::Result<()> {
        for old in epochs(directory)?.range(..epoch.number) {
            (0..2).for_each(|which| _ = fs::remove_file(path(directory, *old, which)));
        }
        Ok(())
    }
}

/// The payloads of the records that directly follow what the targets have, in order. They are on no
/// target, and the new epoch begins with them. `before` is the highest epoch that the targets have
/// seen before this one.
pub(super) fn left(directory: &Path, volume: &VolumeId, now: Epoch, before: EpochId) -> io::Result<Vec<Vec<u8>>> {
    make(directory)?;
    let epochs = epochs(directory)?;
    let mut records: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut next = Some(before);
    while let Some(epoch) = next.take().filter(|epoch| epochs.contains(&epoch.number)) {
        for which in 0..2 {
            let bytes = fs::read(path(directory, epoch.number, which)).unwrap_or_default();
            let head = Frame::proven_head(&bytes).filter(|head| head.volume == *volume);
            // An epoch of this number that is another one was opened elsewhere.
            if head.as_ref().map_or(0, |head| head.epoch.id) != epoch.id {
                continue;
            }
            let number = epoch.number.saturating_sub(1);
            next = Some(head.as_ref().map_or(EpochId { number, id: 0 }, |head| head.origin.before));
            let mut rest = &bytes[head.map_or(0, |head| head.bytes)..];
            while let Some((frame, payload)) = Frame::proven(volume, epoch.id, rest) {
                if frame.kind == RecordKind::Record && frame.epoch.number == epoch.number {
                    // The record of the later epoch counts.
                    records.entry(frame.number).or_insert_with(|| payload.to_vec());
                }
                rest = rest.get(frame.bytes()..).unwrap_or_default();
            }
        }
        next = next.filter(|before| (1..epoch.number).contains(&before.number));
    }
    Ok((now.first.0..).map_while(|number| records.remove(&number)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::TxId;

    const VOLUME: VolumeId = *b"0123456789abcdef";

    fn epoch(number: u64, first: u64) -> Epoch {
        Epoch { number, first: TxId(first), id: 100 + u128::from(number) }
    }

    fn record(number_of: u64, number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let (frame, epoch) = (Frame::new(RecordKind::Record, number, epoch(number_of, 1), TxId(0)), number_of);
        frame.encode(&VOLUME, &mut bytes, |to| to.extend([epoch as u8, number as u8]));
        bytes
    }

    #[test]
    fn what_follows_on_the_targets_comes_back() {
        let place = std::env::temp_dir().join(format!("weft-wal-{}", std::process::id()));
        // Epochs are named with a gap: numbers are lost when an opening fails.
        let after =
            |before: u64, first| left(&place, &VOLUME, epoch(before + 1, first), epoch(before, 1).name()).unwrap();
        let left = |number: u64, first| after(number - 1, first);
        assert!(left(3, 1).is_empty());
        let begin =
            |number, before, first| LocalWal::begin(&place, &VOLUME, epoch(number, first), epoch(before, 1).name());
        let mut wal = begin(3, 1, 1).unwrap();
        for number in 1..10 {
            wal.add(&record(3, number)).unwrap();
            if number % 4 == 0 {
                wal.turn();
            }
        }
        // Record 9 overwrites part of records 1 to 4.
        let expected = |range: std::ops::Range<u8>| range.map(|number| vec![3, number]).collect::<Vec<_>>();
        assert_eq!(left(4, 5), expected(5..10));
        assert_eq!(left(4, 8), expected(8..10));
        assert_eq!(left(4, 10), Vec::<Vec<u8>>::new());
        // Another machine opened the volume, or an opening with the same number took place
        // elsewhere.
        assert!(left(5, 8).is_empty());
        let other = EpochId { number: 3, id: 1 };
        assert!(super::left(&place, &VOLUME, epoch(4, 8), other).unwrap().is_empty());
        // Killed again before everything was committed again.
        let mut wal = begin(4, 3, 8).unwrap();
        wal.add(&record(4, 8)).unwrap();
        assert_eq!(left(5, 8), [vec![4, 8], vec![3, 9]]);
        assert_eq!(left(5, 9), [vec![3, 9]]);
        LocalWal::forget_before(&place, epoch(4, 8)).unwrap();
        assert_eq!(left(5, 8), [vec![4, 8]]);
        fs::remove_dir_all(&place).unwrap();
    }
}

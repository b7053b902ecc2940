//! Writes a snapshot to every mirror, and then removes the files that it makes superfluous.

use super::super::files::same;
use super::super::frame::{Epoch, Frame, RecordKind, VolumeId, put_pair};
use super::super::mirrors::worker::{Job, Worker, all};
use super::super::options::{MirrorTarget, closed, is_full, unavailable};
use super::super::shared::Shared;
use super::purge::purge;
use crate::kv::{KvError, Order, View};
use plan::{TargetId, TxId};
use std::io::{self, IoSlice};
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};
use volume::target::{Durable, Target, TargetFile};

const BLOCK_BYTES: usize = 1 << 20;
/// Sync in pieces of this many bytes, so that a large snapshot does not hold up the journal's syncs
/// at its end.
const SYNC_BYTES: u64 = 16 << 20;
/// How long old files wait for a slow mirror. After that, the next snapshot removes them.
const SLOW_MIRROR_TIMEOUT: Duration = Duration::from_millis(500);

struct Snapshot<'a> {
    shared: &'a Shared,
    mirrors: Vec<(MirrorTarget, Worker)>,
    /// The mirrors that had no space for it.
    full: Vec<(MirrorTarget, io::Error, Weak<()>)>,
    file: TargetFile,
    at: u64,
    synced: u64,
}

/// The purpose of a snapshot, recorded before the state that it shows.
pub(in crate::journal) struct Aim {
    mirrors: Vec<MirrorTarget>,
    generation: u64,
    written: u64,
    /// The last committed transaction. A snapshot with at least that makes a mirror complete whose
    /// journal began just now.
    pub committed: TxId,
}

impl Aim {
    pub fn now(shared: &Shared) -> Self {
        let files = shared.files();
        let gets = |place: &&MirrorTarget| !files.copying.contains(&place.0);
        let mirrors: Vec<MirrorTarget> = files.mirrors.iter().filter(gets).cloned().collect();
        let (generation, written) = (files.generation, files.written);
        Self { mirrors, generation, written, committed: shared.log().last }
    }
}

/// Writes the view, which is the state after transaction `last`, to all mirrors that do not have
/// it.
///
/// # Errors
/// Returns an error when no mirror accepts it, or the index cannot be read.
pub(in crate::journal) fn write(shared: &Shared, aim: &Aim, view: &dyn View, last: TxId) -> Result<(), KvError> {
    let (places, had) = {
        let mut files = shared.files();
        let has = |place: &MirrorTarget| files.complete.get(&place.0) == Some(&last);
        // One that was dropped and joined again since the aim was taken gets a copy now.
        let current = |place: &&MirrorTarget| {
            files.mirrors.iter().any(|other| same(other, place)) && !files.copying.contains(&place.0)
        };
        let (had, places): (Vec<_>, Vec<_>) = aim.mirrors.iter().filter(current).cloned().partition(has);
        // Not before: the snapshot may wait until others have become mirrors.
        files.snapshotting = places.iter().map(|place: &MirrorTarget| place.0).collect();
        (places, had.len())
    };
    let file = TargetFile::Snapshot { last };
    let mut snapshot = Snapshot { shared, mirrors: Vec::new(), full: Vec::new(), file, at: 0, synced: 0 };
    for place in &places {
        match Worker::start(place.1.clone()) {
            Ok(worker) => snapshot.mirrors.push((place.clone(), worker)),
            Err(error) => return Err(unavailable(place.0, &error)),
        }
    }
    let bytes = if snapshot.mirrors.is_empty() {
        0
    } else {
        snapshot.stream(view, last).inspect_err(|_| snapshot.discard())?
    };
    if let Some((place, why, _)) = snapshot.full.first() {
        // All mirrors have everything, and still take what is committed: m+1 must be left when full
        // ones are given up. Without enough others, all go on with the snapshot that they have.
        let enough = had + snapshot.mirrors.len();
        if enough < shared.need() && shared.files().spares().next().is_none() {
            let error = unavailable(place.0, why);
            snapshot.discard();
            return Err(error);
        }
        let spared = (enough + snapshot.full.len()).saturating_sub(shared.need());
        snapshot.full.truncate(spared);
        shared.files().suspects.append(&mut snapshot.full);
        shared.ask();
    }
    // A slow mirror may still write to an older segment.
    let begun = Instant::now();
    while shared.least.load(Ordering::Relaxed) < last.0
        && begun.elapsed() < SLOW_MIRROR_TIMEOUT
        && !shared.is_stopping()
    {
        shared.kick();
        thread::sleep(Duration::from_millis(2));
    }
    let keep = {
        let mut files = shared.files();
        let written = |place: &&MirrorTarget| snapshot.mirrors.iter().any(|(other, _)| same(other, place));
        // A mirror that was dropped meanwhile, or replaced under its id, does not count.
        let whole: Vec<_> = files.mirrors.iter().filter(written).map(|&(id, _)| (id, last)).collect();
        files.complete.extend(whole);
        files.snapshot = last;
        if bytes > 0 {
            files.snapshot_bytes = bytes;
        }
        files.written_at_snapshot = aim.written;
        let all = had + snapshot.mirrors.len() == files.mirrors.len() && snapshot.mirrors.len() == places.len();
        let behind = shared.least.load(Ordering::Relaxed) < last.0;
        // Former mirrors may have what the others lack until enough of these have it.
        let few = had + snapshot.mirrors.len() < shared.need();
        if !all || few || behind || files.generation != aim.generation {
            return Ok(());
        }
        let keep = files.segments.iter().copied().rfind(|&first| first <= last.next()).unwrap_or_default();
        files.segments.retain(|&first| first >= keep);
        files.purged = last;
        keep
    };
    let places: Vec<MirrorTarget> = {
        let files = shared.files();
        // A target that failed only because it was full can free what it no longer needs.
        let answers =
            |place: &&MirrorTarget| !files.failed.iter().any(|failed| same(&failed.place, place) && !failed.full);
        files.places.iter().filter(answers).cloned().collect()
    };
    purge(shared, &places, move |file| match file {
        TargetFile::Journal { first } => first < keep,
        TargetFile::Snapshot { last: other } => other < last,
        _ => false,
    });
    Ok(())
}

impl Snapshot<'_> {
    fn stream(&mut self, view: &dyn View, last: TxId) -> Result<u64, KvError> {
        let (volume, epoch) = (self.shared.volume, self.shared.epoch);
        let mut bytes = Vec::new();
        let whole: Vec<TargetId> = self.shared.files().whole.iter().map(|(id, _)| *id).collect();
        Frame::new(RecordKind::Snapshot, last.0, epoch, last).encode_head(
            &volume,
            &self.shared.origin,
            &whole,
            &mut bytes,
        );
        let (mut block, mut blocks, mut pairs, mut sum) = (Vec::new(), 0, 0u64, 0);
        let file = self.file;
        self.each(&move |target: &dyn Target| target.remove(file))?;
        view.visit(Bound::Unbounded, Bound::Unbounded, Order::Ascending, &mut |key, value| {
            put_pair(&mut block, key, value);
            pairs += 1;
            sum += (key.len() + value.len()) as u64;
            if block.len() >= BLOCK_BYTES {
                self.block(&volume, epoch, last, &mut bytes, &mut block, &mut blocks)?;
            }
            Ok(true)
        })?;
        self.block(&volume, epoch, last, &mut bytes, &mut block, &mut blocks)?;
        self.each(&move |target: &dyn Target| target.sync(file).map(drop))?;
        Frame::new(RecordKind::End, blocks, epoch, last).encode(&volume, &mut bytes, |to| {
            to.extend_from_slice(&pairs.to_le_bytes());
            to.extend_from_slice(&sum.to_le_bytes());
        });
        self.put(&mut bytes)?;
        self.each(&move |target: &dyn Target| target.sync(file).map(drop))?;
        Ok(self.at)
    }

    fn block(
        &mut self,
        volume: &VolumeId,
        epoch: Epoch,
        last: TxId,
        bytes: &mut Vec<u8>,
        pairs: &mut Vec<u8>,
        number: &mut u64,
    ) -> Result<(), KvError> {
        if !pairs.is_empty() {
            Frame::new(RecordKind::Block, *number, epoch, last).encode(volume, bytes, |to| to.append(pairs));
            *number += 1;
        }
        self.put(bytes)?;
        if self.at - self.synced >= SYNC_BYTES {
            self.synced = self.at;
            let file = self.file;
            self.each(&move |target: &dyn Target| target.sync(file).map(drop))?;
        }
        Ok(())
    }

    fn put(&mut self, bytes: &mut Vec<u8>) -> Result<(), KvError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let (file, at, piece) = (self.file, self.at, Arc::new(std::mem::take(bytes)));
        self.at += piece.len() as u64;
        self.shared.files().underway = self.at;
        self.jobs(|_| {
            let piece = piece.clone();
            Box::new(move |target| target.write(file, at, &[IoSlice::new(&piece)], Durable::Later).map(drop))
        })
    }

    fn each(&mut self, job: &(impl Fn(&dyn Target) -> io::Result<()> + Clone + Send + 'static)) -> Result<(), KvError> {
        self.jobs(|_| Box::new(job.clone()))
    }

    /// Runs a job on all remaining mirrors, and drops those on which it fails.
    fn jobs(&mut self, job: impl FnMut(usize) -> Job) -> Result<(), KvError> {
        if self.shared.tasks().stop {
            return Err(closed());
        }
        let results = all(self.mirrors.iter().map(|(_, worker)| worker), job, self.shared.limits.deadline);
        let mut failed = None;
        for (number, result) in results.into_iter().enumerate().rev() {
            if let Err(error) = result {
                let (place, worker) = self.mirrors.remove(number);
                failed = Some(unavailable(place.0, &error));
                if is_full(&error) {
                    // Half a snapshot is useless, and its space is needed.
                    remove(self.shared, &worker, self.file);
                    self.full.push((place, error, worker.running()));
                } else {
                    self.shared.files().suspects.push((place, error, worker.running()));
                    self.shared.ask();
                }
            }
        }
        match failed {
            Some(error) if self.mirrors.is_empty() => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes what was written of an abandoned snapshot.
    fn discard(&self) {
        self.mirrors.iter().for_each(|(_, worker)| remove(self.shared, worker, self.file));
    }
}

/// Removes a file if the target allows it. What remains is found when the volume is opened next.
fn remove(shared: &Shared, worker: &Worker, file: TargetFile) {
    all(std::iter::once(worker), |_| Box::new(move |target| target.remove(file)), shared.limits.deadline);
}

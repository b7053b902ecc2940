//! Opening, second step: brings the index to the newest state that the targets prove.

use super::super::frame::{EpochId, Frame, RecordKind, take_edit};
use super::super::options::Options;
use super::copies::walk;
use super::recover::{Recovery, void};
use super::restore::load;
use crate::kv::{Index, IndexState, KvError, Layer};
use plan::TxId;

/// Why the journal does not lead from a base state to its end.
enum Broken {
    /// Transactions that were durable are missing, starting with this one.
    Gap(TxId),
    Failed(KvError),
}

impl From<KvError> for Broken {
    fn from(error: KvError) -> Self {
        Self::Failed(error)
    }
}

impl Recovery<'_> {
    /// Brings the index to the end of the journal, from its own state or from a snapshot. Returns
    /// the last transaction, and whether the journal does not reach back to the newest snapshot.
    pub(in crate::journal) fn replay(&mut self) -> Result<(TxId, bool), KvError> {
        self.sync_found();
        let index = &*self.options.index;
        let newest = self.snapshots.first().map(|group| group.number);
        let state = index.state()?;
        let name = EpochId { number: state.epoch, id: state.id };
        let ours = state.owner == self.options.volume;
        let usable = ours && self.lineage.has(name) && !void(&self.epochs, state.epoch, state.applied);
        if ours && !usable && state.epoch >= self.lineage.newest().number && !self.options.accept_loss {
            return Err(KvError::Corrupt(format!(
                "transaction {} was durable in epoch {}, and the targets know of no epoch after {}",
                state.applied,
                state.epoch,
                self.lineage.newest().number
            )));
        }
        let mut broken = KvError::Unavailable("no target has a complete snapshot of the metadata".into());
        if usable {
            let applied = state.applied;
            // Read everything after the snapshot, because the mirrors need it.
            let begin = newest.map_or(applied, |last| last.min(applied));
            match self.roll(state, begin) {
                Ok((last, _)) if last < applied && !self.options.accept_loss => {
                    return Err(KvError::Corrupt(format!(
                        "the journal ends with transaction {last} on the targets that can be reached, but {applied} \
                         was durable"
                    )));
                }
                Ok((last, _)) if newest.is_some_and(|newest| last < newest) => {}
                Ok((last, gap)) => return Ok((last.max(applied), gap || newest.is_none() || last < applied)),
                Err(Broken::Gap(_)) if newest.is_some_and(|last| last > applied) => {}
                Err(Broken::Gap(at)) => broken = missing(at),
                Err(Broken::Failed(error)) => return Err(error),
            }
        }
        for number in 0..self.snapshots.len() {
            let group = &mut self.snapshots[number];
            let (last, epoch) = (group.number, group.epoch);
            let Options { volume, limits, .. } = self.options;
            if let Err(error) = load(volume, index, limits.overlay_bytes, group) {
                broken = error;
                continue;
            }
            let state = IndexState { owner: self.options.volume, epoch: epoch.number, id: epoch.id, applied: last };
            index.apply(&mut std::iter::empty(), state, false)?;
            match self.roll(state, last) {
                Ok((last, _)) => return Ok((last, number > 0)),
                Err(Broken::Gap(at)) => broken = missing(at),
                Err(Broken::Failed(error)) => return Err(error),
            }
        }
        Err(broken)
    }

    /// What is read may still be only in the page cache. The index must not become durable before a
    /// segment; and for a complete snapshot, what is older is removed.
    fn sync_found(&mut self) {
        let mut failed = Vec::new();
        let groups = self.segments.iter().chain(&self.snapshots);
        for (group, copy) in groups.flat_map(|group| group.copies.iter().map(move |copy| (group, copy))) {
            if let Err(error) = self.options.targets[copy.place].1.sync(group.file) {
                failed.push((copy.place, error));
            }
        }
        failed.iter().for_each(|(place, error)| self.fail(*place, error));
    }

    /// Reads the journal after transaction `begin` and applies what the index does not have.
    /// Returns the last transaction, and whether the journal is missing some that the index has.
    fn roll(&mut self, base: IndexState, begin: TxId) -> Result<(TxId, bool), Broken> {
        let Options { volume, index, limits, accept_loss, .. } = self.options;
        let mut replay = Replay { index: &**index, state: base, layer: Layer::default(), limit: limits.overlay_bytes };
        let (mut next, mut gap, mut ended_at) = (begin.next(), false, None);
        for number in 0..self.segments.len() {
            let group = &mut self.segments[number];
            (group.end, group.counts) = (group.head as u64, false);
            group.misses.clear();
            if void(&self.epochs, group.epoch.number, group.number) {
                continue;
            }
            if group.number > next {
                if group.number <= base.applied.next() {
                    // The index has the transactions that are missing here.
                    (next, gap) = (group.number, true);
                } else if base.applied >= next {
                    (next, gap) = (base.applied.next(), true);
                }
                if group.number > next {
                    if *accept_loss {
                        self.lossy = true;
                        break;
                    }
                    return Err(Broken::Gap(next));
                }
            }
            let epochs = &self.epochs;
            let (epoch, first) = (group.epoch, group.number);
            let file = (volume, epoch.id, group.head);
            let accept =
                |frame: &Frame| frame.kind == RecordKind::Record && frame.epoch == epoch && frame.tx() >= first;
            let mut counts = false;
            let walked = walk(&mut group.copies, file, accept, |frame, payload| -> Result<bool, KvError> {
                if void(epochs, epoch.number, frame.tx()) || frame.tx() > next {
                    return Ok(false);
                }
                counts |= frame.tx() == next;
                next = next.max(frame.tx().next());
                replay.record(frame, payload)?;
                Ok(true)
            });
            (group.end, group.misses) = walked?;
            group.counts = counts;
            ended_at = Some(number);
        }
        // Behind the end there may be records that were never synced, but none that says that a
        // missing transaction was durable.
        if let Some(number) = ended_at.filter(|_| next > base.applied) {
            let group = &mut self.segments[number];
            let (epoch, end) = (group.epoch, group.end);
            let later =
                |frame: &Frame| frame.kind == RecordKind::Record && frame.epoch == epoch && frame.commit_index >= next;
            if group.copies.iter_mut().any(|copy| copy.any_behind(volume, epoch.id, end, later)) {
                if !accept_loss {
                    return Err(Broken::Gap(next));
                }
                self.lossy = true;
            }
        }
        replay.flush()?;
        Ok((next.previous(), gap))
    }
}

/// Applies records to an index, many at a time.
struct Replay<'a> {
    index: &'a dyn Index,
    state: IndexState,
    layer: Layer,
    limit: usize,
}

impl Replay<'_> {
    fn record(&mut self, frame: &Frame, mut payload: &[u8]) -> Result<(), KvError> {
        if frame.tx() <= self.state.applied {
            return Ok(());
        }
        while !payload.is_empty() {
            let Some((key, value)) = take_edit(&mut payload) else {
                return Err(KvError::Corrupt(format!("transaction {} is sound but not a record", frame.number)));
            };
            self.layer.insert(key, value);
        }
        let Frame { epoch, number, .. } = *frame;
        self.state = IndexState { epoch: epoch.number, id: epoch.id, applied: TxId(number), ..self.state };
        if self.layer.bytes() > self.limit { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), KvError> {
        let layer = std::mem::take(&mut self.layer);
        self.index.apply(&mut layer.iter(), self.state, false)
    }
}

fn missing(seq: TxId) -> KvError {
    KvError::Corrupt(format!("transaction {seq} was durable and is sound on no target that can be reached"))
}

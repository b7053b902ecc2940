//! The journal thread: writes pending transactions to all mirrors in parallel and replaces mirrors
//! that fail.

use super::files::{Failed, same};
use super::frame::{Frame, HEAD_BYTES, Kind};
use super::inventory::{Found, Owner, take_all, take_most};
use super::options::{Place, is_full, unavailable};
use super::shared::Shared;
use super::worker::{Job, Worker, all, most};
use crate::kv::{KvError, Seq};
use plan::TargetId;
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::sync::{Arc, Weak};
use volume::target::{Target, TargetFile};

/// A snapshot is made when there are more segments than this, however short: every opening begins
/// one.
const MANY_SEGMENTS: usize = 64;

/// The end of the journal on the mirrors.
pub(super) struct Writer {
    shared: Arc<Shared>,
    mirrors: Vec<(Place, Worker)>,
    /// The current segment and its length; `None` when the next transaction begins one.
    segment: Option<(TargetFile, u64)>,
    /// The last value of `Files::asked` that was handled.
    settled: u64,
}

/// The state of a writer before a write.
struct State {
    mirrors: Vec<Place>,
    segment: Option<(TargetFile, u64)>,
    segments: Vec<Seq>,
    complete: BTreeMap<TargetId, Seq>,
    failed: Vec<Failed>,
    written: u64,
}

impl Writer {
    /// Begins the epoch: a segment on as many mirrors as possible. Those that recovery chose come
    /// first.
    ///
    /// # Errors
    /// Returns an error when no target accepts it.
    pub fn begin(shared: Arc<Shared>, chosen: &[Place]) -> Result<Self, KvError> {
        let mut writer = Self { shared, mirrors: Vec::new(), segment: None, settled: 0 };
        for place in chosen {
            writer.add(place, 0);
        }
        if writer.mirrors.len() < chosen.len() {
            writer.fill();
        }
        if writer.mirrors.is_empty() {
            return Err(KvError::Unavailable(writer.shared.files().last_error.clone().unwrap_or_default()));
        }
        writer.changed();
        // Segments of an engine that was not closed may have reserved space that they will never
        // need.
        let old = writer.shared.files().segments.clone();
        writer.trim(&old);
        let nothing = Arc::new(Vec::new());
        while writer.segment.is_none() {
            if !writer.try_write(&nothing)? {
                // The volume can be read, and removing other data from the targets frees space.
                writer.shared.begin_full();
                break;
            }
        }
        Ok(writer)
    }

    /// Writes until the engine stops.
    pub fn run(mut self) {
        let mut spare = Vec::new();
        while let Some((pending, last)) = self.shared.take_pending(std::mem::take(&mut spare)) {
            match self.write(pending) {
                Ok(used) => {
                    self.shared.set_durable(last);
                    spare = used;
                }
                Err(error) => return self.shared.fail(&error),
            }
        }
        if let Some((TargetFile::Journal { first }, _)) = self.segment {
            self.trim(&[first]);
        }
    }

    /// Frees the space that was reserved for segments and is not needed.
    fn trim(&self, segments: &[Seq]) {
        let segments: Arc<Vec<Seq>> = Arc::new(segments.to_vec());
        let job = |_| -> Job {
            let segments = segments.clone();
            Box::new(move |target| {
                // A segment that is missing or cannot be changed takes no more space than before.
                segments.iter().for_each(|&first| _ = target.trim(TargetFile::Journal { first }));
                Ok(())
            })
        };
        all(self.mirrors.iter().map(|(_, worker)| worker), job, self.shared.limits.deadline);
    }

    /// Makes the records durable on at least one mirror. Returns the emptied buffer.
    fn write(&mut self, records: Vec<u8>) -> Result<Vec<u8>, KvError> {
        let records = Arc::new(records);
        loop {
            let (before, settled) = (self.state(), self.settled);
            // Handle requests that arrive meanwhile: another target may have space.
            let tried = self.settle().and_then(|()| self.try_write(&records));
            if self.settled != settled {
                // Only now: a new mirror does not count before it has the beginning of the journal.
                let settled = self.settled;
                self.shared.task(|tasks| tasks.settled = settled);
            }
            let why = match tried {
                Ok(true) => break,
                Ok(false) => KvError::NoSpace,
                // The snapshot found no space. It is repeated when there is some.
                Err(KvError::NoSpace) => {
                    self.restore(before);
                    self.shared.task(|tasks| tasks.snapshot = true);
                    KvError::NoSpace
                }
                // No target answers, perhaps because of the network. Until one does, the best thing
                // to do is to retry all of them.
                Err(error) => {
                    self.shared.retry();
                    error
                }
            };
            if !self.shared.wait_while_stuck(&why) {
                return Err(why);
            }
        }
        let mut records = Arc::try_unwrap(records).unwrap_or_default();
        records.clear();
        // A large transaction must not remain forever as an empty buffer.
        records.shrink_to(2 * self.shared.limits.group_bytes);
        Ok(records)
    }

    /// Makes the records durable on at least one mirror. Returns `false` when all targets are full;
    /// everything is then as before.
    ///
    /// # Errors
    /// Returns an error when no mirror is left.
    fn try_write(&mut self, records: &Arc<Vec<u8>>) -> Result<bool, KvError> {
        if self.mirrors.is_empty() {
            if !self.fill() {
                return Err(KvError::Unavailable(self.shared.files().last_error.clone().unwrap_or_default()));
            }
            self.restart();
        }
        // Each round of failures leaves fewer targets. What they have of these records is the same
        // as what others get.
        loop {
            let before = self.state();
            let Some(error) = self.put(records) else { return Ok(true) };
            let survived = !self.mirrors.is_empty();
            let more = self.fill();
            if error == KvError::NoSpace && !survived && !more {
                // A full disk is not a broken one: it works again when there is space.
                self.restore(before);
                return Ok(false);
            }
            self.restart();
            if survived {
                return Ok(true);
            }
            if self.mirrors.is_empty() {
                return Err(error);
            }
        }
    }

    /// The state that a write changes even when it fails everywhere.
    fn state(&self) -> State {
        let files = self.shared.files();
        State {
            mirrors: self.mirrors.iter().map(|(place, _)| place.clone()).collect(),
            segment: self.segment,
            segments: files.segments.clone(),
            complete: files.complete.clone(),
            failed: files.failed.clone(),
            written: files.written,
        }
    }

    /// Undoes the changes of a write that failed everywhere.
    fn restore(&mut self, state: State) {
        {
            let mut files = self.shared.files();
            files.segments = state.segments;
            files.complete = state.complete;
            files.failed = state.failed;
            files.written = state.written;
        }
        self.segment = state.segment;
        for place in &state.mirrors {
            if self.mirrors.iter().all(|(mirror, _)| !same(mirror, place)) {
                self.add(place, 0);
            }
        }
    }

    /// Writes records to all mirrors, and drops those that fail. Returns the error of one that
    /// failed; a lack of space has priority.
    fn put(&mut self, records: &Arc<Vec<u8>>) -> Option<KvError> {
        let mut head = Vec::new();
        let durable = self.shared.log().durable;
        let full = |at: u64| at > HEAD_BYTES as u64 && at + records.len() as u64 > self.shared.limits.segment_bytes;
        let (file, at) = match self.segment {
            Some((file, at)) if !full(at) => (file, at),
            _ => {
                let first = durable + 1;
                Frame::new(Kind::Segment, first, self.shared.epoch, durable)
                    .encode_head(&self.shared.volume, &mut head);
                (TargetFile::Journal { first }, 0)
            }
        };
        if records.is_empty() && head.is_empty() {
            return None;
        }
        let bytes = (head.len() + records.len()) as u64;
        let (head, reserve) = (Arc::new(head), self.shared.limits.segment_bytes);
        let job = |_| -> Job {
            let (head, records) = (head.clone(), records.clone());
            Box::new(move |target| {
                if head.is_empty() {
                    return target.write_durably(file, at, &[IoSlice::new(&records)]);
                }
                // A file of this name has none of these transactions, or has them from an epoch
                // that ended before.
                target.remove(file)?;
                target.write(file, 0, &[IoSlice::new(&head), IoSlice::new(&records)])?;
                // If there is no space to reserve, later writes fail on their own.
                let _ = target.reserve(file, reserve);
                target.sync(file)
            })
        };
        // Another target replaces a straggler.
        let results = most(self.mirrors.iter().map(|(_, worker)| worker), job, 1, self.shared.limits.deadline);
        self.segment = Some((file, at + bytes));
        {
            let (mut files, TargetFile::Journal { first }) = (self.shared.files(), file) else { unreachable!() };
            files.written += bytes;
            if files.segments.last() != Some(&first) {
                files.segments.push(first);
            }
            let crowded = files.due < u64::MAX && files.segments.len() > MANY_SEGMENTS;
            if files.written >= files.due || crowded {
                files.due = u64::MAX;
                drop(files);
                self.shared.task(|tasks| tasks.snapshot = true);
            }
        }
        let mut last_error = None;
        for (number, result) in results.into_iter().enumerate().rev() {
            if let Err(error) = result {
                let (place, worker) = self.mirrors.remove(number);
                self.note_failure(&place, &error, worker.running());
                if last_error != Some(KvError::NoSpace) {
                    last_error = Some(unavailable(place.0, &error));
                }
            }
        }
        last_error
    }

    /// Handles the requests since the last call: drops the mirrors that the checkpointer reported
    /// as failed, and switches to other targets.
    fn settle(&mut self) -> Result<(), KvError> {
        let (asked, suspects) = {
            let mut files = self.shared.files();
            (files.asked, std::mem::take(&mut files.suspects))
        };
        if asked == self.settled {
            return Ok(());
        }
        let mut error = None;
        for (place, why, running) in suspects {
            if let Some(number) = self.mirrors.iter().position(|(mirror, _)| same(mirror, &place)) {
                self.mirrors.remove(number);
                self.note_failure(&place, &why, running);
                error = Some(unavailable(place.0, &why));
            }
        }
        let old = self.renew();
        if self.fill() || error.is_some() || !old.is_empty() {
            self.restart();
        }
        if self.mirrors.is_empty() {
            // The old mirrors are better than none.
            self.mirrors = old;
            self.changed();
        }
        self.release();
        self.settled = asked;
        match error {
            Some(error) if self.mirrors.is_empty() => Err(error),
            _ => Ok(()),
        }
    }

    /// Replaces mirrors whose target was opened again. There are never two mirrors with the same
    /// id, since they may be one target. Returns the old mirrors.
    fn renew(&mut self) -> Vec<(Place, Worker)> {
        let places = self.shared.files().places.clone();
        let anew = |mirror: &Place| places.iter().find(|place| place.0 == mirror.0 && !same(place, mirror));
        let mut old = Vec::new();
        for (mirror, worker) in std::mem::take(&mut self.mirrors) {
            let Some(place) = anew(&mirror) else {
                self.mirrors.push((mirror, worker));
                continue;
            };
            old.push((mirror, worker));
            let had = self.shared.files().complete.remove(&place.0);
            // The same target, opened again, still has what it had.
            let has =
                |found: &Found| found.complete && had.is_some_and(|last| found.file == TargetFile::Snapshot { last });
            if let (Some(found), Some(last)) = (self.add(place, 0), had)
                && found.iter().any(|found| has(found) && matches!(found.owner, Owner::Ours(_)))
            {
                self.shared.files().complete.insert(place.0, last);
            }
        }
        old
    }

    /// Drops mirrors that are no longer wanted, unless they are still needed.
    fn release(&mut self) {
        let before = self.mirrors.len();
        {
            let files = self.shared.files();
            if files.staying().1 < files.expected {
                return;
            }
            self.mirrors.retain(|(place, _)| files.has_place(place));
        }
        if self.mirrors.len() < before {
            self.changed();
        }
    }

    /// Adds mirrors from the other targets that have space. Returns whether there are more mirrors
    /// now.
    fn fill(&mut self) -> bool {
        let (before, places, room) = {
            let files = self.shared.files();
            (self.mirrors.len(), files.places.clone(), files.need(&self.shared.limits))
        };
        let stays = |mirror: &Place| places.iter().any(|place| same(place, mirror));
        let free = |place: &&Place| {
            !self.shared.files().has_failed(place) && self.mirrors.iter().all(|((id, _), _)| *id != place.0)
        };
        let free: Vec<Place> = places.iter().filter(free).cloned().collect();
        // Query more targets than needed in parallel, so that one that hangs does not delay the
        // replacement.
        for some in free.chunks(2 * self.shared.wanted) {
            let there = self.mirrors.iter().filter(|(mirror, _)| stays(mirror)).count();
            let lacking = self.shared.wanted.saturating_sub(there).min(some.len());
            if lacking == 0 {
                break;
            }
            let looked = take_most(some, lacking, &self.shared.volume, self.shared.limits.deadline);
            let full = self.mirrors.len() + lacking;
            for (place, looked) in some.iter().zip(looked) {
                if self.mirrors.len() < full {
                    self.join(place, looked, room);
                }
            }
        }
        self.mirrors.len() > before
    }

    /// After a change of mirrors, begins a new segment and a new snapshot.
    fn restart(&mut self) {
        self.segment = None;
        self.changed();
        self.shared.task(|tasks| tasks.snapshot = true);
    }

    fn changed(&self) {
        let mut files = self.shared.files();
        files.mirrors = self.mirrors.iter().map(|(place, _)| place.clone()).collect();
        files.generation += 1;
    }

    /// Makes a target a mirror, and returns what is on it. A target that holds another volume's
    /// journal, or has less than `room` bytes free, has failed.
    fn add(&mut self, place: &Place, room: u64) -> Option<Vec<Found>> {
        let looked = take_all(std::slice::from_ref(place), &self.shared.volume, self.shared.limits.deadline).remove(0);
        self.join(place, looked, room)
    }

    /// As `add`, with the inventory of the target.
    fn join(&mut self, place: &Place, looked: io::Result<Vec<Found>>, room: u64) -> Option<Vec<Found>> {
        let begun = looked.and_then(|found| match found.iter().any(|found| found.owner == Owner::Foreign) {
            true => Err(io::Error::other("it holds the journal of another volume")),
            false => Ok((found, Worker::start(place.1.clone())?)),
        });
        let begun = begun.and_then(|(found, worker)| {
            let enough = move |target: &dyn Target| match room == 0 || target.space()?.free > room {
                true => Ok(()),
                false => Err(io::ErrorKind::StorageFull.into()),
            };
            let looked = all(std::iter::once(&worker), |_| Box::new(enough), self.shared.limits.deadline);
            looked.into_iter().collect::<io::Result<()>>().map(|()| (found, worker))
        });
        match begun {
            Ok((found, worker)) => {
                self.mirrors.push((place.clone(), worker));
                Some(found)
            }
            Err(error) => {
                self.note_failure(place, &error, Weak::new());
                None
            }
        }
    }

    fn note_failure(&self, place: &Place, error: &io::Error, running: Weak<()>) {
        let mut files = self.shared.files();
        files.complete.remove(&place.0);
        files.last_error = Some(format!("target {}: {error}", place.0.0));
        // A target that has left the volume may come back.
        if files.has_place(place) {
            files.failed.push(Failed { place: place.clone(), why: error.to_string(), full: is_full(error) });
            files.retries.failed(place.0, self.shared.limits.retry, running);
        }
    }
}

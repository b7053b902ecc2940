//! Follows the journal of an opening in another process, so that a standby's index is warm. It only
//! reads: it claims nothing and writes to no target.
//!
//! The index gets a transaction only when it is known to be durable: a record of the same epoch, or
//! of one that descends from it, says so (commit_index). Others wait in memory. So the index is as
//! good as that of an earlier opening on this machine, and the next opening treats it as such: it
//! uses it if the history that it adopts has the index's last transaction, by the id of its epoch.

use super::super::frame::{Epoch, FRAME_BYTES, Frame, HEAD_BYTES, MAX_PAYLOAD_BYTES, RecordKind, VolumeId, take_edit};
use super::super::opening::inventory::{FoundFile, take_all};
use super::super::opening::restore::load;
use super::super::options::MirrorTarget;
use super::super::shelf::Shelf;
use super::sightings::{Segment, Sightings};
use crate::kv::{Index, IndexState, KvError, Layer};
use plan::TxId;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use volume::target::{ReadAt, Target, TargetFile, Wait, read_to_vec};

/// This much is read at once, in bytes, or one frame if that is longer.
const WINDOW_BYTES: usize = 1 << 20;
/// The most changes that wait until they are known to be durable, in bytes. A holder has fewer.
const MAX_WAITING_BYTES: usize = 2 * MAX_PAYLOAD_BYTES;

/// Of what to follow, and how.
#[derive(Clone, Copy, Debug)]
pub struct FollowOptions {
    /// The volume's id.
    pub volume: VolumeId,
    /// How many targets may be lost: m.
    pub losses: usize,
    /// Changes go to the index when there are this many bytes of them,
    pub batch_bytes: usize,
    /// or when the oldest ones have waited for this long.
    pub delay: Duration,
    /// The least time between two looks at all files of all targets; up to 16 times as long if they
    /// show nothing new.
    pub pause: Duration,
    /// How long a target may take to answer.
    pub deadline: Duration,
}

/// What is known of the holder from elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hint {
    /// The number and the id of the highest epoch that a claim names.
    pub epoch: Option<(u64, u128)>,
    /// The holder's last transaction.
    pub last: TxId,
}

/// Where it reads on.
struct Cursor {
    segment: Segment,
    /// In bytes.
    offset: u64,
}

/// A transaction that is not known to be durable.
struct Waiting {
    epoch: Epoch,
    seq: TxId,
    edits: Vec<u8>,
}

/// Follows a journal. See the module.
pub struct Follower {
    options: FollowOptions,
    shelf: Arc<Shelf>,
    cursor: Option<Cursor>,
    /// The target to ask next.
    source: usize,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    /// Changes that are durable on the mirrors, and that the index does not have yet.
    ready: Layer,
    /// When the first of them came.
    ready_since: Option<Instant>,
    /// The state of the index with those.
    state: IndexState,
    /// Everything up to this transaction is durable.
    durable: TxId,
    /// When it looked at all targets or read something last,
    /// and how many targets had nothing since.
    active: Option<Instant>,
    idle: usize,
    /// Where it was when it looked last, and how many times it has looked there in vain.
    stuck: Option<TxId>,
    vain: u32,
}

impl Follower {
    /// Begins with the state that the index has.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub fn new(options: FollowOptions, shelf: Arc<Shelf>) -> Result<Self, KvError> {
        let state = shelf.state()?;
        Ok(Self {
            options,
            shelf,
            cursor: None,
            source: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            ready: Layer::default(),
            ready_since: None,
            state,
            durable: TxId(0),
            active: None,
            idle: 0,
            stuck: None,
            vain: 0,
        })
    }

    /// The last transaction that it has read, with all before it; None before it has found a state
    /// to begin with.
    pub fn position(&self) -> Option<TxId> {
        self.cursor.as_ref()?;
        Some(self.last())
    }

    /// Reads a limited amount. Returns whether there is probably much more to read.
    ///
    /// # Errors
    /// When no target has a state to begin with or when the index cannot be changed; it may be
    /// called again. `Corrupt` when the index has durable transactions that the targets lack.
    pub fn step(&mut self, places: &[MirrorTarget], hint: &Hint) -> Result<bool, KvError> {
        if places.is_empty() {
            return Ok(false);
        }
        if self.is_lost(places, hint) {
            self.look(places)?;
        }
        let read_bytes = self.read(places);
        let turned = read_bytes == 0 && self.turn(places);
        if read_bytes > 0 || turned {
            self.active = Some(Instant::now());
            self.idle = 0;
        } else {
            // Another target may have more.
            self.source = (self.source + 1) % places.len();
            self.idle = self.idle.saturating_add(1);
        }
        self.accept();
        self.flush()?;
        Ok(turned || read_bytes >= WINDOW_BYTES / 2)
    }

    /// Whether it must look at all targets to find its way.
    fn is_lost(&self, places: &[MirrorTarget], hint: &Hint) -> bool {
        let pause = self.options.pause * (1 << self.vain.min(4));
        if self.active.is_some_and(|at| at.elapsed() < pause) {
            return false;
        }
        let Some(Cursor { segment, .. }) = &self.cursor else { return true };
        if self.idle < places.len() {
            return false;
        }
        let Epoch { number, id, .. } = segment.epoch;
        let is_old = hint.epoch.is_some_and(|epoch| epoch > (number, id));
        is_old || self.position().is_some_and(|position| position < hint.last)
    }

    /// Finds where to read on, and loads a snapshot if it cannot do without.
    fn look(&mut self, places: &[MirrorTarget]) -> Result<(), KvError> {
        self.active = Some(Instant::now());
        self.idle = 0;
        let reached = self.position();
        let stuck = self.stuck == reached;
        self.stuck = reached;
        self.vain = if stuck { self.vain.saturating_add(1) } else { 0 };
        self.cursor = None;
        let found = take_all(places, &self.options.volume, self.options.deadline);
        let found = found
            .into_iter()
            .enumerate()
            .flat_map(|(place, found)| found.unwrap_or_default().into_iter().map(move |found| (place, found)));
        let found: Vec<(usize, FoundFile)> = found.collect();
        let sightings = Sightings::of(&found, self.options.losses)
            .ok_or_else(|| KvError::Unavailable("no target shows a journal that can be followed".into()))?;
        let ours = self.state.owner == self.options.volume;
        let usable = ours && sightings.has(&self.state);
        if ours && !usable && self.state.epoch >= sightings.newest().number {
            // The next opening decides what that means.
            return Err(KvError::Corrupt("the targets lack what the index has".into()));
        }
        self.forget(|waiting| {
            let Epoch { number, id, .. } = waiting.epoch;
            usable && sightings.has(&IndexState { epoch: number, id, applied: waiting.seq, ..IndexState::default() })
        });
        if !usable {
            self.restore(&sightings, None, places)?;
        } else if stuck || sightings.segment(self.last().next()).is_none() {
            self.restore(&sightings, Some(self.last()), places)?;
        }
        let segment = sightings.segment(self.last().next());
        let cursor = |segment: Segment| Cursor { segment, offset: segment.head as u64 };
        self.cursor = segment.map(cursor);
        Ok(())
    }

    /// The last transaction that it has.
    fn last(&self) -> TxId {
        self.waiting.back().map_or(self.state.applied, |waiting| waiting.seq)
    }

    /// Drops what waits from the first one on that does not stay.
    fn forget(&mut self, stays: impl Fn(&Waiting) -> bool) {
        let kept = self.waiting.iter().take_while(|waiting| stays(waiting)).count();
        if kept < self.waiting.len() {
            // What was said of them does not hold for others with their numbers.
            self.durable = self.state.applied;
        }
        for waiting in self.waiting.drain(kept..) {
            self.waiting_bytes -= waiting.edits.len() + FRAME_BYTES;
        }
    }

    /// Loads the newest snapshot behind a transaction, if there is one.
    fn restore(&mut self, sightings: &Sightings, after: Option<TxId>, places: &[MirrorTarget]) -> Result<(), KvError> {
        let mut groups = sightings.snapshot(after, places);
        let mut result = match after {
            None => Err(KvError::Unavailable("no target has a snapshot to begin with".into())),
            Some(_) => Ok(()),
        };
        for group in &mut groups {
            self.forget(|_| false);
            (self.state, self.durable) = (IndexState::default(), TxId(0));
            (self.ready, self.ready_since) = (Layer::default(), None);
            let FollowOptions { volume, batch_bytes, .. } = self.options;
            result = load(&volume, &*self.shelf, batch_bytes, group);
            if result.is_ok() {
                let Epoch { number, id, .. } = group.epoch;
                self.state = IndexState { owner: volume, epoch: number, id, applied: group.number };
                self.shelf.apply(&mut std::iter::empty(), self.state, true)?;
                break;
            }
        }
        result
    }

    /// Reads what the segment has behind the offset. Returns how many bytes that were.
    fn read(&mut self, places: &[MirrorTarget]) -> usize {
        let Some(mut next) = self.position().map(TxId::next) else { return 0 };
        let Some(cursor) = &mut self.cursor else { return 0 };
        let Segment { first, epoch, established, last, .. } = cursor.segment;
        let (_, target) = &places[self.source % places.len()];
        let file = TargetFile::Journal { first };
        let mut bytes = self.options.read(target, file, cursor.offset, WINDOW_BYTES);
        let mut at = 0;
        while let Some(frame) = Frame::parse(&bytes[at..]) {
            if bytes.len() - at < FRAME_BYTES + frame.payload {
                if at > 0 || frame.kind != RecordKind::Record {
                    break;
                }
                bytes = self.options.read(target, file, cursor.offset, FRAME_BYTES + frame.payload);
            }
            let Some((frame, payload)) = Frame::proven(&self.options.volume, epoch.id, &bytes[at..]) else { break };
            let fits = frame.kind == RecordKind::Record && frame.epoch == epoch && frame.tx() <= next.min(last);
            if !fits || !are_edits(payload) || self.waiting_bytes > MAX_WAITING_BYTES {
                break;
            }
            if frame.tx() == next {
                self.waiting_bytes += payload.len() + FRAME_BYTES;
                self.waiting.push_back(Waiting { epoch, seq: next, edits: payload.to_vec() });
                next = next.next();
            }
            // Before its barrier is durable, an opening may count as durable what it only found.
            if established || frame.commit_index >= epoch.first {
                self.durable = self.durable.max(frame.commit_index.min(frame.tx().previous()));
            }
            at = bytes.len().min(at + frame.bytes());
        }
        cursor.offset += at as u64;
        at
    }

    /// Goes on with the next segment if there is one. Its name is known: it begins with the next
    /// transaction.
    fn turn(&mut self, places: &[MirrorTarget]) -> bool {
        let Some(next) = self.position().map(TxId::next) else { return false };
        let Some(cursor) = &mut self.cursor else { return false };
        let (_, target) = &places[self.source % places.len()];
        let bytes = self.options.read(target, TargetFile::Journal { first: next }, 0, HEAD_BYTES);
        let Some(head) = Frame::proven_head(&bytes).filter(|head| head.volume == self.options.volume) else {
            return false;
        };
        let before = cursor.segment;
        let goes_on = head.epoch == before.epoch && next > before.first;
        let follows = head.origin.parent == before.epoch.name()
            && head.epoch.number > before.epoch.number
            && head.epoch.first == next;
        if !goes_on && !follows {
            return false;
        }
        let established = goes_on && before.established;
        let last = if goes_on { before.last } else { TxId::MAX };
        cursor.segment = Segment { first: next, epoch: head.epoch, head: head.bytes, established, last };
        cursor.offset = head.bytes as u64;
        true
    }

    /// Takes what is durable out of what waits.
    fn accept(&mut self) {
        let durable = self.waiting.iter().take_while(|waiting| waiting.seq <= self.durable).count();
        for waiting in self.waiting.drain(..durable) {
            self.waiting_bytes -= waiting.edits.len() + FRAME_BYTES;
            let mut edits = &waiting.edits[..];
            while let Some((key, value)) = take_edit(&mut edits) {
                self.ready.insert(key, value);
            }
            let Epoch { number, id, .. } = waiting.epoch;
            self.state = IndexState { owner: self.options.volume, epoch: number, id, applied: waiting.seq };
            self.ready_since.get_or_insert_with(Instant::now);
        }
    }

    /// Moves what is due to the index.
    fn flush(&mut self) -> Result<(), KvError> {
        let waits = self.ready_since.is_some_and(|since| since.elapsed() >= self.options.delay);
        if waits || self.ready.bytes() > self.options.batch_bytes {
            self.shelf.apply(&mut self.ready.iter(), self.state, true)?;
            self.ready = Layer::default();
            self.ready_since = None;
        }
        Ok(())
    }
}

impl FollowOptions {
    /// Reads up to so many bytes; none if the file or the target is away.
    fn read(&self, target: &Arc<dyn Target>, file: TargetFile, offset: u64, bytes: usize) -> Vec<u8> {
        let read = |into: &mut [u8]| -> io::Result<usize> {
            match target.read_part(file, offset, into, Wait::Within(self.deadline)) {
                Err(why) if why.kind() == io::ErrorKind::Unsupported => target.read_at(file, offset, into),
                read => read,
            }
        };
        read_to_vec(bytes, read).unwrap_or_default()
    }
}

/// Whether a payload is that of a record.
fn are_edits(mut payload: &[u8]) -> bool {
    while !payload.is_empty() {
        if take_edit(&mut payload).is_none() {
            return false;
        }
    }
    true
}

//! Stripes on the targets: the chunk sets that are written.

use crate::Result;
use crate::data::balance::Balance;
use crate::data::claims::Claims;
use crate::data::coding::Coders;
use crate::data::set_load::{Busy, Open};
use crate::data::space::{self, TargetSpace};
use crate::data::topology::Topology;
use crate::ranks::{
    LackingSets, OpenSets, PinnedSets, SealedSets, SetBeginning, SetLayouts, StoreDetails, UnsyncedSets,
};
use crate::volume::history::History;
use crate::volume::label::Label;
use ::volume::ranked::{Ranked, RankedRw};
use ec::Code;
use meta::SetRecord;
use plan::coding::Coding;
use plan::placement::{TargetCandidate, View};
use plan::topology::{Coordinates, Network};
use plan::{Position, RecordOffset, SetId, StripeSeq, TargetId};
use session::port::Port;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use volume::format::VolumeId;
use volume::{Answer, BufferPool, ReportedSpace, Sealing, SetLayout, SetWriter, StripeBuffer, Targets, lock};

/// A target gets new chunks only if it has this much space, or space for a whole chunk.
pub(crate) const NEW_CHUNK_BYTES: u64 = 1 << 20;
/// A target that has not reported its space for this long gets no new chunks: it may hang.
const SILENT_TARGET_AFTER: Duration = Duration::from_secs(10);

/// How many more sets are tried for a stripe after the targets of one failed, without the sets that
/// were open then: the same target may be in all of them.
const MAX_SET_RETRIES: usize = 2;
/// How many sets other threads may fill before a stripe finds space in one. More would mean that it
/// fits in none.
const FULL_SETS: usize = 100;

/// A source of chunk sets.
pub(crate) trait NewSets: Send + Sync {
    /// A new chunk set for the exclusive use of the caller.
    fn next(&self, store: &Store) -> Result<(SetId, SetRecord)>;

    /// Whether a set may still be written. Not after the end of the session that it was given to.
    fn is_ours(&self, _set: SetId) -> bool {
        true
    }

    /// Whether the metadata is in another process, and may forget what it was told.
    fn may_lose(&self) -> bool {
        false
    }

    /// How often the metadata may have forgotten what it was told and had not made durable.
    fn losses(&self) -> u64 {
        0
    }
}

/// The positions that sets lack. With each the number of losses of the metadata when it was told;
/// None: it was not told.
type Lacking = HashMap<SetId, BTreeMap<Position, Option<u64>>>;

/// The settings of a store.
pub(crate) struct Options {
    pub volume: VolumeId,
    pub code: Arc<dyn Code>,
    pub chunk_bytes: u32,
    /// How many targets must have a stripe before it is acknowledged.
    pub durability: usize,
    /// Which side codes stripes.
    pub coding: Coding,
    /// Where this process is in the volume's torus.
    pub at: Option<Coordinates>,
    /// User data and manifest of the longest stripe that this process writes, in bytes.
    pub full_stripe: usize,
    /// User data of the longest stripe of one file that this process writes, in bytes.
    pub stripe_bytes: usize,
}

/// Where a stripe is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    pub set: SetId,
    pub record: RecordOffset,
    pub block: u32,
}

/// Keeps a set in use while a stripe of it is on its way to a buffer or to the metadata and neither
/// refers to it yet.
pub(crate) struct Pin<'a> {
    store: &'a Store,
    set: SetId,
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        let mut pinned = self.store.pinned.lock();
        if let Some(count) = pinned.get_mut(&self.set) {
            *count -= 1;
            if *count == 0 {
                pinned.remove(&self.set);
            }
        }
    }
}

/// The chunk sets of a volume.
pub(crate) struct Store {
    pub targets: Arc<Targets>,
    pub meta: Arc<dyn Port>,
    pub(super) sets: Arc<dyn NewSets>,
    pub options: Options,
    pub pool: Arc<BufferPool>,
    /// The sets that are written to.
    pub(super) open: Ranked<Vec<Open>, OpenSets>,
    /// Held by the thread that begins a set, which requests it from the metadata.
    pub(super) beginning: Ranked<(), SetBeginning>,
    /// A set is being begun: it could be any set.
    pub(super) begins: AtomicBool,
    /// Sets that may have stripes that are not durable.
    pub(super) unsynced: Ranked<Vec<Arc<SetWriter>>, UnsyncedSets>,
    /// Sets of which stripes were lost before they were durable.
    pub(super) lost: Ranked<HashSet<SetId>, StoreDetails>,
    /// Sets that were sealed since the last call of `take_sealed`.
    pub(super) sealed: Ranked<Vec<SetId>, SealedSets>,
    /// Sets whose chunks are being described since they were sealed.
    pub(super) sealing: Mutex<VecDeque<Sealing>>,
    /// What sets lack, and whether the metadata knows.
    pub(super) lacking: Ranked<Lacking, LackingSets>,
    /// Sets with stripes being written, and how many.
    pinned: Ranked<HashMap<SetId, usize>, PinnedSets>,
    pub(super) layouts: RankedRw<HashMap<SetId, Arc<SetLayout>>, SetLayouts>,
    pub(super) codes: Mutex<HashMap<String, Arc<dyn Code>>>,
    /// Targets that get no new sets.
    closed: Ranked<HashSet<TargetId>, StoreDetails>,
    /// The failure domains and the placement policy.
    pub(crate) topology: Mutex<Arc<Topology>>,
    /// How busy the targets are.
    pub(crate) balance: Balance,
    /// The bytes that the metadata needs on each of its targets, and the list of those targets.
    metadata: Ranked<(u64, HashSet<TargetId>), StoreDetails>,
    sequence: AtomicU64,
    pub coders: Coders,
    /// The set that got the last large stripe.
    pub(super) last_used: AtomicU64,
    /// The bytes of user data in the stripes of this process so far.
    pub(super) written: AtomicU64,
    /// How many of these bytes there were when the last sync began.
    pub(super) synced: AtomicU64,
    /// The number of sets that were begun by this process.
    pub begun_sets: AtomicU64,
    /// The history of all created sets.
    pub history: History,
    /// The claims on sets whose chunks are being moved or removed.
    pub claims: Claims,
    /// Positions that were found damaged: set and position.
    pub(super) damaged: Ranked<HashSet<(SetId, Position)>, StoreDetails>,
    /// When the layout of a set was last requested because something was missing, and whether that
    /// is due again.
    pub(super) looked: Ranked<HashMap<SetId, (Instant, bool)>, StoreDetails>,
}

impl Store {
    pub fn new(
        targets: Arc<Targets>,
        meta: Arc<dyn Port>,
        sets: Arc<dyn NewSets>,
        options: Options,
        history: History,
        first_sequence: StripeSeq,
    ) -> Self {
        let coders = Coders::new(options.coding, options.code.shape());
        Self {
            targets,
            meta,
            sets,
            pool: Arc::new(BufferPool::new(&*options.code, options.full_stripe, 16)),
            options,
            open: Ranked::default(),
            beginning: Ranked::default(),
            begins: AtomicBool::new(false),
            unsynced: Ranked::default(),
            lacking: Ranked::default(),
            lost: Ranked::default(),
            sealed: Ranked::default(),
            sealing: Mutex::default(),
            pinned: Ranked::default(),
            layouts: RankedRw::default(),
            codes: Mutex::default(),
            closed: Ranked::default(),
            topology: Mutex::default(),
            balance: Balance::default(),
            metadata: Ranked::default(),
            sequence: AtomicU64::new(first_sequence.0),
            coders,
            last_used: AtomicU64::new(0),
            written: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            begun_sets: AtomicU64::new(0),
            history,
            claims: Claims::default(),
            damaged: Ranked::default(),
            looked: Ranked::default(),
        }
    }

    pub fn topology(&self) -> Arc<Topology> {
        lock(&self.topology).clone()
    }

    pub fn set_topology(&self, label: &Label) {
        let topology = Topology::of(label);
        let rules = topology.rules(self.options.code.shape(), self.new_chunk_bytes());
        self.balance.set_label(label, rules, topology.seed());
        self.set_network(label);
        *lock(&self.topology) = Arc::new(topology);
    }

    /// Says where the targets are, for the choice of Masters.
    pub fn set_network(&self, label: &Label) {
        let network = label.places().map(|places| {
            let client = self.options.at.clone().filter(|at| places.torus.has(at));
            Network { places: Arc::new(places), client }
        });
        self.targets.set_network(network);
    }

    /// The space that a target must have for a chunk of a new set.
    pub fn new_chunk_bytes(&self) -> u64 {
        u64::from(self.options.chunk_bytes).min(NEW_CHUNK_BYTES)
    }

    pub fn full_stripe(&self) -> usize {
        self.options.full_stripe
    }

    /// The bytes of user data in a full stripe of one file; the rest of the stripe is for the
    /// manifest.
    pub fn stripe_bytes(&self) -> usize {
        self.options.stripe_bytes
    }

    /// Sets the bytes that the metadata needs on each of these targets.
    pub fn keep_for_metadata(&self, bytes: u64, targets: impl IntoIterator<Item = TargetId>) {
        *self.metadata.lock() = (bytes, targets.into_iter().collect());
    }

    /// The known space of the targets, without what the metadata needs on their file systems, and
    /// without targets that get no chunks.
    fn reported_spaces(&self, fresh: bool) -> Vec<ReportedSpace> {
        let mut reported_spaces = self.targets.reported_spaces(fresh);
        let (bytes, mirrors) = self.metadata.lock().clone();
        let mut kept: BTreeMap<u64, u64> = BTreeMap::new();
        let space_of = |reported: &ReportedSpace| reported.space.filter(|_| mirrors.contains(&reported.id));
        reported_spaces.iter().filter_map(space_of).for_each(|space| *kept.entry(space.system).or_default() += bytes);
        for space in reported_spaces.iter_mut().filter_map(|reported| reported.space.as_mut()) {
            space.free = space.free.saturating_sub(kept.get(&space.system).copied().unwrap_or(0));
        }
        let closed = self.closed.lock().clone();
        reported_spaces.retain(|reported| !closed.contains(&reported.id));
        reported_spaces
    }

    /// The bytes of user data that fit in total, and those that still fit, with every block of a
    /// stripe on another target.
    pub fn user_space(&self) -> (u64, u64) {
        let shape = self.options.code.shape();
        let reported_spaces = self.reported_spaces(true);
        let topology = self.topology();
        let known = |id: &TargetId| reported_spaces.iter().find(|reported| reported.id == *id);
        // Targets that were never found count, too.
        let targets: Vec<TargetSpace> = match topology.active().count() {
            0 => reported_spaces.iter().map(|reported| TargetSpace::of(Some(reported))).collect(),
            _ => topology.active().map(|id| TargetSpace::of(known(id))).collect(),
        };
        let most = topology.most_on_one(shape.blocks());
        space::user_space(&targets, shape.k as u64, shape.blocks() as u64, most as u64)
    }

    /// The targets that new chunks can go to. A target that was full lately is among them only if
    /// there are too few others. A target that failed and answers again is among them only if no
    /// stripe could be written without it. The same is true of a target that has not reported its
    /// space yet, if the others are too few for all blocks: late does not mean full.
    pub fn candidates(&self) -> Vec<TargetCandidate> {
        let (targets, shape) = (&self.targets, self.options.code.shape());
        let reported_spaces: Vec<ReportedSpace> =
            self.reported_spaces(false).into_iter().filter(|reported| !targets.hangs(reported.id)).collect();
        let given = |reported: &&ReportedSpace| reported.answer == Answer::Given;
        let is_sound = |reported: &&ReportedSpace| targets.error(reported.id).is_none();
        let few = reported_spaces.iter().filter(given).filter(is_sound).count() < shape.blocks();
        let least = reported_spaces
            .iter()
            .filter(given)
            .filter_map(|reported| reported.space)
            .map(|space| space.free)
            .min()
            .unwrap_or(0);
        let usable = reported_spaces.iter().filter(|reported| match reported.answer {
            Answer::Given => true,
            Answer::Awaited(time) => few && time < SILENT_TARGET_AFTER && is_sound(reported),
            Answer::None => false,
        });
        let topology = self.topology();
        let free = |reported: &ReportedSpace| reported.space.map_or(least, |space| space.free);
        let total = |reported: &ReportedSpace| reported.space.map_or(0, |space| space.total);
        let all: Vec<TargetCandidate> =
            usable.map(|reported| topology.candidate(reported.id, free(reported), total(reported))).collect();
        let of = |which: &dyn Fn(TargetId) -> bool| -> Vec<TargetCandidate> {
            all.iter().filter(|candidate| which(candidate.id)).cloned().collect()
        };
        let sound = of(&|id| targets.error(id).is_none());
        let roomy = of(&|id| targets.error(id).is_none() && !targets.was_full(id));
        self.balance.with_loads(match () {
            () if roomy.len() >= shape.blocks() => roomy,
            () if sound.len() >= shape.k => sound,
            () => all,
        })
    }

    /// Whether a target that was a candidate is one still.
    pub fn takes_new_chunks(&self, id: TargetId) -> bool {
        let targets = &self.targets;
        let is_sound = targets.get(id).is_some() && targets.error(id).is_none() && !targets.hangs(id);
        is_sound && !targets.was_full(id) && !self.is_closed(id)
    }

    /// The score of each target that new chunks can go to, if the volume has scores.
    pub fn scores(&self) -> BTreeMap<TargetId, f64> {
        let (targets, topology) = (self.candidates(), self.topology());
        let view = View { targets: &targets, domains: vec![0; targets.len()], room: vec![targets.len()] };
        let scores = topology.policy().scores(&view).unwrap_or_default();
        targets.iter().zip(scores).map(|(target, parts)| (target.id, parts.score)).collect()
    }

    /// The number of blocks of a chunk set begun now that would have a target, and the number that
    /// should.
    pub fn new_blocks(&self) -> (usize, usize) {
        let is_good = |candidate: &TargetCandidate| {
            self.targets.error(candidate.id).is_none() && !self.targets.was_full(candidate.id)
        };
        let mut candidates = self.candidates();
        candidates.retain(is_good);
        let (topology, shape) = (self.topology(), self.options.code.shape());
        let rules = topology.rules(shape, self.new_chunk_bytes());
        let mut places = plan::placement::place(&*topology.policy(), &candidates, &rules, SetId(0));
        let most = topology.most_on_one(rules.width);
        if most > 1 {
            plan::placement::share(&mut places, &candidates, &rules, SetId(0), most);
        }
        (places.iter().flatten().count(), shape.blocks())
    }

    /// Stops placing chunks on a target, or allows it again.
    pub fn close_target(&self, id: TargetId, closed: bool) {
        if closed {
            self.closed.lock().insert(id);
        } else {
            self.closed.lock().remove(&id);
        }
        // An open set may have a chunk on it.
        let _ = self.seal_open();
    }

    /// Whether a target gets no new chunks.
    pub fn is_closed(&self, id: TargetId) -> bool {
        self.closed.lock().contains(&id)
    }

    /// Writes a stripe; `buffer` has its data. The stripe is not durable before `sync`. Keep the
    /// pin until a buffer or the metadata refers to the stripe.
    pub fn append(&self, mut buffer: StripeBuffer, manifest: &[u8]) -> Result<(Stored, Pin<'_>)> {
        let sequence = StripeSeq(self.sequence.fetch_add(1, Ordering::Relaxed));
        let (mut failures, mut full, mut retries) = (0, 0, MAX_SET_RETRIES);
        loop {
            let (Open { writer, load }, pin) = self.writer(buffer.len(), failures > 0)?;
            let _busy = Busy::new(load, buffer.len());
            self.written.fetch_add(buffer.len() as u64, Ordering::Relaxed);
            let turn = self.coders.turn(buffer.len() + manifest.len());
            match writer.append_by(turn.by, buffer, sequence, manifest) {
                Ok(done) => {
                    turn.done(done.by, &done.cost);
                    let set = writer.layout().set;
                    if !done.missing.is_empty() {
                        self.note_lacking(set, &done.missing);
                        self.tell_lacking()?;
                        if !self.must_do(&writer, &done.missing) {
                            self.give_up(&writer)?;
                        }
                    }
                    return Ok((Stored { set, record: done.record, block: done.block }, pin));
                }
                Err((error, back)) => {
                    // Where another thread left a position out, it is not synced.
                    self.note_lacking(writer.layout().set, &writer.lacking());
                    self.give_up(&writer)?;
                    // That other threads filled the set first is not a failure of its targets.
                    if matches!(error, volume::Error::Invalid(_)) {
                        full += 1;
                    } else {
                        if failures == 0 {
                            self.give_up_failing()?;
                            retries += self.open.lock().len();
                        }
                        failures += 1;
                    }
                    if failures > retries || full > FULL_SETS {
                        return Err(error.into());
                    }
                    buffer = back;
                }
            }
        }
    }

    /// Pin a set while it is open, so that a thread that finds it closed also sees the pin.
    pub(super) fn pin(&self, set: SetId) -> Pin<'_> {
        *self.pinned.lock().entry(set).or_default() += 1;
        Pin { store: self, set }
    }

    /// Whether the set continues without some positions: their targets are full, and no other set
    /// would be better.
    fn must_do(&self, writer: &SetWriter, missing: &[Position]) -> bool {
        let full = |position: &Position| {
            writer.layout().places[position.index()]
                .is_some_and(|id| self.targets.was_full(id) && self.targets.error(id).is_none())
        };
        let sound = |candidate: &&TargetCandidate| !self.targets.was_full(candidate.id);
        missing.iter().all(full) && self.candidates().iter().filter(sound).count() < self.options.code.shape().blocks()
    }

    /// Whether transactions may still name a set and stripes may be written to it.
    pub fn is_ours(&self, set: SetId) -> bool {
        self.sets.is_ours(set) && !self.lost.lock().contains(&set)
    }

    /// Sets that were sealed since the last call.
    pub fn take_sealed(&self) -> Vec<SetId> {
        std::mem::take(&mut *self.sealed.lock())
    }

    /// Whether a set may get more stripes, or a stripe is on its way to it. Does not check for
    /// stripes that only buffers refer to.
    pub fn is_in_use(&self, set: SetId) -> bool {
        self.begins.load(Ordering::SeqCst) || self.has_writer(set)
    }

    /// As `is_in_use`, for a set that no thread is beginning at this moment.
    pub fn has_writer(&self, set: SetId) -> bool {
        self.may_get_more(set) || self.unsynced.lock().iter().any(|writer| writer.layout().set == set)
    }

    /// Whether a sync of a set is due, or has failed: its writer must find the chunks where they
    /// are.
    pub fn is_unsynced(&self, set: SetId) -> bool {
        self.unsynced.lock().iter().any(|writer| writer.layout().set == set && writer.needs_sync())
    }

    /// Waits until the set that is being begun, if any, has its writer.
    pub fn wait_for_begun(&self) {
        drop(self.beginning.lock());
    }

    /// Whether a set may get more stripes, or a stripe is on its way to it or to a buffer.
    pub fn is_being_written(&self, set: SetId) -> bool {
        self.begins.load(Ordering::SeqCst) || self.may_get_more(set)
    }

    fn may_get_more(&self, set: SetId) -> bool {
        self.is_open(set) || self.is_pinned(set)
    }

    /// Whether a stripe is on its way to a set or to a buffer.
    pub(crate) fn is_pinned(&self, set: SetId) -> bool {
        self.pinned.lock().contains_key(&set)
    }
}

//! The chunk sets that stripes are written to. Only the targets of open sets work for a writer, so
//! there are several for a writer of much data. Large stripes go to them in turns, but not to one
//! whose targets are behind. Small stripes stay together, so that they have few chunks to sync, and
//! so do large ones that are soon synced, where another set has no other targets.

use crate::Result;
use crate::data::set_load::Open;
use crate::data::store::{Pin, Store};
use plan::placement::open_sets;
use plan::{Position, SetId, TargetId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use volume::{Sealing, SetLayout, SetWriter, lock};

/// How many sets are open at most.
pub(crate) const MAX_OPEN_SETS: usize = 12;
/// A writer writes this much user data for each open set before it opens another one beside it, in
/// bytes, or a quarter of what a set takes. Each begins chunks on k+m targets, and remains as it is
/// when the writer ends.
const BYTES_BEFORE_NEXT: u64 = 64 << 20;
/// Where all sets are on the same targets, a writer stays with one set for this much user data
/// after a sync, in bytes: a second set does not spread it further, and costs a sync of k+m chunks.
const BYTES_BEFORE_TURNS: u64 = 32 << 20;
/// How many sets that are being described are remembered, to be waited for in the end. The others
/// are described, too, unless the process ends before.
const MAX_SEALING: usize = 32;
/// How long a set that is being described is waited for at most.
const MAX_SEALING_TIME: Duration = Duration::from_secs(1);

/// Of what is on the way to sets, leaves for each of their targets what that one still has to do,
/// in bytes: a stripe that waits for a slow target is no work for the others, which have it. Where
/// a Master distributes stripes, nobody here knows who has what, and all stays.
fn only_queued(waiting: &mut BTreeMap<TargetId, u64>, queued: impl Fn(TargetId) -> u64) {
    if waiting.keys().any(|&id| queued(id) > 0) {
        waiting.iter_mut().for_each(|(&id, bytes)| *bytes = queued(id).min(*bytes));
    }
}

impl Store {
    /// How many sets are best open at the same time.
    fn open_sets_wanted(&self) -> usize {
        let shape = self.options.code.shape();
        open_sets(self.active_targets(), shape.blocks(), shape.k, MAX_OPEN_SETS)
    }

    /// How many stripes should be on their way to keep all targets busy: one while others are coded
    /// where all are on the same targets, four for each set that has targets of its own.
    pub fn stripes_wanted(&self) -> usize {
        match self.active_targets().div_ceil(self.options.code.shape().blocks().max(1)) {
            0 | 1 => 1,
            sets => 4 * sets,
        }
    }

    fn active_targets(&self) -> usize {
        // A client knows the targets, and not which of them are being emptied.
        match self.topology().active().count() {
            0 => self.targets.ids().len(),
            active => active,
        }
    }

    /// The open set for a stripe of so many bytes. Begins a new set if no open set has
    /// space, or if all are busy and more are wanted. After a failed write (`distress`), a new set
    /// takes any targets that it can get: a target may refuse data although it reports space.
    pub(super) fn writer(&self, bytes: usize, distress: bool) -> Result<(Open, Pin<'_>)> {
        let (found, more) = self.best(bytes);
        // One thread begins a set. Others wait for it if they have no other.
        let _turn = match (found, more) {
            (Some(found), false) => return Ok(found),
            (Some(found), true) => match self.beginning.try_lock() {
                Some(turn) => turn,
                None => return Ok(found),
            },
            (None, _) => self.beginning.lock(),
        };
        let (found, more) = self.best(bytes);
        let found = match found {
            Some(found) if !more => return Ok(found),
            found => found,
        };
        let full: Vec<Open> = self.open.lock().extract_if(.., |open| open.writer.full()).collect();
        let mut sealed = Ok(());
        for full in full {
            if let Err(why) = self.seal(&full.writer) {
                // The next call tries again.
                self.open.lock().push(full);
                sealed = Err(why);
            }
        }
        sealed?;
        // Until the set is open here, no thread may treat it as finished.
        self.begins.store(true, Ordering::SeqCst);
        let begun = self.begin(distress);
        self.begins.store(false, Ordering::SeqCst);
        begun.or_else(|why| found.ok_or(why))
    }

    /// The open set for a stripe of so many bytes, of those that are not full; and whether another
    /// one would help.
    fn best(&self, bytes: usize) -> (Option<(Open, Pin<'_>)>, bool) {
        let wanted = self.open_sets_wanted();
        let busy = self.full_stripe() as u64 / 2;
        let mut open = self.open.lock();
        open.retain(|open| self.is_ours(open.writer.layout().set));
        let mut waiting: BTreeMap<TargetId, u64> = BTreeMap::new();
        for Open { writer, load } in open.iter() {
            writer.layout().places.iter().flatten().for_each(|id| *waiting.entry(*id).or_default() += load.on_way());
        }
        // A stripe is there when the last of its targets has it.
        let on_way = |open: &Open, waiting: &BTreeMap<TargetId, u64>| {
            let places = open.writer.layout().places.iter().flatten();
            places.filter_map(|id| waiting.get(id)).max().copied().unwrap_or(0)
        };
        let with_space = || open.iter().filter(|open| !open.writer.full());
        // Also what is still coded: another set has targets for it.
        let all_busy = with_space().all(|open| on_way(open, &waiting) >= busy);
        only_queued(&mut waiting, |id| self.targets.queued(id) as u64 * self.full_stripe() as u64);
        let with_space: Vec<(u64, &Open)> = with_space().map(|open| (on_way(open, &waiting), open)).collect();
        let Some(least) = with_space.iter().map(|&(on_way, _)| on_way).min() else { return (None, true) };
        let is_small = (bytes as u64) < busy;
        // In turns, each target gets as much of each set as the others. A late one makes way: with
        // more than one stripe on its way where another has none, a slow target would soon have all
        // threads wait for it.
        let may_be_next = |(on_way, _): &&(u64, &Open)| *on_way < least + self.full_stripe() as u64;
        // Another thread may sync in between.
        let since_sync = self.written.load(Ordering::Relaxed).saturating_sub(self.synced.load(Ordering::Relaxed));
        let stays = self.stripes_wanted() == 1 && since_sync < BYTES_BEFORE_TURNS;
        let (_, best) = *match with_space.iter().find(|(on_way, _)| is_small && *on_way < busy) {
            Some(first) => first,
            None => {
                let last = self.last_used.load(Ordering::Relaxed);
                let is_next = |set: u64| set > last || stays && set == last;
                let next = with_space.iter().filter(may_be_next).find(|(_, open)| is_next(open.set().0));
                let next = next.or_else(|| with_space.iter().find(may_be_next)).expect("one has the least");
                self.last_used.store(next.1.set().0, Ordering::Relaxed);
                next
            }
        };
        let set_bytes = u64::from(self.options.chunk_bytes) * self.options.code.shape().k as u64;
        let next = BYTES_BEFORE_NEXT.min(set_bytes / 4) * with_space.len() as u64;
        let more = all_busy && with_space.len() < wanted && self.written.load(Ordering::Relaxed) >= next;
        (Some((best.clone(), self.pin(best.writer.layout().set))), more)
    }

    /// Begins a new set.
    fn begin(&self, distress: bool) -> Result<(Open, Pin<'_>)> {
        let (set, record) = self.targets.steps().metadata(|| self.sets.next(self))?;
        let mut layout = self.layout_of(set, &record)?;
        self.leave_out_failing(&mut layout)?;
        let (shape, found) = (self.options.code.shape(), layout.places.iter().flatten().count());
        // With targets missing, the others must do. Up to m lost targets are not an error of the
        // write, but a warning in the status.
        let spare = if distress { 0 } else { self.options.durability.min(found) - shape.k };
        let writer = Arc::new(SetWriter::create(
            self.targets.clone(),
            self.pool.clone(),
            layout,
            self.options.chunk_bytes,
            spare,
        ));
        self.begun_sets.fetch_add(1, Ordering::Relaxed);
        self.unsynced.lock().push(writer.clone());
        let begun = Open { writer, load: Arc::default() };
        let mut open = self.open.lock();
        open.push(begun.clone());
        Ok((begun, self.pin(set)))
    }

    /// Leaves targets out that failed or became late since the set was placed, if the set can be
    /// written without them, so that no write waits for them again.
    fn leave_out_failing(&self, layout: &mut SetLayout) -> Result<()> {
        let placed = Position::placed(&layout.places);
        let (without, with): (Vec<_>, Vec<_>) = placed.partition(|&(_, id)| self.fails(id));
        let without: Vec<Position> = without.into_iter().map(|(position, _)| position).collect();
        if without.is_empty() || with.len() < self.options.code.shape().k {
            return Ok(());
        }
        self.note_lacking(layout.set, &without);
        self.tell_lacking()?;
        without.iter().for_each(|position| layout.places[position.index()] = None);
        Ok(())
    }

    fn fails(&self, id: TargetId) -> bool {
        self.targets.error(id).is_some() || self.targets.hangs(id)
    }

    /// Stops writing to open sets of which too many targets fail: none is worth a wait.
    pub(super) fn give_up_failing(&self) -> Result<()> {
        let writers: Vec<Arc<SetWriter>> = self.open.lock().iter().map(|open| open.writer.clone()).collect();
        let failing = writers.iter().filter(|writer| !writer.can_go_on(|id| self.fails(id)));
        failing.into_iter().try_for_each(|writer| self.give_up(writer))
    }

    /// Stops writing to a set that failed.
    pub(super) fn give_up(&self, writer: &Arc<SetWriter>) -> Result<()> {
        let given_up: Vec<Open> = self.open.lock().extract_if(.., |open| Arc::ptr_eq(&open.writer, writer)).collect();
        given_up.iter().try_for_each(|open| self.seal(&open.writer))
    }

    fn seal(&self, writer: &SetWriter) -> Result<()> {
        let (set, length) = (writer.layout().set, writer.next_record().0);
        if !self.is_ours(set) {
            return Ok(());
        }
        self.sealed.lock().push(set);
        match self.targets.steps().metadata(|| self.meta.seal_set(set, length)) {
            // The set was lost just now.
            Err(_) if !self.is_ours(set) => Ok(()),
            sealed => {
                sealed?;
                writer.seal().into_iter().for_each(|sealing| self.describe(sealing));
                Ok(())
            }
        }
    }

    /// Has chunks described in the background.
    fn describe(&self, sealing: Sealing) {
        let mut all = lock(&self.sealing);
        all.push_back(sealing);
        if all.len() > MAX_SEALING {
            all.pop_front();
        }
    }

    /// Seals the open sets.
    pub fn seal_open(&self) -> Result<()> {
        let open = std::mem::take(&mut *self.open.lock());
        // All leave the list, whatever fails.
        let sealed: Vec<Result<()>> = open.iter().map(|open| self.seal(&open.writer)).collect();
        let sealing = std::mem::take(&mut *lock(&self.sealing));
        sealing.into_iter().for_each(|sealing| sealing.wait(MAX_SEALING_TIME));
        sealed.into_iter().collect()
    }

    /// Whether a set is written to.
    pub(super) fn is_open(&self, set: SetId) -> bool {
        self.open.lock().iter().any(|open| open.writer.layout().set == set) && self.is_ours(set)
    }

    /// For each open set, the targets that have all its stripes, by position.
    pub fn open_places(&self) -> Vec<Vec<Option<TargetId>>> {
        let open = self.open.lock();
        let ours = open.iter().filter(|open| self.is_ours(open.writer.layout().set));
        let places = ours.map(|Open { writer, .. }| {
            let mut places = writer.layout().places.clone();
            writer.missing().into_iter().for_each(|position| places[position.index()] = None);
            places
        });
        places.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::set_load::Busy;
    use crate::testing::{Lab, make};
    use std::collections::BTreeSet;
    use volume::target::Faults;

    #[test]
    fn only_the_targets_that_a_stripe_waits_for_have_work() {
        let of = |all: [u64; 4]| (0..).map(TargetId).zip(all).collect::<BTreeMap<TargetId, u64>>();
        let left = |on_way, queued: [u64; 4]| {
            let mut waiting = of(on_way);
            only_queued(&mut waiting, |id| queued[usize::from(id.0)]);
            waiting
        };
        // The last one is slow; what others read from the second is no write.
        assert_eq!(left([8, 8, 8, 8], [0, 4, 0, 16]), of([0, 4, 0, 8]));
        assert_eq!(left([8, 0, 0, 8], [0, 4, 0, 4]), of([0, 0, 0, 4]));
        assert_eq!(left([8, 8, 4, 4], [0; 4]), of([8, 8, 4, 4]), "a Master has them");
    }

    #[test]
    fn stripes_that_are_soon_synced_stay_together_where_all_sets_are_on_the_same_targets() {
        let fs = Lab::new("rs:4+2", 6).open();
        let store = &fs.store;
        let stripe = store.full_stripe();
        let next = || {
            let (open, _pin) = store.writer(stripe, false).unwrap();
            store.written.fetch_add(stripe as u64, Ordering::Relaxed);
            open
        };
        store.written.store(1 << 40, Ordering::Relaxed);
        // Others are opened while the first are busy.
        let busy: Vec<Busy> = (0..3).map(|_| Busy::new(next().load, stripe)).collect();
        drop(busy);
        assert_eq!(store.open.lock().len(), 3);
        let sets = |stripes: u64| (0..stripes).map(|_| next().set()).collect::<BTreeSet<SetId>>().len();
        let before_turns = BYTES_BEFORE_TURNS / stripe as u64;
        for _ in 0..3 {
            store.sync().unwrap();
            assert_eq!(sets(before_turns), 1);
        }
        assert_eq!(sets(before_turns), 3, "more data without a sync goes to all sets");
    }
    /// All of them were begun before the target failed, and no stripe can be written to any.
    #[test]
    fn a_target_that_all_open_sets_have_fails_and_writing_goes_on() {
        let lab = Lab::new("rs:2+1", 3);
        let (fs, disks) = lab.open_faulty(3);
        let store = &fs.store;
        store.written.store(1 << 40, Ordering::Relaxed);
        let writer = || store.writer(store.full_stripe(), false).unwrap().0;
        let busy: Vec<Busy> =
            (0..store.open_sets_wanted()).map(|_| Busy::new(writer().load, store.full_stripe())).collect();
        drop(busy);
        assert_eq!(store.open.lock().len(), 3);
        disks[1].set(Faults { dead: true, ..Faults::default() });
        fs.write(make(&fs, "file"), 0, &[7; 100_000]).unwrap();
        fs.sync_all().unwrap();
    }
}

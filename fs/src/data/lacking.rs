//! What sets lack: positions that missed stripes. The metadata is told before a transaction names
//! the stripes, so that they are repaired. It is told again if it may have forgotten: a request may
//! fail, and a metadata server that takes over may lack what the one before had not made durable.

use crate::data::store::Store;
use crate::error::lost;
use crate::{Error, Result};
use plan::{Position, SetId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use volume::{SetWriter, Synced};

impl Store {
    /// Remembers positions that a set lacks, until the metadata is told.
    pub(super) fn note_lacking(&self, set: SetId, positions: &[Position]) {
        if !positions.is_empty() {
            let mut lacking = self.lacking.lock();
            let known = lacking.entry(set).or_default();
            positions.iter().for_each(|&position| _ = known.entry(position).or_default());
        }
    }

    /// Tells the metadata what sets lack, if it does not know: it queues them for repair.
    pub(crate) fn tell_lacking(&self) -> Result<()> {
        // A loss while the request is on its way counts, too.
        let losses = self.sets.losses();
        let untold: Vec<(SetId, Vec<Position>)> = {
            let mut lacking = self.lacking.lock();
            // Transactions may not name sets of a session that ended. One that was given up may
            // have stripes that are durable.
            lacking.retain(|&set, _| self.sets.is_ours(set));
            let of = |(&set, positions): (&SetId, &BTreeMap<Position, Option<u64>>)| {
                let untold = positions.iter().filter(|(_, told)| **told != Some(losses));
                (set, untold.map(|(&position, _)| position).collect())
            };
            lacking.iter().map(of).filter(|(_, untold): &(_, Vec<Position>)| !untold.is_empty()).collect()
        };
        // What one set lacks is told whatever happens to the others.
        let mut done = Ok(());
        for (set, positions) in untold {
            let told = self.meta.queue_repair(set, &positions);
            if let (Ok(_), Some(known)) = (&told, self.lacking.lock().get_mut(&set)) {
                positions.iter().for_each(|position| _ = known.insert(*position, Some(losses)));
            }
            done = done.and(told.map(drop));
        }
        Ok(done?)
    }

    /// As `sync`. Afterwards a transaction may name stripes of these sets.
    ///
    /// # Errors
    /// As `sync`, and when one of the sets was given up, perhaps by a sync of another thread: its
    /// stripes may be lost.
    pub fn sync_sets(&self, mut sets: impl Iterator<Item = SetId>) -> Result<()> {
        let unsynced = self.sync_each()?;
        match sets.find(|set| !unsynced.may_name(self, *set)) {
            Some(set) => Err(unsynced.why(set)),
            None => Ok(()),
        }
    }

    /// Returns when all stripes that were written before are durable, each on the required number
    /// of targets, and the metadata knows what their sets lack.
    pub fn sync(&self) -> Result<()> {
        self.sync_each()?.0.into_values().try_for_each(|error| Err(error.into()))
    }

    /// As `sync`. Returns the sets that it failed for: their targets are away, and those of others
    /// may be there.
    pub fn sync_each(&self) -> Result<Unsynced> {
        self.synced.fetch_max(self.written.load(Ordering::Relaxed), Ordering::Relaxed);
        let writers = {
            let mut unsynced = self.unsynced.lock();
            // The chunks of lost sets may be removed.
            unsynced.retain(|writer| self.is_ours(writer.layout().set));
            unsynced.clone()
        };
        let needy: Vec<&Arc<SetWriter>> = writers.iter().filter(|writer| writer.needs_sync()).collect();
        let synced = at_once(&needy, |writer| writer.sync_uncounted());
        // Only the slowest is waited for.
        if let Some(slowest) = synced.iter().filter_map(|synced| synced.cost).max_by_key(|cost| cost.total()) {
            self.targets.steps().add_sync(&slowest);
        }
        // A set may lack more than this sync found: another thread whose write failed may not have
        // told it yet.
        writers.iter().for_each(|writer| self.note_lacking(writer.layout().set, &writer.lacking()));
        let told = self.tell_lacking();
        let (mut done, mut unsynced) = (Ok(()), Unsynced::default());
        for (writer, Synced { missing, .. }) in needy.into_iter().zip(synced) {
            match missing {
                Ok(missing) if missing.is_empty() => {}
                Ok(_) => done = done.and(self.give_up(writer)),
                Err(error) => {
                    if writer.has_lost() {
                        _ = self.give_up(writer);
                        self.lost.lock().insert(writer.layout().set);
                    }
                    unsynced.0.insert(writer.layout().set, error);
                }
            }
        }
        done.and(told)?;
        let left = self.forget_synced_of(&writers);
        if !self.sets.may_lose() {
            self.lacking.lock().retain(|set, known| left.contains(set) || known.values().any(Option::is_none));
        }
        Ok(unsynced)
    }

    /// Forgets writers whose sets were given up without a stripe that is not durable: no sync does
    /// it if nothing is written any more.
    pub(crate) fn forget_synced(&self) {
        let writers = self.unsynced.lock().clone();
        self.forget_synced_of(&writers);
    }

    /// Of these writers, forgets those that have nothing to sync and get nothing more. Returns the
    /// sets of all that are left.
    fn forget_synced_of(&self, writers: &[Arc<SetWriter>]) -> Vec<SetId> {
        // A set that is being begun has a writer before it is open.
        let begins = self.begins.load(Ordering::SeqCst);
        let open: Vec<Arc<SetWriter>> = self.open.lock().iter().map(|open| open.writer.clone()).collect();
        // Only open sets get more stripes, and those that a thread has chosen for one already. But
        // a set that was opened after the list was copied stays on it.
        let mut unsynced = self.unsynced.lock();
        unsynced.retain(|writer| {
            let is_in = |list: &[Arc<SetWriter>]| list.iter().any(|other| Arc::ptr_eq(other, writer));
            // The pin ends after its stripe is written.
            let is_left =
                begins || !is_in(writers) || is_in(&open) || self.is_pinned(writer.layout().set) || writer.needs_sync();
            // A sync that still runs for others may have found what this one lacks.
            if !is_left {
                self.note_lacking(writer.layout().set, &writer.lacking());
            }
            is_left
        });
        unsynced.iter().map(|writer| writer.layout().set).collect()
    }
}

/// The sets that a sync failed for, with why.
#[derive(Default)]
pub(crate) struct Unsynced(BTreeMap<SetId, volume::Error>);

impl Unsynced {
    /// Whether a transaction may name stripes that were written to a set before that sync: it did
    /// not fail for the set, and no sync of another thread gave the set up.
    pub fn may_name(&self, store: &Store, set: SetId) -> bool {
        !self.0.contains_key(&set) && store.is_ours(set)
    }

    /// Why no transaction may name stripes of a set.
    pub fn why(mut self, set: SetId) -> Error {
        self.0.remove(&set).map_or_else(lost, Error::from)
    }
}

/// Does something with all of them at the same time.
fn at_once<T: Sync, R: Send>(all: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let Some((first, others)) = all.split_first() else { return Vec::new() };
    std::thread::scope(|scope| {
        let running: Vec<_> = others.iter().map(|one| scope.spawn(|| work(one))).collect();
        let mut done = vec![work(first)];
        let join = |thread: std::thread::ScopedJoinHandle<'_, R>| {
            thread.join().unwrap_or_else(|why| std::panic::resume_unwind(why))
        };
        done.extend(running.into_iter().map(join));
        done
    })
}

#[cfg(test)]
mod tests {
    use crate::FileSystem;
    use crate::data::set_load::Open;
    use crate::testing::{Lab, Way, make};
    use plan::{Position, StripeSeq, TargetId};
    use session::transport::Call;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::{Duration, Instant};
    use volume::steps::Mark;
    use volume::target::{Faults, Target, TargetFile};
    use volume::{Control, StripeBuffer, WriteStep};

    fn stripe(fs: &FileSystem) -> StripeBuffer {
        let mut buffer = fs.store.pool.take();
        buffer.extend_from_slice(&[7; 10_000]);
        buffer
    }

    /// The set is full, or another thread gave it up, while a stripe is on its way to it. Others
    /// sync meanwhile.
    #[test]
    fn a_stripe_that_arrives_after_its_set_was_sealed_is_synced() {
        let lab = Lab::new("rs:2+1", 3);
        let fs = lab.open();
        let (Open { writer, .. }, pin) = fs.store.writer(1, false).unwrap();
        fs.store.give_up(&writer).unwrap();
        fs.store.sync().unwrap();
        let arrived = writer.append(stripe(&fs), StripeSeq(1), b"").map_err(|(why, _)| why).unwrap();
        assert!(arrived.missing.is_empty() && writer.has_unsynced());
        drop(pin);
        fs.store.sync().unwrap();
        assert!(!writer.has_unsynced());
        assert!(!fs.store.has_writer(writer.layout().set), "nothing is left to be synced");
    }

    /// The set was begun without a target that works again: it is given up, though nothing more is
    /// written, so that it can be repaired.
    #[test]
    fn an_idle_client_gives_back_a_set_that_lacks_a_target() {
        let lab = Lab::new("rs:2+1", 3);
        let fs = lab.client();
        fs.store.targets.failed(TargetId(1), &std::io::Error::other("it is away"));
        let ino = make(&fs, "file");
        fs.write(ino, 0, &[1; 100_000]).unwrap();
        fs.sync(ino).unwrap();
        let lacks = |places: &Vec<Option<TargetId>>| places.contains(&None);
        let set = fs.store.open.lock().iter().find(|open| lacks(&open.writer.layout().places)).unwrap().set();
        let begun = Instant::now();
        // The thread that probes targets forgives this one.
        while fs.client().unwrap().sets.taken().contains(&set) {
            assert!(begun.elapsed() < Duration::from_secs(120), "it is held");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// One sync gives the set up. The next one has nothing to do, and the stripes are lost.
    #[test]
    fn no_transaction_names_a_set_that_another_sync_gave_up() {
        let lab = Lab::new("rs:2+1", 3);
        let fs = lab.open();
        let (Open { writer, .. }, _pin) = fs.store.writer(1, false).unwrap();
        writer.append(stripe(&fs), StripeSeq(1), b"").map_err(|(why, _)| why).unwrap();
        let set = writer.layout().set;
        for (position, target) in Position::placed(&writer.layout().places).take(2) {
            lab.by_hand(target.0.into()).remove(TargetFile::Chunk { set, position }).unwrap();
        }
        fs.store.sync().unwrap_err();
        fs.store.sync().unwrap();
        fs.store.sync_sets([set].into_iter()).unwrap_err();
        assert!(!fs.store.is_ours(set));
    }

    /// Nothing is counted twice, and nothing that another thread counted is taken for client tasks.
    #[test]
    fn of_sets_that_are_synced_at_the_same_time_the_slowest_counts() {
        let lab = Lab::new("rs:2+1", 3);
        let fs = lab.open();
        let writers = [(); 3].map(|()| {
            let (Open { writer, .. }, _pin) = fs.store.writer(1, false).unwrap();
            writer.append(stripe(&fs), StripeSeq(1), b"").map_err(|(why, _)| why).unwrap();
            fs.store.give_up(&writer).unwrap();
            writer
        });
        let of = |step| fs.store.targets.steps().totals().of(step);
        let (before, begun, mark) = (of(WriteStep::Slave).count, Instant::now(), Mark::now());
        let counted = || of(WriteStep::Distribution).time + of(WriteStep::Slave).time;
        let earlier = counted();
        fs.store.sync().unwrap();
        let (rest, took) = (mark.rest(), begun.elapsed());
        assert!(writers.iter().all(|writer| !writer.has_unsynced()));
        assert_eq!(of(WriteStep::Slave).count, before + 1);
        assert!(counted() > earlier && counted() - earlier + rest <= took);
    }

    /// Counts what the server is told of lacking positions, and refuses it at first.
    struct Counting {
        way: Way,
        refuses: Arc<AtomicBool>,
        told: Arc<AtomicUsize>,
    }

    impl Call for Counting {
        fn call(&self, operation: u16, arguments: &[u8]) -> meta::Result<Vec<u8>> {
            const QUEUE_REPAIR: u16 = 23;
            if operation == QUEUE_REPAIR {
                if self.refuses.load(Ordering::SeqCst) {
                    return Err(meta::Error::Unavailable("it does not answer".into()));
                }
                self.told.fetch_add(1, Ordering::SeqCst);
            }
            self.way.call(operation, arguments)
        }
    }

    #[test]
    fn what_a_server_was_not_told_or_may_have_forgotten_is_told_again() {
        let lab = Lab::new("rs:2+1", 3);
        let (refuses, told) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
        let fs = lab.client_over(|way| Counting { way, refuses: refuses.clone(), told: told.clone() });
        let told = || told.load(Ordering::SeqCst);
        let (Open { writer, .. }, _pin) = fs.store.writer(1, false).unwrap();
        fs.store.note_lacking(writer.layout().set, &[Position(1)]);
        fs.store.sync().unwrap_err();
        assert_eq!(told(), 0);
        refuses.store(false, Ordering::SeqCst);
        fs.store.sync().unwrap();
        fs.store.sync().unwrap();
        assert_eq!(told(), 1);
        // As after the answer of a server that took over.
        fs.client().unwrap().sets.keep(&[], &[]);
        let ino = make(&fs, "file");
        fs.write(ino, 0, &[1; 100_000]).unwrap();
        fs.sync(ino).unwrap();
        fs.store.tell_lacking().unwrap();
        assert_eq!(told(), 2);
    }

    /// One target missed a stripe, and another one is away: the chunk on the third stays where its
    /// writer syncs it.
    #[test]
    fn a_chunk_that_must_be_synced_stays_where_it_is() {
        let lab = Lab::new("rs:2+1", 4);
        let (fs, disks) = lab.open_faulty(2);
        let away = |target: u16, away: bool| disks[usize::from(target)].set(Faults { away, ..Faults::default() });
        let begun = Instant::now();
        let is_late = || begun.elapsed() > Duration::from_secs(120);
        let (ino, bytes) = (make(&fs, "file"), vec![7; 100_000]);
        fs.open(ino, true).unwrap();
        let (set, places) = {
            let (open, _pin) = fs.store.writer(1, false).unwrap();
            (open.set(), open.writer.layout().places.clone())
        };
        let places: Vec<u16> = places.into_iter().map(|place| place.unwrap().0).collect();
        away(places[1], true);
        fs.write(ino, 0, &bytes).unwrap();
        fs.flush(&[(*fs.table.enter(ino)).clone()], false).unwrap();
        away(places[2], true);
        fs.sync(ino).unwrap_err();
        assert!(!fs.table.uncommitted_in(set).is_empty(), "the stripe is in that set");
        let all = fs.engine().unwrap().meta.set(set).unwrap().places;
        let done = fs.repair_where(
            &Control::default(),
            |record, _| if record.places == all { vec![Position(0)] } else { vec![] },
        );
        assert_eq!(done.unwrap().chunks, 0);
        assert_eq!(fs.engine().unwrap().meta.set(set).unwrap().places, all);
        away(places[1], false);
        away(places[2], false);
        while let Err(why) = fs.sync(ino) {
            assert!(!is_late(), "{why}");
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut read = vec![0; bytes.len()];
        assert_eq!(fs.read(ino, 0, &mut read).unwrap(), bytes.len());
        assert_eq!(read, bytes);
    }
}

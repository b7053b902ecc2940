//! The engine itself: commits and reads.

use super::claim::bystanders::set_bystanders;
use super::claim::claims::{self, claim, give_back};
use super::claim::hold::Hold;
use super::claim::renewal;
use super::files::Files;
use super::frame::{Epoch, Origin, take_edit};
use super::guard::guarded;
use super::local_wal::{self, LocalWal};
use super::mirrors::relocate::{clear, set_targets};
use super::mirrors::retry;
use super::mirrors::writer::Writer;
use super::opening::inventory::{Owner, ask, take, take_all};
use super::opening::lineage::Lineage;
use super::opening::recover::{Chosen, Recovered, check, recover};
use super::opening::resync::wanted;
use super::options::{MirrorTarget, Options, Standing, Status, closed, defect, fenced};
use super::shared::{Layers, Setup, Shared, Start, Tasks};
use super::snapshots::checkpointer;
use crate::kv::{
    Batch, Committed, Index, IndexState, Kv, KvError, Layered, MergeFn, Order, Pair, View, Visit, resolve, scan,
    scan_with_previous,
};
use crate::ranks::{Changes, CommitOrder};
use plan::{TargetId, TxId};
use std::ops::{Bound, Range};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use volume::lock;
use volume::ranked::{Ranked, ReadGuard};
use volume::target::{ClaimRequest, TargetFile};

/// A durable engine: an index in front of a journal on several targets. See the module.
pub struct Journaled {
    shared: Arc<Shared>,
    merge: MergeFn,
    /// Held by one commit at a time.
    order: Ranked<(), CommitOrder>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Tells the thread that renews the claim to end, and whether to give the claim back.
    release: Sender<bool>,
    upgraded: bool,
}

impl Journaled {
    /// Creates the metadata of a new volume, empty and durable, on m+2 of the targets.
    ///
    /// # Errors
    /// Returns an error when a target already holds metadata or cannot be claimed, or when fewer
    /// than m+1 targets accept it.
    pub fn create(options: Options) -> Result<Self, KvError> {
        let volume = check(&options)?;
        let found = take_all(&options.targets, &volume, options.limits.deadline);
        for ((id, _), found) in options.targets.iter().zip(found) {
            match found {
                Ok(found) if found.is_empty() => {}
                Ok(_) => return Err(KvError::Unavailable(format!("target {} holds metadata already", id.0))),
                Err(error) => return Err(KvError::Unavailable(format!("target {}: {error}", id.0))),
            }
        }
        let granted = claim(&options, 0)?;
        if let Some((id, why)) = granted.missing.first() {
            give_back(&options, &granted);
            return Err(KvError::Unavailable(format!("target {}: {why}", id.0)));
        }
        let epoch = Epoch { number: granted.epoch.number, first: TxId(1), id: granted.epoch.id };
        let base = IndexState { owner: volume, epoch: epoch.number, id: epoch.id, applied: TxId(0) };
        options.index.clear()?;
        options.index.apply(&mut std::iter::empty(), base, false)?;
        let files = Files { due: options.limits.snapshot_bytes, ..Files::default() };
        let chosen = options.targets.iter().take(wanted(&options)).cloned();
        let chosen = chosen.map(|place| Chosen { place, whole: false, lacks: None }).collect();
        let (origin, lineage) = (Origin::default(), Lineage::default());
        let start = Start { epoch, origin, lineage, base, last: TxId(0), files, lossy: false };
        // Without an initial snapshot, an empty volume would look like a lost one.
        let (incomplete, stale, upgraded) = (true, Vec::new(), false);
        let engine = Self::start(
            options,
            Recovered { start, chosen, incomplete, stale, granted, upgraded, hold: Hold::default() },
            true,
        )?;
        if !engine.shared.log().established {
            return Err(KvError::NoSpace);
        }
        Ok(engine)
    }

    /// Opens the metadata of a volume: everything that was synced, and the transactions committed
    /// after that, up to some point. Earlier openings are over: what they still do is refused.
    ///
    /// # Errors
    /// `TooFew` when more targets are missing than may be, `Held` while another holder's lease
    /// runs; `Unavailable` when no target has enough of this volume; `Corrupt` when transactions
    /// that were durable are on no target.
    pub fn open(options: Options) -> Result<Self, KvError> {
        check(&options)?;
        let recovered = recover(&options)?;
        if let Some(directory) = &options.local_wal {
            // Before any target shows this epoch: the next opening finds what earlier ones left
            // only when none is missing between.
            let (epoch, before) = (recovered.start.epoch, recovered.start.origin.before);
            if let Err(why) = LocalWal::begin(directory, &options.volume, epoch, before) {
                // Another server may have no such trouble.
                let Recovered { hold, granted, .. } = recovered;
                hold.end(options.limits.deadline);
                give_back(&options, &granted);
                return Err(local(directory)(why));
            }
        }
        Self::start(options, recovered, false)
    }

    /// Starts the local WAL: from now on, committed transactions are kept in files in a directory
    /// of this machine until they are on targets. First commits what earlier files still hold.
    /// Nothing that was committed is then lost when this process is killed, although it is not
    /// durable before `sync`. Call this before the first commit.
    ///
    /// # Errors
    /// Returns an error when the directory cannot be used, or its old contents cannot be committed.
    pub fn keep_local_wal(&self, directory: &Path) -> Result<(), KvError> {
        let failed = local(directory);
        let (epoch, before) = (self.shared.epoch, self.shared.origin.before);
        let left = local_wal::left(directory, &self.shared.volume, epoch, before).map_err(&failed)?;
        self.shared.log().wal = Some(LocalWal::begin(directory, &self.shared.volume, epoch, before).map_err(&failed)?);
        for record in left {
            let (mut batch, mut rest) = (Batch::default(), &record[..]);
            while let Some((key, value)) = take_edit(&mut rest) {
                match value {
                    Some(value) => batch.put(key.to_vec(), value.to_vec()),
                    None => batch.delete(key.to_vec()),
                };
            }
            self.commit(batch)?;
        }
        self.sync(TxId::MAX)?;
        LocalWal::forget_before(directory, epoch).map_err(failed)
    }

    /// Starts the threads, and waits until the epoch is established: m+1 mirrors have the whole
    /// state and a barrier. With `fresh`, there is no state yet.
    fn start(options: Options, recovered: Recovered, fresh: bool) -> Result<Self, KvError> {
        let Options {
            volume, targets: places, voters, losses, access, accept_loss, limits, lease, index, merge, ..
        } = options;
        let Recovered { start, chosen, incomplete, stale, granted, upgraded, hold } = recovered;
        let voters = voters.len();
        let setup = Setup { volume, places, voters, losses, access, accept_loss, limits, lease, index };
        let last = start.last;
        let shared = Arc::new(Shared::new(setup, start, &granted));
        let (release, stop) = channel();
        let (order, threads) = (Ranked::default(), Mutex::default());
        let engine = Self { shared, merge, order, threads, release, upgraded };
        let writer = Writer::begin(engine.shared.clone(), &chosen, last, fresh);
        if incomplete {
            engine.shared.task(|tasks| tasks.snapshot = true);
        }
        engine.spawn("weft-journal", move |_| writer.run())?;
        engine.spawn("weft-checkpoint", checkpointer::run)?;
        engine.spawn("weft-retry", |shared| retry::run(shared))?;
        engine.spawn("weft-lease", move |shared| renewal::run(shared, &stop))?;
        drop(hold);
        if let Err(error) = engine.shared.wait_established() {
            engine.shared.stop();
            engine.end(true);
            return Err(error);
        }
        let blank: Vec<MirrorTarget> =
            granted.blank.iter().map(|&place| engine.shared.files().places[place].clone()).collect();
        clean(&engine.shared, stale, &blank);
        Ok(engine)
    }

    /// Waits for the threads. With `release`, the claim is given back after the last write.
    fn end(&self, release: bool) {
        let threads = std::mem::take(&mut *lock(&self.threads));
        let (lease, others): (Vec<_>, Vec<_>) =
            threads.into_iter().partition(|thread| thread.thread().name() == Some("weft-lease"));
        for thread in others {
            // A panic has failed the engine; only that the thread has ended matters here.
            let _ = thread.join();
        }
        // A claim that another opening has taken is not touched.
        let release = release && self.shared.fenced().is_none();
        let _ = self.release.send(release);
        for thread in lease {
            let _ = thread.join();
        }
    }

    fn spawn(&self, name: &'static str, run: impl FnOnce(&Arc<Shared>) + Send + 'static) -> Result<(), KvError> {
        let shared = self.shared.clone();
        let thread = Builder::new().name(name.into()).spawn(move || guarded(&shared, name, || run(&shared)));
        let thread = thread.map_err(|error| KvError::Unavailable(error.to_string()))?;
        lock(&self.threads).push(thread);
        Ok(())
    }

    /// Whether this opening has just upgraded the volume from format 1, which has no claims.
    pub fn is_upgrade(&self) -> bool {
        self.upgraded
    }

    /// The epoch of this opening.
    pub fn epoch(&self) -> volume::target::Epoch {
        self.shared.claim.epoch
    }

    /// Claims a target that is about to become one of the volume's: one that was in it before
    /// refuses all that is done without the claim. It counts at once if m+1 mirrors have
    /// everything.
    ///
    /// # Errors
    /// Those of [`volume::target::Target::claim`].
    pub fn claim_new(&self, target: &dyn volume::target::Target) -> std::io::Result<()> {
        let state = target.claim(&self.shared.claim_request())?;
        if state.blank == 0 || !self.shared.has_others(None) {
            return Ok(());
        }
        match self.shared.witnesses().see() {
            Ok(()) => claims::whole(target, &state).map(drop),
            Err(error) if fenced(&error).is_some() => Err(error),
            // It counts later.
            Err(_) => Ok(()),
        }
    }

    /// What is known now of the claim; waits for nothing.
    pub fn standing(&self) -> Standing {
        match () {
            () if self.shared.fenced().is_some() => Standing::Fenced,
            () if self.shared.lease.is_fresh() => Standing::Fresh,
            () if self.shared.log().failed.is_some() => Standing::Failed,
            () => Standing::Late,
        }
    }

    /// Whether reads within this time wait for no renewal of the lease.
    pub fn lease_lasts(&self, time: std::time::Duration) -> bool {
        self.shared.lease.lasts(time)
    }

    /// Whether what was read until now may be answered: no other opening has taken the volume over.
    /// Every read checks this; a caller that answers from its own memory asks. Waits a little for a
    /// late renewal of the lease.
    ///
    /// # Errors
    /// `Fenced` when another opening has taken over, `Unavailable` when the lease has run out.
    pub fn check_fresh(&self) -> Result<(), KvError> {
        self.shared.check_fresh()
    }

    /// Makes sure that no committed transaction is lost with this process or with this machine's
    /// power: each is on targets or synced in the files of [`Self::keep_local_wal`]. Returns
    /// whether it succeeded.
    pub fn keep(&self) -> bool {
        let log = self.shared.log();
        log.durable == log.last || log.wal.as_ref().is_some_and(|wal| wal.sync().is_ok())
    }

    /// Returns the engine's status.
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Whether there is space for more metadata, in addition to `promised` bytes that were promised
    /// space. If not, commit only changes that free space in the end: a snapshot must fit beside
    /// the old one before any space is freed.
    pub fn takes_more(&self, promised: u64) -> bool {
        self.shared.slack.load(Ordering::Relaxed) > 2 * promised.cast_signed()
    }

    /// Retries failed targets soon if mirrors are missing. On its own, the engine retries them less
    /// and less often.
    pub fn retry(&self) {
        self.shared.retry();
    }

    /// Makes a snapshot now and waits for it. If the snapshot fails, [`Self::status`] says why.
    ///
    /// # Errors
    /// Returns an error when the engine has failed.
    pub fn checkpoint(&self) -> Result<(), KvError> {
        self.shared.checkpoint()
    }

    /// Sets the volume's voters. The journal leaves all other targets, reachable or not, and takes
    /// new mirrors where some were missing. Afterwards as many targets as wanted, or as exist, hold
    /// everything again, and this volume's journal and snapshots are removed from the old targets,
    /// if they allow it. Commits continue meanwhile. A target that failed and comes as another
    /// `Arc` counts as new. A target with the same id as the one it replaces counts as the same
    /// target in another place, so nothing is removed from the replaced one. Until this returns,
    /// and also when it fails, the journal may be on a mix of old and new targets, and
    /// [`Self::open`] needs both.
    ///
    /// # Errors
    /// `Invalid` for an empty list or a duplicate id; `Unavailable` when too few of the targets
    /// accept the journal: the engine then continues with the previous ones. Also when the engine
    /// has failed or is closed.
    pub fn set_targets(&self, targets: Vec<MirrorTarget>) -> Result<(), KvError> {
        set_targets(&self.shared, targets)
    }

    /// Those of the targets that have the claim of this opening, and answer.
    pub fn claimed(&self, targets: Vec<MirrorTarget>) -> Vec<MirrorTarget> {
        let (count, deadline, epoch) = (targets.len(), self.shared.limits.deadline, self.epoch());
        let shown = ask(&targets, count, count, deadline, move |target| {
            target.claim(&ClaimRequest::Read)?.check(Some(epoch)).map_err(Into::into)
        });
        targets.into_iter().zip(shown).filter(|(_, shown)| shown.is_ok()).map(|(target, _)| target).collect()
    }

    /// Removes the journal and the snapshots from targets that have lost their votes while they
    /// were away. What cannot be removed remains.
    pub fn clear(&self, targets: &[MirrorTarget]) {
        clear(&self.shared, targets);
    }

    /// Tells of a new label: its generation, which the claim names from now on, so that standbys
    /// look for the label, and the number of its voters.
    pub fn set_label(&self, generation: u64, voters: usize) {
        self.shared.generation.store(generation, Ordering::Relaxed);
        self.shared.voters.store(voters, Ordering::Relaxed);
    }

    /// Sets the targets of the volume that do not vote: they get no journal, and the claim, so that
    /// they refuse what earlier openings do. One that does not answer is claimed later, if the
    /// claim has a lease. Call it after the opening, and when one of them is opened again.
    ///
    /// # Errors
    /// `Fenced` when another opening has taken over.
    pub fn set_bystanders(&self, targets: Vec<MirrorTarget>) -> Result<(), KvError> {
        set_bystanders(&self.shared, targets)
    }

    /// Makes everything durable in the journal and in the index, and closes the engine: it accepts
    /// no more commits. The claim is given back, so nothing is read any more. It may be called
    /// again.
    ///
    /// # Errors
    /// Returns an error when durability cannot be confirmed.
    pub fn close(&self) -> Result<(), KvError> {
        let last = {
            // A commit that has begun finishes first.
            let _order = self.order.lock();
            self.shared.refuse()
        };
        self.shared.sync(last)?;
        self.flush()?;
        self.shared.stop();
        self.shared.give_back();
        self.end(true);
        Ok(())
    }

    /// Ends the engine and closes its index, so that this process can open the index again. Works
    /// after a `close` that failed, and while others have references to the engine. Waits only for
    /// operations that use the index now. A claim that `close` did not give back stays until its
    /// lease ends, as when the process dies.
    pub fn release(&self) {
        self.shared.stop();
        // Changes that are not in the index can still be read, and may be old.
        self.shared.give_back();
        // After a close the thread has ended.
        let _ = self.release.send(false);
        self.shared.index.close();
    }

    /// Moves everything to the index, durably.
    fn flush(&self) -> Result<(), KvError> {
        let seen = self.shared.tasks().flushes;
        self.shared.task(|tasks| tasks.flush = true);
        // Flush twice: a flush that is already under way may have missed the last commits.
        drop(self.shared.wait_tasks(|tasks| tasks.flushes > seen || tasks.stop)?);
        {
            // It has not, as a rule, and each flush syncs the index.
            let layers = self.layers();
            if layers.active.is_empty() && layers.frozen.is_none() {
                return Ok(());
            }
        }
        self.shared.task(|tasks| tasks.flush = true);
        self.shared.wait_tasks(|tasks| tasks.flushes > seen + 1 || tasks.stop).map(drop)
    }

    fn layers(&self) -> ReadGuard<'_, Layers, Changes> {
        self.shared.layers()
    }

    fn layered<'a>(&'a self, layers: &'a Layers) -> Layered<'a> {
        Layered { layers: [Some(&layers.active), layers.frozen.as_deref()], base: &self.shared.index }
    }

    /// Waits while the checkpointer cannot keep up.
    fn wait_for_memory(&self) -> Result<(), KvError> {
        let limit = self.shared.limits.overlay_bytes;
        while self.layers().active.bytes() >= limit.saturating_mul(2) {
            let seen = self.shared.tasks().flushes;
            self.shared.task(|tasks| tasks.flush = true);
            let flushed = |tasks: &Tasks| tasks.flushes > seen || tasks.stop;
            let (is_flushed, stop) = {
                let tasks = self.shared.wait_tasks_while(|log| log.stuck.is_none(), flushed)?;
                (flushed(&tasks), tasks.stop)
            };
            if stop {
                return Err(closed());
            }
            if !is_flushed && let Some(why) = self.shared.stuck() {
                return Err(why);
            }
        }
        Ok(())
    }
}

impl Kv for Journaled {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        let above = {
            let layers = self.layers();
            self.layered(&layers).above(key)
        };
        // If a flush ends at this point, the index has the layer's value or a newer one.
        let value = above.map_or_else(|| self.shared.index.get(key), Ok)?;
        self.shared.check_fresh().map(|()| value)
    }

    fn scan(&self, range: Range<&[u8]>, limit: usize) -> Result<Vec<Pair>, KvError> {
        let found = {
            let layers = self.layers();
            scan(&self.layered(&layers), range, limit, Order::Ascending)?
        };
        self.shared.check_fresh().map(|()| found)
    }

    fn scan_back(&self, range: Range<&[u8]>, limit: usize) -> Result<Vec<Pair>, KvError> {
        let found = {
            let layers = self.layers();
            scan(&self.layered(&layers), range, limit, Order::Descending)?
        };
        self.shared.check_fresh().map(|()| found)
    }

    fn scan_with_previous(&self, floor: &[u8], range: Range<&[u8]>, limit: usize) -> Result<Vec<Pair>, KvError> {
        let found = {
            let layers = self.layers();
            scan_with_previous(&self.layered(&layers), floor, range, limit)?
        };
        self.shared.check_fresh().map(|()| found)
    }

    fn snapshot(&self, visit: Visit<'_>) -> Result<TxId, KvError> {
        let (active, frozen, base) = {
            let layers = self.layers();
            (layers.active.clone(), layers.frozen.clone(), self.shared.index.view()?)
        };
        let view = Layered { layers: [Some(&active), frozen.as_deref()], base: &*base };
        view.visit(Bound::Unbounded, Bound::Unbounded, Order::Ascending, visit)?;
        self.shared.check_fresh().map(|()| active.last)
    }

    fn commit(&self, batch: Batch) -> Result<Committed, KvError> {
        self.shared.wait_for_space()?;
        self.wait_for_memory()?;
        let Ok(order) = self.order.lock_sound() else {
            // A commit that panicked may have done a part of its work.
            self.shared.fail(&defect());
            return Err(defect());
        };
        let (resolved, last) = {
            let layers = self.layers();
            (resolve(batch, &self.layered(&layers), self.merge)?, layers.active.last)
        };
        if resolved.edits.is_empty() {
            return Ok(Committed { seq: last, merged: resolved.merged });
        }
        let seq = self.shared.append(&resolved.edits)?;
        let full = {
            let mut layers = self.shared.layers_mut();
            for (key, value) in &resolved.edits {
                layers.active.insert(key, value.as_deref());
            }
            layers.active.last = seq;
            layers.active.bytes() >= self.shared.limits.overlay_bytes && layers.frozen.is_none()
        };
        drop(order);
        if full {
            self.shared.task(|tasks| tasks.flush = true);
        }
        Ok(Committed { seq, merged: resolved.merged })
    }

    fn sync(&self, seq: TxId) -> Result<(), KvError> {
        self.shared.sync(seq)
    }
}

impl Drop for Journaled {
    fn drop(&mut self) {
        self.shared.stop();
        // The claim stays, as when the process dies: a journal that was not closed may be
        // incomplete.
        self.end(false);
    }
}

/// Removes files of other histories, which no opening reads, and claims targets that were blank:
/// the new epoch is established.
fn clean(shared: &Shared, stale: Vec<(MirrorTarget, TargetFile)>, blank: &[MirrorTarget]) {
    let deadline = shared.limits.deadline;
    claims::take_all(shared, blank);
    let mut places: Vec<MirrorTarget> = Vec::new();
    for (place, _) in &stale {
        if places.iter().all(|(id, _)| *id != place.0) {
            places.push(place.clone());
        }
    }
    let mirrors: Vec<TargetId> = shared.files().mirrors.iter().map(|(id, _)| *id).collect();
    places.retain(|(id, _)| !mirrors.contains(id));
    let ours = shared.lineage.clone();
    let volume = shared.volume;
    let count = places.len();
    // What remains is removed another time.
    ask(&places, count, count, deadline, move |target| {
        for found in take(target, &volume)? {
            if let Owner::Ours(head) = &found.owner
                && !ours.has(head.epoch.name())
            {
                target.remove(found.file)?;
            }
        }
        Ok(())
    });
}

/// The places themselves are of no use without their ids.
impl std::fmt::Debug for Journaled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let places: Vec<u16> = self.shared.files().places.iter().map(|(id, _): &MirrorTarget| id.0).collect();
        f.debug_struct("Journaled").field("places", &places).field("status", &self.status()).finish_non_exhaustive()
    }
}

/// The error of a file of this machine.
fn local(directory: &Path) -> impl Fn(std::io::Error) -> KvError {
    move |why| KvError::Local(format!("{}: {why}", directory.display()))
}

//! The metadata cache of a client. While it is the only client of its volume, it keeps attributes,
//! names and extents, and so saves requests to the server. With other clients, every request goes
//! to the server.
//!
//! The cache is the port that the rest of the client uses. Changes go through it, too; it drops
//! what they affect before and after.

mod cached;
mod exclusive;
mod unsynced;

pub(crate) use exclusive::ExclusiveLease;

use crate::ranks::{CachedNames, Reclaiming, UnsyncedChanges};
use ::volume::ranked::Ranked;
use ::volume::target::boot_time;
use cached::{Asked, CachedState, Concerned, Now};
use meta::{
    AttributeChange, Attributes, BulkFile, BulkResult, ContentEdit, DeadStripe, Error, FileKind, KeyPage, Listed,
    MAX_EXTENTS, New, Removed, Rename, Result, SetRecord, Time, Totals,
};
use plan::{Extent, Ino, Position, RecordOffset, SetId, TxId};
use session::port::{Opening, Port, opening_of_answer};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use unsynced::{Answered, Unsynced};

/// The number of directory entries that are read together when names of a directory are looked up
/// one by one.
const PAGE: usize = 1000;

/// A port with a cache.
pub(crate) struct Cache {
    port: Arc<dyn Port>,
    exclusive: Arc<ExclusiveLease>,
    cached: Ranked<CachedState, CachedNames>,
    unsynced: Ranked<Unsynced, UnsyncedChanges>,
    /// How often changes turned out to be lost with a server.
    losses: AtomicU64,
    /// Held while the session is reclaimed: an answer that arrives meanwhile may come from another
    /// server, and which one is not known yet.
    pub taking_up: Ranked<(), Reclaiming>,
}

impl Cache {
    /// Creates a cache that forwards misses to this port, to the server of an opening.
    pub fn new(port: Arc<dyn Port>, exclusive: Arc<ExclusiveLease>, opening: Opening) -> Self {
        Self {
            port,
            exclusive,
            cached: Ranked::default(),
            unsynced: Ranked::new(Unsynced::new(opening)),
            losses: AtomicU64::new(0),
            taking_up: Ranked::default(),
        }
    }

    /// The opening whose server this client uses.
    pub fn opening(&self) -> Opening {
        self.unsynced.lock().opening()
    }

    /// The server of another opening took over; it has the transactions of the one before up to
    /// `recovered`. Returns whether changes are lost that were not synced.
    pub fn take_over(&self, opening: Opening, recovered: TxId) -> bool {
        let lost = {
            let mut unsynced = self.unsynced.lock();
            if opening != unsynced.opening() {
                self.cached.lock().take_over();
            }
            unsynced.take_over(opening, recovered)
        };
        self.losses.fetch_add(lost.into(), Ordering::SeqCst);
        lost
    }

    /// How often changes turned out to be lost with a server.
    pub fn losses(&self) -> u64 {
        self.losses.load(Ordering::SeqCst)
    }

    /// Whether changes of a file or directory may be lost and this was not reported so far: to a
    /// program that closed it, or to one that synced it.
    pub fn tell_lost(&self, ino: Ino, at_close: bool) -> bool {
        self.unsynced.lock().tell(ino, at_close)
    }

    /// Whether changes of this very file may be lost and no sync has reported it. It counts as
    /// reported then.
    pub fn take_certain_loss(&self, ino: Ino) -> bool {
        self.unsynced.lock().take_certain(ino)
    }

    /// Syncs if there are unsynced changes of at least this age. So no more than that can be lost
    /// with the server's machine.
    pub fn sync_old(&self, age: Duration) -> Result<()> {
        let is_due = self.unsynced.lock().is_older_than(age);
        if is_due { self.sync(TxId::MAX) } else { Ok(()) }
    }

    /// Waits until it is known which server answered, and until everything has been reclaimed from
    /// it.
    pub fn wait_for_reclaim(&self) {
        drop(self.taking_up.lock());
    }

    /// Drops the cached extents of a file because they were outdated.
    pub fn forget_extents(&self, ino: Ino) {
        self.cached.lock().forget_extents(ino);
    }

    /// Looks something up in the cache. On a miss, returns the moment that the answer of the server
    /// must be cached with. None while there are other clients.
    fn look<T>(&self, cached: impl FnOnce(&mut CachedState) -> Option<T>) -> Option<std::result::Result<T, Asked>> {
        let period = self.exclusive.period(boot_time())?;
        let mut state = self.cached.lock();
        let asked = state.ask(period);
        Some(cached(&mut state).ok_or(asked))
    }

    /// Sends a change to the server. `now` extracts the new state of a file from its result.
    fn change<'a, T: Numbered>(
        &self,
        concerned: &Concerned<'a>,
        change: impl FnOnce(&dyn Port) -> Result<T>,
        now: impl FnOnce(&T) -> Option<Now<'a>>,
    ) -> Result<T> {
        let inos = || concerned.files.iter().copied().chain(concerned.names.iter().map(|(parent, _)| *parent));
        let begun = self.cached.lock().begin(concerned);
        let (before, marked) = {
            let mut unsynced = self.unsynced.lock();
            (unsynced.now(), unsynced.change(inos()))
        };
        let done = change(&*self.port);
        let answer = done.as_ref().map(|done| Answered { opening: opening_of_answer(), seq: done.seq() });
        let now = done.as_ref().ok().and_then(now);
        if concerned.durably {
            self.wait_for_reclaim();
        }
        let lost = {
            let mut unsynced = self.unsynced.lock();
            // A sync that began meanwhile may not include it.
            let changed = inos().chain(now.as_ref().map(Now::ino));
            match answer {
                Ok(_) if concerned.durably => {
                    unsynced.synced(before);
                    unsynced.durable(inos(), marked);
                    false
                }
                Ok(answer) => unsynced.changed(changed, answer),
                Err(_) => {
                    unsynced.change(changed);
                    false
                }
            }
        };
        self.losses.fetch_add(lost.into(), Ordering::SeqCst);
        let mut cached = self.cached.lock();
        cached.end(concerned, begun, now);
        if matches!(done, Err(Error::Unavailable(_))) {
            // The change may or may not have happened.
            cached.forget_all();
        }
        done
    }

    /// Sends a change whose result says nothing about the new state.
    fn just_change<T: Numbered>(
        &self,
        concerned: &Concerned<'_>,
        change: impl FnOnce(&dyn Port) -> Result<T>,
    ) -> Result<T> {
        self.change(concerned, change, |_| None)
    }

    /// Reads the next entries of a directory whose names are looked up one by one.
    fn read_on(&self, parent: Ino, cookie: u64) {
        let Some(Err(asked)) = self.look(|_| None::<()>) else { return };
        if let Ok(listed) = self.port.list(parent, cookie, PAGE) {
            self.cached.lock().learn_entries(asked, parent, cookie, &listed);
        }
    }
}

/// The result of a change, which has the number of its transaction.
trait Numbered {
    fn seq(&self) -> TxId;
}

impl Numbered for TxId {
    fn seq(&self) -> TxId {
        *self
    }
}

impl<T> Numbered for (T, TxId) {
    fn seq(&self) -> TxId {
        self.1
    }
}

impl<T, U> Numbered for (T, U, TxId) {
    fn seq(&self) -> TxId {
        self.2
    }
}

impl Numbered for Removed {
    fn seq(&self) -> TxId {
        self.seq
    }
}

impl Numbered for BulkResult {
    fn seq(&self) -> TxId {
        self.seq
    }
}

fn of_file<'a>(ino: Ino) -> Concerned<'a> {
    Concerned { files: vec![ino], ..Concerned::default() }
}

fn of_name(parent: Ino, name: &[u8], ino: Option<Ino>) -> Concerned<'_> {
    Concerned { files: ino.into_iter().collect(), names: vec![(parent, name)], ..Concerned::default() }
}

impl Port for Cache {
    fn attributes(&self, ino: Ino) -> Result<Attributes> {
        match self.look(|cached| cached.file(ino)) {
            Some(Ok(attributes)) => Ok(attributes),
            None => self.port.attributes(ino),
            Some(Err(asked)) => {
                let attributes = self.port.attributes(ino)?;
                self.cached.lock().learn_file(asked, attributes);
                Ok(attributes)
            }
        }
    }

    fn has_privileges(&self, ino: Ino) -> Result<bool> {
        match self.look(|cached| cached.is_unprivileged(ino).then_some(false)) {
            Some(Ok(cached)) => Ok(cached),
            None => self.port.has_privileges(ino),
            Some(Err(asked)) => {
                let found = self.port.has_privileges(ino)?;
                if !found {
                    self.cached.lock().learn_unprivileged(asked, ino);
                }
                Ok(found)
            }
        }
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attributes> {
        // Only the server knows the result for names that are not entries, like `.`.
        if meta::check_name(name).is_err() {
            return self.port.lookup(parent, name);
        }
        let asked = match self.look(|cached| cached.name(parent, name)) {
            Some(Ok(found)) => return found.ok_or(Error::NotFound),
            None => return self.port.lookup(parent, name),
            Some(Err(asked)) => asked,
        };
        let found = match self.port.lookup(parent, name) {
            Ok(attributes) => Some(attributes),
            Err(Error::NotFound) => None,
            Err(error) => return Err(error),
        };
        let next = self.cached.lock().learn_name(asked, parent, name, found);
        next.into_iter().for_each(|cookie| self.read_on(parent, cookie));
        found.ok_or(Error::NotFound)
    }

    fn lookups(&self, names: &[(Ino, Vec<u8>)]) -> Result<Vec<Option<Attributes>>> {
        self.port.lookups(names)
    }

    fn list(&self, parent: Ino, cookie: u64, limit: usize) -> Result<Vec<Listed>> {
        let asked = self.look(|_| None::<()>).and_then(std::result::Result::err);
        let listed = self.port.list(parent, cookie, limit)?;
        if let Some(asked) = asked {
            self.cached.lock().learn_entries(asked, parent, cookie, &listed);
        }
        Ok(listed)
    }

    fn list_by_key(&self, parent: Ino, from: &[u8], limit: usize, attribute: &[u8]) -> Result<Option<KeyPage>> {
        self.port.list_by_key(parent, from, limit, attribute)
    }

    fn extents(&self, ino: Ino, range: Range<u64>) -> Result<Vec<Extent>> {
        let now = Instant::now();
        let asked = match self.look(|cached| cached.extents(ino, &range, now)) {
            Some(Ok(extents)) => return Ok(extents),
            None => return self.port.extents(ino, range),
            Some(Err(asked)) => asked,
        };
        let wide = self.cached.lock().widen(ino, range.clone(), now);
        let extents = self.port.extents(ino, wide.clone())?;
        if wide == range {
            return Ok(extents);
        }
        if extents.len() >= MAX_EXTENTS {
            // The list may be incomplete.
            return self.port.extents(ino, range);
        }
        self.cached.lock().learn_extents(asked, ino, &wide, &extents);
        Ok(extents.iter().filter_map(|extent| extent.clip(&range)).collect())
    }

    fn content(&self, ino: Ino, range: Range<u64>) -> Result<(u64, Vec<Extent>)> {
        self.port.content(ino, range)
    }

    fn parent(&self, ino: Ino) -> Result<Ino> {
        self.port.parent(ino)
    }

    fn describe(&self, ino: Ino) -> Result<(Attributes, Option<Vec<u8>>)> {
        self.port.describe(ino)
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        self.port.read_link(ino)
    }

    fn attribute(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.port.attribute(ino, name)
    }

    fn attribute_names(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.port.attribute_names(ino)
    }

    fn set(&self, set: SetId) -> Result<SetRecord> {
        self.port.set(set)
    }

    fn totals(&self) -> Result<Totals> {
        self.port.totals()
    }

    fn sync(&self, seq: TxId) -> Result<()> {
        if seq < TxId::MAX {
            return self.port.sync(seq);
        }
        let before = self.unsynced.lock().now();
        self.port.sync(seq)?;
        self.wait_for_reclaim();
        self.unsynced.lock().synced(before);
        Ok(())
    }

    fn new_inos(&self, count: u32) -> Result<Ino> {
        self.port.new_inos(count)
    }

    fn seal_set(&self, set: SetId, length: u32) -> Result<TxId> {
        self.port.seal_set(set, length)
    }

    fn queue_repair(&self, set: SetId, positions: &[Position]) -> Result<TxId> {
        self.port.queue_repair(set, positions)
    }

    fn set_attributes(&self, ino: Ino, change: AttributeChange, now: Time) -> Result<(Attributes, TxId)> {
        self.change(&of_file(ino), |port| port.set_attributes(ino, change, now), |done| Some(Now::File(None, done.0)))
    }

    fn set_attribute(&self, ino: Ino, name: &[u8], value: &[u8], must_exist: Option<bool>, now: Time) -> Result<TxId> {
        self.just_change(&of_file(ino), |port| port.set_attribute(ino, name, value, must_exist, now))
    }

    fn remove_attribute(&self, ino: Ino, name: &[u8], now: Time) -> Result<TxId> {
        self.just_change(&of_file(ino), |port| port.remove_attribute(ino, name, now))
    }

    fn make(&self, parent: Ino, name: &[u8], new: &New, now: Time) -> Result<(Attributes, TxId)> {
        let concerned = of_name(parent, name, None);
        let made = |made: &(Attributes, TxId)| match new.kind {
            FileKind::Directory => Now::Directory((parent, name), made.0),
            _ => Now::File(Some((parent, name)), made.0),
        };
        self.change(&concerned, |port| port.make(parent, name, new, now), |done| Some(made(done)))
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8], now: Time) -> Result<(Attributes, TxId)> {
        let concerned = of_name(parent, name, Some(ino));
        self.change(
            &concerned,
            |port| port.link(ino, parent, name, now),
            |linked| Some(Now::File(Some((parent, name)), linked.0)),
        )
    }

    fn unlink(&self, parent: Ino, name: &[u8], ino: Ino, keep: bool, now: Time) -> Result<Removed> {
        self.just_change(&of_name(parent, name, Some(ino)), |port| port.unlink(parent, name, ino, keep, now))
    }

    fn remove_directory(&self, parent: Ino, name: &[u8], ino: Ino, keep: bool, now: Time) -> Result<Removed> {
        self.just_change(&of_name(parent, name, Some(ino)), |port| port.remove_directory(parent, name, ino, keep, now))
    }

    fn rename(&self, rename: &Rename, now: Time) -> Result<(Option<Removed>, TxId)> {
        let names = vec![(rename.from.0, &*rename.from.1), (rename.to.0, &*rename.to.1)];
        let moved = self.cached.lock().ino(rename.from.0, &rename.from.1);
        let files = moved.into_iter().chain(rename.replaced).collect();
        // Without the number of the moved file, its cached attributes cannot be found.
        self.just_change(&Concerned { files, names, all: moved.is_none(), durably: false }, |port| {
            port.rename(rename, now)
        })
    }

    fn change_content(&self, ino: Ino, edit: &ContentEdit) -> Result<(Attributes, Vec<DeadStripe>, TxId)> {
        self.change(&of_file(ino), |port| port.change_content(ino, edit), |done| Some(Now::File(None, done.0)))
    }

    fn change_contents(&self, edits: &[(Ino, ContentEdit)]) -> Result<(Vec<DeadStripe>, TxId)> {
        let files = edits.iter().map(|(ino, _)| *ino).collect();
        self.just_change(&Concerned { files, ..Concerned::default() }, |port| port.change_contents(edits))
    }

    fn change_contents_durably(&self, edits: &[(Ino, ContentEdit)]) -> Result<(Vec<DeadStripe>, TxId)> {
        let files = edits.iter().map(|(ino, _)| *ino).collect();
        let concerned = Concerned { files, durably: true, ..Concerned::default() };
        self.just_change(&concerned, |port| port.change_contents_durably(edits))
    }

    fn share(&self, stripes: &[(SetId, RecordOffset)], ino: Ino) -> Result<TxId> {
        self.just_change(&of_file(ino), |port| port.share(stripes, ino))
    }

    fn put_files(&self, files: &[BulkFile]) -> Result<BulkResult> {
        let names = files.iter().map(|file| (file.parent, &*file.name)).collect();
        let concerned = Concerned { files: files.iter().map(|file| file.ino).collect(), names, ..Concerned::default() };
        self.just_change(&concerned, |port| port.put_files(files))
    }
}

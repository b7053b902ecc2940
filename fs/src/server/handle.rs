//! The requests of one client.

use super::{Grant, Leases, Recall, Request, Sessions};
use crate::data::sets::Placed;
use crate::mutex::lock;
use crate::session::locks::Lock;
use meta::port::{FileLock, Heartbeat, Port, Session, Welcome};
use meta::{
    Attributes, Change, ContentEdit, DeadStripe, Error, Kind, Listed, Meta, New, Once, Put, Removed, Rename, Resize,
    Result, Seq, SetRecord, Time, Totals, Whole,
};
use plan::{Extent, Place, Span, TargetId};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most sets that one request gets.
const MOST_SETS: u32 = 16;

/// How often to check whether all clients from before a restart have reconnected.
const SETTLES: Duration = Duration::from_millis(50);
/// How long a request waits for a lock. Then the client sends it again, unless the waiting program
/// was interrupted.
const LOCK_WAITS: Duration = Duration::from_millis(500);
/// The most locks of a session. Each request scans all locks of its file.
const MAX_LOCKS: usize = 1 << 14;

/// The session of a client and the connection to it.
pub(super) struct Handle {
    pub sessions: Arc<Sessions>,
    pub session: u64,
    /// The name in the client's certificate.
    pub peer: String,
    pub recall: Recall,
    pub request: Request,
    /// The permissions on chunk sets that this answer grants.
    pub granted: Mutex<BTreeSet<Grant>>,
}

/// The longest name of a client, in bytes.
const LONGEST_NAME: usize = 255;
/// The longest append, in bytes.
const LONGEST_APPEND: u64 = 4 << 30;

/// The most grants in one answer. A client does not read more sets at a time.
const MOST_GRANTS: usize = 256;

/// The error that a client gets for an error of the file system.
fn told(error: crate::Error) -> Error {
    match error {
        crate::Error::Meta(error) => error,
        crate::Error::Volume(volume::Error::NoSpace(_)) => Error::NoSpace,
        other => Error::Unavailable(other.to_string()),
    }
}

/// The extents that an edit names.
fn extents_of(edit: &ContentEdit) -> impl Iterator<Item = &Extent> {
    edit.ranges.iter().flat_map(|(_, extents)| extents)
}

/// The answer for a file that lost its name earlier.
fn gone(meta: &Meta, ino: u64) -> Removed {
    let found = meta.attributes(ino);
    let orphan = found.as_ref().is_ok_and(|attributes| attributes.links == 0);
    Removed { ino, last: orphan || found.is_err(), orphan, dead: Vec::new(), seq: Seq::MAX }
}

/// Files that are being truncated, with their new sizes.
struct Cutting<'a> {
    leases: &'a Leases,
    cuts: Vec<(u64, u64)>,
    is_done: bool,
}

impl<'a> Cutting<'a> {
    fn begin(leases: &'a Leases, cuts: Vec<(u64, u64)>) -> Self {
        let mut table = leases.table();
        cuts.iter().for_each(|(ino, _)| table.begin_cut(*ino));
        drop(table);
        Self { leases, cuts, is_done: false }
    }
}

impl Drop for Cutting<'_> {
    fn drop(&mut self) {
        let mut table = self.leases.table();
        self.cuts.iter().for_each(|&(ino, size)| table.end_cut(ino, Some(size).filter(|_| self.is_done)));
        drop(table);
        self.leases.changed.notify_all();
    }
}

impl Handle {
    /// The permissions on chunk sets that the answer grants.
    pub fn granted(self) -> Vec<Grant> {
        self.granted.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().take(MOST_GRANTS).collect()
    }

    fn grant(&self, sets: impl IntoIterator<Item = u64>, write: bool) {
        lock(&self.granted).extend(sets.into_iter().map(|set| Grant { set, write }));
    }

    /// Grants reading of the sets that the answer names.
    fn grant_read(&self, extents: &[Extent]) {
        let stripes = extents.iter().filter_map(|extent| match extent.place {
            Place::Stripe(span) => Some(span.set),
            _ => None,
        });
        self.grant(stripes, false);
    }

    /// Grants writing to the sets of the session, and probing targets.
    fn grant_held(&self, session: u64) {
        self.grant([crate::PROBE_SET], true);
        self.grant(self.sessions.fs.leases.table().sets(session), true);
    }

    fn own_lock(&self, wanted: &FileLock) -> Lock {
        let FileLock { owner, first, last, exclusive, process } = *wanted;
        Lock { owner: (self.session, owner), range: first..=last, exclusive, process }
    }

    fn meta(&self) -> Result<&Meta> {
        Ok(&self.sessions.fs.engine().map_err(told)?.meta)
    }

    fn wait_until_settled(&self) {
        while self.sessions.fs.leases.is_in_grace() {
            std::thread::sleep(SETTLES);
        }
    }

    fn is_open(&self, ino: u64) -> bool {
        self.sessions.fs.leases.is_open(ino)
    }

    /// Whether a file that loses its last name may still be needed: it is open, or the kernels of
    /// other clients may know it. In the grace period, clients that have not reconnected may have
    /// it open, too.
    fn is_needed(&self, ino: u64) -> bool {
        if self.sessions.fs.leases.is_in_grace() {
            return true;
        }
        let table = self.sessions.fs.leases.table();
        table.count() > 1 || table.is_open(ino)
    }

    /// The result of a retried request that failed because it was carried out before, if `proof`
    /// confirms that.
    fn or_done<T>(&self, result: Result<T>, proof: impl FnOnce(&Meta) -> Option<T>) -> Result<T> {
        match result {
            Err(error @ (Error::Exists | Error::NotFound)) if self.request.again => proof(self.meta()?).ok_or(error),
            result => result,
        }
    }

    /// The idempotency key that a transaction stores if it must not be carried out twice.
    fn once(&self) -> Option<Once> {
        let Request { number, answered, .. } = self.request;
        (number > 0).then_some(Once { session: self.session, request: number, answered })
    }

    /// Whether a transaction with this idempotency key was carried out before.
    fn was_done(&self) -> Result<bool> {
        match self.once().filter(|_| self.request.again) {
            Some(once) => self.meta()?.was_done(&once),
            None => Ok(false),
        }
    }

    /// Passes stripes that a transaction freed to the collector.
    fn freed(&self, dead: Vec<DeadStripe>, seq: Seq) {
        self.sessions.fs.collector.add(dead, seq);
    }

    /// Handles a removed name on the server, so that the client has nothing left to do.
    fn removed(&self, mut removed: Removed) -> Removed {
        self.freed(std::mem::take(&mut removed.dead), removed.seq);
        if removed.orphan && !self.is_open(removed.ino) {
            self.sessions.fs.leases.set_aside(removed.ino);
        }
        removed
    }

    /// The attributes, with what other clients wrote before they closed the file.
    fn settled(&self, attributes: Attributes) -> Result<Attributes> {
        let others = attributes.kind == Kind::File
            && !self.sessions.fs.leases.table().writers(self.session, attributes.ino, true).is_empty();
        if !others {
            return Ok(attributes);
        }
        self.sessions.recall(self.session, attributes.ino, true);
        match self.meta()?.attributes(attributes.ino) {
            // Removed meanwhile: the name existed at the time of the request.
            Err(Error::NotFound) => Ok(attributes),
            settled => settled,
        }
    }

    /// Changes content under the content locks: the server itself moves stripes, too.
    fn changing<T>(&self, inos: &[u64], change: impl FnOnce() -> Result<T>) -> Result<T> {
        let table = &self.sessions.fs.table;
        let mut inos = inos.to_vec();
        inos.sort_unstable();
        inos.dedup();
        let files: Vec<_> = inos.iter().map(|&ino| table.enter(ino)).collect();
        let _one_at_a_time: Vec<_> = files.iter().map(|file| file.content()).collect();
        change()
    }

    /// Refuses to change content for a session that has ended. Call it while no session can end.
    fn still_lives(&self) -> Result<()> {
        if self.sessions.fs.leases.table().has(self.session) {
            return Ok(());
        }
        Err(Error::Unavailable("the session ended before this was done".into()))
    }

    /// Refuses to name stripes in sets of other sessions: those of an ended session were given up
    /// together with their data. Stripes that files name already may be named again.
    fn may_name<'a>(&self, extents: impl IntoIterator<Item = &'a Extent>) -> Result<()> {
        for extent in extents {
            let Place::Stripe(span) = extent.place else { continue };
            if self.sessions.fs.leases.table().holds(self.session, span.set) {
                self.fits(&span, extent.length)?;
                continue;
            }
            let named = self.meta()?.stripe(span.set, span.record)?.filter(|stripe| stripe.live > 0);
            if named.as_ref().is_some_and(|stripe| stripe.block != span.block) {
                return Err(Error::Invalid("a stripe with blocks of another length".into()));
            }
            let Some(named) = named else {
                return Err(Error::Unavailable(
                    "the session ended before this was committed: what was written and not synced then is lost".into(),
                ));
            };
            // The set may have been written with an earlier code of the volume.
            let set = self.meta()?.set(span.set)?;
            let layout = self.sessions.fs.store.layout_of(span.set, &set);
            let code = layout.map_err(|why| Error::Corrupt(why.to_string()))?.code;
            let data = u64::from(named.block) * code.shape().k as u64;
            if u64::from(span.start).saturating_add(extent.length) > data {
                return Err(Error::Invalid("bytes that are not in their stripe".into()));
            }
        }
        Ok(())
    }

    /// Refuses to create a file with a number that was not given out or belongs to another file.
    fn may_make(&self, file: &Whole) -> Result<()> {
        let meta = self.meta()?;
        let is_free = match meta.attributes(file.ino) {
            Err(Error::NotFound) => meta.gave_out(file.ino)?,
            // The file was created before, and the answer was lost.
            _ => meta.lookup(file.parent, &file.name).is_ok_and(|found| found.ino == file.ino),
        };
        if is_free { Ok(()) } else { Err(Error::Invalid("the number of another file".into())) }
    }

    /// Refuses a stripe that cannot be in a chunk set, and bytes that cannot be in the stripe.
    fn fits(&self, span: &Span, length: u64) -> Result<()> {
        let options = &self.sessions.fs.store.options;
        let data = u64::from(span.block).saturating_mul(options.code.shape().k as u64);
        // No more than a writer puts into one stripe, so that it can be moved into another.
        let data = data.min(self.sessions.fs.store.full_stripe() as u64);
        let end = volume::record_range(span.record, span.block).end;
        let starts = u64::from(span.record) >= volume::format::CHUNK_HEADER_BYTES as u64;
        if starts && end <= u64::from(options.chunk_bytes) && u64::from(span.start).saturating_add(length) <= data {
            return Ok(());
        }
        Err(Error::Invalid("a stripe that is in no chunk set, or bytes that are not in it".into()))
    }

    /// Updates accounts after a change of content.
    fn follow(&self, ino: u64, edit: &ContentEdit) {
        let mut inline = 0;
        for extent in extents_of(edit) {
            if let Place::Bytes(bytes) = &extent.place {
                inline += bytes.len() as u64;
            }
        }
        if inline > 0 {
            self.sessions.fs.inline.add(ino, inline);
        }
    }

    /// Runs changes that may truncate files. Meanwhile no append gets a reservation in them;
    /// existing reservations are cut with the file.
    fn cutting<T>(&self, edits: &[(u64, &ContentEdit)], change: impl FnOnce() -> Result<T>) -> Result<T> {
        let size_of = |(ino, edit): &(u64, &ContentEdit)| match edit.resize {
            Resize::To(size) => Some((*ino, size)),
            _ => None,
        };
        let cuts: Vec<(u64, u64)> = edits.iter().filter_map(size_of).collect();
        if cuts.is_empty() {
            return change();
        }
        let mut cutting = Cutting::begin(&self.sessions.fs.leases, cuts);
        let done = change()?;
        cutting.is_done = true;
        Ok(done)
    }
}

impl Port for Handle {
    fn attributes(&self, ino: u64) -> Result<Attributes> {
        self.settled(self.meta()?.attributes(ino)?)
    }

    fn lookup(&self, parent: u64, name: &[u8]) -> Result<Attributes> {
        self.settled(self.meta()?.lookup(parent, name)?)
    }

    fn parent(&self, ino: u64) -> Result<u64> {
        self.meta()?.parent(ino)
    }

    fn describe(&self, ino: u64) -> Result<(Attributes, Option<Vec<u8>>)> {
        self.meta()?.describe(ino)
    }

    fn set_attributes(&self, ino: u64, change: Change, now: Time) -> Result<(Attributes, Seq)> {
        self.meta()?.set_attributes(ino, change, now)
    }

    fn read_link(&self, ino: u64) -> Result<Vec<u8>> {
        self.meta()?.read_link(ino)
    }

    fn attribute(&self, ino: u64, name: &[u8]) -> Result<Vec<u8>> {
        self.meta()?.attribute(ino, name)
    }

    fn has_privileges(&self, ino: u64) -> Result<bool> {
        self.meta()?.has_privileges(ino)
    }

    fn attribute_names(&self, ino: u64) -> Result<Vec<Vec<u8>>> {
        self.meta()?.attribute_names(ino)
    }

    fn set_attribute(&self, ino: u64, name: &[u8], value: &[u8], must_exist: Option<bool>, now: Time) -> Result<Seq> {
        if self.was_done()? {
            return Ok(Seq::MAX);
        }
        self.meta()?.set_attribute_once(ino, name, value, must_exist, now, self.once().as_ref())
    }

    fn remove_attribute(&self, ino: u64, name: &[u8], now: Time) -> Result<Seq> {
        if self.was_done()? {
            return Ok(Seq::MAX);
        }
        self.meta()?.remove_attribute_once(ino, name, now, self.once().as_ref())
    }

    fn make(&self, parent: u64, name: &[u8], new: &New, now: Time) -> Result<(Attributes, Seq)> {
        if self.was_done()? {
            return Ok((self.meta()?.lookup(parent, name)?, Seq::MAX));
        }
        self.meta()?.make_once(parent, name, new, now, self.once().as_ref())
    }

    fn link(&self, ino: u64, parent: u64, name: &[u8], now: Time) -> Result<(Attributes, Seq)> {
        self.or_done(self.meta()?.link(ino, parent, name, now), |meta| {
            let found = meta.lookup(parent, name).ok()?;
            (found.ino == ino).then_some((found, Seq::MAX))
        })
    }

    fn unlink(&self, parent: u64, name: &[u8], ino: u64, keep: bool, now: Time) -> Result<Removed> {
        let keep = keep || self.is_needed(ino);
        let removed = self.or_done(self.meta()?.unlink(parent, name, ino, keep, now), |meta| Some(gone(meta, ino)))?;
        Ok(self.removed(removed))
    }

    fn remove_directory(&self, parent: u64, name: &[u8], ino: u64, keep: bool, now: Time) -> Result<Removed> {
        let keep = keep || self.is_needed(ino);
        let removed =
            self.or_done(self.meta()?.remove_directory(parent, name, ino, keep, now), |meta| Some(gone(meta, ino)))?;
        Ok(self.removed(removed))
    }

    fn rename(&self, rename: &Rename, now: Time) -> Result<(Option<Removed>, Seq)> {
        let keep = rename.keep || rename.replaced.is_some_and(|ino| self.is_needed(ino));
        if self.was_done()? {
            return Ok((None, Seq::MAX));
        }
        let (removed, seq) = self.meta()?.rename_once(&Rename { keep, ..rename.clone() }, now, self.once().as_ref())?;
        Ok((removed.map(|removed| self.removed(removed)), seq))
    }

    fn list(&self, parent: u64, cookie: u64, limit: usize) -> Result<Vec<Listed>> {
        let mut listed = self.meta()?.list(parent, cookie, limit.min(10_000))?;
        for entry in &mut listed {
            entry.attributes = self.settled(entry.attributes)?;
        }
        Ok(listed)
    }

    fn extents(&self, ino: u64, range: Range<u64>) -> Result<Vec<Extent>> {
        let extents = self.meta()?.extents(ino, range)?;
        self.grant_read(&extents);
        Ok(extents)
    }

    fn content(&self, ino: u64, range: Range<u64>) -> Result<(u64, Vec<Extent>)> {
        let (size, extents) = self.meta()?.content(ino, range)?;
        self.grant_read(&extents);
        Ok((size, extents))
    }

    fn change_content(&self, ino: u64, edit: &ContentEdit) -> Result<(Attributes, Vec<DeadStripe>, Seq)> {
        if self.was_done()? {
            return Ok((self.meta()?.attributes(ino)?, Vec::new(), Seq::MAX));
        }
        let (attributes, dead, seq) = self.changing(&[ino], || {
            let _its_sets_stay = self.sessions.fs.leases.naming();
            self.still_lives()?;
            self.may_name(extents_of(edit))?;
            self.cutting(&[(ino, edit)], || self.meta()?.change_content_once(ino, edit, self.once().as_ref()))
        })?;
        self.follow(ino, edit);
        self.freed(dead, seq);
        Ok((attributes, Vec::new(), seq))
    }

    fn change_contents(&self, edits: &[(u64, ContentEdit)]) -> Result<(Vec<DeadStripe>, Seq)> {
        if self.was_done()? {
            return Ok((Vec::new(), Seq::MAX));
        }
        let inos: Vec<u64> = edits.iter().map(|(ino, _)| *ino).collect();
        let (dead, seq) = self.changing(&inos, || {
            let _its_sets_stay = self.sessions.fs.leases.naming();
            self.still_lives()?;
            edits.iter().try_for_each(|(_, edit)| self.may_name(extents_of(edit)))?;
            let all: Vec<(u64, &ContentEdit)> = edits.iter().map(|(ino, edit)| (*ino, edit)).collect();
            self.cutting(&all, || self.meta()?.change_contents_once(edits, self.once().as_ref()))
        })?;
        edits.iter().for_each(|(ino, edit)| self.follow(*ino, edit));
        self.freed(dead, seq);
        Ok((Vec::new(), seq))
    }

    fn change_contents_durably(&self, edits: &[(u64, ContentEdit)]) -> Result<(Vec<DeadStripe>, Seq)> {
        let (dead, seq) = self.change_contents(edits)?;
        self.sync(seq)?;
        Ok((dead, seq))
    }

    fn share(&self, stripes: &[(u64, u32)], ino: u64) -> Result<Seq> {
        for &(set, record) in stripes {
            let held = self.sessions.fs.leases.table().holds(self.session, set);
            if !held && self.meta()?.stripe(set, record)?.is_none() {
                return Err(Error::NotFound);
            }
        }
        self.meta()?.share(stripes, ino)
    }

    fn set(&self, set: u64) -> Result<SetRecord> {
        self.meta()?.set(set)
    }

    fn seal_set(&self, set: u64, length: u32) -> Result<Seq> {
        if !self.sessions.fs.leases.table().holds(self.session, set) {
            return Err(Error::Unavailable(
                "the session with the metadata server ended: the chunk set was given up".into(),
            ));
        }
        if length > self.sessions.fs.store.options.chunk_bytes {
            return Err(Error::Invalid("a chunk set does not get so long".into()));
        }
        self.meta()?.seal_set(set, length)
    }

    fn queue_repair(&self, set: u64, positions: &[u16]) -> Result<Seq> {
        let blocks = self.sessions.fs.store.options.code.shape().blocks();
        if positions.iter().any(|&position| usize::from(position) >= blocks) {
            return Err(Error::Invalid("a chunk set has no such position".into()));
        }
        self.meta()?.queue_repair(set, positions)
    }

    fn totals(&self) -> Result<Totals> {
        self.meta()?.totals()
    }

    fn sync(&self, seq: Seq) -> Result<()> {
        self.meta()?.sync(seq)
    }

    fn new_inos(&self, count: u32) -> Result<u64> {
        self.meta()?.new_inos(count)
    }

    fn put_files(&self, files: &[Whole]) -> Result<Put> {
        let _its_sets_stay = self.sessions.fs.leases.naming();
        self.still_lives()?;
        files.iter().try_for_each(|file| self.may_name(&file.extents).and_then(|()| self.may_make(file)))?;
        // No idempotency key is needed: a file that exists under its number is not created again.
        self.meta()?.put_files(files)
    }

    fn lookups(&self, names: &[(u64, Vec<u8>)]) -> Result<Vec<Option<Attributes>>> {
        let found = self.meta()?.lookups(names)?;
        found.into_iter().map(|found| found.map(|found| self.settled(found)).transpose()).collect()
    }
}

impl Session for Handle {
    fn begin(&self, session: Option<u64>, name: String, sets: Vec<u64>) -> Result<Welcome> {
        let fs = &self.sessions.fs;
        if name.len() > LONGEST_NAME {
            return Err(Error::NameTooLong);
        }
        if session.is_some_and(|session| session != self.session) {
            return Err(Error::Unavailable("the session belongs to another client".into()));
        }
        // The sets of other sessions were given up.
        let own = session.map_or_else(Vec::new, |session| self.sessions.owned(session, sets));
        let (session, fresh, kept, lapsed) = {
            let mut table = fs.leases.table();
            // An ended session stays ended: work that its client began in it is not accepted in
            // another session.
            let lives =
                |number: u64| table.has(number) || fs.leases.is_in_grace() && lock(&fs.leases.before).contains(&number);
            let lapsed = session.is_some_and(|number| table.was_given_out(number) && !lives(number));
            if session.is_none_or(|_| lapsed) && !table.admits(&self.peer) {
                return Err(Error::Unavailable(format!(
                    "{} has as many sessions with the metadata server as a member may have: end some mounts or jobs, or make more members (weft cluster init)",
                    self.peer
                )));
            }
            let begun = table.begin(session.filter(|_| !lapsed), &name, Instant::now());
            let (session, fresh) =
                begun.ok_or_else(|| Error::Unavailable("a session of that number was never given out".into()))?;
            table.belongs(session, &self.peer);
            // Hold the sets at once: other requests of the client may arrive before its next
            // message. Do not hold sets that were given up because the client had not reclaimed
            // them in time.
            if fs.leases.is_in_grace() && !lapsed {
                table.hold(session, own);
            }
            (session, fresh, table.sets(session), lapsed)
        };
        self.grant_held(session);
        lock(&self.sessions.recalls).insert(session, self.recall.clone());
        if fresh {
            self.sessions.join(session);
        }
        Ok(Welcome {
            session,
            secret: super::caller::secret(&lock(&fs.leases.key), session, &self.peer),
            fresh,
            lapsed,
            label: fs.volume.label().to_json(),
            first_stripe: crate::volume::opened::first_stripe_of(session),
            start: self.sessions.start,
            lease_ms: u32::try_from(self.sessions.lease.as_millis()).unwrap_or(u32::MAX),
            kept,
        })
    }

    fn heartbeat(&self) -> Result<Heartbeat> {
        let fs = &self.sessions.fs;
        // The connection on which the session began may be closed.
        lock(&self.sessions.recalls).insert(self.session, self.recall.clone());
        self.grant_held(self.session);
        let (others, removed) = {
            let mut table = fs.leases.table();
            (table.tell_of_others(self.session, Instant::now()) as u32, table.last_removal())
        };
        let (total, free) = fs.room.now();
        Ok(Heartbeat { total, free, generation: fs.volume.label().generation, others, removed })
    }

    fn end(&self) -> Result<()> {
        self.sessions.leave(self.session, |table| Some(table.end(self.session)));
        Ok(())
    }

    fn new_sets(&self, count: u32, avoid: &[TargetId], known: &[u64]) -> Result<Vec<(u64, SetRecord)>> {
        let fs = &self.sessions.fs;
        let mut unknown = fs.leases.table().sets(self.session);
        unknown.retain(|set| !known.contains(set));
        self.release_sets(&unknown)?;
        let placed = Placed(fs.engine().map_err(told)?.meta.clone());
        let mut new = Vec::new();
        for _ in 0..count.clamp(1, MOST_SETS) {
            if !fs.leases.table().may_hold_more(self.session) {
                if new.is_empty() {
                    return Err(Error::Unavailable("this client, or its member, has too many chunk sets".into()));
                }
                break;
            }
            match placed.place(&fs.store, avoid, |set| fs.leases.table().hold(self.session, [set])) {
                Ok(set) => new.push(set),
                Err(error) if new.is_empty() => return Err(told(error)),
                Err(_) => break,
            }
        }
        // A client writes to the sets for a long time. The sets and their owner must survive a
        // crash.
        self.sessions.note_sets().map_err(told)?;
        self.meta()?.sync(Seq::MAX)?;
        self.grant(new.iter().map(|(set, _)| *set), true);
        Ok(new)
    }

    fn release_sets(&self, sets: &[u64]) -> Result<()> {
        let released = self.sessions.fs.leases.table().release(self.session, sets);
        self.sessions.take_back(&released).map_err(told)
    }

    fn open(&self, ino: u64, writes: u64) -> Result<Attributes> {
        // Count first: a removal or an append in between then sees that the file is open.
        self.sessions.fs.leases.table().open(self.session, ino, writes);
        self.sessions.recall(self.session, ino, false);
        let found = self.meta()?.attributes(ino);
        if found.is_err() {
            let _ = Session::close(self, ino, 0);
        }
        found
    }

    fn close(&self, ino: u64, wrote: u64) -> Result<()> {
        if self.sessions.fs.leases.table().close(self.session, ino, wrote) {
            self.sessions.closed(ino);
        }
        Ok(())
    }

    fn clean(&self, files: &[(u64, u64)]) -> Result<()> {
        self.sessions.fs.leases.table().clean(self.session, files);
        self.sessions.fs.leases.changed.notify_all();
        Ok(())
    }

    fn recalled(&self, ino: u64, number: u64, question: u64) -> Result<()> {
        self.sessions.fs.leases.table().answer(self.session, ino, question);
        self.clean(&[(ino, number)])
    }

    fn reclaim_open(&self, ino: u64, writes: u64) -> Result<()> {
        self.sessions.fs.leases.table().open(self.session, ino, writes);
        Ok(())
    }

    fn reclaim_append(&self, ino: u64, end: u64) -> Result<()> {
        self.sessions.fs.leases.table().reserve(ino, end, 0).map(drop).ok_or(Error::TooLarge)
    }

    fn reserve_append(&self, ino: u64, length: u64) -> Result<u64> {
        if length > LONGEST_APPEND {
            return Err(Error::TooLarge);
        }
        // Clients from before a restart may have reservations that this server does not know yet.
        self.wait_until_settled();
        let leases = &self.sessions.fs.leases;
        loop {
            let cuts = leases.table().cuts();
            let size = self.meta()?.attributes(ino)?.size;
            let mut table = leases.table();
            // The size may be from before a truncation.
            if table.cuts() == cuts && !table.is_being_cut(ino) {
                return table.reserve(ino, size, length).ok_or(Error::TooLarge);
            }
            while table.is_being_cut(ino) {
                table = leases.changed.wait(table).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    fn lock(&self, ino: u64, wanted: FileLock, wait: bool) -> Result<bool> {
        let leases = &self.sessions.fs.leases;
        // Clients from before a restart may have locks that this server does not know yet. A client
        // that is reclaiming its own is not delayed.
        if !lock(&leases.before).contains(&self.session) {
            self.wait_until_settled();
        }
        let end = Instant::now() + if wait { LOCK_WAITS } else { Duration::ZERO };
        let mut locks = lock(&leases.locks);
        loop {
            // Check while the lock table is locked: the end of a session removes its locks
            // afterwards.
            self.still_lives()?;
            let own = self.own_lock(&wanted);
            // The lock adds one at least, unless it replaces existing ones, as when a client
            // reclaims again.
            if locks.held(self.session) + 2 > MAX_LOCKS && locks.held_with(ino, &own) > MAX_LOCKS {
                return Err(Error::TooManyLocks);
            }
            if locks.lock(ino, own) {
                return Ok(true);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            (locks, _) = leases.unlocked.wait_timeout(locks, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn unlock(&self, ino: u64, owner: u64, first: u64, last: u64) -> Result<()> {
        if first > last {
            return Err(Error::Invalid("a range that ends before it begins".into()));
        }
        let mut locks = lock(&self.sessions.fs.leases.locks);
        let (owner, range) = ((self.session, owner), first..=last);
        if locks.held(self.session) >= MAX_LOCKS && locks.splits(ino, owner, &range) {
            return Err(Error::TooManyLocks);
        }
        locks.unlock(ino, owner, &range);
        drop(locks);
        self.sessions.fs.leases.unlocked.notify_all();
        Ok(())
    }

    fn conflicting_lock(&self, ino: u64, wanted: FileLock) -> Result<Option<FileLock>> {
        let locks = lock(&self.sessions.fs.leases.locks);
        Ok(locks.conflict(ino, &self.own_lock(&wanted)).map(|found| FileLock {
            owner: found.owner.1,
            first: *found.range.start(),
            last: *found.range.end(),
            exclusive: found.exclusive,
            // Process numbers of other machines mean nothing here.
            process: if found.owner.0 == self.session { found.process } else { 0 },
        }))
    }

    fn removed(&self, after: u64, kept: &[u64], forgotten: &[u64]) -> Result<(u64, Vec<u64>)> {
        Ok(self.sessions.note(self.session, after, kept, forgotten))
    }

    fn reclaim_complete(&self) -> Result<()> {
        self.sessions.fs.leases.table().has_told(self.session);
        lock(&self.sessions.fs.leases.before).remove(&self.session);
        Ok(())
    }

    fn label(&self) -> Result<String> {
        self.grant_held(self.session);
        Ok(self.sessions.fs.volume.label().to_json())
    }
}

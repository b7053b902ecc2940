//! The requests of one client.

mod checks;
mod cutting;
mod port;
mod session;

use super::{Sessions, Volume};
use crate::locks::Lock;
use crate::port::FileLock;
use crate::server::table::files::Whose;
use crate::transport::{Grant, Recall, Request};
use ::volume::{lock, unpoisoned};
use meta::{Attributes, ContentEdit, DeadStripe, Error, FileKind, IdempotencyKey, Meta, Removed, Result};
use plan::{Extent, ExtentPlace, Ino, SessionId, SetId, TxId};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How often to check whether all clients from before a restart have reconnected, beside the times
/// when one has.
const GRACE_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The session of a client and the connection to it.
pub(super) struct Handle<V> {
    pub sessions: Arc<Sessions<V>>,
    pub session: SessionId,
    /// The name in the client's certificate.
    pub peer: String,
    pub recall: Recall,
    pub request: Request,
    /// The permissions on chunk sets that this answer grants.
    pub granted: Mutex<BTreeSet<Grant>>,
}

/// The most grants in one answer. A client does not read more sets at a time.
const MAX_GRANTS: usize = 256;

/// The extents that an edit names.
fn extents_of(edit: &ContentEdit) -> impl Iterator<Item = &Extent> {
    edit.ranges.iter().flat_map(|(_, extents)| extents)
}

impl<V: Volume> Handle<V> {
    /// The permissions on chunk sets that the answer grants.
    pub fn granted(self) -> Vec<Grant> {
        unpoisoned(self.granted.into_inner()).into_iter().take(MAX_GRANTS).collect()
    }

    fn grant(&self, sets: impl IntoIterator<Item = SetId>, write: bool) {
        lock(&self.granted).extend(sets.into_iter().map(|set| Grant { set, write }));
    }

    /// Grants reading of the sets that the answer names.
    fn grant_read(&self, extents: &[Extent]) {
        let stripes = extents.iter().filter_map(|extent| match extent.place {
            ExtentPlace::Stripe(span) => Some(span.set),
            _ => None,
        });
        self.grant(stripes, false);
    }

    /// Grants writing to the sets of the session, and probing targets.
    fn grant_held(&self, session: SessionId) {
        self.grant([V::PROBE_SET], true);
        self.grant(self.sessions.leases().table().sets(session), true);
    }

    fn own_lock(&self, wanted: &FileLock) -> Lock {
        let FileLock { owner, first, last, exclusive, process } = *wanted;
        Lock { owner: (self.session, owner), range: first..=last, exclusive, process }
    }

    fn meta(&self) -> Result<&Meta> {
        self.sessions.volume.meta()
    }

    fn wait_for_grace_end(&self) -> Result<()> {
        let leases = self.sessions.leases();
        let mut table = leases.table();
        while leases.is_in_grace() {
            self.sessions.goes_on()?;
            table = table.wait_timeout(&leases.changed, GRACE_POLL_INTERVAL);
        }
        Ok(())
    }

    /// Records that the session opens a file. One that is being deleted is waited for: it may have
    /// got a name in time.
    fn count_open(&self, ino: Ino, writes: u64) -> Result<()> {
        let leases = self.sessions.leases();
        let mut table = leases.table();
        while !table.open(self.session, ino, writes) {
            self.sessions.goes_on()?;
            table = table.wait_timeout(&leases.changed, GRACE_POLL_INTERVAL);
        }
        Ok(())
    }

    /// Waits until all other clients from before a restart are back: until then the server does not
    /// know what they have not committed. It waits no longer than for a connected client.
    fn wait_for_others(&self) -> Result<()> {
        let (leases, end) = (self.sessions.leases(), self.sessions.waits_for_clients_until());
        let away = || leases.awaits_others(self.session);
        let mut table = leases.table();
        while away() && Instant::now() < end {
            self.sessions.goes_on()?;
            table = table.wait_timeout(&leases.changed, GRACE_POLL_INTERVAL);
        }
        Ok(())
    }

    fn is_open(&self, ino: Ino) -> bool {
        self.sessions.leases().is_open(ino)
    }

    /// Whether a file that loses its last name may still be needed: it is open, or the kernels of
    /// other clients may know it. In the grace period, clients that have not reconnected may have
    /// it open, too.
    fn is_needed(&self, ino: Ino) -> bool {
        if self.sessions.leases().is_in_grace() {
            return true;
        }
        let table = self.sessions.leases().table();
        table.count() > 1 || table.is_open(ino)
    }

    /// The idempotency key that a transaction stores if it must not be carried out twice.
    fn idempotency_key(&self) -> Option<IdempotencyKey> {
        let Request { number, answered, .. } = self.request;
        (number > 0).then_some(IdempotencyKey { session: self.session, request: number, answered })
    }

    /// The answer of a repeated request that was carried out before, perhaps by another server,
    /// with a number that its transaction's is not above. None if it was not carried out.
    fn answered<T: DeserializeOwned>(&self) -> Result<Option<(T, TxId)>> {
        let Some(idempotency_key) = self.idempotency_key().filter(|_| self.request.again) else { return Ok(None) };
        let meta = self.meta()?;
        meta.answer_of(&idempotency_key)?.map(|answer| Ok((answer, meta.last()?))).transpose()
    }

    /// Passes stripes that a transaction freed to the collector.
    fn freed(&self, dead: Vec<DeadStripe>, seq: TxId) {
        self.sessions.volume.freed(dead, seq);
    }

    /// Handles a removed name on the server, so that the client has nothing left to do.
    fn removed(&self, mut removed: Removed) -> Removed {
        self.freed(std::mem::take(&mut removed.dead), removed.seq);
        if removed.orphan && !self.is_open(removed.ino) {
            self.sessions.leases().set_aside(removed.ino);
        }
        removed
    }

    /// The attributes, with what other clients wrote before they closed the file.
    fn with_closed_writes(&self, attributes: Attributes) -> Result<Attributes> {
        let others = attributes.kind == FileKind::File
            && !self.sessions.leases().table().writers(self.session, attributes.ino, Whose::Closed).is_empty();
        if !others {
            return Ok(attributes);
        }
        self.sessions.recall(self.session, attributes.ino, Whose::Closed)?;
        match self.meta()?.attributes(attributes.ino) {
            // Removed meanwhile: the name existed at the time of the request.
            Err(Error::NotFound) => Ok(attributes),
            with_closed_writes => with_closed_writes,
        }
    }

    /// Updates accounts after a change of content.
    fn follow(&self, ino: Ino, edit: &ContentEdit) {
        let mut inline = 0;
        for extent in extents_of(edit) {
            if let ExtentPlace::Bytes(bytes) = &extent.place {
                inline += bytes.len() as u64;
            }
        }
        if inline > 0 {
            self.sessions.volume.added_inline(ino, inline);
        }
    }
}

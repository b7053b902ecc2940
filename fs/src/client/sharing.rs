//! The client's implementation of [`Sharing`]: it sends requests to the server, or uses what the
//! server said before.

use crate::Result;
use crate::client::{Client, Reserved};
use crate::data::sharing::{Reservation, Sharing};
use meta::Attributes;
use plan::{Ino, SessionId, TargetId};
use session::KERNEL_VALID_FOR;
use session::port::{only_within_session, opening_of_answer, within_opening};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;
use volume::target::boot_time;

impl Client {
    /// Whether the last answer to this thread came from the server that this client uses now. What
    /// another one counted, the one that took over does not know.
    fn is_of_this_opening(&self) -> bool {
        let opening = opening_of_answer();
        opening == 0 || opening == self.opening()
    }
}

impl Sharing for Client {
    fn is_shared(&self) -> bool {
        true
    }

    fn session(&self) -> Option<SessionId> {
        Some(self.number())
    }

    fn alone(&self) -> Option<u64> {
        self.exclusive.period(boot_time())
    }

    fn valid_for(&self) -> Duration {
        if self.alone().is_some() { KERNEL_VALID_FOR } else { Duration::ZERO }
    }

    fn open(&self, ino: Ino, write: bool) -> meta::Result<Option<Attributes>> {
        let number = if write { self.number_of_write(ino) } else { 0 };
        loop {
            let session = self.open.lock().session;
            // Work of an earlier session may open and close it, too.
            let opened = only_within_session(session, || self.session.open(ino, number));
            if opened.is_err() {
                self.cache.wait_for_reclaim();
            }
            let mut open = self.open.lock();
            if open.session != session {
                continue;
            }
            let attributes = opened?;
            if self.is_of_this_opening() {
                let (all, writers) = open.files.entry(ino).or_default();
                (*all, *writers) = (*all + 1, *writers + u32::from(write));
                return Ok(Some(attributes));
            }
        }
    }

    fn close(&self, ino: Ino) -> meta::Result<()> {
        let (writes, now) = {
            let mut open = self.open.lock();
            let Some((all, writers)) = open.files.get_mut(&ino) else { return Ok(()) };
            let writes = *writers > 0;
            *all -= 1;
            if *all == 0 {
                open.files.remove(&ino);
            }
            (writes, (open.session, self.opening()))
        };
        let number = if writes { self.number_of_write(ino) } else { 0 };
        let (session, opening) = now;
        let closed = only_within_session(session, || within_opening(opening, || self.session.close(ino, number)));
        if closed.is_ok() {
            return closed;
        }
        self.cache.wait_for_reclaim();
        // The server that took over, and the next session, learned the openers without this one.
        if (self.open.lock().session, self.opening()) == now { closed } else { Ok(()) }
    }

    fn begin_append(&self, ino: Ino) {
        let is_being_cut = |of: &HashMap<Ino, Reserved>| of.get(&ino).is_some_and(|reserved| reserved.cuts > 0);
        // It counts from before the request on: the server may have reserved what is not known here
        // yet.
        self.reservations.lock().wait_while(&self.reserved, |of| is_being_cut(of)).entry(ino).or_default().waiting += 1;
    }

    fn reserve(&self, ino: Ino, length: u64) -> Result<Option<Reservation>> {
        loop {
            let session = self.number();
            let begin = self.session.reserve_append(ino, length)?;
            let end = begin.saturating_add(length);
            let mut reservations = self.reservations.lock();
            if self.is_of_this_opening() && self.number() == session {
                let reserved = reservations.entry(ino).or_default();
                reserved.end = end.max(reserved.end);
                return Ok(Some(Reservation { begin, is_last: reserved.end == end }));
            }
        }
    }

    fn appended(&self, ino: Ino) {
        if let Some(reserved) = self.reservations.lock().get_mut(&ino) {
            reserved.waiting = reserved.waiting.saturating_sub(1);
        }
        self.reserved.notify_all();
    }

    fn begin_cut(&self, ino: Ino) {
        let mut reservations = self.reservations.lock();
        reservations.entry(ino).or_default().cuts += 1;
        let waits = |of: &HashMap<Ino, Reserved>| of.get(&ino).is_some_and(|reserved| reserved.waiting > 0);
        drop(reservations.wait_while(&self.reserved, |of| waits(of)));
    }

    fn end_cut(&self, ino: Ino) {
        if let Some(reserved) = self.reservations.lock().get_mut(&ino) {
            reserved.cuts = reserved.cuts.saturating_sub(1);
        }
        self.reserved.notify_all();
    }

    fn cut(&self, ino: Ino, size: u64) -> Option<u64> {
        let mut reservations = self.reservations.lock();
        let reserved = reservations.get_mut(&ino).filter(|reserved| reserved.waiting == 0)?;
        let end = reserved.end;
        reserved.end = end.min(size);
        Some(end)
    }

    fn uncut(&self, ino: Ino, end: u64) {
        if let Some(reserved) = self.reservations.lock().get_mut(&ino) {
            reserved.end = end.max(reserved.end);
        }
    }

    fn dropped(&self, inos: &[Ino]) -> meta::Result<()> {
        inos.iter().for_each(|ino| self.cache.forget_extents(*ino));
        self.session.dropped(inos)
    }

    fn forget_extents(&self, ino: Ino) {
        self.cache.forget_extents(ino);
    }

    fn note_loss(&self) {
        self.loss.store(true, Ordering::Relaxed);
    }

    fn take_loss(&self) -> bool {
        self.loss.swap(false, Ordering::Relaxed)
    }

    fn take_loss_of(&self, ino: Ino, at_close: bool) -> bool {
        self.cache.tell_lost(ino, at_close)
    }

    fn take_certain_loss_of(&self, ino: Ino) -> bool {
        self.cache.take_certain_loss(ino)
    }

    fn losses_of_server(&self) -> u64 {
        self.cache.losses()
    }

    fn metadata_needs(&self) -> Option<(u64, Vec<TargetId>)> {
        None
    }

    fn metadata_takes_more(&self, _: u64) -> Option<bool> {
        None
    }
}

//! Reclaims the session from a server that does not know it: one that was started again, or that
//! took over from another one.
//!
//! A request is for the server of one opening. So a message that changes what the session has
//! either came before the reclaim, which then includes it, or goes to the server afterwards, or is
//! dropped because the reclaim says the same.

use crate::FileSystem;
use crate::client::Client;
use crate::data::sharing::Sharing;
use meta::{Error, Result};
use plan::Ino;
use session::port::{Entered, Entry, FileLock, Held, Session, VERSION};
use volume::target::boot_time;

/// The most entries of one message, so that it fits into a frame.
const MAX_MESSAGE_ENTRIES: usize = 1 << 16;

impl FileSystem {
    /// Reclaims the session: reports the sets that this client writes to, and, if the server does
    /// not know the session, all that it has open and locked. First calls `have` with the session
    /// that this client has from now on: another one if the old one ended.
    ///
    /// # Errors
    /// If the server does not answer, or refuses: the caller may try again.
    pub fn reclaim(&self, session: &dyn Session, have: &dyn Fn(&Entered)) -> Result<()> {
        let Some(client) = self.client() else { return Ok(()) };
        let _one_at_a_time = client.cache.taking_up.lock();
        // Take only the client's own locks: a thread that waits for the server may hold any other
        // lock.
        let reclaimed_sets = client.sets.tell();
        let entered = session.enter(
            VERSION,
            &Entry {
                session: Some(client.number()),
                name: client.name.clone(),
                sets: reclaimed_sets.clone(),
                opening: client.cache.opening(),
                alone: client.exclusive.reclaim(boot_time()),
            },
        )?;
        if entered.opening.number < client.opening() {
            // It does not know yet that another one took over from it.
            return Err(Error::Unavailable("that server does not have the volume any more".into()));
        }
        have(&entered);
        let welcome = &entered.welcome;
        let (held, has_lost) = client.take_over(&entered);
        let any_set_is_lost = client.sets.keep(&reclaimed_sets, &welcome.kept) > 0;
        if welcome.lapsed {
            self.fence(client, welcome.session);
        } else if any_set_is_lost {
            self.volume.warn("this client was silent for too long: what it wrote and did not sync may be lost");
        }
        if has_lost {
            client.note_loss();
            self.volume.warn(
                "another metadata server has the volume now, and lacks some of what this client did and did not sync",
            );
        }
        if !welcome.fresh {
            return Ok(());
        }
        let refused = match tell(session, client.all(held)) {
            Err(Error::Unavailable(why)) => return Err(Error::Unavailable(why)),
            Err(why) => self.give_up(session, welcome.lapsed, &why)?,
            Ok(refused) => refused,
        };
        if client.locks.lose_some(&refused) > 0 {
            self.volume.warn(
                "another client took a lock while the metadata server was away: its holder is told at \
                its next operation",
            );
        }
        Ok(())
    }

    /// The server refuses what this client has, and would do so again. Ends the session, so that
    /// the client is fenced and goes on in another one, instead of asking for ever.
    fn give_up(&self, session: &dyn Session, lapsed: bool, why: &Error) -> Result<Vec<(Ino, FileLock)>> {
        self.volume.warn(&format!("the metadata server does not accept what this client has: {why}"));
        if lapsed {
            return tell(session, Held::default());
        }
        session.end()?;
        Err(Error::Unavailable("the session with the metadata server ended".into()))
    }
}

/// Tells the server what the session has. Returns the locks that it refuses.
fn tell(session: &dyn Session, mut held: Held) -> Result<Vec<(Ino, FileLock)>> {
    for part in 0.. {
        let some = held.split(MAX_MESSAGE_ENTRIES);
        let last = held.count() == 0;
        let refused = session.reclaim(part, last, &some)?;
        if last {
            return Ok(refused);
        }
    }
    Err(Error::TooLarge)
}

impl Client {
    /// From now on, requests are for the server of this opening, and opens and closes for this
    /// session. Returns the open files and the append reservations as of the last request to the
    /// one before, and whether changes are lost.
    fn take_over(&self, entered: &Entered) -> (Held, bool) {
        let (mut open, reservations) = (self.open.lock(), self.reservations.lock());
        open.session = entered.welcome.session;
        let has_lost = self.cache.take_over(entered.opening, entered.recovered);
        let held = Held {
            open: open.files.iter().map(|(&ino, &(all, writers))| (ino, all, writers)).collect(),
            reserved: reservations.iter().filter(|(_, of)| of.end > 0).map(|(&ino, of)| (ino, of.end)).collect(),
            ..Held::default()
        };
        (held, has_lost)
    }

    /// Adds the rest of what the session has. A fence may have changed it.
    fn all(&self, mut held: Held) -> Held {
        {
            let reservations = self.reservations.lock();
            held.reserved.retain_mut(|(ino, end)| match reservations.get(ino) {
                Some(of) => {
                    *end = of.end.min(*end);
                    true
                }
                None => false,
            });
        }
        held.dirty = self.dirty.lock().iter().map(|(&ino, &number)| (ino, number)).collect();
        held.owed = self.owed.lock().iter().map(|(&ino, &number)| (ino, number)).collect();
        held.kept = self.removals.kept();
        held.locks = self.locks.tell();
        held
    }
}

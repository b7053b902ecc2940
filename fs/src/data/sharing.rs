//! What the data layer must know about other clients that change the same volume.

use crate::clock::{now_after_stamps, stamp};
use crate::error::lost;
use crate::{FileSystem, Result};
use meta::{Attributes, Time};
use plan::{Ino, SessionId, TargetId};
use session::port::{session_of_work, within_session};
use std::time::Duration;

/// Bytes at the end of a file that are reserved for an append of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub begin: u64,
    /// No other reservation of this process lies behind it.
    pub is_last: bool,
}

/// Other users of the volume. Where the metadata is ([`Engine`](crate::role::Engine)), they are
/// sessions, which send requests; a [`Client`](crate::client::Client) sends requests to the server.
pub(crate) trait Sharing: Send + Sync {
    /// Whether other clients may change files at the same time.
    fn is_shared(&self) -> bool;

    /// The session that current work belongs to; None where sessions do not end.
    fn session(&self) -> Option<SessionId>;

    /// The number of the current period without other clients; None while there are others.
    fn alone(&self) -> Option<u64>;

    /// How long attributes and names may be cached, unless this process changes them.
    fn valid_for(&self) -> Duration;

    /// Counts one more opener. Returns the attributes with all that other clients wrote before;
    /// None if this process knows them.
    ///
    /// # Errors
    /// `NotFound`; also when the server cannot be reached.
    fn open(&self, ino: Ino, write: bool) -> meta::Result<Option<Attributes>>;

    /// Counts one opener less.
    ///
    /// # Errors
    /// When the server cannot be reached.
    fn close(&self, ino: Ino) -> meta::Result<()>;

    /// This client is about to append to a file: waits while it truncates it.
    fn begin_append(&self, ino: Ino);

    /// Reserves bytes at the end of a file for an append; None where no other client can append.
    ///
    /// # Errors
    /// When the server cannot be reached.
    fn reserve(&self, ino: Ino, length: u64) -> Result<Option<Reservation>>;

    /// The bytes of a reserved append are in the buffer, or will never be.
    fn appended(&self, ino: Ino);

    /// A file is about to be truncated: waits until all reserved appends of this client are in the
    /// buffer, and gets no more reservations, until `end_cut`.
    fn begin_cut(&self, ino: Ino);

    /// The truncation succeeded or failed.
    fn end_cut(&self, ino: Ino);

    /// Between these two: drops the reservations behind the new size. Returns the value that
    /// `uncut` needs if the truncation fails.
    fn cut(&self, ino: Ino, size: u64) -> Option<u64>;

    /// The truncation failed: restores what `cut` dropped.
    fn uncut(&self, ino: Ino, end: u64);

    /// Tells that the superseded content of these files was dropped.
    ///
    /// # Errors
    /// When the server cannot be reached.
    fn dropped(&self, inos: &[Ino]) -> meta::Result<()>;

    /// Drops cached extents of a file because they are outdated.
    fn forget_extents(&self, ino: Ino);

    /// Records that written data was lost.
    fn note_loss(&self);

    /// Whether data of a file may have been lost with a server. Returns true once for
    /// closing and once for syncing the file.
    fn take_loss_of(&self, ino: Ino, at_close: bool) -> bool;

    /// Whether changes of this very file may have been lost with the server's machine, and neither
    /// this nor a sync has reported it yet.
    fn take_certain_loss_of(&self, ino: Ino) -> bool;

    /// Whether written data was lost since the last call.
    fn take_loss(&self) -> bool;

    /// How often changes turned out to be lost with a server.
    fn losses_of_server(&self) -> u64;

    /// The bytes that the metadata may need on each of its mirrors, and the list of mirrors; None
    /// where the server accounts for that.
    fn metadata_needs(&self) -> Option<(u64, Vec<TargetId>)>;

    /// Whether the metadata can grow by more than the given bytes of small files; None where the
    /// server decides that.
    fn metadata_takes_more(&self, inline_bytes: u64) -> Option<bool>;
}

impl FileSystem {
    /// Whether other clients may change files at the same time.
    pub fn is_shared(&self) -> bool {
        self.sharing().is_shared()
    }

    /// How long attributes and names may be cached, unless this process changes them.
    pub fn valid_for(&self) -> Duration {
        self.sharing().valid_for()
    }

    /// The number of the current period without other clients: no other client changes what is read
    /// in it. None while there are others.
    pub fn alone(&self) -> Option<u64> {
        self.sharing().alone()
    }

    /// Runs work that belongs to the current session, or to the session of the work around it. If
    /// that session ends meanwhile, its requests fail, and nothing of it gets into a buffer. A
    /// mount calls this before it checks whether a program still holds its locks.
    pub fn in_this_session<T>(&self, work: impl FnOnce() -> T) -> T {
        within_session(self.sharing().session(), work)
    }

    /// Refuses work of a session that has ended, and work that began between two sessions. Call it
    /// while the state to change is locked: a fence drops everything that got into a buffer before
    /// it.
    pub(crate) fn is_still_in_session(&self) -> Result<()> {
        match (self.sharing().session(), session_of_work()) {
            (Some(now), Some(session)) if session == SessionId::NONE || session != now => Err(lost()),
            _ => Ok(()),
        }
    }

    /// The time for a change of names or attributes: one that the kernel would give. It keeps the
    /// times of writes itself in some mounts, and all clients of this machine share its clock.
    pub(crate) fn stamp(&self) -> Time {
        stamp()
    }

    /// The time of a write. Another client of this machine may have stamped something just before.
    pub(crate) fn stamp_of_write(&self) -> Time {
        if self.is_shared() { stamp() } else { now_after_stamps() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Lab, make};

    /// A mount of a client may have the kernel stamp what is written.
    #[test]
    fn what_a_client_changes_later_has_no_earlier_time_than_the_kernel_gave() {
        let lab = Lab::new("rs:2+1", 3);
        let fs = lab.client();
        for round in 0..50 {
            let before = stamp();
            let ino = make(&fs, &format!("file{round}"));
            let made = fs.attributes(ino).unwrap().modified;
            assert!(made >= before, "round {round}: made at {made:?}, after {before:?}");
            let before = stamp();
            fs.write(ino, 0, b"x").unwrap();
            let written = fs.attributes(ino).unwrap().modified;
            assert!(written >= before, "round {round}: written at {written:?}, after {before:?}");
        }
    }
}

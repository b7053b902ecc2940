//! What the data of a volume must know of others who change it, too.

use crate::clock::{now, now_after_stamps, stamp};
use crate::data::write::lost;
use crate::{FileSystem, Result};
use meta::port::{session_of_work, within_session};
use meta::{Attributes, Time};
use plan::TargetId;
use std::time::Duration;

/// The number of no session. Work that begins between two sessions has it, and fails.
pub(crate) const NO_SESSION: u64 = 0;

/// Bytes behind the end of a file that are this process's alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub begin: u64,
    /// No other reservation of this process lies behind it.
    pub is_last: bool,
}

/// Others who share a volume with this process. Where the metadata is ([`Engine`](crate::role::Engine)) they are
/// sessions, which ask; a [`Client`](crate::client::Client) asks the server.
pub(crate) trait Sharing: Send + Sync {
    /// Whether others may change files at the same time.
    fn is_shared(&self) -> bool;

    /// The session that work belongs to now; None where no session can end.
    fn session(&self) -> Option<u64>;

    /// The number of the time without others that goes on; None with others.
    fn alone(&self) -> Option<u64>;

    /// How long attributes and names stay what they are, unless they are changed here.
    fn valid_for(&self) -> Duration;

    /// Counts one more opener. Returns what the file is with all that others wrote before; None where that is known here.
    ///
    /// # Errors
    /// `NotFound`; when the server cannot be asked.
    fn open(&self, ino: u64, write: bool) -> meta::Result<Option<Attributes>>;

    /// One opener less.
    ///
    /// # Errors
    /// When the server cannot be told.
    fn close(&self, ino: u64) -> meta::Result<()>;

    /// Reserves bytes behind the end of a file for an append; None where nobody else appends.
    ///
    /// # Errors
    /// When the server cannot be asked.
    fn reserve(&self, ino: u64, length: u64) -> Result<Option<Reservation>>;

    /// The bytes of an append are in the buffer, or will never be.
    fn appended(&self, ino: u64);

    /// A file is about to be cut off, with all reservations behind that. Returns what `uncut` takes if it cannot be.
    fn cut(&self, ino: u64, size: u64) -> Option<u64>;

    /// A file was not cut off.
    fn uncut(&self, ino: u64, end: u64);

    /// Forgets which extents a file has, as they are old.
    fn forget_extents(&self, ino: u64);

    /// Something that was written is lost.
    fn note_loss(&self);

    /// Whether something of a file was lost with the server's machine. Says so once for closing and once for syncing it.
    fn take_loss_of(&self, ino: u64, at_close: bool) -> bool;

    /// Whether something that was written was lost since the last call.
    fn take_loss(&self) -> bool;

    /// The start of the server's machine, as far as it is known; None where there is no server.
    fn server_start(&self) -> Option<u64>;

    /// The bytes that the metadata may need on each of its mirrors, and which these are; None where the server says that.
    fn metadata_needs(&self) -> Option<(u64, Vec<TargetId>)>;

    /// Whether the metadata can grow, beside that many bytes of small files; None where the server says that.
    fn metadata_takes_more(&self, inline_bytes: u64) -> Option<bool>;
}

impl FileSystem {
    /// Whether others may change files at the same time.
    pub fn is_shared(&self) -> bool {
        self.sharing().is_shared()
    }

    /// How long attributes and names stay what they are, unless they are changed here.
    pub fn valid_for(&self) -> Duration {
        self.sharing().valid_for()
    }

    /// The number of the time without other clients that goes on: what was seen in it was changed by nobody else since.
    /// None with others.
    pub fn alone(&self) -> Option<u64> {
        self.sharing().alone()
    }

    /// Does work that belongs to the session that there is now, or to that of the work around it: if that ends meanwhile,
    /// its requests fail, and nothing of it gets into a buffer. A mount begins with this before it looks whether a program
    /// still has its locks.
    pub fn in_this_session<T>(&self, work: impl FnOnce() -> T) -> T {
        within_session(self.sharing().session(), work)
    }

    /// Refuses work of a session that ended. To be called with the state locked that is changed then: what is taken in
    /// before a fence is dropped by it.
    pub(crate) fn is_still_in_session(&self) -> Result<()> {
        match (self.sharing().session(), session_of_work()) {
            (Some(now), Some(session)) if session == NO_SESSION || session != now => Err(lost()),
            _ => Ok(()),
        }
    }

    /// The time of a change of names or attributes. Where the kernel keeps times of writes itself, it is one that the
    /// kernel would give; among the clients of a server, one that all of them on this machine give.
    pub(crate) fn stamp(&self) -> Time {
        if self.is_shared() { now() } else { stamp() }
    }

    /// The time of a write.
    pub(crate) fn stamp_of_write(&self) -> Time {
        if self.is_shared() { now() } else { now_after_stamps() }
    }
}

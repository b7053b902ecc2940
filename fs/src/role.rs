//! The role of a process: it has the metadata of the volume itself, or it is a client of a metadata
//! server.

use crate::client::Client;
use crate::data::sharing::{Reservation, Sharing};
use crate::{Error, FileSystem, Result};
use meta::Attributes;
use plan::{Ino, SessionId, TargetId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The role of this process for an open volume.
pub(crate) enum Role {
    /// This process has the metadata: the volume is embedded, or this is the metadata server.
    Owner(Engine),
    /// A metadata server has the metadata.
    Client(Box<Client>),
}

/// The metadata and its journal.
pub(crate) struct Engine {
    pub meta: Arc<meta::Meta>,
    pub journal: Arc<meta::journal::Journaled>,
    /// Written data was lost, and no sync of everything has told it.
    pub loss: AtomicBool,
    /// Clients change files, too.
    pub serves: bool,
}

impl Role {
    pub fn owner(&self) -> Option<&Engine> {
        match self {
            Self::Owner(engine) => Some(engine),
            Self::Client(_) => None,
        }
    }

    pub fn client(&self) -> Option<&Client> {
        match self {
            Self::Owner(_) => None,
            Self::Client(client) => Some(client),
        }
    }
}

impl FileSystem {
    /// The metadata, for maintenance.
    pub(crate) fn engine(&self) -> Result<&Engine> {
        self.role.owner().ok_or(Error::Unsupported("only the metadata server of the volume can do that"))
    }

    /// The client's half of the session with a metadata server.
    pub(crate) fn client(&self) -> Option<&Client> {
        self.role.client()
    }

    /// The other users of the volume.
    pub(crate) fn sharing(&self) -> &dyn Sharing {
        match &self.role {
            Role::Owner(engine) => engine,
            Role::Client(client) => &**client,
        }
    }
}

/// The owner of the metadata knows every change: its sessions send it each one.
impl Sharing for Engine {
    fn is_shared(&self) -> bool {
        false
    }

    fn session(&self) -> Option<SessionId> {
        None
    }

    fn alone(&self) -> Option<u64> {
        Some(0)
    }

    fn valid_for(&self) -> Duration {
        Duration::from_secs(24 * 60 * 60)
    }

    fn open(&self, _: Ino, _: bool) -> meta::Result<Option<Attributes>> {
        Ok(None)
    }

    fn close(&self, _: Ino) -> meta::Result<()> {
        Ok(())
    }

    fn reserve(&self, _: Ino, _: u64) -> Result<Option<Reservation>> {
        Ok(None)
    }

    fn appended(&self, _: Ino) {}

    fn cut(&self, _: Ino, _: u64) -> Option<u64> {
        None
    }

    fn uncut(&self, _: Ino, _: u64) {}

    fn begin_append(&self, _: Ino) {}

    fn begin_cut(&self, _: Ino) {}

    fn end_cut(&self, _: Ino) {}

    fn dropped(&self, _: &[Ino]) -> meta::Result<()> {
        Ok(())
    }

    fn forget_extents(&self, _: Ino) {}

    fn note_loss(&self) {
        self.loss.store(true, Ordering::Relaxed);
    }

    fn take_loss(&self) -> bool {
        self.loss.swap(false, Ordering::Relaxed)
    }

    fn take_loss_of(&self, _: Ino, _: bool) -> bool {
        false
    }

    fn take_certain_loss_of(&self, _: Ino) -> bool {
        false
    }

    fn losses_of_server(&self) -> u64 {
        0
    }

    fn metadata_needs(&self) -> Option<(u64, Vec<TargetId>)> {
        let status = self.journal.status();
        Some((status.need_bytes, status.mirrors))
    }

    fn metadata_takes_more(&self, inline_bytes: u64) -> Option<bool> {
        Some(self.journal.takes_more(inline_bytes))
    }
}

//! Whether an open volume is still this process's to answer for.

use crate::FileSystem;
use meta::journal::Standing;
use plan::TxId;

/// How certain it is that no other process has the volume open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tenure {
    /// It is certain.
    Fresh,
    /// It was not confirmed in time: an answer may be outdated now.
    Stale,
    /// Another opening has the volume.
    Over,
    /// The metadata cannot be written here any more, as when the disk of the index was full. Only a
    /// new opening goes on.
    Failed,
}

impl FileSystem {
    /// Whether an answer may be given that was made before this call. It waits for nothing.
    pub fn tenure(&self) -> Tenure {
        match self.role.owner().map(|engine| engine.journal.standing()) {
            Some(Standing::Fenced) => Tenure::Over,
            Some(Standing::Failed) => Tenure::Failed,
            Some(Standing::Late) => Tenure::Stale,
            Some(Standing::Fresh) | None => Tenure::Fresh,
        }
    }

    /// Whether reads of metadata within this time wait for no renewal of the lease.
    pub fn lease_lasts(&self, time: std::time::Duration) -> bool {
        self.role.owner().is_none_or(|engine| engine.journal.lease_lasts(time))
    }

    /// Why the metadata is in trouble, if it is.
    pub fn trouble(&self) -> Option<String> {
        self.role.owner().and_then(|engine| engine.journal.status().trouble)
    }

    /// The number of the last transaction; 0 for a client.
    pub fn last_transaction(&self) -> TxId {
        self.role.owner().map(|engine| engine.journal.status().committed).unwrap_or_default()
    }
}

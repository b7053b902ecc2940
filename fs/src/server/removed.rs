//! Files that lost their last name. They stay as long as the kernel of some client knows them,
//! because it may still open them.

use super::{Leases, Sessions};
use crate::FileSystem;

impl Leases {
    /// A file lost its last name and is not open.
    pub fn set_aside(&self, ino: u64) {
        self.table().set_aside(ino);
    }

    /// Whether a client has a file open, or keeps it for its kernel.
    pub fn is_open(&self, ino: u64) -> bool {
        self.table().is_open(ino)
    }
}

impl FileSystem {
    /// Passes removed files that no client keeps to the collector.
    pub(crate) fn let_go_after_grace(&self) {
        // In the grace period, sessions may keep files that they have not reclaimed yet.
        if !self.leases.is_in_grace() {
            let settled = self.leases.table().take_settled();
            settled.into_iter().for_each(|ino| self.collector.add_orphan(ino));
        }
    }
}

impl Sessions {
    /// Records the removals that a session has processed. Returns the next ones, with the number of
    /// the last.
    pub(super) fn note(&self, session: u64, noted: u64, kept: &[u64], forgotten: &[u64]) -> (u64, Vec<u64>) {
        let (last, next, given_up) = self.fs.leases.table().note(session, noted, kept, forgotten);
        given_up.into_iter().for_each(|ino| self.closed(ino));
        self.fs.let_go_after_grace();
        (last, next)
    }

    /// No client has the file open any more. A file without a name is removed, unless a kernel
    /// knows it.
    pub(super) fn closed(&self, ino: u64) {
        if self.fs.meta.attributes(ino).is_ok_and(|attributes| attributes.links == 0) {
            self.fs.leases.set_aside(ino);
        }
    }
}

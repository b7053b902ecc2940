//! Files that lost their last name: they stay for as long as the kernel of some client knows them, since it may open them still.

use super::{Leases, Sessions};
use crate::FileSystem;

impl Leases {
    /// A file lost its last name, and nobody has it open.
    pub fn set_aside(&self, ino: u64) {
        self.table().set_aside(ino);
    }

    /// Whether a client has a file open, or keeps it for its kernel.
    pub fn is_open(&self, ino: u64) -> bool {
        self.table().is_open(ino)
    }
}

impl FileSystem {
    /// Has the collector drop the removed files that no client keeps.
    pub(crate) fn let_go_after_grace(&self) {
        // Sessions of before may keep some, and did not say so yet.
        if !self.leases.is_in_grace() {
            let settled = self.leases.table().take_settled();
            settled.into_iter().for_each(|ino| self.collector.add_orphan(ino));
        }
    }
}

impl Sessions {
    /// A session took note of removals. Returns the next ones, with the number of the last.
    pub(super) fn note(&self, session: u64, noted: u64, kept: &[u64], forgotten: &[u64]) -> (u64, Vec<u64>) {
        let (last, next, given_up) = self.fs.leases.table().note(session, noted, kept, forgotten);
        given_up.into_iter().for_each(|ino| self.closed(ino));
        self.fs.let_go_after_grace();
        (last, next)
    }

    /// Nobody has a file open any more. One without a name goes, unless a kernel knows it.
    pub(super) fn closed(&self, ino: u64) {
        if self.fs.meta.attributes(ino).is_ok_and(|attributes| attributes.links == 0) {
            self.fs.leases.set_aside(ino);
        }
    }
}

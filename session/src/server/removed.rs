//! Files that lost their last name. They stay as long as the kernel of some client knows them,
//! because it may still open them.

use super::{Leases, Sessions, Volume};
use plan::{Ino, SessionId};

impl Leases {
    /// A file lost its last name and is not open.
    pub fn set_aside(&self, ino: Ino) {
        self.table().set_aside(ino);
    }

    /// Whether a client has a file open, or keeps it for its kernel.
    pub fn is_open(&self, ino: Ino) -> bool {
        self.table().is_open(ino)
    }

    /// Deletes those of these files that no client has open. Who opens one meanwhile waits.
    pub fn delete<T>(&self, mut inos: Vec<Ino>, delete: impl FnOnce(&[Ino]) -> T) -> T {
        self.table().begin_deletion(&mut inos);
        let deleting = Deleting(self, inos);
        delete(&deleting.1)
    }

    /// Takes the removed files that no client keeps.
    pub fn take_settled(&self) -> Vec<Ino> {
        // In the grace period, sessions may keep files that they have not reclaimed yet.
        if self.is_in_grace() { Vec::new() } else { self.table().take_settled() }
    }
}

/// Files that are being deleted.
struct Deleting<'a>(&'a Leases, Vec<Ino>);

impl Drop for Deleting<'_> {
    fn drop(&mut self) {
        self.0.table().end_deletion(&self.1);
        self.0.changed.notify_all();
    }
}

impl<V: Volume> Sessions<V> {
    /// Passes removed files that no client keeps to the volume.
    pub(super) fn let_go(&self) {
        self.leases().take_settled().into_iter().for_each(|ino| self.volume.remove_orphan(ino));
    }

    /// Records the removals that a session has processed. Returns the next ones, with the number of
    /// the last.
    pub(super) fn note(&self, session: SessionId, noted: u64, kept: &[Ino], forgotten: &[Ino]) -> (u64, Vec<Ino>) {
        let (last, next, given_up) = self.leases().table().note(session, noted, kept, forgotten);
        given_up.into_iter().for_each(|ino| self.closed(ino));
        self.let_go();
        (last, next)
    }

    /// No client has the file open any more. A file without a name is removed, unless a kernel
    /// knows it.
    pub(super) fn closed(&self, ino: Ino) {
        let found = self.volume.meta().and_then(|meta| meta.attributes(ino));
        let is_gone = matches!(found, Err(meta::Error::NotFound));
        // Without an answer, it may have no name. One that has a name is not deleted.
        if !is_gone && !found.is_ok_and(|attributes| attributes.links > 0) {
            self.leases().set_aside(ino);
        }
    }
}

//! Changes that truncate files: meanwhile no append gets a reservation in them.

use super::Handle;
use crate::server::{Leases, Volume};
use meta::{ContentEdit, Resize, Result};
use plan::{Ino, SessionId};

/// Files that are being truncated, with their new sizes.
struct Cutting<'a> {
    leases: &'a Leases,
    session: SessionId,
    cuts: Vec<(Ino, u64)>,
    is_done: bool,
}

impl<'a> Cutting<'a> {
    fn begin(leases: &'a Leases, session: SessionId, cuts: Vec<(Ino, u64)>) -> Self {
        let mut table = leases.table();
        cuts.iter().for_each(|(ino, _)| table.begin_cut(*ino));
        drop(table);
        Self { leases, session, cuts, is_done: false }
    }
}

impl Drop for Cutting<'_> {
    fn drop(&mut self) {
        let mut table = self.leases.table();
        for &(ino, size) in &self.cuts {
            table.end_cut(self.session, ino, Some(size).filter(|_| self.is_done));
        }
        drop(table);
        self.leases.changed.notify_all();
    }
}

impl<V: Volume> Handle<V> {
    /// Runs changes that may truncate files. Meanwhile no append gets a reservation in them;
    /// existing reservations are cut with the file, unless others have uncommitted bytes in them.
    pub(super) fn cutting<T>(&self, edits: &[(Ino, &ContentEdit)], change: impl FnOnce() -> Result<T>) -> Result<T> {
        let size_of = |(ino, edit): &(Ino, &ContentEdit)| match edit.resize {
            Resize::To(size) => Some((*ino, size)),
            _ => None,
        };
        let cuts: Vec<(Ino, u64)> = edits.iter().filter_map(size_of).collect();
        if cuts.is_empty() {
            return change();
        }
        let mut cutting = Cutting::begin(self.sessions.leases(), self.session, cuts);
        let done = change()?;
        cutting.is_done = true;
        Ok(done)
    }
}

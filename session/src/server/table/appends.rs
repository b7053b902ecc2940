//! Append reservations in open files, and truncations, which change where the files end.

use super::Table;
use plan::Ino;

impl Table {
    /// Reserves `length` bytes at the end of a file whose size is at least `size`; returns the
    /// offset where they begin.
    pub fn reserve(&mut self, ino: Ino, size: u64, length: u64) -> Option<u64> {
        let before = self.ends.get(&ino).copied().unwrap_or(0);
        let from = size.max(before);
        let end = from.checked_add(length).filter(|&end| end <= meta::MAX_SIZE)?;
        self.ends.insert(ino, end);
        Some(from)
    }

    /// Begins a truncation: until it ends, the end of the file is unknown. Only one truncation of a
    /// file at a time.
    pub fn begin_cut(&mut self, ino: Ino) {
        self.being_cut.insert(ino);
    }

    /// Ends a truncation to this size; None if it failed.
    pub fn end_cut(&mut self, ino: Ino, size: Option<u64>) {
        self.being_cut.remove(&ino);
        self.cuts += 1;
        if let (Some(end), Some(size)) = (self.ends.get_mut(&ino), size) {
            *end = size.min(*end);
        }
    }

    /// Whether a file is being truncated: no reservations are given out meanwhile.
    pub fn is_being_cut(&self, ino: Ino) -> bool {
        self.being_cut.contains(&ino)
    }

    /// The number of truncations so far. A size that was read before the last one may be outdated.
    pub fn cuts(&self) -> u64 {
        self.cuts
    }

    /// Drops reservations of files that no client has open or uncommitted: the metadata has their
    /// size.
    pub(super) fn forget_reservations(&mut self) {
        let clients = &self.clients;
        self.ends.retain(|ino, _| clients.values().any(|c| c.open.contains_key(ino) || c.dirty.contains_key(ino)));
    }
}

//! Removed files, which are kept until no kernel of a client knows them.

use super::{MAX_MEMBER_FILES, Table};
use crate::REMOVED_AT_A_TIME;
use plan::{Ino, SessionId};

/// The most removed files that are kept for clients that have not processed their removal yet. With
/// more, the oldest are dropped.
pub(super) const MAX_REMOVED_FILES: usize = 1 << 17;
/// The most files without a name that are kept for the kernel of one client.
pub(super) const MAX_KEPT_FILES: usize = 1 << 16;

impl Table {
    /// A file lost its last name and is not open: it is kept until all clients have reported
    /// whether their kernels know it.
    pub fn set_aside(&mut self, ino: Ino) {
        self.removals += 1;
        self.removed.push_back((self.removals, ino));
    }

    /// The number of the last removal.
    pub fn last_removal(&self) -> u64 {
        self.removals
    }

    /// Records that a session has processed the removals up to a number: its kernel knows the files
    /// `kept`, and has forgotten files that it kept before. Returns the next removals, the number
    /// of the last of them, and the forgotten files that no client needs any more.
    pub fn note(
        &mut self,
        session: SessionId,
        noted: u64,
        kept: &[Ino],
        forgotten: &[Ino],
    ) -> (u64, Vec<Ino>, Vec<Ino>) {
        let last = self.removals;
        let peer = self.clients.get(&session).map_or("", |client| &client.peer).to_owned();
        let limited = !kept.is_empty() && !peer.is_empty();
        let allowance =
            if limited { MAX_MEMBER_FILES.saturating_sub(self.files_of_member(&peer)) } else { MAX_KEPT_FILES };
        let Some(client) = self.clients.get_mut(&session) else { return (last, Vec::new(), Vec::new()) };
        client.noted = client.noted.max(noted.min(last));
        let allowance = MAX_KEPT_FILES.saturating_sub(client.kept.len()).min(allowance);
        client.kept.extend(kept.iter().take(allowance));
        let mut given_up: Vec<Ino> = forgotten.iter().copied().filter(|ino| client.kept.remove(ino)).collect();
        given_up.retain(|&ino| !self.is_open(ino));
        let first = self.removed.partition_point(|(number, _)| *number <= noted);
        let next: Vec<(u64, Ino)> = self.removed.iter().skip(first).take(REMOVED_AT_A_TIME).copied().collect();
        let reported = if next.len() < REMOVED_AT_A_TIME { last } else { next[next.len() - 1].0 };
        (reported, next.into_iter().map(|(_, ino)| ino).collect(), given_up)
    }

    /// Takes the removed files that no client keeps.
    pub fn take_settled(&mut self) -> Vec<Ino> {
        let noted = self.clients.values().map(|client| client.noted).min().unwrap_or(u64::MAX);
        let settled = self.removed.partition_point(|(number, _)| *number <= noted);
        let settled = settled.max(self.removed.len().saturating_sub(MAX_REMOVED_FILES));
        let gone: Vec<Ino> = self.removed.drain(..settled).map(|(_, ino)| ino).collect();
        gone.into_iter().filter(|&ino| !self.is_open(ino)).collect()
    }

    /// Leaves those of these files that are not open. Nobody opens them before `end_deletion`.
    pub fn begin_deletion(&mut self, inos: &mut Vec<Ino>) {
        inos.retain(|&ino| !self.is_open(ino));
        self.being_deleted.extend(inos.iter());
    }

    /// These files are deleted, or could not be.
    pub fn end_deletion(&mut self, inos: &[Ino]) {
        inos.iter().for_each(|ino| _ = self.being_deleted.remove(ino));
    }
}

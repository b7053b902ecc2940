//! A client whose session ended, as it was silent for longer than its lease: others may have changed since what it had locked or read. Nothing of what it had not
//! committed then may come into the volume any more, and those who wrote or locked something hear of it.

use crate::FileSystem;
use crate::client::Client;
use crate::file::State;
use meta::port::within_session;

impl FileSystem {
    /// Does work that belongs to the session that there is now: if that ends meanwhile, its requests fail.
    pub(crate) fn in_this_session<T>(&self, work: impl FnOnce() -> T) -> T {
        within_session(self.client.as_ref().map(Client::number), work)
    }

    /// The session ended, and this client has another one from now on. Drops what is not committed, gives up all locks, and has those hear of it whom that concerns.
    /// Asks nobody, and takes no turns: whoever waits for the server may have some.
    pub(crate) fn fence(&self, client: &Client, session: u64) {
        // First: what is taken from a buffer from now on is of the new session.
        client.set_number(session);
        client.forget_reserved();
        let locks = client.locks.lose_all();
        let files = self.table.all().iter().filter(|file| self.lose_uncommitted(&mut file.state())).count();
        self.volume.warn(&format!(
            "this client was silent for longer than its lease, so that its session ended: {files} files lost what was written and not synced, and {locks} locks are lost"
        ));
    }

    /// Drops what is uncommitted of a file. Returns whether there was something: whoever syncs or closes it next hears of it.
    fn lose_uncommitted(&self, state: &mut State) -> bool {
        let lost = !state.buffer.is_clean();
        self.change_buffer(state, |buffer| {
            buffer.forget(0..u64::MAX);
            // Others may have changed it.
            (buffer.modified, buffer.size) = (None, None);
        });
        state.changes += 1;
        if lost {
            state.failed = None;
            self.note_lost(state);
        }
        lost
    }

    /// Notes that something of a file is lost.
    pub(crate) fn note_lost(&self, state: &mut State) {
        state.lost = true;
        state.losses += 1;
        self.client.iter().for_each(Client::note_loss);
    }

    /// How often something that was written to an open file was lost. Whoever has it open since before hears of each loss once, by comparing.
    pub fn losses(&self, ino: u64) -> u64 {
        self.table.find(ino).map_or(0, |file| file.state().losses)
    }

    /// Whether locks were lost that `take_lost_locks` did not tell of yet.
    pub fn has_lost_locks(&self) -> bool {
        self.client.as_ref().is_some_and(|client| client.locks.any_is_lost())
    }

    /// The locks that were lost since the last call: files and owners.
    pub fn take_lost_locks(&self) -> Vec<(u64, u64)> {
        self.client.as_ref().map_or_else(Vec::new, |client| client.locks.take_lost())
    }
}

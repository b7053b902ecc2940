//! A client whose session ended, as it was silent for longer than its lease: others may have changed since what it had locked or read. Nothing of what it had not
//! committed then may come into the volume any more, and those who wrote or locked something hear of it.

use crate::FileSystem;
use crate::client::Client;
use crate::data::file::State;
use crate::data::sharing::NO_SESSION;

impl FileSystem {
    /// The session ended, and this client has another one from now on. Drops what is not committed, gives up all locks, and has those hear of it whom that concerns.
    /// Asks nobody, and takes no turns: whoever waits for the server may have some.
    pub(crate) fn fence(&self, client: &Client, session: u64) {
        // Until all is dropped there is no session: what is taken from a buffer meanwhile is not of the new one, and nothing gets in.
        client.set_number(NO_SESSION);
        client.forget_reserved();
        let locks = client.locks.lose_all();
        let files = self.table.all().iter().filter(|file| self.lose_uncommitted(&mut file.state())).count();
        client.set_number(session);
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

    /// Whether locks were lost that `take_lost_locks` did not tell of yet.
    pub fn has_lost_locks(&self) -> bool {
        self.client().is_some_and(|client| client.locks.any_is_lost())
    }

    /// The locks that were lost since the last call: files and owners.
    pub fn take_lost_locks(&self) -> Vec<(u64, u64)> {
        self.client().map_or_else(Vec::new, |client| client.locks.take_lost())
    }
}

#[cfg(test)]
mod tests {
    use crate::data::sharing::NO_SESSION;
    use crate::testing::{Lab, make};
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    /// What a file had in memory must not be committed in the new session because its turn to be dropped has not come yet.
    #[test]
    fn nothing_is_committed_or_taken_in_while_a_fence_drops_what_there_is() {
        let lab = Lab::new("rs:2+1", 3);
        let fs = lab.client();
        let files = [make(&fs, "first"), make(&fs, "second")];
        for ino in files {
            fs.open(ino, true).unwrap();
            fs.write(ino, 0, b"of the old session").unwrap();
        }
        let (client, first) = (fs.client().unwrap(), fs.table.find(files[0]).unwrap());
        let session = client.number();
        let (held, is_held) = channel();
        let (let_go, go) = channel::<()>();
        std::thread::scope(|scope| {
            // The fence does not get past the first file for as long as somebody has that.
            scope.spawn(move || {
                let _state = first.state();
                held.send(()).unwrap();
                let _ = go.recv();
            });
            is_held.recv().unwrap();
            let fence = scope.spawn(|| fs.fence(client, session));
            let begun = Instant::now();
            while client.number() == session && begun.elapsed() < Duration::from_secs(20) {
                std::thread::yield_now();
            }
            let (synced, written) = (fs.sync(files[1]), fs.write(files[1], 0, b"of none"));
            let number = client.number();
            drop(let_go);
            fence.join().unwrap();
            assert!(synced.is_err() && written.is_err());
            assert_eq!(number, NO_SESSION);
        });
        assert_eq!(client.number(), session);
        for ino in files {
            // It hears that something is lost, once.
            fs.sync(ino).unwrap_err();
            fs.sync(ino).unwrap();
            assert_eq!(fs.attributes(ino).unwrap().size, 0);
        }
        fs.write(files[1], 0, b"new").unwrap();
        fs.sync(files[1]).unwrap();
        assert_eq!(fs.attributes(files[1]).unwrap().size, 3);
    }
}

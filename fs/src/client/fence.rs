//! The fence: what a client does when its session ended because it was silent for longer than its
//! lease. Since then, other clients may have changed what it had locked or read. So nothing that it
//! had not committed may get into the volume any more, and the programs that wrote or locked
//! something get an error.

use crate::FileSystem;
use crate::client::Client;
use plan::{Ino, SessionId};
use std::sync::atomic::Ordering;

impl FileSystem {
    /// Fences the client: the old session ended, and `session` is the new one. Drops all
    /// uncommitted data, gives up all locks, and reports this to the programs concerned. Sends no
    /// requests and takes no locks that a thread waiting for the server may hold.
    pub(crate) fn fence(&self, client: &Client, session: SessionId) {
        // Until everything is dropped there is no session: data that is taken from a buffer
        // meanwhile does not belong to the new one, and nothing gets into a buffer.
        client.set_number(SessionId::NONE);
        client.fences.fetch_add(1, Ordering::SeqCst);
        client.forget_reserved();
        let locks = client.locks.lose_all();
        let files = self.table.all().iter().filter(|file| self.lose_uncommitted(&mut file.state())).count();
        client.set_number(session);
        self.volume.warn(&format!(
            "this client was silent for longer than its lease, so that its session ended: {files} files lost what was \
             written and not synced, and {locks} locks are lost"
        ));
    }

    /// How often this client was fenced. Data of a file from before the last fence must not be
    /// written any more.
    pub fn fences(&self) -> u64 {
        self.client().map_or(0, |client| client.fences.load(Ordering::SeqCst))
    }

    /// Whether locks were lost that `take_lost_locks` has not reported yet.
    pub fn has_lost_locks(&self) -> bool {
        self.client().is_some_and(|client| client.locks.any_is_lost())
    }

    /// The locks that were lost since the last call: files and owners.
    pub fn take_lost_locks(&self) -> Vec<(Ino, u64)> {
        self.client().map_or_else(Vec::new, |client| client.locks.take_lost())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Lab, make};
    use plan::SessionId;
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    /// Data in memory must not be committed in the new session just because the fence has not
    /// reached its file yet.
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
            // The fence waits at the first file while another thread holds its state.
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
            assert_eq!(number, SessionId::NONE);
        });
        assert_eq!(client.number(), session);
        for ino in files {
            // The sync reports the loss, once.
            fs.sync(ino).unwrap_err();
            fs.sync(ino).unwrap();
            assert_eq!(fs.attributes(ino).unwrap().size, 0);
        }
        fs.write(files[1], 0, b"new").unwrap();
        fs.sync(files[1]).unwrap();
        assert_eq!(fs.attributes(files[1]).unwrap().size, 3);
    }
}

//! What a client and a server of an opening tell each other when a session begins or is reclaimed.

use super::file_lock::FileLock;
use plan::{Ino, SessionId, SetId, StripeSeq, TxId};
use serde::{Deserialize, Serialize};

/// The version of the messages of a session that this crate speaks. A server also speaks the one
/// before: its clients begin with `begin`, and reclaim by many messages.
pub const VERSION: u16 = 2;

/// An opening of a volume for writing. Two openings with one number and different ids are
/// different histories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// Grows with each opening; 0 for none.
    pub number: u64,
    /// Random.
    pub id: [u8; 16],
}

/// How a client begins a session, or reclaims its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The session to reclaim.
    pub session: Option<SessionId>,
    /// The client's name.
    pub name: String,
    /// The chunk sets that it writes to.
    pub sets: Vec<SetId>,
    /// The opening that the client knows; the default if it knows none.
    pub opening: Opening,
    /// The client has an exclusive lease from that opening.
    pub alone: bool,
}

/// The server's answer when a session begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The session's number.
    pub session: SessionId,
    /// Proves that the session is this client's. No other client learns it.
    pub secret: [u8; 16],
    /// The server did not know the session before.
    pub fresh: bool,
    /// The session that the client wanted to reclaim had ended. This is a new one; the server
    /// accepts nothing that belongs to the old session.
    pub lapsed: bool,
    /// The volume's label, as JSON.
    pub label: String,
    /// The first number that the session gives to its stripes.
    pub first_stripe: StripeSeq,
    /// Changes when unsynced data may be lost with the earlier server; for clients of version 1,
    /// which do not compare openings.
    pub start: u64,
    /// How long the session lives without a heartbeat, in milliseconds.
    pub lease_ms: u32,
    /// The chunk sets that the session may still write to. The server has released the session's
    /// other sets, except for what transactions name of them.
    pub kept: Vec<SetId>,
}

/// The server's answer to an [`Entry`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entered {
    /// The session.
    pub welcome: Welcome,
    /// The server's opening.
    pub opening: Opening,
    /// The last transaction of the opening that the client knows that is still there. Later ones
    /// were lost with the server. `TxId::MAX` when nothing was lost.
    pub recovered: TxId,
}

/// What a session has, for a server that does not know it. A long list comes in parts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Open files: the number of openers, and of those that write. There may be more writers than
    /// openers: writers are counted until the last opener closes.
    pub open: Vec<(Ino, u32, u32)>,
    /// Files with uncommitted data, each with the number of the last open or close by a writer.
    pub dirty: Vec<(Ino, u64)>,
    /// Files of which it owes what was written before that number; see [`Session`](super::Session).
    pub owed: Vec<(Ino, u64)>,
    /// Files without a name that the client's kernel knows.
    pub kept: Vec<Ino>,
    /// The ends of append reservations.
    pub reserved: Vec<(Ino, u64)>,
    /// Locks, each with its file.
    pub locks: Vec<(Ino, FileLock)>,
}

impl Held {
    /// The number of entries in all lists.
    pub fn count(&self) -> usize {
        self.open.len() + self.dirty.len() + self.owed.len() + self.kept.len() + self.reserved.len() + self.locks.len()
    }

    /// Cuts off `most` entries.
    #[must_use]
    pub fn split(&mut self, most: usize) -> Self {
        let mut left = most;
        Self {
            open: front(&mut self.open, &mut left),
            dirty: front(&mut self.dirty, &mut left),
            owed: front(&mut self.owed, &mut left),
            kept: front(&mut self.kept, &mut left),
            reserved: front(&mut self.reserved, &mut left),
            locks: front(&mut self.locks, &mut left),
        }
    }

    /// Adds what is in another part.
    pub fn add(&mut self, part: &Self) {
        self.open.extend(&part.open);
        self.dirty.extend(&part.dirty);
        self.owed.extend(&part.owed);
        self.kept.extend(&part.kept);
        self.reserved.extend(&part.reserved);
        self.locks.extend(part.locks.iter().cloned());
    }
}

/// Cuts off up to `left` entries at the end of a list, and takes them from `left`.
fn front<T>(list: &mut Vec<T>, left: &mut usize) -> Vec<T> {
    let taken = list.len().min(*left);
    *left -= taken;
    list.split_off(list.len() - taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_the_whole() {
        let lock = |first| FileLock { owner: 1, first, last: 9, exclusive: true, process: 1 };
        let whole = Held {
            open: (0..7).map(|ino| (Ino(ino), 1, 0)).collect(),
            dirty: (0..3).map(|ino| (Ino(ino), 9)).collect(),
            owed: vec![(Ino(2), 8)],
            kept: vec![Ino(5)],
            reserved: vec![(Ino(1), 2), (Ino(3), 4)],
            locks: (0..4).map(|first| (Ino(7), lock(first))).collect(),
        };
        for most in 1..20 {
            let (mut rest, mut put) = (whole.clone(), Held::default());
            while rest.count() > 0 {
                let part = rest.split(most);
                assert!(part.count() == most || rest.count() == 0);
                put.add(&part);
            }
            assert_eq!(put.count(), whole.count());
            put.open.sort_unstable();
            put.locks.sort_by_key(|(_, lock)| lock.first);
            assert_eq!((put.open, put.locks), (whole.open.clone(), whole.locks.clone()));
        }
    }
}

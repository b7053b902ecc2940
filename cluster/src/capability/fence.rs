//! Fences: the metadata server of a volume tells the stores which sessions live. A session's
//! permission to write ends with the session, not only when its tokens expire.

use super::{Capability, Token};
use plan::SessionId;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::RwLock;
use volume::unpoisoned;

/// The live sessions of a volume at one point in time. Session numbers rise, and none is used
/// twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    /// The volume.
    pub volume: [u8; 16],
    /// The number of the next session. The fence says nothing about this and later numbers.
    pub next: SessionId,
    /// The sessions before `next` that live, in order. All others have ended.
    pub live: Vec<SessionId>,
}

/// A message to a store: a token that permits it, and the fence.
#[derive(Serialize, Deserialize)]
pub struct Message {
    /// The token, with all rights.
    pub token: Vec<u8>,
    /// The sessions.
    pub fence: Fence,
}

impl Message {
    /// The message as bytes.
    pub fn encode(token: &Token, fence: Fence) -> Vec<u8> {
        postcard::to_allocvec(&Self { token: token.as_bytes().to_vec(), fence }).unwrap_or_default()
    }
}

/// The latest fence of each volume, as a store knows it.
#[derive(Debug, Default)]
pub(super) struct Fences {
    volumes: RwLock<HashMap<[u8; 16], Fence>>,
}

impl Fences {
    /// Applies a fence from a metadata server. A fence that arrives late does not bring an ended
    /// session back.
    pub fn hear(&self, mut new: Fence) {
        new.live.sort_unstable();
        let mut volumes = unpoisoned(self.volumes.write());
        if let Some(known) = volumes.get(&new.volume) {
            if new.next < known.next {
                return;
            }
            new.live.retain(|session| *session >= known.next || known.live.binary_search(session).is_ok());
        }
        volumes.insert(new.volume, new);
    }

    /// Whether the session of a capability lives; None before the first fence of its volume.
    pub fn lives(&self, of: &Capability) -> Option<bool> {
        // Capabilities of servers have no session.
        if of.session == SessionId::NONE {
            return Some(true);
        }
        let volumes = unpoisoned(self.volumes.read());
        let lives = |fence: &Fence| of.session >= fence.next || fence.live.binary_search(&of.session).is_ok();
        volumes.get(&of.volume).map(lives)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::Rights;
    use plan::SetId;

    /// The bytes were made from the rules of postcard 1, not by this code.
    #[test]
    fn a_fence_has_fixed_bytes() {
        let volume = std::array::from_fn(|at| at as u8);
        let message = Message {
            token: b"tok".to_vec(),
            fence: Fence { volume, next: SessionId(300), live: [1, 299].map(SessionId).to_vec() },
        };
        let bytes = postcard::to_allocvec(&message).unwrap();
        let bytes: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(bytes, "03746f6b000102030405060708090a0b0c0d0e0fac020201ab02");
    }

    #[test]
    fn sessions_end_once() {
        let fences = Fences::default();
        let lives = |volume: u8, session: u64| {
            fences.lives(&Capability {
                volume: [volume; 16],
                set: SetId(1),
                rights: Rights::Write,
                session: SessionId(session),
                expires_ms: u64::MAX,
            })
        };
        let ended = |volume, session| lives(volume, session) == Some(false);
        let hear = |next, live: &[u64]| {
            let live = live.iter().copied().map(SessionId).collect();
            fences.hear(Fence { volume: [1; 16], next: SessionId(next), live });
        };
        assert_eq!((lives(1, 0), lives(1, 3)), (Some(true), None));
        hear(10, &[5, 3]);
        assert_eq!(
            [0, 3, 4, 5, 9, 10, 11].map(|session| ended(1, session)),
            [false, false, true, false, true, false, false]
        );
        assert_eq!(lives(2, 4), None, "another volume");
        hear(12, &[5, 11]);
        assert_eq!([3, 5, 10, 11, 12].map(|session| ended(1, session)), [true, false, true, false, false]);
        // Messages that arrive late.
        hear(10, &[3, 5]);
        hear(12, &[3, 5, 11]);
        assert_eq!([3, 5, 11].map(|session| ended(1, session)), [true, false, false]);
    }
}

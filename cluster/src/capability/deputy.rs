//! Tokens that a store shows to other stores when it works for clients. Such a token permits
//! appends to a chunk set while a client has an order to write a stripe of that set, and does not
//! outlive the token that the client showed. The limit matters because a client chooses where its
//! blocks go, and may collect the tokens that are shown there.

use super::key::OWN;
use super::{Capability, ClusterKey, Credentials, Rights, Token, now_ms, set_of};
use plan::{SessionId, SetId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use volume::lock;
use volume::target::TargetFile;

/// A chunk set of a volume.
type Set = ([u8; 16], SetId);

/// For each chunk set, the times at which the tokens of the clients with orders expire.
#[derive(Debug, Default)]
pub(crate) struct Orders(Mutex<HashMap<Set, Vec<u64>>>);

/// A running order. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Order {
    orders: Arc<Orders>,
    set: Set,
    expires_ms: u64,
}

impl Orders {
    fn sets(&self) -> MutexGuard<'_, HashMap<Set, Vec<u64>>> {
        lock(&self.0)
    }

    /// Begins an order for a client that showed this token. The caller has verified the token for
    /// the set.
    pub fn begin(self: &Arc<Self>, volume: [u8; 16], set: SetId, shown: &Token) -> Option<Order> {
        let (set, expires_ms) = ((volume, set), shown.says()?.expires_ms);
        self.sets().entry(set).or_default().push(expires_ms);
        Some(Order { orders: self.clone(), set, expires_ms })
    }

    /// When the first of the tokens shown for a set expires.
    fn expires_ms(&self, set: Set) -> Option<u64> {
        self.sets().get(&set)?.iter().min().copied()
    }
}

impl Drop for Order {
    fn drop(&mut self) {
        let mut sets = self.orders.sets();
        let Some(all) = sets.get_mut(&self.set) else { return };
        if let Some(at) = all.iter().position(|expires_ms| *expires_ms == self.expires_ms) {
            all.swap_remove(at);
        }
        if all.is_empty() {
            sets.remove(&self.set);
        }
    }
}

/// Signs tokens for a process that has the key and works for clients. Each token permits appends to
/// one chunk set of one volume and nothing more, whatever the clients say.
pub(crate) struct Deputy {
    key: Arc<ClusterKey>,
    volume: [u8; 16],
    orders: Arc<Orders>,
}

impl Deputy {
    /// A deputy with the key of this process; None when the process has no key.
    pub fn of_this_process(volume: [u8; 16], orders: &Arc<Orders>) -> Option<Self> {
        crate::identity::own_key().map(|key| Self { key, volume, orders: orders.clone() })
    }

    /// Returns the same token for up to a minute, so that stores have it in their cache. None when
    /// no client has an order for the set any more.
    fn token_at(&self, set: SetId, now_ms: u64) -> Option<Token> {
        const MINUTE: u64 = 60_000;
        let own = (now_ms - now_ms % MINUTE).saturating_add(OWN.as_millis() as u64);
        let expires_ms = self.orders.expires_ms((self.volume, set))?.min(own);
        Some(self.key.sign(&Capability {
            volume: self.volume,
            set,
            rights: Rights::Write,
            session: SessionId::NONE,
            expires_ms,
        }))
    }
}

impl Credentials for Deputy {
    fn token(&self, file: TargetFile, _changes: bool) -> Option<Token> {
        set_of(file).and_then(|set| self.token_at(set, now_ms()))
    }

    fn renew(&self, file: TargetFile, changes: bool, refused: Option<Token>) -> Option<Token> {
        self.token(file, changes).filter(|token| Some(*token) != refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deputy_permits_to_append_to_sets_of_its_volume_for_as_long_as_its_clients_may() {
        let (volume, orders) = ([8; 16], Arc::<Orders>::default());
        let deputy = Deputy { key: Arc::new(ClusterKey::new(&[1; 32])), volume, orders: orders.clone() };
        let capability = |expires_ms| Capability {
            volume,
            set: SetId(5),
            rights: Rights::Write,
            session: SessionId::NONE,
            expires_ms,
        };
        let begin =
            |set, expires_ms| orders.begin(volume, SetId(set), &deputy.key.sign(&capability(expires_ms))).unwrap();
        let shown = |now| deputy.token_at(SetId(5), now).map(|token| deputy.key.open(&token).unwrap());
        assert_eq!(shown(120_001), None, "nobody wants anything");
        let long = begin(5, u64::MAX);
        // The token stays the same for a minute.
        assert_eq!([120_001, 179_999].map(shown), [Some(capability(720_000)); 2]);
        let short = begin(5, 150_000);
        let (again, _other) = (begin(5, 150_000), begin(6, 1));
        assert_eq!([120_001, 179_999].map(shown), [Some(capability(150_000)); 2]);
        drop(short);
        assert_eq!(shown(120_001), Some(capability(150_000)));
        drop((long, again));
        assert_eq!((shown(120_001), orders.sets().len()), (None, 1));
        assert_eq!(deputy.token(TargetFile::Label, true), None);
    }
}

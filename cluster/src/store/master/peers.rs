//! The other stores that a store sends blocks to and has them from.

use super::SLAVE_ANSWERS;
use crate::address::StoreAddress;
use crate::capability::{Credentials, Deputy, Orders};
use crate::store::remote::Stores;
use plan::TargetId;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use volume::Targets;
use volume::target::Target;

/// No stripe has more blocks.
const MOST: usize = 256;
/// Targets that are known. With more, all are forgotten and met again.
const KNOWN: usize = 1024;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn bad(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what.into())
}

/// For whom something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// A client: others are shown what permits to append to chunk sets of its volume, and no more.
    Client,
    /// A server, which may do everything.
    Server,
}

/// Targets, by numbers that only this process knows. They are never given to another one.
pub(super) struct Peers {
    whom: For,
    stores: Stores,
    pub targets: Arc<Targets>,
    numbers: Mutex<HashMap<Place, TargetId>>,
    /// For which clients it is done.
    pub orders: Arc<Orders>,
}

/// A target in a volume, by its address: what is shown to its store is good for that volume only. Whether it is one
/// of this store is what the client says, so that a wrong claim leads nobody else's blocks to another target.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    volume: [u8; 16],
    address: String,
    is_own: bool,
}

impl Peers {
    fn new(whom: For) -> Arc<Self> {
        let targets = Arc::new(Targets::with_deadline(SLAVE_ANSWERS));
        Arc::new(Self { whom, stores: Stores::default(), targets, numbers: Mutex::default(), orders: Arc::default() })
    }

    /// The numbers of targets of a volume: of those that this process has, where `local` finds them, if their addresses begin with what `server` is, or of
    /// others. None for an empty address.
    pub fn numbers(
        &self,
        volume: [u8; 16],
        addresses: &[&str],
        server: &str,
        local: impl Fn(&str) -> Option<Arc<dyn Target>>,
    ) -> io::Result<Vec<Option<TargetId>>> {
        if addresses.len() > MOST {
            return Err(bad(format!("{} blocks are more than a stripe has", addresses.len())));
        }
        let number = |address: &&str| match address.is_empty() {
            true => Ok(None),
            false => self.number(volume, address, server, &local).map(Some),
        };
        addresses.iter().map(number).collect()
    }

    /// The number of a target of a volume: of one that this process has, where its address says so and `local` finds
    /// it, or of one that another process has.
    fn number(
        &self,
        volume: [u8; 16],
        address: &str,
        server: &str,
        local: impl Fn(&str) -> Option<Arc<dyn Target>>,
    ) -> io::Result<TargetId> {
        let parsed: StoreAddress = address.parse().map_err(|why: fs::Error| bad(why.to_string()))?;
        let is_own = parsed.server == server;
        let mut numbers = lock(&self.numbers);
        let place = Place { volume, address: address.to_owned(), is_own };
        if let Some(&id) = numbers.get(&place) {
            return Ok(id);
        }
        let target = match Some(&parsed.target).filter(|_| is_own).and_then(|target| local(target)) {
            Some(target) => target,
            None => {
                let address = parsed;
                let deputy = || {
                    let deputy = Deputy::of_this_process(volume, &self.orders)?;
                    Some(Arc::new(deputy) as Arc<dyn Credentials>)
                };
                Arc::new(match self.whom {
                    For::Client => self.stores.target_for(&address, deputy()),
                    For::Server => self.stores.target(&address),
                })
            }
        };
        let id = TargetId(u16::try_from(numbers.len()).map_err(io::Error::other)?);
        self.targets.add(id, target);
        numbers.insert(place, id);
        Ok(id)
    }

    /// Why a target did not take its block.
    pub fn why(&self, id: TargetId) -> io::Error {
        match self.targets.error(id) {
            _ if self.targets.was_full(id) => io::ErrorKind::StorageFull.into(),
            Some(why) => io::Error::other(format!("its Master cannot write to it: {why}")),
            None => io::Error::new(io::ErrorKind::TimedOut, "it does not answer its Master"),
        }
    }
}

/// The list of them that is in use; a new one when the old one is full, which those who use it go on with.
pub(super) struct Meeting(Mutex<Arc<Peers>>);

impl Meeting {
    pub fn new(whom: For) -> Self {
        Self(Mutex::new(Peers::new(whom)))
    }

    pub fn peers(&self) -> Arc<Peers> {
        let mut peers = lock(&self.0);
        if lock(&peers.numbers).len() >= KNOWN {
            *peers = Peers::new(peers.whom);
        }
        peers.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use volume::target::Memory;

    #[test]
    fn a_wrong_claim_about_addresses_reaches_only_who_makes_it() {
        let (volume, other, own) = ([3; 16], "store://other:7000/disk0", "store://own:7000/disk0");
        let places = [other, own];
        let local = |_: &str| Some(Arc::new(Memory::default()) as Arc<dyn Target>);
        let claim = |peers: &Peers, server: &str| -> Vec<bool> {
            let ids = peers.numbers(volume, &places, server, local).unwrap();
            ids.into_iter().map(|id| peers.targets.get(id.unwrap()).unwrap().is_remote()).collect()
        };
        let true_first = Peers::new(For::Client);
        assert_eq!(claim(&true_first, "own:7000"), [true, false]);
        // The blocks of others would go to this store's disk, and those for it would go round.
        for server in ["other:7000", "", "own:7000"] {
            let peers = Peers::new(For::Client);
            claim(&peers, server);
            assert_eq!(claim(&peers, "own:7000"), [true, false], "after {server:?}");
            assert_eq!(peers.numbers(volume, &places, "own:7000", local).unwrap().len(), 2);
        }
        let again = |peers: &Peers| peers.numbers(volume, &places, "own:7000", local).unwrap();
        assert_eq!(again(&true_first), again(&true_first), "the same targets each time");
    }
}

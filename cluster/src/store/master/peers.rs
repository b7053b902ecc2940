//! The other stores that a store sends blocks to and reads blocks from.

use super::SLAVE_ANSWERS;
use crate::address::StoreAddress;
use crate::capability::{Credentials, Deputy, Orders};
use crate::ranks::{PeerNumbers, PeersInUse};
use crate::store::remote::{RemoteTarget, Stores};
use plan::TargetId;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use volume::Targets;
use volume::ranked::Ranked;
use volume::target::{Target, TargetFile};

/// Maximum number of blocks of a stripe.
const MAX_BLOCKS: usize = 256;
/// Maximum number of known targets. Beyond that, a new empty list replaces the old one.
const MAX_CACHED_TARGETS: usize = 1024;

pub(super) fn bad(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what.into())
}

/// On whose behalf the store works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// A client: other stores see only tokens that permit appends to chunk sets of its volume.
    Client,
    /// A server, which has all rights.
    Server,
}

/// Targets by number. The numbers are valid only in this process and never identify another target.
pub(super) struct Peers {
    whom: For,
    stores: Stores,
    pub targets: Arc<Targets>,
    numbers: Ranked<Numbers, PeerNumbers>,
    /// The orders of clients that are running.
    pub orders: Arc<Orders>,
}

#[derive(Default)]
struct Numbers {
    of: HashMap<Place, TargetId>,
    /// The targets with these numbers that are not of this process.
    remote: HashMap<TargetId, Arc<RemoteTarget>>,
}

/// A target of a volume, by its address. The tokens shown to its store are good for that volume
/// only. Whether the target is one of this store depends on what the client says. That is part of
/// the key, so that a wrong claim never leads another client's blocks to a wrong target.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    volume: [u8; 16],
    address: String,
    is_own: bool,
}

impl Peers {
    fn new(whom: For) -> Arc<Self> {
        let targets = Arc::new(Targets::with_deadline(SLAVE_ANSWERS));
        Arc::new(Self { whom, stores: Stores::default(), targets, numbers: Ranked::default(), orders: Arc::default() })
    }

    /// The numbers of targets of a volume. An address that begins with `server` is a target of this
    /// process if `local` finds it; all others are remote. None for an empty address.
    pub fn numbers(
        &self,
        volume: [u8; 16],
        addresses: &[&str],
        server: &str,
        local: impl Fn(&str) -> Option<Arc<dyn Target>>,
    ) -> io::Result<Vec<Option<TargetId>>> {
        if addresses.len() > MAX_BLOCKS {
            return Err(bad(format!("{} blocks are more than a stripe has", addresses.len())));
        }
        let number = |address: &&str| match address.is_empty() {
            true => Ok(None),
            false => self.number(volume, address, server, &local).map(Some),
        };
        addresses.iter().map(number).collect()
    }

    /// The number of one target of a volume: of a local one if its address says so and `local`
    /// finds it, or of a remote one.
    fn number(
        &self,
        volume: [u8; 16],
        address: &str,
        server: &str,
        local: impl Fn(&str) -> Option<Arc<dyn Target>>,
    ) -> io::Result<TargetId> {
        let parsed: StoreAddress = address.parse().map_err(|why: fs::Error| bad(why.to_string()))?;
        let is_own = parsed.server == server;
        let mut numbers = self.numbers.lock();
        let place = Place { volume, address: address.to_owned(), is_own };
        if let Some(&id) = numbers.of.get(&place) {
            return Ok(id);
        }
        let id = TargetId(u16::try_from(numbers.of.len()).map_err(io::Error::other)?);
        let target: Arc<dyn Target> = match Some(&parsed.target).filter(|_| is_own).and_then(|target| local(target)) {
            Some(target) => target,
            None => {
                let address = parsed;
                let deputy = || {
                    let deputy = Deputy::of_this_process(volume, &self.orders)?;
                    Some(Arc::new(deputy) as Arc<dyn Credentials>)
                };
                let target = Arc::new(match self.whom {
                    For::Client => self.stores.target_for(&address, deputy()),
                    For::Server => self.stores.target(&address),
                });
                numbers.remote.insert(id, target.clone());
                target
            }
        };
        self.targets.add(id, target);
        numbers.of.insert(place, id);
        Ok(id)
    }

    /// The boot number of a target's machine at the last write to a file, `own` if it is this
    /// machine. 0 if it is not known.
    ///
    /// # Errors
    /// When the machine restarted between two of the writes.
    pub fn boot(&self, id: TargetId, file: TargetFile, own: u64) -> io::Result<u64> {
        match self.numbers.lock().remote.get(&id).cloned() {
            Some(remote) => Ok(remote.boot_of(file)?.unwrap_or(0)),
            None => Ok(own),
        }
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

/// The current list of peers. A new list replaces a full one; tasks that use the old list keep it.
pub(super) struct Meeting(Ranked<Arc<Peers>, PeersInUse>);

impl Meeting {
    pub fn new(whom: For) -> Self {
        Self(Ranked::new(Peers::new(whom)))
    }

    pub fn peers(&self) -> Arc<Peers> {
        let mut peers = self.0.lock();
        if peers.numbers.lock().of.len() >= MAX_CACHED_TARGETS {
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
        // Otherwise blocks for another store would go to this store's disk, and blocks for this
        // store would take a detour over the network.
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

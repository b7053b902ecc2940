//! The other stores that a store sends blocks to and has them from.

use super::SLAVE_ANSWERS;
use crate::address::StoreAddress;
use crate::capability::{Credentials, Deputy};
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
}

/// A target in a volume, by its address: what is shown to its store is good for that volume only.
type Place = ([u8; 16], String);

impl Peers {
    fn new(whom: For) -> Arc<Self> {
        let targets = Arc::new(Targets::with_deadline(SLAVE_ANSWERS));
        Arc::new(Self { whom, stores: Stores::default(), targets, numbers: Mutex::default() })
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
        let number = |address: &&str| {
            let own = || {
                let address: StoreAddress = address.parse().ok()?;
                local(&address.target).filter(|_| address.server == server)
            };
            if address.is_empty() { Ok(None) } else { self.number(volume, address, own).map(Some) }
        };
        addresses.iter().map(number).collect()
    }

    /// The number of a target of a volume that another process has, or, with `local`, that this one has.
    fn number(
        &self,
        volume: [u8; 16],
        address: &str,
        local: impl FnOnce() -> Option<Arc<dyn Target>>,
    ) -> io::Result<TargetId> {
        let mut numbers = lock(&self.numbers);
        let place = (volume, address.to_owned());
        if let Some(&id) = numbers.get(&place) {
            return Ok(id);
        }
        let target = match local() {
            Some(target) => target,
            None => {
                let address: StoreAddress = address.parse().map_err(|why: fs::Error| bad(why.to_string()))?;
                let deputy = || Deputy::of_this_process(volume).map(|deputy| Arc::new(deputy) as Arc<dyn Credentials>);
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

//! Which stores a metadata server asks for the reports of others: the cabinets that it knows, and
//! the primes that did not answer.

use plan::topology::Layers;
use plan::topology::layers::{SMALL_CLUSTER, primes_are_of_use};
use plan::{Domain, TargetId};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use volume::lock;

/// A store that did not answer for others is no prime for this many rounds.
const ROUNDS_WITHOUT: u32 = 60;

/// What a metadata server knows of cabinets and primes.
#[derive(Debug)]
pub(super) struct Primes {
    /// Up to this many stores each is asked directly.
    small: AtomicUsize,
    state: Mutex<State>,
    /// Requests to primes, and to stores for themselves.
    asked: [AtomicU64; 2],
}

#[derive(Debug, Default)]
struct State {
    /// The cabinets of stores.
    cabinets: BTreeMap<String, Domain>,
    /// For how many rounds a store is no prime.
    away: BTreeMap<String, u32>,
}

impl Default for Primes {
    fn default() -> Self {
        Self { small: AtomicUsize::new(SMALL_CLUSTER), state: Mutex::default(), asked: Default::default() }
    }
}

impl Primes {
    pub fn set_small(&self, stores: usize) {
        self.small.store(stores, Ordering::Relaxed);
    }

    /// These stores are in these domains. A cabinet is a domain without its last name, which is the
    /// store's own; one of a single name is a cabinet.
    pub fn arrange(&self, domains: impl IntoIterator<Item = (String, Domain)>) {
        let cabinet = |(server, domain): (String, Domain)| {
            let path = domain.to_string();
            let cabinet = path.rsplit_once('/').map_or(&*path, |(cabinet, _)| cabinet);
            Some((server, cabinet.parse().ok()?))
        };
        lock(&self.state).cabinets.extend(domains.into_iter().filter_map(cabinet));
    }

    /// The requests so far: to primes, and to stores for themselves.
    pub fn asked(&self) -> (u64, u64) {
        let [primes, stores] = &self.asked;
        (primes.load(Ordering::Relaxed), stores.load(Ordering::Relaxed))
    }

    pub fn asks_prime(&self) {
        self.asked[0].fetch_add(1, Ordering::Relaxed);
    }

    pub fn asks_store(&self) {
        self.asked[1].fetch_add(1, Ordering::Relaxed);
    }

    /// A round begins: the stores by cabinet, and those that are asked themselves.
    pub fn begin(&self, servers: Vec<String>) -> (Vec<Vec<String>>, Vec<String>) {
        let mut state = lock(&self.state);
        state.away.retain(|_, rounds| {
            *rounds -= 1;
            *rounds > 0
        });
        let mut cabinets: BTreeMap<Domain, Vec<String>> = BTreeMap::new();
        let mut alone = Vec::new();
        for server in &servers {
            match state.cabinets.get(server) {
                Some(cabinet) => cabinets.entry(cabinet.clone()).or_default().push(server.clone()),
                None => alone.push(server.clone()),
            }
        }
        match primes_are_of_use(servers.len(), cabinets.len() + alone.len(), self.small.load(Ordering::Relaxed)) {
            true => (cabinets.into_values().collect(), alone),
            false => (Vec::new(), servers),
        }
    }

    /// The prime of a cabinet with these stores: its place among them. None if none can be it.
    pub fn of(&self, servers: &[String]) -> Option<usize> {
        let state = lock(&self.state);
        let cabinet = state.cabinets.get(servers.first()?)?;
        let members = (0..servers.len()).map(|number| (TargetId(number as u16), Some(cabinet)));
        let is_there = |id: TargetId| !state.away.contains_key(&servers[usize::from(id.0)]);
        let primes = Layers::of(members, u8::MAX).primes(is_there);
        primes.cabinets.into_values().next().map(|id| usize::from(id.0))
    }

    /// It did not answer for others.
    pub fn fails(&self, server: &str) {
        lock(&self.state).away.insert(server.to_owned(), ROUNDS_WITHOUT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Six stores in two cabinets, and one of which no domain is known.
    fn primes(small: usize) -> (Primes, Vec<String>) {
        let primes = Primes::default();
        primes.set_small(small);
        let domain = |host: usize| format!("row1/cabinet{}/host{host}", host / 3).parse().unwrap();
        primes.arrange((0..6).map(|host| (format!("s{host}:1"), domain(host))));
        (primes, (0..7).map(|host| format!("s{host}:1")).collect())
    }

    #[test]
    fn a_small_cluster_is_asked_directly() {
        let (primes, servers) = primes(7);
        assert_eq!(primes.begin(servers.clone()), (Vec::new(), servers.clone()));
        primes.set_small(6);
        let (cabinets, alone) = primes.begin(servers.clone());
        assert_eq!(cabinets, [&servers[..3], &servers[3..6]]);
        assert_eq!(alone, [servers[6].clone()]);
        // Where each is on its own, primes save nothing.
        let (none, all) = primes.begin(vec![servers[0].clone(), servers[3].clone(), servers[6].clone()]);
        assert_eq!((none.len(), all.len()), (0, 3));
    }

    #[test]
    fn a_prime_that_fails_is_replaced_for_a_while() {
        let (primes, servers) = primes(6);
        let cabinet = &servers[..3];
        let first = primes.of(cabinet).unwrap();
        primes.fails(&cabinet[first]);
        let second = primes.of(cabinet).unwrap();
        assert_ne!(first, second);
        primes.fails(&cabinet[second]);
        let third = primes.of(cabinet).unwrap();
        primes.fails(&cabinet[third]);
        assert_eq!(primes.of(cabinet), None);
        // The other cabinet has its own.
        assert!(primes.of(&servers[3..6]).is_some());
        (0..ROUNDS_WITHOUT).for_each(|_| drop(primes.begin(servers.clone())));
        assert_eq!(primes.of(cabinet), Some(first));
    }
}

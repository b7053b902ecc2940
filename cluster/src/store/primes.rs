//! Which stores a metadata server asks for the reports of others: the cabinets that it knows, and
//! the stores that it asks itself for a while.

use plan::topology::Layers;
use plan::topology::layers::{SMALL_CLUSTER, primes_are_of_use};
use plan::{Domain, TargetId};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use volume::lock;

/// A store that its prime could not ask, or that did not answer for others, is asked itself for so
/// many rounds, and until it answers.
const ROUNDS_ALONE: u32 = 60;
/// A cabinet of more stores has several primes: an answer stays far below what a message carries.
pub(super) const MAX_STORES: usize = 256;

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
    /// The cabinets, and of each store the place of its own among them: every second thousands of
    /// stores are sorted by cabinet.
    cabinets: Vec<Domain>,
    cabinet_of: HashMap<String, usize>,
    /// For how many rounds a store is asked itself.
    alone: HashMap<String, u32>,
    /// Another one with every change of who is asked how.
    version: u64,
}

impl Default for Primes {
    fn default() -> Self {
        Self { small: AtomicUsize::new(SMALL_CLUSTER), state: Mutex::default(), asked: Default::default() }
    }
}

impl Primes {
    pub fn set_small(&self, stores: usize) {
        self.small.store(stores, Ordering::Relaxed);
        lock(&self.state).version += 1;
    }

    /// These stores are in these domains. A cabinet is a domain without its last name, which is the
    /// store's own; one of a single name is a cabinet.
    pub fn arrange(&self, domains: impl IntoIterator<Item = (String, Domain)>) {
        let cabinet = |(server, domain): (String, Domain)| {
            let path = domain.to_string();
            let cabinet = path.rsplit_once('/').map_or(&*path, |(cabinet, _)| cabinet);
            Some((server, cabinet.parse().ok()?))
        };
        let mut state = lock(&self.state);
        let State { cabinets, cabinet_of, .. } = &mut *state;
        let mut numbers: HashMap<Domain, usize> = (0..).zip(&*cabinets).map(|(at, name)| (name.clone(), at)).collect();
        for (server, cabinet) in domains.into_iter().filter_map(cabinet) {
            let number = *numbers.entry(cabinet).or_insert_with_key(|name| {
                cabinets.push(name.clone());
                cabinets.len() - 1
            });
            cabinet_of.insert(server, number);
        }
        state.version += 1;
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

    /// A round begins. `is_silent` says which stores did not answer when they were last asked. The
    /// number is another one if [`Self::sorted`] may give something else than in the round before.
    pub fn next_round(&self, is_silent: impl Fn(&str) -> bool) -> u64 {
        let mut state = lock(&self.state);
        let before = state.alone.len();
        state.alone.retain(|server, rounds| {
            *rounds = rounds.saturating_sub(1);
            *rounds > 0 || is_silent(server)
        });
        state.version += u64::from(state.alone.len() != before);
        state.version
    }

    /// The stores by cabinet, and those that are asked themselves.
    pub fn sorted(&self, servers: Vec<String>) -> (Vec<Vec<String>>, Vec<String>) {
        let state = lock(&self.state);
        let mut cabinets: Vec<Vec<&String>> = vec![Vec::new(); state.cabinets.len()];
        let mut is_there = vec![false; cabinets.len()];
        let (mut alone, mut without) = (Vec::new(), 0);
        for server in &servers {
            let Some(&cabinet) = state.cabinet_of.get(server) else {
                alone.push(server.clone());
                without += 1;
                continue;
            };
            is_there[cabinet] = true;
            match state.alone.contains_key(server) {
                true => alone.push(server.clone()),
                false => cabinets[cabinet].push(server),
            }
        }
        let count = is_there.into_iter().filter(|there| *there).count() + without;
        if !primes_are_of_use(servers.len(), count, self.small.load(Ordering::Relaxed)) {
            return (Vec::new(), servers);
        }
        let mut together: Vec<Vec<String>> = Vec::with_capacity(cabinets.len());
        for mut servers in cabinets {
            servers.sort();
            together.extend(servers.chunks(MAX_STORES).map(|part| part.iter().copied().cloned().collect()));
        }
        (together, alone)
    }

    /// The prime of a cabinet with these stores: its place among them. None if none can be it.
    pub fn of<S: AsRef<str>>(&self, servers: &[S]) -> Option<usize> {
        let state = lock(&self.state);
        let cabinet = &state.cabinets[*state.cabinet_of.get(servers.first()?.as_ref())?];
        let members = (0..servers.len()).map(|number| (TargetId(number as u16), Some(cabinet)));
        let is_there = |id: TargetId| !state.alone.contains_key(servers[usize::from(id.0)].as_ref());
        let primes = Layers::of(members, u8::MAX).primes(is_there);
        primes.cabinets.into_values().next().map(|id| usize::from(id.0))
    }

    /// Its prime could not ask it, or it did not answer for others.
    pub fn fails(&self, server: &str) {
        let mut state = lock(&self.state);
        let before = state.alone.insert(server.to_owned(), ROUNDS_ALONE);
        state.version += u64::from(before.is_none());
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

    const ALL_ANSWER: fn(&str) -> bool = |_| false;

    impl Primes {
        fn begin(&self, servers: Vec<String>, is_silent: impl Fn(&str) -> bool) -> (Vec<Vec<String>>, Vec<String>) {
            self.next_round(is_silent);
            self.sorted(servers)
        }
    }

    /// What follows is worked out anew only then.
    #[test]
    fn each_change_of_who_is_asked_has_a_number() {
        let (primes, servers) = primes(6);
        let first = primes.next_round(ALL_ANSWER);
        assert_eq!(primes.next_round(ALL_ANSWER), first);
        primes.fails(&servers[0]);
        let second = primes.next_round(ALL_ANSWER);
        primes.fails(&servers[0]);
        assert!(second != first && primes.next_round(ALL_ANSWER) == second);
        (0..ROUNDS_ALONE - 2).for_each(|_| assert_eq!(primes.next_round(ALL_ANSWER), second));
        let third = primes.next_round(ALL_ANSWER);
        primes.set_small(5);
        let fourth = primes.next_round(ALL_ANSWER);
        primes.arrange([(servers[6].clone(), "row1/cabinet1/host6".parse().unwrap())]);
        assert!(third != second && fourth != third && primes.next_round(ALL_ANSWER) != fourth);
    }

    #[test]
    fn a_small_cluster_is_asked_directly() {
        let (primes, servers) = primes(7);
        assert_eq!(primes.begin(servers.clone(), ALL_ANSWER), (Vec::new(), servers.clone()));
        primes.set_small(6);
        let (cabinets, alone) = primes.begin(servers.clone(), ALL_ANSWER);
        assert_eq!(cabinets, [&servers[..3], &servers[3..6]]);
        assert_eq!(alone, [servers[6].clone()]);
        // Where each is on its own, primes save nothing.
        let apart = vec![servers[0].clone(), servers[3].clone(), servers[6].clone()];
        let (none, all) = primes.begin(apart, ALL_ANSWER);
        assert_eq!((none.len(), all.len()), (0, 3));
    }

    #[test]
    fn a_prime_that_fails_is_replaced_and_asked_itself() {
        let (primes, servers) = primes(6);
        let cabinet = &servers[..3];
        let first = primes.of(cabinet).unwrap();
        primes.fails(&cabinet[first]);
        let second = primes.of(cabinet).unwrap();
        assert_ne!(first, second);
        let (cabinets, alone) = primes.begin(servers.clone(), ALL_ANSWER);
        assert!(cabinets[0].len() == 2 && alone == [cabinet[first].clone(), servers[6].clone()], "{alone:?}");
        primes.fails(&cabinet[second]);
        let third = primes.of(cabinet).unwrap();
        primes.fails(&cabinet[third]);
        assert_eq!(primes.of(cabinet), None);
        // The other cabinet has its own.
        assert!(primes.of(&servers[3..6]).is_some());
        // After a while each of them is asked by a prime again, but the one that is silent.
        let is_silent = |server: &str| server == cabinet[first];
        (0..2 * ROUNDS_ALONE).for_each(|_| drop(primes.begin(servers.clone(), is_silent)));
        let (cabinets, alone) = primes.begin(servers.clone(), is_silent);
        assert!(cabinets[0].len() == 2 && alone.len() == 2, "{cabinets:?}");
        let (cabinets, _) = primes.begin(servers.clone(), ALL_ANSWER);
        assert_eq!((&cabinets[0][..], primes.of(cabinet)), (cabinet, Some(first)));
    }

    #[test]
    fn a_large_cabinet_has_several_primes() {
        let primes = Primes::default();
        let servers: Vec<String> = (0..2 * MAX_STORES + 2).map(|host| format!("s{host:04}:1")).collect();
        let cabinet = |host: usize| format!("cabinet{}/host{host}", host / (2 * MAX_STORES)).parse().unwrap();
        primes.arrange(servers.iter().enumerate().map(|(host, server)| (server.clone(), cabinet(host))));
        let (parts, alone) = primes.begin(servers.clone(), ALL_ANSWER);
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [MAX_STORES, MAX_STORES, 2]);
        assert!(alone.is_empty() && parts.concat() == servers && parts.iter().all(|part| primes.of(part).is_some()));
    }
}

//! The targets that take chunks, the emptiest first, by domain: the domains in which a set may have
//! no more are passed over at once.

use std::collections::BTreeSet;

/// How far a target is above its goal, relative to its capacity, as a number that can be ordered.
pub(super) type Key = i64;

/// All targets that take chunks.
#[derive(Debug)]
pub(super) struct Sinks {
    /// The key of each target; None for one that takes nothing.
    keys: Vec<Option<Key>>,
    domain_of: Vec<usize>,
    members: Vec<BTreeSet<(Key, usize)>>,
    /// Each domain with the key of its first member.
    domains: BTreeSet<(Key, usize)>,
}

impl Sinks {
    pub fn new(domain_of: Vec<usize>) -> Self {
        let domains = domain_of.iter().map(|domain| domain + 1).max().unwrap_or(0);
        Self {
            keys: vec![None; domain_of.len()],
            domain_of,
            members: vec![BTreeSet::new(); domains],
            domains: BTreeSet::new(),
        }
    }

    pub fn set(&mut self, target: usize, key: Key) {
        let domain = self.domain_of[target];
        let members = &mut self.members[domain];
        let first = members.first().copied();
        if let Some(old) = self.keys[target].replace(key) {
            members.remove(&(old, target));
        }
        members.insert((key, target));
        let now = members.first().copied();
        if first.map(|it| it.0) != now.map(|it| it.0) {
            first.map(|(key, _)| self.domains.remove(&(key, domain)));
            now.map(|(key, _)| self.domains.insert((key, domain)));
        }
    }

    /// The key of the emptiest target.
    pub fn lowest(&self) -> Option<Key> {
        self.domains.first().map(|(key, _)| *key)
    }

    /// Of the targets that are not fuller than this one by more than `within`, and that fit as
    /// [`Sinks::find`] has it, the one with the least cost; the emptiest of several.
    pub fn find_cheapest(
        &self,
        has_room: impl Fn(usize) -> bool,
        fits: impl Fn(usize) -> bool,
        (best, within): (usize, Key),
        cost: impl Fn(usize) -> u64,
        tries: usize,
    ) -> usize {
        let most = self.keys[best].map_or(Key::MIN, |key| key.saturating_add(within));
        let open = self.domains.iter().take_while(|(first, _)| *first <= most).filter(|(_, domain)| has_room(*domain));
        let members = open.flat_map(|(_, domain)| self.members[*domain].iter().take_while(|(key, _)| *key <= most));
        let found = members.take(tries).filter(|(_, target)| fits(*target));
        found.min_by_key(|&&(key, target)| (cost(target), key, target)).map_or(best, |(_, target)| *target)
    }

    /// The emptiest target that `fits`, in a domain that `has_room`; None if none of the first
    /// `tries` does.
    pub fn find(&self, has_room: impl Fn(usize) -> bool, fits: impl Fn(usize) -> bool, tries: usize) -> Option<usize> {
        let (mut best, mut left): (Option<(Key, usize)>, usize) = (None, tries);
        for &(first, domain) in &self.domains {
            if best.is_some_and(|(key, _)| key <= first) || left == 0 {
                break;
            }
            if !has_room(domain) {
                continue;
            }
            for &(key, target) in &self.members[domain] {
                if best.is_some_and(|(best, _)| best <= key) || left == 0 {
                    break;
                }
                left -= 1;
                if fits(target) {
                    best = Some((key, target));
                    break;
                }
            }
        }
        best.map(|(_, target)| target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_emptiest_that_may_take_it_is_found() {
        let mut sinks = Sinks::new(vec![0, 0, 1, 2]);
        assert_eq!(sinks.find(|_| true, |_| true, 9), None);
        for (target, key) in [(0, 5), (1, 1), (2, 3), (3, 4)] {
            sinks.set(target, key);
        }
        let find = |sinks: &Sinks, closed: usize, taken: &[usize]| {
            sinks.find(|domain| domain != closed, |target| !taken.contains(&target), 9)
        };
        assert_eq!([find(&sinks, 9, &[]), find(&sinks, 9, &[1]), find(&sinks, 1, &[1])], [Some(1), Some(2), Some(3)]);
        assert_eq!([find(&sinks, 1, &[1, 3]), find(&sinks, 0, &[2, 3])], [Some(0), None]);
        sinks.set(1, 9);
        assert_eq!(
            [find(&sinks, 9, &[]), find(&sinks, 9, &[2, 3]), find(&sinks, 9, &[0, 2, 3])],
            [Some(2), Some(0), Some(1)]
        );
        assert_eq!(sinks.find(|_| true, |target| target == 1, 2), None);
        // Keys are now 5, 9, 3 and 4: of those within 1 of the emptiest the cheaper one.
        let cheap = |within, cost: [u64; 4]| {
            sinks.find_cheapest(|_| true, |target| target != 0, (2, within), |target| cost[target], 9)
        };
        assert_eq!([cheap(0, [0, 0, 9, 1]), cheap(1, [0, 0, 9, 1]), cheap(1, [0, 0, 1, 1])], [2, 3, 2]);
        assert_eq!(cheap(9, [0, 0, 9, 1]), 1);
    }
}

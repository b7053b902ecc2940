//! Where the targets of a volume are in a torus (paper 000, ExSTorus-FS, section 2.2), and what
//! follows: which of them a set goes to, and which Master a stripe costs the fewest links with.
//!
//! The paper says that ExSTorus-FS supports such networks, and not how. What is here is ours. A
//! Master sends a block to each other member of the set, so these are near to each other:
//! [`Near`]. Members are not near to the client, which may be anywhere tomorrow. A torus looks the
//! same from each of its places, so where each place has a server, no target is preferred.

use super::torus::{Coordinates, NoTorus, Torus};
use crate::placement::score::Parts;
use crate::placement::{Policy, View};
use crate::{SetId, TargetId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Where all targets are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// In which torus.
    pub torus: Torus,
    /// The places that are known.
    pub of: BTreeMap<TargetId, Coordinates>,
}

/// A target and its server, and where it must be, if that is said or known already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The target.
    pub id: TargetId,
    /// Its server, by any name: all its targets are at one place.
    pub server: String,
    /// Where that is.
    pub at: Option<Coordinates>,
}

/// Gives a place to each server that has none: in the order of the targets the next one that is
/// free, where the last dimension is counted first.
///
/// # Errors
/// When a place is not in the torus, two servers are at one place, one server is at two, or there
/// are more servers than places.
pub fn assign(torus: Torus, targets: &[Placed]) -> Result<Places, NoTorus> {
    let mut at: BTreeMap<&str, Coordinates> = BTreeMap::new();
    let mut taken: BTreeMap<Coordinates, &str> = BTreeMap::new();
    for (server, place) in targets.iter().filter_map(|target| Some((&*target.server, target.at.as_ref()?))) {
        if !torus.has(place) {
            return Err(NoTorus(format!("{place} is not a place in the torus {torus}, whose places count from 0")));
        }
        if let Some(other) = taken.insert(place.clone(), server).filter(|other| *other != server) {
            return Err(NoTorus(format!("{other} and {server} cannot both be at {place}")));
        }
        if let Some(other) = at.insert(server, place.clone()).filter(|other| other != place) {
            return Err(NoTorus(format!("{server} cannot be at {other} and at {place}")));
        }
    }
    let mut free = torus.all().filter(|place| !taken.contains_key(place));
    for target in targets {
        if !at.contains_key(&*target.server) {
            let Some(place) = free.next() else {
                let servers: BTreeSet<&str> = targets.iter().map(|t| &*t.server).collect();
                return Err(NoTorus(format!(
                    "the torus {torus} has {} places, and there are {} servers",
                    torus.count(),
                    servers.len()
                )));
            };
            at.insert(&target.server, place);
        }
    }
    drop(free);
    let of = targets.iter().map(|target| (target.id, at[&*target.server].clone())).collect();
    Ok(Places { torus, of })
}

/// Of how many targets that a policy puts first the nearest get a set of `width` chunks, where it
/// can choose among `count`: of twice the width, but at most of half of those that the set leaves
/// over. So the policy always leaves out the worst half of what can be left out.
pub fn pool(width: usize, count: usize) -> usize {
    width.saturating_mul(2).min(width + count.saturating_sub(width) / 2)
}

impl Places {
    /// The hops from a place to a target, if its place is known.
    pub fn hops(&self, from: &Coordinates, to: TargetId) -> Option<u32> {
        Some(self.torus.hops(from, self.of.get(&to)?))
    }

    /// The hops between two targets, if both places are known.
    pub fn between(&self, a: TargetId, b: TargetId) -> Option<u32> {
        self.hops(self.of.get(&a)?, b)
    }

    /// Sorts targets by their hops from the first of them whose place is known. A target whose
    /// place is not known comes after the others, and of two that are as near, first the one that
    /// was.
    pub fn nearest_first<T>(&self, targets: &mut [T], id: impl Fn(&T) -> TargetId) {
        let Some(centre) = targets.iter().find_map(|target| self.of.get(&id(target))) else { return };
        targets.sort_by_key(|target| self.hops(centre, id(target)).unwrap_or(u32::MAX));
    }

    /// The links that the blocks of a stripe with `data` data blocks cross with this Master: the
    /// client sends it those, and it sends a block to each of the others. Where it is not known
    /// where the client is, its way is not counted; neither are targets whose place is not known.
    /// None if that is the Master's.
    pub fn links(
        &self,
        client: Option<&Coordinates>,
        data: usize,
        master: TargetId,
        places: &[Option<TargetId>],
    ) -> Option<u64> {
        let at = self.of.get(&master)?;
        let on: u64 = places.iter().flatten().filter_map(|id| self.hops(at, *id)).map(u64::from).sum();
        let to = client.map_or(0, |client| u64::from(self.torus.hops(client, at)));
        Some(to * data as u64 + on)
    }
}

/// Where all targets are, as a process sees them that writes to them.
#[derive(Clone, Debug)]
pub struct Network {
    /// Where they are.
    pub places: Arc<Places>,
    /// Where the process is, if it was told.
    pub client: Option<Coordinates>,
}

/// The targets of a set near to each other, among those that another policy likes: its first choice
/// is the centre, and of its first few ([`pool()`]) the nearest to that one follow. With the
/// adaptive policy, distance so decides between targets that the scores put first, and never brings
/// in one that they put last.
pub struct Near {
    /// Orders all targets.
    pub policy: Box<dyn Policy>,
    /// Where they are.
    pub places: Arc<Places>,
}

impl Policy for Near {
    fn rank(&self, view: &View<'_>, set: SetId, width: usize) -> Vec<usize> {
        let few = pool(width, view.targets.len());
        // The other policy chooses this many, as if the set were wider.
        let mut ranked = self.policy.rank(view, set, few);
        let end = few.min(ranked.len());
        self.places.nearest_first(&mut ranked[..end], |index| view.targets[*index].id);
        ranked
    }

    fn scores(&self, view: &View<'_>) -> Option<Vec<Parts>> {
        self.policy.scores(view)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::TargetState;
    use crate::placement::{Adaptive, Load, Random, Rules, TargetCandidate, place};

    fn at(text: &str) -> Coordinates {
        text.parse().unwrap()
    }

    fn full(sizes: &str) -> Places {
        let torus: Torus = sizes.parse().unwrap();
        let of = (0..).map(TargetId).zip(torus.all()).collect();
        Places { torus, of }
    }

    fn placed(servers: &[(&str, Option<&str>)]) -> Vec<Placed> {
        let target = |(id, (server, place)): (u16, &(&str, Option<&str>))| Placed {
            id: TargetId(id),
            server: (*server).into(),
            at: place.map(at),
        };
        (0..).zip(servers).map(target).collect()
    }

    #[test]
    fn servers_get_the_next_place_that_is_free() {
        let assigned = |sizes: &str, servers: &[(&str, Option<&str>)]| {
            let places = assign(sizes.parse().unwrap(), &placed(servers)).map_err(|why| why.to_string())?;
            Ok::<_, String>(places.of.values().map(Coordinates::to_string).collect::<Vec<_>>().join(" "))
        };
        let some = [("a", None), ("b", Some("0,0")), ("a", None), ("c", None), ("b", None)];
        assert_eq!(assigned("2,2", &some).unwrap(), "0,1 0,0 0,1 1,0 0,0");
        let refused = |sizes: &str, servers: &[(&str, Option<&str>)]| assigned(sizes, servers).unwrap_err();
        let five = ["a", "b", "c", "d", "e"].map(|name| (name, None));
        assert_eq!(refused("2,2", &five), "the torus 2,2 has 4 places, and there are 5 servers");
        assert!(refused("2,2", &[("a", Some("2,0"))]).starts_with("2,0 is not a place in the torus 2,2"));
        assert!(refused("2,2", &[("a", Some("1"))]).starts_with("1 is not a place"));
        let both = [("a", Some("1,1")), ("b", Some("1,1"))];
        assert_eq!(refused("2,2", &both), "a and b cannot both be at 1,1");
        let twice = [("a", Some("1,1")), ("a", Some("1,0"))];
        assert_eq!(refused("2,2", &twice), "a cannot be at 1,1 and at 1,0");
        // More places than anybody could count.
        assert_eq!(assigned("65535,65535,65535,65535,65535,65535,65535,65535", &[]).unwrap(), "");
    }

    /// All sets of three targets in small tori, all Masters, and all clients: links are the blocks'
    /// ways, added one by one.
    #[test]
    fn links_are_the_ways_of_all_blocks() {
        for sizes in ["3,3", "2,2,2", "5"] {
            let places = full(sizes);
            let ids: Vec<TargetId> = places.of.keys().copied().collect();
            for set in ids.iter().flat_map(|&a| ids.iter().map(move |&b| [a, b, TargetId(0)])) {
                let members = set.map(Some);
                for (master, client) in set.iter().flat_map(|m| places.of.values().map(move |client| (*m, client))) {
                    let on: u32 = set.iter().map(|id| places.between(master, *id).unwrap()).sum();
                    let there = places.hops(client, master).unwrap();
                    assert_eq!(places.links(Some(client), 2, master, &members), Some(u64::from(2 * there + on)));
                    assert_eq!(places.links(None, 2, master, &members), Some(on.into()));
                }
            }
        }
        let places = full("4");
        // Somebody whose place is not known counts for nothing, and is no Master to be chosen.
        assert_eq!(places.links(None, 2, TargetId(0), &[Some(TargetId(2)), None, Some(TargetId(99))]), Some(2));
        assert_eq!(places.links(None, 2, TargetId(99), &[Some(TargetId(2))]), None);
    }

    fn candidates(places: &Places) -> Vec<TargetCandidate> {
        let target = |(id, at): (&TargetId, &Coordinates)| TargetCandidate {
            id: *id,
            free: 1000,
            total: 1000,
            domain: Some(at.domain()),
            state: TargetState::Up,
            load: None,
        };
        places.of.iter().map(target).collect()
    }

    /// The mean hops between members, and how many chunks each target has of 2000 sets.
    fn spread(policy: &dyn Policy, places: &Places, domain_level: Option<u8>) -> (f64, Vec<usize>) {
        let targets = candidates(places);
        let rules = Rules { width: 6, spare: 2, domain_level, need: 1 };
        let (mut hops, mut counts) = (0, vec![0; targets.len()]);
        for set in (0..2000).map(SetId) {
            let placed: Vec<TargetId> = place(policy, &targets, &rules, set).into_iter().flatten().collect();
            assert_eq!(placed.len(), 6);
            if domain_level == Some(1) {
                let first = |id: &TargetId| places.of[id].domain().at(Some(1)).to_owned();
                assert!(placed.iter().all(|a| placed.iter().filter(|b| first(b) == first(a)).count() <= 2));
            }
            for a in &placed {
                counts[usize::from(a.0)] += 1;
                hops += placed.iter().map(|b| places.between(*a, *b).unwrap()).sum::<u32>();
            }
        }
        (f64::from(hops) / (2000.0 * 30.0), counts)
    }

    #[test]
    fn members_are_near_each_other_and_no_rule_is_broken() {
        let places = Arc::new(full("4,4,4"));
        for level in [None, Some(1)] {
            let (by_chance, _) = spread(&Random { seed: 3 }, &places, level);
            let near = Near { policy: Box::new(Random { seed: 3 }), places: places.clone() };
            let (nearer, counts) = spread(&near, &places, level);
            // By chance it is 64/63 of three.
            assert!((3.0..3.2).contains(&by_chance) && nearer < 0.9 * by_chance, "{by_chance} {nearer}");
            // Nobody is preferred: even are 187.5.
            assert!(counts.iter().all(|count| (130..250).contains(count)), "{counts:?}");
        }
    }

    #[test]
    fn distance_brings_in_nobody_whom_scores_leave_out() {
        // Of eight targets a set of six leaves two out, and distance decides about one of them.
        assert_eq!(
            [(6, 6), (6, 7), (6, 8), (6, 10), (6, 18), (6, 1000)].map(|(w, n)| pool(w, n)),
            [6, 6, 7, 8, 12, 12]
        );
        let places = Arc::new(full("8"));
        let near = Near { policy: Box::new(Adaptive::default()), places: places.clone() };
        let mut targets = candidates(&places);
        for target in &mut targets {
            let ahead = if target.id == TargetId(3) { 50.0 } else { 0.1 };
            target.load = Some(Load { idle: 0.5, ahead, ..Load::default() });
        }
        let rules = Rules { width: 6, spare: 2, domain_level: None, need: 1 };
        let one_more = Rules { width: 7, ..rules };
        for set in (0..200).map(SetId) {
            let liked = place(&Adaptive::default(), &targets, &one_more, set);
            let placed = place(&near, &targets, &rules, set);
            assert!(placed.iter().all(|id| id.is_some() && liked.contains(id)), "{placed:?} {liked:?}");
        }
    }

    #[test]
    fn who_has_no_place_comes_after_the_others() {
        let places = full("8");
        let mut ids = [99, 5, 1, 6, 98, 4].map(TargetId);
        places.nearest_first(&mut ids, |id| *id);
        assert_eq!(ids, [5, 6, 4, 1, 99, 98].map(TargetId));
        let mut unknown = [99, 98].map(TargetId);
        places.nearest_first(&mut unknown, |id| *id);
        assert_eq!(unknown, [99, 98].map(TargetId));
    }
}

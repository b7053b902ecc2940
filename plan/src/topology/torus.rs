//! A torus network (paper 000, ExSTorus-FS, section 2.2): each server has coordinates such as
//! `4,2,7`, has links to its neighbours in each dimension, and the last one in a dimension is a
//! neighbour of the first. The distance is the number of links on the shortest way, the hops.

use crate::domain::Domain;
use crate::placement::score::Parts;
use crate::placement::{Policy, View, mix};
use crate::{SetId, TargetId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// No torus has more dimensions: a coordinate is a name of a domain, and those are eight.
const MAX_DIMENSIONS: usize = 8;

/// Where a server is in a torus.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Coordinates(Vec<u16>);

/// What are no coordinates, and no sizes of a torus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoTorus(String);

impl fmt::Display for NoTorus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoTorus {}

fn numbers(text: &str) -> Option<Vec<u16>> {
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok())?;
    let numbers: Vec<u16> = text.split(',').map(digits).collect::<Option<_>>()?;
    (numbers.len() <= MAX_DIMENSIONS).then_some(numbers)
}

fn shown(numbers: &[u16], between: &str) -> String {
    numbers.iter().map(u16::to_string).collect::<Vec<_>>().join(between)
}

impl FromStr for Coordinates {
    type Err = NoTorus;

    fn from_str(text: &str) -> Result<Self, NoTorus> {
        let refused = || {
            let text: String = text.chars().take(64).collect();
            NoTorus(format!(
                "{text:?} is not a place in a torus; one is at most {MAX_DIMENSIONS} numbers such as 4,2,7"
            ))
        };
        numbers(text).map(Self).ok_or_else(refused)
    }
}

impl TryFrom<String> for Coordinates {
    type Error = NoTorus;

    fn try_from(text: String) -> Result<Self, NoTorus> {
        text.parse()
    }
}

impl From<Coordinates> for String {
    fn from(coordinates: Coordinates) -> Self {
        coordinates.to_string()
    }
}

impl fmt::Display for Coordinates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.0, ","))
    }
}

impl Coordinates {
    /// The failure domain of this place: each dimension is a level, so that servers with the same
    /// first coordinate, a plane of the torus, fail together at level 1.
    pub fn domain(&self) -> Domain {
        shown(&self.0, "/").parse().expect("numbers are names, and they are few")
    }
}

/// A torus: how many servers it has in each dimension.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Torus(Vec<u16>);

impl FromStr for Torus {
    type Err = NoTorus;

    fn from_str(text: &str) -> Result<Self, NoTorus> {
        let sizes = numbers(text).filter(|sizes| !sizes.contains(&0)).map(Self);
        sizes.ok_or_else(|| NoTorus("the sizes of a torus are at most 8 numbers above 0, such as 8,8,16".into()))
    }
}

impl TryFrom<String> for Torus {
    type Error = NoTorus;

    fn try_from(text: String) -> Result<Self, NoTorus> {
        text.parse()
    }
}

impl From<Torus> for String {
    fn from(torus: Torus) -> Self {
        shown(&torus.0, ",")
    }
}

impl Torus {
    /// Whether a place is in it.
    pub fn has(&self, place: &Coordinates) -> bool {
        place.0.len() == self.0.len() && place.0.iter().zip(&self.0).all(|(at, size)| at < size)
    }

    /// The hops between two places in it: in each dimension the shorter way round.
    pub fn hops(&self, a: &Coordinates, b: &Coordinates) -> u32 {
        let one = |((&a, &b), &size): ((&u16, &u16), &u16)| {
            let straight = a.abs_diff(b);
            u32::from(straight.min(size.saturating_sub(straight)))
        };
        a.0.iter().zip(&b.0).zip(&self.0).map(one).sum()
    }
}

/// Where all targets are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// In which torus.
    pub torus: Torus,
    /// The places that are known.
    pub of: BTreeMap<TargetId, Coordinates>,
}

impl Places {
    /// The hops from a place to a target, if its place is known.
    pub fn hops(&self, from: &Coordinates, to: TargetId) -> Option<u32> {
        Some(self.torus.hops(from, self.of.get(&to)?))
    }

    /// The position whose target is the Master of a chunk set with `data` data chunks, for a client
    /// at a place: the one with the fewest links to cross. The client sends it `data` blocks, and
    /// it sends one to each of the others. Of several, another one with each set, so that many
    /// files of one client have many Masters. None if no target has a known place.
    pub fn master(&self, set: SetId, client: &Coordinates, data: usize, places: &[Option<TargetId>]) -> Option<usize> {
        let known = |(position, id): (usize, &Option<TargetId>)| Some((position, self.of.get(&(*id)?)?));
        let there: Vec<(usize, &Coordinates)> = places.iter().enumerate().filter_map(known).collect();
        let links = |master: &Coordinates| {
            let on: u32 = there.iter().map(|(_, other)| self.torus.hops(master, other)).sum();
            u64::from(self.torus.hops(client, master)) * data as u64 + u64::from(on)
        };
        there
            .iter()
            .min_by_key(|(position, at)| (links(at), mix(!set.0, *position as u64)))
            .map(|(position, _)| *position)
    }
}

/// Near targets first, among those that another policy likes: of its first few, the nearest. A
/// target whose place is not known comes after those.
pub struct Near<'a> {
    /// Orders all targets.
    pub policy: &'a dyn Policy,
    /// Where they are.
    pub places: &'a Places,
    /// Where the client is.
    pub client: &'a Coordinates,
    /// How many times the width of a set the first few are. With 1 only the order in them is by
    /// distance; with more, targets are nearer, and their load counts less.
    pub of: usize,
}

impl Policy for Near<'_> {
    fn rank(&self, view: &View<'_>, set: SetId, width: usize) -> Vec<usize> {
        let few = width.saturating_mul(self.of.max(1));
        // The other policy chooses this many, as if the set were wider.
        let mut ranked = self.policy.rank(view, set, few);
        let end = few.min(ranked.len());
        let hops = |index: &usize| self.places.hops(self.client, view.targets[*index].id).unwrap_or(u32::MAX);
        ranked[..end].sort_by_key(hops);
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
    use crate::placement::{Random, Rules, TargetCandidate, place};

    fn at(text: &str) -> Coordinates {
        text.parse().unwrap()
    }

    fn all_of(torus: &Torus) -> Vec<Coordinates> {
        let longer = |all: Vec<Vec<u16>>, &size: &u16| -> Vec<Vec<u16>> {
            all.into_iter().flat_map(|place| (0..size).map(move |n| [&place[..], &[n]].concat())).collect()
        };
        torus.0.iter().fold(vec![Vec::new()], longer).into_iter().map(Coordinates).collect()
    }

    #[test]
    fn places_and_sizes_are_numbers() {
        for good in ["4,2,7", "0", "1,2,3,4,5,6,7,8", "65535"] {
            assert_eq!(good.parse::<Coordinates>().unwrap().to_string(), good);
        }
        for bad in ["", ",", "1,", "1,,2", "a", "-1", "+1", "65536", "1,2,3,4,5,6,7,8,9", "1.5", "1, 2"] {
            assert!(bad.parse::<Coordinates>().unwrap_err().to_string().contains("4,2,7"), "{bad}");
            assert!(bad.parse::<Torus>().is_err());
        }
        assert!("4,0".parse::<Torus>().is_err());
        let torus: Torus = "4,2".parse().unwrap();
        let inside = ["0,0", "3,1", "4,1", "3,2", "3", "1,1,1"].map(|place| torus.has(&at(place)));
        assert_eq!(inside, [true, true, false, false, false, false]);
        assert_eq!(at("4,2,7").domain().at(Some(2)), "4/2");
    }

    /// All pairs of places of some tori: hops are the shortest ways over links, counted by walking.
    #[test]
    fn hops_are_the_shortest_ways() {
        for sizes in ["1", "2", "7", "5,4", "2,3,4", "3,1,2,2"] {
            let torus: Torus = sizes.parse().unwrap();
            let all = all_of(&torus);
            for from in &all {
                let mut reached = BTreeMap::from([(from.clone(), 0u32)]);
                let mut edge = vec![from.clone()];
                for step in 1.. {
                    let neighbours = edge.iter().flat_map(|place| {
                        let torus = &torus;
                        (0..place.0.len()).flat_map(move |dimension| {
                            [1, torus.0[dimension] - 1].map(|by| {
                                let mut next = place.clone();
                                next.0[dimension] = (next.0[dimension] + by) % torus.0[dimension];
                                next
                            })
                        })
                    });
                    let new: Vec<Coordinates> = neighbours.filter(|next| !reached.contains_key(next)).collect();
                    reached.extend(new.iter().map(|place| (place.clone(), step)));
                    edge = new;
                    if edge.is_empty() {
                        break;
                    }
                }
                assert_eq!(reached.len(), all.len());
                assert!(all.iter().all(|to| torus.hops(from, to) == reached[to]), "{sizes} from {from}");
            }
        }
    }

    fn cube() -> Places {
        let torus: Torus = "4,4,4".parse().unwrap();
        let of = (0..).map(TargetId).zip(all_of(&torus)).collect();
        Places { torus, of }
    }

    #[test]
    fn the_master_is_where_the_fewest_links_are_crossed() {
        let places = cube();
        let mut random = fastrand::Rng::with_seed(8);
        for set in (0..500).map(SetId) {
            let mut ids: Vec<Option<TargetId>> = (0..64).map(|id| Some(TargetId(id))).collect();
            random.shuffle(&mut ids);
            ids.truncate(6);
            ids[random.usize(0..6)] = None;
            let client = places.of[&TargetId(random.u16(0..64))].clone();
            let links = |master: TargetId| {
                let on = ids.iter().flatten().map(|id| places.hops(&places.of[&master], *id).unwrap()).sum::<u32>();
                4 * places.hops(&client, master).unwrap() + on
            };
            let master = ids[places.master(set, &client, 4, &ids).unwrap()].unwrap();
            assert!(ids.iter().flatten().all(|id| links(*id) >= links(master)));
        }
        assert_eq!(places.master(SetId(1), &at("0,0,0"), 4, &[None, Some(TargetId(999))]), None);
        // Two that are as good take turns.
        let pair = [Some(TargetId(1)), Some(TargetId(3))];
        let first = (0..1000).filter(|&set| places.master(SetId(set), &at("0,0,0"), 4, &pair) == Some(0)).count();
        assert!((400..600).contains(&first), "{first}");
    }

    #[test]
    fn near_targets_come_first_and_no_rule_is_broken() {
        let places = cube();
        let target = |(id, at): (&TargetId, &Coordinates)| TargetCandidate {
            id: *id,
            free: 100,
            total: 100,
            domain: Some(at.domain()),
            state: TargetState::Up,
            load: None,
        };
        let targets: Vec<TargetCandidate> = places.of.iter().map(target).collect();
        let rules = Rules { width: 6, spare: 2, domain_level: Some(1), need: 1 };
        let (policy, client) = (Random { seed: 3 }, at("1,2,3"));
        let mean = |of: usize| {
            let mut hops = 0;
            for set in (0..200).map(SetId) {
                let near = Near { policy: &policy, places: &places, client: &client, of };
                let placed: Vec<TargetId> = place(&near, &targets, &rules, set).into_iter().flatten().collect();
                assert_eq!(placed.len(), 6);
                for plane in 0..4 {
                    assert!(placed.iter().filter(|id| places.of[id].0[0] == plane).count() <= 2);
                }
                hops += placed.iter().map(|id| places.hops(&client, *id).unwrap()).sum::<u32>();
            }
            f64::from(hops) / 1200.0
        };
        // By chance it is three; of all it is what the rule allows.
        let means = [1, 2, 4, 100].map(mean);
        assert!((2.8..3.2).contains(&means[0]) && means.is_sorted_by(|a, b| a > b) && means[3] < 1.5, "{means:?}");
    }
}

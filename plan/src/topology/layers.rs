//! The three layers of paper 003 (ECFS), section IV.C, and their prime nodes: the sub-network (L1)
//! has rows (L2), a row has cabinets (L3), a cabinet has servers. In each cabinet a prime collects
//! from all servers, in each row from the primes of its cabinets, in each sub-network from those of
//! its rows, and the metadata server hears of the sub-networks only.
//!
//! The layers are the names of the servers' domains: `net1/row2/cabinet3/host4`. Who is prime
//! follows from the members and from who is there, by rendezvous hashing: all who know the same
//! agree without a vote. A server that fails is replaced where it was prime, and nowhere else does
//! anything change.

use crate::placement::mix;
use crate::{Domain, TargetId};
use std::collections::BTreeMap;

/// A small cluster needs no primes: the metadata server hears of each target itself.
pub const SMALL_CLUSTER: usize = 128;

/// Whether primes are of use for this number of targets and cabinets, where up to `small` targets
/// need none, such as [`SMALL_CLUSTER`].
pub fn primes_are_of_use(targets: usize, cabinets: usize, small: usize) -> bool {
    targets > small && cabinets > 1 && 2 * cabinets <= targets
}

type Cabinets = BTreeMap<String, Vec<TargetId>>;
type Rows = BTreeMap<String, Cabinets>;

/// Which servers are in which cabinets, rows and sub-networks. The names are whole paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layers {
    /// By sub-network, row and cabinet.
    pub sub_networks: BTreeMap<String, Rows>,
}

/// Who collects what. The keys are the paths of cabinets, rows and sub-networks; one of which all
/// servers failed has no prime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Primes {
    /// Who collects from the servers of a cabinet (L3).
    pub cabinets: BTreeMap<String, TargetId>,
    /// Who collects from the primes of a row's cabinets (L2).
    pub rows: BTreeMap<String, TargetId>,
    /// Who collects from the primes of a sub-network's rows, and tells the metadata server (L1).
    pub sub_networks: BTreeMap<String, TargetId>,
}

impl Layers {
    /// The layers of these members. A cabinet is named by the first `cabinet_level` names of a
    /// domain, its row by one name less, its sub-network by two less. Where there are not so many
    /// names, all are in one row, or one sub-network, without a name. Targets without a domain are
    /// in a cabinet without a name.
    pub fn of<'a>(members: impl IntoIterator<Item = (TargetId, Option<&'a Domain>)>, cabinet_level: u8) -> Self {
        let mut layers = Self::default();
        for (id, domain) in members {
            let name = |up: u8| match (domain, cabinet_level.checked_sub(up)) {
                (Some(domain), Some(level @ 1..)) => domain.at(Some(level)).to_owned(),
                _ => String::new(),
            };
            let rows = layers.sub_networks.entry(name(2)).or_default();
            rows.entry(name(1)).or_default().entry(name(0)).or_default().push(id);
        }
        for servers in
            layers.sub_networks.values_mut().flat_map(|rows| rows.values_mut()).flat_map(Cabinets::values_mut)
        {
            servers.sort_unstable();
        }
        layers
    }

    /// All cabinets with their servers.
    pub fn cabinets(&self) -> impl Iterator<Item = (&str, &[TargetId])> {
        let cabinets = self.sub_networks.values().flat_map(BTreeMap::values).flatten();
        cabinets.map(|(name, servers)| (&name[..], &servers[..]))
    }

    /// The primes among those that are there.
    pub fn primes(&self, is_there: impl Fn(TargetId) -> bool) -> Primes {
        let mut primes = Primes::default();
        for (network, rows) in &self.sub_networks {
            let mut of_rows = Vec::new();
            for (row, cabinets) in rows {
                let of_cabinet = |(name, servers): (&String, &Vec<TargetId>)| {
                    let there = servers.iter().copied().filter(|id| is_there(*id));
                    Some((name.clone(), elect(3, name, there)?))
                };
                let of_cabinets: Vec<(String, TargetId)> = cabinets.iter().filter_map(of_cabinet).collect();
                if let Some(prime) = elect(2, row, of_cabinets.iter().map(|(_, id)| *id)) {
                    of_rows.push((row.clone(), prime));
                }
                primes.cabinets.extend(of_cabinets);
            }
            if let Some(prime) = elect(1, network, of_rows.iter().map(|(_, id)| *id)) {
                primes.sub_networks.insert(network.clone(), prime);
            }
            primes.rows.extend(of_rows);
        }
        primes
    }
}

/// The prime of a place among some: the one that is first by chance for this place.
fn elect(layer: u64, name: &str, of: impl Iterator<Item = TargetId>) -> Option<TargetId> {
    let place = name.bytes().fold(layer, |hash, byte| mix(hash, u64::from(byte)));
    of.max_by_key(|id| (mix(place, u64::from(id.0)), id.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Two sub-networks of three rows of four cabinets of five servers, by number.
    fn members() -> Vec<(TargetId, Domain)> {
        let path = |id: u16| format!("net{}/row{}/cab{}/host{id}", id / 60, id / 20 % 3, id / 5 % 4);
        (0..120).map(|id| (TargetId(id), path(id).parse().unwrap())).collect()
    }

    fn layers(members: &[(TargetId, Domain)]) -> Layers {
        Layers::of(members.iter().map(|(id, domain)| (*id, Some(domain))), 3)
    }

    #[test]
    fn layers_are_the_names_of_domains() {
        let layers = layers(&members());
        let rows = &layers.sub_networks["net1"];
        assert_eq!((layers.sub_networks.len(), rows.len(), layers.cabinets().count()), (2, 3, 24));
        assert_eq!(rows["net1/row0"]["net1/row0/cab2"], (70..75).map(TargetId).collect::<Vec<_>>());
        // Fewer names: the upper layers have one place for all.
        let short: Domain = "rack1/host3".parse().unwrap();
        let racks = Layers::of([(TargetId(1), Some(&short)), (TargetId(2), None)], 1);
        let names: Vec<(&str, &[TargetId])> = racks.cabinets().collect();
        assert_eq!(names, [("", &[TargetId(2)][..]), ("rack1", &[TargetId(1)])]);
        assert_eq!((racks.sub_networks.len(), racks.sub_networks[""].len()), (1, 1));
    }

    #[test]
    fn every_place_has_a_prime_of_its_own() {
        let (members, layers) = (members(), layers(&members()));
        let primes = layers.primes(|_| true);
        assert_eq!((primes.cabinets.len(), primes.rows.len(), primes.sub_networks.len()), (24, 6, 2));
        for (place, id) in primes.cabinets.iter().chain(&primes.rows).chain(&primes.sub_networks) {
            assert!(members[usize::from(id.0)].1.to_string().starts_with(&format!("{place}/")), "{id:?} of {place}");
        }
        // A prime of a row is one of its cabinets', and so on: no server collects what it has no
        // part in.
        let of = |primes: &BTreeMap<String, TargetId>| primes.values().copied().collect::<BTreeSet<_>>();
        assert!(of(&primes.rows).is_subset(&of(&primes.cabinets)));
        assert!(of(&primes.sub_networks).is_subset(&of(&primes.rows)));
    }

    /// Each server fails: it is replaced where it was prime, and all other primes stay.
    #[test]
    fn a_prime_that_fails_is_replaced() {
        let layers = layers(&members());
        let before = layers.primes(|_| true);
        let mut replaced = 0;
        for failed in (0..120).map(TargetId) {
            let after = layers.primes(|id| id != failed);
            for (was, is) in [(&before.cabinets, &after.cabinets), (&before.rows, &after.rows)] {
                assert_eq!(was.len(), is.len());
                for (place, id) in was {
                    assert_ne!(is[place], failed);
                    assert!(is[place] == *id || *id == failed || after.cabinets[&cabinet(is[place])] == is[place]);
                    replaced += usize::from(*id == failed);
                }
            }
            if !before.cabinets.values().any(|id| *id == failed) {
                assert_eq!(before, after);
            }
            // It comes back, and all is as it was.
            assert_eq!(layers.primes(|_| true), before);
        }
        assert_eq!(replaced, 24 + 6);
    }

    fn cabinet(id: TargetId) -> String {
        members()[usize::from(id.0)].1.at(Some(3)).to_owned()
    }

    #[test]
    fn a_cabinet_without_servers_has_no_prime() {
        let layers = layers(&members());
        let primes = layers.primes(|id| id.0 >= 25);
        assert_eq!((primes.cabinets.len(), primes.rows.len(), primes.sub_networks.len()), (19, 5, 2));
        assert_eq!(layers.primes(|_| false), Primes::default());
    }

    #[test]
    fn small_clusters_have_no_primes() {
        let of_use = |targets, cabinets| primes_are_of_use(targets, cabinets, SMALL_CLUSTER);
        assert!(!of_use(32, 4) && !of_use(128, 8) && !of_use(1000, 1));
        assert!(!of_use(1000, 1000), "each cabinet has one server: that saves nothing");
        assert!(of_use(10_000, 500) && primes_are_of_use(4, 2, 3));
    }
}

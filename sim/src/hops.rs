//! Hops in a torus network: how far blocks travel when they are written and when they are repaired,
//! by policy. The bandwidth of the links between stores is not simulated.

use crate::chooser::Chooser;
use crate::cluster::Cluster;
use crate::config::{Config, Volume};
use crate::near::looks_at_hops;
use crate::table::Table;
use plan::placement::PolicyName;
use plan::repair::Degraded;
use plan::topology::Places;
use plan::{Position, SetId, TargetId};
use serde::Serialize;

/// Policies that look at every target for each set take long in a large cluster.
const LOOKS: u64 = 2_000_000;
/// Sets of each policy.
const SETS: std::ops::RangeInclusive<u64> = 50..=2000;

/// Hops by policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hops {
    /// The sizes of the torus.
    pub torus: String,
    /// Sets that were placed by each policy in the empty cluster, to see.
    pub sets: u64,
    /// By policy.
    pub policies: Vec<PolicyHops>,
    /// Between two stores of all, on average.
    pub any_two: f64,
}

/// The hops of one policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyHops {
    /// Which.
    pub policy: PolicyName,
    /// Whether it looks at the torus, as the product's adaptive and random placement do.
    pub looks: bool,
    /// Mean hops of a block from the Master to its store; the Master is the member of the set that
    /// needs the fewest.
    pub writes: f64,
    /// Mean hops of a block that a repair reads, to the store that rebuilds the lost one. It reads
    /// the nearest k.
    pub repairs: f64,
}

impl PolicyHops {
    /// The policy, and whether it looks.
    pub fn name(&self) -> String {
        let blind = !self.looks && looks_at_hops(self.policy);
        format!("{}{}", self.policy, if blind { " without it" } else { "" })
    }
}

/// Places sets by each policy in the empty cluster, and loses a chunk of each.
pub fn hops(config: &Config, cluster: &Cluster) -> Option<Hops> {
    let places = cluster.places.clone()?;
    let sets = (LOOKS / config.stores()).clamp(*SETS.start(), *SETS.end()).min(config.volume.sets);
    let every = |looks: bool, policy: PolicyName| {
        let volume = Volume { policy, ..config.volume.clone() };
        let mut empty = cluster.clone();
        empty.places.take_if(|_| !looks);
        empty.stores.iter_mut().for_each(|store| store.chunks = 0);
        of_policy(config, &volume, &empty, sets, looks, cluster)
    };
    let other = [PolicyName::RoundRobin, PolicyName::Crush, PolicyName::Prime];
    let both = [PolicyName::Adaptive, PolicyName::Random];
    let policies = both.map(|policy| every(true, policy)).into_iter();
    let policies =
        policies.chain(both.map(|policy| every(false, policy))).chain(other.map(|policy| every(false, policy)));
    Some(Hops {
        torus: places.torus.to_string(),
        sets,
        policies: policies.collect(),
        any_two: any_two(&places, cluster),
    })
}

fn of_policy(config: &Config, volume: &Volume, empty: &Cluster, sets: u64, looks: bool, with: &Cluster) -> PolicyHops {
    let places = with.places.as_ref().expect("there is a torus");
    let mut chooser = Chooser::new(volume, empty, config.seed, 1);
    let (mut writes, mut repairs) = (Mean::default(), Mean::default());
    for set in 0..sets {
        let placed = chooser.place(empty, SetId(set));
        writes.add(of_write(places, &placed));
        let lost = Position::at(set as usize % volume.width());
        let degraded = Degraded { set: SetId(set), places: placed.clone(), lost: vec![lost] };
        let Some(&Some(to)) = chooser.destinations(empty, &degraded).first() else { continue };
        let there = Position::placed(&placed).filter(|(position, _)| *position != lost);
        let mut from: Vec<u32> = there.filter_map(|(_, id)| places.between(id, to)).collect();
        from.sort_unstable();
        from.iter().take(volume.k as usize).for_each(|&hops| repairs.add(Some(hops.into())));
    }
    PolicyHops { policy: volume.policy, looks, writes: writes.get(), repairs: repairs.get() }
}

/// The mean hops of a block of this set between the best Master and its store: the Master's own
/// block has none.
fn of_write(places: &Places, set: &[Option<TargetId>]) -> Option<f64> {
    let there = set.iter().flatten().count();
    let links = set.iter().flatten().filter_map(|master| places.links(None, 0, *master, set)).min()?;
    Some(links as f64 / there as f64)
}

/// The same of some of the sets in a table; None without a torus.
pub fn hops_of(cluster: &Cluster, table: &Table) -> Option<f64> {
    let places = cluster.places.as_ref()?;
    let (mut mean, mut set) = (Mean::default(), Vec::new());
    let each = table.sets().div_ceil(*SETS.end() as usize).max(1);
    for number in (0..table.sets()).step_by(each) {
        table.read(number, &mut set);
        mean.add(of_write(places, &set));
    }
    Some(mean.get())
}

/// The mean hops from a store to another one. In a large cluster, from some of them.
fn any_two(places: &Places, cluster: &Cluster) -> f64 {
    let (stores, mut mean) = (cluster.stores.len() as u16, Mean::default());
    for from in (0..stores).step_by(usize::from(stores).div_ceil(100)) {
        let others = (0..stores).filter(|to| *to != from);
        others.for_each(|to| mean.add(places.between(TargetId(from), TargetId(to)).map(f64::from)));
    }
    mean.get()
}

#[derive(Default)]
struct Mean(f64, u64);

impl Mean {
    fn add(&mut self, value: Option<f64>) {
        if let Some(value) = value {
            (self.0, self.1) = (self.0 + value, self.1 + 1);
        }
    }

    fn get(&self) -> f64 {
        self.0 / self.1.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torus::parse;

    #[test]
    fn hops_of_a_set_are_those_of_its_best_master() {
        let torus = parse(&[8]).unwrap();
        let places = Places { of: (0..8).map(TargetId).zip(torus.all()).collect(), torus };
        let set = [0, 1, 2, 7].map(|id| Some(TargetId(id)));
        // From place 0: 1 and 7 are neighbours, 2 is two away; from 1: 0 and 2, and 7 two away.
        assert_eq!(of_write(&places, &set), Some(1.0));
        assert_eq!(of_write(&places, &[None, Some(TargetId(3))]), Some(0.0));
        assert_eq!(of_write(&places, &[None]), None);
        assert!(parse(&[0]).is_err() && parse(&[1; 9]).is_err());
    }
}

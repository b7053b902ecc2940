//! Placement beside load reports, as the product has it.

use crate::cluster::Cluster;
use crate::config::Config;
use crate::near::{near, place_by};
use plan::placement::temperature::Tau;
use plan::placement::{Observed, Observer, Placer, Policy, PolicyName, TargetCandidate, place};
use plan::topology::Near;
use plan::{SetId, TargetId};

/// Placement as the product has it: a placer that hears of loads, and for another policy than
/// adaptive what that sees of them.
pub struct Placing {
    placer: Placer,
    observer: Observer,
    policy: Option<Box<dyn Policy>>,
    near: Option<Near>,
    candidates: Vec<TargetCandidate>,
    next: u64,
}

impl Placing {
    /// Of these stores, which know nothing of each other's load yet.
    pub fn new(config: &Config, cluster: &Cluster) -> Self {
        let (volume, placement) = (&config.volume, config.volume.placement());
        let mut placer = Placer::new(*cluster.rules(), placement.tuning(volume.chunk.0), config.seed);
        placer.handle_members(&cluster.candidates());
        let near = || near(&placement, volume.chunk.0, config.seed, cluster.places.as_ref());
        let other = volume.policy != PolicyName::Adaptive;
        let tau: Tau = placement.scoring().tau;
        Self {
            placer,
            observer: Observer::new(tau),
            policy: other.then(|| match near() {
                Some(near) => Box::new(near) as Box<dyn Policy>,
                None => placement.policy(config.seed, volume.chunk.0),
            }),
            near: near(),
            candidates: cluster.candidates(),
            next: volume.sets,
        }
    }

    /// The stores of the next set.
    pub fn place(&mut self, cluster: &Cluster) -> Vec<TargetId> {
        let set = SetId(self.next);
        self.next += 1;
        let Some(policy) = &self.policy else {
            let placed = place_by(&mut self.placer, self.near.as_ref(), cluster.rules(), set);
            return placed.into_iter().flatten().collect();
        };
        let placed: Vec<TargetId> =
            place(&**policy, &self.candidates, cluster.rules(), set).into_iter().flatten().collect();
        self.placer.handle_placed(&placed);
        for id in &placed {
            let free = &mut self.candidates[usize::from(id.0)].free;
            *free = free.saturating_sub(cluster.chunk_bytes());
        }
        placed
    }

    /// All stores reported.
    pub fn report(&mut self, seen: &[(TargetId, Observed)]) {
        self.observer.handle(seen, &mut self.placer);
        if self.policy.is_some() {
            self.candidates = self.placer.candidates();
        }
    }
}

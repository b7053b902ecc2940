//! The real policies, at the speed that a simulation needs.

use crate::cluster::Cluster;
use crate::config::Volume;
use crate::near::{near, place_by};
use plan::membership::TargetState;
use plan::placement::{Placer, Policy, PolicyName, Report, TargetCandidate, place};
use plan::repair::{Degraded, destinations, destinations_by};
use plan::topology::Near;
use plan::{SetId, TargetId};

/// Chooses targets for sets.
pub enum Chooser {
    /// Adaptive placement, which keeps what it knows between sets.
    Placer {
        /// What it knows.
        placer: Box<Placer>,
        /// How it looks at the torus, if there is one.
        near: Option<Near>,
    },
    /// Any other policy, which looks at all targets for each set.
    Policy {
        /// The policy.
        policy: Box<dyn Policy>,
        /// The targets, in the order of their numbers.
        candidates: Vec<TargetCandidate>,
    },
}

impl Chooser {
    /// For the stores as they are, of which it has a part: the `of`-th of their space, where so
    /// many choose side by side.
    pub fn new(volume: &Volume, cluster: &Cluster, seed: u64, of: u64) -> Self {
        let (placement, chunk_bytes) = (volume.placement(), volume.chunk.0);
        let mut candidates = cluster.candidates();
        for candidate in &mut candidates {
            (candidate.free, candidate.total) = (candidate.free / of, candidate.total / of);
        }
        let near = near(&placement, chunk_bytes, seed, cluster.places.as_ref());
        if volume.policy != PolicyName::Adaptive {
            let policy: Box<dyn Policy> = match near {
                Some(near) => Box::new(near),
                None => placement.policy(seed, chunk_bytes),
            };
            return Self::Policy { policy, candidates };
        }
        let mut placer = Placer::new(*cluster.rules(), placement.tuning(chunk_bytes), seed);
        placer.handle_members(&candidates);
        Self::Placer { placer: Box::new(placer), near }
    }

    /// Places a set; the space that it takes counts at once.
    pub fn place(&mut self, cluster: &Cluster, set: SetId) -> Vec<Option<TargetId>> {
        match self {
            Self::Placer { placer, near } => place_by(placer, near.as_ref(), cluster.rules(), set),
            Self::Policy { policy, candidates } => {
                let placed = place(&**policy, candidates, cluster.rules(), set);
                placed.iter().flatten().for_each(|id| take(candidates, *id, cluster.chunk_bytes()));
                placed
            }
        }
    }

    /// Where the lost chunks of a set go.
    pub fn destinations(&mut self, cluster: &Cluster, degraded: &Degraded) -> Vec<Option<TargetId>> {
        match self {
            Self::Placer { placer, .. } => destinations_by(degraded, placer),
            Self::Policy { policy, candidates } => {
                let domain = |id: TargetId| Some(cluster.stores[usize::from(id.0)].domain.clone());
                let usable: Vec<TargetCandidate> =
                    candidates.iter().filter(|target| target.state == TargetState::Up).cloned().collect();
                let found = destinations(degraded, &**policy, &usable, cluster.rules(), domain);
                found.iter().flatten().for_each(|id| take(candidates, *id, cluster.chunk_bytes()));
                found
            }
        }
    }

    /// A store is in another state now, or has something else.
    pub fn handle_store(&mut self, cluster: &Cluster, id: TargetId) {
        let store = &cluster.stores[usize::from(id.0)];
        let free = store.total.saturating_sub(cluster.used(store));
        match self {
            Self::Placer { placer, .. } => {
                placer.handle_state(id, store.state);
                let report = Report { idle: 1.0, free, total: store.total, ..Report::default() };
                // What was placed before counts until the second report.
                (0..2).for_each(|_| placer.handle_report(id, &report));
            }
            Self::Policy { candidates, .. } => {
                let target = &mut candidates[usize::from(id.0)];
                (target.state, target.free) = (store.state, free);
            }
        }
    }

    /// Looks at how full all are.
    pub fn handle_interval(&mut self) {
        if let Self::Placer { placer, .. } = self {
            placer.handle_interval();
        }
    }
}

fn take(candidates: &mut [TargetCandidate], id: TargetId, bytes: u64) {
    let target = &mut candidates[usize::from(id.0)];
    target.free = target.free.saturating_sub(bytes);
}

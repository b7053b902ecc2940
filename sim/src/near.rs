//! Placement that looks at the hops in a torus, as the product has it.

use plan::membership::TargetState;
use plan::placement::{Placement, Placer, PolicyName, Rules, place};
use plan::topology::places::pool;
use plan::topology::{Near, Places};
use plan::{SetId, TargetId};
use std::sync::Arc;

/// Whether placement by this policy looks at hops where there is a torus.
pub fn looks_at_hops(policy: PolicyName) -> bool {
    matches!(policy, PolicyName::Adaptive | PolicyName::Random)
}

/// The policy where it looks at hops.
pub fn near(placement: &Placement, chunk_bytes: u64, seed: u64, places: Option<&Arc<Places>>) -> Option<Near> {
    let places = places.filter(|_| looks_at_hops(placement.policy))?.clone();
    Some(Near { policy: placement.policy(seed, chunk_bytes), places })
}

/// The stores of a set by adaptive placement, in a torus near each other, as the product does it:
/// in a small cluster it looks at all stores.
pub fn place_by(placer: &mut Placer, near: Option<&Near>, rules: &Rules, set: SetId) -> Vec<Option<TargetId>> {
    let Some(near) = near else { return placer.place(set) };
    let candidates = placer.candidates();
    let up = candidates.iter().filter(|target| target.state == TargetState::Up).count();
    let nearest = |ids: &mut Vec<TargetId>| near.places.nearest_first(ids, |id| *id);
    placer.place_among(set, &[], pool(rules.width, up), nearest).unwrap_or_else(|| {
        let placed = place(near, &candidates, rules, set);
        placer.handle_placed(&placed.iter().flatten().copied().collect::<Vec<_>>());
        placed
    })
}

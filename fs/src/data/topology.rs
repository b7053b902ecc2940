//! Failure domains and the placement policy, as the label has them, in the form that placement
//! needs.

use crate::volume::label::{Label, Role};
use ec::Shape;
use plan::membership::TargetState;
use plan::placement::{Placement, Policy, PolicyName, Rules, TargetCandidate, most_on_one};
use plan::topology::{Near, Places};
use plan::{Domain, Position, TargetId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The targets of a volume and their failure domains.
#[derive(Debug, Default)]
pub(crate) struct Topology {
    placement: Placement,
    /// The length that its chunks grow to.
    chunk_bytes: u64,
    /// The seed of the random policy, so that volumes on the same targets do not all prefer the
    /// same ones.
    seed: u64,
    domains: BTreeMap<TargetId, Domain>,
    /// Where the targets are in the volume's torus.
    places: Option<Arc<Places>>,
    /// Targets that new chunk sets may go to.
    active: BTreeSet<TargetId>,
    /// Whether several chunks of a set may be on one target, where there are too few.
    allow_sharing: bool,
}

impl Topology {
    pub fn of(label: &Label) -> Self {
        let domain = |member: &crate::volume::label::Member| Some((member.id, member.domain()?));
        let seed = label.id().map_or(0, |id| u64::from_le_bytes(*id.first_chunk().expect("an id is longer than that")));
        let active = label.members().filter(|member| member.role == Role::Active).map(|member| member.id).collect();
        Self {
            placement: label.placement,
            chunk_bytes: label.chunk_bytes.into(),
            seed,
            places: label.places().map(Arc::new),
            domains: label.members().filter_map(domain).collect(),
            active,
            allow_sharing: label.allow_sharing,
        }
    }

    /// The targets that new chunk sets may go to, present or not.
    pub fn active(&self) -> impl Iterator<Item = &TargetId> {
        self.active.iter()
    }

    /// The most chunks of a set of `width` chunks that a target may have: 1, but where there are
    /// too few targets and the volume was made for that. One that is away counts: its part of a set
    /// waits for it.
    pub fn most_on_one(&self, width: usize) -> usize {
        if self.allow_sharing { most_on_one(width, self.active.len()) } else { 1 }
    }

    pub fn domain(&self, id: TargetId) -> Option<Domain> {
        self.domains.get(&id).cloned()
    }

    /// The candidate for a target with this free space and this capacity (0: not known).
    pub fn candidate(&self, id: TargetId, free: u64, total: u64) -> TargetCandidate {
        TargetCandidate { id, free, total, domain: self.domain(id), state: TargetState::Up, load: None }
    }

    /// The seed of what is placed by chance.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// In a torus, two policies also look at the hops between the targets of a set. The others are
    /// what their papers say, for comparison.
    pub fn policy(&self) -> Box<dyn Policy> {
        let policy = self.placement.policy(self.seed, self.chunk_bytes);
        match self.near() {
            Some(places) => Box::new(Near { policy, places: places.clone() }),
            None => policy,
        }
    }

    /// Where the targets are, if the policy looks at that.
    pub fn near(&self) -> Option<&Arc<Places>> {
        let looks = matches!(self.placement.policy, PolicyName::Adaptive | PolicyName::Random);
        self.places.as_ref().filter(|_| looks)
    }

    /// The rules for sets of a code of this shape, with `need` bytes on each target.
    pub fn rules(&self, shape: Shape, need: u64) -> Rules {
        Rules { width: shape.blocks(), spare: shape.m, domain_level: self.placement.domain_level, need }
    }

    fn name_of(&self, id: TargetId) -> Option<&str> {
        self.domains.get(&id).map(|domain| domain.at(self.placement.domain_level))
    }

    /// All domains that have a name, with their targets.
    pub fn domains(&self) -> BTreeMap<String, Vec<TargetId>> {
        let mut all = BTreeMap::<String, Vec<TargetId>>::new();
        for &id in self.domains.keys() {
            all.entry(self.name_of(id).unwrap_or_default().to_owned()).or_default().push(id);
        }
        all
    }

    /// The domains in which a set has chunks.
    pub fn domains_of(&self, places: &[Option<TargetId>]) -> BTreeSet<String> {
        places.iter().flatten().filter_map(|&id| self.name_of(id)).map(str::to_owned).collect()
    }

    /// The positions of a set that are lost, together with those that would be lost with a domain.
    pub fn lost_with(&self, domain: &str, places: &[Option<TargetId>], gone: &[Position]) -> Vec<Position> {
        let in_it = |position: &Position| places[position.index()].and_then(|id| self.name_of(id)) == Some(domain);
        Position::all(places.len()).filter(|position| gone.contains(position) || in_it(position)).collect()
    }
}

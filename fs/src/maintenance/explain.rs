//! Why a chunk set goes where it goes.

use crate::volume::label::Role;
use crate::{FileSystem, Result};
use plan::membership::TargetState;
use plan::placement::{Explanation, Placement, TargetCandidate, TargetLoad, explain};
use plan::topology::Places;
use plan::{SetId, TargetId};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Why a chunk set goes where it goes.
#[derive(Clone, Debug)]
pub struct SetExplained {
    /// How the volume places.
    pub placement: Placement,
    /// What the choice for this set would be if it were placed now, and why.
    pub now: Explanation,
    /// Where it is, if it was placed already. What its choice saw is not kept.
    pub there: Option<Vec<Option<TargetId>>>,
    /// The torus of the volume, and where the targets are in it.
    pub torus: Option<Places>,
    /// The paths of the targets.
    pub paths: BTreeMap<TargetId, PathBuf>,
    /// How busy they are, as far as it is known.
    pub loads: BTreeMap<TargetId, TargetLoad>,
    /// What stays of a temperature after an interval at present.
    pub tau: f64,
}

impl FileSystem {
    /// Says why a chunk set would go where it would go now, and where it is; without a number, the
    /// set after the last one. A set that is placed beside others of its writer may go elsewhere.
    ///
    /// # Errors
    /// When the metadata cannot be read, or is in another process.
    pub fn explain_set(&self, set: Option<SetId>) -> Result<SetExplained> {
        let set = match set {
            Some(set) => set,
            None => {
                let mut last = SetId::default();
                self.each_set(|set, _| {
                    last = set;
                    Ok(())
                })?;
                last.next()
            }
        };
        let there = match self.engine()?.meta.set(set) {
            Ok(record) => Some(record.places),
            Err(meta::Error::NotFound) => None,
            Err(error) => return Err(error.into()),
        };
        self.observe_loads();
        let (store, label, topology) = (&self.store, self.volume.label(), self.store.topology());
        let mut candidates = store.candidates();
        for member in label.members() {
            if !candidates.iter().any(|candidate| candidate.id == member.id) {
                let state = match (member.role, self.members.state(member.id)) {
                    (Role::Draining, _) => TargetState::Draining,
                    (_, Some((state, _))) if state != TargetState::Up => state,
                    // It fails, or it was full a moment ago.
                    _ => TargetState::Down,
                };
                candidates.push(TargetCandidate { state, ..topology.candidate(member.id, 0, 0) });
            }
        }
        let rules = topology.rules(store.options.code.shape(), store.new_chunk_bytes());
        let loads = label.members().filter_map(|member| Some((member.id, store.balance.load(member.id)?)));
        Ok(SetExplained {
            placement: label.placement,
            now: explain(&*topology.policy(), &candidates, &rules, set),
            there,
            torus: label.places(),
            paths: label.members().map(|member| (member.id, member.path.clone())).collect(),
            loads: loads.collect(),
            tau: store.balance.tau(),
        })
    }
}

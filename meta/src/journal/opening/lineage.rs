//! The lineage: which epochs belong to one history.

use super::super::frame::{EpochId, Head};
use std::collections::{BTreeMap, BTreeSet};

/// An epoch, its parent, the parent of that, and so on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::journal) struct Lineage {
    epochs: BTreeSet<EpochId>,
    /// All epochs of format 1 up to this number belong to it: they have no ids.
    old: u64,
    /// The newest of them.
    newest: EpochId,
}

impl Lineage {
    /// The lineage of an epoch, as far as these heads know it.
    pub fn of(newest: EpochId, heads: &[&Head]) -> Self {
        let parents: BTreeMap<EpochId, EpochId> =
            heads.iter().map(|head| (head.epoch.name(), head.origin.parent)).collect();
        let mut lineage = Self { newest, ..Self::default() };
        let mut next = Some(newest);
        while let Some(epoch) = next.filter(|epoch| epoch.number > 0) {
            if epoch.id == 0 {
                lineage.old = epoch.number;
                break;
            }
            lineage.epochs.insert(epoch);
            // The number of a parent is lower, or the heads would lead in a circle.
            next = parents.get(&epoch).copied().filter(|parent| parent.number < epoch.number);
        }
        lineage
    }

    /// The lineage of a new epoch whose parent is in this one.
    pub fn with(mut self, epoch: EpochId) -> Self {
        self.epochs.insert(epoch);
        self.newest = epoch;
        self
    }

    /// Whether an epoch belongs to it.
    pub fn has(&self, epoch: EpochId) -> bool {
        epoch.id == 0 && epoch.number <= self.old || self.epochs.contains(&epoch)
    }

    /// The newest epoch.
    pub fn newest(&self) -> EpochId {
        self.newest
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::frame::{Epoch, OLD_HEAD_BYTES, Origin};
    use super::*;
    use plan::TxId;

    fn name(number: u64, id: u128) -> EpochId {
        EpochId { number, id }
    }

    fn head(of: EpochId, parent: EpochId) -> Head {
        let epoch = Epoch { number: of.number, first: TxId(1), id: of.id };
        let origin = Origin { parent, before: EpochId::default() };
        Head { volume: [1; 16], epoch, origin, mirrors: Vec::new(), bytes: OLD_HEAD_BYTES }
    }

    #[test]
    fn what_no_parent_leads_to_is_another_history() {
        let heads = [
            head(name(9, 90), name(6, 60)),
            head(name(7, 70), name(6, 60)),
            head(name(6, 60), name(4, 0)),
            head(name(6, 61), name(4, 0)),
        ];
        let lineage = Lineage::of(name(9, 90), &heads.iter().collect::<Vec<_>>());
        assert!([name(9, 90), name(6, 60), name(4, 0), name(3, 0)].iter().all(|&epoch| lineage.has(epoch)));
        assert!(![name(7, 70), name(6, 61), name(5, 0), name(9, 91)].iter().any(|&epoch| lineage.has(epoch)));
    }

    #[test]
    fn a_circle_ends() {
        let (one, other) = (name(3, 30), name(2, 20));
        let heads = [head(one, other), head(other, one)];
        assert!(Lineage::of(one, &heads.iter().collect::<Vec<_>>()).has(other));
    }
}

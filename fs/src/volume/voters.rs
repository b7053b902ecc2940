//! The arithmetic of a volume's targets: how many may be away while its metadata can be read and
//! written. What is durable is on m+1 targets, so that any N-m of N have it.

use crate::volume::label::Label;
use plan::TargetId;
use std::sync::Arc;
use volume::target::Target;

/// A target with its number.
pub(crate) type Numbered = (TargetId, Arc<dyn Target>);

/// Divides targets of a volume into those that vote, in the order in which they should have the
/// metadata, and the others.
pub(crate) fn divide(label: &Label, targets: Vec<Numbered>) -> (Vec<Numbered>, Vec<Numbered>) {
    let voters = label.voters();
    let turn = |(id, _): &Numbered| voters.iter().position(|voter| voter == id);
    let (mut voting, others): (Vec<Numbered>, Vec<Numbered>) = targets.into_iter().partition(|it| turn(it).is_some());
    voting.sort_by_key(turn);
    (voting, others)
}

/// The targets that vote about the newest state of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Voters {
    /// How many there are: N.
    pub all: usize,
    /// How many may be lost without a loss: m.
    pub losses: usize,
    /// How many targets of the volume have no vote.
    pub others: usize,
}

impl Voters {
    /// Those of a label.
    pub fn of(label: &Label) -> Self {
        let losses = ec::parse(&label.code).map_or(0, |code| code.shape().m);
        let all = label.members().filter(|member| member.votes).count();
        Self { all, losses, others: label.members().count() - all }
    }

    /// What they are called: all targets vote in most volumes.
    pub fn word(self) -> &'static str {
        if self.others == 0 { "targets" } else { "voters" }
    }

    /// How many must be there to know the newest state: N-m.
    pub fn needed(self) -> usize {
        self.all.saturating_sub(self.losses).max(1)
    }

    /// How many may be away while the metadata can be read.
    pub fn readable_without(self) -> usize {
        self.all.saturating_sub(self.needed())
    }

    /// How many may be away while the metadata can be written: m+1 must be left for the journal.
    pub fn writable_without(self) -> usize {
        self.losses.min(self.all.saturating_sub(self.losses + 1))
    }

    /// How many more targets it takes until it can be written with m of them away.
    pub fn more(self) -> usize {
        (2 * self.losses + 1).saturating_sub(self.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_durable_is_found_by_every_opening() {
        for all in 1..20 {
            for losses in 0..all {
                let voters = Voters { all, losses, others: 0 };
                // Any m+1 targets that got a write and any N-m that are read have one in common.
                assert!(losses + 1 + voters.needed() > all);
                assert!(voters.writable_without() <= voters.readable_without());
                let more = Voters { all: all + voters.more(), ..voters };
                assert_eq!((more.more(), more.writable_without()), (0, losses));
                assert!(
                    voters.more() == 0 || Voters { all: all + voters.more() - 1, ..voters }.writable_without() < losses
                );
            }
        }
        let voters = Voters { all: 6, losses: 2, others: 0 };
        assert_eq!(
            (voters.needed(), voters.readable_without(), voters.writable_without(), voters.more()),
            (4, 2, 2, 0)
        );
        let few = Voters { all: 4, losses: 2, others: 0 };
        assert_eq!((few.needed(), few.readable_without(), few.writable_without(), few.more()), (2, 2, 1, 1));
    }
}

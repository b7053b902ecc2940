//! The arithmetic of a volume's targets: how many may be away while its metadata can be read and
//! written. What is durable is on m+1 targets, so that any N-m of N have it.

use crate::volume::label::Label;

/// The targets that a label lists, which vote about the newest state of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Voters {
    /// How many there are: N.
    pub all: usize,
    /// How many may be lost without a loss: m.
    pub losses: usize,
}

impl Voters {
    /// Those of a label.
    pub fn of(label: &Label) -> Self {
        let losses = ec::parse(&label.code).map_or(0, |code| code.shape().m);
        Self { all: label.members().count(), losses }
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
                let voters = Voters { all, losses };
                // Any m+1 targets that got a write and any N-m that are read have one in common.
                assert!(losses + 1 + voters.needed() > all);
                assert!(voters.writable_without() <= voters.readable_without());
                let more = Voters { all: all + voters.more(), losses };
                assert_eq!((more.more(), more.writable_without()), (0, losses));
                assert!(
                    voters.more() == 0 || Voters { all: all + voters.more() - 1, losses }.writable_without() < losses
                );
            }
        }
        let voters = Voters { all: 6, losses: 2 };
        assert_eq!(
            (voters.needed(), voters.readable_without(), voters.writable_without(), voters.more()),
            (4, 2, 2, 0)
        );
        let few = Voters { all: 4, losses: 2 };
        assert_eq!((few.needed(), few.readable_without(), few.writable_without(), few.more()), (2, 2, 1, 1));
    }
}

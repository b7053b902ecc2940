//! How many targets it takes: for a transaction to be durable, for mirrors, for a blank target to
//! count (`docs/design/008-one-history.md`).

use super::super::options::Access;
use super::super::shared::Shared;
use std::sync::atomic::Ordering;

impl Shared {
    /// How many mirrors make a transaction durable: m+1.
    pub fn need(&self) -> usize {
        self.need.load(Ordering::Relaxed)
    }

    /// How many targets must show the claim before a blank one counts: N-Q+1, where an opening
    /// needs Q. Who accepts a loss has no more than there are.
    pub fn witnesses_needed(&self, targets: usize) -> usize {
        let all = self.voters.load(Ordering::Relaxed).max(targets);
        let quorum = all.saturating_sub(self.losses).max(self.losses + 1);
        match self.access {
            Access::Write => (all + 1).saturating_sub(quorum).min(self.accepted.unwrap_or(usize::MAX)),
            // What is written stays in memory.
            _ => 0,
        }
    }

    /// How many of a number of targets are mirrors.
    pub fn wanted(&self, targets: usize) -> usize {
        let wanted = match self.access {
            Access::Write => self.losses + 2,
            Access::Read => self.losses + 1,
            Access::ReadFiles | Access::PossiblyOld => 1,
        };
        wanted.min(targets).max(1)
    }

    /// More targets have come: after an accepted loss, fewer than m+1 sufficed.
    pub fn grow(&self, targets: usize) {
        if self.access == Access::Write {
            self.need.fetch_max((self.losses + 1).min(targets), Ordering::Relaxed);
        }
    }
}

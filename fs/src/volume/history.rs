//! The chunk sets that this metadata created.
//!
//! A set that is not in the metadata was not necessarily deleted: metadata that was restored from
//! an old copy does not know the sets that were created after the copy. Every opening begins with
//! new numbers. So the used numbers are ranges, and the numbers between them may belong to another
//! history.

use crate::Result;
use crate::ranks::SetHistory;
use ::volume::ranked::Ranked;
use plan::SetId;

/// The setting in the metadata that holds the ranges.
pub(crate) const SETTING: &str = "sets-made";
/// The most ranges that are kept. Older ones are dropped: a target that has been away since then
/// may keep its orphan chunks of those sets for ever.
const RANGES: usize = 1000;

/// The first and the last number of each range.
pub(crate) type Ranges = Vec<(SetId, SetId)>;

/// The sets that were created.
#[derive(Debug, Default)]
pub(crate) struct History {
    before: Ranges,
    now: Ranked<Ranges, SetHistory>,
}

impl History {
    /// `before` are the sets that were created before this opening.
    pub fn new(before: Ranges) -> Self {
        Self { before, now: Ranked::default() }
    }

    /// Records a set that is about to be created. `write` must store it before the set has a chunk.
    pub fn add(&self, set: SetId, write: impl FnOnce(&Ranges) -> Result<()>) -> Result<()> {
        let mut now = self.now.lock();
        match now.last_mut() {
            Some((_, last)) if last.next() == set => *last = set,
            _ => now.push((set, set)),
        }
        let all: Ranges = self.before.iter().chain(&*now).copied().collect();
        write(&all[all.len().saturating_sub(RANGES)..].to_vec())
    }

    /// Whether a set was created before this opening.
    pub fn made_before(&self, set: SetId) -> bool {
        self.before.iter().any(|&(first, last)| (first..=last).contains(&set))
    }

    /// The highest number in use.
    pub fn last(&self) -> SetId {
        let now = self.now.lock();
        self.before.iter().chain(&*now).map(|&(_, last)| last).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges<const N: usize>(all: [(u64, u64); N]) -> Ranges {
        all.map(|(first, last)| (SetId(first), SetId(last))).into()
    }

    fn add(history: &History, set: u64) -> Ranges {
        let mut written = Ranges::new();
        let write = |all: &Ranges| {
            written.clone_from(all);
            Ok(())
        };
        history.add(SetId(set), write).unwrap();
        written
    }

    #[test]
    fn what_is_between_is_not_ours() {
        let history = History::new(ranges([(1, 3), (65, 65)]));
        assert_eq!(add(&history, 129), ranges([(1, 3), (65, 65), (129, 129)]));
        assert_eq!(add(&history, 130), ranges([(1, 3), (65, 65), (129, 130)]));
        // The numbers that were skipped may be in use in another history.
        assert_eq!(add(&history, 200), ranges([(1, 3), (65, 65), (129, 130), (200, 200)]));
        let known: Vec<SetId> = (0..300).map(SetId).filter(|&set| history.made_before(set)).collect();
        assert_eq!((known, history.last()), ([1, 2, 3, 65].map(SetId).to_vec(), SetId(200)));
    }

    #[test]
    fn it_does_not_grow_for_ever() {
        let history = History::new((0..RANGES as u64).map(|n| (SetId(n * 64), SetId(n * 64 + 1))).collect());
        let written = add(&history, 1 << 20);
        assert_eq!((written.len(), written.last()), (RANGES, Some(&(SetId(1 << 20), SetId(1 << 20)))));
    }
}

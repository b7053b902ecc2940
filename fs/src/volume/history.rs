//! Which chunk sets this metadata saw come into being.
//!
//! That a set is not in the metadata does not say that it was deleted: metadata that was restored from an old copy does not know what was made
//! after the copy. Since every opening begins with new numbers, those that were used are ranges, and what is between them is somebody else's.

use crate::Result;
use crate::mutex::lock;
use std::sync::Mutex;

/// Where the metadata has it.
pub(crate) const SETTING: &str = "sets-made";
/// No more ranges are kept; what the oldest ones had may stay on a target for ever if it was away ever since.
const RANGES: usize = 1000;

/// First and last number of each range.
pub(crate) type Ranges = Vec<(u64, u64)>;

/// The sets that were made.
#[derive(Debug, Default)]
pub(crate) struct History {
    before: Ranges,
    now: Mutex<Ranges>,
}

impl History {
    /// With what was made before this opening.
    pub fn new(before: Ranges) -> Self {
        Self { before, now: Mutex::default() }
    }

    /// A set is about to be made; `write` must know of it before the set has a chunk.
    pub fn add(&self, set: u64, write: impl FnOnce(&Ranges) -> Result<()>) -> Result<()> {
        let mut now = lock(&self.now);
        match now.last_mut() {
            Some((_, last)) if *last + 1 == set => *last = set,
            _ => now.push((set, set)),
        }
        let all: Ranges = self.before.iter().chain(&*now).copied().collect();
        write(&all[all.len().saturating_sub(RANGES)..].to_vec())
    }

    /// Whether a set was made before this opening.
    pub fn made_before(&self, set: u64) -> bool {
        self.before.iter().any(|&(first, last)| (first..=last).contains(&set))
    }

    /// The highest number that was used.
    pub fn last(&self) -> u64 {
        let now = lock(&self.now);
        self.before.iter().chain(&*now).map(|&(_, last)| last).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(history: &History, set: u64) -> Ranges {
        let mut written = Ranges::new();
        let write = |all: &Ranges| {
            written.clone_from(all);
            Ok(())
        };
        history.add(set, write).unwrap();
        written
    }

    #[test]
    fn what_is_between_is_not_ours() {
        let history = History::new(vec![(1, 3), (65, 65)]);
        assert_eq!(add(&history, 129), [(1, 3), (65, 65), (129, 129)]);
        assert_eq!(add(&history, 130), [(1, 3), (65, 65), (129, 130)]);
        // Numbers were left out: they may be in use where this metadata was not.
        assert_eq!(add(&history, 200), [(1, 3), (65, 65), (129, 130), (200, 200)]);
        let known: Vec<u64> = (0..300).filter(|&set| history.made_before(set)).collect();
        assert_eq!((known, history.last()), (vec![1, 2, 3, 65], 200));
    }

    #[test]
    fn it_does_not_grow_for_ever() {
        let history = History::new((0..RANGES as u64).map(|n| (n * 64, n * 64 + 1)).collect());
        let written = add(&history, 1 << 20);
        assert_eq!((written.len(), written.last()), (RANGES, Some(&(1 << 20, 1 << 20))));
    }
}

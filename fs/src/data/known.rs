//! The committed extents of a file, as this process knows them while no other one changes the file.

use crate::data::windows::Windows;
use plan::Extent;
use std::ops::Range;
use std::time::{Duration, Instant};

/// The most extents that are known of a file, by their weight.
const MAX_KNOWN: usize = 1024;
/// The most extents of a window that is kept, by their weight. It is cheaper to look up a few of
/// them each time than all of them once.
const MAX_OF_WINDOW: usize = MAX_KNOWN / 4;

/// How long no windows of a file are looked up after one with too many extents.
const FRAGMENTED_FOR: Duration = Duration::from_secs(10);
/// From this request within a while on, extents are looked up for a whole window.
const WINDOW_FROM: u32 = 2;

/// Committed extents that were looked up lately, and are not changed since. All calls say what the
/// process has changed so far, [`seen`](crate::data::file::FileState::seen).
#[derive(Debug, Default)]
pub(crate) struct Known {
    windows: Option<Windows>,
    /// The changes when they were looked up.
    changes: u64,
    /// When a window of the file had too many extents.
    fragmented: Option<Instant>,
}

impl Known {
    /// The extents of a range, clipped to it, if they are known.
    pub fn find(&self, (changes, changing): (u64, bool), range: &Range<u64>, now: Instant) -> Option<Vec<Extent>> {
        let is_true = changes == self.changes && !changing;
        self.windows.as_ref().filter(|windows| is_true && windows.are_valid(now))?.find(range)
    }

    /// The range to look up instead of one that is not known.
    pub fn widen(&mut self, (changes, _): (u64, bool), range: Range<u64>, now: Instant) -> Range<u64> {
        if self.fragmented.is_some_and(|since| now < since + FRAGMENTED_FOR) {
            return range;
        }
        let is_true = changes == self.changes;
        let windows = self.windows.take().filter(|windows| is_true && windows.are_valid(now));
        self.changes = changes;
        self.windows.insert(windows.unwrap_or_else(|| Windows::new(now))).widen(range, WINDOW_FROM)
    }

    /// Keeps the extents of a range that was looked up. There were no changes since.
    pub fn learn(&mut self, (changes, changing): (u64, bool), range: &Range<u64>, extents: &[Extent], now: Instant) {
        let is_true = changes == self.changes && !changing;
        let Some(windows) = self.windows.as_mut().filter(|_| is_true) else { return };
        if windows.weight() + MAX_OF_WINDOW > MAX_KNOWN {
            *windows = windows.emptied();
        }
        if !windows.learn(range, extents, MAX_OF_WINDOW) {
            self.give_up(now);
        }
    }

    /// A window has too many extents.
    pub fn give_up(&mut self, now: Instant) {
        self.fragmented = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::windows::{EXTENTS_FOR, WINDOW_BYTES};
    use plan::ExtentPlace;

    fn extents(window: u64, count: u64) -> Vec<Extent> {
        let at = |n| Extent { offset: window * WINDOW_BYTES + n * 4096, length: 4096, place: ExtentPlace::Zero };
        (0..count).map(at).collect()
    }

    /// Asks until a window is looked up, and keeps these extents of it.
    fn learn(known: &mut Known, changes: u64, window: u64, count: u64, now: Instant) -> bool {
        let range = window * WINDOW_BYTES..window * WINDOW_BYTES + 4096;
        let wide = (0..WINDOW_FROM).map(|_| known.widen((changes, false), range.clone(), now)).last().unwrap();
        known.learn((changes, false), &wide, &extents(window, count), now);
        known.find((changes, false), &range, now).is_some()
    }

    #[test]
    fn a_change_makes_extents_unknown() {
        let (mut known, now) = (Known::default(), Instant::now());
        assert!(learn(&mut known, 0, 0, 3, now));
        let range = 4096..8192;
        assert_eq!(known.find((0, false), &range, now).unwrap(), extents(0, 3)[1..2]);
        assert_eq!(known.find((0, false), &(3 * 4096..4 * 4096), now), Some(Vec::new()), "a hole");
        assert_eq!(known.find((0, true), &range, now), None, "while the content is changed");
        assert_eq!(known.find((1, false), &range, now), None, "after a change");
        assert_eq!(known.find((0, false), &range, now + EXTENTS_FOR), None, "after a while");
        // What was asked for before a change, and comes after it.
        assert_eq!(known.widen((1, false), range.clone(), now), range);
        known.learn((0, false), &(0..WINDOW_BYTES), &extents(0, 3), now);
        assert_eq!(known.find((1, false), &range, now), None);
        assert!(learn(&mut known, 1, 0, 3, now));
        // During a change.
        assert!(learn(&mut known, 2, 1, 3, now));
        known.learn((2, true), &(0..WINDOW_BYTES), &extents(0, 3), now);
        assert_eq!(known.find((2, false), &range, now), None);
    }

    #[test]
    fn what_is_known_is_bounded() {
        let (mut known, now) = (Known::default(), Instant::now());
        for window in 0..100 {
            assert!(learn(&mut known, 0, window, MAX_OF_WINDOW as u64 - 1, now));
            assert!(known.windows.as_ref().unwrap().weight() <= MAX_KNOWN);
        }
        // Windows of a hole count, too.
        let mut hole = Known::default();
        for window in 0..100 * MAX_KNOWN as u64 {
            assert!(learn(&mut hole, 0, window, 0, now));
            assert!(hole.windows.as_ref().unwrap().weight() <= MAX_KNOWN);
        }
        // A file in many pieces is left as it is.
        assert!(!learn(&mut known, 0, 100, MAX_OF_WINDOW as u64, now));
        for _ in 0..2 * WINDOW_FROM {
            assert_eq!(known.widen((0, false), 0..4096, now), 0..4096);
        }
        assert!(learn(&mut known, 0, 100, 3, now + FRAGMENTED_FOR), "it is tried again");
    }
}

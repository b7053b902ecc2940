//! Extents of a file that were looked up lately, by windows of the file. A file that is read here
//! and there soon has them all. It has no clock.

use plan::{Extent, ExtentPlace};
use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

/// How long extents are valid: data may be moved, and its old place is freed seconds later.
pub(crate) const EXTENTS_FOR: Duration = Duration::from_secs(1);
/// The size of a window, in bytes.
pub(crate) const WINDOW_BYTES: u64 = 16 << 20;

/// Extents of a file, for [`EXTENTS_FOR`].
#[derive(Debug)]
pub(crate) struct Windows {
    since: Instant,
    misses: u32,
    windows: HashMap<u64, Vec<Extent>>,
    weight: usize,
}

impl Windows {
    /// None yet.
    pub fn new(now: Instant) -> Self {
        Self { since: now, misses: 0, windows: HashMap::new(), weight: 0 }
    }

    /// The same without any extents: it knows how many were asked for.
    pub fn emptied(&self) -> Self {
        Self { windows: HashMap::new(), weight: 0, ..*self }
    }

    /// Whether they are valid. All count as old as the first one: a window may expire early, never
    /// late.
    pub fn are_valid(&self, now: Instant) -> bool {
        now < self.since + EXTENTS_FOR
    }

    /// The extents of a range, clipped to it, if they are known.
    pub fn find(&self, range: &Range<u64>) -> Option<Vec<Extent>> {
        let extents = self.windows.get(&window(range)?)?;
        let first = extents.partition_point(|extent| extent.end() <= range.start);
        Some(extents[first..].iter().map_while(|extent| extent.clip(range)).collect())
    }

    /// The range to request instead of a range that is not known: a whole window from the request
    /// with this number on.
    pub fn widen(&mut self, range: Range<u64>, from: u32) -> Range<u64> {
        self.misses += 1;
        match window(&range) {
            Some(window) if self.misses >= from => window * WINDOW_BYTES..(window + 1) * WINDOW_BYTES,
            _ => range,
        }
    }

    /// Keeps all extents of a range, if it is a window and they weigh at most `most`. Returns
    /// whether it does.
    pub fn learn(&mut self, range: &Range<u64>, extents: &[Extent], most: usize) -> bool {
        let is_window = range.end - range.start == WINDOW_BYTES && range.start.is_multiple_of(WINDOW_BYTES);
        let is_kept = is_window && weight(extents) <= most;
        if is_kept {
            let before = self.windows.insert(range.start / WINDOW_BYTES, extents.to_vec());
            self.weight += weight(extents);
            self.weight -= before.map_or(0, |extents| weight(&extents));
        }
        is_kept
    }

    /// What they weigh: one for each window and each extent, and more for bytes that are in the
    /// metadata itself.
    pub fn weight(&self) -> usize {
        self.weight
    }
}

fn weight(extents: &[Extent]) -> usize {
    let bytes = |extent: &Extent| if let ExtentPlace::Bytes(bytes) = &extent.place { bytes.len() } else { 0 };
    1 + extents.iter().map(|extent| 1 + bytes(extent) / 64).sum::<usize>()
}

/// The window that contains the whole range, if one does.
fn window(range: &Range<u64>) -> Option<u64> {
    let window = range.start / WINDOW_BYTES;
    (range.end <= (window + 1).checked_mul(WINDOW_BYTES)?).then_some(window)
}

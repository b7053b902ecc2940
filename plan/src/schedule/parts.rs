//! How a large object is cut into parts that are coded independently (parEC's multi-part objects).

use std::ops::Range;

/// An object is cut into no more parts.
pub const MAX_PARTS: u64 = 4096;
/// Parts are no shorter, if nobody wants them so: what a part costs beside its bytes must not
/// count.
const MIN_PART_BYTES: u64 = 64 << 20;
/// Nor longer.
const MAX_PART_BYTES: u64 = 1 << 30;
/// The shortest that can be asked for.
const MIN_REQUESTED_BYTES: u64 = 64 << 10;
/// With this many parts for each worker, the last ones end at about the same time.
const PARTS_PER_WORKER: u64 = 4;

/// How an object is cut. All parts but the last are a power of two long, so that each is a whole
/// subtree of a hash tree over the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    size: u64,
    part_bytes: u64,
}

impl Parts {
    /// Cuts an object of `size` bytes for `workers` workers, into parts of `wanted` bytes (rounded
    /// to a power of two) or of a length that suits.
    pub fn new(size: u64, workers: usize, wanted: Option<u64>) -> Self {
        let even = size / (workers.max(1) as u64 * PARTS_PER_WORKER);
        let wanted =
            wanted.map_or(even.clamp(MIN_PART_BYTES, MAX_PART_BYTES), |wanted| wanted.max(MIN_REQUESTED_BYTES));
        let least = size.div_ceil(MAX_PARTS);
        let power = |bytes: u64| bytes.checked_next_power_of_two().unwrap_or(1 << 63);
        Self { size, part_bytes: power(wanted.min(1 << 62)).max(power(least)) }
    }

    /// The length of each part but the last.
    pub fn part_bytes(&self) -> u64 {
        self.part_bytes
    }

    /// How many there are, at least one.
    pub fn count(&self) -> u32 {
        self.size.div_ceil(self.part_bytes).max(1) as u32
    }

    /// Whether it is cut at all.
    pub fn are_several(&self) -> bool {
        self.count() > 1
    }

    /// The bytes of a part; none behind the last.
    pub fn range(&self, part: u32) -> Range<u64> {
        let start = u64::from(part).saturating_mul(self.part_bytes).min(self.size);
        start..start.saturating_add(self.part_bytes).min(self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_default_gives_each_worker_several_parts() {
        assert!(!Parts::new(0, 4, None).are_several());
        assert!(!Parts::new(64 << 20, 4, None).are_several());
        assert_eq!(Parts::new(100 << 20, 4, None).count(), 2);
        let large = Parts::new(40 << 30, 32, None);
        assert_eq!((large.part_bytes(), large.count()), (512 << 20, 80));
        let huge = Parts::new(1 << 50, 8, None);
        assert_eq!(u64::from(huge.count()), MAX_PARTS);
        // The study's 40 GB in 40 parts, as near as powers of two are.
        assert_eq!(Parts::new(40 << 30, 32, Some(1 << 30)).count(), 40);
    }

    proptest! {
        #[test]
        fn parts_are_the_object(
            size in 0u64..=1 << 55, workers in 1usize..1000, wanted in prop::option::of(1u64..=u64::MAX)
        ) {
            let parts = Parts::new(size, workers, wanted);
            prop_assert!(parts.part_bytes().is_power_of_two() && u64::from(parts.count()) <= MAX_PARTS);
            let count = parts.count();
            let mut at = 0;
            for part in 0..count {
                let range = parts.range(part);
                prop_assert_eq!(range.start, at);
                prop_assert!(part + 1 == count || range.end - range.start == parts.part_bytes());
                prop_assert!(size == 0 || range.end > range.start);
                at = range.end;
            }
            prop_assert_eq!(at, size);
            prop_assert!(parts.range(count).is_empty());
        }
    }
}

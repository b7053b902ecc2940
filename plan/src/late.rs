//! When one of several that do the same is late: measured by the others, so that load, which slows
//! all of them down, makes none late.

use std::time::Duration;

/// None is late before this, so that a moment's load is not taken for a hanging disk.
const MIN_LATE: Duration = Duration::from_secs(1);
/// A late one takes this many times as long as the others.
const LATE_FACTOR: u32 = 4;

/// How long to wait for all together. `took` says how long those took that are done, in order. With
/// `least` of them the caller can go on if the others are lost; with `wanted` it prefers to.
/// Without `least`, it waits for all until the deadline.
pub fn straggler_timeout(took: &[Duration], least: usize, wanted: usize, deadline: Duration) -> Duration {
    let after = |enough: usize, times: u32| {
        let enough = enough.checked_sub(1).map_or(Duration::ZERO, |last| took[last]);
        (enough * LATE_FACTOR).max(MIN_LATE) * times
    };
    let straggler_timeout = match took.len() {
        done if done >= wanted.max(least) => after(wanted.max(least), 1),
        done if done >= least => after(least, 2),
        _ => deadline,
    };
    straggler_timeout.min(deadline)
}

/// A target is overloaded if its reads usually take this many times as long as those of the others,
const OVERLOADED_FACTOR: u32 = 8;
/// and this much longer. Whose reads take less is not. To make a block of k others costs k reads,
/// which must be worth it.
pub const OVERLOADED_BY: Duration = Duration::from_millis(20);

/// Whether a target, whose reads usually take `own`, is so much slower than the `others` that it is
/// faster to read k of them and to decode. False where too little is known.
pub fn is_overloaded(own: Duration, others: &mut [Duration]) -> bool {
    others.sort_unstable();
    let Some(&usual) = others.get(others.len() / 2).filter(|_| others.len() > 1) else { return false };
    own >= usual * OVERLOADED_FACTOR && own >= usual + OVERLOADED_BY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_late_is_measured_by_the_others() {
        let ms = Duration::from_millis;
        let deadline = ms(15_000);
        let late = |took: &[u64]| {
            let took: Vec<Duration> = took.iter().map(|&took| ms(took)).collect();
            straggler_timeout(&took, 4, 5, deadline)
        };
        // Too few to go on with.
        assert_eq!(late(&[]), deadline);
        assert_eq!(late(&[1, 2, 3]), deadline);
        // Just enough, and as many as one likes.
        assert_eq!(late(&[1, 2, 3, 4]), ms(2000));
        assert_eq!(late(&[1, 2, 3, 4, 5]), ms(1000));
        // Where all are slow, nobody is late.
        assert_eq!(late(&[600, 700, 800, 900, 1000]), ms(4000));
        assert_eq!(late(&[600, 700, 800, 900]), ms(7200));
        assert_eq!(late(&[9000, 9000, 9000, 9000, 9000]), deadline);
        // Nothing waits any longer for the last one.
        assert_eq!(late(&[1, 2, 3, 4, 5, 900]), ms(1000));
    }

    #[test]
    fn only_who_is_much_slower_than_the_others_is_overloaded() {
        let ms = Duration::from_millis;
        let is = |own, others: &[u64]| {
            is_overloaded(ms(own), &mut others.iter().map(|&other| ms(other)).collect::<Vec<_>>())
        };
        assert!(is(60, &[2, 1, 3, 2]) && is(400, &[1, 50, 2, 50, 50]));
        // Twice as slow, all of them slow, a moment of nothing, and nobody to compare with.
        assert!(!is(4, &[2, 2, 2]) && !is(300, &[100, 50, 100]) && !is(8, &[0, 0, 0]));
        assert!(!is(1000, &[]) && !is(1000, &[1]));
    }
}

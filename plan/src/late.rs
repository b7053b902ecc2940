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
}

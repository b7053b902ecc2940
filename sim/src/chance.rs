//! Chances: what was counted, and how far that can be believed.

use serde::Serialize;

/// A probability that was counted, and the interval in which the true one is with 95 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// How often it happened.
    pub happened: u64,
    /// Out of how many.
    pub of: u64,
    /// The part.
    pub part: f64,
    /// Not below this.
    pub low: f64,
    /// Not above this.
    pub high: f64,
}

/// The 97.5 % point of the normal distribution.
const Z: f64 = 1.959_963_985;

impl Estimate {
    /// The interval of Wilson (1927), which also says something where nothing happened.
    pub fn of(happened: u64, of: u64) -> Self {
        if of == 0 {
            return Self { happened, of, part: 0.0, low: 0.0, high: 1.0 };
        }
        let (count, part) = (of as f64, happened as f64 / of as f64);
        let scale = 1.0 + Z * Z / count;
        let middle = (part + Z * Z / (2.0 * count)) / scale;
        let half = Z * (part * (1.0 - part) / count + Z * Z / (4.0 * count * count)).sqrt() / scale;
        // Where nothing happened, or everything, rounding leaves a trace.
        let low = if happened == 0 { 0.0 } else { (middle - half).max(0.0) };
        let high = if happened == of { 1.0 } else { (middle + half).min(1.0) };
        Self { happened, of, part, low, high }
    }
}

/// The time until something happens that does so once in `mean`, by chance.
pub fn exponential(random: &mut fastrand::Rng, mean: f64) -> f64 {
    // Above 0: the logarithm of 0 is infinite.
    -(1.0 - random.f64()).max(f64::MIN_POSITIVE).ln() * mean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_wilson() {
        let near = |a: f64, b: f64| (a - b).abs() < 5e-5;
        // 8 of 10, and 0 of 20: tables have (0.4902, 0.9433) and (0, 0.1611).
        let some = Estimate::of(8, 10);
        assert!(near(some.low, 0.4902) && near(some.high, 0.9433), "{some:?}");
        let none = Estimate::of(0, 20);
        assert!(none.low == 0.0 && near(none.high, 0.1611), "{none:?}");
        let all = Estimate::of(20, 20);
        assert!(all.high == 1.0 && near(all.low, 0.8389), "{all:?}");
        assert_eq!((Estimate::of(0, 0).low, Estimate::of(0, 0).high), (0.0, 1.0));
    }

    #[test]
    fn exponential_times_have_their_mean() {
        let mut random = fastrand::Rng::with_seed(1);
        let mean = (0..100_000).map(|_| exponential(&mut random, 3.0)).sum::<f64>() / 100_000.0;
        assert!((mean - 3.0).abs() < 0.05, "{mean}");
    }
}

//! How long a chunk set lives, as a Markov chain: a birth-death process over the number of lost
//! chunks, absorbed when more are lost than the code can (Angus, "On computing MTBF for a
//! k-out-of-n:G repairable system", 1988; the usual MTTDL of RAID is the same with one or two
//! spare). Times between failures and times of repair are taken for exponential and independent,
//! which they are not: to stand beside a simulation, not in place of one.

/// A set in which chunks are lost and repaired. Rates are in any unit of time, but all in the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// Chunks of the set.
    pub width: u32,
    /// How often one chunk is lost.
    pub loss: f64,
    /// How often a set with one chunk lost is whole again, then of one with two lost, up to m: with
    /// one more, the set is lost. A repair rebuilds all that is lost.
    pub repair: Vec<f64>,
}

impl Chain {
    /// The mean time until a set that is whole is lost; infinite where nothing is ever lost.
    ///
    /// With `t(j)` the time from `j` lost on: `t(j) = 1/(f(j) + r(j)) + (f(j)·t(j+1) +
    /// r(j)·t(0))/(f(j) + r(j))`, where `f(j) = (width - j)·loss`, `r(0) = 0`, `t(m+1) = 0`. From
    /// the last backwards each is `a + b·t(0)`, and so `t(0) = a(0)/(1 - b(0))`. What is kept is
    /// `1 - b`, since `b` is close to 1 where sets live long.
    pub fn mean_time_to_loss(&self) -> f64 {
        let (mut a, mut one_minus_b) = (0.0, 1.0);
        for lost in (0..=self.repair.len()).rev() {
            let failing = f64::from(self.width.saturating_sub(lost as u32)) * self.loss;
            let repaired = if lost == 0 { 0.0 } else { self.repair[lost - 1] };
            if failing <= 0.0 {
                return f64::INFINITY;
            }
            let part = failing / (failing + repaired);
            a = 1.0 / (failing + repaired) + part * a;
            one_minus_b *= part;
        }
        a / one_minus_b
    }

    /// The chance that any of so many sets is lost within a time, if they are lost independently.
    pub fn chance_of_loss(&self, sets: f64, time: f64) -> f64 {
        -(-sets * time / self.mean_time_to_loss()).exp_m1()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 1e-9 * expected, "{found} is not {expected}");
    }

    fn chain(width: u32, loss: f64, repair: &[f64]) -> Chain {
        Chain { width, loss, repair: repair.into() }
    }

    /// By hand: without spare the first loss of any of n is the end. With one spare,
    /// `t0 = 1/nλ + t1` and `t1 = 1/((n-1)λ+μ) + μ/((n-1)λ+μ)·t0` give
    /// `t0 = ((2n-1)λ + μ) / (n(n-1)λ²)`: a mirror with λ = 1, μ = 10 lives (3 + 10)/2.
    #[test]
    fn none_and_one_spare() {
        near(chain(5, 0.25, &[]).mean_time_to_loss(), 0.8);
        near(chain(2, 1.0, &[10.0]).mean_time_to_loss(), 6.5);
        let (n, loss, repair) = (6.0, 0.1, 50.0);
        near(
            chain(6, loss, &[repair]).mean_time_to_loss(),
            ((2.0 * n - 1.0) * loss + repair) / (n * (n - 1.0) * loss * loss),
        );
    }

    /// By hand, three copies with λ = 1, μ1 = 4, μ2 = 9: `t2 = (1 + 9·t0)/10`,
    /// `t1 = (1 + 2·t2 + 4·t0)/6 = (1.2 + 5.8·t0)/6`, `t0 = 1/3 + t1`, so
    /// `t0·0.2/6 = 1/3 + 0.2` and t0 = 16.
    #[test]
    fn two_spares() {
        near(chain(3, 1.0, &[4.0, 9.0]).mean_time_to_loss(), 16.0);
        // Without any repair the times simply follow each other: 1/3 + 1/2 + 1.
        near(chain(3, 1.0, &[0.0, 0.0]).mean_time_to_loss(), 11.0 / 6.0);
    }

    #[test]
    fn faster_repair_and_more_parity_live_longer() {
        let mut last = 0.0;
        for repair in [1.0, 1e3, 1e6, 1e9] {
            let time = chain(8, 1e-3, &[repair, repair]).mean_time_to_loss();
            assert!(time > last && time.is_finite());
            last = time;
        }
        // 1 - b would be lost in rounding: eight spare, repaired a billion times faster than lost.
        let long = chain(16, 1e-9, &[1.0; 8]).mean_time_to_loss();
        assert!(long > 1e60 && long.is_finite(), "{long}");
        assert_eq!(chain(8, 0.0, &[1.0]).mean_time_to_loss(), f64::INFINITY);
        assert_eq!(chain(2, 1.0, &[1.0, 1.0]).mean_time_to_loss(), f64::INFINITY, "a third cannot be lost");
    }

    #[test]
    fn many_sets_are_lost_sooner() {
        let mirror = chain(2, 1.0, &[10.0]);
        near(mirror.chance_of_loss(1.0, 6.5), 1.0 - (-1f64).exp());
        // Small chances are not rounded away.
        near(mirror.chance_of_loss(1.0, 6.5e-18), 1e-18);
        assert_eq!(chain(2, 0.0, &[1.0]).chance_of_loss(1e9, 1e9), 0.0);
    }
}

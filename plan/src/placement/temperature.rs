//! How much targets were accessed lately: paper 003 (ECFS), section IV.A, equation 4,
//! `T(i+1) = tau·T(i) + H(i+1)`.
//!
//! The paper wants tau large where servers that were busy stay busy (video on demand) and small
//! where the past says nothing (DNA sequencing), and leaves open how it is found. The rule here:
//! tau is the correlation, over the targets, between what each had more than the mean in one
//! interval and what it had more in the next. If that excess is kept by a factor r from interval to
//! interval, then what was seen k intervals ago says r^k as much of the next one as what was seen
//! now does, and those are the weights that equation 4 gives to the past with tau = r. Whether the
//! load of the whole cluster rises or falls does not matter, and targets that all do the same leave
//! tau as it is: then there is nothing to learn.

use crate::TargetId;
use crate::by_target::ByTarget;
use serde::{Deserialize, Serialize};

/// What stays of a temperature after an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tau {
    /// Always so much, 0 to [`MAX_TAU`].
    Fixed(f64),
    /// As the recent accesses say.
    #[default]
    Tuned,
}

/// With this one a temperature remembers twenty intervals.
pub const MAX_TAU: f64 = 0.95;

/// Until something is known.
const FIRST_TAU: f64 = 0.5;

/// What stays of the sums of a correlation after an interval: it looks at some ten of them.
const MEMORY: f64 = 0.9;

/// The temperatures of all targets, fed with accesses by interval.
#[derive(Clone, Debug)]
pub struct Temperatures {
    mode: Tau,
    tau: f64,
    targets: ByTarget<Heat>,
    /// Sums over targets and intervals, older ones less: of the products of the excess in one
    /// interval and in the next, and of the squares of both.
    products: f64,
    squares: (f64, f64),
}

#[derive(Clone, Copy, Debug)]
struct Heat {
    temperature: f64,
    /// The accesses of the last interval.
    last: f64,
}

impl Temperatures {
    /// Of no target yet.
    pub fn new(mode: Tau) -> Self {
        let tau = match mode {
            Tau::Fixed(tau) if tau.is_finite() => tau.clamp(0.0, MAX_TAU),
            _ => FIRST_TAU,
        };
        Self { mode, tau, targets: ByTarget::default(), products: 0.0, squares: (0.0, 0.0) }
    }

    /// What each of these targets was accessed in the interval that ends now. A target that is not
    /// among them stays as it is: its report is late, and the next one counts what is missed.
    pub fn handle_interval(&mut self, accesses: &[(TargetId, u64)]) {
        if self.mode == Tau::Tuned {
            self.tune(accesses);
        }
        for &(id, accesses) in accesses {
            let before = self.targets.get(id).map_or(0.0, |heat| heat.temperature);
            // Equation 4.
            let temperature = self.tau * before + accesses as f64;
            self.targets.insert(id, Heat { temperature, last: accesses as f64 });
        }
    }

    fn tune(&mut self, accesses: &[(TargetId, u64)]) {
        let pair = |&(id, now): &(TargetId, u64)| Some((self.targets.get(id)?.last, now as f64));
        let pairs: Vec<(f64, f64)> = accesses.iter().filter_map(pair).collect();
        let count = pairs.len() as f64;
        let sums = pairs.iter().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
        let (before, now) = (sums.0 / count, sums.1 / count);
        let mut add = [0.0; 3];
        for pair in &pairs {
            let excess = (pair.0 - before, pair.1 - now);
            add[0] += excess.0 * excess.1;
            add[1] += excess.0 * excess.0;
            add[2] += excess.1 * excess.1;
        }
        self.products = MEMORY * self.products + add[0];
        self.squares = (MEMORY * self.squares.0 + add[1], MEMORY * self.squares.1 + add[2]);
        let scale = (self.squares.0 * self.squares.1).sqrt();
        if scale.is_normal() {
            self.tau = (self.products / scale).clamp(0.0, MAX_TAU);
        }
    }

    /// The temperature of a target; a target that was never heard of is cold.
    pub fn of(&self, id: TargetId) -> f64 {
        self.targets.get(id).map_or(0.0, |heat| heat.temperature)
    }

    /// What stays of a temperature after an interval at present.
    pub fn tau(&self) -> f64 {
        self.tau
    }

    /// Forgets targets that are not among the volume's any more.
    pub fn retain(&mut self, is_there: impl Fn(TargetId) -> bool) {
        self.targets.retain(is_there);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: TargetId = TargetId(1);

    #[test]
    fn a_temperature_is_equation_four() {
        let mut heat = Temperatures::new(Tau::Fixed(0.5));
        let mut seen = Vec::new();
        for accesses in [8, 0, 0, 4, 0] {
            heat.handle_interval(&[(A, accesses)]);
            seen.push(heat.of(A));
        }
        assert_eq!(seen, [8.0, 4.0, 2.0, 5.0, 2.5]);
        // Without a report it stays; a target that is gone is cold.
        heat.handle_interval(&[(TargetId(2), 7)]);
        assert_eq!((heat.of(A), heat.of(TargetId(2)), heat.of(TargetId(3))), (2.5, 7.0, 0.0));
        heat.retain(|id| id != A);
        assert_eq!((heat.of(A), heat.of(TargetId(2))), (0.0, 7.0));
    }

    #[test]
    fn a_fixed_tau_stays_below_one() {
        for (given, tau) in [(0.3, 0.3), (1.0, MAX_TAU), (-1.0, 0.0), (f64::NAN, FIRST_TAU)] {
            assert_eq!(Temperatures::new(Tau::Fixed(given)).tau(), tau);
        }
        let mut hot = Temperatures::new(Tau::Fixed(5.0));
        (0..10_000).for_each(|_| hot.handle_interval(&[(A, u64::MAX)]));
        assert!(hot.of(A) < 21.0 * u64::MAX as f64);
    }

    /// Tau after some intervals, in which what each of 32 targets has more than 100 is kept by
    /// a factor, the rest being new by chance.
    fn tuned(keeps: f64, intervals: usize, level: impl Fn(usize) -> f64) -> f64 {
        let mut random = fastrand::Rng::with_seed(3);
        let mut heat = Temperatures::new(Tau::Tuned);
        let mut excess = [0.0; 32];
        for interval in 0..intervals {
            for each in &mut excess {
                *each = keeps * *each + (1.0f64 - keeps * keeps).sqrt() * (random.f64() - 0.5) * 100.0;
            }
            let accesses = |(id, excess): (u16, &f64)| (TargetId(id), (level(interval) * (1e3 + excess)) as u64);
            heat.handle_interval(&(0..).zip(&excess).map(accesses).collect::<Vec<_>>());
        }
        heat.tau()
    }

    #[test]
    fn tau_follows_how_long_targets_stay_busy() {
        for keeps in [0.0, 0.3, 0.6, 0.9] {
            let tau = tuned(keeps, 200, |_| 1.0);
            assert!((tau - keeps).abs() < 0.12, "{keeps}: {tau}");
        }
        // The same servers are busy for ever.
        let mut film = Temperatures::new(Tau::Tuned);
        (0..20).for_each(|_| film.handle_interval(&[(A, 100), (TargetId(2), 300)]));
        assert_eq!(film.tau(), MAX_TAU);
        // More or less to do for all of them says nothing of that.
        let tau = tuned(0.0, 200, |interval| 1.0 + (interval / 10 % 5) as f64);
        assert!(tau < 0.2, "{tau}");
    }

    #[test]
    fn tau_stays_where_nothing_is_to_be_learnt() {
        let mut heat = Temperatures::new(Tau::Tuned);
        for interval in 0..20 {
            heat.handle_interval(&[(A, interval), (TargetId(2), interval)]);
            heat.handle_interval(&[]);
        }
        assert_eq!(heat.tau(), FIRST_TAU);
        let mut one = Temperatures::new(Tau::Tuned);
        (0..20).for_each(|interval| one.handle_interval(&[(A, interval * interval)]));
        assert_eq!(one.tau(), FIRST_TAU);
    }
}

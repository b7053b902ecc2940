//! How well a target suits a new chunk: the score of paper 003 (ECFS), section IV.B, equation 5,
//! `S = (a·C + b·F) / (c·N + d·T + 1)`.
//!
//! The paper does not say in which units its inputs are. It gives a and b the same weight, and c
//! and d the same weight, and it adds 1 since N and T are 0 in a system that has just started. So
//! all four are read as shares from 0 to 1 here: C is the idle part of the processors, F the free
//! part of the space, N the used part of the network. T alone has no highest value: a temperature
//! `t` becomes `t / (t + mean)`, which is 0 for a cold target, 1/2 for a usual one and near 1 for a
//! hot one, so that one very hot target does not make all others look the same.

use super::candidate::{Load, TargetCandidate};
use serde::{Deserialize, Serialize};

/// The weights of what goes into a score.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Coefficients {
    /// Of the idle part of the processors.
    pub a: f64,
    /// Of the free part of the space.
    pub b: f64,
    /// Of the used part of the network.
    pub c: f64,
    /// Of the temperature.
    pub d: f64,
}

impl Default for Coefficients {
    /// As in the paper: a and b are the same, 50 % each. So are c and d, for which the paper gives
    /// no number.
    fn default() -> Self {
        Self { a: 0.5, b: 0.5, c: 0.5, d: 0.5 }
    }
}

/// What goes into a score, each from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inputs {
    /// C: the idle part of the processors.
    pub idle: f64,
    /// F: the free part of the space.
    pub free: f64,
    /// N: the used part of the network.
    pub network: f64,
    /// T: 1/2 for the mean temperature.
    pub temperature: f64,
}

impl Coefficients {
    /// Equation 5.
    pub fn score(&self, inputs: &Inputs) -> f64 {
        (self.a * inputs.idle + self.b * inputs.free) / (self.c * inputs.network + self.d * inputs.temperature + 1.0)
    }
}

/// A score, and what it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parts {
    /// What went into it.
    pub inputs: Inputs,
    /// The score by equation 5.
    pub score: f64,
    /// What keeps space even: above 1 where less is used than elsewhere.
    pub evenness: f64,
    /// The share of the chunks that follows, beside that of an equal target with the mean score.
    pub share: f64,
    /// How long the next access would take, in seconds; 0 where no access was measured.
    pub delay: f64,
    /// How many chunks it has beyond that share.
    pub ahead: f64,
}

/// The mean of the loads that are known: what is assumed of a target of which nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Typical {
    /// The idle part of the processors.
    pub idle: f64,
    /// The used part of the network.
    pub network: f64,
    /// The temperature.
    pub temperature: f64,
    /// Accesses at a target.
    pub queue: f64,
    /// How long a write takes alone, in seconds: the median of the targets where that is known.
    pub service: f64,
    /// How long servers take to answer, in seconds: the median.
    pub answer: f64,
}

impl Typical {
    /// Of all loads that were ever reported. Without any, everything is idle and cold.
    pub fn of(loads: impl Iterator<Item = Load>) -> Self {
        let (mut count, mut sum) = (0.0, Self::default());
        let (mut services, mut answers) = (Vec::new(), Vec::new());
        for load in loads.filter(|load| load.age < f64::INFINITY) {
            count += 1.0;
            sum.idle += share(load.idle);
            sum.network += share(load.network);
            sum.temperature += amount(load.temperature);
            sum.queue += amount(load.queue);
            services.push(amount(load.service));
            answers.push(amount(load.answer));
        }
        if count == 0.0 {
            return Self { idle: 1.0, ..Self::default() };
        }
        Self {
            idle: sum.idle / count,
            network: sum.network / count,
            temperature: sum.temperature / count,
            queue: sum.queue / count,
            service: median(services.into_iter()),
            answer: median(answers.into_iter()),
        }
    }

    /// How long the next access to a target takes; None where no access was measured. Of what is
    /// not known, and the more the older a report is, what is typical.
    pub fn wait(&self, load: Option<Load>) -> Option<Wait> {
        let load = load.unwrap_or(Load { age: f64::INFINITY, ..Load::default() });
        let weight = weight(load.age);
        let blend = |known: f64, typical: f64| typical + weight * (amount(known) - typical);
        let known = Some(amount(load.service)).filter(|service| *service > 0.0).unwrap_or(self.service);
        // Where accesses are fast, one that is slow still is.
        let most = self.service.max(LEAST_ANSWER) * MOST_SPEED;
        let each = blend(known, self.service).clamp(self.service / MOST_SPEED, most);
        let base = each * (blend(load.queue, self.queue) + 1.0) + blend(load.answer, self.answer).max(LEAST_ANSWER);
        let usual = self.service * (self.queue + 1.0) + self.answer.max(LEAST_ANSWER);
        let each = each.max(usual / MOST_PLACED);
        (self.service > 0.0).then_some(Wait { base: base.min(usual * MOST_WAIT), each })
    }

    /// How long an access to a target takes with a usual queue, as a multiple of what it takes
    /// usually. None where no access was measured.
    pub fn slowness(&self, load: Load) -> Option<f64> {
        let usual = |load: Load| Some(self.wait(Some(Load { queue: self.queue, ..load }))?.base);
        let typical = Load { service: self.service, answer: self.answer, age: 0.0, ..load };
        Some(usual(load)? / usual(typical)?)
    }

    /// The inputs of a target's score as reported, without regard to the age of the report: as
    /// the paper has it.
    pub fn reported(&self, target: &TargetCandidate) -> Inputs {
        let load = target.load.map(|load| Load { age: 0.0, ..load });
        self.inputs(load, target.free, target.total)
    }

    /// The inputs of a target's score. A load counts half as much with every
    /// [`STALE_INTERVALS`] of its age, and the rest is what is typical: a target that was hot when
    /// it was last heard of is not shunned for ever, one that was cold is not flooded.
    pub fn inputs(&self, load: Option<Load>, free: u64, total: u64) -> Inputs {
        let load = load.unwrap_or(Load { age: f64::INFINITY, ..Load::default() });
        let weight = weight(load.age);
        let blend = |known: f64, typical: f64| if weight == 1.0 { known } else { typical + weight * (known - typical) };
        let heat = blend(amount(load.temperature), self.temperature);
        Inputs {
            idle: blend(share(load.idle), self.idle),
            free: free_share(free, total),
            network: blend(share(load.network), self.network),
            temperature: if heat > 0.0 { heat / (heat + self.temperature) } else { 0.0 },
        }
    }
}

/// The age at which a load counts half, in intervals between reports.
pub const STALE_INTERVALS: f64 = 4.0;

/// A target counts as this many times as fast as the usual one at most, or as slow.
const MOST_SPEED: f64 = 4.0;
/// A wait counts as this many usual ones at most: nothing is heard of a target that gets no chunk.
const MOST_WAIT: f64 = 8.0;

/// Servers that answer within this time, in seconds, are equally fast.
pub(super) const LEAST_ANSWER: f64 = 0.01;
/// This many chunks, placed since a report, make a usual wait at least twice as long.
const MOST_PLACED: f64 = 16.0;

/// The median of those that are above 0; 0 without any. One that takes for ever, or no time, does
/// not change what is usual.
pub(super) fn median(of: impl Iterator<Item = f64>) -> f64 {
    let mut known: Vec<f64> = of.filter(|value| *value > 0.0).collect();
    if known.is_empty() {
        return 0.0;
    }
    let middle = known.len() / 2;
    *known.select_nth_unstable_by(middle, f64::total_cmp).1
}

/// How long the next access to a target takes, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wait {
    /// Those before it, itself, and the answer of the server.
    pub base: f64,
    /// Each more.
    pub each: f64,
}

impl Wait {
    /// When so many chunks were placed on the target of which no report knows. Each counts as one
    /// access that waits.
    pub fn of(&self, placed: f64) -> f64 {
        self.base + self.each * amount(placed)
    }
}

/// How much a load counts beside what is typical.
fn weight(age: f64) -> f64 {
    if age > 0.0 { (-age / STALE_INTERVALS).exp2() } else { 1.0 }
}

/// The part of a target that is free: all of it, where its capacity is not known.
pub fn free_share(free: u64, total: u64) -> f64 {
    if total == 0 { 1.0 } else { (free as f64 / total as f64).min(1.0) }
}

/// No temperature is higher, so that sums of them are numbers.
const MAX_AMOUNT: f64 = 1e30;

/// Servers are not trusted to report numbers.
fn share(value: f64) -> f64 {
    if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) }
}

fn amount(value: f64) -> f64 {
    if value.is_nan() { 0.0 } else { value.clamp(0.0, MAX_AMOUNT) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(idle: f64, network: f64, temperature: f64) -> Load {
        Load { idle, network, temperature, ..Load::default() }
    }

    #[test]
    fn the_score_is_equation_five() {
        let inputs = Inputs { idle: 0.6, free: 0.8, network: 0.5, temperature: 0.3 };
        let close = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(close(Coefficients::default().score(&inputs), 0.7 / 1.4));
        let other = Coefficients { a: 1.0, b: 2.0, c: 4.0, d: 10.0 };
        assert!(close(other.score(&inputs), 2.2 / 6.0));
        // A system that has just started: idle, empty, no traffic, cold.
        let new = Inputs { idle: 1.0, free: 1.0, network: 0.0, temperature: 0.0 };
        assert_eq!(Coefficients::default().score(&new), 1.0);
    }

    #[test]
    fn better_is_idle_empty_quiet_and_cold() {
        let typical = Typical { idle: 0.5, network: 0.5, temperature: 100.0, ..Typical::default() };
        let score = |load: Load, free| Coefficients::default().score(&typical.inputs(Some(load), free, 100));
        let usual = score(load(0.5, 0.5, 100.0), 50);
        assert!(score(load(0.6, 0.5, 100.0), 50) > usual && score(load(0.5, 0.4, 100.0), 50) > usual);
        assert!(score(load(0.5, 0.5, 90.0), 50) > usual && score(load(0.5, 0.5, 100.0), 51) > usual);
    }

    #[test]
    fn temperature_is_a_share() {
        let typical = Typical { idle: 0.5, network: 0.5, temperature: 8.0, ..Typical::default() };
        let heat = |temperature| typical.inputs(Some(load(0.0, 0.0, temperature)), 1, 1).temperature;
        assert_eq!([0.0, 8.0, 24.0].map(heat), [0.0, 0.5, 0.75]);
        let cold = Typical { temperature: 0.0, ..typical };
        let heat = |temperature| cold.inputs(Some(load(1.0, 0.0, temperature)), 1, 1).temperature;
        assert_eq!([0.0, 1.0].map(heat), [0.0, 1.0], "where all is cold, any access makes hot");
    }

    #[test]
    fn old_loads_count_less_and_no_load_is_typical() {
        let typical = Typical { idle: 0.5, network: 0.25, temperature: 10.0, ..Typical::default() };
        let at = |age| typical.inputs(Some(Load { age, ..load(1.0, 0.75, 0.0) }), 1, 2);
        assert_eq!((at(0.0).idle, at(0.0).network, at(0.0).temperature), (1.0, 0.75, 0.0));
        assert_eq!((at(STALE_INTERVALS).idle, at(2.0 * STALE_INTERVALS).idle), (0.75, 0.625));
        let unknown = typical.inputs(None, 1, 2);
        assert_eq!(unknown, Inputs { idle: 0.5, free: 0.5, network: 0.25, temperature: 0.5 });
        assert_eq!(at(f64::INFINITY), unknown);
    }

    /// Seconds: ten accesses wait that take 20 ms each, and the server answers in 15 ms.
    #[test]
    fn a_wait_is_that_of_all_who_are_before() {
        let typical = Typical { queue: 1.0, service: 0.02, answer: 0.015, ..Typical::default() };
        let busy = Load { queue: 10.0, service: 0.02, answer: 0.015, ..Load::default() };
        let wait = |load: Load| typical.wait(Some(load)).unwrap();
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        close(wait(busy).of(0.0), 0.235);
        close(wait(busy).of(3.0), 0.295);
        close(typical.wait(None).unwrap().of(0.0), 0.055);
        close(wait(Load { age: STALE_INTERVALS, ..busy }).of(0.0), (0.235 + 0.055) / 2.0);
        // What was never measured takes as long as usual; nobody is as fast or as slow as that.
        close(wait(Load { service: 0.0, ..busy }).each, 0.02);
        close(wait(Load { service: 1e-9, ..busy }).each, 0.005);
        close(wait(Load { service: 1e9, ..busy }).each, 0.08);
        close(wait(Load { queue: 1e9, ..busy }).of(0.0), 8.0 * 0.055);
        // Answers of less than 10 ms are all the same.
        close(wait(Load { answer: 0.001, ..busy }).of(0.0), 0.23);
        // Among fast ones, one that takes a hundred times as long is slow.
        let fast = Typical { queue: 1.0, service: 0.0005, answer: 0.001, ..Typical::default() };
        assert!(fast.slowness(Load { service: 0.05, answer: 0.001, ..busy }).unwrap() > 7.0);
        assert_eq!(Typical { service: 0.0, ..typical }.wait(Some(busy)), None);
        close(typical.slowness(Load { service: 0.04, ..busy }).unwrap(), 0.095 / 0.055);
    }

    #[test]
    fn one_that_takes_for_ever_or_no_time_does_not_change_what_is_usual() {
        let of = |service: f64| Load { service, ..Load::default() };
        let odd = [1e-9, 0.01, 0.01, 0.01, 1e9, 0.0, f64::NAN].map(of);
        assert_eq!(Typical::of(odd.into_iter()).service, 0.01);
    }

    #[test]
    fn whatever_is_reported_gives_a_score() {
        let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0, 2.0, f64::MAX];
        for (&x, &y) in odd.iter().flat_map(|x| odd.iter().map(move |y| (x, y))) {
            let strange = Load {
                idle: x,
                network: y,
                temperature: x,
                queue: y,
                service: x,
                answer: y,
                ahead: y,
                lead: x,
                placed: x,
                age: x,
            };
            let typical = Typical::of([strange, load(0.5, 0.5, y)].into_iter());
            let score = Coefficients::default().score(&typical.inputs(Some(strange), 3, 0));
            assert!((0.0..=1.0).contains(&score), "{x} {y}: {score}");
            let wait = typical.wait(Some(strange)).map_or(0.0, |wait| wait.of(strange.placed));
            assert!(wait >= 0.0 && wait.is_finite(), "{x} {y}: {wait}");
        }
        assert_eq!(Typical::of(std::iter::empty()), Typical { idle: 1.0, ..Typical::default() });
    }
}

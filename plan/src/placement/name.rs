//! The policies by name, and how a volume is told which it has.

use super::score::Coefficients;
use super::temperature::{MAX_TAU, Tau};
use super::{Adaptive, Crush, Policy, Prime, Random, RoundRobin, Tuning};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The policies by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// By load, temperature and space.
    Adaptive,
    /// By chance, those with more space more often.
    #[default]
    Random,
    /// One after the other, whatever space they have.
    RoundRobin,
    /// By chance, those with more capacity more often (straw2 of CRUSH).
    Crush,
    /// The best of the best sub-network (paper 003, algorithm 1).
    Prime,
}

impl PolicyName {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Adaptive, Self::Random, Self::RoundRobin, Self::Crush, Self::Prime];

    const fn text(self) -> &'static str {
        match self {
            Self::Adaptive => "adaptive",
            Self::Random => "random",
            Self::RoundRobin => "round-robin",
            Self::Crush => "crush",
            Self::Prime => "prime",
        }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl FromStr for PolicyName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|name| name.text() == text);
        found.ok_or_else(|| "the policies are adaptive, random, round-robin, crush and prime".into())
    }
}

/// How a volume places its chunk sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// By which policy.
    pub policy: PolicyName,
    /// How many names of a target's domain count; all without one.
    pub domain_level: Option<u8>,
    /// What the volume says of its scores; without it, what all have. A program that does not know
    /// of it takes that, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scoring: Option<Scoring>,
}

/// What a volume can say of its scores.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scoring {
    /// The weights of what goes into them.
    #[serde(flatten)]
    pub coefficients: Coefficients,
    /// What stays of a temperature.
    pub tau: Tau,
    /// How much even space counts beside them, as in [`Tuning`].
    #[serde(default = "usual_evenness")]
    pub evenness: f64,
}

fn usual_evenness() -> f64 {
    Tuning::default().evenness
}

impl Default for Scoring {
    fn default() -> Self {
        Self { coefficients: Coefficients::default(), tau: Tau::default(), evenness: usual_evenness() }
    }
}

impl Scoring {
    /// Whether all of it means something: no weight is below 0, or not a number, tau is what it can
    /// be, and a score can be other than 0.
    pub fn is_sound(&self) -> bool {
        let Coefficients { a, b, c, d } = self.coefficients;
        let tau = match self.tau {
            Tau::Fixed(tau) => tau,
            Tau::Tuned => 0.0,
        };
        let is_weight = |weight: f64| (0.0..=1000.0).contains(&weight);
        [a, b, c, d, self.evenness].into_iter().all(is_weight) && (0.0..=MAX_TAU).contains(&tau) && a + b > 0.0
    }
}

impl Placement {
    /// The policy of a volume whose chunks grow to this length. Volumes with another `seed` get
    /// other random orders.
    pub fn policy(&self, seed: u64, chunk_bytes: u64) -> Box<dyn Policy> {
        match self.policy {
            PolicyName::Adaptive => Box::new(Adaptive { seed, tuning: self.tuning(chunk_bytes) }),
            PolicyName::Random => Box::new(Random { seed }),
            PolicyName::RoundRobin => Box::new(RoundRobin),
            PolicyName::Crush => Box::new(Crush { seed }),
            PolicyName::Prime => Box::new(Prime { coefficients: self.scoring().coefficients }),
        }
    }

    /// What its scores are made of.
    pub fn scoring(&self) -> Scoring {
        self.scoring.unwrap_or_default()
    }

    /// All of what the adaptive policy takes.
    pub fn tuning(&self, chunk_bytes: u64) -> Tuning {
        let Scoring { coefficients, evenness, .. } = self.scoring();
        Tuning { coefficients, evenness, chunk_bytes, ..Tuning::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_shown() {
        for name in PolicyName::ALL {
            assert_eq!(name.to_string().parse(), Ok(name));
            assert!("best".parse::<PolicyName>().unwrap_err().contains(name.text()));
        }
        assert_eq!(PolicyName::default(), PolicyName::Random);
    }

    #[test]
    fn a_scoring_that_means_nothing_is_not_sound() {
        let with = |change: fn(&mut Scoring)| {
            let mut scoring = Scoring::default();
            change(&mut scoring);
            scoring.is_sound()
        };
        assert!(with(|_| ()) && with(|s| s.tau = Tau::Fixed(0.5)) && with(|s| s.coefficients.d = 0.0));
        assert!(!with(|s| s.coefficients.a = -1.0) && !with(|s| s.coefficients.c = f64::NAN));
        assert!(!with(|s| s.tau = Tau::Fixed(1.0)) && !with(|s| s.evenness = f64::INFINITY));
        assert!(!with(|s| (s.coefficients.a, s.coefficients.b) = (0.0, 0.0)));
    }
}

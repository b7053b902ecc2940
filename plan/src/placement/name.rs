//! The policies by name, and how a volume is told which it has.

use super::{Adaptive, Crush, Policy, Prime, Random, RoundRobin};
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// By which policy.
    pub policy: PolicyName,
    /// How many names of a target's domain count; all without one.
    pub domain_level: Option<u8>,
}

impl Placement {
    /// The policy. Volumes with another `seed` get other random orders.
    pub fn policy(&self, seed: u64) -> Box<dyn Policy> {
        match self.policy {
            PolicyName::Adaptive => Box::new(Adaptive { seed, ..Adaptive::default() }),
            PolicyName::Random => Box::new(Random { seed }),
            PolicyName::RoundRobin => Box::new(RoundRobin),
            PolicyName::Crush => Box::new(Crush { seed }),
            PolicyName::Prime => Box::new(Prime::default()),
        }
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
}

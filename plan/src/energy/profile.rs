//! What calibration learns of a machine, in the form in which it is kept in a file.

use super::{Basis, Constants, Scope};
use serde::{Deserialize, Serialize};

/// A machine's powers and rates, and where they come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// The machine, in words.
    pub machine: String,
    /// When it was calibrated, in universal time; empty when it was not.
    pub date: String,
    /// What read the powers.
    pub source: String,
    /// Whether the powers were measured. Rates always are, where there is a date.
    pub basis: Basis,
    /// What the powers cover.
    pub scope: Scope,
    /// The powers.
    pub constants: Constants,
    /// Bytes that one stream reads and writes again in a second, without coding.
    pub read_write_bytes_per_second: f64,
    /// How fast one core codes.
    pub coding: Vec<Coding>,
}

/// How fast one core codes with one code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Coding {
    /// The code as it is written, `rs:160+80`.
    pub code: String,
    /// Data blocks.
    pub k: usize,
    /// Parity blocks.
    pub m: usize,
    /// Bytes of user data in a second.
    pub bytes_per_second: f64,
}

impl Profile {
    /// What is wrong with it: a file that somebody edited may say anything.
    ///
    /// # Errors
    /// One line that names the figure.
    pub fn check(&self) -> Result<(), String> {
        let powers = [
            ("idle_watts", self.constants.idle_watts),
            ("read_write_watts", self.constants.read_write_watts),
            ("coding_watts", self.constants.coding_watts),
        ];
        for (name, watts) in powers {
            if !(0.0..=1e7).contains(&watts) {
                return Err(format!("{name} is {watts}: it must be from 0 to 10000000"));
            }
        }
        let rate = self.read_write_bytes_per_second;
        let rates = self.coding.iter().map(|coding| (coding.code.as_str(), coding.bytes_per_second));
        for (name, rate) in std::iter::once(("read_write_bytes_per_second", rate)).chain(rates) {
            if !(rate.is_finite() && rate > 0.0) {
                return Err(format!("the rate of {name} is {rate}: it must be more than 0"));
            }
        }
        match self.coding.iter().find(|coding| coding.k == 0) {
            Some(coding) => Err(format!("{} has no data blocks", coding.code)),
            None => Ok(()),
        }
    }

    /// What is known of a code.
    pub fn coding(&self, code: &str) -> Option<&Coding> {
        self.coding.iter().find(|coding| coding.code == code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_with_nonsense_is_refused() {
        let good = Profile {
            machine: "a test".into(),
            date: String::new(),
            source: "assumed".into(),
            basis: Basis::Modelled,
            scope: Scope::Node,
            constants: Constants { idle_watts: 60.0, read_write_watts: 5.0, coding_watts: 6.0 },
            read_write_bytes_per_second: 5e8,
            coding: vec![Coding { code: "rs:4+2".into(), k: 4, m: 2, bytes_per_second: 1e10 }],
        };
        assert_eq!(good.check(), Ok(()));
        assert!(good.coding("rs:4+2").is_some() && good.coding("rs:8+2").is_none());
        let broken: [fn(&mut Profile); 5] = [
            |p| p.constants.idle_watts = -1.0,
            |p| p.constants.coding_watts = f64::NAN,
            |p| p.read_write_bytes_per_second = 0.0,
            |p| p.coding[0].bytes_per_second = f64::INFINITY,
            |p| p.coding[0].k = 0,
        ];
        for damage in broken {
            let mut profile = good.clone();
            damage(&mut profile);
            assert!(profile.check().is_err(), "{profile:?}");
        }
    }
}

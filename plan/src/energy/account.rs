//! One source's account of a job's energy: how much, in which phase, for what, and how far that can
//! be believed.

use serde::{Deserialize, Serialize};

/// Where a figure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// An instrument read it.
    Measured,
    /// It was computed from times and constants.
    Modelled,
}

impl Basis {
    /// As it is shown beside each figure.
    pub fn word(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Modelled => "modelled",
        }
    }
}

/// What a figure covers. Figures of different scopes are not comparable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The whole machine, at its plug or its power supply.
    Node,
    /// Processor packages, with their memory where that is counted.
    Package,
    /// Graphics processors.
    Gpu,
}

impl Scope {
    /// In words.
    pub fn word(self) -> &'static str {
        match self {
            Self::Node => "whole machine",
            Self::Package => "processor packages",
            Self::Gpu => "graphics processors",
        }
    }
}

/// Joules of one phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseEnergy {
    /// The phase's name.
    pub phase: String,
    /// What it took, idle power included.
    pub joules: f64,
}

/// Joules by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// What the machine would have used doing nothing for as long.
    pub idle_joules: f64,
    /// Reading and writing.
    pub io_joules: f64,
    /// Coding.
    pub coding_joules: f64,
}

impl Split {
    /// All together.
    pub fn joules(&self) -> f64 {
        self.idle_joules + self.io_joules + self.coding_joules
    }

    /// Shares of idling, input and output, and coding, of 1; zeros of nothing.
    pub fn shares(&self) -> [f64; 3] {
        let all = self.joules();
        [self.idle_joules, self.io_joules, self.coding_joules].map(|part| if all > 0.0 { part / all } else { 0.0 })
    }
}

/// What one source says of a whole job. Each source has its own account; they are never added up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Account {
    /// The instrument, or the model, by its short name.
    pub source: String,
    /// What exactly it read, or which constants it took.
    pub detail: String,
    /// Whether it was measured.
    pub basis: Basis,
    /// What it covers.
    pub scope: Scope,
    /// How far off it may be, as a part of the figure; none where nobody can say.
    pub error: Option<f64>,
    /// The whole job.
    pub joules: f64,
    /// By phase, in order.
    pub phases: Vec<PhaseEnergy>,
    /// By cause, where the powers that this needs are known.
    pub split: Option<Split>,
}

impl Account {
    /// Joules for a GiB of user data, as drawn and less what idling would have drawn; none without
    /// data.
    pub fn joules_per_gib(&self, bytes: u64) -> Option<(f64, Option<f64>)> {
        let gib = bytes as f64 / super::GIB;
        (bytes > 0).then(|| {
            let above_idle = self.split.map(|split| (self.joules - split.idle_joules).max(0.0) / gib);
            (self.joules / gib, above_idle)
        })
    }

    /// Shares the job's energy out to phases that overlapped, by the processor time of each; by
    /// nothing else, so that a phase that only waits takes none.
    pub fn share_out(&mut self, phases: &[(&str, f64)]) {
        let all: f64 = phases.iter().map(|phase| phase.1).sum();
        if all > 0.0 {
            let part =
                |(name, cpu): &(&str, f64)| PhaseEnergy { phase: (*name).to_owned(), joules: self.joules * cpu / all };
            self.phases = phases.iter().map(part).collect();
        }
    }

    /// Mean power over the job; none of a job without time.
    pub fn watts(&self, wall_seconds: f64) -> Option<f64> {
        (wall_seconds > 0.0).then(|| self.joules / wall_seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gib_has_its_part_and_phases_share() {
        let mut account = Account {
            source: "meter".into(),
            detail: String::new(),
            basis: Basis::Measured,
            scope: Scope::Node,
            error: None,
            joules: 600.0,
            phases: vec![],
            split: Some(Split { idle_joules: 400.0, io_joules: 50.0, coding_joules: 150.0 }),
        };
        assert_eq!(account.joules_per_gib(2 << 30), Some((300.0, Some(100.0))));
        assert_eq!(account.joules_per_gib(0), None);
        assert_eq!((account.watts(10.0), account.watts(0.0)), (Some(60.0), None));
        account.share_out(&[("explore", 1.0), ("encode", 2.0)]);
        assert_eq!(account.phases[1], PhaseEnergy { phase: "encode".into(), joules: 400.0 });
        account.share_out(&[("explore", 0.0)]);
        assert_eq!(account.phases.len(), 2, "nothing to share by");
    }
}

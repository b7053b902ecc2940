//! The model for machines without an instrument: E = t P_idle + (processor seconds) P_core. Code
//! that shows its figures must say that they are modelled, and from which constants.

use plan::energy::{Constants, Profile};

/// Constants of a machine, and their origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The power of the idle machine, in watts.
    pub idle_watts: f64,
    /// What a busy core draws on top of that, in watts.
    pub core_watts: f64,
    /// `assumed`, `given`, or the name of a profile.
    pub from: String,
}

impl Default for Model {
    /// A small server. Its constants are guesses and are labelled as such.
    fn default() -> Self {
        Self { idle_watts: 60.0, core_watts: 6.0, from: "assumed".into() }
    }
}

impl Model {
    /// The model with the constants of a calibrated machine.
    pub fn of(profile: &Profile) -> Self {
        let Constants { idle_watts, coding_watts, .. } = profile.constants;
        Self { idle_watts, core_watts: coding_watts, from: format!("profile of {}", profile.machine) }
    }

    /// The energy in joules of this wall time with this processor time.
    pub fn joules(&self, wall_seconds: f64, cpu_seconds: f64) -> f64 {
        self.idle_watts * wall_seconds + self.core_watts * cpu_seconds
    }

    /// The constants in words.
    pub fn describe(&self) -> String {
        format!("{} W idle and {} W a busy core, {}", self.idle_watts, self.core_watts, self.from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_and_processor_time_both_count() {
        let model = Model { idle_watts: 50.0, core_watts: 5.0, from: "given".into() };
        assert_eq!(model.joules(10.0, 40.0), 700.0);
        assert_eq!(model.describe(), "50 W idle and 5 W a busy core, given");
    }
}

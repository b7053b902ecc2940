//! The model for machines that nobody measures: E = t P_idle + (processor seconds) P_core. Whoever shows its figures shows that
//! they are modelled, and from which constants.

use plan::energy::{Constants, Profile};

/// Constants of a machine, and where they come from.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Its power when it idles.
    pub idle_watts: f64,
    /// What a busy core draws above that.
    pub core_watts: f64,
    /// `assumed`, `given`, or from which profile.
    pub from: String,
}

impl Default for Model {
    /// A small server: its constants are guesses, and called that.
    fn default() -> Self {
        Self { idle_watts: 60.0, core_watts: 6.0, from: "assumed".into() }
    }
}

impl Model {
    /// With a calibrated machine's constants.
    pub fn of(profile: &Profile) -> Self {
        let Constants { idle_watts, coding_watts, .. } = profile.constants;
        Self { idle_watts, core_watts: coding_watts, from: format!("profile of {}", profile.machine) }
    }

    /// Joules of so long with so much processor time.
    pub fn joules(&self, wall_seconds: f64, cpu_seconds: f64) -> f64 {
        self.idle_watts * wall_seconds + self.core_watts * cpu_seconds
    }

    /// Its constants in words.
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

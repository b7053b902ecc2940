//! Energy over time as a source reports it. It gives the energy between any two moments, and its
//! size stays bounded however long the job is.

use super::Reading;

/// The most points that are kept. Above that, every other one is dropped, which loses detail in
/// time but no energy.
const MAX_POINTS: usize = 8192;

/// Before the first and after the last reading, power is assumed constant for at most this many
/// seconds.
const MAX_EXTRAPOLATED_SECONDS: f64 = 15.0;

/// No machine that Weft runs on draws more: a reading above this is garbage.
pub const MAX_WATTS: f64 = 200_000.0;

/// Energy over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// Seconds since 1970 and joules since the first point, both rising.
    points: Vec<(f64, f64)>,
    /// The power at the last point, if the source reported it.
    watts: Option<f64>,
    /// The last value of a counter.
    counter: Option<f64>,
}

impl Curve {
    /// Adds a reading that the source gave at `now`, in seconds since 1970.
    ///
    /// # Errors
    /// If the reading is impossible: a power that no machine has, or a counter that goes backwards.
    pub fn add(&mut self, now: f64, reading: Reading) -> Result<(), String> {
        match reading {
            Reading::Watts(watts) => self.add_watts(now, watts),
            Reading::Joules(joules) => self.add_joules(now, joules),
            Reading::Log(lines) => lines.into_iter().try_for_each(|(at, watts)| self.add_watts(at, watts)),
        }
    }

    /// Between two readings, power is interpolated linearly.
    fn add_watts(&mut self, at: f64, watts: f64) -> Result<(), String> {
        if !(0.0..=MAX_WATTS).contains(&watts) {
            return Err(format!("it reads {watts} W, which cannot be"));
        }
        let (last_at, last) = self.points.last().copied().unwrap_or((at, 0.0));
        if at < last_at || (at == last_at && !self.points.is_empty()) {
            return Ok(()); // A log may say the same second twice.
        }
        let joules = last + (at - last_at) * (self.watts.unwrap_or(watts) + watts) / 2.0;
        self.watts = Some(watts);
        self.push(at, joules);
        Ok(())
    }

    fn add_joules(&mut self, at: f64, joules: f64) -> Result<(), String> {
        let before = self.counter.unwrap_or(joules);
        let (last_at, last) = self.points.last().copied().unwrap_or((at, 0.0));
        let more = joules - before;
        if !(more >= 0.0 && more <= (at - last_at).max(0.0) * MAX_WATTS) {
            return Err(format!(
                "its counter went from {before} J to {joules} J in {:.1} s, which cannot be",
                at - last_at
            ));
        }
        self.counter = Some(joules);
        if at > last_at || self.points.is_empty() {
            self.push(at, last + more);
        }
        Ok(())
    }

    fn push(&mut self, at: f64, joules: f64) {
        if self.points.len() >= MAX_POINTS {
            let last = self.points.len() - 1;
            let mut at = 0..;
            self.points.retain(|_| at.next().is_some_and(|n| n % 2 == 0 || n == last));
        }
        self.points.push((at, joules));
    }

    /// The energy in joules between two moments.
    ///
    /// # Errors
    /// If readings do not cover the time, or if the source did not change or read zero all the
    /// time.
    pub fn between(&self, from: f64, to: f64) -> Result<f64, String> {
        let (Some(first), Some(last)) = (self.points.first(), self.points.last()) else {
            return Err("it gave no reading".into());
        };
        if self.points.len() < 2 {
            return Err("it gave one reading only; that says nothing about a time".into());
        }
        if last.1 <= 0.0 {
            return Err("it read zero or stood still all the time, as the counters of virtual machines do".into());
        }
        let missing = (first.0 - from).max(to - last.0);
        if missing > MAX_EXTRAPOLATED_SECONDS {
            return Err(format!("its readings leave out {missing:.0} s of the job"));
        }
        Ok((self.at(to) - self.at(from)).max(0.0))
    }

    /// The energy in joules at a moment, interpolated linearly between its neighbours.
    fn at(&self, moment: f64) -> f64 {
        let after = self.points.partition_point(|point| point.0 < moment).clamp(1, self.points.len() - 1);
        let ((t0, j0), (t1, j1)) = (self.points[after - 1], self.points[after]);
        j0 + (j1 - j0) * (moment - t0) / (t1 - t0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(readings: &[(f64, Reading)]) -> Result<Curve, String> {
        let mut curve = Curve::default();
        readings.iter().try_for_each(|(at, reading)| curve.add(*at, reading.clone()))?;
        Ok(curve)
    }

    #[test]
    fn energy_is_the_area_under_the_power() {
        let curve =
            of(&[(10.0, Reading::Watts(100.0)), (20.0, Reading::Watts(100.0)), (30.0, Reading::Watts(200.0))]).unwrap();
        assert_eq!(curve.between(10.0, 20.0), Ok(1000.0));
        assert_eq!(curve.between(20.0, 30.0), Ok(1500.0));
        assert_eq!(curve.between(8.0, 20.0), Ok(1200.0), "a little before the first reading");
        assert!(curve.between(10.0, 60.0).unwrap_err().contains("leave out 30 s"));
    }

    #[test]
    fn a_counter_counts() {
        let curve = of(&[
            (0.0, Reading::Joules(5e6)),
            (10.0, Reading::Joules(5e6 + 500.0)),
            (20.0, Reading::Joules(5e6 + 700.0)),
        ]);
        let curve = curve.unwrap();
        assert_eq!(curve.between(0.0, 20.0), Ok(700.0));
        assert_eq!(curve.between(5.0, 15.0), Ok(350.0));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let joules = |readings: &[f64]| {
            of(&Vec::from_iter(readings.iter().enumerate().map(|(t, &j)| (t as f64, Reading::Joules(j)))))
        };
        assert!(joules(&[10.0, 5.0]).is_err(), "back");
        assert!(joules(&[0.0, 1e12]).is_err(), "too much");
        assert!(joules(&[0.0, f64::NAN]).is_err());
        assert!(joules(&[7.0, 7.0, 7.0]).unwrap().between(0.0, 2.0).unwrap_err().contains("stood still"));
        assert!(of(&[(0.0, Reading::Watts(-1.0))]).is_err() && of(&[(0.0, Reading::Watts(f64::INFINITY))]).is_err());
        let zero = of(&[(0.0, Reading::Watts(0.0)), (1.0, Reading::Watts(0.0))]).unwrap();
        assert!(zero.between(0.0, 1.0).unwrap_err().contains("zero"));
        assert!(Curve::default().between(0.0, 1.0).is_err());
        assert!(of(&[(0.0, Reading::Watts(9.0))]).unwrap().between(0.0, 1.0).unwrap_err().contains("one reading"));
    }

    #[test]
    fn a_long_job_keeps_its_energy_in_little_space() {
        let mut curve = Curve::default();
        for second in 0..1_000_000u32 {
            curve.add(f64::from(second), Reading::Watts(50.0)).unwrap();
        }
        assert!(curve.points.len() <= MAX_POINTS);
        assert!((curve.between(0.0, 999_999.0).unwrap() - 49_999_950.0).abs() < 1e-3);
    }
}

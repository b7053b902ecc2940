//! Constants from a measurement, and how well they predict what was not used for them.

use super::StepTimes;
use super::fit::{self, Fit};
use super::measured::{Measurement, Point};
use super::serial;
use super::setting::{Constants, Setting, Way};
use crate::coding::Coding;
use serde::{Deserialize, Serialize};

/// The value of [`Calibration::kind`].
pub const KIND: &str = "weft-write-model";

/// The constants of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// [`KIND`].
    pub kind: String,
    /// When it was measured, in words.
    pub date: String,
    /// Where, in words.
    pub machine: String,
    /// One for each way and side that codes.
    pub groups: Vec<Group>,
}

/// The constants of one way and one side that codes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Where records go.
    pub way: Way,
    /// Who codes.
    pub coding: Coding,
    /// CT, MT, DT, MP, PC, DD, SP, each over its own bytes, see [`Constants`].
    pub fits: [Fit; 7],
}

impl Group {
    /// The constants alone.
    pub fn constants(&self) -> Constants {
        let [client, metadata, transfer, master, parity, distribution, slave] = self.fits.map(|fit| fit.line);
        Constants { client, metadata, transfer, master, parity, distribution, slave }
    }
}

/// What each step's line is over, in the order of the steps.
fn sizes(setting: &Setting) -> [f64; 7] {
    let record = setting.record();
    let parity = record * f64::from(setting.m);
    [record, record, record, record, parity, setting.distributed_bytes(), setting.slave_bytes()]
}

/// Fits the constants of a measurement.
///
/// # Errors
/// When the measurement cannot be used, or has no points.
pub fn calibrate(measurement: &Measurement) -> Result<Calibration, String> {
    measurement.check()?;
    if measurement.points.is_empty() {
        return Err("nothing was measured".into());
    }
    let mut groups: Vec<Group> = Vec::new();
    for point in &measurement.points {
        let (way, coding) = (point.way, point.coding);
        if groups.iter().any(|group| group.way == way && group.coding == coding) {
            continue;
        }
        let own = measurement.points.iter().filter(|other| other.way == way && other.coding == coding);
        let fits = fits(measurement, &own.collect::<Vec<_>>())?;
        groups.push(Group { way, coding, fits });
    }
    let (date, machine) = (measurement.date.clone(), measurement.machine.clone());
    Ok(Calibration { kind: KIND.into(), date, machine, groups })
}

fn fits(measurement: &Measurement, points: &[&Point]) -> Result<[Fit; 7], String> {
    let mut all: [Vec<(f64, f64)>; 7] = Default::default();
    for point in points {
        let setting = point.setting(measurement)?;
        // What the wire took is no constant of the machine.
        let wire = serial::steps(&Constants::default(), &setting).as_array();
        let steps = point.steps().as_array();
        for (step, size) in sizes(&setting).into_iter().enumerate() {
            all[step].push((size, (steps[step] - wire[step]).max(0.0)));
        }
    }
    Ok(all.map(|points| fit::line(&points)))
}

impl Calibration {
    /// # Errors
    /// When it is no calibration, or has a number that cannot be.
    pub fn check(&self) -> Result<(), String> {
        if self.kind != KIND {
            return Err(format!("it is {:?}, not {KIND:?}", self.kind));
        }
        let lines = self.groups.iter().flat_map(|group| group.fits.iter().map(|fit| fit.line));
        match lines.into_iter().all(|line| line.fixed.is_finite() && line.per_byte.is_finite()) {
            true => Ok(()),
            false => Err("a constant is a finite number".into()),
        }
    }

    /// The constants of a way and a side that codes. Records in the metadata are not coded, so
    /// those of either side do.
    pub fn constants(&self, way: Way, coding: Coding) -> Option<Constants> {
        let fits = |group: &&Group| group.way == way && group.coding == coding;
        let any = |group: &&Group| group.way == way && way == Way::Inline;
        self.groups.iter().find(fits).or_else(|| self.groups.iter().find(any)).map(Group::constants)
    }
}

/// A point that was predicted, and what was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Checked {
    /// The number of the point in the measurement.
    pub point: usize,
    /// What the constants say.
    pub predicted: StepTimes,
    /// The steps that were measured.
    pub measured: StepTimes,
    /// What the program waited for a record.
    pub wall: f64,
}

impl Checked {
    /// The error of the write time, as a part of what the program waited: 0.1 is 10 % too much.
    pub fn error(&self) -> f64 {
        if self.wall > 0.0 { self.predicted.total() / self.wall - 1.0 } else { 0.0 }
    }
}

/// Predicts each point of a measurement for which there are constants.
///
/// # Errors
/// When the measurement cannot be used.
pub fn check(calibration: &Calibration, measurement: &Measurement) -> Result<Vec<Checked>, String> {
    measurement.check()?;
    let mut all = Vec::new();
    for (number, point) in measurement.points.iter().enumerate() {
        let Some(constants) = calibration.constants(point.way, point.coding) else { continue };
        let predicted = serial::steps(&constants, &point.setting(measurement)?);
        all.push(Checked { point: number, predicted, measured: point.steps(), wall: point.wall() });
    }
    Ok(all)
}

/// Leaves each point out in turn, fits the others, and predicts it. Points without two others of
/// their way and side are not predicted: a line needs two.
///
/// # Errors
/// When the measurement cannot be used.
pub fn check_left_out(measurement: &Measurement) -> Result<Vec<Checked>, String> {
    measurement.check()?;
    let mut all = Vec::new();
    for (number, point) in measurement.points.iter().enumerate() {
        let alike = |other: &Point| other.way == point.way && other.coding == point.coding;
        let others = measurement.points.iter().enumerate().filter(|(at, other)| *at != number && alike(other));
        let mut rest = measurement.clone();
        rest.points = others.map(|(_, other)| other.clone()).collect();
        if rest.points.len() < 2 {
            continue;
        }
        let calibration = calibrate(&rest)?;
        let Some(constants) = calibration.constants(point.way, point.coding) else { continue };
        let predicted = serial::steps(&constants, &point.setting(measurement)?);
        all.push(Checked { point: number, predicted, measured: point.steps(), wall: point.wall() });
    }
    Ok(all)
}

/// The median and the greatest of the errors, without their signs. None without any.
pub fn errors(all: &[Checked]) -> Option<(f64, f64)> {
    let mut errors: Vec<f64> = all.iter().map(|checked| checked.error().abs()).collect();
    errors.sort_by(f64::total_cmp);
    let middle = errors.len() / 2;
    let median = match errors.len() % 2 {
        0 => (errors.get(middle.checked_sub(1)?)? + errors[middle]) / 2.0,
        _ => errors[middle],
    };
    errors.last().map(|&worst| (median, worst))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::measured::tests::{measurement, point, round};
    use crate::cost::{Line, Link};

    fn line(fixed: f64, per_byte: f64) -> Line {
        Line { fixed, per_byte }
    }

    fn truth() -> Constants {
        Constants {
            client: line(2e-5, 1e-10),
            metadata: line(3e-5, 0.0),
            transfer: line(4e-5, 1e-9),
            master: line(5e-6, 2e-10),
            parity: line(1e-6, 3e-10),
            distribution: line(6e-5, 5e-10),
            slave: line(1e-4, 4e-9),
        }
    }

    /// A measurement in which everything is as the constants say.
    fn ideal(link: Link) -> Measurement {
        let mut all = measurement(Vec::new());
        all.link = link;
        for coding in [Coding::Client, Coding::Server] {
            for (k, m) in [(4, 2), (2, 1)] {
                for record in [4096, 16_384, 65_536, 131_072, 1 << 20] {
                    let way = if record <= 32_768 { Way::Inline } else { Way::Stripe };
                    let code = format!("rs:{k}+{m}");
                    let mut new = Point { k, m, coding, code, ..point(record, way, vec![round(1.0, [0.0; 7])]) };
                    let steps = serial::steps(&truth(), &new.setting(&all).unwrap());
                    new.rounds = vec![round(10.0 * steps.total(), steps.as_array().map(|time| 10.0 * time))];
                    all.points.push(new);
                }
            }
        }
        all
    }

    #[test]
    fn the_constants_come_back() {
        for link in [Link::default(), Link::of_bits(1e10, 1e-4)] {
            let calibration = calibrate(&ideal(link)).unwrap();
            assert_eq!(calibration.groups.len(), 4);
            assert_eq!(calibration.check(), Ok(()));
            let found = calibration.constants(Way::Stripe, Coding::Server).unwrap();
            for (found, truth) in [
                (found.client, truth().client),
                (found.metadata, truth().metadata),
                (found.transfer, truth().transfer),
                (found.master, truth().master),
                (found.parity, truth().parity),
                (found.distribution, truth().distribution),
                (found.slave, truth().slave),
            ] {
                assert!((found.fixed - truth.fixed).abs() < 1e-9, "{found:?} {truth:?}");
                assert!((found.per_byte - truth.per_byte).abs() < 1e-14, "{found:?} {truth:?}");
            }
            assert_eq!(calibration.constants(Way::Stripe, Coding::Client).unwrap().transfer, Line::default());
        }
    }

    /// Constants of one network predict another one, and points that were left out.
    #[test]
    fn other_networks_and_points_are_predicted() {
        let slow = ideal(Link::of_bits(1e9, 5e-4));
        let calibration = calibrate(&ideal(Link::default())).unwrap();
        for all in [check(&calibration, &slow).unwrap(), check_left_out(&slow).unwrap()] {
            assert_eq!(all.len(), slow.points.len());
            let (median, worst) = errors(&all).unwrap();
            assert!(median < 1e-6 && worst < 1e-6, "{median} {worst}");
        }
    }

    #[test]
    fn errors_have_a_median_and_a_worst() {
        let one = |predicted: f64| Checked {
            point: 0,
            predicted: StepTimes { client: predicted, ..StepTimes::default() },
            measured: StepTimes::default(),
            wall: 1.0,
        };
        assert_eq!(errors(&[]), None);
        let near = |of: &[Checked], median: f64, worst: f64| {
            let found = errors(of).unwrap();
            assert!((found.0 - median).abs() < 1e-12 && (found.1 - worst).abs() < 1e-12, "{found:?}");
        };
        near(&[one(0.5)], 0.5, 0.5);
        near(&[one(1.1), one(0.7)], 0.2, 0.3);
        near(&[one(1.1), one(0.7), one(1.9)], 0.3, 0.9);
    }

    #[test]
    fn too_little_is_not_predicted() {
        assert!(calibrate(&measurement(vec![])).is_err());
        let few = measurement(vec![
            point(65_536, Way::Stripe, vec![round(1.0, [0.1; 7])]),
            point(131_072, Way::Stripe, vec![round(1.0, [0.1; 7])]),
        ]);
        assert_eq!(check_left_out(&few).unwrap(), []);
        let calibration = calibrate(&few).unwrap();
        assert!(calibration.constants(Way::Inline, Coding::Client).is_none());
        assert!(calibration.constants(Way::Stripe, Coding::Server).is_none());
        assert!(Calibration { kind: "other".into(), ..calibration }.check().is_err());
    }
}

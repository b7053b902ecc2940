//! Constants from a measurement, and how well they predict what was not used for them.

use super::StepTimes;
use super::fit::{self, Expected, Fit, Seen};
use super::measured::{Measurement, Point};
use super::serial;
use super::setting::{Constants, Setting, Way};
use crate::coding::Coding;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The value of [`Calibration::kind`].
pub const KIND: &str = "weft-write-model-2";

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

/// The constants of one path: a way, a side that codes, with servers or without.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Where records go.
    pub way: Way,
    /// Who codes.
    pub coding: Coding,
    /// Whether it is of volumes that are open in the process of the mount.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub embedded: bool,
    /// CT, MT, DT, MP, PC, DD, SP, each over its own bytes, see [`Constants`].
    pub fits: [Fit; 7],
    /// See [`Constants::connection`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<f64>,
    /// PC of each family of codes, where several were measured.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub families: BTreeMap<String, Fit>,
}

impl Group {
    /// The constants alone, for a code.
    pub fn constants(&self, code: &str) -> Constants {
        let [client, metadata, transfer, master, mut parity, distribution, slave] = self.fits.map(|fit| fit.line);
        if let Some(own) = self.families.get(family(code)) {
            parity = own.line;
        }
        Constants { client, metadata, transfer, master, parity, distribution, slave, connection: self.connection }
    }
}

/// The family of a code: `rs` of `rs:4+2`.
fn family(code: &str) -> &str {
    code.split(':').next().unwrap_or(code)
}

/// What each step's line is over, in the order of the steps.
fn sizes(setting: &Setting) -> [f64; 7] {
    let record = setting.record();
    let parity = record * f64::from(setting.m);
    [record, record, record, record, parity, setting.distributed_bytes(), setting.slave_bytes()]
}

/// Points of one path have the same constants.
fn path(point: &Point) -> (Way, Coding, bool) {
    (point.way, point.coding, point.embedded)
}

/// A point, and the measurement that it is of.
pub type Measured<'a> = (&'a Measurement, &'a Point);

/// All points of some measurements.
pub fn points(measurements: &[Measurement]) -> Vec<Measured<'_>> {
    measurements.iter().flat_map(|run| run.points.iter().map(move |point| (run, point))).collect()
}

/// Fits the constants of a measurement.
///
/// # Errors
/// When the measurement cannot be used, or has no points.
pub fn calibrate(measurement: &Measurement) -> Result<Calibration, String> {
    measurement.check()?;
    calibrate_points(&points(std::slice::from_ref(measurement)))
}

/// Fits the constants of points, also of several measurements.
///
/// # Errors
/// When there are none, or it is not known who coded one.
pub fn calibrate_points(all: &[Measured]) -> Result<Calibration, String> {
    let Some((first, _)) = all.first() else { return Err("nothing was measured".into()) };
    let mut groups: Vec<Group> = Vec::new();
    for (_, point) in all {
        let (way, _, embedded) = path(point);
        if groups.iter().any(|group| (group.way, group.coding, group.embedded) == path(point)) {
            continue;
        }
        let alike = |(_, other): &Measured| (other.way, other.embedded) == (way, embedded);
        groups.push(group(path(point), &all.iter().copied().filter(alike).collect::<Vec<_>>())?);
    }
    Ok(Calibration { kind: KIND.into(), date: first.date.clone(), machine: first.machine.clone(), groups })
}

/// The places of steps among all.
const METADATA: usize = 1;
const TRANSFER: usize = 2;
const MASTER: usize = 3;
const PARITY: usize = 4;
const DISTRIBUTION: usize = 5;

/// Fits the constants of a path to points of its way. Those of the other side that codes count
/// where it makes no difference: records in the metadata are not coded, and a client's tasks, the
/// metadata's, coding itself and the slaves' work are the same.
fn group((way, coding, embedded): (Way, Coding, bool), points: &[Measured]) -> Result<Group, String> {
    let connection = connection(points);
    let before = Constants { connection, ..Constants::default() };
    let mut all: [Vec<Seen>; 7] = Default::default();
    let mut parities: BTreeMap<String, Vec<Seen>> = BTreeMap::new();
    for (run, point) in points {
        let setting = point.setting(run)?;
        // What the wire took is no constant of the machine.
        let wire = serial::steps(&before, &setting).as_array();
        let (steps, waiting) = (point.steps().as_array(), serial::waiting(&setting));
        for (step, bytes) in sizes(&setting).into_iter().enumerate() {
            let own = way == Way::Inline || !matches!(step, TRANSFER | MASTER | DISTRIBUTION);
            if own || point.coding == coding {
                let times = if step == DISTRIBUTION { setting.messages() } else { 1.0 };
                let seen = Seen { bytes, times, seconds: steps[step] - wire[step], whole: steps[step], waiting };
                all[step].push(seen);
                if step == PARITY {
                    parities.entry(family(&point.code).into()).or_default().push(seen);
                }
            }
        }
    }
    let families = match parities.len() {
        1 => BTreeMap::new(),
        _ => parities.into_iter().map(|(name, points)| (name, fit::line(&points, None))).collect(),
    };
    let fits = std::array::from_fn(|step| fit::line(&all[step], expected(way, step, connection)));
    Ok(Group { way, coding, embedded, fits, connection, families })
}

/// What one plain connection carried without a limit: the median of the networks.
fn connection(points: &[Measured]) -> Option<f64> {
    let mut all: Vec<f64> = points
        .iter()
        .filter_map(|(run, point)| run.network(point))
        .map(|network| network.plain_bits_per_second / 8.0)
        .filter(|speed| speed.is_finite() && *speed > 0.0)
        .collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

/// What a byte of a step is expected to take: one that is sent takes what it does in a plain
/// connection. It could be twice as much, or nearly nothing.
fn expected(way: Way, step: usize, connection: Option<f64>) -> Option<Expected> {
    let byte = 1.0 / connection?;
    match (way, step) {
        (Way::Inline, METADATA) | (_, TRANSFER | DISTRIBUTION) => Some(Expected { value: byte, within: byte }),
        (Way::Stripe, METADATA) => Some(Expected { value: 0.0, within: byte }),
        _ => None,
    }
}

impl Calibration {
    /// # Errors
    /// When it is no calibration, or has a number that cannot be.
    pub fn check(&self) -> Result<(), String> {
        if self.kind != KIND {
            return Err(format!("it is {:?}, not {KIND:?}; weft model calibrate makes it anew", self.kind));
        }
        let fits = self.groups.iter().flat_map(|group| group.fits.iter().chain(group.families.values()));
        let lines = fits.map(|fit| fit.line);
        match lines.into_iter().all(|line| line.fixed.is_finite() && line.per_byte.is_finite()) {
            true => Ok(()),
            false => Err("a constant is a finite number".into()),
        }
    }

    /// The constants of a path and a code. Records in the metadata are not coded, so those of
    /// either side do.
    pub fn constants(&self, way: Way, coding: Coding, embedded: bool, code: &str) -> Option<Constants> {
        let fits = |group: &&Group| (group.way, group.coding, group.embedded) == (way, coding, embedded);
        let any = |group: &&Group| (group.way, group.embedded) == (way, embedded) && way == Way::Inline;
        let found = self.groups.iter().find(fits).or_else(|| self.groups.iter().find(any));
        found.map(|group| group.constants(code))
    }

    fn predict(&self, (run, point): Measured) -> Result<Option<StepTimes>, String> {
        let constants = self.constants(point.way, point.coding, point.embedded, &point.code);
        let Some(constants) = constants else { return Ok(None) };
        Ok(Some(serial::steps(&constants, &point.setting(run)?)))
    }
}

/// A point that was predicted, and what was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Checked {
    /// The number of the point among all.
    pub point: usize,
    /// What the constants say.
    pub predicted: StepTimes,
    /// The steps that were measured.
    pub measured: StepTimes,
    /// What the program waited for a record.
    pub wall: f64,
    /// Whether the point is between those that the constants come from: they have smaller records
    /// and larger ones, on slower links and on faster ones, or the same. Beyond them, a line is a
    /// guess. None where it is not known what they come from.
    pub interpolated: Option<bool>,
}

impl Checked {
    fn of(point: usize, predicted: StepTimes, measured: &Point) -> Self {
        Self { point, predicted, measured: measured.steps(), wall: measured.wall(), interpolated: None }
    }

    /// The error of the write time, as a part of what the program waited: 0.1 is 10 % too much.
    pub fn error(&self) -> f64 {
        if self.wall > 0.0 { self.predicted.total() / self.wall - 1.0 } else { 0.0 }
    }
}

/// What is left out of the fit together, and predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// Each point alone.
    Point,
    /// All points of a size of records.
    Record,
    /// All points of a code.
    Code,
    /// All points of a network.
    Net,
    /// All points of a number of stores.
    Stores,
}

impl LeftOut {
    /// All, the mildest first.
    pub const ALL: [Self; 5] = [Self::Point, Self::Record, Self::Code, Self::Net, Self::Stores];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Point => "one point",
            Self::Record => "a size of records",
            Self::Code => "a code",
            Self::Net => "a network",
            Self::Stores => "a number of stores",
        }
    }

    /// Points that are alike in it are left out together.
    fn alike(self, a: Measured, b: Measured) -> bool {
        match self {
            // Also what the other side coded: parts of it are the same.
            Self::Point => {
                let place = |(run, point): Measured<'_>| (point.record_bytes, point.embedded, point.stores(run));
                (place(a), &a.1.code, &a.1.net) == (place(b), &b.1.code, &b.1.net)
            }
            Self::Record => a.1.record_bytes == b.1.record_bytes,
            Self::Code => a.1.code == b.1.code,
            Self::Net => a.1.net == b.1.net,
            Self::Stores => a.1.stores(a.0) == b.1.stores(b.0),
        }
    }
}

/// Predicts each point for which there are constants.
///
/// # Errors
/// When it is not known who coded a point.
pub fn check(calibration: &Calibration, all: &[Measured]) -> Result<Vec<Checked>, String> {
    let mut checked = Vec::new();
    for (number, &point) in all.iter().enumerate() {
        checked.extend(calibration.predict(point)?.map(|predicted| Checked::of(number, predicted, point.1)));
    }
    Ok(checked)
}

/// Leaves points out that are alike in something, in turn, fits the others, and predicts those.
/// What has no others of its path with two sizes of records is not predicted: a line needs two.
///
/// # Errors
/// As [`check`].
pub fn check_left_out(all: &[Measured], by: LeftOut) -> Result<Vec<Checked>, String> {
    let mut checked = Vec::new();
    for (number, &point) in all.iter().enumerate() {
        let rest: Vec<Measured> = all.iter().copied().filter(|&other| !by.alike(other, point)).collect();
        let own: Vec<Measured> = rest.iter().copied().filter(|other| path(other.1) == path(point.1)).collect();
        if own.iter().all(|other| other.1.record_bytes == own[0].1.record_bytes) {
            continue;
        }
        let interpolated = Some(is_between(point, &own)?);
        let predicted = calibrate_points(&rest)?.predict(point)?;
        let predicted = predicted.map(|predicted| Checked::of(number, predicted, point.1));
        checked.extend(predicted.map(|checked| Checked { interpolated, ..checked }));
    }
    Ok(checked)
}

/// Whether others are on all four sides of a point: with smaller and larger records, on slower and
/// faster links.
fn is_between(point: Measured, others: &[Measured]) -> Result<bool, String> {
    let place = |(run, point): Measured| -> Result<(u64, f64), String> {
        let link = point.setting(run)?.client_link;
        Ok((point.record_bytes, link.bytes_per_second.unwrap_or(f64::INFINITY)))
    };
    let (record, speed) = place(point)?;
    let others = others.iter().map(|&other| place(other)).collect::<Result<Vec<_>, _>>()?;
    let smaller_and_larger = |all: &dyn Fn(f64) -> bool| {
        let sizes = || others.iter().filter(|(_, speed)| all(*speed)).map(|(record, _)| *record);
        sizes().any(|other| other <= record) && sizes().any(|other| other >= record)
    };
    Ok(smaller_and_larger(&|other| other <= speed) && smaller_and_larger(&|other| other >= speed))
}

/// The median and the greatest of the errors, without their signs. None without any.
pub fn errors<'a>(all: impl IntoIterator<Item = &'a Checked>) -> Option<(f64, f64)> {
    let mut errors: Vec<f64> = all.into_iter().map(|checked| checked.error().abs()).collect();
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
        Line { fixed, per_byte, cold: 0.0 }
    }

    /// A byte that is sent takes what it does in a plain connection.
    const SENT: f64 = 4e-10;

    fn truth(way: Way) -> Constants {
        Constants {
            client: line(2e-5, 1e-10),
            metadata: line(3e-5, if way == Way::Inline { SENT } else { 0.0 }),
            transfer: line(4e-5, SENT),
            master: line(5e-6, 2e-10),
            parity: line(1e-6, 3e-10),
            distribution: line(4e-6, SENT),
            slave: line(1e-4, 4e-9),
            connection: None,
        }
    }

    /// A measurement in which everything is as the constants say.
    fn ideal(link: Link, connection: Option<f64>) -> Measurement {
        let mut all = measurement(Vec::new());
        all.link = link;
        for coding in [Coding::Client, Coding::Server] {
            for (k, m) in [(4, 2), (2, 1)] {
                for record in [4096, 16_384, 32_768, 65_536, 131_072, 1 << 20] {
                    let way = if record <= 32_768 { Way::Inline } else { Way::Stripe };
                    let code = format!("rs:{k}+{m}");
                    let mut new = Point { k, m, coding, code, ..point(record, way, vec![round(1.0, [0.0; 7])]) };
                    let steps = serial::steps(&Constants { connection, ..truth(way) }, &new.setting(&all).unwrap());
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
            let calibration = calibrate(&ideal(link, None)).unwrap();
            assert_eq!(calibration.groups.len(), 4);
            assert_eq!(calibration.check(), Ok(()));
            let found = calibration.constants(Way::Stripe, Coding::Server, false, "rs:4+2").unwrap();
            let truth = truth(Way::Stripe);
            for (found, truth) in [
                (found.client, truth.client),
                (found.metadata, truth.metadata),
                (found.transfer, truth.transfer),
                (found.master, truth.master),
                (found.parity, truth.parity),
                (found.distribution, truth.distribution),
                (found.slave, truth.slave),
            ] {
                assert!((found.fixed - truth.fixed).abs() < 1e-9, "{found:?} {truth:?}");
                assert!((found.per_byte - truth.per_byte).abs() < 1e-14, "{found:?} {truth:?}");
            }
            assert_eq!(
                calibration.constants(Way::Stripe, Coding::Client, false, "rs:4+2").unwrap().transfer,
                Line::default()
            );
        }
    }

    /// Constants of one network predict another one, and points that were left out.
    #[test]
    fn other_networks_and_points_are_predicted() {
        let slow = ideal(Link::of_bits(1e9, 5e-4), None);
        let calibration = calibrate(&ideal(Link::default(), None)).unwrap();
        let runs = [slow];
        let slow = points(&runs);
        let left_out = [LeftOut::Point, LeftOut::Record, LeftOut::Code].map(|by| check_left_out(&slow, by).unwrap());
        for all in left_out.into_iter().chain([check(&calibration, &slow).unwrap()]) {
            assert_eq!(all.len(), slow.len());
            let (median, worst) = errors(&all).unwrap();
            assert!(median < 1e-6 && worst < 1e-6, "{median} {worst}");
        }
    }

    /// A family of codes that takes three times as long, on other stores and another network.
    #[test]
    fn families_networks_and_stores_are_left_out() {
        let connection = Some(1.0 / SENT);
        let mut fast = ideal(Link::default(), connection);
        let mut slow = ideal(Link::of_bits(1e10, 1e-5), connection);
        slow.stores = 12;
        let network = |name: &str, link: Link| crate::cost::measured::Network {
            name: name.into(),
            bits_per_second: link.bytes_per_second.map(|bytes| bytes * 8.0),
            burst_bytes: 0,
            latency_seconds: link.round_trip_seconds / 2.0,
            plain_bits_per_second: 8.0 / SENT,
            reached_bits_per_second: 2e10,
            reachable: true,
        };
        slow.networks = vec![network("10G", slow.link)];
        fast.networks = vec![network("none", fast.link)];
        fast.points.iter_mut().for_each(|point| point.net = Some("none".into()));
        for point in &mut slow.points {
            point.net = Some("10G".into());
            if point.k == 2 && point.way == Way::Stripe {
                point.code = "liberation:2+1".into();
                for round in &mut point.rounds {
                    round.wall += 2.0 * round.counted[PARITY];
                    round.counted[PARITY] *= 3.0;
                }
            }
        }
        let runs = [fast, slow];
        let all = points(&runs);
        let families = &calibrate_points(&all).unwrap().groups[1].families;
        assert!((families["liberation"].line.per_byte / families["rs"].line.per_byte - 3.0).abs() < 1e-6);
        for by in LeftOut::ALL {
            let checked = check_left_out(&all, by).unwrap();
            assert_eq!(checked.len(), all.len(), "{by:?}");
            // Of a family that was left out, PC is that of others.
            let known = |checked: &&Checked| by == LeftOut::Point || !all[checked.point].1.code.starts_with("lib");
            let known: Vec<Checked> = checked.iter().filter(known).copied().collect();
            assert!(errors(&known).unwrap().1 < 1e-6, "{by:?}");
        }
    }

    #[test]
    fn a_run_can_have_several_numbers_of_stores() {
        let mut run = ideal(Link::default(), None);
        let more = run.points.iter().map(|point| Point { stores: Some(12), ..point.clone() }).collect::<Vec<_>>();
        let one = points(std::slice::from_ref(&run)).len();
        assert!(check_left_out(&points(std::slice::from_ref(&run)), LeftOut::Stores).unwrap().is_empty());
        run.points.extend(more);
        let runs = [run];
        assert_eq!(points(&runs)[one].1.setting(&runs[0]).unwrap().stores, 12);
        assert_eq!(check_left_out(&points(&runs), LeftOut::Stores).unwrap().len(), 2 * one);
    }

    /// A corner of what was measured is beyond the others, an edge is not.
    #[test]
    fn points_between_others_are_told_from_those_beyond() {
        let mut all = measurement(Vec::new());
        for bits in [Some(1e9), Some(2e9), None] {
            let name = bits.map_or("none".to_owned(), |bits| format!("{bits}"));
            all.networks.push(crate::cost::measured::Network {
                name: name.clone(),
                bits_per_second: bits,
                burst_bytes: 0,
                latency_seconds: 0.0,
                plain_bits_per_second: 2e10,
                reached_bits_per_second: 2e10,
                reachable: true,
            });
            for record in [65_536, 131_072, 1 << 20] {
                let net = Some(name.clone());
                all.points.push(Point { net, ..point(record, Way::Stripe, vec![round(1.0, [0.1; 7])]) });
            }
        }
        let runs = [all];
        let between = |by| {
            let checked = check_left_out(&points(&runs), by).unwrap();
            checked.iter().map(|checked| checked.interpolated.unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(between(LeftOut::Point), [false, true, false, true, true, true, false, true, false]);
        assert_eq!(between(LeftOut::Record), [false, true, false].repeat(3));
        assert_eq!(between(LeftOut::Net), [[false; 3], [true; 3], [false; 3]].concat());
    }

    #[test]
    fn errors_have_a_median_and_a_worst() {
        let one = |predicted: f64| Checked {
            point: 0,
            predicted: StepTimes { client: predicted, ..StepTimes::default() },
            measured: StepTimes::default(),
            wall: 1.0,
            interpolated: None,
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
        let runs = [few.clone()];
        assert_eq!(check_left_out(&points(&runs), LeftOut::Point).unwrap(), []);
        assert_eq!(check_left_out(&points(&runs), LeftOut::Stores).unwrap(), []);
        let calibration = calibrate(&few).unwrap();
        assert!(calibration.constants(Way::Inline, Coding::Client, false, "rs:4+2").is_none());
        assert!(calibration.constants(Way::Stripe, Coding::Server, false, "rs:4+2").is_none());
        assert!(Calibration { kind: "other".into(), ..calibration }.check().is_err());
    }
}

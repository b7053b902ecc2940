//! What `weft bench write-cost` measured: the input of a calibration.

use super::StepTimes;
use super::setting::{Link, Setting, Way};
use super::streams::Stream;
use crate::coding::{Coder, Coding};
use serde::{Deserialize, Serialize};

/// The value of [`Measurement::kind`].
pub const KIND: &str = "weft-write-cost";
/// The value of [`Measurement::version`].
pub const VERSION: u32 = 1;

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// [`KIND`].
    pub kind: String,
    /// [`VERSION`].
    pub version: u32,
    /// When, in words.
    pub date: String,
    /// The machine, in words.
    pub machine: String,
    /// The version of the program.
    pub program: String,
    /// Stores of each point that does not say otherwise.
    pub stores: u32,
    /// The link of each of the machines; unlimited on one machine.
    pub link: Link,
    /// The networks that were asked for, also those that could not be had; none for a run on
    /// `link`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<Network>,
    /// In the order of the run.
    pub points: Vec<Point>,
    /// Threads that write without waiting for each record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<Stream>,
}

/// A network between the processes of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// As it was asked for: 1G, none.
    pub name: String,
    /// The limit of each link; none for none.
    pub bits_per_second: Option<f64>,
    /// What an idle link lets through at once.
    pub burst_bytes: u64,
    /// How much longer each message takes, one way.
    #[serde(default)]
    pub latency_seconds: f64,
    /// What one plain TCP connection carried without a limit.
    pub plain_bits_per_second: f64,
    /// The same with the limit.
    pub reached_bits_per_second: f64,
    /// Whether that is the limit. If not, nothing was measured with it.
    pub reachable: bool,
}

/// One code, side that codes, and size of records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The network, of those of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub net: Option<String>,
    /// The code as it was given.
    pub code: String,
    /// Data blocks of a stripe.
    pub k: u32,
    /// Parity blocks of a stripe.
    pub m: u32,
    /// Who coded.
    pub coding: Coding,
    /// Whether the volume is open in the process of the mount, with directories as targets.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub embedded: bool,
    /// R.
    pub record_bytes: u64,
    /// Stores, where they are not the [`Measurement::stores`] of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stores: Option<u32>,
    /// Where the records went.
    pub way: Way,
    /// Records of a round.
    pub count: u64,
    /// The rounds.
    pub rounds: Vec<Round>,
}

/// The times of all records of a round, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// What the program waited.
    pub wall: f64,
    /// What the mount counted: CT, MT, DT, MP, PC, DD, SP.
    pub counted: [f64; 7],
    /// The kernel's part of the calls, measured with calls that do nothing. It belongs to CT.
    pub kernel: f64,
}

impl Measurement {
    /// The network of a point; None for the loopback device as it is.
    pub fn network(&self, point: &Point) -> Option<&Network> {
        self.networks.iter().find(|network| Some(&network.name) == point.net.as_ref())
    }

    /// # Errors
    /// What is wrong with a file that somebody may have edited.
    pub fn check(&self) -> Result<(), String> {
        if self.kind != KIND || self.version != VERSION {
            return Err(format!("it is {:?} {}, not {KIND:?} {VERSION}", self.kind, self.version));
        }
        for point in &self.points {
            let what = format!("{} {} bytes", point.code, point.record_bytes);
            let known = |net: &String| self.networks.iter().any(|network| network.name == *net);
            if let Some(net) = point.net.as_ref().filter(|net| !known(net)) {
                return Err(format!("{what}: there is no network {net:?}"));
            }
            point.setting(self)?.check().map_err(|why| format!("{what}: {why}"))?;
            if point.count == 0 || point.rounds.is_empty() {
                return Err(format!("{what}: nothing was written"));
            }
            let all = point.rounds.iter().flat_map(|round| round.counted.into_iter().chain([round.wall, round.kernel]));
            if !all.into_iter().all(|time| time.is_finite() && time >= 0.0) {
                return Err(format!("{what}: a time is finite and not negative"));
            }
        }
        self.streams.iter().try_for_each(Stream::check)
    }
}

impl Point {
    /// # Errors
    /// When it is not known who coded.
    pub fn coder(&self) -> Result<Coder, String> {
        match self.coding {
            Coding::Client => Ok(Coder::Here),
            Coding::Server => Ok(Coder::Master),
            Coding::Auto => Err("with coding auto it is not known who coded".into()),
        }
    }

    /// The setting in which it was measured, with one core.
    ///
    /// # Errors
    /// As `coder`.
    pub fn setting(&self, of: &Measurement) -> Result<Setting, String> {
        let network = self.net.as_ref().and_then(|net| of.networks.iter().find(|network| network.name == *net));
        let link = network.map_or(of.link, |network| {
            // What a connection carries: frames and headers take 4 to 5 % of the limit.
            let carried = |bits: f64| if network.reachable { network.reached_bits_per_second.min(bits) } else { bits };
            let bytes_per_second = network.bits_per_second.map(|bits| carried(bits) / 8.0);
            let burst_bytes = network.bits_per_second.map_or(0.0, |_| network.burst_bytes as f64);
            Link { bytes_per_second, round_trip_seconds: 2.0 * network.latency_seconds, burst_bytes }
        });
        Ok(Setting {
            k: self.k,
            m: self.m,
            record_bytes: self.record_bytes,
            way: self.way,
            coder: self.coder()?,
            stores: self.stores(of),
            open_sets: 1,
            client_link: link,
            store_link: link,
            client_cores: 1.0,
            store_cores: 1.0,
            disk_bytes_per_second: None,
        })
    }

    /// Whether it is of the same network, code, side that codes and number of stores as another
    /// one: both are in one table.
    pub fn is_beside(&self, other: &Self) -> bool {
        let of = |point: &Self| (point.coding, point.embedded, point.stores);
        (&self.net, &self.code, of(self)) == (&other.net, &other.code, of(other))
    }

    /// How many stores there were.
    pub fn stores(&self, of: &Measurement) -> u32 {
        self.stores.unwrap_or(of.stores)
    }

    /// The rounds that count: of four or more, all but the fastest and the slowest quarter. A round
    /// in which the machine did something else for some milliseconds is no measurement.
    fn usual(&self) -> Vec<&Round> {
        let mut rounds: Vec<&Round> = self.rounds.iter().collect();
        rounds.sort_by(|a, b| a.wall.total_cmp(&b.wall));
        let beside = rounds.len() / 4;
        rounds.drain(beside..rounds.len() - beside).collect()
    }

    fn mean(&self, of: impl Fn(&Round) -> f64) -> f64 {
        let usual = self.usual();
        let all: f64 = usual.iter().map(|round| of(round)).sum();
        all / usual.len().max(1) as f64 / self.count.max(1) as f64
    }

    /// The kernel's part for a record: the median of all rounds, as it is measured apart, with few
    /// calls.
    fn kernel(&self) -> f64 {
        let mut all: Vec<f64> = self.rounds.iter().map(|round| round.kernel).collect();
        all.sort_by(f64::total_cmp);
        let middle = all.len() / 2;
        let median = match all.len() % 2 {
            0 => all.get(middle.wrapping_sub(1)).map_or(0.0, |below| (below + all[middle]) / 2.0),
            _ => all[middle],
        };
        median / self.count.max(1) as f64
    }

    /// The steps of a record, the mean of the usual rounds: of four or more, the fastest and the
    /// slowest quarter do not count. The kernel's part is in CT.
    pub fn steps(&self) -> StepTimes {
        let mut times = [0.0; 7];
        for (step, time) in times.iter_mut().enumerate() {
            *time = self.mean(|round| round.counted[step]);
        }
        times[0] += self.kernel();
        StepTimes::from_array(times)
    }

    /// What the program waited for a record, the mean of the same rounds.
    pub fn wall(&self) -> f64 {
        self.mean(|round| round.wall)
    }

    /// The standard deviation of all rounds' times, as a part of their mean. 0 with one round.
    pub fn spread(&self) -> f64 {
        let count = self.rounds.len();
        let mean = self.rounds.iter().map(|round| round.wall).sum::<f64>() / count.max(1) as f64;
        let squares: f64 = self.rounds.iter().map(|round| (round.wall - mean).powi(2)).sum();
        if count < 2 || mean == 0.0 { 0.0 } else { (squares / (count - 1) as f64).sqrt() / mean }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn round(wall: f64, counted: [f64; 7]) -> Round {
        Round { wall, counted, kernel: 0.0 }
    }

    pub fn point(record_bytes: u64, way: Way, rounds: Vec<Round>) -> Point {
        let (code, coding) = ("rs:4+2".into(), Coding::Client);
        let (net, stores, embedded) = (None, None, false);
        Point { net, code, k: 4, m: 2, coding, embedded, record_bytes, stores, way, count: 10, rounds }
    }

    pub fn measurement(points: Vec<Point>) -> Measurement {
        Measurement {
            kind: KIND.into(),
            version: VERSION,
            date: "2026-11-25 12:00:00 UTC".into(),
            machine: "a test".into(),
            program: "0".into(),
            stores: 6,
            link: Link::default(),
            networks: Vec::new(),
            points,
            streams: Vec::new(),
        }
    }

    /// One round of eight took ten times as long, and the probes of another one did.
    #[test]
    fn rounds_that_were_disturbed_do_not_count() {
        let usual = Round { kernel: 10.0, ..round(100.0, [10.0, 0.0, 0.0, 20.0, 0.0, 0.0, 60.0]) };
        let mut rounds = vec![usual; 8];
        rounds[3] = round(1000.0, [10.0, 0.0, 0.0, 20.0, 0.0, 0.0, 960.0]);
        rounds[6].kernel = 500.0;
        let one = point(4096, Way::Stripe, rounds);
        assert_eq!((one.wall(), one.steps().total()), (10.0, 10.0));
        assert!(one.spread() > 1.0);
        let none = point(4096, Way::Stripe, Vec::new());
        assert_eq!((none.wall(), none.steps().total(), none.spread()), (0.0, 0.0, 0.0));
    }

    #[test]
    fn means_and_spread() {
        let rounds = vec![
            Round { kernel: 10.0, ..round(100.0, [10.0, 0.0, 0.0, 20.0, 0.0, 0.0, 60.0]) },
            Round { kernel: 30.0, ..round(140.0, [30.0, 0.0, 0.0, 20.0, 0.0, 0.0, 60.0]) },
        ];
        let point = point(4096, Way::Stripe, rounds);
        assert_eq!(point.steps().as_array(), [4.0, 0.0, 0.0, 2.0, 0.0, 0.0, 6.0]);
        assert_eq!(point.wall(), 12.0);
        assert!((point.spread() - 800.0f64.sqrt() / 120.0).abs() < 1e-12);
        assert_eq!(measurement(vec![point]).check(), Ok(()));
    }

    #[test]
    fn a_point_has_the_link_of_its_network() {
        let network = |name: &str, bits_per_second| Network {
            name: name.into(),
            bits_per_second,
            burst_bytes: 3028,
            latency_seconds: 1e-4,
            plain_bits_per_second: 2e10,
            reached_bits_per_second: 9.5e8,
            reachable: true,
        };
        let of = |net: Option<&str>| Point {
            net: net.map(str::to_owned),
            ..point(4096, Way::Stripe, vec![round(1.0, [0.1; 7])])
        };
        let run = Measurement {
            networks: vec![network("1G", Some(1e9)), network("none", None)],
            ..measurement(vec![of(Some("1G")), of(Some("none")), of(None)])
        };
        assert_eq!(run.check(), Ok(()));
        let links = run.points.iter().map(|point| point.setting(&run).unwrap().store_link.bytes_per_second);
        assert_eq!(links.collect::<Vec<_>>(), [Some(9.5e8 / 8.0), None, None]);
        let trips = run.points.iter().map(|point| point.setting(&run).unwrap().client_link.round_trip_seconds);
        assert_eq!(trips.collect::<Vec<_>>(), [2e-4, 2e-4, 0.0]);
        let bursts = run.points.iter().map(|point| point.setting(&run).unwrap().client_link.burst_bytes);
        assert_eq!(bursts.collect::<Vec<_>>(), [3028.0, 0.0, 0.0]);
        let unknown = Measurement { points: vec![of(Some("2G"))], ..run };
        assert!(unknown.check().unwrap_err().contains("2G"));
    }

    #[test]
    fn edited_files_are_refused() {
        let good = || point(4096, Way::Stripe, vec![round(1.0, [0.1; 7])]);
        let refused = |point: Point| measurement(vec![point]).check().is_err();
        assert!(!refused(good()));
        assert!(refused(Point { count: 0, ..good() }) && refused(Point { rounds: vec![], ..good() }));
        assert!(refused(Point { k: 0, ..good() }) && refused(Point { m: 3, ..good() }));
        assert!(refused(Point { coding: Coding::Auto, ..good() }));
        assert!(refused(Point { rounds: vec![round(-1.0, [0.1; 7])], ..good() }));
        assert!(refused(Point { rounds: vec![round(1.0, [f64::NAN; 7])], ..good() }));
        let other = Measurement { version: 2, ..measurement(vec![]) };
        assert!(other.check().unwrap_err().contains("weft-write-cost"));
    }
}

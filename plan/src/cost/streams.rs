//! Many threads that write at once, without waiting for each record: what `weft bench write-cost
//! --threads` measured, and how the steps of different records overlap.

use super::StepTimes;
use crate::coding::Coding;
use serde::{Deserialize, Serialize};

/// One code, kernel, side that codes, and number of threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stream {
    /// The network, of those of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub net: Option<String>,
    /// The code as it was given.
    pub code: String,
    /// The kernel that was forced, if one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Data blocks of a stripe.
    pub k: u32,
    /// Parity blocks of a stripe.
    pub m: u32,
    /// Who coded.
    pub coding: Coding,
    /// Threads, each with a file of its own.
    pub threads: u32,
    /// What a thread writes with one call.
    pub record_bytes: u64,
    /// What all threads write in a round.
    pub bytes: u64,
    /// The rounds. Those of different codes took turns.
    pub rounds: Vec<StreamRound>,
}

/// A round, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamRound {
    /// From the first call to the end of the last thread's sync.
    pub wall: f64,
    /// What the mount counted: CT, MT, DT, MP, PC, DD, SP.
    pub counted: [f64; 7],
    /// Processor time of the writing program, the mount, the metadata server, and all stores
    /// together.
    pub processors: [f64; 4],
}

/// Names of [`StreamRound::processors`].
pub const PROCESSES: [&str; 4] = ["program", "client", "metadata", "stores"];

impl Stream {
    /// # Errors
    /// What is wrong with a file that somebody may have edited.
    pub fn check(&self) -> Result<(), String> {
        let what = format!("{} with {} threads", self.name(), self.threads);
        if self.k == 0 || self.threads == 0 || self.record_bytes == 0 || self.bytes == 0 || self.rounds.is_empty() {
            return Err(format!("{what}: nothing was written"));
        }
        let times = self.rounds.iter().flat_map(|round| {
            round.counted.into_iter().chain(round.processors).chain([round.wall]).map(|time| time.is_finite())
        });
        if times.into_iter().all(|finite| finite) && self.rounds.iter().all(|round| round.wall > 0.0) {
            return Ok(());
        }
        Err(format!("{what}: a time is finite, and a round takes some"))
    }

    /// The code, and the kernel if one was forced.
    pub fn name(&self) -> String {
        self.kernel.as_ref().map_or_else(|| self.code.clone(), |kernel| format!("{}@{kernel}", self.code))
    }

    fn mean(&self, of: impl Fn(&StreamRound) -> f64) -> f64 {
        self.rounds.iter().map(of).sum::<f64>() / self.rounds.len().max(1) as f64
    }

    /// Bytes a second: the mean of all rounds.
    pub fn speed(&self) -> f64 {
        self.mean(|round| self.bytes as f64 / round.wall)
    }

    /// The standard deviation of the rounds' speeds, as a part of their mean. 0 with one round.
    pub fn spread(&self) -> f64 {
        let (mean, count) = (self.speed(), self.rounds.len());
        let squares: f64 = self.rounds.iter().map(|round| (self.bytes as f64 / round.wall - mean).powi(2)).sum();
        if count < 2 || mean == 0.0 { 0.0 } else { (squares / (count - 1) as f64).sqrt() / mean }
    }

    /// Processor cores that each of [`PROCESSES`] kept busy.
    pub fn cores(&self) -> [f64; 4] {
        [0, 1, 2, 3].map(|number| self.mean(|round| round.processors[number] / round.wall))
    }

    /// How many stripes, calls and waits were in each step at a time, on average: the time that was
    /// counted for the step, in the time that passed. Their sum is 1 where nothing overlaps.
    pub fn at_once(&self) -> StepTimes {
        let mut all = [0.0; 7];
        for (step, mean) in all.iter_mut().enumerate() {
            *mean = self.mean(|round| round.counted[step] / round.wall);
        }
        StepTimes::from_array(all)
    }

    /// How much slower than another one: 0.1 is 10 %. The mean over rounds that took turns, as what
    /// slowed one down was there for its neighbour, too.
    pub fn loss(&self, against: &Self) -> f64 {
        let pairs = self.rounds.iter().zip(&against.rounds);
        let ratios: Vec<f64> =
            pairs.map(|(own, other)| self.bytes as f64 / own.wall / (against.bytes as f64 / other.wall)).collect();
        1.0 - ratios.iter().sum::<f64>() / ratios.len().max(1) as f64
    }

    /// Whether another one differs in the code alone.
    pub fn compares(&self, other: &Self) -> bool {
        let of = |stream: &Self| (stream.net.clone(), stream.coding, stream.threads, stream.record_bytes);
        of(self) == of(other)
    }

    /// Those that it can be compared with and that do not code.
    pub fn baseline<'a>(&self, all: &'a [Self]) -> Option<&'a Self> {
        all.iter().find(|other| other.code.starts_with("none:") && other.m > 0 && self.compares(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(code: &str, walls: &[f64]) -> Stream {
        let round = |&wall: &f64| StreamRound {
            wall,
            counted: [0.5 * wall, 0.0, 0.0, 0.1 * wall, 0.2 * wall, wall, 2.0 * wall],
            processors: [0.1 * wall, 0.5 * wall, 0.0, 0.25 * wall],
        };
        Stream {
            net: None,
            code: code.into(),
            kernel: None,
            k: 4,
            m: 2,
            coding: Coding::Client,
            threads: 10,
            record_bytes: 131_072,
            bytes: 1000,
            rounds: walls.iter().map(round).collect(),
        }
    }

    #[test]
    fn steps_at_once_and_speed() {
        let one = stream("rs:4+2", &[1.0, 2.0]);
        assert_eq!(one.check(), Ok(()));
        assert_eq!(one.speed(), 750.0);
        assert!((one.spread() - (2.0f64 * 250.0 * 250.0).sqrt() / 750.0).abs() < 1e-12);
        assert!((one.at_once().total() - 3.8).abs() < 1e-12);
        let near = one.cores().iter().zip([0.1, 0.5, 0.0, 0.25]).all(|(a, b)| (a - b).abs() < 1e-12);
        assert!(near, "{:?}", one.cores());
    }

    /// The second round was slower for both, so neither lost anything by it.
    #[test]
    fn rounds_that_took_turns_are_compared() {
        let none = stream("none:4+2", &[1.0, 2.0]);
        let coded = stream("rs:4+2", &[1.25, 2.5]);
        assert!((coded.loss(&none) - 0.2).abs() < 1e-12);
        let other = Stream { threads: 1, ..none.clone() };
        let all = [other, coded.clone(), none.clone()];
        assert_eq!(coded.baseline(&all), Some(&none));
        assert_eq!(coded.baseline(&all[..2]), None);
        assert_eq!(none.loss(&none), 0.0);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let good = stream("rs:4+2", &[1.0]);
        for wrong in [
            Stream { k: 0, ..good.clone() },
            Stream { threads: 0, ..good.clone() },
            Stream { bytes: 0, ..good.clone() },
            Stream { rounds: Vec::new(), ..good.clone() },
            stream("rs:4+2", &[0.0]),
            stream("rs:4+2", &[f64::NAN]),
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
        assert_eq!(Stream { kernel: Some("naive".into()), ..good }.name(), "rs:4+2@naive");
    }
}

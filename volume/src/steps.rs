//! Where the time of writes goes: the five steps of the write-cost model, counted on every write. Counting is a few additions to atomics: it never waits,
//! and never allocates.
//!
//! | step | what | where it is counted |
//! |---|---|---|
//! | CT, client tasks | taking a write call: locks, the copy into the buffer. Not the wait for room in memory, in which the other steps run | once a call |
//! | MT, metadata tasks | waiting for metadata on behalf of a write: a chunk set, the name and size for the manifest, the transaction, its sync | once a request |
//! | DT, transfer | with server-side coding, sending a stripe to its Master and hearing from it, without the Master's own time; else none | once a stripe |
//! | MP, Master process | what the one who codes does beside coding and sending: copies into the stripe, locks, allocation, record headers | once a stripe |
//! | PC, parity calculation | the encoding function, which makes the checksums in the same pass | once a stripe |
//! | DD, data distribution | from the first byte sent to the last answer of a slave, without SP | once a stripe, once a sync |
//! | SP, slave process | what the slowest slave needs itself to write, or to sync, after the request has arrived | once a stripe, once a sync |
//!
//! CO, the client overhead, is CT + MT + DT. A client that codes itself is its own Master. On directories of this machine, a slave is a target: SP is the I/O
//! of the slowest, DD what waking and waiting for the threads of the targets takes. Slaves work at the same time, so that SP is a maximum and not a sum,
//! but for short blocks, which one thread writes to one after the other.
//! What is synced and short goes into the metadata itself, and costs CT and MT alone. Stripes that compaction moves are counted like those of a writer.
//! Steps of several writes overlap: their sum over the time that passed may be more than 1.
//!
//! A store that is Master counts its MP, PC, DD and SP in its own [`Steps`] (a [`SetWriter`](crate::SetWriter) does that), and sends the [`Cost`] of the stripe, which
//! [`Appended`](crate::Appended) has, in its answer. What it does beside `append` for the stripe, from the last byte of the request to the answer, it adds to `master`.
//! The client adds that `Cost` to its own `Steps`, and to DT the time of the call less [`Cost::total`]: so the steps of a client tell the whole cost either way.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A step of a write. The client overhead is three of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// CT.
    Client,
    /// MT.
    Metadata,
    /// DT.
    Transfer,
    /// MP.
    Master,
    /// PC.
    Parity,
    /// DD.
    Distribution,
    /// SP.
    Slave,
}

impl Step {
    /// All of them, in the order of the model.
    pub const ALL: [Self; 7] =
        [Self::Client, Self::Metadata, Self::Transfer, Self::Master, Self::Parity, Self::Distribution, Self::Slave];

    /// What the model calls it.
    pub fn code(self) -> &'static str {
        match self {
            Self::Client => "CT",
            Self::Metadata => "MT",
            Self::Transfer => "DT",
            Self::Master => "MP",
            Self::Parity => "PC",
            Self::Distribution => "DD",
            Self::Slave => "SP",
        }
    }

    /// What it is, in words with underscores: for JSON and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client_tasks",
            Self::Metadata => "metadata_tasks",
            Self::Transfer => "transfer",
            Self::Master => "master_process",
            Self::Parity => "parity_calculation",
            Self::Distribution => "data_distribution",
            Self::Slave => "slave_process",
        }
    }
}

/// What storing one stripe took where it was coded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// MP.
    pub master: Duration,
    /// PC.
    pub parity: Duration,
    /// DD.
    pub distribution: Duration,
    /// SP.
    pub slave: Duration,
}

impl Cost {
    /// What passed in all.
    pub fn total(&self) -> Duration {
        self.master + self.parity + self.distribution + self.slave
    }

    /// The cost of a stripe that took `total`: of this `parity` for coding, and `sent` for sending it and waiting for the slaves, the slowest of which says
    /// that it took `slave` itself. The rest is the Master's. What is not possible, as two machines have two clocks, is cut off.
    pub fn of(total: Duration, parity: Duration, sent: Duration, slave: Duration) -> Self {
        let slave = slave.min(sent);
        let master = total.saturating_sub(parity).saturating_sub(sent);
        Self { master, parity, distribution: sent - slave, slave }
    }
}

/// One step's count and time.
#[derive(Debug, Default)]
struct Tally {
    count: AtomicU64,
    nanoseconds: AtomicU64,
}

/// The steps of all writes so far.
#[derive(Debug, Default)]
pub struct Steps {
    tallies: [Tally; Step::ALL.len()],
    writes: AtomicU64,
    bytes: AtomicU64,
}

/// How often a step was taken, and for how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// How often.
    pub count: u64,
    /// How long in all.
    pub time: Duration,
}

/// What [`Steps`] had counted at some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepTotals {
    /// By step, in the order of [`Step::ALL`].
    pub steps: [Taken; Step::ALL.len()],
    /// Write calls.
    pub writes: u64,
    /// Bytes that were given to them.
    pub bytes: u64,
}

impl Steps {
    /// A step was taken once more, for so long.
    pub fn add(&self, step: Step, took: Duration) {
        self.tallies[step as usize].count.fetch_add(1, Ordering::Relaxed);
        self.extend(step, took);
    }

    /// A step that is counted elsewhere took so much longer.
    pub fn extend(&self, step: Step, took: Duration) {
        // 584 years fit.
        self.tallies[step as usize].nanoseconds.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Does something that is a step.
    pub fn timed<T>(&self, step: Step, work: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let done = work();
        self.add(step, begun.elapsed());
        done
    }

    /// A write call of so many bytes was taken, in so long.
    pub fn add_write(&self, bytes: usize, took: Duration) {
        self.add(Step::Client, took);
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// A stripe was stored at such a cost.
    pub fn add_stripe(&self, cost: &Cost) {
        self.add(Step::Master, cost.master);
        self.add(Step::Parity, cost.parity);
        self.add(Step::Distribution, cost.distribution);
        self.add(Step::Slave, cost.slave);
    }

    /// What was counted so far. The numbers of one step may be a moment older than those of another.
    pub fn totals(&self) -> StepTotals {
        let taken = |tally: &Tally| Taken {
            count: tally.count.load(Ordering::Relaxed),
            time: Duration::from_nanos(tally.nanoseconds.load(Ordering::Relaxed)),
        };
        StepTotals {
            steps: self.tallies.each_ref().map(taken),
            writes: self.writes.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}

impl StepTotals {
    /// One step's.
    pub fn of(&self, step: Step) -> Taken {
        self.steps[step as usize]
    }

    /// The client overhead: CT + MT + DT.
    pub fn client_overhead(&self) -> Duration {
        [Step::Client, Step::Metadata, Step::Transfer].iter().map(|&step| self.of(step).time).sum()
    }

    /// All steps.
    pub fn total(&self) -> Duration {
        self.steps.iter().map(|taken| taken.time).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn the_parts_of_a_stripe_are_the_whole() {
        let cost = Cost::of(ms(100), ms(20), ms(50), ms(35));
        assert_eq!(cost, Cost { master: ms(30), parity: ms(20), distribution: ms(15), slave: ms(35) });
        assert_eq!(cost.total(), ms(100));
        // A slave whose clock is fast cannot have taken longer than everything.
        let odd = Cost::of(ms(10), ms(4), ms(6), ms(90));
        assert_eq!(odd, Cost { master: ms(0), parity: ms(4), distribution: ms(0), slave: ms(6) });
    }

    #[test]
    fn every_step_has_its_own_place() {
        let steps = Steps::default();
        for (number, step) in Step::ALL.into_iter().enumerate() {
            steps.add(step, ms(1 << number));
        }
        steps.add_write(4096, ms(1000));
        steps.add_stripe(&Cost { master: ms(1), parity: ms(2), distribution: ms(3), slave: ms(4) });
        let totals = steps.totals();
        let millis: Vec<u128> = Step::ALL.iter().map(|&step| totals.of(step).time.as_millis()).collect();
        assert_eq!(millis, [1001, 2, 4, 8 + 1, 16 + 2, 32 + 3, 64 + 4]);
        assert_eq!(totals.of(Step::Parity).count, 2);
        assert_eq!((totals.writes, totals.bytes), (1, 4096));
        assert_eq!(totals.client_overhead(), ms(1001 + 2 + 4));
        assert_eq!(totals.total(), ms(1000 + 127 + 10));
    }
}

//! Where the time of writes goes: the steps of the write-cost model, counted on every write.
//! Counting only adds to atomics: it never waits and never allocates.
//!
//! - **CT**, client tasks: what a write or sync of a file takes in this process besides all other
//!   steps: locks, the copy into the buffer, the packing of stripes. It does not include the waits
//!   for free memory and for other threads, during which the other steps run. Counted once per
//!   write; a sync adds time to it.
//! - **MT**, metadata tasks: waiting for metadata on behalf of a write: a chunk set, the name and
//!   size for the manifest, the transaction, its sync. It does not include what the journal takes
//!   inside such a call: that is DD and SP. Counted once per request.
//! - **DT**, transfer: with server-side coding, sending a stripe to its Master and receiving the
//!   answer, without the Master's own time; otherwise zero. Counted once per stripe.
//! - **MP**, Master process: what the coding process does besides coding and sending: copies into
//!   the stripe, locks, allocation, record headers. Counted once per stripe.
//! - **PC**, parity calculation: the encoding function, which computes the checksums in the same
//!   pass. Counted once per stripe.
//! - **DD**, data distribution: from the first byte sent to the last answer of a slave, without SP.
//!   Counted once per stripe, once per sync (of several sets, which are synced at the same time:
//!   that of the slowest), and once per wait for the journal.
//! - **SP**, slave process: the time that the slowest slave itself needs to write or sync after the
//!   request has arrived. Counted as DD. A mirror of the journal is a slave, too.
//!
//! CO, the client overhead, is CT + MT + DT. A client that codes is its own Master. On local
//! directories, a slave is a target: SP is the I/O time of the slowest target, and DD is the time
//! to wake the targets' threads and to wait for them. Slaves work at the same time, so SP is a
//! maximum and not a sum. The exception are short blocks, which one thread writes one after the
//! other. Short synced writes go into the metadata itself: they have no MP and PC, and their DD and
//! SP are the journal's ([`Carried`]). Stripes that compaction moves are counted like those of a
//! writer. Steps of several writes overlap: their sum divided by the elapsed time may exceed 1.
//!
//! A store that is Master counts its MP, PC, DD and SP in its own [`Steps`] (a
//! [`SetWriter`](crate::SetWriter) does that). Its answer carries the [`Cost`] of the stripe, which
//! it takes from [`Appended`](crate::Appended). It adds to `master` what it does for the stripe
//! outside `append`, from the last byte of the request to the answer. The client adds that `Cost`
//! to its own `Steps`, and adds the time of the call less [`Cost::total`] to DT. So the steps of a
//! client show the whole cost in either case.
//!
//! Each step that has a begin and an end in one thread is a `tracing` span, too, with the name of
//! the step, at level DEBUG ([`WriteStep::span`]). Without a subscriber nothing is recorded.

mod carried;

pub use carried::{CARRIED_BYTES, Carried};

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tracing::{Span, debug_span};

thread_local! {
    /// Nanoseconds that this thread has counted as any step, or that another thread counts. Wraps.
    static COUNTED: Cell<u64> = const { Cell::new(0) };
}

/// A moment from which a thread counts what no other step has.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    begun: Instant,
    counted: u64,
}

impl Mark {
    /// This moment of this thread.
    pub fn now() -> Self {
        Self { begun: Instant::now(), counted: COUNTED.get() }
    }

    /// The time since then that this thread has not counted as a step. Ask in the same thread.
    pub fn rest(&self) -> Duration {
        let counted = COUNTED.get().wrapping_sub(self.counted);
        self.begun.elapsed().saturating_sub(Duration::from_nanos(counted))
    }
}

/// Waits for others, who count what they do meanwhile: the wait itself is no step of this thread.
pub fn aside<T>(wait: impl FnOnce() -> T) -> T {
    let mark = Mark::now();
    let done = wait();
    COUNTED.set(mark.counted.wrapping_add(mark.begun.elapsed().as_nanos() as u64));
    done
}

/// A step of a write. Three of them make up the client overhead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteStep {
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

impl WriteStep {
    /// All steps, in the order of the model.
    pub const ALL: [Self; 7] =
        [Self::Client, Self::Metadata, Self::Transfer, Self::Master, Self::Parity, Self::Distribution, Self::Slave];

    /// The abbreviation in the model.
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

    /// The name in words with underscores, for JSON and metrics.
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

    /// A span of the step.
    pub fn span(self) -> Span {
        match self {
            Self::Client => debug_span!("client_tasks"),
            Self::Metadata => debug_span!("metadata_tasks"),
            Self::Transfer => debug_span!("transfer"),
            Self::Master => debug_span!("master_process"),
            Self::Parity => debug_span!("parity_calculation"),
            Self::Distribution => debug_span!("data_distribution"),
            Self::Slave => debug_span!("slave_process"),
        }
    }
}

/// The cost of one stripe in the process that coded it.
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
    /// The sum of the steps.
    pub fn total(&self) -> Duration {
        self.master + self.parity + self.distribution + self.slave
    }

    /// The cost of a stripe that took `total`: `parity` for coding, and `sent` for sending it and
    /// waiting for the slaves. The slowest slave reports that it took `slave` itself. The rest
    /// belongs to the Master. Two machines have two clocks: values that are not possible are
    /// clamped.
    pub fn of(total: Duration, parity: Duration, sent: Duration, slave: Duration) -> Self {
        let slave = slave.min(sent);
        let master = total.saturating_sub(parity).saturating_sub(sent);
        Self { master, parity, distribution: sent - slave, slave }
    }
}

/// The count and total time of one step.
#[derive(Debug, Default)]
struct Tally {
    count: AtomicU64,
    nanoseconds: AtomicU64,
}

/// The steps of all writes so far.
#[derive(Debug, Default)]
pub struct Steps {
    tallies: [Tally; WriteStep::ALL.len()],
    writes: AtomicU64,
    bytes: AtomicU64,
}

/// The count and total time of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// How often the step was taken.
    pub count: u64,
    /// The total time.
    pub time: Duration,
}

/// The content of [`Steps`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepTotals {
    /// Count and time per step, in the order of [`WriteStep::ALL`].
    pub steps: [Taken; WriteStep::ALL.len()],
    /// Write calls.
    pub writes: u64,
    /// Bytes passed to them.
    pub bytes: u64,
}

impl Steps {
    /// Counts a step that took `took`.
    pub fn add(&self, step: WriteStep, took: Duration) {
        self.tallies[step as usize].count.fetch_add(1, Ordering::Relaxed);
        self.extend(step, took);
    }

    /// Adds time to a step that is counted elsewhere.
    pub fn extend(&self, step: WriteStep, took: Duration) {
        let nanoseconds = took.as_nanos() as u64;
        COUNTED.set(COUNTED.get().wrapping_add(nanoseconds));
        // The counter holds 584 years.
        self.tallies[step as usize].nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// Runs `work`, and adds to `step` what it took besides the steps that it counted itself.
    pub fn rest<T>(&self, step: WriteStep, work: impl FnOnce() -> T) -> T {
        let mark = Mark::now();
        let done = step.span().in_scope(work);
        self.extend(step, mark.rest());
        done
    }

    /// Runs a call of the metadata. What the journal took in it is DD and SP, the rest is MT.
    pub fn metadata<T>(&self, call: impl FnOnce() -> T) -> T {
        // Nobody asked for what is left of an earlier call.
        Carried::take();
        let begun = Instant::now();
        let done = WriteStep::Metadata.span().in_scope(call);
        let took = begun.elapsed();
        let journal = Carried::take().within(took);
        self.add(WriteStep::Metadata, took - journal.total());
        if journal != Carried::default() {
            self.add(WriteStep::Distribution, journal.distribution);
            self.add(WriteStep::Slave, journal.slave);
        }
        done
    }

    /// Counts a write call of `bytes` bytes that took `took`.
    pub fn add_write(&self, bytes: usize, took: Duration) {
        self.add(WriteStep::Client, took);
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts a stripe with its cost.
    pub fn add_stripe(&self, cost: &Cost) {
        self.add(WriteStep::Master, cost.master);
        self.add(WriteStep::Parity, cost.parity);
        self.add(WriteStep::Distribution, cost.distribution);
        self.add(WriteStep::Slave, cost.slave);
    }

    /// Counts a sync of chunks with its cost.
    pub fn add_sync(&self, cost: &Cost) {
        self.add(WriteStep::Distribution, cost.distribution);
        self.add(WriteStep::Slave, cost.slave);
    }

    /// The totals so far. The numbers of one step may be slightly older than those of another.
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
    /// The total of one step.
    pub fn of(&self, step: WriteStep) -> Taken {
        self.steps[step as usize]
    }

    /// The client overhead: CT + MT + DT.
    pub fn client_overhead(&self) -> Duration {
        [WriteStep::Client, WriteStep::Metadata, WriteStep::Transfer].iter().map(|&step| self.of(step).time).sum()
    }

    /// The time of all steps.
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
        // A slave with a fast clock cannot have taken longer than the whole.
        let odd = Cost::of(ms(10), ms(4), ms(6), ms(90));
        assert_eq!(odd, Cost { master: ms(0), parity: ms(4), distribution: ms(0), slave: ms(6) });
    }

    #[test]
    fn every_step_has_its_own_place() {
        let steps = Steps::default();
        for (number, step) in WriteStep::ALL.into_iter().enumerate() {
            steps.add(step, ms(1 << number));
        }
        steps.add_write(4096, ms(1000));
        steps.add_stripe(&Cost { master: ms(1), parity: ms(2), distribution: ms(3), slave: ms(4) });
        let totals = steps.totals();
        let millis: Vec<u128> = WriteStep::ALL.iter().map(|&step| totals.of(step).time.as_millis()).collect();
        assert_eq!(millis, [1001, 2, 4, 8 + 1, 16 + 2, 32 + 3, 64 + 4]);
        assert_eq!(totals.of(WriteStep::Parity).count, 2);
        assert_eq!((totals.writes, totals.bytes), (1, 4096));
        assert_eq!(totals.client_overhead(), ms(1001 + 2 + 4));
        assert_eq!(totals.total(), ms(1000 + 127 + 10));
    }

    #[test]
    fn the_journal_in_a_call_of_the_metadata_is_not_metadata() {
        let steps = Steps::default();
        let pause = || std::thread::sleep(ms(5));
        Carried { distribution: ms(1), slave: Duration::from_secs(3600) }.carry();
        steps.metadata(pause);
        let plain = steps.totals();
        assert_eq!(plain.total(), plain.of(WriteStep::Metadata).time, "what is left of others does not count");
        assert!(plain.of(WriteStep::Metadata).time >= ms(5) && plain.of(WriteStep::Slave).count == 0);
        let journal = Carried { distribution: ms(1), slave: ms(3) };
        steps.metadata(|| {
            pause();
            journal.carry();
        });
        let totals = steps.totals();
        assert_eq!((totals.of(WriteStep::Distribution).time, totals.of(WriteStep::Slave).time), (ms(1), ms(3)));
        assert!(totals.of(WriteStep::Metadata).time >= plain.of(WriteStep::Metadata).time + ms(1));
        assert_eq!(totals.of(WriteStep::Metadata).count, 2);
    }

    #[test]
    fn the_rest_of_a_call_is_what_nobody_counted() {
        let steps = Steps::default();
        let begun = Instant::now();
        steps.rest(WriteStep::Client, || {
            steps.metadata(|| std::thread::sleep(ms(20)));
            aside(|| {
                steps.add(WriteStep::Parity, ms(1));
                std::thread::sleep(ms(20));
            });
            // An inner call counts for itself, and the outer one does not count it again.
            steps.rest(WriteStep::Master, || std::thread::sleep(ms(20)));
            std::thread::sleep(ms(20));
        });
        let took = begun.elapsed();
        let of = |step| steps.totals().of(step).time;
        assert!(
            of(WriteStep::Client) >= ms(20) && of(WriteStep::Master) >= ms(20) && of(WriteStep::Metadata) >= ms(20)
        );
        assert!(steps.totals().total() - ms(1) <= took - ms(20), "the wait for others does not count");
    }
}

//! Which side codes the stripes of this process: the process itself or the Masters. It follows the
//! setting of the user, and for `auto` its own measurements.

use crate::mutex::lock;
use ec::Shape;
use plan::coding::{Auto, Coder, Coding, Stripe, Took};
use plan::processors::Processors;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use volume::Cost;

/// How often the load of the processors is measured.
const LOAD_INTERVAL: Duration = Duration::from_millis(500);

/// Chooses the coder of each stripe.
pub(crate) struct Coders {
    coding: Coding,
    shape: Shape,
    begun: Instant,
    /// Bytes of user data in stripes that are being written.
    queued: AtomicU64,
    /// The number of stripes that were coded here, and by Masters.
    coded: [AtomicU64; 2],
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    auto: Auto,
    looked: Option<Instant>,
    /// Processor time of the machine at the last measurement: idle, and in total.
    spent: (u64, u64),
}

/// A stripe that is being written.
pub(crate) struct Turn<'a> {
    coders: &'a Coders,
    /// Which side should code it.
    pub by: Coder,
    stripe: Stripe,
    begun: Instant,
}

impl Coders {
    pub fn new(coding: Coding, shape: Shape) -> Self {
        Self {
            coding,
            shape,
            begun: Instant::now(),
            queued: AtomicU64::new(0),
            coded: Default::default(),
            state: Mutex::default(),
        }
    }

    /// Chooses the side that codes a stripe of this many bytes, which is about to be written.
    pub fn turn(&self, bytes: usize) -> Turn<'_> {
        let stripe = Stripe { bytes, k: self.shape.k, m: self.shape.m };
        let queued = self.queued.fetch_add(bytes as u64, Ordering::Relaxed);
        let by = match self.coding {
            Coding::Client => Coder::Here,
            Coding::Server => Coder::Master,
            Coding::Auto => self.choose(&stripe, queued),
        };
        Turn { coders: self, by, stripe, begun: Instant::now() }
    }

    /// The number of stripes that were coded here so far, and by Masters.
    pub fn coded(&self) -> (u64, u64) {
        let [here, masters] = &self.coded;
        (here.load(Ordering::Relaxed), masters.load(Ordering::Relaxed))
    }

    fn choose(&self, stripe: &Stripe, queued: u64) -> Coder {
        let mut state = lock(&self.state);
        if state.looked.is_none_or(|when| when.elapsed() >= LOAD_INTERVAL) {
            state.looked = Some(Instant::now());
            if let Some(spent) = processor_time() {
                let (idle, all) = (spent.0.saturating_sub(state.spent.0), spent.1.saturating_sub(state.spent.1));
                state.spent = spent;
                state.auto.note_idle(idle as f64 / all.max(1) as f64);
            }
        }
        state.auto.choose(stripe, queued, self.begun.elapsed())
    }
}

impl Turn<'_> {
    /// The stripe was written; `by` coded it.
    pub fn done(&self, by: Coder, cost: &Cost) {
        self.coders.coded[usize::from(by == Coder::Master)].fetch_add(1, Ordering::Relaxed);
        if self.coders.coding != Coding::Auto {
            return;
        }
        let now = self.coders.begun.elapsed();
        if self.by == Coder::Master && by == Coder::Here {
            return lock(&self.coders.state).auto.note_no_master(now);
        }
        let took = Took {
            coding: cost.master + cost.parity,
            sending: cost.distribution + cost.slave,
            total: self.begun.elapsed(),
        };
        lock(&self.coders.state).auto.note(by, &self.stripe, &took, now);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.coders.queued.fetch_sub(self.stripe.bytes as u64, Ordering::Relaxed);
    }
}

/// The processor time of this machine since boot, in the system's units: idle, and in total.
fn processor_time() -> Option<(u64, u64)> {
    let processors = Processors::parse(&std::fs::read_to_string("/proc/stat").ok()?)?;
    Some((processors.idle, processors.all()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_is_done() {
        let shape = ec::parse("rs:4+2").unwrap().shape();
        for (coding, by) in [(Coding::Client, Coder::Here), (Coding::Server, Coder::Master)] {
            let coders = Coders::new(coding, shape);
            let turns = [coders.turn(100), coders.turn(1 << 20)];
            assert!(turns.iter().all(|turn| turn.by == by));
            assert_eq!(coders.queued.load(Ordering::Relaxed), 100 + (1 << 20));
            drop(turns);
            assert_eq!(coders.queued.load(Ordering::Relaxed), 0);
        }
    }
}

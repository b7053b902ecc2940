//! What each target got lately, beside what it would have got without scores.
//!
//! Where targets differ in speed, scores send chunks to those that are fast at the moment, and in a
//! cluster that is nearly empty nothing else counts. But most targets are slow for some seconds and
//! fast for others: those can be level after all, at little cost, if each gets back later what it
//! missed. So an account is kept, and what a target has beyond the others lowers its share.
//!
//! A target that was slow nearly all the time of late gets nothing back, and the others are
//! compared with each other only: it stays behind, and is level later, when more of all targets is
//! used (see [`Tuning::evenness`](crate::placement::Tuning)).

use crate::placement::adaptive::MAX_SHARE;

/// What stays of an account after an interval: it remembers a thousand of them.
const MEMORY: f64 = 0.999;
/// A lead of this many chunks is small, ...
const LEAST_CHUNKS: f64 = 10.0;
/// ... or of this part of what it got.
const LEAST_PART: f64 = 0.025;
/// A target is slow all the time when it was slow in this part of the last intervals, ...
const SLOW_PART: f64 = 0.75;
/// ... of which this many count.
const SLOW_INTERVALS: f64 = 20.0;

/// The account of a target. Chunks, of which older ones count less.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    /// Since the last interval ended.
    new: f64,
    /// That it got beyond those that it would have got without scores.
    more: f64,
    /// That it would have got.
    even: f64,
    /// Intervals so far, and in which part of the last ones it was slow.
    seen: f64,
    slow: f64,
    /// What it got beyond the others, as a multiple of what is small.
    pub lead: f64,
}

impl Account {
    /// It got chunks, or gave some back.
    pub fn count(&mut self, chunks: f64) {
        self.new += chunks;
    }

    /// What it got since the last interval ended.
    pub fn newly(&self) -> f64 {
        self.new
    }

    /// An interval passed, in which `even` chunks would have been its part. It was slow or not, if
    /// that is known.
    pub fn settle(&mut self, even: f64, is_slow: Option<bool>) {
        self.more = self.more * MEMORY + std::mem::take(&mut self.new) - even;
        self.even = self.even * MEMORY + even;
        self.lead = self.more / self.small();
        if let Some(is_slow) = is_slow {
            self.seen = (self.seen + 1.0).min(SLOW_INTERVALS);
            self.slow += (f64::from(u8::from(is_slow)) - self.slow) / self.seen;
        }
    }

    /// That many chunks are a small lead.
    fn small(&self) -> f64 {
        LEAST_CHUNKS.max(LEAST_PART * self.even)
    }

    /// The lead beside others that have this one. Who is slow all the time gets nothing back, but
    /// starves not: it has a quarter of its even part.
    pub fn compare(&mut self, usual: f64) {
        self.lead -= usual;
        if self.is_slow() {
            let over_least = (self.more + self.even - self.even / MAX_SHARE) / self.small();
            self.lead = self.lead.max(over_least.min(0.0));
        }
    }

    /// Whether it was slow nearly all the time of late.
    pub fn is_slow(&self) -> bool {
        self.slow > SLOW_PART
    }
}

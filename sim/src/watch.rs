//! The progress of a simulation, for a display. It decides nothing.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// What is done at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Sets are placed.
    Fill,
    /// Chunks are moved.
    Growth,
    /// Stores fail.
    Years,
    /// Clients write.
    Writes,
}

impl Phase {
    const ALL: [Self; 4] = [Self::Fill, Self::Growth, Self::Years, Self::Writes];

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fill => "placing sets",
            Self::Growth => "rebalancing",
            Self::Years => "failures",
            Self::Writes => "writing",
        }
    }
}

/// Told by the simulation, read by another thread.
#[derive(Debug, Default)]
pub struct Watch {
    phase: AtomicU8,
    done: AtomicU64,
    total: AtomicU64,
}

impl Watch {
    pub(crate) fn begin(&self, phase: Phase, total: u64) {
        self.done.store(0, Relaxed);
        self.total.store(total, Relaxed);
        self.phase.store(phase as u8, Relaxed);
    }

    pub(crate) fn add(&self, done: u64) {
        self.done.fetch_add(done, Relaxed);
    }

    /// What is done, how much of it, and of how much.
    pub fn look(&self) -> (Phase, u64, u64) {
        let phase = Phase::ALL[usize::from(self.phase.load(Relaxed)).min(Phase::ALL.len() - 1)];
        (phase, self.done.load(Relaxed), self.total.load(Relaxed))
    }
}

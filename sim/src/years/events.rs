//! What happens, in the order of its time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// A store is lost with its data. The number tells its lives apart.
    StoreLost(u16, u32),
    /// Several stores are lost at once.
    SeveralLost,
    /// A cabinet is away.
    CabinetAway(u32),
    /// It is back.
    CabinetBack(u32),
    /// An empty store is in the place of a lost one.
    Replaced(u16),
    /// Silent stores may count as out now.
    Look,
    /// Chunks are moved onto stores that were replaced.
    Rebalance,
    /// The chunks of a set are rebuilt.
    Rebuilt(u32),
}

/// The future. Times are in milliseconds; of events at the same time the first that was told is
/// first.
#[derive(Debug, Default)]
pub struct Events {
    heap: BinaryHeap<Reverse<(u64, u64, What)>>,
    number: u64,
}

impl Events {
    /// Something happens at a time.
    pub fn push(&mut self, at: u64, what: What) {
        self.number += 1;
        self.heap.push(Reverse((at, self.number, what)));
    }

    /// The next one.
    pub fn pop(&mut self) -> Option<(u64, What)> {
        self.heap.pop().map(|Reverse((at, _, what))| (at, what))
    }
}

//! What rebalancing sees of a set, and what it says.

use crate::{Position, SetId, TargetId};

/// A chunk set, as rebalancing sees it.
#[derive(Clone, Copy, Debug)]
pub struct SetPlaces<'a> {
    /// The set.
    pub set: SetId,
    /// The bytes that each of its chunks takes.
    pub chunk_bytes: u64,
    /// The chunks that it can lose: m, what a domain may have.
    pub spare: usize,
    /// Where its chunks are, by position.
    pub places: &'a [Option<TargetId>],
}

/// A chunk that goes to another target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The chunk set.
    pub set: SetId,
    /// The position of the chunk.
    pub position: Position,
    /// Where it is.
    pub from: TargetId,
    /// Where it goes.
    pub to: TargetId,
    /// Its bytes.
    pub bytes: u64,
}

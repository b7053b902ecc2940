//! The numbers by which a volume calls what it has: a type for each, so that none is taken for
//! another. They are stored, sent and printed as plain numbers.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The number of a target in its volume. It is never given to another target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TargetId(pub u16);

/// The number of a chunk set in its volume. It is never given to another chunk set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SetId(pub u64);

/// The number of a file or directory in its volume. It is never given to another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ino(pub u64);

/// The number of a client's session with a volume. It is never given to another session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SessionId(pub u64);

impl SessionId {
    /// What is said in place of a number where there is no session: no session has it.
    pub const NONE: Self = Self(0);

    /// This number, unless it stands for no session.
    pub fn given(self) -> Option<Self> {
        (self != Self::NONE).then_some(self)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

/// The position of a block in its stripe, and of a chunk in its set: 0 to k+m-1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position(pub u16);

impl Position {
    /// The position with this index. No set has so many chunks that it would not fit.
    #[must_use]
    pub const fn at(index: usize) -> Self {
        Self(index as u16)
    }

    /// Its index in what is ordered by position.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// All positions of a set of `blocks` chunks.
    pub fn all(blocks: usize) -> impl Iterator<Item = Self> {
        (0..blocks).map(Self::at)
    }

    /// The chunks that have a place: their positions, and their targets.
    pub fn placed(places: &[Option<TargetId>]) -> impl Iterator<Item = (Self, TargetId)> {
        Self::all(places.len()).zip(places).filter_map(|(position, id)| Some((position, (*id)?)))
    }
}

impl fmt::Display for Position {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

/// The number of a stripe in its volume. Of two stripes of a writer, the later one has the higher
/// number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StripeSeq(pub u64);

/// Where the record of a stripe begins in its chunks, in bytes from the beginning of a chunk: it is
/// the same in every chunk of the set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RecordOffset(pub u32);

impl RecordOffset {
    /// The offset that follows this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for RecordOffset {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

impl SetId {
    /// The highest number.
    pub const MAX: Self = Self(u64::MAX);

    /// The number that follows this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The `count` numbers below this one, or all if there are fewer.
    pub fn below(self, count: u64) -> impl Iterator<Item = Self> {
        (self.0.saturating_sub(count)..self.0).map(Self)
    }
}

impl fmt::Display for SetId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

impl Ino {
    /// The root directory of a volume.
    pub const ROOT: Self = Self(1);

    /// The number that is `count` above this one.
    #[must_use]
    pub const fn plus(self, count: u64) -> Self {
        Self(self.0 + count)
    }

    /// This number and those above it.
    pub fn onwards(self) -> impl Iterator<Item = Self> {
        (self.0..).map(Self)
    }
}

impl fmt::Display for Ino {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

/// The number of a committed transaction, counted from 1. 0 is the state before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TxId(pub u64);

impl TxId {
    /// The highest number.
    pub const MAX: Self = Self(u64::MAX);

    /// The number that follows this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// How many transactions there are after `earlier`, up to this one.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The number before this one; 0 has none and stays.
    #[must_use]
    pub const fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

impl fmt::Display for TxId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

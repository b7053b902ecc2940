//! What a block turned out to be.

use std::fmt;

/// The state of the block at a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// The block is as it was written.
    Sound,
    /// There is no chunk that could hold it.
    Missing,
    /// Something else is there; the text says what is wrong.
    Corrupt(String),
    /// Its target is slower than usual.
    Late,
    /// Its target is missing, fails or does not answer; the text says why.
    Unreachable(String),
}

impl fmt::Display for BlockState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sound => f.write_str("sound"),
            Self::Missing => f.write_str("its chunk is missing"),
            Self::Late => f.write_str("its target is late"),
            Self::Corrupt(why) | Self::Unreachable(why) => f.write_str(why),
        }
    }
}

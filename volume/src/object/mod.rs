//! Objects: files that were encoded on their own, as one chunk per position of their code.
//!
//! One operation per file. What they share: a [`Source`] gives stripes of data to the encoder, an
//! [`Object`] is what [`find()`] made out of the fragments in some directories, and a stripe reader
//! (`recover`) gets its blocks, verified, from wherever they can be had.

mod decode;
mod encode;
mod find;
mod fragment;
mod inspect;
mod parallel;
mod problems;
mod recover;
mod repair;
mod rows;
mod search;
mod source;
mod survival;
mod verify;

pub use decode::{DecodeOptions, Destination, decode};
pub use encode::{EncodeOptions, Encoded, default_block_bytes, encode};
pub use find::{Object, find};
pub use fragment::Fragment;
pub use inspect::{Inspection, inspect};
pub use problems::{Problem, ProblemKind, Problems};
pub use repair::{Repaired, repair};
pub use source::Source;
pub use survival::survives;
pub use verify::{FragmentState, Report, verify};

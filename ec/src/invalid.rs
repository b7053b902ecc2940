//! Why a code cannot be had: typed, and as a text that says what would work.

use crate::codes::catalogue::{CATALOGUE, DEFAULT_PACKET, MAX_PACKET_BYTES, MAX_PRIME};
use crate::spec::{MAX_BLOCKS, MAX_SPEC_BYTES, Shape, Spec};
use gf::select::NoKernel;
use std::fmt;

/// Why a code cannot be had. The text is one line, with the nearest code that works where there is
/// one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidCode {
    /// The text is not of the form `NAME:K+M` or `NAME:K+M,PARAMETER=VALUE`.
    Malformed(String),
    /// The text has more than [`MAX_SPEC_BYTES`] bytes.
    TooLong,
    /// A parameter occurs twice.
    Repeated {
        /// The whole text.
        text: String,
        /// The parameter.
        parameter: String,
    },
    /// No family has this name.
    UnknownFamily(String),
    /// The family takes other numbers after the colon.
    Numbers {
        /// Its name.
        family: &'static str,
        /// A spec of the right form.
        example: &'static str,
    },
    /// The family has no such parameter.
    UnknownParameter {
        /// The family's name.
        family: String,
        /// What was asked for.
        parameter: String,
        /// The parameters that it has.
        allowed: &'static [&'static str],
    },
    /// The family exists, and not in this shape or with this value of a parameter.
    Unsupported {
        /// What was asked for.
        spec: Spec,
        /// Which of the family's limits that breaks.
        limit: Limit,
    },
    /// The kernel that `WEFT_KERNEL` asks for is not available.
    Kernel(NoKernel),
}

/// A limit of a family of codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// At least one data block.
    MinData,
    /// At least one parity block.
    MinParity,
    /// At most [`MAX_BLOCKS`] blocks, the points of GF(2^8).
    MaxBlocks,
    /// At most this many data blocks with this number of parity blocks.
    MaxData(usize),
    /// At most this many parity blocks.
    MaxParity(usize),
    /// Exactly this many parity blocks.
    ExactParity(usize),
    /// No parity blocks.
    NoParity,
    /// One data block.
    OneData,
    /// At most 32 blocks: the family calculates in GF(32).
    SmallField,
    /// A local group has a data block, and there is a global parity.
    LocalGroups,
    /// An LRC has at most this many blocks.
    MaxLocal(usize),
    /// The matrix is not MDS in this shape; with `nearest` data blocks it is.
    NotMds {
        /// The most data blocks below those asked for.
        nearest: usize,
    },
    /// A parameter is an odd prime in this range.
    Prime {
        /// Its name.
        parameter: &'static str,
        /// The least value that holds the data blocks.
        at_least: usize,
        /// The least prime that works.
        works: usize,
    },
    /// A packet is a multiple of 8 bytes, from 8 to 64 KiB.
    Packet,
}

impl fmt::Display for InvalidCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(text) => write!(f, "{text:?} is not a code; write NAME:K+M, for example rs:4+2"),
            Self::TooLong => write!(f, "a code has at most {MAX_SPEC_BYTES} characters"),
            Self::Repeated { text, parameter } => write!(f, "{text:?} gives {parameter} twice"),
            Self::UnknownFamily(name) => {
                let names: Vec<&str> = CATALOGUE.iter().map(|family| family.name).collect();
                write!(f, "no code is called {name:?}; there are {}", names.join(", "))
            }
            Self::Numbers { family: "lrc", example } => {
                write!(f, "lrc takes data blocks, local and global parities: {example}")
            }
            Self::Numbers { family, example } => write!(f, "{family} takes data and parity blocks: {example}"),
            Self::UnknownParameter { family, parameter, allowed: [] } => {
                write!(f, "{family} takes no parameters, and {parameter:?} is one")
            }
            Self::UnknownParameter { family, parameter, allowed } => {
                write!(f, "{family} has no parameter {parameter:?}, only {}", allowed.join(" and "))
            }
            Self::Unsupported { spec, limit } => unsupported(f, spec, *limit),
            Self::Kernel(why) => why.fmt(f),
        }
    }
}

/// One line: the spec, the limit that it breaks, and what works.
fn unsupported(f: &mut fmt::Formatter<'_>, spec: &Spec, limit: Limit) -> fmt::Result {
    let (name, Shape { k, m }) = (&spec.name, spec.shape());
    match limit {
        Limit::MinData => write!(f, "{spec}: there must be at least one data block"),
        Limit::MinParity => {
            write!(f, "{spec}: there must be at least one parity block; for none write none:{k}")
        }
        Limit::MaxBlocks => {
            write!(f, "{spec} has more than {MAX_BLOCKS} blocks, the points of GF(2^8)")?;
            match MAX_BLOCKS.checked_sub(m).filter(|&most| most > 0) {
                Some(most) => write!(f, "; rs:{most}+{m} is the widest with m = {m}"),
                None => Ok(()),
            }
        }
        Limit::MaxData(most) => write!(f, "{spec}: {name} has k <= {most} here; {name}:{most}+{m} works"),
        Limit::MaxParity(most) => write!(f, "{spec}: {name} has m <= {most}; {name}:1+{most} works"),
        Limit::ExactParity(m) => write!(f, "{spec}: {name} has m = {m}; {name}:{}+{m} works", k.min(254)),
        Limit::NoParity => write!(f, "{spec}: none has no parity; write none:{k}"),
        Limit::OneData => {
            let copies = m + 1;
            write!(f, "{spec}: replica keeps whole copies, so k is 1; for {copies} copies write replica:1+{m}")
        }
        Limit::SmallField => write!(f, "{spec}: crs has at most 32 blocks; rs:{k}+{m} works"),
        Limit::LocalGroups => {
            write!(f, "{spec}: each of the local groups needs a data block, and one global parity at least; lrc:12+2+2")
        }
        Limit::MaxLocal(most) => write!(f, "{spec}: at most {most} blocks"),
        Limit::NotMds { nearest } => write!(
            f,
            "{spec}: this matrix does not survive every loss of {m} blocks at {k}+{m}; {name}:{nearest}+{m} and \
             rs:{k}+{m} do"
        ),
        Limit::Prime { parameter, at_least, works } => write!(
            f,
            "{spec}: {parameter} must be an odd prime from {at_least} to {MAX_PRIME}; {parameter}={works} works"
        ),
        Limit::Packet => write!(
            f,
            "{spec}: packet must be a multiple of 8 from 8 to {MAX_PACKET_BYTES}; packet={DEFAULT_PACKET} is the \
             default"
        ),
    }
}

impl std::error::Error for InvalidCode {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Kernel(why) => Some(why),
            _ => None,
        }
    }
}

impl From<NoKernel> for InvalidCode {
    fn from(why: NoKernel) -> Self {
        Self::Kernel(why)
    }
}

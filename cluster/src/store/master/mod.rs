//! Stripes that a store codes for clients (as the Master of their chunk set), and blocks that it
//! rebuilds for repairs. `asking` is the requesting side, `answering` and `rebuilding` are the
//! store's side. Each message contains everything that the bytes of a stripe depend on, so a Master
//! keeps no state between them.

mod answering;
mod asking;
mod peers;
mod rebuilding;

pub(super) use answering::{Asked, Masters, asked};
pub(super) use rebuilding::lost;

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The operations, in addition to those on targets.
pub(super) const DISTRIBUTE: u16 = 64;
pub(super) const REBUILD: u16 = 65;
/// Status of an answer: the Master has as many stripes as it takes.
const BUSY: u16 = 2;

/// When too few stores have answered to tell which are late, a Master reports a store without an
/// answer as failed after this time. That is before its client considers the Master itself silent.
const SLAVE_ANSWERS: Duration = Duration::from_secs(8);
/// A client asks a Master whether it lives after this part of the time that the Master may take.
/// For a Master that is usually quick this is half a second.
const PROBE_DIVISOR: u32 = 6;
/// A live Master answers within this time. By then the delay is as long as one that a late store
/// causes.
const PROBE_TIMEOUT: Duration = Duration::from_millis(600);
/// How long a stripe waits for space at a Master.
const SPACE_TIMEOUT: Duration = Duration::from_secs(1);

/// An order to rebuild ends within this time, done or not. Only work that can wait depends on it,
/// so a rebuilding store may be slow to answer that it lives.
const REBUILDS: Duration = Duration::from_secs(60);
const REBUILDER_TIMEOUT: Duration = Duration::from_secs(5);

/// A stripe as a client sends it. Its data is the payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stripe<'a> {
    volume: [u8; 16],
    set: u64,
    code: &'a str,
    /// When the set was created: seconds and nanoseconds.
    created: (i64, u32),
    record: u32,
    sequence: u64,
    manifest_bytes: u32,
    /// How many blocks beyond k the Master waits for.
    spare: u16,
    /// CRC-64/NVME of the payload.
    checksum: u64,
    /// The token that permits it; empty where none is needed.
    #[serde(borrow)]
    token: &'a [u8],
    /// The address of this store as the client writes it.
    server: &'a str,
    /// The targets of the blocks, by position. An empty address means no target.
    #[serde(borrow)]
    places: Vec<&'a str>,
}

/// An order to rebuild blocks of some stripes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Lost<'a> {
    volume: [u8; 16],
    set: u64,
    code: &'a str,
    /// The stripes, as record and block length.
    stripes: Vec<(u32, u32)>,
    /// The token that permits it; empty where none is needed.
    #[serde(borrow)]
    token: &'a [u8],
    /// The address of this store as the requesting server writes it.
    server: &'a str,
    /// The targets that have the blocks, by position. An empty address means no target.
    #[serde(borrow)]
    places: Vec<&'a str>,
    /// The positions to rebuild, and the targets of their new chunks.
    #[serde(borrow)]
    wanted: Vec<(u16, &'a str)>,
}

/// The result of a stripe.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Done {
    /// Positions that failed, each with its error.
    failed: Vec<(u16, Vec<u8>)>,
    /// Times of the steps MP, PC, DD and SP, in nanoseconds.
    cost: [u64; 4],
}

//! Stripes that a store codes for clients (its chunk set's Master): `asking` is the client's half, `answering` the store's. The client says everything that the
//! bytes of a stripe depend on with each of them, so that a Master remembers nothing.

mod answering;
mod asking;

pub(super) use answering::{Masters, asked};

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The operation, beside those on targets.
pub(super) const DISTRIBUTE: u16 = 64;
/// The status of an answer of a Master that has as many stripes as it takes.
const BUSY: u16 = 2;

/// After so long a Master reports a store that does not answer as failed, if too few others did to know that it is late: before its client takes it for silent
/// itself.
const SLAVE_ANSWERS: Duration = Duration::from_secs(8);
/// A Master is asked whether it lives after this part of the time that it may take: half a second when it is usually quick.
const UNASKED: u32 = 6;
/// It says so within this time. As much as a store that is late costs is over then.
const LIVES: Duration = Duration::from_millis(600);
/// A stripe waits so long for room at a Master.
const ROOM_COMES: Duration = Duration::from_secs(1);

/// A stripe, as a client sends it. Its data is the payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stripe<'a> {
    volume: [u8; 16],
    set: u64,
    code: &'a str,
    /// When the set was begun: seconds and nanoseconds.
    created: (i64, u32),
    record: u32,
    sequence: u64,
    manifest_bytes: u32,
    /// Blocks that are waited for, beyond k.
    spare: u16,
    /// CRC-64/NVME of the payload.
    checksum: u64,
    /// What permits it; empty where nothing is needed.
    #[serde(borrow)]
    token: &'a [u8],
    /// What the client calls this store.
    server: &'a str,
    /// Where the blocks go, by position; nowhere if it is empty.
    #[serde(borrow)]
    places: Vec<&'a str>,
}

/// What became of it.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Done {
    /// Positions that failed, each with its error.
    failed: Vec<(u16, Vec<u8>)>,
    /// Nanoseconds of MP, PC, DD and SP.
    cost: [u64; 4],
}

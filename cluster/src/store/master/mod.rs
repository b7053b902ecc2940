//! Stripes that a store codes for clients (its chunk set's Master), and those that it makes again for whoever repairs: `asking` is the half of who asks,
//! `answering` and `rebuilding` are the store's. With each of them everything is said that the bytes of a stripe depend on, so that a Master remembers nothing.

mod answering;
mod asking;
mod peers;
mod rebuilding;

pub(super) use answering::{Asked, Masters, asked};
pub(super) use rebuilding::lost;

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The operations, beside those on targets.
pub(super) const DISTRIBUTE: u16 = 64;
pub(super) const REBUILD: u16 = 65;
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

/// What is ordered at a time is made again within this time, or left. Nobody waits for it who could not wait, so that who makes it may be slow to say that it lives.
const REBUILDS: Duration = Duration::from_secs(60);
const REBUILDER_LIVES: Duration = Duration::from_secs(5);

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

/// Stripes of which blocks are to be made again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Lost<'a> {
    volume: [u8; 16],
    set: u64,
    code: &'a str,
    /// By record and block length.
    stripes: Vec<(u32, u32)>,
    /// What permits it; empty where nothing is needed.
    #[serde(borrow)]
    token: &'a [u8],
    /// What whoever asks calls this store.
    server: &'a str,
    /// Where the blocks are, by position; nowhere if it is empty.
    #[serde(borrow)]
    places: Vec<&'a str>,
    /// What is to be made, and where its new chunk is.
    #[serde(borrow)]
    wanted: Vec<(u16, &'a str)>,
}

/// What became of it.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Done {
    /// Positions that failed, each with its error.
    failed: Vec<(u16, Vec<u8>)>,
    /// Nanoseconds of MP, PC, DD and SP.
    cost: [u64; 4],
}

//! Stripes that a store codes for clients (as the Master of their chunk set), and blocks that it
//! rebuilds for repairs. `asking` is the requesting side, `answering` and `rebuilding` are the
//! store's side. Each message contains everything that the bytes of a stripe depend on, so a Master
//! keeps no state between them.

mod answering;
mod asking;
#[cfg(test)]
mod boot_tests;
mod peers;
mod rebuilding;

pub(super) use answering::{Asked, Masters, asked};
pub(super) use rebuilding::lost;

use super::protocol::encode;
use plan::{Position, RecordOffset, SetId, StripeSeq};
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
    set: SetId,
    code: &'a str,
    /// When the set was created: seconds and nanoseconds.
    created: (i64, u32),
    record: RecordOffset,
    sequence: StripeSeq,
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
    set: SetId,
    code: &'a str,
    /// The stripes, as record and block length.
    stripes: Vec<(RecordOffset, u32)>,
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
    wanted: Vec<(Position, &'a str)>,
}

/// The result of a stripe.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Done {
    /// Positions that failed, each with its error.
    failed: Vec<(Position, Vec<u8>)>,
    /// Times of the steps MP, PC, DD and SP, in nanoseconds.
    cost: [u64; 4],
}

/// The boot number of the machine that took each block, by position, as the store tells it with a
/// write. 0: it is not known, or there is no such block.
type Boots = Vec<u64>;

/// Encodes the result of a stripe. The boot numbers are behind it: an older client ignores them.
fn encode_done(done: &Done, boots: &Boots) -> Vec<u8> {
    [encode(done), encode(boots)].concat()
}

/// Decodes the result of a stripe. An older Master tells no boot numbers.
fn decode_done(body: &[u8]) -> Option<(Done, Boots)> {
    let (done, rest) = postcard::take_from_bytes(body).ok()?;
    Some((done, postcard::from_bytes(rest).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::{Fence, FenceMessage};
    use crate::golden::{is_table, line, row};
    use crate::store::gather::{Gather, Gathered};
    use plan::SessionId;
    use plan::report::{Report, TargetReport, Ticks, Work};

    #[test]
    fn messages_have_fixed_bytes() {
        let stripe = Stripe {
            volume: [0xab; 16],
            set: SetId(70_000),
            code: "rs:4+2",
            created: (-1, 300),
            record: RecordOffset(16),
            sequence: StripeSeq(301),
            manifest_bytes: 302,
            spare: 2,
            checksum: 0x1122_3344_5566_7788,
            token: b"token",
            server: "here:1",
            places: vec!["here:1/disk1", ""],
        };
        let lost = Lost {
            volume: [0xab; 16],
            set: SetId(70_000),
            code: "rs:4+2",
            stripes: vec![(RecordOffset(16), 4096), (RecordOffset(300), 1)],
            token: b"token",
            server: "here:1",
            places: vec!["here:1/disk1", ""],
            wanted: vec![(Position(1), "there:1/disk2")],
        };
        let done = || Done { failed: vec![(Position(3), b"why".to_vec())], cost: [1, 300, 70_000, 0] };
        let boots = vec![300, 0, u64::MAX];
        let told = encode_done(&done(), &boots);
        assert_eq!(decode_done(&told), Some((done(), boots)));
        // A program of before leaves what it does not know, and says less.
        assert_eq!(postcard::from_bytes::<Done>(&told).unwrap(), done());
        assert_eq!(decode_done(&encode(&done())), Some((done(), Vec::new())));
        let lines = [
            row!("stripe", Stripe<'_>, stripe),
            row!("rebuild", Lost<'_>, lost),
            row!("done", Done, done()),
            line("done-boots", &told),
        ];
        is_table(include_str!("../../golden/master.txt"), &lines);
    }

    #[test]
    fn reports_and_fences_have_fixed_bytes() {
        let target = |name: &str, space| TargetReport { name: name.into(), space, accesses: 300, queued: 2 };
        let report = Report {
            uptime: Duration::new(5, 6),
            processor: Ticks { idle: 300, all: 301 },
            received_bytes: 302,
            sent_bytes: 303,
            connections: 7,
            request_bytes: 304,
            targets: vec![target("disk1", Some((1 << 40, 1 << 30))), target("disk2", None)],
        };
        let fence = Fence { volume: [0xab; 16], next: SessionId(300), live: [7, 299].map(SessionId).to_vec() };
        let message = FenceMessage { token: b"token".to_vec(), fence: fence.clone() };
        let encoded = postcard::to_stdvec(&message).unwrap();
        let decoded: FenceMessage = postcard::from_bytes(&encoded).unwrap();
        assert_eq!((decoded.token, decoded.fence), (message.token, message.fence));
        let work = Work {
            coded_stripes: 300,
            coded_bytes: 70_000,
            waited: vec![301, 1 << 40],
            writes: vec![(0, 0), (7, 300)],
        };
        let both = [postcard::to_stdvec(&report).unwrap(), postcard::to_stdvec(&work).unwrap()].concat();
        // A program of before leaves what it does not know.
        assert_eq!(postcard::from_bytes::<Report>(&both).unwrap(), report);
        let gather = Gather { token: b"token", others: vec!["there:1", "there:2"], within_ms: 750 };
        let gathered: Gathered = vec![Ok((300, b"report".to_vec())), Err("why".into())];
        let lines = [
            row!("report", Report, report),
            row!("work", Work, work),
            row!("fence", Fence, fence),
            line("fence-message", &encoded),
            row!("gather", Gather<'_>, gather),
            row!("gathered", Gathered, gathered),
        ];
        is_table(include_str!("../../golden/report.txt"), &lines);
    }
}

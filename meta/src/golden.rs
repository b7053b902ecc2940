//! The bytes of every value of the metadata. They were made from `docs/format.md`, not by this
//! code: what differs from them is another format, which needs another version.

use crate::record::{Content, Dinode, DirectoryDelta, DirectoryState, Entry, Home, decode, encode};
use crate::{Attributes, Kind, SetRecord, StripeRecord, Time, Totals, keys};
use plan::{Extent, Place, Span, TargetId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// That the value has these bytes, in hexadecimal, and that they are this value.
#[track_caller]
pub(crate) fn is_fixed<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T, bytes: &str) {
    let encoded = encode(value);
    assert_eq!(hex(&encoded), bytes, "{value:?}");
    assert_eq!(decode::<T>(&encoded).as_ref(), Ok(value));
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A line of a table: a name and the bytes of a value, which decode to this value.
#[track_caller]
pub(crate) fn row<T: Serialize + DeserializeOwned + PartialEq + Debug>(name: &str, value: &T) -> String {
    let encoded = encode(value);
    assert_eq!(decode::<T>(&encoded).as_ref(), Ok(value));
    format!("{name} {}", hex(&encoded))
}

/// That these lines are the table's. If not, all of them are shown.
#[track_caller]
pub(crate) fn table(expected: &str, lines: &[String]) {
    assert!(expected.lines().eq(lines), "the bytes have changed; they are now:\n{}\n", lines.join("\n"));
}

const NO_TIMES: [Time; 4] = [Time { seconds: 0, nanoseconds: 0 }; 4];

fn dinode(ino: u64, kind: Kind, size: (u64, u64), times: [Time; 4], content: Content) -> Dinode {
    let [accessed, modified, changed, created] = times;
    let (size, allocated) = size;
    let (mode, uid, gid, links, device) = match kind {
        Kind::File => (0o644, 1000, 100, 1, 0),
        Kind::Symlink => (0o777, 0, 0, 2, 0),
        _ => (0o600, 0, 0, 0, 2049),
    };
    Dinode { ino, kind, mode, uid, gid, links, device, size, allocated, accessed, modified, changed, created, content }
}

fn span() -> Span {
    Span { set: 70_000, record: 16, block: 65_536, start: 128 }
}

#[test]
fn files_have_fixed_bytes() {
    let time = |seconds, nanoseconds| Time { seconds, nanoseconds };
    let extents = vec![
        Extent { offset: 0, length: 300, place: Place::Stripe(span()) },
        Extent { offset: 300, length: 3, place: Place::Bytes(b"abc"[..].into()) },
        Extent { offset: 4096, length: 4096, place: Place::Zero },
    ];
    let times = [time(1, 2), time(-3, 4), time(1_700_000_000, 999_999_999), time(0, 0)];
    let file = dinode(1000, Kind::File, (8192, 4399), times, Content::Here(extents));
    is_fixed(
        &Entry::Inside(file),
        "00e80700a403e8076401008040af220202050480c49fd50cff93ebdc030000000300ac0200f0a204108080048001ac0203010361\
         62638020802002",
    );
    is_fixed(&Entry::Elsewhere(1000, Kind::CharacterDevice), "01e80706");
    is_fixed(&Home::Entry { parent: 1, name: b"name".to_vec() }, "0001046e616d65");
    let link = dinode(17, Kind::Symlink, (3, 0), NO_TIMES, Content::Link(b"../x".to_vec()));
    is_fixed(&Home::Here(link), "011102ff03000002000300000000000000000002042e2e2f78");
    let large = dinode(18, Kind::Socket, (1 << 40, u64::MAX >> 1), NO_TIMES, Content::Elsewhere);
    is_fixed(&Home::Here(large), "01120480030000008110808080808020ffffffffffffffff7f000000000000000001");
    let state = DirectoryState { modified: time(1, 2), changed: time(3, 4), entries: 5, directories: -1 };
    is_fixed(&state, "020206040a01");
    // What is added to it, as an operand of a merge.
    let delta = DirectoryDelta { modified: Some(time(1, 2)), changed: None, entries: -1, directories: 1 };
    is_fixed(&delta, "010202000102");
    let delta = DirectoryDelta { modified: None, changed: Some(time(3, 4)), entries: 300, directories: 0 };
    is_fixed(&delta, "00010604d80400");
    is_fixed(&(300u64, Place::Stripe(span())), "ac0200f0a204108080048001");
}

#[test]
fn chunk_sets_have_fixed_bytes() {
    let places = vec![Some(TargetId(0)), None, Some(TargetId(300))];
    let set = SetRecord { code: "rs:4+2".into(), places, sealed: true, length: 4096 };
    is_fixed(&set, "0672733a342b320301000001ac02018020");
    is_fixed(&StripeRecord { block: 65_536, live: -1 }, "80800401");
    is_fixed(&Totals { files: 2, bytes: 1 << 40 }, "04808080808040");
    is_fixed(&vec![1u16, 300], "0201ac02");
    // The next numbers of files and chunk sets, and the number of openings.
    is_fixed(&300u64, "ac02");
}

/// The records of requests that are carried out only once: the key, and the answers by operation.
#[test]
fn requests_have_fixed_bytes() {
    assert_eq!(hex(&keys::request(7, 300)), "4b0000000000000007000000000000012c");
    let attributes = Attributes {
        ino: 1000,
        kind: Kind::File,
        mode: 0o644,
        links: 1,
        uid: 1000,
        gid: 100,
        device: 0,
        size: 300,
        allocated: 128,
        accessed: Time { seconds: 1, nanoseconds: 2 },
        modified: Time { seconds: -3, nanoseconds: 4 },
        changed: Time { seconds: 5, nanoseconds: 6 },
        created: Time { seconds: 7, nanoseconds: 8 },
    };
    is_fixed(&attributes, "e80700a40301e8076400ac028001020205040a060e08");
    // Removals: whether it was the last name, and whether the file is an orphan.
    is_fixed(&(true, false), "0100");
    // Renames: the same of the file that was replaced.
    is_fixed(&Some((300u64, true, true)), "01ac020101");
    is_fixed(&None::<(u64, bool, bool)>, "00");
    // The other operations have no answer.
    is_fixed(&(), "");
}

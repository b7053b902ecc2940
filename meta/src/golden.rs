//! The bytes of every value of the metadata. They were made from `docs/format.md`, not by this
//! code: what differs from them is another format, which needs another version.

use crate::record::{Content, Dinode, DirectoryState, Entry, InodeLocation, decode, encode};
use crate::{FileKind, SetRecord, StripeRecord, Time, Totals};
use plan::{Extent, ExtentPlace, Ino, RecordOffset, SetId, Span, TargetId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// That the value has these bytes, in hexadecimal, and that they are this value.
#[track_caller]
pub(crate) fn is_fixed<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T, bytes: &str) {
    let encoded = encode(value);
    let hexadecimal: String = encoded.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hexadecimal, bytes, "{value:?}");
    assert_eq!(decode::<T>(&encoded).as_ref(), Ok(value));
}

const NO_TIMES: [Time; 4] = [Time { seconds: 0, nanoseconds: 0 }; 4];

fn dinode(ino: Ino, kind: FileKind, size: (u64, u64), times: [Time; 4], content: Content) -> Dinode {
    let [accessed, modified, changed, created] = times;
    let (size, allocated) = size;
    let (mode, uid, gid, links, device) = match kind {
        FileKind::File => (0o644, 1000, 100, 1, 0),
        FileKind::Symlink => (0o777, 0, 0, 2, 0),
        _ => (0o600, 0, 0, 0, 2049),
    };
    Dinode { ino, kind, mode, uid, gid, links, device, size, allocated, accessed, modified, changed, created, content }
}

fn span() -> Span {
    Span { set: SetId(70_000), record: RecordOffset(16), block: 65_536, start: 128 }
}

#[test]
fn files_have_fixed_bytes() {
    let time = |seconds, nanoseconds| Time { seconds, nanoseconds };
    let extents = vec![
        Extent { offset: 0, length: 300, place: ExtentPlace::Stripe(span()) },
        Extent { offset: 300, length: 3, place: ExtentPlace::Bytes(b"abc"[..].into()) },
        Extent { offset: 4096, length: 4096, place: ExtentPlace::Zero },
    ];
    let times = [time(1, 2), time(-3, 4), time(1_700_000_000, 999_999_999), time(0, 0)];
    let file = dinode(Ino(1000), FileKind::File, (8192, 4399), times, Content::Here(extents));
    is_fixed(
        &Entry::Inside(file),
        "00e80700a403e8076401008040af220202050480c49fd50cff93ebdc030000000300ac0200f0a204108080048001ac0203010361\
         62638020802002",
    );
    is_fixed(&Entry::Elsewhere(Ino(1000), FileKind::CharacterDevice), "01e80706");
    is_fixed(&InodeLocation::Entry { parent: Ino(1), name: b"name".to_vec() }, "0001046e616d65");
    let link = dinode(Ino(17), FileKind::Symlink, (3, 0), NO_TIMES, Content::Link(b"../x".to_vec()));
    is_fixed(&InodeLocation::Here(link), "011102ff03000002000300000000000000000002042e2e2f78");
    let large = dinode(Ino(18), FileKind::Socket, (1 << 40, u64::MAX >> 1), NO_TIMES, Content::Elsewhere);
    is_fixed(&InodeLocation::Here(large), "01120480030000008110808080808020ffffffffffffffff7f000000000000000001");
    let state = DirectoryState { modified: time(1, 2), changed: time(3, 4), entries: 5, directories: -1 };
    is_fixed(&state, "020206040a01");
    is_fixed(&(300u64, ExtentPlace::Stripe(span())), "ac0200f0a204108080048001");
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

//! The protocol of the storage server. A message's method is the number of the operation, its body
//! has the operands (postcard), and its payload has the data.

use crate::capability::Wanted;
use plan::{Position, SetId, TxId};
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;
use volume::target::{ClaimedChange, Presence, TargetFile};

/// Operations: those of [`volume::target::Target`], formatting a target, and requests for the
/// store's failure domain and its report.
pub mod method {
    pub const WRITE: u16 = 1;
    pub const READ: u16 = 2;
    pub const SYNC: u16 = 3;
    pub const RESERVE: u16 = 4;
    pub const TRIM: u16 = 5;
    pub const PUNCH: u16 = 6;
    pub const RENAME: u16 = 7;
    pub const REMOVE: u16 = 8;
    /// Of the metadata alone if the file is one of the metadata.
    pub const LIST: u16 = 9;
    pub const SPACE: u16 = 10;
    // 11 was a hint that nothing sent.
    pub const FORMAT: u16 = 12;
    pub const DOMAIN: u16 = 13;
    pub const WRITE_DURABLY: u16 = 14;
    /// The state of files under their names. The names and the answer are payloads.
    pub const PRESENCE: u16 = 15;
    /// The claim of a target; see [`volume::target::Target::claim`]. The request is the payload.
    pub const CLAIM: u16 = 16;
    /// A chunk gets no more records; see [`volume::target::Target::seal`]. Older stores do not know
    /// it, and say so.
    pub const SEAL: u16 = 17;
    pub const REPORT: u16 = 32;
    /// A metadata server tells the store which sessions live; see [`crate::capability::Fence`].
    pub const FENCE: u16 = 33;
    /// A metadata server asks a prime for the reports of its cabinet; see `gather`.
    /// A store that does not know it takes its body for operands, and refuses it.
    pub const GATHER: u16 = 34;
}

/// The permission that an operation needs. Clients may append to chunk sets that were given to
/// them, read, and test whether a target works (with files of a set that never exists). Everything
/// else is for servers. The module `append` defines an append.
pub fn wanted(method: u16, file: TargetFile) -> Wanted {
    match (method, file) {
        (method::SPACE | method::DOMAIN | method::REPORT, _) => Wanted::Nothing,
        (method::READ, TargetFile::Chunk { set, .. }) => Wanted::Read(set),
        (method::WRITE | method::WRITE_DURABLY | method::SYNC | method::SEAL, TargetFile::Chunk { set, .. }) => {
            Wanted::Write(set)
        }
        (method::WRITE | method::SYNC | method::REMOVE, TargetFile::NewChunk { set: fs::PROBE_SET, .. }) => {
            Wanted::Write(fs::PROBE_SET)
        }
        _ => Wanted::Everything,
    }
}

/// How an operation changes the volume as a whole, which needs the claim, and which file; None if
/// it does not.
pub fn change(method: u16, operands: &Operands<'_>) -> Option<(ClaimedChange, TargetFile)> {
    use method::{PUNCH, REMOVE, RENAME, RESERVE, SEAL, SYNC, TRIM, WRITE, WRITE_DURABLY};
    match method {
        WRITE | WRITE_DURABLY | SYNC | RESERVE | TRIM | SEAL => Some((ClaimedChange::Write, operands.file.into())),
        PUNCH | REMOVE => Some((ClaimedChange::Remove, operands.file.into())),
        RENAME => Some((ClaimedChange::Remove, operands.to.into())),
        _ => None,
    }
}

/// Whether an operation changes a file, so that a read token does not permit it.
pub fn changes(method: u16) -> bool {
    use method::{DOMAIN, LIST, PRESENCE, READ, REPORT, SPACE};
    !matches!(method, READ | LIST | PRESENCE | SPACE | DOMAIN | REPORT)
}

/// The name of a file in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum File {
    Label,
    NewLabel,
    Chunk(SetId, Position),
    NewChunk(SetId, Position),
    Journal(TxId),
    Snapshot(TxId),
}

impl From<TargetFile> for File {
    fn from(file: TargetFile) -> Self {
        match file {
            TargetFile::Label => Self::Label,
            TargetFile::NewLabel => Self::NewLabel,
            TargetFile::Chunk { set, position } => Self::Chunk(set, position),
            TargetFile::NewChunk { set, position } => Self::NewChunk(set, position),
            TargetFile::Journal { first } => Self::Journal(first),
            TargetFile::Snapshot { last } => Self::Snapshot(last),
        }
    }
}

impl From<File> for TargetFile {
    fn from(file: File) -> Self {
        match file {
            File::Label => Self::Label,
            File::NewLabel => Self::NewLabel,
            File::Chunk(set, position) => Self::Chunk { set, position },
            File::NewChunk(set, position) => Self::NewChunk { set, position },
            File::Journal(first) => Self::Journal { first },
            File::Snapshot(last) => Self::Snapshot { last },
        }
    }
}

/// Encodes the state of a file as one byte.
pub fn encode_presence(presence: Presence) -> u8 {
    match presence {
        Presence::Absent => 0,
        Presence::There => 1,
        Presence::Unnamed => 2,
    }
}

/// Decodes the state of a file. An unknown value means that the file is absent.
pub fn decode_presence(byte: u8) -> Presence {
    match byte {
        1 => Presence::There,
        2 => Presence::Unnamed,
        _ => Presence::Absent,
    }
}

/// Operands of every operation. Each operation uses some of them. The epoch of the client follows,
/// which an older store ignores; see [`super::claim::decode_epoch`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operands<'a> {
    /// The name of the target at its store.
    pub target: &'a str,
    pub file: File,
    /// The new name, for `RENAME`.
    pub to: File,
    /// Offset for a write, read or punch, in bytes.
    pub offset: u64,
    /// Length for a read, punch or reservation, in bytes.
    pub length: u64,
    /// For `READ`, offset and length of another range. Its data comes first in the answer, and the
    /// answer's body is the length of that data.
    pub also: Option<(u64, u64)>,
    /// The token that permits the operation; empty where none is needed.
    #[serde(borrow)]
    pub token: &'a [u8],
}

impl Operands<'_> {
    /// Total number of bytes to read.
    pub fn wanted_bytes(&self) -> u64 {
        self.length.saturating_add(self.also.map_or(0, |(_, length)| length))
    }
}

/// Encodes the body of a message.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("these types have no maps of unknown length, the only thing that fails")
}

/// The body of the answer to a write or a sync. It has the time that the store took from the end of
/// the request on, and a number that changes with every boot of its machine: what was written
/// before a boot and not synced may be lost.
pub fn encode_done(took: Duration, start: u64) -> Vec<u8> {
    encode(&(took.as_nanos() as u64, start))
}

/// Decodes that time, zero if the store did not send it, and that number, 0 if it did not.
pub fn decode_done(body: &[u8]) -> (Duration, u64) {
    let (took, start) = postcard::take_from_bytes(body).unwrap_or((0, &[][..]));
    (Duration::from_nanos(took), postcard::from_bytes(start).unwrap_or(0))
}

/// Status of an answer whose body is an [`io::Error`].
pub const FAILED: u16 = 1;

/// Status of an answer whose body is a text: why the token does not permit the operation. Another
/// token may.
pub const REFUSED: u16 = 3;

/// Status of an answer whose body is a refusal because of the claim of the target; see
/// [`super::claim::decode_refusal`].
pub const UNCLAIMED: u16 = 4;

/// An error with its number in the operating system, which is the most precise information for the
/// caller.
#[derive(Serialize, Deserialize)]
struct Failure {
    number: Option<i32>,
    what: String,
}

/// Encodes an error as the body of an answer.
pub fn encode_error(error: &io::Error) -> Vec<u8> {
    let kind = match error.kind() {
        // Errors without a number of their own that callers distinguish.
        io::ErrorKind::NotFound => Some(2),
        io::ErrorKind::StorageFull => Some(28),
        io::ErrorKind::AlreadyExists => Some(17),
        io::ErrorKind::ResourceBusy => Some(16),
        io::ErrorKind::TimedOut => Some(110),
        _ => None,
    };
    encode(&Failure { number: error.raw_os_error().or(kind), what: error.to_string() })
}

/// Decodes the error in the body of an answer.
pub fn decode_error(body: &[u8]) -> io::Error {
    match postcard::from_bytes::<Failure>(body) {
        Ok(Failure { number: Some(number), .. }) => io::Error::from_raw_os_error(number),
        Ok(Failure { what, .. }) => io::Error::other(what),
        Err(_) => io::Error::other("the storage server failed and did not say how"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes were made from the rules of postcard 1, not by this code.
    #[test]
    fn messages_have_fixed_bytes() {
        let fixed = |encoded: Vec<u8>, bytes: &str| {
            assert_eq!(encoded.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), bytes);
        };
        let operands = Operands {
            target: "disk1",
            file: File::Chunk(SetId(70_000), Position(3)),
            to: File::Label,
            offset: 4096,
            length: 65_536,
            also: Some((0, 80)),
            token: b"tok",
        };
        fixed(encode(&operands), "056469736b3102f0a2040300802080800401005003746f6b");
        fixed(encode_done(Duration::from_nanos(1500), 7), "dc0b07");
        fixed(encode(&Failure { number: Some(28), what: "full".into() }), "01380466756c6c");
        let files = [
            File::Label,
            File::NewLabel,
            File::Chunk(SetId(1), Position(2)),
            File::NewChunk(SetId(1), Position(2)),
            File::Journal(TxId(1)),
        ];
        fixed(encode(&(files, File::Snapshot(TxId(1)))), "000102010203010204010501");
    }

    #[test]
    fn errors_keep_what_they_mean() {
        for number in [2, 5, 28, 122] {
            let error = io::Error::from_raw_os_error(number);
            assert_eq!(decode_error(&encode_error(&error)).kind(), error.kind());
        }
        for kind in [io::ErrorKind::NotFound, io::ErrorKind::ResourceBusy, io::ErrorKind::TimedOut] {
            assert_eq!(decode_error(&encode_error(&kind.into())).kind(), kind);
        }
        assert_eq!(decode_error(&encode_error(&io::Error::other("odd"))).to_string(), "odd");
        assert_eq!(decode_error(b"\xff\xff").kind(), io::ErrorKind::Other);
    }

    /// A client may do what it needs; everything else, existing or future, is for servers.
    #[test]
    fn clients_append_and_read_and_do_nothing_else() {
        let chunk = TargetFile::Chunk { set: SetId(4), position: Position(1) };
        let others = [
            TargetFile::Label,
            TargetFile::NewLabel,
            TargetFile::NewChunk { set: SetId(4), position: Position(1) },
            TargetFile::Journal { first: TxId(1) },
            TargetFile::Snapshot { last: TxId(1) },
        ];
        for number in 0..100 {
            let expected = match number {
                method::READ => Wanted::Read(SetId(4)),
                method::WRITE | method::WRITE_DURABLY | method::SYNC | method::SEAL => Wanted::Write(SetId(4)),
                method::SPACE | method::DOMAIN | method::REPORT => Wanted::Nothing,
                _ => Wanted::Everything,
            };
            assert_eq!(wanted(number, chunk), expected, "{number}");
            assert!(
                expected == Wanted::Nothing || others.iter().all(|&file| wanted(number, file) == Wanted::Everything)
            );
            assert!(changes(number) || !matches!(expected, Wanted::Write(_)));
        }
    }

    #[test]
    fn times_arrive_and_garbage_is_none() {
        let took = Duration::from_nanos(123_456_789);
        assert_eq!(decode_done(&encode_done(took, u64::MAX)), (took, u64::MAX));
        // A store that sends only the time.
        assert_eq!(decode_done(&encode(&(took.as_nanos() as u64))), (took, 0));
        assert_eq!(decode_done(&[]), (Duration::ZERO, 0));
        assert_eq!(decode_done(&[0xFF; 20]), (Duration::ZERO, 0));
    }

    #[test]
    fn presences_keep_what_they_mean() {
        for presence in [Presence::Absent, Presence::There, Presence::Unnamed] {
            assert_eq!(decode_presence(encode_presence(presence)), presence);
        }
    }

    #[test]
    fn files_keep_their_names() {
        let files = [
            TargetFile::Label,
            TargetFile::NewLabel,
            TargetFile::Chunk { set: SetId(7), position: Position(3) },
            TargetFile::NewChunk { set: SetId::MAX, position: Position(u16::MAX) },
            TargetFile::Journal { first: TxId(9) },
            TargetFile::Snapshot { last: TxId(10) },
        ];
        for file in files {
            assert_eq!(TargetFile::from(File::from(file)), file);
        }
    }
}

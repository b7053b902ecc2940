//! What is asked of a storage server. The number of the operation is the method of the message, the operands are its body (postcard), data is its
//! payload.

use crate::capability::Wanted;
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;
use volume::target::{Presence, TargetFile};

/// Operations: those of [`volume::target::Target`], making a target, and asking what all targets of the store fail together with and how the store is.
pub mod method {
    pub const WRITE: u16 = 1;
    pub const READ: u16 = 2;
    pub const SYNC: u16 = 3;
    pub const RESERVE: u16 = 4;
    pub const TRIM: u16 = 5;
    pub const PUNCH: u16 = 6;
    pub const RENAME: u16 = 7;
    pub const REMOVE: u16 = 8;
    pub const LIST: u16 = 9;
    pub const SPACE: u16 = 10;
    pub const PREFETCH: u16 = 11;
    pub const FORMAT: u16 = 12;
    pub const DOMAIN: u16 = 13;
    pub const WRITE_DURABLY: u16 = 14;
    /// How files are under their names; which ones, and the answer, are payloads.
    pub const LOOK: u16 = 15;
    pub const REPORT: u16 = 32;
    /// A metadata server says which sessions live; see [`crate::capability::Fence`].
    pub const FENCE: u16 = 33;
}

/// What an operation takes. Clients append to the chunk sets that they were given, read, and try whether a target works (with files of a set that there
/// is not); all else is the servers' business. What appending is, `append` says.
pub fn wanted(method: u16, file: TargetFile) -> Wanted {
    match (method, file) {
        (method::SPACE | method::DOMAIN | method::REPORT, _) => Wanted::Nothing,
        (method::READ | method::PREFETCH, TargetFile::Chunk { set, .. }) => Wanted::Read(set),
        (method::WRITE | method::WRITE_DURABLY | method::SYNC, TargetFile::Chunk { set, .. }) => Wanted::Write(set),
        (method::WRITE | method::SYNC | method::REMOVE, TargetFile::NewChunk { set: fs::PROBE_SET, .. }) => {
            Wanted::Write(fs::PROBE_SET)
        }
        _ => Wanted::Everything,
    }
}

/// Whether an operation changes a file, so that a token for reading is of no use.
pub fn changes(method: u16) -> bool {
    use method::{DOMAIN, LIST, LOOK, PREFETCH, READ, REPORT, SPACE};
    !matches!(method, READ | PREFETCH | LIST | LOOK | SPACE | DOMAIN | REPORT)
}

/// The name of a file over the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum File {
    Label,
    NewLabel,
    Chunk(u64, u16),
    NewChunk(u64, u16),
    Journal(u64),
    Snapshot(u64),
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

/// How a file is, as one byte. What is not known means that it is not there.
pub fn encode_presence(presence: Presence) -> u8 {
    match presence {
        Presence::Absent => 0,
        Presence::There => 1,
        Presence::Unnamed => 2,
    }
}

/// What such a byte says.
pub fn decode_presence(byte: u8) -> Presence {
    match byte {
        1 => Presence::There,
        2 => Presence::Unnamed,
        _ => Presence::Absent,
    }
}

/// Operands of every operation: which are used depends on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operands<'a> {
    /// What the store calls the target.
    pub target: &'a str,
    pub file: File,
    /// The new name, for `RENAME`.
    pub to: File,
    /// Where to write, to read, to punch.
    pub offset: u64,
    /// How much to read, to punch, to reserve.
    pub length: u64,
    /// For `READ`, where else to read, and how much: that comes first, and its length is the body of the answer.
    pub also: Option<(u64, u64)>,
    /// The token that permits it; empty where none is needed.
    #[serde(borrow)]
    pub token: &'a [u8],
}

impl Operands<'_> {
    /// How much is to be read in all.
    pub fn wanted_bytes(&self) -> u64 {
        self.length.saturating_add(self.also.map_or(0, |(_, length)| length))
    }
}

/// The bytes of a message's body.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("these types have no maps of unknown length, the only thing that fails")
}

/// The body of the answer to a write or a sync: the time that the store took itself, from the end of the request on, and the start of its machine, which is another
/// number after each: what was written before one and not synced may be lost.
pub fn encode_done(took: Duration, start: u64) -> Vec<u8> {
    encode(&(took.as_nanos() as u64, start))
}

/// That time, none if the store did not say, and that number, 0 if it did not.
pub fn decode_done(body: &[u8]) -> (Duration, u64) {
    let (took, start) = postcard::take_from_bytes(body).unwrap_or((0, &[][..]));
    (Duration::from_nanos(took), postcard::from_bytes(start).unwrap_or(0))
}

/// The status of an answer that has an [`io::Error`].
pub const FAILED: u16 = 1;

/// That of one that says in a text why the token does not permit what was asked. Another token may.
pub const REFUSED: u16 = 3;

/// An error with its number of the operating system, which says most to whoever asked.
#[derive(Serialize, Deserialize)]
struct Failure {
    number: Option<i32>,
    what: String,
}

/// An error as the body of an answer.
pub fn encode_error(error: &io::Error) -> Vec<u8> {
    let kind = match error.kind() {
        // Errors that are not the system's own, and mean something to callers.
        io::ErrorKind::NotFound => Some(2),
        io::ErrorKind::StorageFull => Some(28),
        io::ErrorKind::AlreadyExists => Some(17),
        _ => None,
    };
    encode(&Failure { number: error.raw_os_error().or(kind), what: error.to_string() })
}

/// The error in the body of an answer.
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

    #[test]
    fn errors_keep_what_they_mean() {
        for number in [2, 5, 28, 122] {
            let error = io::Error::from_raw_os_error(number);
            assert_eq!(decode_error(&encode_error(&error)).kind(), error.kind());
        }
        assert_eq!(decode_error(&encode_error(&io::ErrorKind::NotFound.into())).kind(), io::ErrorKind::NotFound);
        assert_eq!(decode_error(&encode_error(&io::Error::other("odd"))).to_string(), "odd");
        assert_eq!(decode_error(b"\xff\xff").kind(), io::ErrorKind::Other);
    }

    /// What a client needs it may do; whatever else there is or will be takes a server.
    #[test]
    fn clients_append_and_read_and_do_nothing_else() {
        let chunk = TargetFile::Chunk { set: 4, position: 1 };
        let others = [
            TargetFile::Label,
            TargetFile::NewLabel,
            TargetFile::NewChunk { set: 4, position: 1 },
            TargetFile::Journal { first: 1 },
            TargetFile::Snapshot { last: 1 },
        ];
        for number in 0..100 {
            let expected = match number {
                method::READ | method::PREFETCH => Wanted::Read(4),
                method::WRITE | method::WRITE_DURABLY | method::SYNC => Wanted::Write(4),
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
        // A store that tells the time alone.
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
            TargetFile::Chunk { set: 7, position: 3 },
            TargetFile::NewChunk { set: u64::MAX, position: u16::MAX },
            TargetFile::Journal { first: 9 },
            TargetFile::Snapshot { last: 10 },
        ];
        for file in files {
            assert_eq!(TargetFile::from(File::from(file)), file);
        }
    }
}

//! Capabilities: permissions for clients to use chunks. The metadata server signs them with a key
//! that only it and the storage servers have.
//!
//! The metadata server returns a [`Token`] with its answers: write tokens for the chunk sets that
//! it placed for a session, read tokens for the extents that it returned to a session. A store
//! checks nothing else: every client that shows a token may do what the token permits, until it
//! expires or, for writes, its session ends. A process with the [`ClusterKey`] makes its own
//! tokens.
//!
//! ```text
//!  at  bytes
//!   0      4  magic "WEFC"
//!   4      1  version, 1
//!   5      1  rights: 1 read, 3 read and write, 7 everything on every target
//!   6      2  0
//!   8     16  volume; zeroes with everything
//!  24      8  chunk set; 0 with everything
//!  32      8  the session that it was given to
//!  40      8  when it expires, in milliseconds since 1970
//!  48     32  keyed BLAKE3 of the 48 bytes before
//! ```
//!
//! All numbers are little-endian. The key of the hash is derived from the cluster's key for this
//! purpose only.

mod cache;
mod deputy;
mod fence;
mod guard;
mod key;

pub(crate) use cache::CapabilityCache;
pub(crate) use deputy::{Deputy, Order, Orders};
pub use fence::{Fence, Message as FenceMessage};
pub use guard::{CLOCK_TOLERANCE, Guard, Wanted};
pub use key::{ClusterKey, KEY_FILE};

use plan::{SessionId, SetId};
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};
use volume::target::TargetFile;

/// Length of a token, in bytes.
pub const TOKEN_BYTES: usize = 80;
const SIGNED_BYTES: usize = 48;
const MAGIC: &[u8; 4] = b"WEFC";
const VERSION: u8 = 1;

/// The rights of a capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Rights {
    /// Read chunks of the set.
    Read = 1,
    /// Read chunks of the set and append to them.
    Write = 3,
    /// All operations on all targets: for the servers themselves.
    Everything = 7,
}

/// The content of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// The volume.
    pub volume: [u8; 16],
    /// The chunk set.
    pub set: SetId,
    /// What the holder may do with the chunk set.
    pub rights: Rights,
    /// The session that the metadata server gave it to.
    pub session: SessionId,
    /// When it expires, in milliseconds since 1970.
    pub expires_ms: u64,
}

/// A signed capability. Only a [`ClusterKey`] makes one that stores accept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token([u8; TOKEN_BYTES]);

impl fmt::Debug for Token {
    /// Omits the signature: a log must not contain a token that a store would accept.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({:?})", Capability::decode(&self.0))
    }
}

impl Token {
    /// The token as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The token in these bytes, whatever its content; None when the length is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The unverified content. This is for the process that shows the token, never for one that
    /// must check it.
    pub fn says(&self) -> Option<Capability> {
        Capability::decode(&self.0)
    }

    fn signature(&self) -> blake3::Hash {
        let signature: &[u8; TOKEN_BYTES - SIGNED_BYTES] = self.0.last_chunk().expect("a token is longer than that");
        blake3::Hash::from_bytes(*signature)
    }
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

impl Capability {
    fn encode(&self) -> [u8; SIGNED_BYTES] {
        let mut bytes = [0; SIGNED_BYTES];
        bytes[..4].copy_from_slice(MAGIC);
        bytes[4] = VERSION;
        bytes[5] = self.rights as u8;
        bytes[8..24].copy_from_slice(&self.volume);
        bytes[24..32].copy_from_slice(&self.set.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.session.0.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.expires_ms.to_le_bytes());
        bytes
    }

    /// Decodes a capability; None when the bytes are not a capability of this version.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let known = bytes.starts_with(MAGIC) && *bytes.get(4)? == VERSION && bytes.get(6..8)? == [0; 2];
        let rights = match *bytes.get(5)? {
            _ if !known => return None,
            1 => Rights::Read,
            3 => Rights::Write,
            7 => Rights::Everything,
            _ => return None,
        };
        let volume = *bytes.get(8..)?.first_chunk()?;
        let (set, session) = (SetId(u64_at(bytes, 24)?), SessionId(u64_at(bytes, 32)?));
        Some(Self { volume, set, rights, session, expires_ms: u64_at(bytes, 40)? })
    }
}

/// Why a store refuses an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The request has no token.
    Missing,
    /// The token is not signed with the cluster's key.
    Foreign,
    /// The token was valid and has expired.
    Expired,
    /// The token permits something else.
    Other,
    /// The session of the token has ended.
    Ended,
    /// The store has just started, and does not know yet whether the session has ended.
    Unfenced,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "a capability of the metadata server is needed and none was shown",
            Self::Foreign => "the capability is not signed with this cluster's key",
            Self::Expired => "the capability has expired, or the clocks of the servers differ by minutes",
            Self::Other => "the capability is for something else",
            Self::Ended => "the session that the capability was given to has ended",
            Self::Unfenced => "the store has just started, and the metadata server has not told it which sessions live",
        })
    }
}

/// The tokens that a process shows to stores.
pub trait Credentials: Send + Sync {
    /// The token for an operation on a file; `changes` says whether the operation changes the file.
    /// None when there is no such token.
    fn token(&self, file: TargetFile, changes: bool) -> Option<Token>;

    /// A store refused `refused`: returns another token if there is one. This may ask the metadata
    /// server.
    fn renew(&self, file: TargetFile, changes: bool, refused: Option<Token>) -> Option<Token>;
}

/// One fixed token for everything: a store that works for a client shows that client's token. Only
/// the client can renew it.
impl Credentials for Token {
    fn token(&self, _file: TargetFile, _changes: bool) -> Option<Token> {
        Some(*self)
    }

    fn renew(&self, _file: TargetFile, _changes: bool, _refused: Option<Token>) -> Option<Token> {
        None
    }
}

/// The chunk set of a file; None for a file that is not a chunk.
fn set_of(file: TargetFile) -> Option<SetId> {
    match file {
        TargetFile::Chunk { set, .. } | TargetFile::NewChunk { set, .. } => Some(set),
        _ => None,
    }
}

/// The current time in the unit of capabilities: milliseconds since 1970.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_capability() -> impl Strategy<Value = Capability> {
        let rights = prop_oneof![Just(Rights::Read), Just(Rights::Write), Just(Rights::Everything)];
        (any::<[u8; 16]>(), any::<u64>().prop_map(SetId), rights, any::<u64>().prop_map(SessionId), any::<u64>())
            .prop_map(|(volume, set, rights, session, expires_ms)| Capability {
                volume,
                set,
                rights,
                session,
                expires_ms,
            })
    }

    #[test]
    fn the_bytes_are_those_of_the_table() {
        let (volume, rights) = ([7; 16], Rights::Write);
        let capability = Capability { volume, set: SetId(0x0102), rights, session: SessionId(3), expires_ms: 0x0405 };
        let expected = [
            b"WEFC\x01\x03\0\0".as_slice(),
            &[7; 16],
            &[2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 5, 4, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(capability.encode()[..], expected.concat());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(capability in any_capability()) {
            prop_assert_eq!(Capability::decode(&capability.encode()), Some(capability));
        }

        #[test]
        fn what_is_no_capability_is_none(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            // Each capability has one encoding, so encoding the decoded one gives the same bytes.
            if let Some(capability) = Capability::decode(&bytes) {
                prop_assert_eq!(&capability.encode()[..], &bytes[..SIGNED_BYTES]);
            }
        }

        #[test]
        fn what_begins_like_one_is_read_or_not_and_never_wrongly(
            mut bytes in any::<[u8; SIGNED_BYTES]>(), rights in 0u8..9
        ) {
            bytes[..5].copy_from_slice(b"WEFC\x01");
            bytes[5..8].copy_from_slice(&[rights, 0, 0]);
            let decoded = Capability::decode(&bytes);
            prop_assert_eq!(decoded.is_some(), matches!(rights, 1 | 3 | 7));
            if let Some(capability) = decoded {
                prop_assert_eq!(capability.encode(), bytes);
            }
        }
    }
}

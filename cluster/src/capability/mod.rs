//! What a client may do with chunks, signed by the metadata server with a key that only it and the storage servers have.
//!
//! The metadata server gives a [`Token`] with its answers: to write with the chunk sets that it placed for a session, to read with the extents that it told a
//! session of. A store looks at nothing else: whoever shows a token may do what is in it, until it expires. A process with the [`ClusterKey`] makes its own.
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
//! Little-endian. The hash is under a key that is derived from the cluster's for this purpose alone.

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

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};
use volume::target::TargetFile;

/// Length of a token.
pub const TOKEN_BYTES: usize = 80;
const SIGNED_BYTES: usize = 48;
const MAGIC: &[u8; 4] = b"WEFC";
const VERSION: u8 = 1;

/// What may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Rights {
    /// The set's chunks may be read.
    Read = 1,
    /// They may be read and appended to.
    Write = 3,
    /// Everything: for the servers themselves.
    Everything = 7,
}

/// What a token says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// The volume.
    pub volume: [u8; 16],
    /// The chunk set.
    pub set: u64,
    /// What may be done with it.
    pub rights: Rights,
    /// The session that it was given to.
    pub session: u64,
    /// When it expires, in milliseconds since 1970.
    pub expires_ms: u64,
}

/// A capability that was signed. Only a [`ClusterKey`] makes one that a store believes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token([u8; TOKEN_BYTES]);

impl fmt::Debug for Token {
    /// Without the signature: a log is no place for what can be shown to a store.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({:?})", Capability::decode(&self.0))
    }
}

impl Token {
    /// As bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The token in these bytes, whatever it says; None when they are not as many as a token has.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// What it says, unverified: for whoever shows it, not for whoever is to believe it.
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
        bytes[24..32].copy_from_slice(&self.set.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.session.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.expires_ms.to_le_bytes());
        bytes
    }

    /// What these bytes say; None when they are no capability of this version.
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
        let (set, session) = (u64_at(bytes, 24)?, u64_at(bytes, 32)?);
        Some(Self { volume, set, rights, session, expires_ms: u64_at(bytes, 40)? })
    }
}

/// Why a store does not do what it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing was shown.
    Missing,
    /// What was shown is not signed with the cluster's key.
    Foreign,
    /// It was good, and is so no more.
    Expired,
    /// It is for something else.
    Other,
    /// The session that it was given to has ended.
    Ended,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "a capability of the metadata server is needed and none was shown",
            Self::Foreign => "the capability is not signed with this cluster's key",
            Self::Expired => "the capability has expired, or the clocks of the servers differ by minutes",
            Self::Other => "the capability is for something else",
            Self::Ended => "the session that the capability was given to has ended",
        })
    }
}

/// What a process shows to stores.
pub trait Credentials: Send + Sync {
    /// The token for an operation on a file that changes it, or not; None when there is none.
    fn token(&self, file: TargetFile, changes: bool) -> Option<Token>;

    /// A store refused that one: another, if there is one now. May ask the metadata server for it.
    fn renew(&self, file: TargetFile, changes: bool, refused: Option<Token>) -> Option<Token>;
}

/// One token for everything, as it was given: a store that works for a client shows that client's. Only the client can renew it.
impl Credentials for Token {
    fn token(&self, _file: TargetFile, _changes: bool) -> Option<Token> {
        Some(*self)
    }

    fn renew(&self, _file: TargetFile, _changes: bool, _refused: Option<Token>) -> Option<Token> {
        None
    }
}

/// The chunk set of a file, if it is of one.
fn set_of(file: TargetFile) -> Option<u64> {
    match file {
        TargetFile::Chunk { set, .. } | TargetFile::NewChunk { set, .. } => Some(set),
        _ => None,
    }
}

/// The time, as capabilities have it.
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
        (any::<[u8; 16]>(), any::<u64>(), rights, any::<u64>(), any::<u64>()).prop_map(
            |(volume, set, rights, session, expires_ms)| Capability { volume, set, rights, session, expires_ms },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(capability in any_capability()) {
            prop_assert_eq!(Capability::decode(&capability.encode()), Some(capability));
        }

        #[test]
        fn what_is_no_capability_is_none(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            // There is one way to write each down, so what is read is written the same.
            if let Some(capability) = Capability::decode(&bytes) {
                prop_assert_eq!(&capability.encode()[..], &bytes[..SIGNED_BYTES]);
            }
        }

        #[test]
        fn what_begins_like_one_is_read_or_not_and_never_wrongly(mut bytes in any::<[u8; SIGNED_BYTES]>(), rights in 0u8..9) {
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

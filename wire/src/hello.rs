//! The first message of each side: which versions it speaks, which features it has, and its
//! identity. All numbers are little-endian. This module only converts between bytes and structures.
//!
//! ```text
//!  at  bytes
//!   0      4  magic "WEFH"
//!   4      2  lowest version that the sender speaks
//!   6      2  highest version that the sender speaks
//!   8      8  feature bits
//!  16      2  role
//!  18      2  answer: 0 welcome, 1 refused: the text says why
//!  20      4  longest body that the sender accepts, in bytes
//!  24      4  longest payload that the sender accepts, in bytes
//!  28      2  length of the text, at most 4096
//!  30      2  0
//!  32      8  the client that all its channels share; 0 from a server
//!  40      4  CRC-32C of the text
//!  44      4  CRC-32C of the 44 bytes before
//!  48         the text: credentials of a client, or why it is refused
//! ```
//!
//! The layout before the text is the same in all versions, so that two sides without a common
//! version can say so.

use crate::frame::{FrameLimits, HEADER_BYTES, crc32c, u16_at, u32_at};
use std::fmt;
use std::ops::RangeInclusive;

/// The versions of the protocol that this crate speaks.
pub const VERSIONS: RangeInclusive<u16> = 1..=1;
/// Length of the message without its text, in bytes.
pub const HELLO_BYTES: usize = HEADER_BYTES;
/// Maximum length of the text, in bytes.
pub const TEXT_BYTES: usize = 4096;
const CHECKED_BYTES: usize = HELLO_BYTES - 4;
pub(crate) const MAGIC: &[u8; 4] = b"WEFH";

/// The role of a side in the cluster. Other values than the named ones are permitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Role(pub u16);

impl Role {
    /// A client of the cluster.
    pub const CLIENT: Self = Self(0);
    /// A storage server.
    pub const STORE: Self = Self(1);
    /// The metadata server.
    pub const META: Self = Self(2);
}

/// The first message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The lowest and the highest version that the sender speaks.
    pub versions: (u16, u16),
    /// The feature bits that the sender offers.
    pub features: u64,
    /// The role of the sender.
    pub role: Role,
    /// Whether the sender refuses the other side; the text then says why.
    pub refused: bool,
    /// The longest messages that the sender accepts.
    pub limits: FrameLimits,
    /// The number of the client, which all its channels share.
    pub client: u64,
    /// Credentials, or the reason of a refusal.
    pub text: Vec<u8>,
}

/// What two sides agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The highest version that both speak.
    pub version: u16,
    /// The features that both have.
    pub features: u64,
}

/// Why two sides cannot communicate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HelloError {
    /// There are fewer bytes than the message needs.
    Short,
    /// The magic is wrong.
    Magic,
    /// A checksum is wrong.
    Checksum,
    /// A field has an undefined value.
    Invalid,
    /// The text is too long.
    TooLong(usize),
    /// The sides have no common version.
    Versions {
        /// The versions of the other side.
        theirs: (u16, u16),
        /// The versions of this side.
        ours: (u16, u16),
    },
}

impl fmt::Display for HelloError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("the first message is cut short"),
            Self::Magic => {
                f.write_str("the other side does not speak the protocol of Weft (or TLS is on at one side only)")
            }
            Self::Checksum => f.write_str("wrong checksum of the first message"),
            Self::Invalid => f.write_str("the first message has a value that has no meaning"),
            Self::TooLong(bytes) => {
                write!(f, "the first message has a text of {bytes} bytes, at most {TEXT_BYTES} are taken")
            }
            Self::Versions { theirs, ours } => write!(
                f,
                "no common version: the other side speaks {} to {}, this one {} to {}; update the older one",
                theirs.0, theirs.1, ours.0, ours.1
            ),
        }
    }
}

impl std::error::Error for HelloError {}

impl Hello {
    /// Encodes the message.
    ///
    /// # Panics
    /// When the text is longer than `TEXT_BYTES`.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.text.len() <= TEXT_BYTES, "a text of at most {TEXT_BYTES} bytes");
        let mut bytes = vec![0; HELLO_BYTES];
        bytes[..4].copy_from_slice(MAGIC);
        bytes[4..6].copy_from_slice(&self.versions.0.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.versions.1.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.features.to_le_bytes());
        bytes[16..18].copy_from_slice(&self.role.0.to_le_bytes());
        bytes[18] = u8::from(self.refused);
        bytes[20..24].copy_from_slice(&self.limits.body_bytes.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.limits.payload_bytes.to_le_bytes());
        bytes[28..30].copy_from_slice(&(self.text.len() as u16).to_le_bytes());
        bytes[32..40].copy_from_slice(&self.client.to_le_bytes());
        bytes[40..44].copy_from_slice(&crc32c(&self.text).to_le_bytes());
        let checksum = crc32c(&bytes[..CHECKED_BYTES]);
        bytes[CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
        bytes.extend_from_slice(&self.text);
        bytes
    }

    /// The length of the text, from the first `HELLO_BYTES` bytes of the message.
    ///
    /// # Errors
    /// When these bytes are not a valid message.
    pub fn text_bytes(bytes: &[u8]) -> Result<usize, HelloError> {
        if !bytes.iter().zip(MAGIC).all(|(byte, expected)| byte == expected) {
            return Err(HelloError::Magic);
        }
        let bytes: &[u8; HELLO_BYTES] = bytes.first_chunk().ok_or(HelloError::Short)?;
        if crc32c(&bytes[..CHECKED_BYTES]) != u32_at(bytes, CHECKED_BYTES) {
            return Err(HelloError::Checksum);
        }
        let length = usize::from(u16_at(bytes, 28));
        if length > TEXT_BYTES { Err(HelloError::TooLong(length)) } else { Ok(length) }
    }

    /// Decodes the message at the beginning of the bytes.
    ///
    /// # Errors
    /// When the bytes are not a valid message.
    pub fn decode(bytes: &[u8]) -> Result<Self, HelloError> {
        let length = Self::text_bytes(bytes)?;
        let text = bytes.get(HELLO_BYTES..HELLO_BYTES + length).ok_or(HelloError::Short)?;
        let bytes: &[u8; HELLO_BYTES] = bytes.first_chunk().ok_or(HelloError::Short)?;
        if crc32c(text) != u32_at(bytes, 40) {
            return Err(HelloError::Checksum);
        }
        let (versions, answer) = ((u16_at(bytes, 4), u16_at(bytes, 6)), u16_at(bytes, 18));
        if versions.0 > versions.1 || answer > 1 || u16_at(bytes, 30) != 0 {
            return Err(HelloError::Invalid);
        }
        Ok(Self {
            versions,
            features: u64::from(u32_at(bytes, 8)) | u64::from(u32_at(bytes, 12)) << 32,
            role: Role(u16_at(bytes, 16)),
            refused: answer == 1,
            limits: FrameLimits { body_bytes: u32_at(bytes, 20), payload_bytes: u32_at(bytes, 24) },
            client: u64::from(u32_at(bytes, 32)) | u64::from(u32_at(bytes, 36)) << 32,
            text: text.to_vec(),
        })
    }

    /// Determines what both sides agree on.
    ///
    /// # Errors
    /// `Versions` when they have no common version.
    pub fn agree(&self, other: &Self) -> Result<Agreed, HelloError> {
        let version = self.versions.1.min(other.versions.1);
        if version < self.versions.0.max(other.versions.0) {
            return Err(HelloError::Versions { theirs: other.versions, ours: self.versions });
        }
        Ok(Agreed { version, features: self.features & other.features })
    }
}

#[cfg(test)]
#[path = "hello/tests.rs"]
mod tests;

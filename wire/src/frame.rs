//! The frame: a header of 48 bytes, then the body, then the payload. All numbers are little-endian.
//! This module only converts between bytes and structures.
//!
//! ```text
//!  at  bytes
//!   0      4  magic "WEFT"
//!   4      1  kind
//!   5      1  flags, 0
//!   6      2  requested method; 0 in answers
//!   8      2  status: 0 is success; 0 in requests
//!  10      2  0
//!  12      4  deadline in milliseconds from now, in requests
//!  16      8  id of the exchange, chosen by the client
//!  24      4  length of the body in bytes
//!  28      4  length of the payload in bytes
//!  32      4  CRC-32C of body and payload
//!  36      4  count: items that may be sent, in Open and Credit
//!  40      4  0
//!  44      4  CRC-32C of the 44 bytes before
//! ```
//!
//! Fields that are 0 here must be 0, so that they can get a meaning later; both sides then agree on
//! that meaning by a feature bit (`hello.rs`).

use crc_fast::{CrcAlgorithm, Digest};
use std::fmt;
use std::io::IoSlice;

/// Length of a header in bytes.
pub const HEADER_BYTES: usize = 48;
const CHECKED_BYTES: usize = HEADER_BYTES - 4;
pub(crate) const MAGIC: &[u8; 4] = b"WEFT";

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// Client to server: a request for one Response.
    Request = 1,
    /// Server to client: the answer to a Request.
    Response = 2,
    /// Either direction: a message without an answer.
    OneWay = 3,
    /// Client to server: a request for Items and an End. The server may send `count` items before
    /// the first Credit.
    Open = 4,
    /// Server to client: one of the items of an Open.
    Item = 5,
    /// Server to client: the last frame of an Open.
    End = 6,
    /// Client to server: the server may send `count` more items.
    Credit = 7,
    /// Client to server: the client no longer wants the answer.
    Cancel = 8,
    /// Either direction: a request for a Pong.
    Ping = 9,
    /// Either direction: the sender is still there.
    Pong = 10,
    /// Server to client: send no more requests on this connection; answers will still arrive.
    Goodbye = 11,
}

impl FrameKind {
    const ALL: [Self; 11] = [
        Self::Request,
        Self::Response,
        Self::OneWay,
        Self::Open,
        Self::Item,
        Self::End,
        Self::Credit,
        Self::Cancel,
        Self::Ping,
        Self::Pong,
        Self::Goodbye,
    ];

    /// Whether frames of this kind may have a body and a payload.
    pub fn has_content(self) -> bool {
        !matches!(self, Self::Credit | Self::Cancel | Self::Ping | Self::Pong | Self::Goodbye)
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of the frame.
    pub kind: FrameKind,
    /// The requested method.
    pub method: u16,
    /// 0, or the service's error number.
    pub status: u16,
    /// Milliseconds until the client stops waiting for the answer.
    pub deadline_ms: u32,
    /// The exchange of the frame.
    pub id: u64,
    /// Length of the body in bytes.
    pub body_bytes: u32,
    /// Length of the payload in bytes.
    pub payload_bytes: u32,
    /// CRC-32C of body and payload.
    pub checksum: u32,
    /// How many items the server may send.
    pub count: u32,
}

/// The longest body and payload that a side accepts, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLimits {
    /// Limit of the body.
    pub body_bytes: u32,
    /// Limit of the payload.
    pub payload_bytes: u32,
}

impl Default for FrameLimits {
    /// A body of 1 MiB, a payload of 64 MiB.
    fn default() -> Self {
        Self { body_bytes: 1 << 20, payload_bytes: 64 << 20 }
    }
}

/// Why bytes are not a valid frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// There are fewer bytes than the frame needs.
    Short,
    /// The magic is wrong.
    Magic,
    /// The header's checksum is wrong.
    Header,
    /// The checksum of body and payload is wrong.
    Content,
    /// There is no kind with this number.
    FrameKind(u8),
    /// A reserved field is not 0.
    Reserved,
    /// The body or the payload exceeds the limit.
    TooLong {
        /// Its length in bytes.
        bytes: u32,
        /// The limit in bytes.
        limit: u32,
    },
    /// A body or a payload in a frame whose kind has none.
    Unexpected(FrameKind),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("the frame is cut short"),
            Self::Magic => f.write_str("these are not the bytes of a frame of Weft"),
            Self::Header => f.write_str("wrong checksum of a frame's header"),
            Self::Content => f.write_str("wrong checksum of a frame's content"),
            Self::FrameKind(kind) => write!(f, "unknown kind of frame {kind}"),
            Self::Reserved => f.write_str("a frame has bits that have no meaning"),
            Self::TooLong { bytes, limit } => {
                write!(f, "a frame has a part of {bytes} bytes, at most {limit} are taken")
            }
            Self::Unexpected(kind) => write!(f, "a frame {kind:?} has content"),
        }
    }
}

impl std::error::Error for FrameError {}

impl Header {
    /// A header without content; the other fields are 0.
    pub fn new(kind: FrameKind, id: u64) -> Self {
        Self { kind, method: 0, status: 0, deadline_ms: 0, id, body_bytes: 0, payload_bytes: 0, checksum: 0, count: 0 }
    }

    /// Sets the lengths and the checksum of a body and a payload.
    ///
    /// # Panics
    /// When one of them has 4 GiB or more; callers check the limits first.
    pub fn with_content(mut self, body: &[u8], parts: &[IoSlice<'_>]) -> Self {
        let payload: usize = parts.iter().map(|part| part.len()).sum();
        self.body_bytes = u32::try_from(body.len()).expect("a body below 4 GiB");
        self.payload_bytes = u32::try_from(payload).expect("a payload below 4 GiB");
        let mut checksum = Checksum::default();
        checksum.update(body);
        parts.iter().for_each(|part| checksum.update(part));
        self.checksum = checksum.value();
        self
    }

    /// Length of body and payload together, in bytes.
    pub fn content_bytes(&self) -> u64 {
        u64::from(self.body_bytes) + u64::from(self.payload_bytes)
    }

    /// Encodes the header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(MAGIC);
        bytes[4] = self.kind as u8;
        bytes[6..8].copy_from_slice(&self.method.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.status.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.deadline_ms.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.id.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.checksum.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.count.to_le_bytes());
        let checksum = crc32c(&bytes[..CHECKED_BYTES]);
        bytes[CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes the header at the beginning of the bytes.
    ///
    /// # Errors
    /// When they are not a valid header, or announce content beyond the limits.
    pub fn decode(bytes: &[u8], limits: FrameLimits) -> Result<Self, FrameError> {
        let bytes: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(FrameError::Short)?;
        if !bytes.starts_with(MAGIC) {
            return Err(FrameError::Magic);
        }
        if crc32c(&bytes[..CHECKED_BYTES]) != u32_at(bytes, CHECKED_BYTES) {
            return Err(FrameError::Header);
        }
        let kind =
            FrameKind::ALL.into_iter().find(|&kind| kind as u8 == bytes[4]).ok_or(FrameError::FrameKind(bytes[4]))?;
        if bytes[5] != 0 || u16_at(bytes, 10) != 0 || u32_at(bytes, 40) != 0 {
            return Err(FrameError::Reserved);
        }
        let header = Self {
            kind,
            method: u16_at(bytes, 6),
            status: u16_at(bytes, 8),
            deadline_ms: u32_at(bytes, 12),
            id: u64::from(u32_at(bytes, 16)) | u64::from(u32_at(bytes, 20)) << 32,
            body_bytes: u32_at(bytes, 24),
            payload_bytes: u32_at(bytes, 28),
            checksum: u32_at(bytes, 32),
            count: u32_at(bytes, 36),
        };
        if !kind.has_content() && header.content_bytes() + u64::from(header.checksum) != 0 {
            return Err(FrameError::Unexpected(kind));
        }
        limits.check(header.body_bytes, header.payload_bytes)?;
        Ok(header)
    }
}

impl FrameLimits {
    /// Checks these lengths of a body and a payload.
    ///
    /// # Errors
    /// `TooLong` when one exceeds its limit.
    pub fn check(&self, body_bytes: u32, payload_bytes: u32) -> Result<(), FrameError> {
        for (bytes, limit) in [(body_bytes, self.body_bytes), (payload_bytes, self.payload_bytes)] {
            if bytes > limit {
                return Err(FrameError::TooLong { bytes, limit });
            }
        }
        Ok(())
    }
}

/// Decodes the frame at the beginning of the bytes into header, body and payload.
///
/// # Errors
/// When the bytes do not begin with a complete and valid frame within the limits.
pub fn split(bytes: &[u8], limits: FrameLimits) -> Result<(Header, &[u8], &[u8]), FrameError> {
    let header = Header::decode(bytes, limits)?;
    let content = &bytes[HEADER_BYTES..];
    let (body, rest) = content.split_at_checked(header.body_bytes as usize).ok_or(FrameError::Short)?;
    let payload = rest.get(..header.payload_bytes as usize).ok_or(FrameError::Short)?;
    if crc32c(&content[..body.len() + payload.len()]) != header.checksum {
        return Err(FrameError::Content);
    }
    Ok((header, body, payload))
}

/// Computes a CRC-32C piece by piece.
#[derive(Clone, Debug)]
pub(crate) struct Checksum(Digest);

impl Default for Checksum {
    fn default() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

impl Checksum {
    pub fn update(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.0.update(bytes);
        }
    }

    pub fn value(&self) -> u32 {
        self.0.finalize() as u32
    }
}

/// The CRC-32C of some bytes.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

pub(crate) fn u16_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn u32_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
#[path = "frame/tests.rs"]
mod tests;

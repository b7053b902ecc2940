//! The bytes of a chunk file: one header, then one record per stripe. `docs/format.md` gives the
//! tables.
//!
//! Everything here is a function of bytes: no I/O, no clock. Decoding accepts any bytes, damaged or
//! hostile: it returns a typed error, never panics, and allocates no more than it was given.

mod bytes;
mod chunk;
mod claim;
mod glance;
mod header;
mod layout;
mod object_id;
mod record;
mod timestamp;

pub use chunk::{CHUNK_HEADER_BYTES, ChunkHeader, GRANULE_BYTES, RECORD_ALIGNMENT, StripeHeader, VolumeId};
pub use claim::{
    CLAIM_BYTES, CLAIM_FILE_BYTES, Claim, ClaimRecord, Epoch, Holder, MAX_CLAIM_MIRRORS, MAX_HOLDER_ADDRESS,
    MAX_HOLDER_NAME, MAX_LEASE,
};
pub(crate) use glance::record_of;
pub use header::Header;
pub(crate) use header::valid_name;
pub use layout::{HEADER_BYTES, Layout, MAX_BLOCK_BYTES, MAX_OBJECT_BYTES, MAX_STRIPE_BYTES, MIN_BLOCK_BYTES};
pub use object_id::ObjectId;
pub use record::RecordHeader;
pub use timestamp::Timestamp;

use std::fmt;

/// The version that this build writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 1;

/// Why bytes are not a header of this format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormatError {
    /// There are fewer bytes than the structure needs.
    Short {
        /// The available bytes.
        have: usize,
        /// The required bytes.
        need: usize,
    },
    /// The magic number is missing: the bytes are something else, or their beginning is damaged.
    Magic,
    /// The checksum does not match the bytes.
    Checksum,
    /// The bytes are sound, but their format version is newer than this build.
    Newer(u32),
    /// The bytes are sound, but use incompatible features that this build does not know.
    Features(u64),
    /// The bytes are sound, but a field has a value that the format does not allow.
    Field(&'static str),
}

impl FormatError {
    /// Whether a newer Weft wrote these bytes: they are sound, but this build cannot use them.
    pub fn is_newer(&self) -> bool {
        matches!(self, Self::Newer(_) | Self::Features(_))
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { have, need } => write!(f, "{have} bytes are there and {need} are needed"),
            Self::Magic => f.write_str("the magic number is missing"),
            Self::Checksum => f.write_str("the checksum does not match"),
            Self::Newer(version) => {
                write!(f, "format version {version} is newer than {FORMAT_VERSION}, the newest that this weft reads")
            }
            Self::Features(bits) => write!(f, "it uses features that this weft does not know (bits {bits:#x})"),
            Self::Field(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for FormatError {}

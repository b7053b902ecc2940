//! The values of the metadata.

use crate::{Error, Result};
use plan::{Extent, TargetId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The bytes of a value.
pub(crate) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("these types have no maps of unknown length, the only thing that fails")
}

/// The value of some bytes. They were checksummed by the journal, so that others mean a newer format.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    postcard::from_bytes(bytes)
        .map_err(|why| Error::Corrupt(format!("a {} in the metadata: {why}", std::any::type_name::<T>())))
}

/// Nanoseconds since 1970-01-01 UTC, from year 1677 to 2262.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Time {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds after that second, below 10^9.
    pub nanoseconds: u32,
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A block device.
    BlockDevice,
    /// A character device.
    CharacterDevice,
}

/// An inode, which lives in the directory entry of its name if it has only one (ECFS, section IV: dinode).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dinode {
    /// Its number.
    pub ino: u64,
    /// What it is.
    pub kind: Kind,
    /// Permission bits, up to 07777.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names. Not kept for directories.
    pub links: u32,
    /// Device number, for devices.
    pub device: u32,
    /// Bytes of content.
    pub size: u64,
    /// Bytes of extents.
    pub allocated: u64,
    /// Last access.
    pub accessed: Time,
    /// Last change of content. Not kept for directories.
    pub modified: Time,
    /// Last change of anything. Not kept for directories.
    pub changed: Time,
    /// When it was made.
    pub created: Time,
    /// What is in it.
    pub content: Content,
}

/// What is in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// Extents, ordered, when there are few.
    Here(Vec<Extent>),
    /// Extents under keys of their own.
    Elsewhere,
    /// Where a symbolic link leads.
    Link(Vec<u8>),
}

/// The value of a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// The file itself.
    Inside(Dinode),
    /// The number and kind of a file with several names.
    Elsewhere(u64, Kind),
}

/// Where a file's dinode is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Home {
    /// In the entry of its only name.
    Entry {
        /// The directory.
        parent: u64,
        /// The name.
        name: Vec<u8>,
    },
    /// Here: it has several names, or none, or is the root.
    Here(Dinode),
}

/// What changes in a directory when an entry comes or goes, kept apart from its dinode and changed by blind deltas, so that creating
/// a file writes no inode of the parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryState {
    /// Last change of its entries.
    pub modified: Time,
    /// Last change of anything.
    pub changed: Time,
    /// Entries.
    pub entries: i64,
    /// Those that are directories.
    pub directories: i64,
}

/// A delta of a [`DirectoryState`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DirectoryDelta {
    pub modified: Option<Time>,
    pub changed: Option<Time>,
    pub entries: i64,
    pub directories: i64,
}

/// A chunk set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetRecord {
    /// The code's canonical spec.
    pub code: String,
    /// Where its chunks are, by position.
    pub places: Vec<Option<TargetId>>,
    /// Nothing is written to it any more.
    pub sealed: bool,
    /// Where the next record would go, known once it is sealed; 0 before.
    pub length: u32,
}

/// A stripe that some file refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StripeRecord {
    /// The length of its blocks.
    pub block: u32,
    /// Bytes of files in it, counted as often as they are referred to.
    pub live: i64,
}

/// Counts over the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Files of any kind, the root included.
    pub files: i64,
    /// Bytes that files refer to.
    pub bytes: i64,
}

/// How deltas change values; see [`crate::kv::MergeFn`].
pub(crate) fn merge(key: &[u8], old: Option<&[u8]>, operand: &[u8]) -> Option<Vec<u8>> {
    // A value that cannot be read counts as none: it was checksummed, so that this does not happen.
    match key.first() {
        Some(&crate::keys::DIRECTORY) => {
            let mut state: DirectoryState = old.and_then(|old| decode(old).ok()).unwrap_or_default();
            let delta: DirectoryDelta = decode(operand).unwrap_or_default();
            state.modified = delta.modified.unwrap_or(state.modified);
            state.changed = delta.changed.unwrap_or(state.changed);
            state.entries = state.entries.saturating_add(delta.entries);
            state.directories = state.directories.saturating_add(delta.directories);
            Some(encode(&state))
        }
        Some(&crate::keys::STRIPE) => {
            let delta: StripeRecord = decode(operand).ok()?;
            let live = old.and_then(|old| decode::<StripeRecord>(old).ok()).map_or(0, |old| old.live);
            Some(encode(&StripeRecord { live: live.saturating_add(delta.live), ..delta }))
        }
        _ => {
            let mut totals: Totals = old.and_then(|old| decode(old).ok()).unwrap_or_default();
            let delta: Totals = decode(operand).unwrap_or_default();
            totals.files = totals.files.saturating_add(delta.files);
            totals.bytes = totals.bytes.saturating_add(delta.bytes);
            Some(encode(&totals))
        }
    }
}

//! The values of the metadata.

use crate::kv::KvError;
use crate::{Error, Result};
use plan::{Extent, Ino, RecordOffset, SetId, TargetId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A stripe to which nothing refers any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeadStripe {
    /// The chunk set.
    pub set: SetId,
    /// The start of its record.
    pub record: RecordOffset,
    /// The length of its blocks, in bytes.
    pub block: u32,
}

/// Encodes a value.
pub(crate) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("these types have no maps of unknown length, the only thing that fails")
}

/// Decodes a value. The journal has verified its checksum, so an error means a newer format.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    postcard::from_bytes(bytes)
        .map_err(|why| Error::Corrupt(format!("a {} in the metadata: {why}", std::any::type_name::<T>())))
}

/// Nanoseconds since 1970-01-01 UTC, from year 1677 to 2262.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Time {
    /// Seconds since 1970-01-01 UTC.
    pub seconds: i64,
    /// Nanoseconds within that second, below 10^9.
    pub nanoseconds: u32,
}

/// The type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileKind {
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

/// An inode. It is stored in the directory entry of its name if it has only one (ECFS, section IV:
/// dinode).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dinode {
    /// The inode number.
    pub ino: Ino,
    /// The type.
    pub kind: FileKind,
    /// Permission bits, up to 07777.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names. Not maintained for directories.
    pub links: u32,
    /// Device number, for devices.
    pub device: u32,
    /// Size of the content, in bytes.
    pub size: u64,
    /// Size of the extents, in bytes.
    pub allocated: u64,
    /// Last access.
    pub accessed: Time,
    /// Last change of content. Not maintained for directories.
    pub modified: Time,
    /// Last change of content or attributes. Not maintained for directories.
    pub changed: Time,
    /// Creation time.
    pub created: Time,
    /// The content.
    pub content: Content,
}

/// The content of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// A small number of extents, in order.
    Here(Vec<Extent>),
    /// The extents have keys of their own.
    Elsewhere,
    /// The target of a symbolic link.
    Link(Vec<u8>),
}

/// The value of a directory entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// The file's dinode.
    Inside(Dinode),
    /// The number and type of a file with several names.
    Elsewhere(Ino, FileKind),
}

/// The place of a file's dinode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InodeLocation {
    /// In the entry of its only name.
    Entry {
        /// The directory.
        parent: Ino,
        /// The name in that directory.
        name: Vec<u8>,
    },
    /// Here: the file has several names or none, or is the root.
    Here(Dinode),
}

/// The part of a directory that changes when an entry comes or goes. It is separate from the dinode
/// and changed by blind deltas, so that creating a file does not write the parent's inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryState {
    /// Last change of its entries.
    pub modified: Time,
    /// Last change of entries or attributes.
    pub changed: Time,
    /// Number of entries.
    pub entries: i64,
    /// Number of entries that are directories.
    pub directories: i64,
}

/// A delta to a [`DirectoryState`].
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
    /// The target of each chunk, by position.
    pub places: Vec<Option<TargetId>>,
    /// No more stripes are written to it.
    pub sealed: bool,
    /// The position of the next record, known once the set is sealed; 0 before.
    pub length: u32,
}

/// A stripe to which some file refers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StripeRecord {
    /// The length of its blocks, in bytes.
    pub block: u32,
    /// Bytes of files in it; bytes with several references count several times.
    pub live: i64,
}

/// Totals of the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Files of any type, including the root.
    pub files: i64,
    /// Bytes to which files refer.
    pub bytes: i64,
}

type Merged<T> = std::result::Result<T, KvError>;

/// How deltas change values; see [`crate::kv::MergeFn`].
///
/// # Errors
/// `Corrupt` when the old value or the delta cannot be decoded. To count such a value as absent
/// would count what it says as dead.
pub(crate) fn merge(key: &[u8], old: Option<&[u8]>, operand: &[u8]) -> Merged<Option<Vec<u8>>> {
    Ok(Some(match key.first() {
        Some(&crate::keys::DIRECTORY) => {
            let (mut state, delta): (DirectoryState, DirectoryDelta) = (present(old)?, readable(operand)?);
            state.modified = delta.modified.unwrap_or(state.modified);
            state.changed = delta.changed.unwrap_or(state.changed);
            state.entries = state.entries.saturating_add(delta.entries);
            state.directories = state.directories.saturating_add(delta.directories);
            encode(&state)
        }
        Some(&crate::keys::STRIPE) => {
            let delta: StripeRecord = readable(operand)?;
            let live = old.map(readable::<StripeRecord>).transpose()?.map_or(0, |old| old.live);
            encode(&StripeRecord { live: live.saturating_add(delta.live), ..delta })
        }
        _ => {
            let (mut totals, delta): (Totals, Totals) = (present(old)?, readable(operand)?);
            totals.files = totals.files.saturating_add(delta.files);
            totals.bytes = totals.bytes.saturating_add(delta.bytes);
            encode(&totals)
        }
    }))
}

fn present<T: DeserializeOwned + Default>(old: Option<&[u8]>) -> Merged<T> {
    old.map_or_else(|| Ok(T::default()), readable)
}

fn readable<T: DeserializeOwned>(bytes: &[u8]) -> Merged<T> {
    decode(bytes).map_err(|why| KvError::Corrupt(format!("a value that changes cannot be read: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_cannot_be_read_is_an_error_and_not_nothing() {
        let stripe = encode(&StripeRecord { block: 4096, live: 5 });
        let directory = encode(&DirectoryDelta::default());
        let totals = encode(&Totals { files: 1, bytes: 2 });
        // A key of each kind, and a delta for it. The key of the totals is any other.
        let kinds = [(crate::keys::STRIPE, stripe), (crate::keys::DIRECTORY, directory), (0xFE, totals)];
        for (key, delta) in kinds {
            assert!(merge(&[key], None, &delta).unwrap().is_some());
            let truncated = &delta[..delta.len() - 1];
            for (old, delta) in [(None, truncated), (Some(&[0xFF; 3][..]), &delta[..]), (Some(&[][..]), &delta[..])] {
                let merged = merge(&[key], old, delta);
                assert!(matches!(merged, Err(KvError::Corrupt(_))), "{key}: {old:?} {delta:?}: {merged:?}");
            }
        }
    }
}

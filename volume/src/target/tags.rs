//! Extended attributes that describe a chunk file (parEC, section III): for a user who inspects a
//! directory without Weft, and for `weft recover`, which believes them where the file's own header
//! is damaged. They repeat what the header says; a file system without them loses nothing.
//!
//! What a chunk is, is written with its header. What a whole chunk has is written when it is
//! sealed, and is true until something is written to it or given back.

use super::machine::boot_id;
use super::records::Records;
use crate::format::{
    CHUNK_HEADER_BYTES, ChunkHeader, GRANULE_BYTES, HEADER_BYTES, Header, ObjectId, VolumeId, valid_name,
};
use plan::{Position, SetId};
use rustix::fs::{XattrFlags, fgetxattr, fremovexattr, fsetxattr};
use rustix::io::Errno;
use std::os::fd::AsFd;

/// What a sealed chunk has.
const OF_WHOLE: [&str; 3] = ["user.weft.length", "user.weft.records", "user.weft.checksum"];
/// No value is longer, in bytes: the longest is an object's name.
const MAX_VALUE_BYTES: usize = 256;

/// A name and a value.
type Tag = (&'static str, Vec<u8>);

/// What the attributes of a chunk of a volume say of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkTags {
    /// The volume.
    pub volume: VolumeId,
    /// The chunk set.
    pub set: SetId,
    /// The position in it.
    pub position: Position,
    /// The code's canonical spec.
    pub code: String,
    /// How many records the chunk had when it was sealed, and their checksum; None if it was not
    /// sealed or was changed since.
    pub records: Option<(usize, u64)>,
}

fn value(file: impl AsFd, name: &str) -> Option<Vec<u8>> {
    let mut value = [0; MAX_VALUE_BYTES];
    let length = fgetxattr(file, name, &mut value).ok()?;
    Some(value[..length].to_vec())
}

/// The 16 bytes that are written so.
fn id(digits: &str) -> Option<[u8; 16]> {
    let byte = |at: usize| u8::from_str_radix(digits.get(at * 2..at * 2 + 2)?, 16).ok();
    let bytes: Vec<u8> = (0..digits.len() / 2).map(byte).collect::<Option<_>>()?;
    bytes.try_into().ok()
}

/// The object's name, the object and the position that the attributes of a fragment say, if it has
/// any.
pub fn fragment_tags(file: impl AsFd) -> Option<(Vec<u8>, ObjectId, Position)> {
    let object = ObjectId(id(&String::from_utf8(value(&file, "user.weft.object")?).ok()?)?);
    let position = String::from_utf8(value(&file, "user.weft.position")?).ok()?;
    let name = value(&file, "user.weft.name").filter(|name| valid_name(name))?;
    Some((name, object, Position(position.parse().ok()?)))
}

impl ChunkTags {
    /// Reads the attributes of a file. None if it has none of a chunk, or the file system has none.
    pub fn read(file: impl AsFd) -> Option<Self> {
        let text = |name: &str| String::from_utf8(value(&file, name)?).ok();
        let volume = id(&text("user.weft.volume")?)?;
        let records = text("user.weft.records").and_then(|count| count.parse().ok());
        let checksum = text("user.weft.checksum").and_then(|sum| u64::from_str_radix(&sum, 16).ok());
        Some(Self {
            volume: VolumeId(volume),
            set: SetId(text("user.weft.set")?.parse().ok()?),
            position: Position(text("user.weft.position")?.parse().ok()?),
            code: text("user.weft.code")?,
            records: records.zip(checksum),
        })
    }
}

/// The boot in which a sync of the file failed.
const FAILED_IN: &str = "user.weft.failed-in-boot";

/// A sync of the file failed. What was not synced is lost, also if this process ends: another one
/// learns it from the file. After a boot it is lost anyway.
pub(super) fn mark_failed(file: impl AsFd) {
    boot_id().map(|boot| fsetxattr(file, FAILED_IN, &boot, XattrFlags::empty()));
}

/// Whether a sync of the file failed since the machine was booted.
pub(super) fn has_failed(file: impl AsFd) -> bool {
    value(file, FAILED_IN).is_some_and(|boot| boot_id() == Some(boot))
}

/// Whether files here have attributes.
pub(super) fn has_attributes(directory: impl AsFd) -> bool {
    let found = fgetxattr(directory, "user.weft.volume", &mut [0; 1]);
    !matches!(found, Err(Errno::OPNOTSUPP | Errno::NOSYS))
}

/// Writes what a file is if its first bytes are the header of a chunk or a fragment. A failure to
/// write them is ignored.
pub(super) fn tag(file: impl AsFd, first: &[u8], records: &Records) {
    let mut tags = tags_of(first);
    // The header of a fragment is the last that is written of it.
    if tags.first().is_some_and(|(name, _)| *name == "user.weft.object") {
        tags.extend(checksum_of(records));
    }
    set(file, tags);
}

/// Writes what a sealed chunk has.
pub(super) fn tag_whole(file: impl AsFd, length: u64, records: &Records) {
    untag_whole(&file);
    let mut tags = vec![(OF_WHOLE[0], number(length))];
    tags.extend(checksum_of(records));
    set(file, tags);
}

/// Removes what a sealed chunk has: it is no longer true.
pub(super) fn untag_whole(file: impl AsFd) {
    for name in OF_WHOLE {
        if fremovexattr(&file, name) == Err(Errno::OPNOTSUPP) {
            return;
        }
    }
}

fn set(file: impl AsFd, tags: Vec<Tag>) {
    for (name, value) in tags {
        if fsetxattr(&file, name, &value, XattrFlags::empty()).is_err() {
            return;
        }
    }
}

fn number(number: impl ToString) -> Vec<u8> {
    number.to_string().into_bytes()
}

fn checksum_of(records: &Records) -> Vec<Tag> {
    let Some((count, checksum)) = records.summary() else { return Vec::new() };
    vec![(OF_WHOLE[1], number(count)), (OF_WHOLE[2], format!("{checksum:016x}").into_bytes())]
}

fn tags_of(first: &[u8]) -> Vec<Tag> {
    if let Some(Ok(header)) = first.get(..CHUNK_HEADER_BYTES).map(ChunkHeader::decode) {
        let ChunkHeader { volume, set, position, shape: (k, m), code, unit, .. } = header;
        return vec![
            ("user.weft.volume", volume.0.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into_bytes()),
            ("user.weft.set", number(set)),
            ("user.weft.position", number(position)),
            ("user.weft.code", code.into_bytes()),
            ("user.weft.k", number(k)),
            ("user.weft.m", number(m)),
            ("user.weft.unit", number(unit)),
            ("user.weft.granule", number(GRANULE_BYTES)),
        ];
    }
    let Some(Ok(header)) = first.get(..HEADER_BYTES).map(Header::decode) else { return Vec::new() };
    let layout = &header.layout;
    vec![
        ("user.weft.object", number(header.object)),
        ("user.weft.code", header.code.into_bytes()),
        ("user.weft.position", number(header.position)),
        ("user.weft.size", number(layout.object_bytes())),
        ("user.weft.name", header.name),
        ("user.weft.k", number(layout.k())),
        ("user.weft.m", number(layout.m())),
        ("user.weft.unit", number(layout.unit())),
        ("user.weft.block", number(layout.full_block_bytes())),
        ("user.weft.granule", number(layout.granule_bytes())),
    ]
}

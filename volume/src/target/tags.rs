//! Extended attributes that describe a chunk file (parEC, section III), for a user who inspects a
//! directory without Weft. They repeat the chunk's header; nothing reads them back, and a file
//! system without them loses nothing.

use crate::format::{CHUNK_HEADER_BYTES, ChunkHeader};
use rustix::fs::{XattrFlags, fsetxattr};
use std::os::fd::AsFd;

/// Writes the attributes if the first bytes of a chunk are a header. A failure to write them is
/// ignored.
pub(super) fn tag(file: impl AsFd, first: &[u8]) {
    let Some(Ok(header)) = first.get(..CHUNK_HEADER_BYTES).map(ChunkHeader::decode) else { return };
    let ChunkHeader { volume, set, position, shape: (k, m), code, .. } = header;
    let volume: String = volume.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let tags = [
        ("user.weft.volume", volume),
        ("user.weft.set", set.to_string()),
        ("user.weft.position", position.to_string()),
        ("user.weft.code", code),
        ("user.weft.k", k.to_string()),
        ("user.weft.m", m.to_string()),
    ];
    for (name, value) in tags {
        if fsetxattr(&file, name, value.as_bytes(), XattrFlags::empty()).is_err() {
            return;
        }
    }
}

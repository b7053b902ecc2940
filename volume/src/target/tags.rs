//! Extended attributes that say on a chunk file itself what it is (parEC, section III), for whoever looks at a directory without Weft. They repeat the
//! chunk's header; nothing reads them back, and where the file system has none, nothing is missing.

use crate::format::{CHUNK_HEADER_BYTES, ChunkHeader};
use rustix::fs::{XattrFlags, fsetxattr};
use std::os::fd::AsFd;

/// Writes what the first bytes of a chunk say, if these are a header. That it cannot be written is no error.
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

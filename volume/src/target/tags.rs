//! Extended attributes that describe a chunk file (parEC, section III), for a user who inspects a
//! directory without Weft. They repeat the chunk's header; nothing reads them back, and a file
//! system without them loses nothing.

use crate::format::{CHUNK_HEADER_BYTES, ChunkHeader, HEADER_BYTES, Header};
use rustix::fs::{XattrFlags, fsetxattr};
use std::os::fd::AsFd;

/// Writes the attributes if the first bytes of a file are the header of a chunk or a fragment. A
/// failure to write them is ignored.
pub(super) fn tag(file: impl AsFd, first: &[u8]) {
    for (name, value) in tags_of(first) {
        if fsetxattr(&file, name, value.as_bytes(), XattrFlags::empty()).is_err() {
            return;
        }
    }
}

fn tags_of(first: &[u8]) -> Vec<(&'static str, String)> {
    if let Some(Ok(header)) = first.get(..CHUNK_HEADER_BYTES).map(ChunkHeader::decode) {
        let ChunkHeader { volume, set, position, shape: (k, m), code, .. } = header;
        return vec![
            ("user.weft.volume", volume.0.iter().map(|byte| format!("{byte:02x}")).collect()),
            ("user.weft.set", set.to_string()),
            ("user.weft.position", position.to_string()),
            ("user.weft.code", code),
            ("user.weft.k", k.to_string()),
            ("user.weft.m", m.to_string()),
        ];
    }
    let Some(Ok(header)) = first.get(..HEADER_BYTES).map(Header::decode) else { return Vec::new() };
    vec![
        ("user.weft.object", header.object.to_string()),
        ("user.weft.code", header.code),
        ("user.weft.position", header.position.to_string()),
        ("user.weft.size", header.layout.object_bytes().to_string()),
    ]
}

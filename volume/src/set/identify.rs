//! What a file is, as far as it says so itself: by its header, by its extended attributes, and for
//! a chunk by its name, in this order. So a chunk is known although two of them are lost.

use super::scan::{is_damage, scan};
use crate::format::{CHUNK_HEADER_BYTES, ChunkHeader, FormatError, Header, ObjectId, VolumeId};
use crate::target::{ChunkTags, FileName, Loose, TargetFile, chunk_of_name, fragment_tags, open_regular, read_at_most};
use plan::{Position, SetId};
use std::io;
use std::path::Path;

/// What a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A chunk of a volume.
    Chunk(FoundChunk),
    /// A fragment.
    Fragment {
        /// The object's name.
        name: Vec<u8>,
        /// The object: others may have the same name.
        object: ObjectId,
        /// The position.
        position: Position,
    },
    /// A file that is called as a fragment, and says nothing.
    Called {
        /// The beginning of its name: that of the object, which may be shortened.
        stem: Vec<u8>,
        /// The position that its name says.
        position: Position,
    },
    /// Something else, or a chunk that is too damaged to be known as one.
    Unknown,
}

/// A chunk that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundChunk {
    /// Its volume.
    pub volume: VolumeId,
    /// Its set.
    pub set: SetId,
    /// Its position in the set.
    pub position: Position,
    /// The code of its stripes; None if neither header nor attributes say it.
    pub code: Option<String>,
    /// How many records it had when it was sealed, and their checksum, as its attributes say.
    pub sealed: Option<(usize, u64)>,
    /// Whether its header is damaged.
    pub is_headless: bool,
}

/// Looks at a file. It is read whole only if it is called as a chunk and says nothing else.
///
/// # Errors
/// If it cannot be read, or only by a newer version. Damage where the header is counts as a header
/// that is not sound.
pub fn identify(path: &Path) -> io::Result<Identity> {
    let file = open_regular(path)?;
    let mut first = [0; CHUNK_HEADER_BYTES];
    let length = match read_at_most(&file, &mut first) {
        Err(why) if is_damage(&why) => 0,
        read => read?,
    };
    let first = &first[..length];
    let tags = ChunkTags::read(&file);
    if let Some(ChunkHeader { volume, set, position, code, .. }) = readable(ChunkHeader::decode(first))? {
        let own = tags.filter(|tags| (tags.volume, tags.set, tags.position) == (volume, set, position));
        let sealed = own.and_then(|tags| tags.records);
        let chunk = FoundChunk { volume, set, position, code: Some(code), sealed, is_headless: false };
        return Ok(Identity::Chunk(chunk));
    }
    if let Some(Header { name, object, position, .. }) = readable(Header::decode(first))? {
        return Ok(Identity::Fragment { name, object, position });
    }
    if let Some(ChunkTags { volume, set, position, code, records: sealed }) = tags {
        let chunk = FoundChunk { volume, set, position, code: Some(code), sealed, is_headless: true };
        return Ok(Identity::Chunk(chunk));
    }
    if let Some((name, object, position)) = fragment_tags(&file) {
        return Ok(Identity::Fragment { name, object, position });
    }
    let Some(name) = path.file_name() else { return Ok(Identity::Unknown) };
    if let Some(fragment) = FileName::parse(name).filter(|name| name.written_by.is_none()) {
        return Ok(Identity::Called { stem: fragment.stem, position: fragment.position });
    }
    let Some((set, position)) = name.to_str().and_then(chunk_of_name) else { return Ok(Identity::Unknown) };
    let (mut loose, chunk) = (Loose::default(), TargetFile::Chunk { set, position });
    loose.add(chunk, path);
    let volume = scan(&loose, chunk)?.records.first().map(|record| record.volume);
    let found = |volume| FoundChunk { volume, set, position, code: None, sealed: None, is_headless: true };
    Ok(volume.map_or(Identity::Unknown, |volume| Identity::Chunk(found(volume))))
}

/// A header, unless it is not sound. One of a newer version is not damaged: attributes and names
/// say nothing of what it means.
fn readable<T>(header: std::result::Result<T, FormatError>) -> io::Result<Option<T>> {
    match header {
        Err(why) if why.is_newer() => Err(io::Error::new(io::ErrorKind::InvalidData, why.to_string())),
        header => Ok(header.ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Timestamp;

    #[test]
    fn a_chunk_of_a_newer_version_is_no_damaged_one() {
        let code = ec::parse("rs:4+2").unwrap();
        let header = ChunkHeader {
            volume: VolumeId([3; 16]),
            set: SetId(5),
            position: Position(1),
            shape: (4, 2),
            code: code.spec().to_string(),
            unit: code.unit() as u32,
            created: Timestamp { seconds: 1, nanoseconds: 0 },
        };
        let path = std::env::temp_dir().join(format!("weft-identify-{}", std::process::id()));
        let mut bytes = header.encode();
        std::fs::write(&path, &bytes).unwrap();
        let found = identify(&path);
        assert!(matches!(&found, Ok(Identity::Chunk(FoundChunk { set: SetId(5), .. }))), "{found:?}");
        // The version, and with it the checksum, which is the last of the header.
        bytes[8] = 200;
        let at = bytes.len() - 8;
        let checksum = gf::checksum::crc64(&bytes[..at]);
        bytes[at..].copy_from_slice(&checksum.to_le_bytes());
        std::fs::write(&path, &bytes).unwrap();
        let found = identify(&path);
        std::fs::remove_file(&path).unwrap();
        let why = found.expect_err("it is not known what its bytes mean").to_string();
        assert!(why.contains("newer"), "{why}");
    }
}

//! What a file is, as far as it says so itself: by its header, by its extended attributes, and for
//! a chunk by its name, in this order. So a chunk is known although two of them are lost.

use super::verify::scan;
use crate::format::{CHUNK_HEADER_BYTES, ChunkHeader, Header, VolumeId};
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
        /// The position.
        position: Position,
    },
    /// A file that is called as a fragment of an object, whose name begins so, and says nothing.
    Called(Vec<u8>),
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
/// If it cannot be read.
pub fn identify(path: &Path) -> io::Result<Identity> {
    let file = open_regular(path)?;
    let mut first = [0; CHUNK_HEADER_BYTES];
    let length = read_at_most(&file, &mut first)?;
    let first = &first[..length];
    let tags = ChunkTags::read(&file);
    if let Ok(ChunkHeader { volume, set, position, code, .. }) = ChunkHeader::decode(first) {
        let own = tags.filter(|tags| (tags.volume, tags.set, tags.position) == (volume, set, position));
        let sealed = own.and_then(|tags| tags.records);
        let chunk = FoundChunk { volume, set, position, code: Some(code), sealed, is_headless: false };
        return Ok(Identity::Chunk(chunk));
    }
    if let Ok(header) = Header::decode(first) {
        return Ok(Identity::Fragment { name: header.name, position: header.position });
    }
    if let Some(ChunkTags { volume, set, position, code, records: sealed }) = tags {
        let chunk = FoundChunk { volume, set, position, code: Some(code), sealed, is_headless: true };
        return Ok(Identity::Chunk(chunk));
    }
    if let Some((name, position)) = fragment_tags(&file) {
        return Ok(Identity::Fragment { name, position });
    }
    let Some(name) = path.file_name() else { return Ok(Identity::Unknown) };
    if let Some(fragment) = FileName::parse(name).filter(|name| name.written_by.is_none()) {
        return Ok(Identity::Called(fragment.stem));
    }
    let Some((set, position)) = name.to_str().and_then(chunk_of_name) else { return Ok(Identity::Unknown) };
    let (mut loose, chunk) = (Loose::default(), TargetFile::Chunk { set, position });
    loose.add(chunk, path);
    let volume = scan(&loose, chunk)?.records.first().map(|record| record.volume);
    let found = |volume| FoundChunk { volume, set, position, code: None, sealed: None, is_headless: true };
    Ok(volume.map_or(Identity::Unknown, |volume| Identity::Chunk(found(volume))))
}

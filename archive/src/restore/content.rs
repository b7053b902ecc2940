//! Reads the content of a file of the volume, piece by piece, without its holes.

use crate::encode::hash::add_zeroes;
use blake3::Hasher;
use fs::{Error, FileSystem, Seek};
use plan::Ino;
use std::ops::Range;

/// How many bytes are read at a time: about a stripe.
const READ_PIECE_BYTES: u64 = 4 << 20;

/// Reads a range of a file and passes on its data; holes are only hashed. A file that loses its
/// name meanwhile is read to the end of the range.
pub fn read<E: From<Error>>(
    volume: &FileSystem,
    ino: Ino,
    range: Range<u64>,
    has_holes: bool,
    hasher: &mut Hasher,
    each: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    // One read takes a small file as it is.
    if range.end - range.start <= READ_PIECE_BYTES && !has_holes {
        return read_open(volume, ino, range, has_holes, hasher, each);
    }
    volume.open(ino, false)?;
    let read = read_open(volume, ino, range, has_holes, hasher, each);
    volume.close(ino);
    read
}

fn read_open<E: From<Error>>(
    volume: &FileSystem,
    ino: Ino,
    range: Range<u64>,
    has_holes: bool,
    hasher: &mut Hasher,
    mut each: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut at = range.start;
    let mut piece = vec![0; (range.end - range.start).min(READ_PIECE_BYTES) as usize];
    while at < range.end {
        let data = if has_holes { next_data(volume, ino, at, &range)? } else { range.clone() };
        add_zeroes(hasher, data.start - at);
        at = data.start;
        while at < data.end {
            let length = (data.end - at).min(READ_PIECE_BYTES) as usize;
            let got = volume.read(ino, at, &mut piece[..length])?;
            if got == 0 {
                return Err(Error::Stale.into());
            }
            hasher.update(&piece[..got]);
            each(at, &piece[..got])?;
            at += got as u64;
        }
    }
    Ok(())
}

fn next_data(volume: &FileSystem, ino: Ino, at: u64, range: &Range<u64>) -> Result<Range<u64>, Error> {
    let start = match volume.seek(ino, at, Seek::Data) {
        Err(Error::NoData) => return Ok(range.end..range.end),
        found => found?.min(range.end),
    };
    if start >= range.end {
        return Ok(range.end..range.end);
    }
    // A seek looks at all that follows, so its result is used up to the next hole.
    let end = volume.seek(ino, start, Seek::Hole)?;
    Ok(start..end.clamp(start + 1, range.end))
}

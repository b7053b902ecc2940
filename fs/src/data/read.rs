//! Reads files, and finds data and holes in them.

use crate::data::file::File;
use crate::{Error, FileSystem, Result};
use meta::FileKind;
use plan::extent::{Piece, pieces};
use plan::{Extent, ExtentMap, ExtentPlace, Ino};
use std::ops::{Range, RangeInclusive};
use std::time::{Duration, Instant};

/// How often a read is retried when the stripes that it needs are freed meanwhile.
const MAX_ATTEMPTS: usize = 5;
/// A read that takes this long and fails had targets that do not answer.
const SLOW_READ: Duration = Duration::from_secs(1);

/// How far to read ahead at least and at most, in bytes.
const READ_AHEAD_BYTES: RangeInclusive<usize> = 16 << 20..=64 << 20;

/// What `lseek` looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// Data.
    Data,
    /// A hole; the end of a file counts as one.
    Hole,
}

impl FileSystem {
    /// How far to read ahead in files that are read from front to back, in bytes: as many stripes
    /// as keep all targets busy.
    pub fn read_ahead_bytes(&self) -> usize {
        let (least, most) = (*READ_AHEAD_BYTES.start(), *READ_AHEAD_BYTES.end());
        (self.store.stripes_wanted() * self.store.full_stripe()).clamp(least, most)
    }

    /// Reads from a file. Returns the number of bytes read: fewer than requested only at the end of
    /// the file.
    ///
    /// # Errors
    /// When the file is removed, is not a regular file, or too much of its data is lost.
    pub fn read(&self, ino: Ino, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.counts.reads.counted(|read| *read, || self.read_at(ino, offset, into))
    }

    fn read_at(&self, ino: Ino, offset: u64, into: &mut [u8]) -> Result<usize> {
        let file = self.table.enter(ino);
        for attempt in 1.. {
            let (length, over, seen) = {
                let state = self.sized(&file)?;
                let size = state.buffer.size.unwrap_or(0);
                let range = offset.min(size)..size.min(offset.saturating_add(into.len() as u64));
                (range.end - range.start, state.buffer.read(range), state.seen())
            };
            if attempt > 1 {
                self.sharing().forget_extents(ino);
            }
            // The buffer was read first: data that a commit moves meanwhile is in both.
            let mut found = self.find_pieces(ino, over.clone())?;
            let mut length = length;
            if found.iter().any(|piece| piece.place.is_none()) {
                // This is a hole, or the file was truncated since its size was read: by this
                // process or by another client.
                if file.state().seen() != seen && attempt < MAX_ATTEMPTS {
                    continue;
                }
                if self.alone().is_none() {
                    let end = self.find_pieces_of_one_moment(&file, over, &mut found)?;
                    length = length.min(end.saturating_sub(offset));
                }
            }
            let into = &mut into[..length as usize];
            let begun = Instant::now();
            match self.fill_pieces(offset, &found, into) {
                Ok(()) => return Ok(into.len()),
                // The data may have been overwritten and its stripes freed meanwhile. A second look
                // shows where it is now. Do not wait again for targets that did not answer.
                Err(error) if attempt == MAX_ATTEMPTS => return Err(error),
                Err(error) if begun.elapsed() > SLOW_READ && !self.has_moved(ino, &found)? => return Err(error),
                Err(_) => {}
            }
        }
        unreachable!("the loop returns")
    }

    /// The places of a range of a file: in its buffer and, for the rest, in the committed extents.
    fn find_pieces(&self, ino: Ino, over: Vec<Piece>) -> Result<Vec<Piece>> {
        let mut found = Vec::with_capacity(over.len());
        for piece in over {
            if piece.place.is_some() {
                found.push(piece);
                continue;
            }
            let mut rest = piece.range;
            while !rest.is_empty() {
                let (extents, covered) = self.next_extents(ino, rest.clone())?;
                rest.start = covered.end;
                found.extend(pieces(&extents, covered));
            }
        }
        Ok(found)
    }

    /// As `find_pieces`, but only up to the size at the moment when the server reads the extents.
    /// Returns that size.
    fn find_pieces_of_one_moment(&self, file: &File, over: Vec<Piece>, found: &mut Vec<Piece>) -> Result<u64> {
        let (Some(first), Some(last)) = (over.first(), over.last()) else { return Ok(0) };
        let changes = file.state().seen();
        let range = first.range.start..last.range.end;
        let (committed, mut extents) = self.meta.content(file.ino, range.clone())?;
        let mut rest = covered(&extents, &range)..range.end;
        while !rest.is_empty() {
            let (more, covered) = self.next_extents(file.ino, rest.clone())?;
            rest.start = covered.end;
            extents.extend(more);
        }
        let end = {
            let mut state = file.state();
            match state.seen() == changes {
                true => self.learn_size(&mut state, committed),
                false => committed.max(state.buffer.end()),
            }
        };
        found.clear();
        for piece in over.into_iter().filter(|piece| piece.range.start < end) {
            let range = piece.range.start..piece.range.end.min(end);
            match piece.place {
                Some(place) => {
                    let extent = Extent { offset: range.start, length: piece.range.end - range.start, place };
                    found.extend(pieces(&[extent], range));
                }
                None => found.extend(pieces(&extents, range)),
            }
        }
        Ok(end)
    }

    /// The first extents of a range, in order, and the part of the range that this list covers
    /// completely.
    pub(crate) fn next_extents(&self, ino: Ino, range: Range<u64>) -> Result<(Vec<Extent>, Range<u64>)> {
        let extents = self.meta.extents(ino, range.clone())?;
        let end = covered(&extents, &range);
        Ok((extents, range.start..end))
    }

    /// Whether a range of a file is stored elsewhere than before.
    fn has_moved(&self, ino: Ino, found: &[Piece]) -> Result<bool> {
        let (Some(first), Some(last)) = (found.first(), found.last()) else { return Ok(false) };
        let over = self.table.enter(ino).state().buffer.read(first.range.start..last.range.end);
        Ok(self.find_pieces(ino, over)? != found)
    }

    fn fill_pieces(&self, offset: u64, found: &[Piece], into: &mut [u8]) -> Result<()> {
        for piece in found {
            let part = &mut into[(piece.range.start - offset) as usize..(piece.range.end - offset) as usize];
            match &piece.place {
                Some(place) => self.fill_place(place, part)?,
                None => part.fill(0),
            }
        }
        Ok(())
    }

    pub(crate) fn fill_place(&self, place: &ExtentPlace, into: &mut [u8]) -> Result<()> {
        match place {
            ExtentPlace::Stripe(span) => self.store.read(*span, into)?,
            ExtentPlace::Bytes(bytes) => into.copy_from_slice(bytes),
            ExtentPlace::Zero => into.fill(0),
        }
        Ok(())
    }

    /// The offset of the next data or hole at or after `offset`.
    ///
    /// # Errors
    /// `NoData` when there is none.
    pub fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        let attributes = self.attributes(ino)?;
        if attributes.kind != FileKind::File {
            return Err(Error::Meta(meta::Error::Invalid("not a regular file".into())));
        }
        let size = attributes.size;
        if offset >= size {
            return Err(Error::NoData);
        }
        let mut at = offset;
        while at < size {
            let (data, covered) = self.data(ino, at..size)?;
            match (what, data.first()) {
                (Seek::Data, Some(first)) => return Ok(first.start),
                (Seek::Data, None) => {}
                (Seek::Hole, _) => {
                    for range in data {
                        if range.start > at {
                            break;
                        }
                        at = range.end;
                    }
                    if at < covered.end {
                        return Ok(at);
                    }
                }
            }
            at = covered.end;
        }
        if what == Seek::Data { Err(Error::NoData) } else { Ok(size) }
    }

    /// The first ranges of a file that have data, in order, and the part of `range` that this list
    /// covers completely. Space that is only allocated counts as a hole.
    fn data(&self, ino: Ino, range: Range<u64>) -> Result<(Vec<Range<u64>>, Range<u64>)> {
        let file = self.table.find(ino);
        let covered = file.map(|file| file.state().buffer.covered());
        let (extents, range) = self.next_extents(ino, range)?;
        let mut map: ExtentMap = extents
            .into_iter()
            .filter(|extent| extent.place != ExtentPlace::Zero)
            .map(|extent| Extent { place: ExtentPlace::Zero, ..extent })
            .collect();
        for covered in covered.unwrap_or_default() {
            let extent =
                Extent { offset: covered.start, length: covered.end - covered.start, place: ExtentPlace::Zero };
            if let Some(extent) = extent.clip(&range) {
                map.insert(extent);
            }
        }
        Ok((map.iter().map(Extent::range).collect(), range))
    }
}

/// The end of the part of the range that these extents cover completely.
fn covered(extents: &[Extent], range: &Range<u64>) -> u64 {
    extents.last().filter(|_| extents.len() >= meta::MAX_EXTENTS).map_or(range.end, Extent::end)
}

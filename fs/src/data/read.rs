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
            let mut found = find_pieces(over.clone(), |range| match attempt {
                1 => self.known_extents(&file, seen, range),
                _ => self.next_extents(ino, range),
            })?;
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

    /// Reads from a file what is at hand: it is committed, and in the page cache of this machine.
    /// Returns the number of bytes as `read` does, soon in any case; None says nothing about the
    /// file.
    pub fn read_at_hand(&self, ino: Ino, offset: u64, into: &mut [u8]) -> Option<usize> {
        if self.others_change_files() {
            return None;
        }
        let begun = Instant::now();
        let (range, extents) = {
            let file = self.table.find(ino)?;
            let state = file.state();
            let size = state.buffer.size.filter(|_| !state.gone && state.buffer.is_clean())?;
            let range = offset.min(size)..size.min(offset.saturating_add(into.len() as u64));
            let extents = state.known.find(state.seen(), &range, begun)?;
            (range, extents)
        };
        let into = &mut into[..(range.end - range.start) as usize];
        for piece in pieces(&extents, range.clone()) {
            let part = &mut into[(piece.range.start - offset) as usize..(piece.range.end - offset) as usize];
            match &piece.place {
                Some(ExtentPlace::Stripe(span)) => self.store.read_at_hand(*span, part).then_some(())?,
                Some(ExtentPlace::Bytes(bytes)) => part.copy_from_slice(bytes),
                Some(ExtentPlace::Zero) | None => part.fill(0),
            }
        }
        self.counts.reads.note(begun.elapsed(), Some(into.len()));
        Some(into.len())
    }

    /// Whether another process may change the content of files: other clients, or those that this
    /// process serves.
    fn others_change_files(&self) -> bool {
        self.role.owner().is_none_or(|engine| engine.serves)
    }

    /// As `next_extents`, but from what is known if no other process changes the file. `seen` is
    /// what this one had changed when the caller looked at the buffer.
    fn known_extents(&self, file: &File, seen: (u64, bool), range: Range<u64>) -> Result<(Vec<Extent>, Range<u64>)> {
        if self.others_change_files() {
            return self.next_extents(file.ino, range);
        }
        let wide = {
            let (mut state, now) = (file.state(), Instant::now());
            let seen = state.seen();
            match state.known.find(seen, &range, now) {
                Some(found) => return Ok((found, range)),
                None => state.known.widen(seen, range.clone(), now),
            }
        };
        if wide == range {
            return self.next_extents(file.ino, range);
        }
        let (extents, covered) = self.next_extents(file.ino, wide.clone())?;
        if covered != wide {
            file.state().known.give_up(Instant::now());
            return self.next_extents(file.ino, range);
        }
        let mut state = file.state();
        if state.seen() == seen {
            state.known.learn(seen, &wide, &extents, Instant::now());
        }
        drop(state);
        Ok((extents.iter().filter_map(|extent| extent.clip(&range)).collect(), range))
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
        Ok(find_pieces(over, |range| self.next_extents(ino, range))? != found)
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

/// The places of a range of a file: in its buffer and, for the rest, in the committed extents.
/// `look` looks these up: the first ones of a range, and the part of it that they cover completely.
fn find_pieces(
    over: Vec<Piece>,
    mut look: impl FnMut(Range<u64>) -> Result<(Vec<Extent>, Range<u64>)>,
) -> Result<Vec<Piece>> {
    let mut found = Vec::with_capacity(over.len());
    for piece in over {
        if piece.place.is_some() {
            found.push(piece);
            continue;
        }
        let mut rest = piece.range;
        while !rest.is_empty() {
            let (extents, covered) = look(rest.clone())?;
            rest.start = covered.end;
            found.extend(pieces(&extents, covered));
        }
    }
    Ok(found)
}

/// The end of the part of the range that these extents cover completely.
fn covered(extents: &[Extent], range: &Range<u64>) -> u64 {
    extents.last().filter(|_| extents.len() >= meta::MAX_EXTENTS).map_or(range.end, Extent::end)
}

#[cfg(test)]
mod tests;

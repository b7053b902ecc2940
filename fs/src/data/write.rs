//! Writes, truncates and allocates.

use crate::data::buffer::Buffer;
use crate::data::file::{File, FileState, Held, Locked};
use crate::data::sharing::{Reservation, Sharing};
use crate::error::lost;
use crate::{Error, FileSystem, Result};
use meta::namespace::MAX_SIZE;
use meta::{ContentEdit, FileKind, Resize};
use plan::extent::pieces;
use plan::{Extent, ExtentPlace, Ino, RecordOffset, SetId, TxId};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;
use volume::WriteStep;
use volume::steps::{Mark, aside};

/// A longer write goes into the buffer in pieces, each of which waits for memory.
const MAX_PIECE_BYTES: usize = 4 << 20;

/// The modes of `fallocate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Allocates space; the file grows to the end of the range.
    Grow,
    /// Allocates space; the size stays.
    KeepSize,
    /// Punches a hole; the size stays.
    PunchHole,
    /// Writes zeroes with allocated space; the file grows to the end of the range.
    Zero,
    /// Writes zeroes with allocated space; the size stays.
    ZeroKeepSize,
}

/// The end of a range. Fails when a file cannot be that large.
fn end_of(offset: u64, length: u64) -> Result<u64> {
    offset.checked_add(length).filter(|&end| end <= MAX_SIZE).ok_or(Error::Meta(meta::Error::TooLarge))
}

/// An append to a file, until its bytes are in the buffer or will never be.
struct Appending<'a> {
    sharing: &'a dyn Sharing,
    ino: Ino,
}

impl<'a> Appending<'a> {
    fn begin(sharing: &'a dyn Sharing, ino: Ino) -> Self {
        sharing.begin_append(ino);
        Self { sharing, ino }
    }
}

impl Drop for Appending<'_> {
    fn drop(&mut self) {
        self.sharing.appended(self.ino);
    }
}

/// A truncation of a file: meanwhile this client does not append to it.
struct Cutting<'a> {
    sharing: &'a dyn Sharing,
    ino: Ino,
}

impl<'a> Cutting<'a> {
    fn begin(sharing: &'a dyn Sharing, ino: Ino) -> Self {
        let cutting = Self { sharing, ino };
        sharing.begin_cut(ino);
        cutting
    }
}

impl Drop for Cutting<'_> {
    fn drop(&mut self) {
        self.sharing.end_cut(self.ino);
    }
}

impl FileSystem {
    /// Locks the state of a regular file, with the size in its buffer.
    pub(crate) fn sized<'a>(&self, file: &'a File) -> Result<Locked<'a>> {
        let state = file.state();
        if state.gone {
            return Err(Error::Stale);
        }
        if state.buffer.size.is_some() {
            return Ok(state);
        }
        drop(state);
        let attributes = self.meta.attributes(file.ino)?;
        match attributes.kind {
            FileKind::File => {}
            FileKind::Directory => return Err(Error::Meta(meta::Error::IsDirectory)),
            _ => return Err(Error::Meta(meta::Error::Invalid("not a regular file".into()))),
        }
        let mut state = file.state();
        // If another thread was faster, its size is newer.
        state.buffer.size.get_or_insert(attributes.size);
        Ok(state)
    }

    /// Writes into a file. The data is durable after `sync`.
    ///
    /// # Errors
    /// When there is no space, the file is removed or is not a regular file.
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        self.costing(|| self.in_this_session(|| self.write_at(ino, Some(offset), data)))
    }

    /// Appends to a file.
    ///
    /// # Errors
    /// As `write`.
    pub fn append(&self, ino: Ino, data: &[u8]) -> Result<()> {
        self.costing(|| self.in_this_session(|| self.append_in_session(ino, data)))
    }

    /// Runs a write or a sync of a file: what it takes besides the other steps is client tasks.
    fn costing<T>(&self, work: impl FnOnce() -> T) -> T {
        self.store.targets.steps().rest(WriteStep::Client, work)
    }

    fn append_in_session(&self, ino: Ino, data: &[u8]) -> Result<()> {
        self.writable()?;
        if data.is_empty() {
            return Ok(());
        }
        // Other clients may append, too.
        let _appending = Appending::begin(self.sharing(), ino);
        let reserved = self.store.targets.steps().metadata(|| self.sharing().reserve(ino, data.len() as u64))?;
        let Some(Reservation { begin, is_last }) = reserved else {
            return self.write_at(ino, None, data);
        };
        self.write_reserved(ino, begin, is_last, data)
    }

    fn write_reserved(&self, ino: Ino, begin: u64, is_last: bool, data: &[u8]) -> Result<()> {
        let file = self.table.enter(ino);
        let mut state = self.sized(&file)?;
        if is_last && state.buffer.is_clean() {
            // The offset is smaller than the known size: another client truncated the file.
            state.buffer.size = state.buffer.size.min(Some(begin));
        }
        drop(state);
        self.write_at(ino, Some(begin), data)
    }

    fn write_at(&self, ino: Ino, offset: Option<u64>, data: &[u8]) -> Result<()> {
        let write = || match offset {
            // The limit of the memory holds between the pieces.
            Some(offset) => (0..).zip(data.chunks(MAX_PIECE_BYTES)).try_for_each(|(number, piece)| {
                self.take_in(ino, Some(offset.saturating_add(number * MAX_PIECE_BYTES as u64)), piece)
            }),
            None => self.take_in(ino, None, data),
        };
        self.counts.writes.counted(|()| data.len(), write)
    }

    /// Puts data into a buffer: in the session in which the write began, or not at all.
    fn take_in(&self, ino: Ino, offset: Option<u64>, data: &[u8]) -> Result<()> {
        self.writable()?;
        if data.is_empty() {
            return Ok(());
        }
        aside(|| self.memory.wait_for_space(|| self.background.hurry()))?;
        self.check_space(data.len() as u64)?;
        let mark = Mark::now();
        let file = self.table.enter(ino);
        let mut state = self.sized(&file)?;
        self.is_still_in_session()?;
        let size = state.buffer.size.unwrap_or(0);
        let offset = offset.unwrap_or(size);
        let end = end_of(offset, data.len() as u64)?;
        let stripe = self.store.stripe_bytes() as u64;
        let modified = self.stamp_of_write();
        let taken = self.change_buffer(&mut state, |buffer| {
            let before = buffer.dirty_bytes() / stripe;
            buffer.write(offset, data);
            buffer.size = Some(size.max(end));
            buffer.modified = Some(modified);
            // What is due to a commit stays, so that there may be nothing to take.
            let least = if buffer.is_committing() { before + 1 } else { 1 };
            if buffer.dirty_bytes() / stripe >= least { buffer.take(stripe, false) } else { Vec::new() }
        });
        state.dirty_since.get_or_insert_with(Instant::now);
        drop(state);
        self.store.targets.steps().add_write(data.len(), mark.rest());
        if !taken.is_empty()
            && let Err(taken) = aside(|| self.background.store(Arc::clone(&file), taken))
        {
            // The volume is being closed, and closing commits what is dirty.
            taken.iter().for_each(|piece| self.landed(&file, piece, None));
        }
        Ok(())
    }

    /// Changes the buffer of a file and accounts for its memory.
    pub(crate) fn change_buffer<T>(&self, state: &mut FileState, change: impl FnOnce(&mut Buffer) -> T) -> T {
        let (before, inline) = (state.buffer.held_bytes(), state.buffer.inline_bytes());
        let result = change(&mut state.buffer);
        self.memory.changed(before, state.buffer.held_bytes());
        self.memory.changed_inline(inline, state.buffer.inline_bytes());
        result
    }

    /// Sets the size of a file; `just_opened` is as in [`SetAttributes`](crate::SetAttributes).
    pub(crate) fn truncate(&self, ino: Ino, size: u64, just_opened: bool) -> Result<()> {
        if size > MAX_SIZE {
            return Err(Error::Meta(meta::Error::TooLarge));
        }
        self.in_this_session(|| {
            if size > 0 {
                self.publish_to_others(ino)?;
            }
            if !just_opened && self.alone().is_none() {
                // What others appended so far is cut off, too: they commit it for an opener. The
                // size that is known here may be older.
                self.sharing().open(ino, true)?;
                let _ = self.sharing().close(ino);
            }
            let _no_appends = Cutting::begin(self.sharing(), ino);
            self.edit(ino, |_| Ok(Some((size..MAX_SIZE, None, Resize::To(size)))))
        })
    }

    /// Commits the size and the data before it at once, if there are other clients: they must find
    /// there what was written before, not a hole.
    fn publish_to_others(&self, ino: Ino) -> Result<()> {
        if self.alone().is_none() { self.publish(ino) } else { Ok(()) }
    }

    /// Changes the committed content of a file and then drops the range from buffers; if the change
    /// fails, the buffers stay. `plan` gets the size and returns the range, its new content (one
    /// extent over the whole range, or a hole) and the change of the size; None changes nothing.
    /// Call it in a session.
    fn edit(
        &self,
        ino: Ino,
        plan: impl FnOnce(u64) -> Result<Option<(Range<u64>, Option<ExtentPlace>, Resize)>>,
    ) -> Result<()> {
        self.writable()?;
        let file = self.table.enter(ino);
        // Ask before taking the lock: the server makes other clients commit first, and they may
        // wait for this one.
        drop(self.sized(&file)?);
        let _one_at_a_time = file.content();
        let mut state = self.sized(&file)?;
        let size = state.buffer.size.unwrap_or(0);
        let Some((range, place, resize)) = plan(size)? else { return Ok(()) };
        // Dirty data that gave the file its size may be dropped here, before a commit writes that
        // size.
        let resize = if resize == Resize::Keep { Resize::AtLeast(state.buffer.end()) } else { resize };
        let before = state.buffer.size;
        if let Resize::To(to) = resize {
            // Readers must not see zeroes behind the new end.
            self.change_buffer(&mut state, |buffer| buffer.size = Some(size.min(to)));
        }
        state.changing = true;
        drop(state);
        // Cut the append reservation before the request. If the server truncates and is killed
        // before it answers, it gets the reservations from this client before the retried request.
        let cut = match resize {
            Resize::To(size) => self.sharing().cut(ino, size),
            _ => None,
        };
        let new = place.map(|place| Extent { offset: range.start, length: range.end - range.start, place });
        // `Resize::To` truncates; an edit of the same range would do it twice.
        let cuts = matches!(resize, Resize::To(_));
        let ranges = if cuts { Vec::new() } else { vec![(range.clone(), Vec::from_iter(new))] };
        let edit = ContentEdit { ranges, resize, modified: Some(self.stamp()) };
        let done = self.change_content(&file, &edit, cuts);
        let mut state = file.state();
        state.changed();
        if done.is_err() {
            // On failure, dirty data stays dirty: the writes of it succeeded. No other thread made
            // the file shorter meanwhile. If the size is no longer known here, it is read again.
            self.change_buffer(&mut state, |buffer| buffer.size = buffer.size.map(|now| now.max(before.unwrap_or(0))));
            drop(state);
            if let Some(end) = cut {
                self.sharing().uncut(ino, end);
            }
        } else {
            self.change_buffer(&mut state, |buffer| {
                buffer.forget(range);
                buffer.size = match resize {
                    Resize::To(to) => Some(to),
                    Resize::AtLeast(least) => buffer.size.max(Some(least)),
                    Resize::Keep => buffer.size,
                };
            });
            // An empty file lacks nothing.
            if resize == Resize::To(0) {
                (state.lacks_data, state.lacks_pages) = (false, false);
            }
            drop(state);
        }
        let (_, dead, seq) = done?;
        self.collector.add(dead, seq);
        Ok(())
    }

    /// Allocates space, punches holes or writes zeroes: `fallocate`.
    ///
    /// # Errors
    /// When there is no space, or the file is not a regular file.
    pub fn allocate(&self, ino: Ino, how: Allocate, offset: u64, length: u64) -> Result<()> {
        if length == 0 {
            return Err(Error::Meta(meta::Error::Invalid("a range of no bytes".into())));
        }
        let end = end_of(offset, length)?;
        self.in_this_session(|| self.allocate_in_session(ino, how, offset..end))
    }

    fn allocate_in_session(&self, ino: Ino, how: Allocate, range: Range<u64>) -> Result<()> {
        let end = range.end;
        self.publish_to_others(ino)?;
        match how {
            Allocate::PunchHole => self.edit(ino, |_| Ok(Some((range, None, Resize::Keep)))),
            Allocate::Zero | Allocate::ZeroKeepSize => {
                self.check_metadata_space()?;
                let resize = if how == Allocate::Zero { Resize::AtLeast(end) } else { Resize::Keep };
                self.edit(ino, |_| Ok(Some((range, Some(ExtentPlace::Zero), resize))))
            }
            Allocate::Grow => self.fill(ino, range, Resize::AtLeast(end)),
            Allocate::KeepSize => self.fill(ino, range, Resize::Keep),
        }
    }

    /// Allocates space for the holes in a range.
    fn fill(&self, ino: Ino, range: Range<u64>, resize: Resize) -> Result<()> {
        self.writable()?;
        self.check_space(range.end - range.start)?;
        let file = self.table.enter(ino);
        drop(self.sized(&file)?);
        let _one_at_a_time = file.content();
        let mut rest = range;
        while !rest.is_empty() {
            let (committed, covered) = self.next_extents(ino, rest.clone())?;
            rest.start = covered.end;
            let holes = pieces(&committed, covered).into_iter().filter(|piece| piece.place.is_none());
            let zeroes = holes.map(|hole| {
                let length = hole.range.end - hole.range.start;
                (hole.range.clone(), vec![Extent { offset: hole.range.start, length, place: ExtentPlace::Zero }])
            });
            let resize = if rest.is_empty() { resize } else { Resize::Keep };
            let edit = ContentEdit { ranges: zeroes.collect(), resize, modified: Some(self.stamp()) };
            let (_, dead, seq) = self.change_content(&file, &edit, false)?;
            self.collector.add(dead, seq);
        }
        let mut state = file.state();
        state.changed();
        if let Resize::AtLeast(end) = resize {
            self.change_buffer(&mut state, |buffer| buffer.size = buffer.size.max(Some(end)));
        }
        Ok(())
    }

    /// Copies a range within the volume by sharing its extents, without reading or writing data.
    /// Returns the number of bytes copied.
    ///
    /// # Errors
    /// When one of the files is removed or is not a regular file, or the ranges of one file
    /// overlap.
    pub fn copy_range(&self, from: (Ino, u64), to: (Ino, u64), length: u64) -> Result<u64> {
        self.in_this_session(|| self.copy_in_session(from, to, length))
    }

    fn copy_in_session(&self, from: (Ino, u64), to: (Ino, u64), length: u64) -> Result<u64> {
        self.writable()?;
        self.check_metadata_space()?;
        let (source, target) = (self.table.enter(from.0), self.table.enter(to.0));
        self.commit(std::slice::from_ref(&*source), false)?;
        self.publish_to_others(to.0)?;
        drop(self.sized(&source)?);
        drop(self.sized(&target)?);
        let _one_at_a_time: Vec<_> = match from.0.cmp(&to.0) {
            std::cmp::Ordering::Less => vec![source.content(), target.content()],
            std::cmp::Ordering::Equal => vec![source.content()],
            std::cmp::Ordering::Greater => vec![target.content(), source.content()],
        };
        let size = self.sized(&source)?.buffer.size.unwrap_or(0);
        let length = length.min(size.saturating_sub(from.1));
        if length == 0 {
            return Ok(0);
        }
        end_of(to.1, length)?;
        // Writes after the commit are not copied: they came later. Of very many extents, only the
        // first are copied, and the caller continues behind them.
        let (mut extents, covered) = self.next_extents(from.0, from.1..from.1 + length)?;
        let length = covered.end - covered.start;
        let end = to.1 + length;
        if from.0 == to.0 && from.1 < end && to.1 < from.1 + length {
            return Err(Error::Meta(meta::Error::Invalid("the ranges overlap".into())));
        }
        let stripes: Vec<(SetId, RecordOffset)> =
            extents.iter().filter_map(|extent| stripe_of(&extent.place)).collect();
        self.meta.share(&stripes, to.0)?;
        extents.iter_mut().for_each(|extent| extent.offset = extent.offset - from.1 + to.1);
        self.sized(&target)?.changing = true;
        let edit = ContentEdit {
            ranges: vec![(to.1..end, extents)],
            resize: Resize::AtLeast(end),
            modified: Some(self.stamp()),
        };
        let done = self.change_content(&target, &edit, false);
        let mut state = target.state();
        state.changed();
        if done.is_ok() {
            self.change_buffer(&mut state, |buffer| {
                buffer.forget(to.1..end);
                buffer.size = buffer.size.max(Some(end));
            });
        }
        drop(state);
        let (_, dead, seq) = done?;
        self.collector.add(dead, seq);
        Ok(length)
    }

    /// Returns when everything that was written to a file, or changed in a directory, is durable.
    ///
    /// # Errors
    /// When it may not be durable.
    pub fn sync(&self, ino: Ino) -> Result<()> {
        let sync = || match self.table.find(ino) {
            Some(file) => self.costing(|| {
                let done = self.commit(std::slice::from_ref(&*file), true).map(drop);
                {
                    let mut state = file.state();
                    state.lacks_pages = false;
                    if state.buffer.is_clean() {
                        state.dirty_since = None;
                    }
                }
                check_loss(&file).inspect_err(|_| file.state().lacks_data = false).and(done)
            }),
            None => Ok(self.meta.sync(TxId::MAX)?),
        };
        let sync = || sync().and_then(|()| self.check_loss_with_server(ino, false));
        self.counts.syncs.counted(|()| 0, sync)
    }

    /// Commits what was written to a file that a program closes, while there are other clients. One
    /// that goes on with the file may make what was closed and not committed void, and after the
    /// answer nobody is left to tell. Without others, a sync or the time commits it.
    ///
    /// # Errors
    /// When it cannot be committed, as [`sync`](Self::sync).
    pub fn commit_at_close(&self, ino: Ino) -> Result<()> {
        // Nobody finds a file that has lost its last name.
        let is_named = self.table.find(ino).is_some_and(|file| !file.state().orphan);
        if is_named { self.publish_to_others(ino) } else { Ok(()) }
    }

    /// The result for a program that closes a file: whether data that it wrote is known to be lost.
    ///
    /// # Errors
    /// If data was lost and no program has got an error for it yet.
    pub fn check_loss_at_close(&self, ino: Ino) -> Result<()> {
        self.table.find(ino).map_or(Ok(()), |file| {
            self.forget_lost(&mut file.state());
            check_loss(&file)
        })?;
        self.check_loss_with_server(ino, true)
    }

    /// Records that data of a file was lost.
    pub(crate) fn note_lost(&self, state: &mut FileState) {
        // Nobody here lacks data of a file that was removed here.
        if state.is_left {
            return;
        }
        (state.lost, state.lacks_data) = (true, true);
        state.losses += 1;
        self.sharing().note_loss();
    }

    /// Records that something was written to a file and never got here. The kernel tells the
    /// program that wrote it.
    pub fn note_refused_write(&self, ino: Ino) {
        let file = self.table.enter(ino);
        let mut state = file.state();
        state.lacks_pages = !state.gone;
    }

    /// Refuses, once, to let a file replace another one if it lacks data that was lost, and no sync
    /// has reported that.
    pub(crate) fn lacks_nothing(&self, ino: Ino) -> Result<()> {
        if let Some(file) = self.table.find(ino) {
            let mut state = file.state();
            if std::mem::take(&mut state.lacks_data) | std::mem::take(&mut state.lacks_pages) {
                return Err(lost());
            }
        }
        if self.sharing().take_certain_loss_of(ino) { Err(lost()) } else { Ok(()) }
    }

    /// How often data of an open file was lost. A program that has it open compares this with the
    /// value at open and so learns of each loss once.
    pub fn losses(&self, ino: Ino) -> u64 {
        self.table.find(ino).map_or(0, |file| file.state().losses)
    }

    /// Fails once at close and once at sync when data of a file or directory may be lost with a
    /// metadata server.
    fn check_loss_with_server(&self, ino: Ino, at_close: bool) -> Result<()> {
        if self.sharing().take_loss_of(ino, at_close) { Err(lost()) } else { Ok(()) }
    }

    /// Returns when everything is durable.
    ///
    /// # Errors
    /// When it may not be durable; once when data was lost since the last call.
    pub fn sync_all(&self) -> Result<()> {
        self.sync_written()?;
        self.tell_loss()
    }

    /// Tells, once, that data was lost.
    pub(crate) fn tell_loss(&self) -> Result<()> {
        if self.sharing().take_loss() { Err(lost()) } else { Ok(()) }
    }

    /// Returns when everything that is left is durable. What was lost before is told to others: by
    /// the syncs of its files, and by the end of the volume.
    ///
    /// # Errors
    /// When it may not be durable.
    pub fn sync_written(&self) -> Result<()> {
        let committed = self.commit_all(None);
        // Sync even if a commit failed: what was committed becomes durable.
        let synced = self.store.targets.steps().metadata(|| self.meta.sync(TxId::MAX));
        committed?;
        Ok(synced?)
    }

    /// Commits what can be committed, and makes all commits durable. For callers that go on without
    /// the rest, whose writers learn of it by their own syncs.
    ///
    /// # Errors
    /// When the metadata may not be durable.
    pub(crate) fn commit_possible(&self) -> Result<()> {
        _ = self.commit_all(None);
        Ok(self.meta.sync(TxId::MAX)?)
    }

    /// Commits files that have been dirty since before a moment, or all files.
    pub(crate) fn commit_all(&self, since: Option<Instant>) -> Result<()> {
        let due = |file: &Held<'_>| {
            let state = file.state();
            !state.buffer.is_clean() && since.is_none_or(|since| state.dirty_since.is_none_or(|dirty| dirty <= since))
        };
        let held: Vec<Held<'_>> = self.table.all().into_iter().filter(due).collect();
        let files: Vec<Arc<File>> = held.iter().map(|file| Arc::clone(file)).collect();
        files.iter().for_each(|file| file.state().dirty_since = None);
        let done = if since.is_some() { self.commit_quiet(&files) } else { self.commit(&files, false).map(drop) };
        for file in &files {
            let mut state = file.state();
            if !state.buffer.is_clean() {
                state.dirty_since.get_or_insert_with(Instant::now);
            }
        }
        done
    }
}

/// Fails, once, when data of a file was lost.
fn check_loss(file: &File) -> Result<()> {
    if std::mem::take(&mut file.state().lost) { Err(lost()) } else { Ok(()) }
}

/// The stripe that an extent is in, if it is in one.
pub(crate) fn stripe_of(place: &ExtentPlace) -> Option<(SetId, RecordOffset)> {
    match place {
        ExtentPlace::Stripe(span) => Some(span.stripe()),
        _ => None,
    }
}

//! Commits: from buffers to stripes to metadata.
//!
//! Data of many files is packed into common stripes. Then a transaction names the stripes. Chunks
//! are synced before that transaction is written: what survives a crash refers only to data that
//! survives it, too.

use crate::data::buffer::Taken;
use crate::data::file::{File, FileState, Locked};
use crate::data::packer::Packer;
use crate::data::write::stripe_of;
use crate::{Error, FileSystem, Result};
use meta::{ContentEdit, Resize};
use plan::{Extent, ExtentPlace, Ino, SetId, Span, TxId};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use volume::steps::aside;

/// A sync of at most this much dirty data writes the data into the metadata, which makes it durable
/// with one write per mirror. Later it is moved into stripes.
pub const INLINE_BYTES: u64 = 32 << 10;
/// The most files that one transaction changes.
const FILES_PER_COMMIT: usize = 512;
/// The most extents that one transaction names, over all its files. More extents take several
/// transactions.
const EXTENTS_PER_COMMIT: usize = 16 << 10;
/// How long a commit that nobody waits for waits for data that is on its way into stripes: a target
/// may be slow.
const QUIET_TIMEOUT: Duration = Duration::from_millis(500);

/// What the caller of a commit waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// Nothing.
    No,
    /// Nothing, and the commit waits no longer than a moment for data that is on its way.
    AWhile,
    /// Another client wants to read the data.
    Somebody,
    /// The caller waits until only this file is durable.
    ForThis,
    /// The caller waits until this file and others are durable.
    ForMore,
}

/// A file of a commit, and what is due of it: all that was written before the commit began.
struct Due {
    file: Arc<File>,
    ranges: Vec<Range<u64>>,
    /// How often data was given back by then.
    given_back: u64,
}

impl Due {
    /// Until this is dropped, only the commit takes what is due. So nothing of it that is in a
    /// stripe is replaced, and what others have taken comes back at most once.
    fn of(file: &Arc<File>) -> Self {
        let mut state = file.state();
        Self { file: file.clone(), ranges: state.buffer.begin_commit(), given_back: state.buffer.given_back() }
    }
}

impl Drop for Due {
    fn drop(&mut self) {
        self.file.state().buffer.end_commit();
    }
}

/// The result of a commit.
struct Committed {
    /// The sequence number of the transaction; 0 for none.
    seq: TxId,
    /// The error that kept some data from being committed.
    failed: Option<Error>,
    /// The transaction and everything before it is durable.
    durable: bool,
    /// Extents that were due and did not fit into the transaction.
    left: usize,
    /// Content of some files was refused and dropped. That of the others can be committed.
    dropped: bool,
}

impl FileSystem {
    /// A piece was written into a stripe, or the write failed.
    pub(crate) fn landed(&self, file: &File, taken: &Taken, span: Option<Span>) {
        self.change_buffer(&mut file.state(), |buffer| buffer.written(taken, span));
        file.arrived();
    }

    /// Writes all data of some files into stripes, without a transaction; what is due to a commit
    /// only for that `commit`. What other threads have taken is left to them.
    pub(crate) fn flush(&self, files: &[Arc<File>], commit: bool) -> Result<()> {
        let mut packer = Packer::new(self);
        for file in files {
            let taken = self.take_all(&mut file.state(), commit);
            packer.add_all(file, taken)?;
        }
        packer.finish()
    }

    /// Waits until what is due of a file is in stripes. With `store`, writes what other threads had
    /// taken and give back meanwhile: they failed, or a short rest was left. With a deadline, waits
    /// no longer: None then.
    fn wait_for_due<'a>(
        &self,
        due: &'a Due,
        store: bool,
        deadline: Option<Instant>,
        failed: &mut Option<Error>,
    ) -> Option<Locked<'a>> {
        let mut state = aside(|| due.file.wait_for_arrivals(&due.ranges, deadline))?;
        if !store || state.buffer.given_back() == due.given_back || !state.buffer.is_dirty(&due.ranges) {
            return Some(state);
        }
        let taken = self.take_all(&mut state, true);
        drop(state);
        let mut packer = Packer::new(self);
        // Another flush may wait for what is in the packer: it holds nothing at the next wait.
        if let Err(why) = packer.add_all(&due.file, taken).and_then(|()| packer.finish()) {
            *failed = failed.take().or(Some(why));
        }
        Some(due.file.state())
    }

    fn take_all(&self, state: &mut FileState, commit: bool) -> Vec<Taken> {
        let stripe = self.store.stripe_bytes() as u64;
        self.change_buffer(state, |buffer| if commit { buffer.take_due() } else { buffer.take(stripe, true) })
    }

    /// Commits everything that was written to some files so far. With `durable`, also waits until
    /// it survives a crash. An error of some files does not keep the others from being committed;
    /// the first error is returned.
    pub(crate) fn commit(&self, files: &[Arc<File>], durable: bool) -> Result<TxId> {
        let mut files = files.to_vec();
        files.sort_by_key(|file| file.ino);
        files.dedup_by_key(|file| file.ino);
        if durable {
            self.inline.note_sync();
        }
        let wait = match files.len() {
            _ if !durable => Wait::No,
            1 => Wait::ForThis,
            _ => Wait::ForMore,
        };
        let (last, done) = self.commit_groups(&files, wait)?;
        if durable && !done {
            self.store.targets.steps().metadata(|| self.meta.sync(TxId::MAX))?;
        }
        Ok(last)
    }

    /// As `commit`, of files that nobody waits for. One that a program writes to all the time may
    /// be left to a later commit: it would keep the others waiting.
    pub(crate) fn commit_quiet(&self, files: &[Arc<File>]) -> Result<()> {
        self.commit_groups(files, Wait::AWhile).map(drop)
    }

    /// Returns the last transaction, and whether it is durable.
    fn commit_groups(&self, files: &[Arc<File>], wait: Wait) -> Result<(TxId, bool)> {
        let (mut last, mut failed, mut store, mut done) = (TxId(0), None, true, false);
        for group in files.chunks(FILES_PER_COMMIT) {
            let Committed { seq, failed: error, durable, .. } = self.commit_group(group, wait, store);
            (last, done) = (seq.max(last), durable);
            // Do not wait for failing targets again with every group.
            store &= error.as_ref().is_none_or(Error::is_no_space);
            failed = failed.or(error);
        }
        failed.map_or(Ok((last, done)), Err)
    }

    /// Commits a file that another client wants to read, without waiting until it is durable. A
    /// small amount of data goes into the metadata itself.
    pub(crate) fn hand_over(&self, file: &Arc<File>) -> Result<()> {
        self.commit_group(std::slice::from_ref(file), Wait::Somebody, true).failed.map_or(Ok(()), Err)
    }

    /// Commits files in one transaction: their data in stripes and, with `store`, the data that can
    /// be put into stripes now.
    fn commit_group(&self, files: &[Arc<File>], wait: Wait, store: bool) -> Committed {
        let _one_at_a_time: Vec<_> = aside(|| files.iter().map(|file| file.content()).collect());
        // Data that is taken from buffers now must not be named in a later session.
        self.in_this_session(|| {
            let due: Vec<Due> = files.iter().map(Due::of).collect();
            let mut done = self.commit_held(&due, wait, store);
            if done.dropped {
                done = self.commit_held(&due, wait, store);
            }
            if done.failed.is_some() && files.iter().filter(|file| self.forget_lost(&mut file.state())).count() > 0 {
                // Some sets were given up just now. Data outside of them can still be committed.
                done = self.commit_held(&due, wait, store);
            }
            // Commit only what did not fit. Data that is written meanwhile is left to a later
            // commit.
            while done.left > 0 && done.failed.is_none() {
                let next = self.commit_held(&due, wait, false);
                done = Committed { seq: next.seq.max(done.seq), ..next };
            }
            done
        })
    }

    /// As `commit_group`; the caller holds the content lock of the files.
    fn commit_held(&self, due: &[Due], wait: Wait, store: bool) -> Committed {
        let mut unsettled = Unsettled { fs: self, parts: Vec::with_capacity(due.len()) };
        let parts = &mut unsettled.parts;
        let mut rest = Vec::with_capacity(due.len());
        for one in due {
            match self.take_inline(&one.file, matches!(wait, Wait::Somebody | Wait::ForThis)) {
                Some(part) => parts.push(part),
                None => rest.push(one),
            }
        }
        let deadline = (wait == Wait::AWhile).then(|| Instant::now() + QUIET_TIMEOUT);
        let (left, failed) = self.put_in_stripes(&rest, store, deadline, parts);
        if parts.is_empty() {
            return Committed { seq: TxId(0), failed, durable: false, left: 0, dropped: false };
        }
        let edits: Vec<(Ino, ContentEdit)> = parts.iter().map(|part| (part.file.ino, part.edit.clone())).collect();
        // One request to the server commits and syncs. If it fails, inline data is still in the
        // buffer and can be committed again. That is not true of stripes.
        let durable = wait == Wait::ForThis && rest.is_empty() && self.is_shared();
        let done = self.store.targets.steps().metadata(|| match durable {
            true => self.meta.change_contents_durably(&edits),
            false => self.meta.change_contents(&edits),
        });
        unsettled.settle(done.is_ok());
        match done {
            Ok((dead, seq)) => {
                self.collector.add(dead, seq);
                // The server that did it may have taken over since the sync of the sets.
                let failed = failed.or(self.store.tell_lacking().err());
                Committed { seq, failed, durable, left, dropped: false }
            }
            Err(error) => {
                let files: Vec<Arc<File>> = due.iter().map(|one| one.file.clone()).collect();
                let dropped = self.drop_superseded(&files, &error);
                Committed { seq: TxId(0), failed: failed.or(Some(error.into())), durable: false, left, dropped }
            }
        }
    }

    /// Takes a small amount of data of a file for the metadata itself: data small enough to stay in
    /// the inode, or data that a caller waits for. None when there is more, or nothing.
    fn take_inline(&self, file: &Arc<File>, synced: bool) -> Option<Part> {
        let mut state = file.state();
        let dirty = state.buffer.dirty_bytes();
        // A tiny file reserved its space in the metadata when it was written.
        let little = state.buffer.is_tiny() || synced && dirty <= INLINE_BYTES && self.metadata_takes_more();
        if state.gone || dirty == 0 || !little || !state.buffer.nothing_pending() {
            return None;
        }
        let taken = self.change_buffer(&mut state, |buffer| buffer.take_due());
        let extent = |piece: &Taken| Extent {
            offset: piece.offset,
            length: piece.bytes.len() as u64,
            place: ExtentPlace::Bytes(piece.bytes.clone()),
        };
        let ranges = taken.iter().map(extent).map(|extent| (extent.range(), vec![extent])).collect();
        let edit = ContentEdit { ranges, resize: size_of(&state), modified: state.buffer.modified };
        Some(Part { file: file.clone(), edit, taken })
    }

    /// Writes data of files into stripes, if `store` is set, and makes all their stripes durable.
    /// Returns the number of due extents left for another transaction, and the error if some data
    /// is still dirty.
    fn put_in_stripes(
        &self,
        files: &[&Due],
        store: bool,
        deadline: Option<Instant>,
        parts: &mut Vec<Part>,
    ) -> (usize, Option<Error>) {
        files.iter().for_each(|due| due.file.state().failed = None);
        let all: Vec<Arc<File>> = files.iter().map(|due| due.file.clone()).collect();
        let mut failed = if store { self.flush(&all, true).err() } else { None };
        let (inline, mut stored_any) = (parts.len(), false);
        let (mut space, mut left) = (EXTENTS_PER_COMMIT, 0);
        for due in files {
            // Do not wait for failing targets again with every file.
            let retakes = store && failed.is_none();
            let Some(mut state) = self.wait_for_due(due, retakes, deadline, &mut failed) else { continue };
            self.forget_lost(&mut state);
            failed = failed.or(state.failed.take());
            let (stored, more) = state.buffer.stored_of_commit(store, space);
            space -= stored.len();
            left += more;
            if stored.is_empty() && more > 0 {
                continue;
            }
            // Set no larger size than what is in stripes. Data that is still dirty, or was written
            // since, would look like a hole to other clients, and may never be committed.
            let resize = match stored.iter().map(Extent::end).max() {
                Some(end) => Resize::AtLeast(end),
                None if state.buffer.dirty_bytes() > 0 => continue,
                None => Resize::Keep,
            };
            if state.gone || stored.is_empty() && state.buffer.modified.is_none() {
                continue;
            }
            stored_any |= !stored.is_empty();
            let ranges = stored.into_iter().map(|extent| (extent.range(), vec![extent])).collect();
            let edit = ContentEdit { ranges, resize, modified: state.buffer.modified };
            parts.push(Part { file: due.file.clone(), edit, taken: Vec::new() });
        }
        if stored_any {
            // Name only stripes that are durable. A file whose sets cannot be synced keeps no other
            // from its commit.
            match self.store.sync_each() {
                Ok(unsynced) => {
                    let mut others = parts.split_off(inline);
                    let unnamable = |part: &Part| {
                        let mut sets = part.sets();
                        sets.find(|set| !unsynced.may_name(&self.store, *set))
                    };
                    let bad = others.iter().find_map(unnamable);
                    others.retain(|part| unnamable(part).is_none());
                    parts.extend(others);
                    failed = failed.or(bad.map(|set| unsynced.why(set)));
                }
                Err(error) => {
                    parts.truncate(inline);
                    failed = failed.or(Some(error));
                }
            }
        }
        (left, failed)
    }

    /// Drops pending data in sets that were given up with the session of this client. Returns
    /// whether there was any: the next sync or close of the file reports it.
    pub(crate) fn forget_lost(&self, state: &mut FileState) -> bool {
        let lost = self.change_buffer(state, |buffer| buffer.forget_stored(|set| !self.store.is_ours(set)));
        if lost {
            self.note_lost(state);
        }
        lost
    }

    /// Updates the buffer of a file after its part of a commit succeeded or failed.
    fn settle(&self, part: &Part, committed: bool) {
        let Part { file, edit, taken } = part;
        let mut state = file.state();
        if committed {
            let extents: Vec<Extent> = edit.ranges.iter().flat_map(|(_, new)| new.clone()).collect();
            let bytes: u64 = taken.iter().map(|piece| piece.bytes.len() as u64).sum();
            state.changed();
            self.change_buffer(&mut state, |buffer| buffer.inlined(taken, &extents));
            // Clear the time only now: until the commit, only this process knew it. A later write
            // has another time.
            if edit.modified.is_some() && state.buffer.modified == edit.modified {
                // The data that is left is a later change. Its new time shows others that there is
                // something new.
                let is_left = state.buffer.dirty_bytes() > 0 || state.buffer.any_in_flight();
                state.buffer.modified = is_left.then(|| self.stamp_of_write());
            }
            // Where the metadata is elsewhere, its server moves it.
            if bytes > 0 && !self.is_shared() {
                self.inline.add(file.ino, bytes);
            }
            drop(state);
            file.arrived();
        } else {
            drop(state);
            taken.iter().for_each(|piece| self.landed(file, piece, None));
        }
    }
}

/// The parts of a commit, until its result is known. After a panic they count as not committed:
/// their data is dirty again, and nobody waits for it for ever.
struct Unsettled<'a> {
    fs: &'a FileSystem,
    parts: Vec<Part>,
}

impl Unsettled<'_> {
    fn settle(&mut self, committed: bool) {
        self.parts.drain(..).for_each(|part| self.fs.settle(&part, committed));
    }
}

impl Drop for Unsettled<'_> {
    fn drop(&mut self) {
        self.settle(false);
    }
}

/// The part of one file in a commit.
struct Part {
    file: Arc<File>,
    edit: ContentEdit,
    /// Data that goes into the metadata itself.
    taken: Vec<Taken>,
}

impl Part {
    /// The chunk sets of its stripes.
    fn sets(&self) -> impl Iterator<Item = SetId> + '_ {
        let extents = self.edit.ranges.iter().flat_map(|(_, new)| new);
        extents.filter_map(|extent| stripe_of(&extent.place)).map(|(set, _)| set)
    }
}

/// The size that a commit sets. It never restores an older, larger size: another client may have
/// truncated the file.
fn size_of(state: &FileState) -> Resize {
    Resize::AtLeast(state.buffer.end())
}

#[cfg(test)]
mod tests;

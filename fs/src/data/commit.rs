//! Commits: from buffers to stripes to metadata.
//!
//! Data of many files is packed into common stripes. Then a transaction names the stripes. Chunks
//! are synced before that transaction is written: what survives a crash refers only to data that
//! survives it, too.

use crate::data::buffer::Taken;
use crate::data::file::{File, FileState};
use crate::data::manifest::{self, Piece};
use crate::data::store::{Pin, Stored};
use crate::data::write::stripe_of;
use crate::volume::stripe_size::MANIFEST_BYTES;
use crate::{Error, FileSystem, Result};
use meta::{ContentEdit, Resize};
use plan::{Extent, ExtentPlace, Ino, SetId, Span, TxId};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;
use volume::steps::aside;
use volume::{StripeBuffer, WriteStep};

/// A sync of at most this much dirty data writes the data into the metadata, which makes it durable
/// with one write per mirror. Later it is moved into stripes.
pub const INLINE_BYTES: u64 = 32 << 10;
/// The most files that one transaction changes.
const FILES_PER_COMMIT: usize = 512;
/// The most extents that one transaction names, over all its files. More extents take several
/// transactions.
const EXTENTS_PER_COMMIT: usize = 16 << 10;

/// Packs data of files into stripes.
pub(crate) struct Packer<'a> {
    fs: &'a FileSystem,
    buffer: Option<StripeBuffer>,
    inside: Vec<(Arc<File>, Taken)>,
    pieces: Vec<Piece>,
    manifest_bytes: usize,
    paths: HashMap<Ino, Option<manifest::File>>,
}

impl<'a> Packer<'a> {
    pub fn new(fs: &'a FileSystem) -> Self {
        Self { fs, buffer: None, inside: Vec::new(), pieces: Vec::new(), manifest_bytes: 0, paths: HashMap::new() }
    }

    /// Adds a piece; cuts it where a stripe is full. Data that could not be written is dirty again.
    pub fn add(&mut self, file: &Arc<File>, mut taken: Taken) -> Result<()> {
        loop {
            if self.buffer.is_none() {
                self.buffer = Some(self.fs.store.pool.take());
            }
            let buffer = self.buffer.as_mut().expect("it was just put there");
            let entry = self.paths.entry(file.ino).or_insert_with(|| self.fs.describe(file.ino)).clone();
            let entry = if self.pieces.last().is_some_and(|last| last.ino == file.ino) { None } else { entry };
            let entry_bytes = 16 + entry.as_ref().map_or(0, |entry| 48 + entry.path.len());
            let most = (self.fs.store.stripe_bytes() + MANIFEST_BYTES).saturating_sub(buffer.len());
            let space = buffer.space().min(most).saturating_sub(self.manifest_bytes + entry_bytes + 16);
            let space = if self.pieces.is_empty() { space.min(self.fs.store.stripe_bytes()) } else { space };
            if space < taken.bytes.len().min(4096) {
                self.finish().inspect_err(|_| self.fs.landed(file, &taken, None))?;
                continue;
            }
            // Cut at a page boundary, so that pages stay whole.
            let length = match taken.bytes.len() {
                all if all <= space => all,
                _ => (space & !4095).max(space.min(1)),
            };
            let begun = Instant::now();
            buffer.extend_from_slice(&taken.bytes[..length]);
            self.fs.store.targets.steps().extend(WriteStep::Master, begun.elapsed());
            self.pieces.push(Piece { ino: file.ino, offset: taken.offset, length: length as u64, file: entry });
            self.manifest_bytes += entry_bytes;
            let rest = Taken { offset: taken.offset + length as u64, bytes: taken.bytes.slice(length..) };
            let first = Taken { offset: taken.offset, bytes: taken.bytes.slice(..length) };
            if rest.bytes.is_empty() {
                self.inside.push((file.clone(), first));
                return Ok(());
            }
            file.state().buffer.split();
            self.inside.push((file.clone(), first));
            taken = rest;
        }
    }

    /// Adds pieces of a file. Those that could not be written are dirty again.
    pub fn add_all(&mut self, file: &Arc<File>, taken: Vec<Taken>) -> Result<()> {
        let mut taken = taken.into_iter();
        while let Some(piece) = taken.next() {
            if let Err(error) = self.add(file, piece) {
                taken.for_each(|piece| self.fs.landed(file, &piece, None));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Writes the last, partial stripe if it is long enough. Otherwise its data is dirty again.
    pub fn finish_if_long(&mut self) -> Result<()> {
        if self.buffer.as_ref().is_some_and(|buffer| buffer.len() >= self.fs.store.stripe_bytes() / 2) {
            self.finish()?;
        }
        Ok(())
    }

    /// Writes the last, partial stripe.
    pub fn finish(&mut self) -> Result<()> {
        let Some(buffer) = self.buffer.take() else { return Ok(()) };
        let written = self.fs.append_stripe(buffer, &manifest::encode(&self.pieces));
        let mut start = 0;
        for (file, taken) in self.inside.drain(..) {
            let span =
                written.as_ref().ok().map(|&(Stored { set, record, block }, _)| Span { set, record, block, start });
            start += taken.bytes.len() as u32;
            self.fs.landed(&file, &taken, span);
        }
        self.pieces.clear();
        self.manifest_bytes = 0;
        written.map(|_| ())
    }
}

/// What the caller of a commit waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// Nothing.
    No,
    /// Another client wants to read the data.
    Somebody,
    /// The caller waits until only this file is durable.
    ForThis,
    /// The caller waits until this file and others are durable.
    ForMore,
}

/// The result of a commit.
struct Committed {
    /// The sequence number of the transaction; 0 for none.
    seq: TxId,
    /// The error that kept some data from being committed.
    failed: Option<Error>,
    /// The transaction and everything before it is durable.
    durable: bool,
    /// Extents in stripes that did not fit into the transaction.
    left: usize,
    /// Content of some files was refused and dropped. That of the others can be committed.
    dropped: bool,
}

impl Drop for Packer<'_> {
    fn drop(&mut self) {
        // After an error, the data that waited for this stripe is dirty again.
        for (file, taken) in self.inside.drain(..) {
            self.fs.landed(&file, &taken, None);
        }
    }
}

impl FileSystem {
    /// The description of a file for the manifest of a stripe.
    pub(crate) fn describe(&self, ino: Ino) -> Option<manifest::File> {
        // Use the committed state: this client may be committing the file because another client
        // waits for it. Asking the server for the current state could then wait for that client,
        // which waits for this commit.
        let (attributes, path) = self.store.targets.steps().metadata(|| self.meta.describe(ino)).ok()?;
        let state = self.table.find(ino);
        let size = state.and_then(|file| file.state().buffer.size).unwrap_or(attributes.size);
        let (mode, uid, gid, modified) = (attributes.mode, attributes.uid, attributes.gid, attributes.modified);
        Some(manifest::File { path: path.unwrap_or_default(), size, mode, uid, gid, modified })
    }

    /// Writes a stripe and accounts for its space.
    pub(crate) fn append_stripe(&self, buffer: StripeBuffer, manifest: &[u8]) -> Result<(Stored, Pin<'_>)> {
        let (stored, pin) = self.store.append(buffer, manifest)?;
        let range = volume::record_range(stored.record, stored.block);
        self.space.spend((range.end - range.start) * self.store.options.code.shape().k as u64);
        Ok((stored, pin))
    }

    /// A piece was written into a stripe, or the write failed.
    pub(crate) fn landed(&self, file: &File, taken: &Taken, span: Option<Span>) {
        self.change_buffer(&mut file.state(), |buffer| buffer.written(taken, span));
        file.arrived();
    }

    /// Writes all data of some files into stripes, without a transaction. What other threads have
    /// taken is left to them.
    pub(crate) fn flush(&self, files: &[Arc<File>]) -> Result<()> {
        let mut packer = Packer::new(self);
        for file in files {
            let taken = self.take_all(&mut file.state());
            packer.add_all(file, taken)?;
        }
        packer.finish()
    }

    /// Writes data into stripes that other threads had taken and gave back since these counts: they
    /// failed, or a short rest was left.
    fn flush_given_back(&self, files: &[Arc<File>], before: &[u64]) -> Result<()> {
        let mut packer = Packer::new(self);
        for (file, before) in files.iter().zip(before) {
            let taken = {
                let mut state = aside(|| file.wait_for_arrivals());
                // Take it before another thread does, which may fail again.
                if state.buffer.given_back() == *before { Vec::new() } else { self.take_all(&mut state) }
            };
            // Another flush may wait for what is in the packer: it holds nothing at the next wait.
            packer.add_all(file, taken)?;
            packer.finish()?;
        }
        Ok(())
    }

    fn take_all(&self, state: &mut FileState) -> Vec<Taken> {
        let stripe = self.store.stripe_bytes() as u64;
        self.change_buffer(state, |buffer| buffer.take(stripe, true))
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
        let (mut last, mut failed, mut store, mut done) = (TxId(0), None, true, false);
        let wait = if !durable {
            Wait::No
        } else if files.len() == 1 {
            Wait::ForThis
        } else {
            Wait::ForMore
        };
        for group in files.chunks(FILES_PER_COMMIT) {
            let Committed { seq, failed: error, durable, .. } = self.commit_group(group, wait, store);
            (last, done) = (seq.max(last), durable);
            // Do not wait for failing targets again with every group.
            store &= error.as_ref().is_none_or(Error::is_no_space);
            failed = failed.or(error);
        }
        if let Some(error) = failed {
            return Err(error);
        }
        if durable && !done {
            self.store.targets.steps().metadata(|| self.meta.sync(TxId::MAX))?;
        }
        Ok(last)
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
            let mut done = self.commit_held(files, wait, store);
            if done.dropped {
                done = self.commit_held(files, wait, store);
            }
            if done.failed.is_some() && files.iter().filter(|file| self.forget_lost(&mut file.state())).count() > 0 {
                // Some sets were given up just now. Data outside of them can still be committed.
                done = self.commit_held(files, wait, store);
            }
            // Commit only what did not fit. Data that is written meanwhile is left to a later
            // commit.
            let mut left = done.left;
            while left > 0 && done.failed.is_none() {
                let next = self.commit_held(files, wait, false);
                left = next.left.min(left.saturating_sub(EXTENTS_PER_COMMIT));
                done = Committed { seq: next.seq.max(done.seq), ..next };
            }
            done
        })
    }

    /// As `commit_group`; the caller holds the content lock of the files.
    fn commit_held(&self, files: &[Arc<File>], wait: Wait, store: bool) -> Committed {
        let mut parts = Vec::with_capacity(files.len());
        let mut rest = Vec::with_capacity(files.len());
        for file in files {
            match self.take_inline(file, matches!(wait, Wait::Somebody | Wait::ForThis)) {
                Some(part) => parts.push(part),
                None => rest.push(file.clone()),
            }
        }
        let (left, failed) = self.put_in_stripes(&rest, store, &mut parts);
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
        parts.iter().for_each(|part| self.settle(part, done.is_ok()));
        match done {
            Ok((dead, seq)) => {
                self.collector.add(dead, seq);
                // The server that did it may have taken over since the sync of the sets.
                let failed = failed.or(self.store.tell_lacking().err());
                Committed { seq, failed, durable, left, dropped: false }
            }
            Err(error) => {
                let dropped = self.drop_superseded(files, &error);
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
        let taken = self.change_buffer(&mut state, |buffer| buffer.take(1, true));
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
    /// Returns the number of extents left for another transaction, and the error if some data is
    /// still dirty.
    fn put_in_stripes(&self, files: &[Arc<File>], store: bool, parts: &mut Vec<Part>) -> (usize, Option<Error>) {
        let begin = |file: &Arc<File>| {
            let mut state = file.state();
            state.failed = None;
            state.buffer.given_back()
        };
        let before: Vec<u64> = files.iter().map(begin).collect();
        let flush = || self.flush(files).and_then(|()| self.flush_given_back(files, &before));
        let mut failed = if store { flush().err() } else { None };
        let (inline, mut stored_any) = (parts.len(), false);
        let (mut space, mut left) = (EXTENTS_PER_COMMIT, 0);
        for file in files {
            let mut state = aside(|| file.wait_for_arrivals());
            self.forget_lost(&mut state);
            failed = failed.or(state.failed.take());
            let mut all = state.buffer.stored();
            let stored: Vec<Extent> = all.by_ref().take(space).cloned().collect();
            let more = all.count();
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
            parts.push(Part { file: file.clone(), edit, taken: Vec::new() });
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
            if state.buffer.modified == edit.modified {
                // The data that is still dirty is a later change. Its new time shows others that
                // there is something new.
                state.buffer.modified = (state.buffer.dirty_bytes() > 0).then(|| self.stamp_of_write());
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
mod tests {
    use crate::testing::{Lab, make};
    use std::time::{Duration, Instant};
    use volume::Control;
    use volume::target::Faults;

    /// A thread in the background fails, or leaves a short rest, while a sync waits for it. It
    /// gives back its data later than the sync took what was dirty, at least in some of the rounds.
    #[test]
    fn a_sync_stores_what_others_give_back_meanwhile() {
        let lab = Lab::new("rs:2+1", 3);
        let fs = lab.open();
        let bytes = vec![7; 300_000];
        let mut inos = Vec::new();
        for round in 0..20 {
            let ino = make(&fs, &format!("file{round}"));
            fs.open(ino, true).unwrap();
            fs.write(ino, 0, &bytes).unwrap();
            let file = fs.table.enter(ino);
            let taken = fs.take_all(&mut file.state());
            std::thread::scope(|scope| {
                let sync = scope.spawn(|| fs.sync(ino));
                std::thread::sleep(Duration::from_millis(20));
                taken.iter().for_each(|piece| fs.landed(&file, piece, None));
                sync.join().unwrap().unwrap();
            });
            drop(file);
            inos.push(ino);
        }
        fs.abandon();
        drop(fs);
        let fs = lab.open();
        for ino in inos {
            let mut read = vec![0; bytes.len()];
            assert_eq!(fs.read(ino, 0, &mut read).unwrap(), bytes.len());
            assert!(read == bytes);
        }
    }

    /// Never more than one target is away. But a set was begun without one that is back, and misses
    /// another now: too few have what was not synced.
    #[test]
    fn a_set_that_cannot_be_synced_keeps_no_other_file_from_its_commit() {
        let lab = Lab::new("rs:2+1", 3);
        let (fs, disks) = lab.open_faulty(2);
        let away = |number: usize, away: bool| disks[number].set(Faults { away, ..Faults::default() });
        let write = |name: &str| {
            let ino = make(&fs, name);
            fs.open(ino, true).unwrap();
            fs.write(ino, 0, &[7; 100_000]).unwrap();
            ino
        };
        away(1, true);
        let first = write("first");
        fs.flush(&[(*fs.table.enter(first)).clone()]).unwrap();
        away(1, false);
        away(0, true);
        fs.sync(write("second")).unwrap();
        write("third");
        fs.sync_all().unwrap_err();
        fs.repair(&Control::default()).unwrap();
        let verified = fs.verify(&Control::default()).unwrap().stripes;
        assert_eq!(fs.uncommitted().0, 1, "the first");
        fs.sync(first).unwrap_err();
        away(0, false);
        let begun = Instant::now();
        while let Err(why) = fs.sync(first) {
            assert!(begun.elapsed() < Duration::from_secs(120), "{why}");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(fs.uncommitted().0, 0);
        let new = fs.verify_new(&Control::default()).unwrap().stripes;
        assert!(new > 0 && verified > 0, "the first is read when it is committed");
    }

    /// Tests the limit of a transaction, which is 32 MiB.
    #[test]
    fn more_extents_than_a_transaction_takes_are_committed() {
        const FILE_COUNT: u64 = 560_000;
        let lab = Lab::new("rs:2+1", 3);
        let fs = lab.open();
        let ino = make(&fs, "file");
        fs.open(ino, true).unwrap();
        fs.write(ino, 0, &[9; 100]).unwrap();
        fs.sync(ino).unwrap();
        for n in 1..FILE_COUNT {
            fs.write(ino, n * 10, &(n as u32).to_le_bytes()).unwrap();
        }
        fs.sync(ino).unwrap();
        fs.close(ino);
        fs.close_volume().unwrap();
        drop(fs);
        let fs = lab.open();
        assert_eq!(fs.attributes(ino).unwrap().size, (FILE_COUNT - 1) * 10 + 4);
        for n in [20, 16_383, 16_384, 16_385, 40_000, FILE_COUNT - 1] {
            let mut bytes = [0; 4];
            fs.read(ino, n * 10, &mut bytes).unwrap();
            assert_eq!(u32::from_le_bytes(bytes), n as u32);
        }
    }
}

//! The bulk load: files that are created whole, many in one transaction. Their data goes straight
//! into stripes, and one transaction creates them with all their attributes. It is for programs
//! that write files once, like the archive encoder. Nothing is buffered, and no file is visible
//! before it is complete.
//!
//! A transaction creates all of its files or none. A load belongs to the session in which it began:
//! once that ends, no more of it is committed.

use crate::data::manifest::{self, Piece};
use crate::data::store::{Pin, Stored};
use crate::error::lost;
use crate::{Error, FileSystem, Result};
use meta::{Attributes, BulkFile, ContentEdit, Resize};
use plan::{Extent, ExtentPlace, Ino, RecordOffset, SessionId, SetId, Span, TxId};
use session::port::within_session;
use std::collections::HashSet;
use std::ops::Range;
use volume::StripeBuffer;

/// The bytes that a piece takes in a manifest, not counting the path of its file.
const PIECE_BYTES: usize = 80;
/// The most files that one transaction creates.
const FILES_PER_TRANSACTION: usize = 1024;

/// A bulk load in progress. Files that are not committed when it is dropped do not exist.
pub struct BulkLoad<'a> {
    fs: &'a FileSystem,
    /// The session in which the first of `files` was begun; None where sessions do not end.
    session: Option<SessionId>,
    buffer: Option<StripeBuffer>,
    /// The pieces in the buffer, each with its file as an index into `files`.
    pieces: Vec<(usize, Piece)>,
    manifest_bytes: usize,
    files: Vec<Loading>,
    /// The stripes, pinned until a transaction names them or they are given up.
    stripes: Vec<(Stored, Pin<'a>)>,
    stored_bytes: u64,
}

/// A file that is being loaded.
struct Loading {
    ino: Ino,
    about: manifest::File,
    extents: Vec<Extent>,
    kind: LoadState,
}

/// What the commit does with a file.
enum LoadState {
    /// The file is not finished.
    Open,
    /// Create the file.
    Made(Box<BulkFile>),
    /// Replace this range of an existing file.
    Part(Range<u64>),
    /// Nothing: the file was given up.
    Dropped,
}

/// The result of a commit.
#[derive(Clone, Debug, Default)]
pub struct BulkLoaded {
    /// Files that were not created because their name exists, in the order in which they were
    /// finished.
    pub refused: Vec<(Ino, Vec<u8>)>,
    /// Bytes of user data in stripes.
    pub stored_bytes: u64,
}

impl FileSystem {
    /// Begins a bulk load.
    ///
    /// # Errors
    /// When the volume is open for reading only.
    pub fn bulk_load(&self) -> Result<BulkLoad<'_>> {
        self.writable()?;
        Ok(BulkLoad {
            fs: self,
            session: self.sharing().session(),
            buffer: None,
            pieces: Vec::new(),
            manifest_bytes: 0,
            files: Vec::new(),
            stripes: Vec::new(),
            stored_bytes: 0,
        })
    }

    /// Allocates `count` consecutive inode numbers for new files and returns the first.
    ///
    /// # Errors
    /// When the metadata cannot be written.
    pub fn new_inos(&self, count: u32) -> Result<Ino> {
        self.writable()?;
        Ok(self.meta.new_inos(count)?)
    }

    /// Creates files without data in one transaction, without waiting until it is durable. Returns
    /// the indices of the files whose name exists.
    ///
    /// # Errors
    /// When the metadata cannot be written.
    pub fn put_files(&self, files: &[BulkFile]) -> Result<Vec<u32>> {
        self.writable()?;
        self.check_metadata_space()?;
        Ok(self.in_this_session(|| self.meta.put_files(files))?.refused)
    }

    /// Looks up many names, each in its directory, and returns the attributes; None where there is
    /// no such name. Uncommitted changes are not included.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn lookups(&self, names: &[(Ino, Vec<u8>)]) -> Result<Vec<Option<Attributes>>> {
        Ok(self.meta.lookups(names)?)
    }

    /// The approximate bytes of user data in a full stripe.
    pub fn stripe_bytes(&self) -> usize {
        self.store.stripe_bytes()
    }
}

impl BulkLoad<'_> {
    /// Begins a file with a number from [`FileSystem::new_inos`], or a part of an existing file.
    /// Data that is added next belongs to it. `about` is stored in the manifest, so that the file
    /// can be found when all metadata is lost.
    pub fn begin(&mut self, ino: Ino, about: manifest::File) {
        if self.files.is_empty() {
            self.session = self.fs.sharing().session();
        }
        let about = about.fitting(self.fs.store.stripe_bytes());
        self.files.push(Loading { ino, about, extents: Vec::new(), kind: LoadState::Open });
    }

    /// Runs work in the session of this load.
    fn in_its_session<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        within_session(self.session, || {
            self.fs.is_still_in_session()?;
            work(self)
        })
    }

    fn last(&mut self) -> &mut Loading {
        self.files.last_mut().expect("a file was begun")
    }

    /// Adds data to the file that was begun last. `read` fills the buffer that it is given and
    /// returns how many bytes it wrote; `most` is the number of bytes wanted. Returns the data,
    /// which is empty when `read` returned none.
    ///
    /// # Errors
    /// The errors of `read`, and when a full stripe cannot be written.
    pub fn add<E: From<Error>>(
        &mut self,
        offset: u64,
        most: usize,
        read: impl FnOnce(&mut [u8]) -> std::result::Result<usize, E>,
    ) -> std::result::Result<&[u8], E> {
        let file = self.files.len() - 1;
        let loading = &self.files[file];
        let first = self.pieces.last().is_none_or(|(last, _)| *last != file);
        let entry = PIECE_BYTES + if first { loading.about.path.len() } else { 0 };
        if self.free_bytes(entry) < most.min(4096) {
            self.store_stripe()?;
        }
        let free_bytes = self.free_bytes(entry);
        // Cut at a page boundary, so that pages stay whole.
        let length = if most <= free_bytes { most } else { (free_bytes & !4095).max(free_bytes.min(1)) };
        if self.buffer.is_none() {
            self.fs.check_space(self.fs.store.stripe_bytes() as u64)?;
        }
        let loading = &self.files[file];
        let buffer = self.buffer.get_or_insert_with(|| self.fs.store.pool.take());
        let data = buffer.extend_with(length, read)?;
        if !data.is_empty() {
            let added = data.len() as u64;
            match self.pieces.last_mut() {
                Some((last, piece)) if *last == file && piece.offset + piece.length == offset => piece.length += added,
                _ => {
                    let about = first.then(|| loading.about.clone());
                    self.pieces.push((file, Piece { ino: loading.ino, offset, length: added, file: about }));
                    self.manifest_bytes += entry;
                }
            }
        }
        Ok(data)
    }

    /// The bytes that still fit into the stripe, not counting the manifest entry of the next piece.
    fn free_bytes(&self, entry: usize) -> usize {
        let space = self.buffer.as_ref().map_or(self.fs.store.stripe_bytes() + 4096, StripeBuffer::space);
        let free_bytes = space.saturating_sub(self.manifest_bytes + entry + 16);
        if self.pieces.is_empty() { free_bytes.min(self.fs.store.stripe_bytes()) } else { free_bytes }
    }

    /// Finishes the file that was begun last: the commit creates it. Its extents are filled in.
    pub fn finish(&mut self, whole: BulkFile) {
        self.last().kind = LoadState::Made(Box::new(whole));
    }

    /// Finishes the part of a file that was begun last. The commit replaces the content of this
    /// range; unwritten parts of it become holes.
    pub fn finish_part(&mut self, range: Range<u64>) {
        self.last().kind = LoadState::Part(range);
    }

    /// Gives up the file that was begun last, and its data in stripes.
    pub fn drop_last(&mut self) {
        let file = self.files.len() - 1;
        self.last().kind = LoadState::Dropped;
        // Do not write the data that is at the end of the buffer.
        while let Some((_, piece)) = self.pieces.pop_if(|(last, _)| *last == file) {
            if let Some(buffer) = &mut self.buffer {
                buffer.truncate(buffer.len() - piece.length as usize);
            }
        }
    }

    /// The number of files that were begun and not committed.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Bytes that were added and not committed.
    pub fn bytes(&self) -> u64 {
        self.stored_bytes + self.buffer.as_ref().map_or(0, |buffer| buffer.len() as u64)
    }

    /// Writes the stripe that is being filled.
    fn store_stripe(&mut self) -> Result<()> {
        let Some(buffer) = self.buffer.take() else { return Ok(()) };
        if buffer.is_empty() {
            self.fs.store.pool.give(buffer);
            return Ok(());
        }
        let bytes = buffer.len() as u64;
        let (owners, pieces): (Vec<usize>, Vec<Piece>) = self.pieces.drain(..).unzip();
        self.manifest_bytes = 0;
        let fs = self.fs;
        let (stored, pin) = self.in_its_session(|_| fs.append_stripe(buffer, &manifest::encode(&pieces)))?;
        let Stored { set, record, block } = stored;
        self.stripes.push((stored, pin));
        self.stored_bytes += bytes;
        let mut start = 0;
        for (file, piece) in owners.into_iter().zip(pieces) {
            let place = ExtentPlace::Stripe(Span { set, record, block, start });
            start += piece.length as u32;
            self.files[file].extents.push(Extent { offset: piece.offset, length: piece.length, place });
        }
        Ok(())
    }

    /// Creates everything that was finished, and returns when it is durable.
    ///
    /// # Errors
    /// When it may not be durable. Each file that exists afterwards is whole. When the session in
    /// which the first of its files was begun has ended: everything is given up then.
    pub fn commit(&mut self) -> Result<BulkLoaded> {
        let done = self.in_its_session(Self::commit_in_session);
        if done.is_err() && self.in_its_session(|_| Ok(())).is_err() {
            self.give_up();
        }
        done
    }

    /// Drops all that is not committed.
    fn give_up(&mut self) {
        let stripes = std::mem::take(&mut self.stripes);
        self.fs.give_up_stripes(stripes.iter().map(|(stored, _)| stored), &HashSet::new());
        if let Some(buffer) = self.buffer.take() {
            self.fs.store.pool.give(buffer);
        }
        self.files.clear();
        self.pieces.clear();
        (self.manifest_bytes, self.stored_bytes) = (0, 0);
    }

    fn commit_in_session(&mut self) -> Result<BulkLoaded> {
        self.store_stripe()?;
        // From here on a transaction may name the stripes, even if it returns an error.
        let stripes = std::mem::take(&mut self.stripes);
        if !stripes.is_empty() {
            self.fs.store.sync_sets(stripes.iter().map(|(stored, _)| stored.set))?;
        }
        let mut done = BulkLoaded { refused: Vec::new(), stored_bytes: std::mem::take(&mut self.stored_bytes) };
        let (mut whole, mut parts, mut seq, mut named) = (Vec::new(), Vec::new(), TxId(0), HashSet::new());
        for loading in self.files.drain(..) {
            let extents = loading.extents;
            if !matches!(loading.kind, LoadState::Open | LoadState::Dropped) {
                named.extend(extents.iter().filter_map(stripe_of));
            }
            match loading.kind {
                LoadState::Made(file) => whole.push(BulkFile { extents, ..*file }),
                LoadState::Part(range) => {
                    let resize = Resize::AtLeast(range.end);
                    let edit = ContentEdit { ranges: vec![(range, extents)], resize, modified: None };
                    parts.push((loading.ino, edit));
                }
                LoadState::Open | LoadState::Dropped => {}
            }
        }
        let losses = || self.fs.sharing().losses_of_server();
        let before = losses();
        for group in whole.chunks(FILES_PER_TRANSACTION) {
            let put = self.fs.meta.put_files(group)?;
            seq = put.seq.max(seq);
            let refused = put.refused.iter().filter_map(|&index| group.get(index as usize));
            done.refused.extend(refused.map(|file| (file.parent, file.name.clone())));
        }
        for (ino, edit) in parts {
            seq = self.fs.put_part(ino, &edit)?.max(seq);
        }
        self.fs.give_up_stripes(stripes.iter().map(|(stored, _)| stored), &named);
        drop(stripes);
        if seq > TxId(0) {
            // As in a commit of files.
            self.fs.store.tell_lacking()?;
            self.fs.meta.sync(seq)?;
        }
        // Another server took over between the write and the sync: the data may be lost.
        if losses() == before { Ok(done) } else { Err(lost()) }
    }
}

/// The stripe that an extent is in.
fn stripe_of(extent: &Extent) -> Option<(SetId, RecordOffset)> {
    match extent.place {
        ExtentPlace::Stripe(span) => Some(span.stripe()),
        _ => None,
    }
}

impl FileSystem {
    /// Frees the space of stripes that no transaction names or will name.
    fn give_up_stripes<'a>(&self, stripes: impl Iterator<Item = &'a Stored>, named: &HashSet<(SetId, RecordOffset)>) {
        for stripe in stripes.filter(|stripe| !named.contains(&(stripe.set, stripe.record))) {
            if let Ok(layout) = self.store.layout(stripe.set) {
                self.punch_ranges(&layout, vec![volume::record_range(stripe.record, stripe.block)]);
            }
        }
    }

    fn put_part(&self, ino: Ino, edit: &ContentEdit) -> Result<TxId> {
        let file = self.table.enter(ino);
        let _one_at_a_time = file.content();
        let (_, dead, seq) = self.change_content(&file, edit, false)?;
        self.collector.add(dead, seq);
        Ok(seq)
    }
}

impl Drop for BulkLoad<'_> {
    fn drop(&mut self) {
        self.give_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Lab;
    use crate::{FileKind, New, ROOT, Time};

    fn about(name: &str, size: u64) -> manifest::File {
        manifest::File { path: name.into(), size, mode: 0o600, uid: 1, gid: 2, modified: Time::default() }
    }

    fn whole(ino: Ino, name: &str, size: u64) -> BulkFile {
        let time = Time { seconds: 1_000_000, nanoseconds: 123_456_789 };
        BulkFile {
            ino,
            parent: ROOT,
            name: name.into(),
            new: New { kind: FileKind::File, mode: 0o640, uid: 7, gid: 8, device: 0, link: Vec::new() },
            size,
            accessed: time,
            modified: time,
            changed: time,
            extents: Vec::new(),
            attributes: vec![(b"user.a".to_vec(), b"b".to_vec())],
        }
    }

    fn add(bulk_load: &mut BulkLoad, mut offset: u64, mut data: &[u8]) {
        while !data.is_empty() {
            let added = bulk_load
                .add(offset, data.len(), |into| {
                    into.copy_from_slice(&data[..into.len()]);
                    Ok::<usize, Error>(into.len())
                })
                .unwrap()
                .len();
            (offset, data) = (offset + added as u64, &data[added..]);
        }
    }

    fn read(fs: &FileSystem, ino: Ino, size: usize) -> Vec<u8> {
        let mut all = vec![0xAA; size + 1];
        let length = fs.read(ino, 0, &mut all).unwrap();
        all.truncate(length);
        all
    }

    #[test]
    fn files_of_all_sizes_are_there_after_a_crash_or_not_at_all() {
        let lab = Lab::new("rs:2+1", 3);
        let noise: Vec<u8> = (0..9_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let sizes = [0usize, 1, 100, 2048, 4096, 5000, 70_000, 4 << 20, 9_000_000];
        let fs = lab.open();
        let first = fs.new_inos(2 * sizes.len() as u32).unwrap();
        let mut bulk_load = fs.bulk_load().unwrap();
        for (n, &size) in sizes.iter().enumerate() {
            let (ino, name) = (first.plus(n as u64), format!("file{n}"));
            bulk_load.begin(ino, about(&name, size as u64));
            add(&mut bulk_load, 0, &noise[..size]);
            bulk_load.finish(whole(ino, &name, size as u64));
            // Every second file is begun again and given up.
            bulk_load.begin(first.plus((sizes.len() + n) as u64), about("given-up", 5));
            add(&mut bulk_load, 0, &noise[..size.min(1000)]);
            bulk_load.drop_last();
        }
        let done = bulk_load.commit().unwrap();
        assert!(done.refused.is_empty() && bulk_load.is_empty() && bulk_load.bytes() == 0);
        bulk_load.begin(first, about("late", 5));
        add(&mut bulk_load, 0, b"never committed");
        bulk_load.finish(whole(first.plus(1000), "late", 15));
        drop(bulk_load);
        fs.abandon();
        drop(fs);

        let fs = lab.open();
        assert_eq!(fs.list(ROOT, 0, 100).unwrap().len(), sizes.len());
        for (n, &size) in sizes.iter().enumerate() {
            let found = fs.lookup(ROOT, format!("file{n}").as_bytes()).unwrap();
            assert_eq!((found.size, found.mode, found.uid, found.gid), (size as u64, 0o640, 7, 8));
            assert_eq!(found.modified, Time { seconds: 1_000_000, nanoseconds: 123_456_789 });
            assert!(read(&fs, found.ino, size) == noise[..size], "file {n}");
            assert_eq!(fs.attribute(found.ino, b"user.a").unwrap(), b"b");
        }
        // Compaction and verification treat them like any other file.
        let control = volume::Control::default();
        assert!(fs.verify(&control).unwrap().is_sound());
        fs.close_volume().unwrap();
    }

    #[test]
    fn a_taken_name_is_refused_and_the_others_made() {
        let lab = Lab::new("rs:2+1", 3);
        let fs = lab.open();
        let first = fs.new_inos(3).unwrap();
        let there = crate::testing::make(&fs, "b");
        let directory = fs.attributes(ROOT).unwrap();
        let mut bulk_load = fs.bulk_load().unwrap();
        for (n, name) in ["a", "b", "c"].into_iter().enumerate() {
            bulk_load.begin(first.plus(n as u64), about(name, 3));
            add(&mut bulk_load, 0, b"new");
            bulk_load.finish(whole(first.plus(n as u64), name, 3));
        }
        assert_eq!(bulk_load.commit().unwrap().refused, [(ROOT, b"b".to_vec())]);
        assert_eq!(fs.lookup(ROOT, b"b").unwrap().ino, there);
        assert_eq!(read(&fs, first.plus(2), 3), b"new");
        // Repeat the request, as after a lost answer: a file that is already there is not refused.
        let again = [whole(first, "a", 3), whole(first.plus(9), "c", 3)];
        assert_eq!(fs.put_files(&again).unwrap(), [1]);
        let names: Vec<(Ino, Vec<u8>)> = ["a", "x", "c"].iter().map(|name| (ROOT, name.as_bytes().to_vec())).collect();
        let found = fs.lookups(&names).unwrap();
        let inos: Vec<Option<Ino>> = found.iter().map(|found| found.map(|found| found.ino)).collect();
        assert_eq!(inos, [Some(first), None, Some(first.plus(2))]);
        let now = fs.attributes(ROOT).unwrap();
        assert_eq!(
            (now.modified, now.size),
            (directory.modified, directory.size + 64),
            "its time stays, its entries count"
        );
    }

    #[test]
    fn parts_come_in_any_order_and_leave_holes() {
        let lab = Lab::new("rs:2+1", 3);
        let fs = lab.open();
        let ino = crate::testing::make(&fs, "large");
        for (begin, at, data) in [(2u64 << 20, (2 << 20) + 5000, &b"second"[..]), (0, 0, b"first"), (0, 3, b"over")] {
            let mut bulk_load = fs.bulk_load().unwrap();
            bulk_load.begin(ino, about("large", 3 << 20));
            add(&mut bulk_load, at, data);
            bulk_load.finish_part(begin..begin + (1 << 20));
            bulk_load.commit().unwrap();
        }
        let all = read(&fs, ino, 3 << 20);
        assert_eq!(all.len(), 3 << 20);
        assert_eq!((&all[..8], &all[(2 << 20) + 5000..][..6]), (&b"\0\0\0over\0"[..], &b"second"[..]));
        assert_eq!(fs.attributes(ino).unwrap().allocated, 10);
    }
}

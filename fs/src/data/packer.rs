//! Packs data of many files into common stripes.

use crate::data::buffer::Taken;
use crate::data::file::File;
use crate::data::manifest::{self, Piece};
use crate::data::store::{Pin, Stored};
use crate::volume::stripe_size::MANIFEST_BYTES;
use crate::{FileSystem, Result};
use plan::{Ino, Span};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;
use volume::{StripeBuffer, WriteStep};

/// A stripe that is being filled, and the data that it gets. What is in no stripe at the end, also
/// after an error or a panic, is dirty again.
pub(crate) struct Packer<'a> {
    fs: &'a FileSystem,
    buffer: Option<StripeBuffer>,
    /// What is not in the stripe yet.
    waiting: VecDeque<(Arc<File>, Taken)>,
    inside: Vec<(Arc<File>, Taken)>,
    pieces: Vec<Piece>,
    manifest_bytes: usize,
    paths: HashMap<Ino, Option<manifest::File>>,
}

impl<'a> Packer<'a> {
    pub fn new(fs: &'a FileSystem) -> Self {
        let (waiting, inside, pieces, paths) = Default::default();
        Self { fs, buffer: None, waiting, inside, pieces, manifest_bytes: 0, paths }
    }

    /// Adds pieces of a file. Those that could not be written are dirty again.
    pub fn add_all(&mut self, file: &Arc<File>, taken: Vec<Taken>) -> Result<()> {
        self.waiting.extend(taken.into_iter().map(|piece| (file.clone(), piece)));
        while !self.waiting.is_empty() {
            if let Err(error) = self.add_next() {
                self.give_back();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Adds what waits first, or as much of it as fits; writes the stripe when it is full.
    fn add_next(&mut self) -> Result<()> {
        let Some((file, taken)) = self.waiting.front() else { return Ok(()) };
        let stripe = self.fs.store.stripe_bytes();
        let buffer = self.buffer.get_or_insert_with(|| self.fs.store.pool.take());
        let describe = || Some(self.fs.describe(file.ino)?.fitting(stripe));
        let entry = self.paths.entry(file.ino).or_insert_with(describe).clone();
        let entry = if self.pieces.last().is_some_and(|last| last.ino == file.ino) { None } else { entry };
        let entry_bytes = 16 + entry.as_ref().map_or(0, |entry| 48 + entry.path.len());
        let most = (stripe + MANIFEST_BYTES).saturating_sub(buffer.len());
        let space = buffer.space().min(most).saturating_sub(self.manifest_bytes + entry_bytes + 16);
        let space = if self.pieces.is_empty() { space.min(stripe) } else { space };
        if space < taken.bytes.len().min(4096) {
            return self.finish();
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
            self.inside.extend(self.waiting.pop_front());
        } else {
            file.state().buffer.split();
            self.inside.push((file.clone(), first));
            self.waiting[0].1 = rest;
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

    fn give_back(&mut self) {
        for (file, taken) in self.inside.drain(..).chain(self.waiting.drain(..)) {
            self.fs.landed(&file, &taken, None);
        }
    }
}

impl Drop for Packer<'_> {
    fn drop(&mut self) {
        self.give_back();
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
}

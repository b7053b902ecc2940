//! Making chunks again, some stripes at a time. The process that has the first of the new chunks makes their blocks, if it works for others: then data goes
//! from store to store, and whoever repairs only says what is to be done. Otherwise, or if that fails, they are made here; the bytes are the same.

mod blocks;

use super::reader::StripeAt;
use super::writer::chunk_headers;
use super::{SetLayout, can_begin};
use crate::format::{CHUNK_HEADER_BYTES, ChunkHeader, StripeHeader, Timestamp};
use crate::target::{Target, TargetFile, read_to_vec};
use crate::targets::{Batch, Targets};
use crate::{Control, Error, Result};
use plan::TargetId;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::path::Path;

/// Of each new chunk, so much is made at a time, or one block if that is longer. Each block counts for so much at least: it has its requests.
const AT_A_TIME: u64 = 4 << 20;
const LEAST: u64 = 64 << 10;

/// What a rebuild did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RebuildReport {
    /// Bytes of blocks that were made.
    pub bytes: u64,
    /// Those that the processes of targets made.
    pub delegated: u64,
    /// Blocks that were checked against a survivor that they were not made from.
    pub witnessed: u64,
    /// Blocks for which there was no such survivor.
    pub unwitnessed: u64,
}

impl RebuildReport {
    fn add(&mut self, more: Self) {
        self.bytes += more.bytes;
        self.delegated += more.delegated;
        self.witnessed += more.witnessed;
        self.unwitnessed += more.unwitnessed;
    }
}

/// A block of a stripe and where it goes.
type Wanted = (usize, TargetId);

/// Stripes of a set whose blocks are to be made again.
#[derive(Clone, Copy, Debug)]
pub struct RebuildOrder<'a> {
    /// Where the blocks are that there are.
    pub layout: &'a SetLayout,
    /// The stripes, by record and block length.
    pub stripes: &'a [(u32, u32)],
    /// The positions that are to be made, and the targets on which their new chunks were begun.
    pub wanted: &'a [Wanted],
}

impl RebuildOrder<'_> {
    /// Makes the blocks, checks them, and writes them to the new chunks, stripe by stripe as long as `go_on` says so.
    ///
    /// # Errors
    /// When the order cannot be carried out, or a new chunk was not begun or has its name already: nothing was written then. Those of [`rebuild`]: some blocks
    /// were.
    pub fn carry_out(&self, targets: &Targets, go_on: impl Fn() -> Result<()>) -> Result<RebuildReport> {
        self.check()?;
        if !self.stripes.is_empty() {
            self.look(targets)?;
        }
        let (set, mut report) = (self.layout.set, RebuildReport::default());
        for &(record, block) in self.stripes {
            go_on()?;
            let stripe = StripeAt { targets, layout: self.layout, record, block, fresh: true, hedged: false };
            let blocks = blocks::blocks(&stripe, self.wanted, &mut report)?;
            report.bytes += blocks.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
            let blocks: BTreeMap<usize, (StripeHeader, Vec<u8>)> =
                self.wanted.iter().map(|&(position, _)| position).zip(blocks).collect();
            on_each(targets, self.wanted, "write", move |position, target| {
                let (header, bytes) = &blocks[&position];
                let padding = vec![0; bytes.len().next_multiple_of(64) - bytes.len()];
                let header = header.encode();
                let parts = [&header[..], bytes, &padding].map(IoSlice::new);
                target.write(new_chunk(set, position), u64::from(record), &parts)
            })?;
        }
        Ok(report)
    }

    /// Whether the new chunks were begun. Nothing is written to what is none: nobody would remove that.
    fn look(&self, targets: &Targets) -> Result<()> {
        let (volume, set) = (self.layout.volume, self.layout.set);
        on_each(targets, self.wanted, "look at", move |position, target| {
            let bytes = read_to_vec(CHUNK_HEADER_BYTES, |into| target.read(new_chunk(set, position), 0, into))?;
            let header = ChunkHeader::decode(&bytes).ok();
            let begun =
                header.is_some_and(|it| (it.volume, it.set, usize::from(it.position)) == (volume, set, position));
            if begun { Ok(()) } else { Err(io::Error::new(io::ErrorKind::InvalidInput, "it was not begun")) }
        })
    }

    /// Whether there can be such stripes: an order may come from elsewhere.
    fn check(&self) -> Result<()> {
        let bad = |what: String| Err(Error::Invalid(format!("chunk set {}: {what}", self.layout.set)));
        let blocks = self.layout.blocks();
        if self.layout.places.len() != blocks {
            return bad(format!("{} places for {blocks} blocks", self.layout.places.len()));
        }
        let positions: BTreeSet<usize> = self.wanted.iter().map(|&(position, _)| position).collect();
        if positions.len() != self.wanted.len() || positions.last().is_some_and(|&last| last >= blocks) {
            return bad(format!("of {blocks} blocks those are wanted: {:?}", self.wanted));
        }
        match self.stripes.iter().find(|&&(record, block)| !can_begin(record, block as usize)) {
            Some((record, block)) => bad(format!("no record with blocks of {block} bytes can begin at {record}")),
            None => Ok(()),
        }
    }

    /// Has the process that has the first of the new chunks do it. None when it does not, not all of it, or without a witness where there may be one: it may
    /// reach less than this one.
    fn delegate(&self, targets: &Targets) -> Option<RebuildReport> {
        let sound = |id: &TargetId| targets.error(*id).is_none();
        let first = targets.get(self.wanted.iter().map(|&(_, id)| id).next().filter(sound)?)?;
        let master = first.master()?;
        let address = |id: TargetId| targets.get(id)?.address();
        let destinations: Vec<String> = self.wanted.iter().map(|&(_, id)| address(id)).collect::<Option<_>>()?;
        let there = |id: &TargetId| targets.get(*id).is_some() && sound(id);
        let sources = self.layout.places.iter().map(|place| match place.filter(there) {
            Some(id) => address(id).map(Some),
            None => Some(None),
        });
        let sources: Vec<Option<String>> = sources.collect::<Option<_>>()?;
        let done = master.rebuild(self, &sources, &destinations).ok()?;
        let bytes = self.stripes.iter().map(|&(_, block)| u64::from(block)).sum::<u64>() * self.wanted.len() as u64;
        let is_wanted = |position: &usize| self.wanted.iter().any(|(wanted, _)| wanted == position);
        let survivors =
            (0..sources.len()).filter(|position| sources[*position].is_some() && !is_wanted(position)).count();
        let may_have_witness = survivors > self.layout.code.shape().k;
        let is_done = done.bytes == bytes && !(done.unwitnessed > 0 && may_have_witness);
        is_done.then_some(RebuildReport { delegated: done.bytes, ..done })
    }
}

/// Makes the chunks `wanted` again: the position of each, and the target that it goes to. `stripes` are those of the set that are of use, by record and block
/// length; what is between them stays a hole. The chunks get their names when all of them are whole and durable.
///
/// # Errors
/// `TooDegraded` when too little of a stripe is left, `Corrupt` when survivors contradict each other, `NoSpace`, `Interrupted`; nothing is left behind then.
pub fn rebuild(
    targets: &Targets,
    layout: &SetLayout,
    stripes: &[(u32, u32)],
    wanted: &[Wanted],
    control: &Control,
) -> Result<RebuildReport> {
    let made = make(targets, layout, stripes, wanted, control);
    if made.is_err() {
        // One that hangs does not answer this either; what is left there has no use, and no name.
        let answering = wanted.iter().copied().filter(|&(_, id)| !targets.hangs(id));
        let set = layout.set;
        targets.each(answering, move |position, target| target.remove(new_chunk(set, position)));
    }
    made
}

fn new_chunk(set: u64, position: usize) -> TargetFile {
    TargetFile::NewChunk { set, position: position as u16 }
}

fn make(
    targets: &Targets,
    layout: &SetLayout,
    stripes: &[(u32, u32)],
    wanted: &[Wanted],
    control: &Control,
) -> Result<RebuildReport> {
    let set = layout.set;
    let headers = chunk_headers(layout, created(targets, layout));
    on_each(targets, wanted, "begin", move |position, target| {
        target.remove(new_chunk(set, position))?;
        target.write(new_chunk(set, position), 0, &[IoSlice::new(&headers[position])])
    })?;
    let (mut report, mut others_do) = (RebuildReport::default(), true);
    for stripes in parts(stripes) {
        control.check()?;
        let order = RebuildOrder { layout, stripes, wanted };
        let by_others = if others_do { order.delegate(targets) } else { None };
        // Who did not do one part is not asked for the next.
        others_do = by_others.is_some();
        let done = by_others.map_or_else(|| order.carry_out(targets, || control.check()), Ok)?;
        report.add(done);
        control.advance(done.bytes as usize);
        control.pace(done.bytes as usize)?;
    }
    on_each(targets, wanted, "sync", move |position, target| target.sync(new_chunk(set, position)))?;
    on_each(targets, wanted, "rename", move |position, target| {
        target.rename(new_chunk(set, position), TargetFile::Chunk { set, position: position as u16 })
    })?;
    Ok(report)
}

/// The stripes, in parts that are made at a time.
fn parts(mut stripes: &[(u32, u32)]) -> impl Iterator<Item = &[(u32, u32)]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let more = stripes.iter().take_while(|&&(_, block)| {
            bytes += u64::from(block).max(LEAST);
            bytes <= AT_A_TIME
        });
        let (part, rest) = stripes.split_at(more.count().max(1).min(stripes.len()));
        stripes = rest;
        (!part.is_empty()).then_some(part)
    })
}

/// Does something for each of the chunks, on all targets at the same time.
fn on_each(
    targets: &Targets,
    wanted: &[Wanted],
    what: &'static str,
    operation: impl Fn(usize, &dyn Target) -> io::Result<()> + Send + Sync + 'static,
) -> Result<()> {
    for &(_, id) in wanted {
        targets.get(id).ok_or_else(|| Error::NotFound(format!("target {} is not there", id.0)))?;
    }
    for (_, id, done) in targets.each(wanted.iter().copied(), operation) {
        done.map_err(Error::io(what, Path::new(&format!("a chunk on target {}", id.0))))?;
    }
    Ok(())
}

/// When the set was begun, as its chunks say.
fn created(targets: &Targets, layout: &SetLayout) -> Timestamp {
    let mut batch = Batch::new();
    for (position, id) in layout.places.iter().enumerate().filter_map(|(position, id)| Some((position, (*id)?))) {
        let (volume, file) = (layout.volume, layout.file(position));
        batch.run(targets, position, id, move |target| {
            let mut bytes = vec![0; CHUNK_HEADER_BYTES];
            let length = target.read(file, 0, &mut bytes).unwrap_or(0);
            let header = ChunkHeader::decode(&bytes[..length]).ok().filter(|header| header.volume == volume);
            Ok(header.map(|header| header.created))
        });
    }
    let found = batch.wait(targets).into_iter().filter_map(|(_, _, created)| created.ok().flatten());
    found.min().unwrap_or_else(Timestamp::now)
}

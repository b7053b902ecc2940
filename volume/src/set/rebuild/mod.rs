//! Rebuilds chunks, some stripes at a time. If the process of the first new chunk's target works
//! for others, it computes the blocks. Then data flows from store to store, and the repairing
//! process only sends orders. Otherwise, or if that fails, this process computes them; the bytes
//! are the same.

mod blocks;

use super::encoded::chunk_headers;
use super::layout::{SetLayout, can_begin};
use super::orders::{RebuildOrder, RebuildReport, Wanted};
use super::reader::StripeAt;
use crate::format::{CHUNK_HEADER_BYTES, ChunkHeader, StripeHeader, Timestamp};
use crate::target::{Durable, ReadAt, Target, TargetFile, read_to_vec};
use crate::targets::{Batch, Targets};
use crate::{Control, Error, Result};
use plan::{Position, RecordOffset, SetId, TargetId};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::path::Path;

/// Bytes per new chunk that are rebuilt at a time; a longer block is rebuilt on its own. Each block
/// counts for at least `MIN_BLOCK_CHARGE_BYTES` bytes, because of the requests it needs.
const REBUILD_BATCH_BYTES: u64 = 4 << 20;
const MIN_BLOCK_CHARGE_BYTES: u64 = 64 << 10;

impl RebuildOrder<'_> {
    /// Computes the blocks, checks them, and writes them to the new chunks, stripe by stripe, as
    /// long as `go_on` allows it.
    ///
    /// # Errors
    /// If the order cannot be carried out, or if a new chunk was not created or already has its
    /// final name: nothing was written then. The errors of [`rebuild`]: some blocks were written.
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
            let blocks: BTreeMap<Position, (StripeHeader, Vec<u8>)> =
                self.wanted.iter().map(|&(position, _)| position).zip(blocks).collect();
            on_each(targets, self.wanted, "write", move |position, target| {
                let (header, bytes) = &blocks[&position];
                let padding = vec![0; bytes.len().next_multiple_of(64) - bytes.len()];
                let header = header.encode();
                let parts = [&header[..], bytes, &padding].map(IoSlice::new);
                target.write(new_chunk(set, position), u64::from(record.0), &parts, Durable::Later).map(drop)
            })?;
        }
        Ok(report)
    }

    /// Checks that the new chunks were created. Nothing is written to other files, because nothing
    /// would remove them.
    fn look(&self, targets: &Targets) -> Result<()> {
        let (volume, set) = (self.layout.volume, self.layout.set);
        on_each(targets, self.wanted, "look at", move |position, target| {
            let bytes = read_to_vec(CHUNK_HEADER_BYTES, |into| target.read_at(new_chunk(set, position), 0, into))?;
            let header = ChunkHeader::decode(&bytes).ok();
            let begun = header.is_some_and(|it| (it.volume, it.set, it.position) == (volume, set, position));
            if begun { Ok(()) } else { Err(io::Error::new(io::ErrorKind::InvalidInput, "it was not begun")) }
        })
    }

    /// Checks that such stripes are possible: an order may come from another process.
    fn check(&self) -> Result<()> {
        let bad = |what: String| Err(Error::Invalid(format!("chunk set {}: {what}", self.layout.set)));
        let blocks = self.layout.blocks();
        if self.layout.places.len() != blocks {
            return bad(format!("{} places for {blocks} blocks", self.layout.places.len()));
        }
        let positions: BTreeSet<Position> = self.wanted.iter().map(|&(position, _)| position).collect();
        if positions.len() != self.wanted.len() || positions.last().is_some_and(|last| last.index() >= blocks) {
            let wanted: Vec<u16> = self.wanted.iter().map(|(position, _)| position.0).collect();
            return bad(format!("of {blocks} blocks those are wanted: {wanted:?}"));
        }
        match self.stripes.iter().find(|&&(record, block)| !can_begin(record, block as usize)) {
            Some((record, block)) => bad(format!("no record with blocks of {block} bytes can begin at {record}")),
            None => Ok(()),
        }
    }

    /// Delegates the rebuild to the process of the first new chunk's target. Returns None if that
    /// process fails, does only a part, or finds no witness where one may exist: it may reach fewer
    /// targets than this process.
    fn delegate(&self, targets: &Targets) -> Option<RebuildReport> {
        let sound = |id: &TargetId| targets.error(*id).is_none() && !targets.hangs(*id);
        let first = targets.get(self.wanted.iter().map(|&(_, id)| id).next().filter(sound)?)?;
        let master = first.owner()?.master;
        let address = |id: TargetId| Some(targets.get(id)?.owner()?.address.to_string());
        let destinations: Vec<String> = self.wanted.iter().map(|&(_, id)| address(id)).collect::<Option<_>>()?;
        let there = |id: &TargetId| targets.get(*id).is_some() && sound(id);
        let sources = self.layout.places.iter().map(|place| match place.filter(there) {
            Some(id) => address(id).map(Some),
            None => Some(None),
        });
        let sources: Vec<Option<String>> = sources.collect::<Option<_>>()?;
        let done = master.rebuild(self, &sources, &destinations).ok()?;
        let bytes = self.stripes.iter().map(|&(_, block)| u64::from(block)).sum::<u64>() * self.wanted.len() as u64;
        let is_wanted = |position: Position| self.wanted.iter().any(|(wanted, _)| *wanted == position);
        let survivors =
            Position::all(sources.len()).zip(&sources).filter(|(at, from)| from.is_some() && !is_wanted(*at)).count();
        let may_have_witness = survivors > self.layout.code.shape().k;
        let is_done = done.bytes == bytes && !(done.unwitnessed > 0 && may_have_witness);
        is_done.then_some(RebuildReport { delegated: done.bytes, ..done })
    }
}

/// Rebuilds the chunks `wanted`, each a position and its destination. `stripes` lists the live
/// stripes of the set, by record and block length; the space between them stays a hole. The chunks
/// get their final names when all of them are complete and durable.
///
/// # Errors
/// `TooDegraded` if too few blocks of a stripe are left, `Corrupt` if survivors contradict each
/// other, `NoSpace`, `Interrupted`. Nothing remains after an error.
pub fn rebuild(
    targets: &Targets,
    layout: &SetLayout,
    stripes: &[(RecordOffset, u32)],
    wanted: &[Wanted],
    control: &Control,
) -> Result<RebuildReport> {
    let made = make(targets, layout, stripes, wanted, control);
    if made.is_err() {
        // A target that hangs would not answer this, either; its unfinished chunk has no final name
        // and no use.
        let answering = wanted.iter().copied().filter(|&(_, id)| !targets.hangs(id));
        let set = layout.set;
        targets.each(answering, move |position, target| target.remove(new_chunk(set, position)));
    }
    made
}

fn new_chunk(set: SetId, position: Position) -> TargetFile {
    TargetFile::NewChunk { set, position }
}

fn make(
    targets: &Targets,
    layout: &SetLayout,
    stripes: &[(RecordOffset, u32)],
    wanted: &[Wanted],
    control: &Control,
) -> Result<RebuildReport> {
    let set = layout.set;
    let headers = chunk_headers(layout, created(targets, layout));
    on_each(targets, wanted, "begin", move |position, target| {
        target.remove(new_chunk(set, position))?;
        target.write(new_chunk(set, position), 0, &[IoSlice::new(&headers[position.index()])], Durable::Later).map(drop)
    })?;
    let (mut report, mut others_do) = (RebuildReport::default(), true);
    for stripes in parts(stripes) {
        control.check()?;
        let order = RebuildOrder { layout, stripes, wanted };
        let by_others = if others_do { order.delegate(targets) } else { None };
        // If the other process fails once, it gets no further orders.
        others_do = by_others.is_some();
        let done = by_others.map_or_else(|| order.carry_out(targets, || control.check()), Ok)?;
        report.add(done);
        control.advance(done.bytes as usize);
        control.pace(done.bytes as usize)?;
    }
    on_each(targets, wanted, "sync", move |position, target| {
        // A store that is too old does not know it.
        let _ = target.seal(new_chunk(set, position));
        target.sync(new_chunk(set, position)).map(drop)
    })?;
    on_each(targets, wanted, "rename", move |position, target| {
        target.rename(new_chunk(set, position), TargetFile::Chunk { set, position })
    })?;
    Ok(report)
}

/// Splits the stripes into parts that are rebuilt at a time.
fn parts(mut stripes: &[(RecordOffset, u32)]) -> impl Iterator<Item = &[(RecordOffset, u32)]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let more = stripes.iter().take_while(|&&(_, block)| {
            bytes += u64::from(block).max(MIN_BLOCK_CHARGE_BYTES);
            bytes <= REBUILD_BATCH_BYTES
        });
        let (part, rest) = stripes.split_at(more.count().max(1).min(stripes.len()));
        stripes = rest;
        (!part.is_empty()).then_some(part)
    })
}

/// Runs an operation on each of the chunks, on all targets at the same time.
fn on_each(
    targets: &Targets,
    wanted: &[Wanted],
    what: &'static str,
    operation: impl Fn(Position, &dyn Target) -> io::Result<()> + Send + Sync + 'static,
) -> Result<()> {
    for &(_, id) in wanted {
        targets.get(id).ok_or_else(|| Error::NotFound(format!("target {} is not there", id.0)))?;
    }
    for (_, id, done) in targets.each(wanted.iter().copied(), operation) {
        done.map_err(Error::io(what, Path::new(&format!("a chunk on target {}", id.0))))?;
    }
    Ok(())
}

/// When the set was created, according to its chunks.
fn created(targets: &Targets, layout: &SetLayout) -> Timestamp {
    let mut batch = Batch::new();
    for (position, id) in Position::placed(&layout.places).filter(|(_, id)| !targets.is_stuck(*id)) {
        let (volume, file) = (layout.volume, layout.file(position));
        batch.run(targets, position, id, move |target| {
            let mut bytes = vec![0; CHUNK_HEADER_BYTES];
            let length = target.read_at(file, 0, &mut bytes).unwrap_or(0);
            let header = ChunkHeader::decode(&bytes[..length]).ok().filter(|header| header.volume == volume);
            Ok(header.map(|header| header.created))
        });
    }
    let found = batch.wait(targets).into_iter().filter_map(|(_, _, created)| created.ok().flatten());
    found.min().unwrap_or_else(Timestamp::now)
}

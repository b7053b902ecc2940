//! Making chunks again.

use super::SetLayout;
use super::reader::{Found, StripeAt};
use super::writer::chunk_headers;
use crate::format::{CHUNK_HEADER_BYTES, ChunkHeader, GRANULE_BYTES, StripeHeader, Timestamp};
use crate::target::{Target, TargetFile};
use crate::targets::{Batch, Targets};
use crate::{Control, Error, Result};
use plan::TargetId;
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::Path;

/// What a rebuild did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RebuildReport {
    /// Bytes of blocks that were made.
    pub bytes: u64,
    /// Blocks that were checked against a survivor that they were not made from.
    pub witnessed: u64,
    /// Blocks for which there was no such survivor.
    pub unwitnessed: u64,
}

/// A block of a stripe and where it goes.
type Wanted = (usize, TargetId);

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
    let mut report = RebuildReport::default();
    for &(record, block) in stripes {
        control.check()?;
        let stripe = StripeAt { targets, layout, record, block, fresh: true, hedged: false };
        let blocks = blocks(&stripe, wanted, &mut report)?;
        let made: usize = blocks.iter().map(|(_, bytes)| bytes.len()).sum();
        report.bytes += made as u64;
        control.advance(made);
        let blocks: BTreeMap<usize, (StripeHeader, Vec<u8>)> =
            wanted.iter().map(|&(position, _)| position).zip(blocks).collect();
        on_each(targets, wanted, "write", move |position, target| {
            let (header, bytes) = &blocks[&position];
            let padding = vec![0; bytes.len().next_multiple_of(64) - bytes.len()];
            let header = header.encode();
            let parts = [&header[..], bytes, &padding].map(IoSlice::new);
            target.write(new_chunk(set, position), u64::from(record), &parts)
        })?;
        control.pace(made)?;
    }
    on_each(targets, wanted, "sync", move |position, target| target.sync(new_chunk(set, position)))?;
    on_each(targets, wanted, "rename", move |position, target| {
        target.rename(new_chunk(set, position), TargetFile::Chunk { set, position: position as u16 })
    })?;
    Ok(report)
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

/// The wanted blocks of a stripe with their record headers.
fn blocks(stripe: &StripeAt, wanted: &[Wanted], report: &mut RebuildReport) -> Result<Vec<(StripeHeader, Vec<u8>)>> {
    let (layout, length) = (stripe.layout, stripe.block as usize);
    let positions: Vec<usize> = wanted.iter().map(|&(position, _)| position).collect();
    // Chunks that are moved, and not lost, are read where they are: nothing has to be made of anything.
    let mut found = stripe.granules(&positions, &(0..length));
    let mut made = BTreeMap::new();
    loop {
        let is_bad = |position: &usize| matches!(found.get(position), Some(Err(_)));
        let lost: Vec<usize> = positions.iter().copied().filter(is_bad).collect();
        if lost.is_empty() {
            break;
        }
        let have: Vec<usize> = (0..layout.blocks()).filter(|position| !is_bad(position)).collect();
        let repair = layout.code.repair(&lost, &have).map_err(|why| stripe.too_degraded(why))?;
        let needed: Vec<usize> = repair.reads().iter().map(|read| read.block).collect();
        fetch(stripe, &mut found, &needed);
        let sources = needed.iter().map(|position| found[position].as_ref().ok().map(|block| &block.bytes[..]));
        // With what turned out bad, another way is looked for.
        let Some(sources) = sources.collect::<Option<Vec<&[u8]>>>() else { continue };
        let mut outputs = vec![vec![0; length]; lost.len()];
        repair.run(&sources, &mut outputs.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        made.extend(lost.iter().copied().zip(outputs));
        let count =
            if witness(stripe, &needed, &mut found, &made)? { &mut report.witnessed } else { &mut report.unwitnessed };
        *count += lost.len() as u64;
        break;
    }
    let model = found.values().flatten().next().map(|block| block.header.clone());
    let model = model.ok_or_else(|| Error::NotFound(format!("{} has no record header left", stripe.name())))?;
    let mut with_header = |position: usize| {
        if let Some(Ok(block)) = found.remove(&position) {
            return ((*block.header).clone(), block.bytes);
        }
        let bytes: Vec<u8> = made.remove(&position).unwrap_or_default();
        let checksums = bytes.chunks(GRANULE_BYTES).map(gf::checksum::crc64).collect();
        (StripeHeader { position: position as u16, checksums, ..(*model).clone() }, bytes)
    };
    Ok(positions.into_iter().map(&mut with_header).collect())
}

/// Reads the blocks of these positions that were not read yet.
fn fetch(stripe: &StripeAt, found: &mut Found, positions: &[usize]) {
    let new: Vec<usize> = positions.iter().copied().filter(|position| !found.contains_key(position)).collect();
    found.extend(stripe.granules(&new, &(0..stripe.block as usize)));
    stripe.outvote(found);
}

/// Checks what was made against a survivor that it was not made from: that one is made from these, and compared. False when there is none.
fn witness(stripe: &StripeAt, needed: &[usize], found: &mut Found, made: &BTreeMap<usize, Vec<u8>>) -> Result<bool> {
    let code = &*stripe.layout.code;
    let is_candidate = |position: &usize| {
        !needed.contains(position) && !made.contains_key(position) && !matches!(found.get(position), Some(Err(_)))
    };
    let candidates: Vec<usize> = (0..stripe.layout.blocks()).filter(is_candidate).collect();
    // The made blocks take part, in the place of as many that they were made from: else the survivor would say nothing about them.
    let stood_in: Vec<usize> = made.keys().chain(needed.iter().skip(made.len())).copied().collect();
    let all: Vec<usize> = made.keys().chain(needed).copied().collect();
    for position in candidates {
        let plan = |mut sources: Vec<usize>| {
            sources.sort_unstable();
            let repair = code.repair(&[position], &sources).ok()?;
            repair.reads().iter().any(|read| made.contains_key(&read.block)).then_some(repair)
        };
        let Some(repair) = plan(stood_in.clone()).or_else(|| plan(all.clone())) else { continue };
        fetch(stripe, found, &[position]);
        let Some(Ok(survivor)) = found.get(&position) else { continue };
        let block = |other: usize| match made.get(&other) {
            Some(bytes) => Some(&bytes[..]),
            None => found.get(&other)?.as_ref().ok().map(|block| &block.bytes[..]),
        };
        let Some(inputs) = repair.reads().iter().map(|read| block(read.block)).collect::<Option<Vec<&[u8]>>>() else {
            continue;
        };
        let mut again = vec![0; survivor.bytes.len()];
        repair.run(&inputs, &mut [&mut again]);
        if survivor.bytes != again {
            let path = stripe.name().into();
            let what = format!("what is made of blocks {needed:?} contradicts block {position}; it was not repaired");
            return Err(Error::Corrupt { path, what });
        }
        return Ok(true);
    }
    Ok(false)
}

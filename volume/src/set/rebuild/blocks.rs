//! Computes blocks of a stripe from others, and checks them.

use crate::format::{GRANULE_BYTES, StripeHeader};
use crate::set::block_state::BlockState;
use crate::set::orders::{RebuildReport, Wanted};
use crate::set::reader::{FoundBlocks, StripeAt};
use crate::{Error, Result};
use plan::Position;
use std::collections::BTreeMap;

/// The wanted blocks of a stripe, with their record headers.
pub(super) fn blocks(
    stripe: &StripeAt,
    wanted: &[Wanted],
    report: &mut RebuildReport,
) -> Result<Vec<(StripeHeader, Vec<u8>)>> {
    let (layout, length) = (stripe.layout, stripe.block as usize);
    let positions: Vec<usize> = wanted.iter().map(|(position, _)| position.index()).collect();
    // Chunks that move and are not lost are read where they are: nothing needs decoding.
    let (quick, hanging) = stripe.by_haste(positions.iter().copied());
    let mut found = stripe.granules(&quick, &(0..length));
    found.extend(hanging.into_iter().map(|position| (position, Err(BlockState::Late))));
    let mut made = BTreeMap::new();
    loop {
        let is_bad = |position: &usize| matches!(found.get(position), Some(Err(_)));
        let lost: Vec<usize> = positions.iter().copied().filter(is_bad).collect();
        if lost.is_empty() {
            break;
        }
        let have: Vec<usize> = (0..layout.blocks()).filter(|position| !is_bad(position)).collect();
        let (quick, _) = stripe.by_haste(have.iter().copied());
        let repair = match layout.code.repair(&lost, &quick).or_else(|_| layout.code.repair(&lost, &have)) {
            Ok(repair) => repair,
            Err(why) => {
                let is_late = |position: &usize| matches!(found.get(position), Some(Err(BlockState::Late)));
                let late: Vec<usize> = lost.into_iter().filter(is_late).collect();
                if late.is_empty() {
                    return Err(stripe.too_degraded(why));
                }
                found.retain(|position, _| !late.contains(position));
                fetch(stripe, &mut found, &late);
                continue;
            }
        };
        let needed: Vec<usize> = repair.reads().iter().map(|read| read.block).collect();
        fetch(stripe, &mut found, &needed);
        if needed.is_empty() {
            // What is made of nothing still needs a record header.
            fetch(stripe, &mut found, &have);
        }
        let sources = needed.iter().map(|position| found[position].as_ref().ok().map(|block| &block.bytes[..]));
        // A source turned out bad: look for another way.
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
        (StripeHeader { position: Position::at(position), checksums, ..(*model).clone() }, bytes)
    };
    Ok(positions.into_iter().map(&mut with_header).collect())
}

/// Reads those blocks of these positions that were not read yet.
fn fetch(stripe: &StripeAt, found: &mut FoundBlocks, positions: &[usize]) {
    let new: Vec<usize> = positions.iter().copied().filter(|position| !found.contains_key(position)).collect();
    found.extend(stripe.granules(&new, &(0..stripe.block as usize)));
    stripe.outvote(found);
}

/// Checks the computed blocks against a witness: a survivor that they were not computed from. It is
/// computed from them and compared. Returns false if there is no such survivor.
fn witness(
    stripe: &StripeAt,
    needed: &[usize],
    found: &mut FoundBlocks,
    made: &BTreeMap<usize, Vec<u8>>,
) -> Result<bool> {
    let code = &*stripe.layout.code;
    let is_candidate = |position: &usize| {
        !needed.contains(position) && !made.contains_key(position) && !matches!(found.get(position), Some(Err(_)))
    };
    let (candidates, _) = stripe.by_haste((0..stripe.layout.blocks()).filter(is_candidate));
    // The computed blocks replace as many of their sources; otherwise the survivor would say
    // nothing about them.
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

//! The algorithms, each written once over [`Vector`]. Their safe entrances check every bound before
//! the raw loops run; the loops themselves take ranges that are whole multiples of their step.

pub(crate) mod dyadic;
pub(crate) mod erasure;
pub(crate) mod registers;
pub(crate) mod simple;
pub(crate) mod tile;

use crate::vector::Vector;
use std::mem::MaybeUninit;
use std::ops::Range;

/// The most blocks on one side of a map: points of the field.
pub(crate) const MAX_BLOCKS: usize = 256;

/// How far ahead of its loads a pass over many blocks asks for their bytes: the processor's own
/// prefetchers follow about a dozen streams, a stripe may have hundreds.
pub(crate) const PREFETCH_BYTES: usize = 256;

/// Inputs of more bytes than this in all are taken to come from beyond the first-level cache, and
/// are prefetched: from the second-level one that gains up to a sixth. (One output from up to four
/// is left to the processor's own prefetchers.)
pub(crate) const FAR_BYTES: usize = 32 << 10;

/// Where the blocks of a map begin, in the order it takes them. Made for every call, so unneeded
/// parts are not even zeroed.
pub(crate) struct Pointers {
    slots: [MaybeUninit<*const u8>; MAX_BLOCKS],
    count: usize,
}

impl Pointers {
    /// # Panics
    /// When there are more than [`MAX_BLOCKS`], or one does not belong to the inputs.
    #[inline(always)]
    pub fn new(inputs: &[&[u8]], order: &[usize]) -> Self {
        let mut slots = [const { MaybeUninit::uninit() }; MAX_BLOCKS];
        for (slot, &block) in slots[..order.len()].iter_mut().zip(order) {
            slot.write(inputs[block].as_ptr());
        }
        Self { slots, count: order.len() }
    }

    #[inline(always)]
    pub fn as_slice(&self) -> &[*const u8] {
        // SAFETY: `new` wrote the first `count` slots, which are pointers and nothing else.
        unsafe { std::slice::from_raw_parts(self.slots.as_ptr().cast(), self.count) }
    }
}

/// The steps of every algorithm, and cache lines, divide this many bytes.
const STREAMED_BYTES: usize = 256;

/// The part of a range that can be streamed to: from a cache line on that begins in all outputs at
/// once, whole steps.
pub(crate) fn streamable(outputs: &[&mut [u8]], at: &Range<usize>) -> Option<Range<usize>> {
    let beyond = |block: &[u8]| (block.as_ptr().addr() + at.start) % 64;
    let first = beyond(outputs.first()?);
    if outputs.iter().any(|block| beyond(block) != first) {
        return None;
    }
    let start = at.start + (64 - first) % 64;
    let length = at.end.checked_sub(start)? / STREAMED_BYTES * STREAMED_BYTES;
    (length > 0).then_some(start..start + length)
}

/// Stores a register in one way or the other.
#[inline(always)]
pub(crate) unsafe fn put<V: Vector>(value: V, to: *mut u8, streaming: bool) {
    if streaming { value.stream(to) } else { value.store(to) }
}

/// What a partial last step may do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Outputs depend on inputs only: the last step may be computed twice, overlapping.
    Overlap,
    /// Outputs are read as well: the rest goes through a padded copy.
    Copy,
}

/// Runs `body` on whole steps of the range and on its remainder, whatever its length.
pub(crate) fn in_steps(
    step: usize,
    tail: Tail,
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    at: Range<usize>,
    mut body: impl FnMut(&[&[u8]], &mut [&mut [u8]], Range<usize>),
) {
    let whole = at.end - at.len() % step;
    if whole > at.start {
        body(inputs, outputs, at.start..whole);
    }
    let rest = whole..at.end;
    if rest.is_empty() {
        return;
    }
    if tail == Tail::Overlap && at.len() >= step {
        return body(inputs, outputs, at.end - step..at.end);
    }
    let mut scratch = vec![0u8; (inputs.len() + outputs.len()) * step];
    let (head, back) = scratch.split_at_mut(inputs.len() * step);
    for (slot, input) in head.chunks_exact_mut(step).zip(inputs) {
        slot[..rest.len()].copy_from_slice(&input[rest.clone()]);
    }
    for (slot, output) in back.chunks_exact_mut(step).zip(outputs.iter()) {
        slot[..rest.len()].copy_from_slice(&output[rest.clone()]);
    }
    let padded_inputs: Vec<&[u8]> = head.chunks_exact(step).collect();
    let mut padded_outputs: Vec<&mut [u8]> = back.chunks_exact_mut(step).collect();
    body(&padded_inputs, &mut padded_outputs, 0..step);
    for (slot, output) in padded_outputs.iter().zip(outputs) {
        output[rest.clone()].copy_from_slice(&slot[..rest.len()]);
    }
}

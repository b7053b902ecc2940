//! Reads from the page cache, on the caller's thread. What is not there, or is not sound, is left
//! to `reader`.

use super::layout::SetLayout;
use super::reader::{StripeAt, are_sound};
use crate::format::{GRANULE_BYTES, StripeHeader};
use crate::target::{ReadAt, ReadPart, Wait};
use crate::targets::Targets;
use plan::{Position, Span};
use std::ops::Range;
use std::sync::Arc;

/// A range that does not begin and end with granules is read to where it belongs if at least this
/// many bytes of it are whole granules.
const MIN_WHOLE_BYTES: usize = 16 << 10;

/// A range of a block: whole granules, and what a range that begins and ends inside of granules has
/// of these.
struct Cut {
    /// The granule that the range begins in; empty if it begins with one.
    first: Range<usize>,
    whole: Range<usize>,
    /// The granule that the range ends in; empty if it ends with one.
    last: Range<usize>,
}

impl Cut {
    /// None if there is something to cut off and few granules are whole. A block may end with a
    /// short granule.
    fn new(range: &Range<usize>, block: usize) -> Option<Self> {
        let begin = range.start.next_multiple_of(GRANULE_BYTES);
        let end = if range.end == block { block } else { range.end / GRANULE_BYTES * GRANULE_BYTES };
        if (begin, end) != (range.start, range.end) && end < begin + MIN_WHOLE_BYTES {
            return None;
        }
        let first = range.start / GRANULE_BYTES * GRANULE_BYTES..begin;
        let last = end..if range.end == end { end } else { (end + GRANULE_BYTES).min(block) };
        Some(Self { first, whole: begin..end, last })
    }
}

impl StripeAt<'_> {
    /// The record header of a position, if it is available without a device.
    fn cached_header(&self, position: usize) -> Option<Arc<StripeHeader>> {
        if let Some(header) = self.remembered(position) {
            return Some(header);
        }
        let target = self.targets.get(self.layout.places[position]?)?;
        let mut bytes = vec![0; self.header_bytes()];
        let (file, offset) = (self.layout.file(Position::at(position)), u64::from(self.record.0));
        let length = target.read_part(file, offset, &mut bytes, Wait::Never).ok()?;
        self.own_header(position, &bytes[..length]).ok()
    }

    /// Reads whole granules that follow each other (the last of the block may be short) into
    /// several places, if they are available without a device and are sound. None says nothing
    /// about the block.
    pub(super) fn cached(&self, position: usize, parts: &mut [(Range<usize>, &mut [u8])]) -> Option<Arc<StripeHeader>> {
        let id = self.layout.places[position]?;
        let begin = u64::from(self.record.0) + self.header_bytes() as u64;
        let mut asked: Vec<ReadPart> =
            parts.iter_mut().map(|(at, into)| ReadPart::new(begin + at.start as u64, into)).collect();
        // Read the granules first: if they are not cached, this makes the system fetch them during
        // the search for the header.
        let read = self.targets.get(id)?.read(self.layout.file(Position::at(position)), &mut asked, Wait::Never);
        let lengths: Vec<usize> = asked.iter().map(|part| part.read).collect();
        let header = self.cached_header(position)?;
        read.ok()?;
        self.targets.count_read(id, lengths.iter().sum());
        let are_all =
            parts.iter().zip(lengths).all(|((at, into), length)| length == into.len() && are_sound(&header, at, into));
        are_all.then_some(header)
    }

    /// Reads a range of a block to where it belongs: only the granules that it begins and ends in
    /// are copied. None also if it has few others.
    pub(super) fn cached_range(
        &self,
        position: usize,
        range: &Range<usize>,
        into: &mut [u8],
    ) -> Option<Arc<StripeHeader>> {
        let Cut { first, whole, last } = Cut::new(range, self.block as usize)?;
        if whole == *range {
            return self.cached(position, &mut [(whole, into)]);
        }
        let (mut head, mut tail) = ([0; GRANULE_BYTES], [0; GRANULE_BYTES]);
        let (before, rest) = into.split_at_mut(whole.start - range.start);
        let (middle, behind) = rest.split_at_mut(whole.len());
        let (head, tail) = (&mut head[..first.len()], &mut tail[..last.len()]);
        let mut parts: Vec<(Range<usize>, &mut [u8])> = Vec::with_capacity(3);
        if !head.is_empty() {
            parts.push((first, &mut *head));
        }
        parts.push((whole, middle));
        if !tail.is_empty() {
            parts.push((last, &mut *tail));
        }
        let header = self.cached(position, &mut parts)?;
        before.copy_from_slice(&head[head.len() - before.len()..]);
        behind.copy_from_slice(&tail[..behind.len()]);
        Some(header)
    }

    /// The same for any range: all of it is copied if few granules of it are whole.
    fn cached_part(&self, position: usize, range: &Range<usize>, into: &mut [u8]) -> Option<Arc<StripeHeader>> {
        if Cut::new(range, self.block as usize).is_some() {
            return self.cached_range(position, range, into);
        }
        let granules = self.in_granules(range);
        let mut bytes = vec![0; granules.len()];
        let header = self.cached(position, &mut [(granules.clone(), &mut bytes)])?;
        let from = range.start - granules.start;
        into.copy_from_slice(&bytes[from..from + range.len()]);
        Some(header)
    }
}

/// Reads the bytes of a span from the page cache, soon in any case. Returns false, which says
/// nothing about the stripe, if not all of it is there and sound. A target that hangs is not asked:
/// what is not in the page cache makes the system read ahead, and its queue may be full.
pub fn read_at_hand(targets: &Targets, layout: &SetLayout, span: Span, out: &mut [u8]) -> bool {
    let Some(parts) = layout.parts(span, out.len()).filter(|_| layout.code.systematic()) else { return false };
    let stripe = StripeAt { targets, layout, record: span.record, block: span.block, fresh: false, hedged: true };
    let mut first = None;
    let answers = |position: usize| layout.places[position].is_some_and(|id| !targets.is_slow(id));
    parts.iter().all(|part| answers(part.block))
        && parts.iter().all(|part| {
            let into = &mut out[part.at..part.at + part.range.len()];
            stripe.cached_part(part.block, &part.range, into).is_some_and(|header| {
                let found = header.stripe();
                *first.get_or_insert(found) == found
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a range is cut into covers it, in granules.
    #[test]
    fn a_range_is_cut_at_granules() {
        for block in [40_960, 41_000, 65_536] {
            for start in (0..block).step_by(1021).chain((0..block).step_by(GRANULE_BYTES)) {
                for end in (start..=block).step_by(509).chain([block]) {
                    let Some(Cut { first, whole, last }) = Cut::new(&(start..end), block) else {
                        assert!(end - start < MIN_WHOLE_BYTES + 2 * GRANULE_BYTES);
                        continue;
                    };
                    assert!(first.start <= start && (first.end == whole.start) && whole.end == last.start);
                    assert!(end <= last.end && last.end <= block);
                    assert!(whole == (start..end) || whole.len() >= MIN_WHOLE_BYTES);
                    assert!(first.len() <= GRANULE_BYTES && last.len() <= GRANULE_BYTES);
                    assert!(first.is_empty() == (whole.start == start) && last.is_empty() == (whole.end == end));
                    for at in [first.start, whole.start] {
                        assert!(at.is_multiple_of(GRANULE_BYTES));
                    }
                    assert!(last.end.is_multiple_of(GRANULE_BYTES) || last.end == block);
                }
            }
        }
    }
}

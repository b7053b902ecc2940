//! The content of a file that is in memory and not yet in the metadata.
//!
//! Three layers lie over the committed extents, the newest on top: the tail, to which the next
//! sequential write is appended; dirty data, which is in no stripe yet; and pending data, which is
//! on its way into stripes, or in stripes that no transaction names yet.

use bytes::Bytes;
use meta::Time;
use plan::extent::{Piece, pieces};
use plan::{Extent, ExtentMap, ExtentPlace, SetId, Span};
use std::ops::Range;

/// The size to which a tail grows, in bytes. A tail is one allocation and one piece of a stripe.
const TAIL_BYTES: usize = 1 << 20;

/// The data of a file that is no longer than this stays in its inode.
pub(crate) const TINY_BYTES: u64 = 2048;
/// The most bytes that an extent takes in the metadata, not counting its data.
const EXTENT_BYTES: u64 = 256;

/// The uncommitted content of one file.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    tail: Option<(u64, Vec<u8>)>,
    dirty: ExtentMap,
    dirty_bytes: u64,
    pending: ExtentMap,
    /// The number of pieces on their way into stripes, and their bytes.
    in_flight: usize,
    in_flight_bytes: u64,
    /// How often taken data became dirty again.
    given_back: u64,
    /// What a commit that is under way commits, in order: only that commit takes it.
    due: Vec<Range<u64>>,
    /// The size with all writes that this process knows; None: as committed.
    pub size: Option<u64>,
    /// The time of the last write; None: not written since the last commit.
    pub modified: Option<Time>,
}

/// Data of a file that was taken to be written into a stripe.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub offset: u64,
    pub bytes: Bytes,
}

impl Buffer {
    /// Whether there is nothing to commit.
    pub fn is_clean(&self) -> bool {
        self.tail.is_none()
            && self.dirty.is_empty()
            && self.pending.is_empty()
            && self.in_flight == 0
            && self.modified.is_none()
    }

    /// Bytes that are in no stripe and not on their way into one.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes + self.tail.as_ref().map_or(0, |(_, tail)| tail.len() as u64)
    }

    /// Whether nothing is on its way into stripes or in stripes that no transaction names.
    pub fn nothing_pending(&self) -> bool {
        self.pending.is_empty() && self.in_flight == 0
    }

    /// Whether a commit of this buffer is under way.
    pub fn is_committing(&self) -> bool {
        !self.due.is_empty()
    }

    /// Whether data is on its way into stripes.
    pub fn any_in_flight(&self) -> bool {
        self.in_flight > 0
    }

    /// Whether some data of a range is on its way into stripes.
    pub fn is_in_flight(&self, range: &Range<u64>) -> bool {
        self.in_flight > 0 && self.pending.meeting(range).any(is_bytes)
    }

    /// Whether some data of these ranges, which are in order, is in no stripe and not on its way.
    pub fn is_dirty(&self, ranges: &[Range<u64>]) -> bool {
        let tail = self.tail.as_ref().map(|(from, tail)| *from..from + tail.len() as u64);
        self.dirty.iter().map(Extent::range).chain(tail).any(|dirty| meets(ranges, &dirty))
    }

    /// The pending extents that are in stripes, as `stored`, at most `limit`, and how many more are
    /// due, which come first. Others, `newer` ones, are left out behind data that is in no stripe:
    /// in a file that grows they would leave a hole.
    pub fn stored_of_commit(&self, newer: bool, limit: usize) -> (Vec<Extent>, usize) {
        let due = &self.due;
        let on_its_way = self.pending.iter().filter(|_| self.in_flight > 0).find(|extent| is_bytes(extent));
        let dirty = on_its_way.into_iter().chain(self.dirty.iter().next()).map(|extent| extent.offset);
        let first = dirty.chain(self.tail.as_ref().map(|(from, _)| *from)).min().unwrap_or(u64::MAX);
        let first = if newer { first } else { 0 };
        let (mut stored, others): (Vec<&Extent>, Vec<&Extent>) =
            self.stored().partition(|extent| meets(due, &extent.range()));
        let left = stored.len().saturating_sub(limit);
        stored.extend(others.into_iter().filter(|extent| extent.offset < first));
        stored.truncate(limit);
        stored.sort_unstable_by_key(|extent| extent.offset);
        (stored.into_iter().cloned().collect(), left)
    }

    /// A value that changes whenever taken data becomes dirty again.
    pub fn given_back(&self) -> u64 {
        self.given_back
    }

    /// The end of the last byte in this buffer; 0 for an empty one.
    pub fn end(&self) -> u64 {
        let tail = self.tail.as_ref().map_or(0, |(from, tail)| from + tail.len() as u64);
        let ends = [&self.dirty, &self.pending].map(|map| map.iter().next_back().map_or(0, Extent::end));
        tail.max(ends[0]).max(ends[1])
    }

    /// The bytes of memory that the buffer holds.
    pub fn held_bytes(&self) -> u64 {
        self.dirty_bytes() + self.in_flight_bytes
    }

    /// Bytes that no transaction names yet, in memory and in stripes.
    pub fn uncommitted_bytes(&self) -> u64 {
        self.held_bytes() + self.stored().map(|extent| extent.length).sum::<u64>()
    }

    /// Whether all data of the file stays in its inode.
    pub fn is_tiny(&self) -> bool {
        self.size.is_some_and(|size| size <= TINY_BYTES)
    }

    /// The bytes that the metadata will need for the content of this buffer.
    pub fn inline_bytes(&self) -> u64 {
        match self.held_bytes() {
            held if held > 0 && self.is_tiny() => held + EXTENT_BYTES,
            _ => 0,
        }
    }

    /// Adds written data.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let follows = |(from, tail): &(u64, Vec<u8>)| from + tail.len() as u64 == offset && tail.len() < TAIL_BYTES;
        if !self.tail.as_ref().is_some_and(follows) {
            self.freeze();
            // A first small write allocates only its length. A sequence of writes soon gets the
            // full capacity.
            self.tail = Some((offset, Vec::with_capacity(data.len())));
        }
        if let Some((_, tail)) = &mut self.tail {
            if tail.capacity() < tail.len() + data.len() {
                tail.reserve_exact((2 * tail.len()).clamp(data.len(), TAIL_BYTES.max(data.len())));
            }
            tail.extend_from_slice(data);
            if tail.len() >= TAIL_BYTES {
                self.freeze();
            }
        }
    }

    /// Moves the tail into the dirty data.
    fn freeze(&mut self) {
        if let Some((offset, tail)) = self.tail.take() {
            self.insert_dirty(Extent { offset, length: tail.len() as u64, place: ExtentPlace::Bytes(tail.into()) });
        }
    }

    fn insert_dirty(&mut self, extent: Extent) {
        self.dirty_bytes += extent.length;
        let replaced: u64 = self.dirty.insert(extent).iter().map(|old| old.length).sum();
        self.dirty_bytes -= replaced;
    }

    /// Begins a commit of what is in this buffer. Returns its ranges, in order.
    pub fn begin_commit(&mut self) -> Vec<Range<u64>> {
        self.due = self.covered();
        self.due.clone()
    }

    /// The commit succeeded or failed.
    pub fn end_commit(&mut self) {
        self.due.clear();
    }

    /// Takes dirty data, in order, for stripes of `stripe` bytes: whole stripes, or everything if
    /// `all` is set. What is due to a commit is left to that. The data is pending until `written`
    /// is called for it.
    pub fn take(&mut self, stripe: u64, all: bool) -> Vec<Taken> {
        if all {
            self.freeze();
        }
        let free = |extent: &&Extent| self.due.is_empty() || !meets(&self.due, &extent.range());
        let dirty: Vec<Extent> = self.dirty.iter().filter(free).cloned().collect();
        let bytes: u64 = dirty.iter().map(|extent| extent.length).sum();
        self.take_of(dirty, if all { bytes } else { bytes / stripe * stripe })
    }

    /// Takes all dirty data, for a commit.
    pub fn take_due(&mut self) -> Vec<Taken> {
        self.freeze();
        let dirty = self.dirty.iter().cloned().collect();
        self.take_of(dirty, u64::MAX)
    }

    /// Takes the first `left` bytes of dirty extents.
    fn take_of(&mut self, dirty: Vec<Extent>, mut left: u64) -> Vec<Taken> {
        let mut taken = Vec::new();
        for extent in dirty {
            let length = extent.length.min(left);
            if length == 0 {
                break;
            }
            let Some(extent) = extent.clip(&(extent.offset..extent.offset + length)) else { break };
            left -= length;
            self.dirty.replace(extent.range(), &[]);
            self.dirty_bytes -= extent.length;
            if let ExtentPlace::Bytes(bytes) = &extent.place {
                self.in_flight_bytes += extent.length;
                taken.push(Taken { offset: extent.offset, bytes: bytes.clone() });
            }
            self.pending.insert(extent);
        }
        self.in_flight += taken.len();
        taken
    }

    /// A taken piece was split in two.
    pub fn split(&mut self) {
        self.in_flight += 1;
    }

    /// The taken pieces are in the metadata now.
    pub fn inlined(&mut self, taken: &[Taken], extents: &[Extent]) {
        self.in_flight -= taken.len();
        self.in_flight_bytes -= taken.iter().map(|taken| taken.bytes.len() as u64).sum::<u64>();
        self.committed(extents);
    }

    /// Records where taken data was written. None means that the write failed: the data is dirty
    /// again. Parts that were overwritten or cut off meanwhile are left out.
    pub fn written(&mut self, taken: &Taken, span: Option<Span>) {
        self.in_flight -= 1;
        self.in_flight_bytes -= taken.bytes.len() as u64;
        let range = taken.offset..taken.offset + taken.bytes.len() as u64;
        for extent in self.pending.within(&range) {
            let ExtentPlace::Bytes(bytes) = &extent.place else { continue };
            let skipped = extent.offset - taken.offset;
            // Compare addresses, not content: `taken` keeps the memory from being reused.
            if bytes.as_ptr() != taken.bytes[skipped as usize..].as_ptr() {
                continue;
            }
            match span {
                Some(span) => {
                    let place = ExtentPlace::Stripe(span.skip(skipped));
                    self.pending.insert(Extent { place, ..extent });
                }
                None => {
                    self.given_back += 1;
                    self.pending.replace(extent.range(), &[]);
                    // Newer dirty data stays on top.
                    for hole in pieces(&self.dirty.within(&extent.range()), extent.range()) {
                        if let (None, Some(part)) = (hole.place, extent.clip(&hole.range)) {
                            self.insert_dirty(part);
                        }
                    }
                }
            }
        }
    }

    /// The pieces of a range that are in this buffer. The other pieces have no place.
    pub fn read(&self, range: Range<u64>) -> Vec<Piece> {
        let mut map = ExtentMap::default();
        for extent in self.pending.within(&range).into_iter().chain(self.dirty.within(&range)) {
            map.insert(extent);
        }
        if let Some((offset, tail)) = &self.tail {
            let (from, until) = (range.start.max(*offset), range.end.min(offset + tail.len() as u64));
            if from < until {
                let bytes = Bytes::copy_from_slice(&tail[(from - offset) as usize..(until - offset) as usize]);
                map.insert(Extent { offset: from, length: until - from, place: ExtentPlace::Bytes(bytes) });
            }
        }
        pieces(&map.within(&range), range)
    }

    /// Drops a range that was truncated or punched.
    pub fn forget(&mut self, range: Range<u64>) {
        self.freeze();
        let forgotten: u64 = self.dirty.replace(range.clone(), &[]).iter().map(|old| old.length).sum();
        self.dirty_bytes -= forgotten;
        self.pending.replace(range, &[]);
    }

    /// The ranges that are in this buffer, in any layer, in order.
    pub fn covered(&self) -> Vec<Range<u64>> {
        let tail = self.tail.as_ref().map(|(from, tail)| *from..from + tail.len() as u64);
        let mut all: Vec<Range<u64>> =
            self.pending.iter().chain(self.dirty.iter()).map(Extent::range).chain(tail).collect();
        all.sort_unstable_by_key(|range| range.start);
        all.dedup_by(|next, last| {
            let touches = next.start <= last.end;
            if touches {
                last.end = last.end.max(next.end);
            }
            touches
        });
        all
    }

    /// The pending extents that are in stripes, in order.
    pub fn stored(&self) -> impl Iterator<Item = &Extent> {
        self.pending.iter().filter(|extent| matches!(extent.place, ExtentPlace::Stripe(_)))
    }

    /// Drops the pending extents in stripes of some sets. Returns whether there were any.
    pub fn forget_stored(&mut self, gone: impl Fn(SetId) -> bool) -> bool {
        let is_gone = |extent: &&Extent| matches!(extent.place, ExtentPlace::Stripe(span) if gone(span.set));
        let gone: Vec<_> = self.stored().filter(is_gone).map(Extent::range).collect();
        for range in &gone {
            self.pending.replace(range.clone(), &[]);
        }
        !gone.is_empty()
    }

    /// The stripes that have pending extents.
    pub fn stripes(&self) -> impl Iterator<Item = Span> {
        self.pending
            .iter()
            .filter_map(|extent| if let ExtentPlace::Stripe(span) = extent.place { Some(span) } else { None })
    }

    /// Drops pending extents that a transaction names now, unless they have changed since.
    pub fn committed(&mut self, extents: &[Extent]) {
        for extent in extents {
            for part in self.pending.within(&extent.range()) {
                if extent.clip(&part.range()).is_some_and(|same| is_same(&same.place, &part.place)) {
                    self.pending.replace(part.range(), &[]);
                }
            }
        }
    }
}

/// Whether a range meets one of several, which are in order.
fn meets(ranges: &[Range<u64>], range: &Range<u64>) -> bool {
    let at = ranges.partition_point(|of| of.end <= range.start);
    ranges.get(at).is_some_and(|of| of.start < range.end)
}

fn is_bytes(extent: &Extent) -> bool {
    matches!(extent.place, ExtentPlace::Bytes(_))
}

/// Whether two places are the same. Bytes are the same only if they are the same memory.
fn is_same(a: &ExtentPlace, b: &ExtentPlace) -> bool {
    match (a, b) {
        (ExtentPlace::Bytes(a), ExtentPlace::Bytes(b)) => a.as_ptr() == b.as_ptr(),
        (a, b) => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::RecordOffset;
    use proptest::prelude::*;

    const FILE: u64 = 4000;

    fn place(buffer: &Buffer, stripes: &[Vec<u8>]) -> Vec<Option<u8>> {
        let mut seen = vec![None; FILE as usize];
        for piece in buffer.read(0..FILE) {
            for at in piece.range.clone() {
                let i = (at - piece.range.start) as usize;
                seen[at as usize] = match &piece.place {
                    None => None,
                    Some(ExtentPlace::Bytes(bytes)) => Some(bytes[i]),
                    Some(ExtentPlace::Stripe(span)) => Some(stripes[span.set.0 as usize][span.start as usize + i]),
                    Some(ExtentPlace::Zero) => unreachable!("the buffer makes none"),
                };
            }
        }
        seen
    }

    /// Data that begins in what is due and goes on is left to the next commit, and what is behind
    /// it, too: it would leave a hole.
    #[test]
    fn a_commit_leaves_what_is_behind_data_that_it_leaves() {
        let span = |number| Span { set: SetId(number), record: RecordOffset(0), block: 4096, start: 0 };
        let mut buffer = Buffer::default();
        buffer.write(0, &[1; 1000]);
        let due = buffer.begin_commit();
        assert_eq!((due.len(), due[0].clone()), (1, 0..1000));
        assert!(buffer.take(1, true).is_empty() && buffer.is_dirty(&due));
        for taken in buffer.take_due() {
            buffer.written(&taken, Some(span(1)));
        }
        buffer.write(900, &[2; 500]);
        buffer.write(2000, &[3; 500]);
        let newer = buffer.take(1, true);
        assert_eq!(newer.iter().map(|taken| taken.offset).collect::<Vec<_>>(), [2000]);
        newer.iter().for_each(|taken| buffer.written(taken, Some(span(2))));
        let named = |buffer: &Buffer, newer| {
            let (stored, left) = buffer.stored_of_commit(newer, 10);
            (stored.iter().map(|extent| (extent.offset, extent.end())).collect::<Vec<_>>(), left)
        };
        assert_eq!(named(&buffer, true), (vec![(0, 1000)], 0));
        assert_eq!(buffer.stored_of_commit(true, 0).1, 1);
        for taken in buffer.take_due() {
            buffer.written(&taken, Some(span(3)));
        }
        assert_eq!(named(&buffer, true).0, [(0, 900), (900, 1400), (2000, 2500)]);
        assert_eq!(named(&buffer, false).0, [(0, 900), (900, 1400)]);
        buffer.end_commit();
        assert_eq!(named(&buffer, true).0.len(), 3);
    }

    proptest! {
        #[test]
        fn all_layers_together_are_what_was_written(
            operations in prop::collection::vec((0u8..8, 0..FILE, 1u64..600, any::<u8>()), 1..60),
        ) {
            let mut buffer = Buffer::default();
            let mut oracle: Vec<Option<u8>> = vec![None; FILE as usize];
            let mut committed = oracle.clone();
            let (mut stripes, mut flying): (Vec<Vec<u8>>, Vec<Taken>) = (Vec::new(), Vec::new());
            for (kind, offset, length, byte) in operations {
                let length = length.min(FILE - offset);
                match kind {
                    0..=2 => {
                        let data: Vec<u8> = (0..length).map(|i| byte.wrapping_add(i as u8)).collect();
                        buffer.write(offset, &data);
                        for (i, &byte) in data.iter().enumerate() {
                            oracle[offset as usize + i] = Some(byte);
                        }
                    }
                    3 => flying.extend(buffer.take(500, byte % 2 == 0)),
                    4 | 5 if !flying.is_empty() => {
                        let taken = flying.swap_remove(usize::from(byte) % flying.len());
                        let set = SetId(stripes.len() as u64);
                        let span = Span { set, record: RecordOffset(0), block: 64, start: 3 };
                        stripes.push([&[0; 3][..], &taken.bytes].concat());
                        buffer.written(&taken, (kind == 4).then_some(span));
                    }
                    6 => {
                        buffer.forget(offset..FILE);
                        oracle[offset as usize..].fill(None);
                        committed[offset as usize..].fill(None);
                    }
                    7 => {
                        let stored = buffer.stored().cloned().collect::<Vec<_>>();
                        for extent in &stored {
                            let ExtentPlace::Stripe(span) = extent.place else { unreachable!() };
                            for i in 0..extent.length as usize {
                                committed[extent.offset as usize + i] =
                                    Some(stripes[span.set.0 as usize][span.start as usize + i]);
                            }
                        }
                        buffer.committed(&stored);
                    }
                    _ => {}
                }
                let seen = place(&buffer, &stripes);
                let both: Vec<Option<u8>> = seen.iter().zip(&committed).map(|(new, old)| new.or(*old)).collect();
                prop_assert_eq!(&both, &oracle);
                prop_assert_eq!(buffer.in_flight, flying.len());
                prop_assert_eq!(
                    buffer.in_flight_bytes,
                    flying.iter().map(|taken| taken.bytes.len() as u64).sum::<u64>()
                );
                prop_assert_eq!(buffer.dirty_bytes, buffer.dirty.iter().map(|extent| extent.length).sum::<u64>());
            }
        }
    }
}

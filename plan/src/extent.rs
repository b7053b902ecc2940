//! Where the bytes of a file are: extents, and what happens to them when a range gets other
//! content.
//!
//! Extents of a file never overlap; where there is none is a hole, which reads as zeroes. Nothing
//! here changes stored bytes: a write, a truncation, a punched hole all come down to [`edit`].

use crate::Span;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;

/// Where the bytes of an extent are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExtentPlace {
    /// In a stripe.
    Stripe(Span),
    /// Here: data too small for a stripe, or not yet in one.
    Bytes(Bytes),
    /// Nowhere; space that was set aside and reads as zeroes.
    Zero,
}

/// A range of a file that has a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Its first byte in the file.
    pub offset: u64,
    /// Its bytes; never 0.
    pub length: u64,
    /// Where they are.
    pub place: ExtentPlace,
}

impl Extent {
    /// The range of the file that it covers.
    pub fn range(&self) -> Range<u64> {
        self.offset..self.end()
    }

    /// The first byte behind it.
    pub fn end(&self) -> u64 {
        self.offset + self.length
    }

    /// The part of it that is in `range`, if any.
    #[must_use]
    pub fn clip(&self, range: &Range<u64>) -> Option<Self> {
        let (from, until) = (self.offset.max(range.start), self.end().min(range.end));
        if from >= until {
            return None;
        }
        let (skipped, length) = (from - self.offset, until - from);
        let place = match &self.place {
            ExtentPlace::Stripe(span) => ExtentPlace::Stripe(span.skip(skipped)),
            ExtentPlace::Bytes(bytes) => ExtentPlace::Bytes(bytes.slice(skipped as usize..(skipped + length) as usize)),
            ExtentPlace::Zero => ExtentPlace::Zero,
        };
        Some(Self { offset: from, length, place })
    }

    /// Whether `next` goes on where this ends, in the file and in its place, so that both can be
    /// one extent.
    fn goes_on_with(&self, next: &Self) -> bool {
        self.end() == next.offset
            && match (&self.place, &next.place) {
                (ExtentPlace::Stripe(a), ExtentPlace::Stripe(b)) => {
                    // `skip` would wrap for a span that no stripe can have.
                    u64::from(a.start) + self.length <= u64::from(u32::MAX) && a.skip(self.length) == *b
                }
                (ExtentPlace::Zero, ExtentPlace::Zero) => true,
                _ => false,
            }
    }
}

/// Whether two extents are the same. Bytes are the same where they are the same in memory: to
/// compare them would cost more than writing one of them again.
fn same(a: &Extent, b: &Extent) -> bool {
    (a.offset, a.length) == (b.offset, b.length)
        && match (&a.place, &b.place) {
            (ExtentPlace::Bytes(a), ExtentPlace::Bytes(b)) => a.as_ptr() == b.as_ptr(),
            (a, b) => a == b,
        }
}

/// What a change of a file's content does to its extents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// Offsets of extents that are no more.
    pub remove: Vec<u64>,
    /// Extents that are new, or changed under their old offset.
    pub put: Vec<Extent>,
    /// What the file no longer refers to.
    pub released: Vec<Extent>,
}

/// Gives `range` the content `new` (ordered extents in it; holes between them), where `old` are the
/// file's extents that meet or touch the range, ordered. Extents that go on in each other are
/// merged.
pub fn edit(old: &[Extent], range: Range<u64>, new: &[Extent]) -> Edit {
    let mut result: Vec<Extent> = Vec::with_capacity(old.len() + new.len() + 1);
    let mut add = |extent: Extent| match result.last_mut() {
        Some(last) if last.goes_on_with(&extent) => last.length += extent.length,
        _ => result.push(extent),
    };
    old.iter().filter_map(|extent| extent.clip(&(0..range.start))).for_each(&mut add);
    new.iter().cloned().for_each(&mut add);
    old.iter().filter_map(|extent| extent.clip(&(range.end..u64::MAX))).for_each(&mut add);
    let kept = |offset: u64| result.binary_search_by_key(&offset, |extent| extent.offset).ok().map(|at| &result[at]);
    let remove = old.iter().filter(|extent| kept(extent.offset).is_none()).map(|extent| extent.offset).collect();
    let was = |offset: u64| old.binary_search_by_key(&offset, |extent| extent.offset).ok().map(|at| &old[at]);
    let put =
        result.iter().filter(|extent| !was(extent.offset).is_some_and(|was| same(was, extent))).cloned().collect();
    Edit { remove, put, released: old.iter().filter_map(|extent| extent.clip(&range)).collect() }
}

/// A piece of a range that is read: some bytes of it, and where they are; None is a hole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The bytes of the file.
    pub range: Range<u64>,
    /// Where they are.
    pub place: Option<ExtentPlace>,
}

/// Cuts `range` into pieces, given the extents that meet it, ordered.
pub fn pieces(extents: &[Extent], range: Range<u64>) -> Vec<Piece> {
    let mut found = Vec::with_capacity(extents.len() + 1);
    let mut at = range.start;
    for extent in extents.iter().filter_map(|extent| extent.clip(&range)) {
        if at < extent.offset {
            found.push(Piece { range: at..extent.offset, place: None });
        }
        at = extent.end();
        found.push(Piece { range: extent.range(), place: Some(extent.place) });
    }
    if at < range.end {
        found.push(Piece { range: at..range.end, place: None });
    }
    found
}

/// Extents in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtentMap(BTreeMap<u64, Extent>);

impl ExtentMap {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Extent> {
        self.0.values()
    }

    /// Those that meet `range`, clipped to it, in order.
    pub fn within(&self, range: &Range<u64>) -> Vec<Extent> {
        self.meeting(range).filter_map(|extent| extent.clip(range)).collect()
    }

    /// Those that meet `range`, in order.
    pub fn meeting(&self, range: &Range<u64>) -> impl Iterator<Item = &Extent> {
        let range = range.clone();
        let reached = self.from(range.start).take_while(move |extent| extent.offset < range.end);
        reached.filter(move |extent| extent.end() > range.start)
    }

    /// Gives `range` the content `new`; returns what was there.
    pub fn replace(&mut self, range: Range<u64>, new: &[Extent]) -> Vec<Extent> {
        if range.is_empty() {
            return Vec::new();
        }
        let touching: Vec<Extent> =
            self.from(range.start).take_while(|extent| extent.offset <= range.end).cloned().collect();
        let edit = edit(&touching, range, new);
        edit.remove.iter().for_each(|offset| _ = self.0.remove(offset));
        for extent in edit.put {
            self.0.insert(extent.offset, extent);
        }
        edit.released
    }

    /// Puts one extent over what was there, which is returned.
    pub fn insert(&mut self, extent: Extent) -> Vec<Extent> {
        self.replace(extent.range(), &[extent])
    }

    /// From the last extent that begins before `offset`, which may reach it, on.
    fn from(&self, offset: u64) -> impl Iterator<Item = &Extent> {
        let first = self.0.range(..offset).next_back().map_or(offset, |(&first, _)| first);
        self.0.range(first..).map(|(_, extent)| extent).skip_while(move |extent| extent.end() < offset)
    }
}

impl FromIterator<Extent> for ExtentMap {
    fn from_iter<I: IntoIterator<Item = Extent>>(extents: I) -> Self {
        Self(extents.into_iter().map(|extent| (extent.offset, extent)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RecordOffset;
    use crate::SetId;
    use proptest::prelude::*;

    const FILE: usize = 300;

    /// What a byte of a file refers to: the oracle of all operations.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Cell {
        Hole,
        Zero,
        Here(u8),
        Stripe(SetId, u32),
    }

    fn cells(extents: &[Extent], range: Range<u64>) -> Vec<Cell> {
        pieces(extents, range)
            .into_iter()
            .flat_map(|piece| {
                (0..piece.range.end - piece.range.start).map(move |i| match &piece.place {
                    None => Cell::Hole,
                    Some(ExtentPlace::Zero) => Cell::Zero,
                    Some(ExtentPlace::Bytes(bytes)) => Cell::Here(bytes[i as usize]),
                    Some(ExtentPlace::Stripe(span)) => Cell::Stripe(span.set, span.start + i as u32),
                })
            })
            .collect()
    }

    fn operation() -> impl Strategy<Value = (u8, u64, u64, u64, u32)> {
        (0u8..4, 0..FILE as u64, 1..FILE as u64, 0u64..2, 0u32..3)
    }

    proptest! {
        #[test]
        fn every_change_is_that_of_a_byte_array(operations in prop::collection::vec(operation(), 1..40)) {
            let (mut map, mut oracle) = (ExtentMap::default(), vec![Cell::Hole; FILE]);
            for (kind, offset, length, set, start) in operations {
                let length = length.min(FILE as u64 - offset);
                let range = offset..offset + length;
                let place = match kind {
                    0 => None,
                    1 => Some(ExtentPlace::Zero),
                    2 => Some(ExtentPlace::Bytes((0..length).map(|i| (i * 7 + u64::from(start)) as u8).collect())),
                    _ => {
                        let start = start * 50 + offset as u32;
                        Some(ExtentPlace::Stripe(Span { set: SetId(set), record: RecordOffset(0), block: 64, start }))
                    }
                };
                let new: Vec<Extent> = place.map(|place| Extent { offset, length, place }).into_iter().collect();
                let released = map.replace(range.clone(), &new);
                let at = offset as usize..(offset + length) as usize;
                prop_assert_eq!(cells(&released, range.clone()), &oracle[at.clone()]);
                oracle[at].copy_from_slice(&cells(&new, range));
                let all: Vec<Extent> = map.iter().cloned().collect();
                prop_assert_eq!(&cells(&all, 0..FILE as u64), &oracle);
                prop_assert!(all.windows(2).all(|w| w[0].end() <= w[1].offset && !w[0].goes_on_with(&w[1])));
                prop_assert!(all.iter().all(|extent| extent.length > 0));
                let some = offset / 2..offset + 10;
                let until = some.end.min(FILE as u64) as usize;
                prop_assert_eq!(
                    &cells(&map.within(&some), some.clone())[..until - some.start as usize],
                    &oracle[some.start as usize..until]
                );
            }
        }
    }

    #[test]
    fn what_goes_on_is_one_extent() {
        let span = Span { set: SetId(1), record: RecordOffset(0), block: 64, start: 0 };
        let part = |from: u64, until: u64| Extent {
            offset: from,
            length: until - from,
            place: ExtentPlace::Stripe(span.skip(from)),
        };
        let mut map: ExtentMap = [part(0, 10), part(20, 30)].into_iter().collect();
        assert!(map.insert(part(10, 20)).is_empty());
        assert_eq!(map.iter().collect::<Vec<_>>(), [&part(0, 30)]);
    }
}

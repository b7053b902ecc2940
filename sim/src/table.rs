//! Where all chunks are: two bytes for each, so that ten million sets of eight take 160 MB.

use plan::{SetId, TargetId};

/// No target.
const NONE: u16 = u16::MAX;

/// The places of all chunk sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    width: usize,
    places: Vec<u16>,
}

/// As a target, or none.
fn read(place: u16) -> Option<TargetId> {
    (place != NONE).then_some(TargetId(place))
}

/// As stored.
fn packed(place: Option<TargetId>) -> u16 {
    place.map_or(NONE, |id| id.0)
}

impl Table {
    /// Of so many sets of `width` chunks, none of which is placed.
    pub fn new(sets: usize, width: usize) -> Self {
        Self { width, places: vec![NONE; sets * width] }
    }

    /// Chunks of a set.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Sets.
    pub fn sets(&self) -> usize {
        self.places.len() / self.width
    }

    /// The sets in parts of about the same size: the number of the first set of each, and its
    /// places.
    pub fn parts(&mut self, count: usize) -> Vec<(SetId, &mut [u16])> {
        let (sets, width) = (self.sets(), self.width);
        let (mut rest, mut parts) = (&mut self.places[..], Vec::with_capacity(count));
        for part in 0..count {
            let [begin, end] = [part, part + 1].map(|part| (sets as u128 * part as u128 / count as u128) as usize);
            let (these, others) = rest.split_at_mut((end - begin) * width);
            parts.push((SetId(begin as u64), these));
            rest = others;
        }
        parts
    }

    /// Where the chunks of a set are, by position, into a buffer.
    pub fn read(&self, set: usize, into: &mut Vec<Option<TargetId>>) {
        into.clear();
        into.extend(self.packed(set).iter().map(|&place| read(place)));
    }

    fn packed(&self, set: usize) -> &[u16] {
        &self.places[set * self.width..][..self.width]
    }

    /// The target of a chunk.
    pub fn at(&self, set: usize, position: usize) -> Option<TargetId> {
        read(self.packed(set)[position])
    }

    /// A chunk is there now.
    pub fn put(&mut self, set: usize, position: usize, place: Option<TargetId>) {
        self.places[set * self.width + position] = packed(place);
    }

    /// Every chunk of a target, by set and position.
    pub fn chunks_of(&self, id: TargetId) -> impl Iterator<Item = (usize, usize)> {
        let found = self.places.chunks(SCAN).enumerate().flat_map(move |(block, places)| {
            // One look at the whole block: most have none.
            let any = places.iter().fold(false, |any, &place| any | (place == id.0));
            let these: &[u16] = if any { places } else { &[] };
            these.iter().enumerate().filter(move |(_, place)| **place == id.0).map(move |(at, _)| block * SCAN + at)
        });
        found.map(|at| (at / self.width, at % self.width))
    }

    /// How many chunks each target has.
    pub fn counts(&self, targets: usize) -> Vec<u64> {
        let mut counts = vec![0; targets];
        // Also those of `NONE`, which stand behind all targets.
        let mut all = vec![0u64; usize::from(u16::MAX) + 1];
        self.places.iter().for_each(|&place| all[usize::from(place)] += 1);
        counts.copy_from_slice(&all[..targets]);
        counts
    }

    /// Chunks without a target.
    pub fn unplaced(&self) -> u64 {
        self.places.iter().filter(|&&place| place == NONE).count() as u64
    }
}

/// Writes places as they are stored.
pub fn pack(places: &[Option<TargetId>], into: &mut [u16]) {
    into.iter_mut().zip(places).for_each(|(into, &place)| *into = packed(place));
}

/// Places that are looked at at once.
const SCAN: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_found() {
        let mut table = Table::new(5000, 3);
        let id = |n: usize| TargetId((n % 7) as u16);
        (0..15_000).filter(|at| at % 11 != 0).for_each(|at| table.put(at / 3, at % 3, Some(id(at))));
        let found: Vec<(usize, usize)> = table.chunks_of(TargetId(4)).collect();
        let expected: Vec<(usize, usize)> =
            (0..15_000).filter(|at| at % 11 != 0 && at % 7 == 4).map(|at| (at / 3, at % 3)).collect();
        assert_eq!(found, expected);
        assert_eq!(table.counts(7)[4], expected.len() as u64);
        assert_eq!((table.unplaced(), table.at(0, 0), table.at(0, 1)), (1364, None, Some(TargetId(1))));
        let mut places = Vec::new();
        table.read(0, &mut places);
        assert_eq!(places, [None, Some(TargetId(1)), Some(TargetId(2))]);
    }

    #[test]
    fn parts_are_all_sets_once() {
        for (sets, parts) in [(10, 3), (2, 4), (7, 7), (1000, 1)] {
            let mut table = Table::new(sets, 2);
            let all = table.parts(parts);
            assert_eq!(all.len(), parts);
            let mut next = 0;
            for (first, places) in all {
                assert_eq!(first, SetId(next));
                next += places.len() as u64 / 2;
            }
            assert_eq!(next, sets as u64);
        }
    }
}

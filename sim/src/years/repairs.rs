//! Which degraded set is repaired next, and how long that takes.

use crate::cluster::Cluster;
use plan::repair::{Degraded, at_a_time, order};
use plan::{Position, TargetId};
use std::collections::BTreeMap;

/// What a set lacks, as bits by position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lacks {
    /// Chunks that are lost.
    pub lost: u64,
    /// Chunks that the volume knows to be missing: they are to be rebuilt.
    pub known: u64,
    /// Chunks that are being rebuilt.
    pub rebuilding: u64,
}

/// The positions of bits.
pub fn positions(bits: u64) -> impl Iterator<Item = usize> {
    (0..64).filter(move |position| bits >> position & 1 == 1)
}

/// The repair of a volume: its queue, and how busy stores are with it.
#[derive(Debug)]
pub struct Repairs {
    /// The most urgent first; some may have nothing to repair any more.
    queue: std::vec::IntoIter<Degraded>,
    /// Sets that are repaired now.
    pub running: usize,
    /// How many at a time.
    most: usize,
    /// Until when each store is busy, in milliseconds.
    busy: Vec<f64>,
    /// Milliseconds that each store takes for a chunk.
    takes: Vec<f64>,
}

impl Repairs {
    /// On these stores, of which repair has a share.
    pub fn new(cluster: &Cluster, width: usize, share: f64, most: u32) -> Self {
        let takes = |store: &crate::cluster::Store| {
            cluster.chunk_bytes() as f64 / (share * store.disk.min(store.link).min(store.processor)) * 1e3
        };
        let most = if most == 0 { at_a_time(cluster.stores.len(), width) } else { most as usize };
        Self {
            queue: Vec::new().into_iter(),
            running: 0,
            most,
            busy: vec![0.0; cluster.stores.len()],
            takes: cluster.stores.iter().map(takes).collect(),
        }
    }

    /// Begins anew with what is known to be missing, in the order of the product.
    pub fn plan(&mut self, degraded: &BTreeMap<u32, Lacks>, places: impl Fn(u32) -> Vec<Option<TargetId>>) {
        let due = degraded.iter().filter(|(_, lacks)| lacks.known != 0 && lacks.rebuilding == 0);
        let mut all: Vec<Degraded> = due
            .map(|(&set, lacks)| Degraded {
                set: plan::SetId(set.into()),
                places: places(set),
                lost: positions(lacks.known).map(Position::at).collect(),
            })
            .collect();
        order(&mut all);
        self.queue = all.into_iter();
    }

    /// The next set, if one more may be repaired.
    pub fn next(&mut self) -> Option<Degraded> {
        if self.running < self.most { self.queue.next() } else { None }
    }

    /// Of those that can be read, the `count` that are free first.
    pub fn sources(&self, mut there: Vec<TargetId>, count: usize) -> Vec<TargetId> {
        let busy = |id: &TargetId| self.busy[usize::from(id.0)];
        there.sort_by(|a, b| busy(a).total_cmp(&busy(b)).then_with(|| a.cmp(b)));
        there.truncate(count);
        there
    }

    /// A set is repaired from and to these stores. Returns when it is done: each store does one
    /// chunk after the other, and the slowest of them counts.
    pub fn begin(&mut self, now: u64, stores: impl Iterator<Item = TargetId>) -> u64 {
        self.running += 1;
        let mut end = now as f64;
        for id in stores {
            let id = usize::from(id.0);
            self.busy[id] = self.busy[id].max(now as f64) + self.takes[id];
            end = end.max(self.busy[id]);
        }
        (end.ceil() as u64).max(now + 1)
    }

    /// What waits for a lost store waits no longer.
    pub fn forget(&mut self, id: TargetId) {
        self.busy[usize::from(id.0)] = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn repairs(most: u32) -> Repairs {
        // 64 MiB at a quarter of 180 MB a second: 1491.3 ms.
        Repairs::new(&Cluster::new(&Config::default()), 8, 0.25, most)
    }

    #[test]
    fn stores_do_one_chunk_after_the_other() {
        let mut repairs = repairs(0);
        let ids = |range: std::ops::Range<u16>| range.map(TargetId);
        assert_eq!((repairs.begin(1000, ids(0..7)), repairs.begin(1000, ids(7..14))), (2492, 2492));
        assert_eq!(repairs.begin(1000, ids(13..20)), 3983);
        assert_eq!(repairs.running, 3);
        assert_eq!(repairs.sources(ids(12..17).collect(), 2), [12, 14].map(TargetId));
        repairs.forget(TargetId(13));
        assert_eq!(repairs.begin(1000, ids(13..14)), 2492);
    }

    #[test]
    fn the_least_redundant_is_next_and_not_too_many() {
        let mut repairs = repairs(2);
        let lacks = |known| Lacks { lost: known, known, rebuilding: 0 };
        let degraded = BTreeMap::from([(1, lacks(1)), (5, lacks(0b101)), (7, lacks(2)), (8, lacks(0))]);
        repairs.plan(&degraded, |_| vec![None; 8]);
        let first = repairs.next().unwrap();
        assert_eq!((first.set.0, first.lost), (5, vec![Position(0), Position(2)]));
        repairs.begin(0, std::iter::empty());
        assert_eq!(repairs.next().unwrap().set.0, 1);
        repairs.begin(0, std::iter::empty());
        assert_eq!(repairs.next(), None);
        repairs.running -= 1;
        assert_eq!(repairs.next().unwrap().set.0, 7);
        assert_eq!(repairs.next(), None);
    }
}

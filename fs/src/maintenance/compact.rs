//! Compaction: rewrites what is left of sparse chunk sets, so that the sets can be deleted and
//! their space is freed.
//!
//! Punching holes frees most of the space at once. Compaction frees the rest: what holes cannot
//! free, and the chunks themselves, whose number would grow for ever.

use crate::data::file::File;
use crate::data::manifest;
use crate::data::write::stripe_of;
use crate::{Error, FileSystem, Result};
use meta::{ContentEdit, Resize};
use plan::{Extent, ExtentPlace, Ino, SetId};
use std::collections::BTreeSet;
use std::sync::Mutex;
use volume::lock;

/// A sealed set is compacted when less than this share of it is referenced, in percent.
const SPARSE_PERCENT: u64 = 40;

/// Sets that lost stripes and may be sparse now, and sets that cannot be compacted.
#[derive(Debug, Default)]
pub(crate) struct Compactor {
    suspects: Mutex<BTreeSet<SetId>>,
    stuck: Mutex<BTreeSet<SetId>>,
}

impl Compactor {
    /// Records that a set lost stripes.
    pub fn suspect(&self, set: SetId) {
        if !lock(&self.stuck).contains(&set) {
            lock(&self.suspects).insert(set);
        }
    }

    fn next(&self) -> Option<SetId> {
        lock(&self.suspects).pop_first()
    }
}

impl FileSystem {
    /// Compacts one set that needs it, if there is one. Returns whether it did.
    pub(crate) fn compact_one(&self) -> Result<bool> {
        while let Some(set) = self.compactor.next() {
            match self.engine()?.meta.set(set) {
                Ok(record) if record.sealed && !self.store.is_in_use(set) && !self.leases.is_held(set) => {}
                Ok(_) | Err(meta::Error::NotFound) => continue,
                Err(error) => return Err(error.into()),
            }
            if !self.is_sparse(set)? {
                continue;
            }
            self.compact(set)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Whether only little of a set is referenced.
    fn is_sparse(&self, set: SetId) -> Result<bool> {
        let record = self.engine()?.meta.set(set)?;
        let layout = self.store.layout(set)?;
        let header = volume::format::CHUNK_HEADER_BYTES as u64;
        let length = u64::from(record.length).saturating_sub(header) * layout.code.shape().k as u64;
        let live: i64 = self.engine()?.meta.stripes(set)?.iter().map(|(_, stripe)| stripe.live).sum();
        Ok(u64::try_from(live).unwrap_or(0) * 100 < length * SPARSE_PERCENT)
    }

    /// Rewrites the referenced data of a set into other sets. When nothing refers to the set any
    /// more, the collector deletes it.
    fn compact(&self, set: SetId) -> Result<()> {
        let layout = self.store.layout(set)?;
        let mut files = BTreeSet::new();
        for (record, stripe) in self.engine()?.meta.stripes(set)?.into_iter().filter(|(_, stripe)| stripe.live > 0) {
            let manifest = volume::read_manifest(&self.store.targets, &layout, record, stripe.block)?;
            files.extend(manifest::decode(&manifest).into_iter().flatten().map(|piece| piece.ino));
            files.extend(self.engine()?.meta.shared_by(set, record)?);
        }
        for ino in files {
            if self.is_closed() {
                return Ok(());
            }
            match self.move_out(ino, set) {
                Ok(()) | Err(Error::Stale | Error::Meta(meta::Error::NotFound)) => {}
                Err(error) => return Err(error),
            }
        }
        if self.engine()?.meta.stripes(set)?.iter().any(|(_, stripe)| stripe.live > 0) && !self.is_closed() {
            // A file refers to the set that its manifests do not name; the set stays as it is.
            lock(&self.compactor.stuck).insert(set);
        }
        Ok(())
    }

    /// Rewrites the data of a file in a set into other sets.
    fn move_out(&self, ino: Ino, set: SetId) -> Result<()> {
        let in_set = |extent: &Extent| matches!(extent.place, ExtentPlace::Stripe(span) if span.set == set);
        self.restripe(ino, in_set)
    }

    /// Rewrites some extents of a file into new stripes.
    pub(crate) fn restripe(&self, ino: Ino, which: impl Fn(&Extent) -> bool) -> Result<()> {
        self.restripe_some(ino, 0, u64::MAX, which).map(drop)
    }

    /// The same from an offset on, until about so many bytes are moved. Returns the offset to go on
    /// at, if there is more, and the bytes. The file's content lock is held.
    pub(crate) fn restripe_some(
        &self,
        ino: Ino,
        from: u64,
        most: u64,
        which: impl Fn(&Extent) -> bool,
    ) -> Result<(Option<u64>, u64)> {
        let file = self.table.enter(ino);
        let _one_at_a_time = file.content();
        let size = self.sized(&file)?.buffer.size.unwrap_or(0);
        let (mut rest, mut moved) = (from..size, 0);
        // A handover waits for what is under way, and a file may be long.
        while !rest.is_empty() && moved < most && !self.is_closed() {
            let (mut extents, covered) = self.next_extents(ino, rest.clone())?;
            rest.start = covered.end;
            extents.retain(&which);
            let fitting = extents.iter().take_while(|extent| {
                let fits = moved < most;
                moved += if fits { extent.length } else { 0 };
                fits
            });
            let fitting = fitting.count();
            if let Some(next) = extents.get(fitting) {
                rest.start = next.offset;
                extents.truncate(fitting);
            }
            self.restripe_extents(&file, &extents)?;
        }
        Ok(((!rest.is_empty()).then_some(rest.start), moved))
    }

    /// Rewrites these extents of a file into new stripes. The caller holds the file's content lock.
    fn restripe_extents(&self, file: &File, extents: &[Extent]) -> Result<()> {
        let ino = file.ino;
        let (moved, _pins) = self.store_extents(ino, extents)?;
        if moved.is_empty() {
            return Ok(());
        }
        self.store.sync_sets(moved.iter().filter_map(|extent| stripe_of(&extent.place)).map(|(set, _)| set))?;
        let ranges = moved.iter().map(|extent| (extent.range(), vec![extent.clone()])).collect();
        let edit = ContentEdit { ranges, resize: Resize::Keep, modified: None };
        let done = self.meta.change_content(ino, &edit);
        // Before the old places are free: readers look for the new ones.
        file.state().changes += 1;
        match done {
            Ok((_, dead, seq)) => self.collector.add(dead, seq),
            Err(meta::Error::NotFound) => self.give_back_unnamed(&moved)?,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::ROOT;
    use crate::testing::{Lab, make};
    use plan::{Extent, ExtentPlace, Ino};

    /// A hostile client may have put an extent into the metadata that is longer than a stripe.
    #[test]
    fn an_extent_that_is_longer_than_a_stripe_is_cut() {
        let lab = Lab::new("rs:2+1", 3);
        let fs = lab.open();
        let ino = make(&fs, "file");
        let length = 2 * fs.store.stripe_bytes() + 12_345;
        let bytes: Vec<u8> = (0..length).map(|at| (at / 3 + at / 70_000) as u8).collect();
        let long = Extent { offset: 77, length: length as u64, place: ExtentPlace::Bytes(bytes.clone().into()) };
        let (moved, pins) = fs.store_extents(ino, &[long]).unwrap();
        assert_eq!((moved.len(), moved[0].offset), (3, 77));
        assert!(moved.windows(2).all(|pair| pair[0].end() == pair[1].offset));
        let mut stored = vec![0; length];
        for extent in &moved {
            let at = (extent.offset - 77) as usize;
            fs.fill_place(&extent.place, &mut stored[at..at + extent.length as usize]).unwrap();
        }
        assert!(stored == bytes);
        drop(pins);
    }

    /// A file that is dropped in several transactions is not moved between them: the counts of
    /// references would be wrong afterwards.
    #[test]
    fn what_is_dropped_is_not_moved() {
        let lab = Lab::new("rs:2+1", 3);
        let fs = lab.open();
        for round in 0..25 {
            let name = format!("f{round}");
            let ino = make(&fs, &name);
            // More extents than one transaction drops.
            (0..9000).for_each(|n| fs.write(ino, n * 10, &[round; 3]).unwrap());
            fs.sync(ino).unwrap();
            std::thread::scope(|scope| {
                let moving = scope.spawn(|| {
                    for _ in 0..3 {
                        let _ = fs.restripe(ino, |_| true);
                    }
                });
                fs.unlink(ROOT, name.as_bytes()).unwrap();
                while fs.meta.attributes(ino).is_ok() {
                    fs.collect(true).unwrap();
                }
                moving.join().unwrap();
            });
            let checked = fs.check().unwrap();
            assert!(checked.problems.is_empty(), "round {round}: {:#?}", checked.problems);
        }
        assert_eq!(fs.status().unwrap().bytes, 0);
        fs.close_volume().unwrap();
        let chunks = lab.disks.iter().flat_map(|disk| volume::target::Target::list(&**disk).unwrap());
        let chunks = chunks.filter(|(file, _)| matches!(file, volume::target::TargetFile::Chunk { .. }));
        assert_eq!(chunks.count(), 0);
    }

    /// A check reads the files first and then the stripes. What is moved in between is not a
    /// problem of the volume.
    #[test]
    fn a_check_beside_moves_and_removals_finds_nothing() {
        let lab = Lab::new("rs:2+1", 3);
        let fs = lab.open();
        let files: Vec<Ino> = (0..40).map(|number| make(&fs, &format!("f{number}"))).collect();
        files.iter().for_each(|&ino| fs.write(ino, 0, &[7; 5000]).unwrap());
        fs.sync_all().unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0.. {
                    files.iter().for_each(|&ino| fs.restripe(ino, |_| true).unwrap());
                    let name = format!("short-lived{round}");
                    fs.write(make(&fs, &name), 0, &[1; 100]).unwrap();
                    fs.unlink(ROOT, name.as_bytes()).unwrap();
                    if done.load(std::sync::atomic::Ordering::SeqCst) {
                        return;
                    }
                }
            });
            let problems: Vec<String> = (0..20).flat_map(|_| fs.check().unwrap().problems).collect();
            done.store(true, std::sync::atomic::Ordering::SeqCst);
            assert!(problems.is_empty(), "{problems:#?}");
        });
    }
}

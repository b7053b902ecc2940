//! Orphan chunks: chunks on a target that the metadata does not know there. While a target is away
//! or fails, sets are deleted and chunks are moved; when it is back, its orphan chunks are removed.
//!
//! A chunk is removed only if it is certain that it is not needed:
//! - This process deleted or moved it. Or it was found on the target, its header names this volume
//!   (or it was being rebuilt and has no header), and this metadata created its set, before this
//!   opening.
//! - The metadata, durably, does not know the set, or has the chunk on another target, where it
//!   really is.
//! - Nothing writes to the set, and nothing repairs or moves it at the same time.

use crate::data::pauses::Pauses;
use crate::ranks::{OrphanCandidates, OrphanRemoval};
use crate::{FileSystem, Result};
use ::volume::ranked::Ranked;
use plan::backoff::BackOff;
use plan::{Position, SetId, TargetId, TxId};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::RangeInclusive;
use std::sync::Weak;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};
use volume::format::{CHUNK_HEADER_BYTES, ChunkHeader};
use volume::target::{ReadAt, TargetFile};

/// How often orphan chunks are looked for.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// How often to check whether targets are healthy again.
const HEALTH_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The most chunks that are removed from one target before the next target is served.
const REMOVE_BATCH_CHUNKS: usize = 256;
/// The most candidates of a target that are remembered; the others are found when it is listed
/// again.
const MAX_CANDIDATES: usize = 1 << 16;
/// The back-off for a target on which something failed: this long, and twice as long after each
/// further failure.
const PAUSES: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(300);
/// The longest wait for lists of chunks when a caller wants everything removed now.
const LIST_TIMEOUT: Duration = Duration::from_secs(15);

type Listed = io::Result<Vec<(TargetFile, u64)>>;

/// The state of the search for orphan chunks.
#[derive(Debug, Default)]
pub(crate) struct OrphanChunks {
    candidates: Ranked<Candidates, OrphanCandidates>,
    /// Held while orphan chunks are removed.
    removing: Ranked<(), OrphanRemoval>,
}

#[derive(Debug, Default)]
struct Candidates {
    /// Targets that were healthy at the last check, and its time.
    healthy: BTreeSet<TargetId>,
    looked: Option<Instant>,
    /// Targets whose chunks must be listed.
    unlisted: BTreeSet<TargetId>,
    /// Lists in progress, each in a thread: a target may have very many chunks.
    lists: BTreeMap<TargetId, Receiver<Listed>>,
    /// Candidates: chunks that may be orphan chunks.
    found: BTreeMap<TargetId, BTreeSet<TargetFile>>,
    /// Targets that are left alone for a while.
    pauses: BTreeMap<TargetId, BackOff>,
}

impl Candidates {
    fn is_paused(&self, id: TargetId) -> bool {
        self.pauses.get(&id).is_some_and(|pause| !pause.is_due(Instant::now()))
    }

    fn pause(&mut self, id: TargetId) {
        let before = self.pauses.get(&id).copied();
        self.pauses.insert(id, BackOff::after(before, PAUSES, Instant::now()));
    }

    fn remember(&mut self, id: TargetId, file: TargetFile) {
        let found = self.found.entry(id).or_default();
        if found.len() < MAX_CANDIDATES {
            found.insert(file);
        } else {
            self.unlisted.insert(id);
        }
    }
}

impl OrphanChunks {
    /// Records a chunk that is not needed any more and could not be removed.
    pub fn remember(&self, id: TargetId, file: TargetFile) {
        self.candidates.lock().remember(id, file);
    }

    /// Records that a target may have missed deletions or moves.
    pub fn suspect(&self, id: TargetId) {
        self.candidates.lock().unlisted.insert(id);
    }

    /// Stops removals and searches for as long as the guard lives, and drops all suspicions.
    #[cfg(test)]
    pub fn hold(&self) -> ::volume::ranked::Guard<'_, (), OrphanRemoval> {
        let held = self.removing.lock();
        self.candidates.lock().unlisted.clear();
        held
    }

    /// Whether the chunks of a target are to be listed.
    #[cfg(test)]
    pub fn is_suspected(&self, id: TargetId) -> bool {
        self.candidates.lock().unlisted.contains(&id)
    }
}

fn set_of(file: TargetFile) -> Option<(SetId, Position)> {
    match file {
        TargetFile::Chunk { set, position } | TargetFile::NewChunk { set, position } => Some((set, position)),
        _ => None,
    }
}

/// The thread that removes orphan chunks.
pub(crate) fn watch(fs: &Weak<FileSystem>, pauses: &Pauses) {
    let mut next = Instant::now();
    while pauses.pause(CHECK_INTERVAL) {
        let Some(fs) = fs.upgrade().filter(|fs| !fs.is_closed()) else { return };
        if Instant::now() < next {
            continue;
        }
        if let Some(Err(error)) = fs.beside("looking for orphan chunks", || fs.remove_orphan_chunks(true))
            && !fs.is_closed()
        {
            fs.volume.warn(&format!("cannot look for orphan chunks: {error}"));
            next = Instant::now() + *PAUSES.end();
        }
    }
}

impl FileSystem {
    /// Removes chunks that the metadata, durably, no longer needs. Chunks that cannot be removed
    /// now are removed later.
    pub(crate) fn remove_chunks(&self, set: SetId, places: impl IntoIterator<Item = (Position, TargetId)>) {
        let file = move |position: Position| TargetFile::Chunk { set, position };
        let targets = &self.store.targets;
        let there = places.into_iter().filter(|(_, id)| targets.get(*id).is_some());
        let (now, later): (Vec<_>, Vec<_>) = there.partition(|(_, id)| targets.error(*id).is_none());
        let done = targets.each(now, move |position, target| target.remove(file(position)));
        let failed = done.into_iter().filter(|(.., done)| done.is_err()).map(|(position, id, _)| (position, id));
        for (position, id) in failed.chain(later) {
            self.orphan_chunks.remember(id, file(position));
        }
    }

    /// Removes all orphan chunks that can be removed now.
    pub(crate) fn remove_orphans_now(&self) -> Result<()> {
        {
            let mut candidates = self.orphan_chunks.candidates.lock();
            (candidates.looked, candidates.pauses) = (None, BTreeMap::new());
        }
        let begun = Instant::now();
        while self.remove_orphan_chunks(true)?
            || !self.orphan_chunks.candidates.lock().lists.is_empty() && begun.elapsed() < LIST_TIMEOUT
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Removes some orphan chunks; with `look`, searches for more. Returns whether there are more.
    pub(crate) fn remove_orphan_chunks(&self, look: bool) -> Result<bool> {
        let _one_at_a_time = self.orphan_chunks.removing.lock();
        if look {
            self.notice_healthy();
            self.begin_lists();
            self.take_lists()?;
        }
        let due: Vec<(TargetId, Vec<TargetFile>)> = {
            let mut candidates = self.orphan_chunks.candidates.lock();
            let ids: Vec<TargetId> = candidates.found.keys().copied().filter(|&id| !candidates.is_paused(id)).collect();
            let mut some = |id| {
                let found = candidates.found.get_mut(&id)?;
                let some: Vec<TargetFile> =
                    std::iter::from_fn(|| found.pop_first()).take(REMOVE_BATCH_CHUNKS).collect();
                (!some.is_empty()).then_some((id, some))
            };
            ids.into_iter().filter_map(&mut some).collect()
        };
        if due.is_empty() {
            return Ok(false);
        }
        // Sync first: the state after a crash must not need what is removed.
        let result = self.meta.sync(TxId::MAX);
        let mut more = false;
        for (id, files) in due {
            let mut rest = files.into_iter();
            if result.is_ok() {
                let goes_on = self.remove_orphans_of(id, &mut rest);
                more |=
                    goes_on && self.orphan_chunks.candidates.lock().found.get(&id).is_some_and(|left| !left.is_empty());
            }
            rest.for_each(|file| self.orphan_chunks.remember(id, file));
        }
        result?;
        Ok(more)
    }

    /// Removes these chunks from a target if they are orphan chunks. Returns whether to continue
    /// with this target.
    fn remove_orphans_of(&self, id: TargetId, files: &mut impl Iterator<Item = TargetFile>) -> bool {
        let targets = &self.store.targets;
        if targets.get(id).is_none() {
            files.for_each(drop);
            return false;
        }
        let mut goes_on = true;
        for file in files {
            let Some((set, _)) = set_of(file) else { continue };
            let claim = self.store.claims.try_take(set).filter(|_| !self.store.is_in_use(set));
            let orphan = claim.as_ref().map(|_| self.is_orphan(id, file));
            match orphan {
                Some(Ok(true)) => {}
                Some(Ok(false)) => continue,
                // Another thread works with the set, or the metadata cannot be read: try later.
                Some(Err(_)) | None => {
                    self.orphan_chunks.remember(id, file);
                    goes_on = false;
                    continue;
                }
            }
            let done = targets.each([(0, id)], move |_, target| target.remove(file));
            if done.iter().any(|(.., done)| done.is_err()) {
                let mut candidates = self.orphan_chunks.candidates.lock();
                candidates.remember(id, file);
                candidates.pause(id);
                return false;
            }
        }
        self.orphan_chunks.candidates.lock().pauses.remove(&id);
        goes_on
    }

    /// Whether the metadata does not need a chunk on this target. The caller has claimed the set.
    fn is_orphan(&self, id: TargetId, file: TargetFile) -> Result<bool> {
        let TargetFile::Chunk { set, position } = file else {
            // The caller's claim means that no repair of the set runs, so nothing will complete
            // this new chunk.
            return Ok(matches!(file, TargetFile::NewChunk { .. }));
        };
        let record = match self.engine()?.meta.set(set) {
            Err(meta::Error::NotFound) => return Ok(true),
            record => record?,
        };
        let Some(Some(place)) = record.places.get(position.index()).copied() else { return Ok(false) };
        if place == id {
            return Ok(false);
        }
        let damaged =
            self.engine()?.meta.repairs()?.iter().any(|(queued, lost)| *queued == set && lost.contains(&position));
        // If the chunk is not at the place that the metadata has, this copy may still be needed.
        Ok(!damaged && self.has_header(place, file).is_ok_and(|has| has))
    }

    /// Whether the header of a chunk names this volume, and the set and position of its file name.
    pub(crate) fn has_header(&self, id: TargetId, file: TargetFile) -> io::Result<bool> {
        let mut read = self.store.targets.each([(0, id)], move |_, target| {
            let mut bytes = vec![0; CHUNK_HEADER_BYTES];
            match target.read_at(file, 0, &mut bytes) {
                Err(why) if why.kind() == io::ErrorKind::NotFound => bytes.clear(),
                length => bytes.truncate(length?),
            }
            Ok(bytes)
        });
        let (_, _, bytes) = read.pop().ok_or(io::ErrorKind::NotFound)?;
        let header = ChunkHeader::decode(&bytes?).ok();
        let volume = self.store.options.volume;
        Ok(header.is_some_and(|it| it.volume == volume && Some((it.set, it.position)) == set_of(file)))
    }

    /// Records which targets became healthy: they may have missed deletions or moves.
    fn notice_healthy(&self) {
        if self.orphan_chunks.candidates.lock().looked.is_some_and(|when| when.elapsed() < HEALTH_CHECK_INTERVAL) {
            return;
        }
        let targets = &self.store.targets;
        let healthy: BTreeSet<TargetId> = targets.ids().into_iter().filter(|&id| targets.is_healthy(id)).collect();
        let mut candidates = self.orphan_chunks.candidates.lock();
        let new: Vec<TargetId> = healthy.difference(&candidates.healthy).copied().collect();
        for id in new {
            candidates.unlisted.insert(id);
            candidates.pauses.remove(&id);
        }
        (candidates.healthy, candidates.looked) = (healthy, Some(Instant::now()));
    }

    fn begin_lists(&self) {
        let mut candidates = self.orphan_chunks.candidates.lock();
        let due = |id: &&TargetId| {
            candidates.healthy.contains(id) && !candidates.is_paused(**id) && !candidates.lists.contains_key(id)
        };
        let due: Vec<TargetId> = candidates.unlisted.iter().filter(due).copied().collect();
        for id in due {
            candidates.unlisted.remove(&id);
            let Some(target) = self.store.targets.get(id) else { continue };
            let (send, list) = channel();
            match Builder::new().spawn(move || _ = send.send(target.list())) {
                Ok(_) => _ = candidates.lists.insert(id, list),
                // The system has no more threads.
                Err(_) => _ = candidates.unlisted.insert(id),
            }
        }
    }

    /// Goes through the lists that are complete.
    fn take_lists(&self) -> Result<()> {
        let ready: Vec<(TargetId, Listed)> = {
            let mut candidates = self.orphan_chunks.candidates.lock();
            let mut ready = Vec::new();
            candidates.lists.retain(|&id, list| match list.try_recv() {
                Err(TryRecvError::Empty) => true,
                listed => {
                    ready.push((id, listed.unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))));
                    false
                }
            });
            ready
        };
        let mut done = Ok(());
        for (id, listed) in ready {
            let looked = match listed {
                Ok(files) => self.look_through(id, files.into_iter().map(|(file, _)| file)),
                Err(_) => Ok(false),
            };
            if !matches!(looked, Ok(true)) {
                let mut candidates = self.orphan_chunks.candidates.lock();
                candidates.unlisted.insert(id);
                candidates.pause(id);
            }
            done = done.and(looked.map(drop));
        }
        done
    }

    /// Records the orphan chunks among the listed chunks of a target. The list is older than the
    /// metadata that it is compared with, so a new set is in both. Returns whether the target
    /// answered.
    fn look_through(&self, id: TargetId, files: impl Iterator<Item = TargetFile>) -> Result<bool> {
        let mut newest = SetId::default();
        for file in files {
            let Some((set, position)) = set_of(file) else { continue };
            // Others are no numbers that a volume gave out.
            if set <= meta::MAX_SKIPPED {
                newest = newest.max(set);
            }
            if !self.store.history.made_before(set) {
                continue;
            }
            let finished = matches!(file, TargetFile::Chunk { .. });
            let is_here = match self.engine()?.meta.set(set) {
                Ok(record) => finished && record.places.get(position.index()) == Some(&Some(id)),
                Err(meta::Error::NotFound) => false,
                Err(error) => return Err(error.into()),
            };
            if is_here {
                continue;
            }
            match self.has_header(id, file) {
                Ok(has) if has || !finished => self.orphan_chunks.remember(id, file),
                Ok(_) => {}
                Err(_) => return Ok(false),
            }
        }
        if newest > self.store.history.last() && self.engine()?.meta.set(newest) == Err(meta::Error::NotFound) {
            // Never use these numbers again for other sets.
            self.engine()?.meta.skip_sets(newest)?;
            self.volume.warn(&format!(
                "target {} has chunks of chunk set {newest}, which the metadata does not know: was it restored from \
                 an old copy? They stay",
                id.0
            ));
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ROOT;
    use crate::testing::{Lab, make};
    use std::io::IoSlice;
    use volume::format::{Timestamp, VolumeId};
    use volume::target::{Durable, Target};

    fn header(volume: VolumeId, set: SetId, position: u16) -> Vec<u8> {
        let (position, created) = (Position(position), Timestamp { seconds: 5, nanoseconds: 0 });
        ChunkHeader { volume, set, position, shape: (2, 1), code: "rs:2+1".into(), unit: 64, created }.encode()
    }

    /// Creates a volume with one deleted set and one existing set; returns the numbers of both.
    fn volume_with_a_past(lab: &Lab) -> (SetId, SetId) {
        let mut sets = Vec::new();
        for name in ["gone", "kept"] {
            let fs = lab.open();
            fs.write(make(&fs, name), 0, &[1; 100_000]).unwrap();
            fs.sync_all().unwrap();
            sets.push(fs.engine().unwrap().meta.sets(SetId(0), 10).unwrap().last().unwrap().0);
            fs.close_volume().unwrap();
        }
        let fs = lab.open();
        fs.unlink(ROOT, b"gone").unwrap();
        fs.close_volume().unwrap();
        (sets[0], sets[1])
    }

    fn has(lab: &Lab, number: usize, file: TargetFile) -> bool {
        lab.disks[number].list().unwrap().iter().any(|(found, _)| *found == file)
    }

    #[test]
    fn only_what_is_certain_is_removed() {
        let lab = Lab::new("rs:2+1", 4);
        let (gone, kept) = volume_with_a_past(&lab);
        let fs = lab.open();
        let ours = fs.store.options.volume;
        let record = fs.meta.set(kept).unwrap();
        let spare = (0..4).find(|n| !record.places.contains(&Some(TargetId(*n)))).unwrap();
        fs.close_volume().unwrap();
        drop(fs);
        let spare = usize::from(spare);
        let put = |file, bytes: &[u8]| lab.disks[spare].write(file, 0, &[IoSlice::new(bytes)], Durable::Later).unwrap();
        let chunk = |set, position| TargetFile::Chunk { set, position: Position(position) };
        let mut damaged = header(ours, gone, 1);
        damaged[40] ^= 1;
        let orphan = [chunk(gone, 0), TargetFile::NewChunk { set: gone, position: Position(0) }, chunk(kept, 0)];
        let not = [chunk(gone, 1), chunk(gone, 2), chunk(SetId(gone.0 + 3), 0), chunk(SetId(60), 0), chunk(kept, 1)];
        put(orphan[0], &header(ours, gone, 0));
        put(orphan[1], &header(ours, gone, 0));
        put(orphan[2], &header(ours, kept, 0));
        put(not[0], &damaged);
        put(not[1], &header(VolumeId([8; 16]), gone, 2));
        // Numbers that this metadata never used.
        put(not[2], &header(ours, SetId(gone.0 + 3), 0));
        put(not[3], &header(ours, SetId(60), 0));
        // It is not where it should be, but it is nowhere else either.
        put(not[4], &header(ours, kept, 1));
        let holder = usize::from(record.places[1].unwrap().0);
        lab.by_hand(holder).remove(chunk(kept, 1)).unwrap();
        let fs = lab.open();
        fs.remove_orphans_now().unwrap();
        fs.close_volume().unwrap();
        assert_eq!(orphan.map(|file| has(&lab, spare, file)), [false; 3]);
        assert_eq!(not.map(|file| has(&lab, spare, file)), [true; 5]);
    }

    #[test]
    fn what_is_in_use_is_left_alone() {
        let lab = Lab::new("rs:2+1", 4);
        let (gone, _) = volume_with_a_past(&lab);
        let fs = lab.open();
        let file = TargetFile::NewChunk { set: gone, position: Position(0) };
        lab.disks[3]
            .write(file, 0, &[IoSlice::new(&header(fs.store.options.volume, gone, 0))], Durable::Later)
            .unwrap();
        // As a repair does.
        let claim = fs.store.claims.take(gone);
        fs.orphan_chunks.suspect(TargetId(3));
        fs.remove_orphans_now().unwrap();
        assert!(has(&lab, 3, file));
        drop(claim);
        fs.remove_orphans_now().unwrap();
        assert!(!has(&lab, 3, file));
    }

    /// A chunk that was to be removed is needed again after a repair restored it.
    #[test]
    fn what_came_back_stays() {
        let lab = Lab::new("rs:2+1", 4);
        let (_, kept) = volume_with_a_past(&lab);
        let fs = lab.open();
        let file = TargetFile::Chunk { set: kept, position: Position(0) };
        let holder = fs.meta.set(kept).unwrap().places[0].unwrap();
        fs.orphan_chunks.remember(holder, file);
        fs.remove_orphans_now().unwrap();
        assert!(has(&lab, usize::from(holder.0), file));
    }
}

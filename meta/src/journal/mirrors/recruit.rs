//! Brings the whole state to a new mirror: the snapshot and the journal behind it, copied from
//! other mirrors, frame by frame.

use super::super::claim::claims::whole;
use super::super::claim::witnesses::Witnesses;
use super::super::frame::{END_BYTES, Frame, Head, RecordKind, VolumeId};
use super::super::opening::copies::{Copy, Miss, spread, spread_head, walk};
use super::super::opening::inventory::{FoundFile, Owner, take};
use super::super::opening::lineage::Lineage;
use super::super::options::MirrorTarget;
use plan::TxId;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::sync::Arc;
use volume::target::{ClaimRequest, Target, TargetFile};

/// What a new mirror gets.
#[derive(Clone)]
pub(in crate::journal) struct RecruitState {
    pub volume: VolumeId,
    /// Claims the target for this epoch.
    pub claim: ClaimRequest,
    /// Asked if it is blank.
    pub witnesses: Witnesses,
    /// The first transactions of the segments, in order.
    pub segments: Vec<TxId>,
    /// The last transaction that is copied. Those behind it are sent as batches.
    pub last: TxId,
    /// The epochs whose files are copied: others are of another history.
    pub lineage: Lineage,
    /// Where to copy from, the best first.
    pub sources: Vec<MirrorTarget>,
    /// The space that the target must have free, in bytes.
    pub need_bytes: u64,
}

/// The sources lack something that they had when the copy was requested: they have left the journal
/// meanwhile, or have a newer snapshot. The target that should get it has not failed.
#[derive(Debug)]
struct Gone(String);

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Gone {}

fn gone(what: String) -> io::Error {
    io::Error::other(Gone(what))
}

fn named(file: TargetFile) -> String {
    match file {
        TargetFile::Journal { first } => format!("the journal from transaction {first} on"),
        TargetFile::Snapshot { last } => format!("the snapshot up to transaction {last}"),
        other => format!("{other:?}"),
    }
}

/// Whether a copy failed because of its sources.
pub(in crate::journal) fn is_gone(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|why| why.is::<Gone>())
}

/// A file with those of its copies that are of the same epoch.
struct Source {
    head: Head,
    copies: Vec<Copy>,
    end: u64,
    misses: Vec<Miss>,
    /// The target has a copy, too.
    here: bool,
}

impl RecruitState {
    /// Brings everything to a target. It may have a part of it, or the same target may be among the
    /// sources. Returns the last transaction of its snapshot.
    ///
    /// # Errors
    /// When the target has another volume's journal, no space, or another claim, or when something
    /// is valid nowhere.
    pub fn bring(&self, place: &MirrorTarget) -> io::Result<TxId> {
        self.copy(place).map_err(|error| match error.kind() {
            // A source left the journal while it was read, and was emptied.
            io::ErrorKind::NotFound => gone(error.to_string()),
            _ => error,
        })
    }

    fn copy(&self, place: &MirrorTarget) -> io::Result<TxId> {
        let target = &*place.1;
        // It is blank if it has lost what it had. If that happens while it gets the state, it stays
        // so: it has another mark then.
        let claimed = target.claim(&self.claim)?;
        if claimed.blank != 0 {
            // It counts when it has got the state.
            self.witnesses.see()?;
        }
        let found = take(&place.1, &self.volume)?;
        if found.iter().any(|found| found.owner == Owner::Foreign) {
            return Err(io::Error::other("it holds the journal of another volume"));
        }
        if self.need_bytes > 0 && target.space()?.free <= self.need_bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut others: Vec<Vec<FoundFile>> = Vec::new();
        let mut sources: Vec<MirrorTarget> = vec![place.clone()];
        // One copy more than needed, so that a damaged frame is no obstacle.
        for other in self.sources.iter().filter(|other| !Arc::ptr_eq(&other.1, &place.1)) {
            if others.len() == 2 {
                break;
            }
            if let Ok(files) = take(&other.1, &self.volume) {
                others.push(files);
                sources.push(other.clone());
            }
        }
        let mut files = vec![found];
        files.append(&mut others);
        let (last, source) = self.newest_snapshot(&sources, &files)?;
        let snapshot = TargetFile::Snapshot { last };
        self.put(target, snapshot, source, END_BYTES as u64)?;
        let mut next = last.next();
        for (number, &first) in self.segments.iter().enumerate() {
            let limit = self.segments.get(number + 1).map_or(self.last, |first| first.previous()).min(self.last);
            if limit < first && number + 1 < self.segments.len() || first > self.last.next() {
                continue;
            }
            if first > next {
                return Err(gone(format!("transaction {next} is on no mirror")));
            }
            let (source, reached) = self.walk_segment(&sources, &files, first, limit)?;
            if reached < limit {
                return Err(gone(format!("transaction {} is on no mirror", reached.next())));
            }
            self.put(target, TargetFile::Journal { first }, source, 0)?;
            next = next.max(limit.next());
        }
        if next <= self.last {
            return Err(gone(format!("transaction {next} is on no mirror")));
        }
        for found in &files[0] {
            let wanted = match found.file {
                TargetFile::Journal { first } => self.segments.contains(&first),
                file => file == snapshot,
            };
            if !wanted {
                target.remove(found.file)?;
            }
        }
        whole(target, &claimed)?;
        Ok(last)
    }

    /// The copies of a file. The head of the first source that is not the target itself counts.
    fn source(&self, sources: &[MirrorTarget], files: &[Vec<FoundFile>], file: TargetFile) -> io::Result<Source> {
        let all = || sources.iter().zip(files).enumerate();
        let of = |files: &[FoundFile]| files.iter().find(|found| found.file == file).cloned();
        let headed = all().filter_map(|(number, (_, files))| match of(files)?.owner {
            Owner::Ours(head) if self.lineage.has(head.epoch.name()) => Some((number == 0, head)),
            _ => None,
        });
        let head = headed.min_by_key(|(here, _)| *here).map(|(_, head)| head);
        let head = head.ok_or_else(|| gone(format!("no mirror has {}", named(file))))?;
        let mut source = Source { copies: Vec::new(), end: 0, misses: Vec::new(), here: false, head };
        for (number, (place, files)) in all() {
            let Some(found) = of(files) else { continue };
            let headed = match &found.owner {
                Owner::Ours(other) => other.epoch == source.head.epoch,
                _ => false,
            };
            if headed || number > 0 && found.owner == Owner::Unknown {
                source.here |= number == 0;
                let mut copy = Copy::new(number, place.1.clone(), file, found.bytes);
                copy.headed = headed;
                source.copies.push(copy);
            }
        }
        Ok(source)
    }

    fn walk_segment(
        &self,
        sources: &[MirrorTarget],
        files: &[Vec<FoundFile>],
        first: TxId,
        limit: TxId,
    ) -> io::Result<(Source, TxId)> {
        let mut source = self.source(sources, files, TargetFile::Journal { first })?;
        let (epoch, mut reached) = (source.head.epoch, first.previous());
        let accept = |frame: &Frame| {
            frame.kind == RecordKind::Record && frame.epoch == epoch && (first..=limit).contains(&frame.tx())
        };
        let file = (&self.volume, epoch.id, source.head.bytes);
        let walked = walk(&mut source.copies, file, accept, |frame, _| -> io::Result<bool> {
            reached = frame.tx();
            Ok(true)
        });
        (source.end, source.misses) = walked?;
        Ok((source, reached))
    }

    /// The newest snapshot that is whole on the sources that answer. A newer one may be on none of
    /// them.
    fn newest_snapshot(&self, sources: &[MirrorTarget], files: &[Vec<FoundFile>]) -> io::Result<(TxId, Source)> {
        let all: BTreeSet<TxId> = files.iter().flatten().filter_map(|found| self.is_snapshot(found)).collect();
        let mut why = gone("no mirror has a snapshot".into());
        for &last in all.iter().rev() {
            match self.walk_snapshot(sources, files, last) {
                Ok(source) => return Ok((last, source)),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    /// The last transaction of a snapshot of this history.
    fn is_snapshot(&self, found: &FoundFile) -> Option<TxId> {
        match (found.file, &found.owner) {
            (TargetFile::Snapshot { last }, Owner::Ours(head))
                if found.complete && last <= self.last && self.lineage.has(head.epoch.name()) =>
            {
                Some(last)
            }
            _ => None,
        }
    }

    fn walk_snapshot(&self, sources: &[MirrorTarget], files: &[Vec<FoundFile>], last: TxId) -> io::Result<Source> {
        let mut source = self.source(sources, files, TargetFile::Snapshot { last })?;
        let epoch = source.head.epoch;
        let accept = |frame: &Frame| {
            matches!(frame.kind, RecordKind::Block | RecordKind::End)
                && frame.epoch == epoch
                && frame.commit_index == last
        };
        let file = (&self.volume, epoch.id, source.head.bytes);
        let mut complete = false;
        let walked = walk(&mut source.copies, file, accept, |frame, _| -> io::Result<bool> {
            complete = frame.kind == RecordKind::End;
            Ok(true)
        });
        (source.end, source.misses) = walked?;
        if complete { Ok(source) } else { Err(gone("no mirror has a complete snapshot".into())) }
    }

    /// Makes a file on the target equal to the valid part of its copies. The last bytes follow when
    /// the rest is durable.
    fn put(&self, target: &dyn Target, file: TargetFile, source: Source, tail: u64) -> io::Result<()> {
        let Source { head, copies, end, misses, here } = source;
        let body = end - tail;
        if here {
            let lacking: Vec<Miss> = misses.iter().filter(|miss| miss.place == 0).cloned().collect();
            for miss in &lacking {
                spread(&copies, &misses, miss.range.clone(), target)?;
            }
            // What is there may be only in the page cache: who wrote it may have ended then.
            return target.sync(file).map(drop);
        }
        // What has this name is of another history, or of no use.
        target.remove(file)?;
        spread_head(&copies, head.bytes, target)?;
        spread(&copies, &misses, head.bytes as u64..body, target)?;
        target.sync(file)?;
        if tail > 0 {
            spread(&copies, &misses, body..end, target)?;
            target.sync(file)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::engine::Journaled;
    use super::super::super::options::{Access, JournalLimits, Options};
    use super::*;
    use crate::kv::{Batch, Kv, MemoryIndex};
    use plan::TargetId;
    use std::io::IoSlice;
    use std::time::Duration;
    use volume::format::VolumeId as Volume;
    use volume::target::{Claim, Crash, Durable, Epoch, Holder, Memory, ReadAt};

    const VOLUME: VolumeId = [1; 16];

    fn bytes(target: &dyn Target, file: TargetFile) -> Vec<u8> {
        let length = target.list().unwrap().into_iter().find(|(found, _)| *found == file).map_or(0, |(_, bytes)| bytes);
        let mut bytes = vec![0; length as usize];
        target.read_at(file, 0, &mut bytes).unwrap();
        bytes
    }

    /// A target that has a snapshot and its journal.
    fn mirror() -> MirrorTarget {
        let place: MirrorTarget = (TargetId(0), Arc::new(Memory::default()));
        let options = Options {
            volume: VOLUME,
            voters: vec![TargetId(0)],
            targets: vec![place.clone()],
            losses: 0,
            generation: 1,
            holder: Holder::default(),
            lease: None,
            access: Access::Write,
            index: Box::new(MemoryIndex::default()),
            merge: crate::MERGE,
            limits: JournalLimits::default(),
            accept_loss: false,
            local_wal: None,
        };
        let engine = Journaled::create(options).unwrap();
        let mut batch = Batch::default();
        batch.put(b"name".to_vec(), b"value".to_vec());
        let committed = engine.commit(batch).unwrap();
        engine.sync(committed.seq).unwrap();
        engine.checkpoint().unwrap();
        engine.close().unwrap();
        place
    }

    /// A server was killed when it had written files to the target and not synced them.
    #[test]
    fn what_a_new_mirror_had_already_is_durable_when_it_counts() {
        let source = mirror();
        let found = take(&source.1, &VOLUME).unwrap();
        let heads: Vec<&Head> = found
            .iter()
            .filter_map(|found| match &found.owner {
                Owner::Ours(head) => Some(head),
                _ => None,
            })
            .collect();
        let newest = heads.iter().map(|head| head.epoch).max_by_key(|epoch| epoch.number).unwrap();
        let last = found.iter().filter(|found| found.complete).find_map(|found| match found.file {
            TargetFile::Snapshot { last } => Some(last),
            _ => None,
        });
        let claim = |number| {
            let claim = Claim {
                volume: Volume(VOLUME),
                generation: 1,
                epoch: Epoch { number, id: 1 },
                mirrors: Vec::new(),
                holder: Holder::default(),
            };
            ClaimRequest::Take { claim, lease: Duration::ZERO, blank: 0 }
        };
        for seed in 0..20 {
            let crash = Arc::new(Crash::new(Arc::new(Memory::default())));
            crash.claim(&claim(newest.number)).unwrap();
            for found in &found {
                let content = bytes(&*source.1, found.file);
                crash.write(found.file, 0, &[IoSlice::new(&content)], Durable::Later).unwrap();
            }
            let state = RecruitState {
                volume: VOLUME,
                claim: claim(newest.number + 1),
                witnesses: Witnesses {
                    places: vec![],
                    need: 0,
                    epoch: Epoch { number: 1, id: 1 },
                    deadline: Duration::ZERO,
                },
                segments: vec![],
                last: last.unwrap(),
                lineage: Lineage::of(newest.name(), &heads),
                sources: vec![source.clone()],
                need_bytes: 0,
            };
            let place: MirrorTarget = (TargetId(1), crash.clone());
            assert_eq!(Some(state.bring(&place).unwrap()), last);
            crash.crash(seed).unwrap();
            let file = TargetFile::Snapshot { last: last.unwrap() };
            assert!(bytes(&*crash, file) == bytes(&*source.1, file), "seed {seed}");
        }
    }
}

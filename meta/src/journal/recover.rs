//! Opening, first step: reads what is on the targets. Then `replay` brings the index up to date,
//! and `resync` the mirrors.

use super::copies::{Copy, Miss};
use super::files::{Failed, Files};
use super::frame::{Epoch, HEAD_BYTES, VolumeId};
use super::inventory::{Found, Owner, take_all};
use super::options::{Options, Place};
use super::shared::Start;
use crate::kv::{KvError, Seq};
use std::collections::{BTreeMap, BTreeSet};
use volume::target::TargetFile;

/// The result of recovery, with the start state of the engine.
pub(super) struct Recovered {
    pub start: Start,
    /// The targets to continue with, the best first.
    pub chosen: Vec<Place>,
    /// Whether some of them have no snapshot.
    pub incomplete: bool,
}

/// A segment or snapshot, with its copies on the targets.
pub(super) struct Group {
    pub file: TargetFile,
    pub epoch: Epoch,
    /// The first transaction of a segment, or the last transaction of a snapshot.
    pub number: Seq,
    pub copies: Vec<Copy>,
    /// Where its valid part ends, and which copies are missing some of that.
    pub end: u64,
    pub misses: Vec<Miss>,
    /// It has transactions that are not void.
    pub counts: bool,
}

pub(super) struct Recovery<'a> {
    pub options: &'a Options,
    /// The first transaction of every known epoch.
    pub epochs: BTreeMap<u64, Seq>,
    pub segments: Vec<Group>,
    pub snapshots: Vec<Group>,
    /// Targets that must not be mirrors.
    pub unfit: BTreeSet<usize>,
    pub files: Files,
    /// Incomplete snapshots.
    pub partial: Vec<(usize, TargetFile)>,
}

/// Brings the index to the newest state that the targets prove.
///
/// # Errors
/// `Unavailable` when no target has enough of this volume; `Corrupt` when transactions that were
/// durable are missing.
pub(super) fn recover(options: &Options) -> Result<Recovered, KvError> {
    let mut recovery = Recovery::look(options);
    if recovery.segments.is_empty() && recovery.snapshots.is_empty() {
        let why = recovery.files.last_error.take().unwrap_or_else(|| "no target has this volume's journal".into());
        return Err(KvError::Unavailable(why));
    }
    let (last, used) = recovery.replay()?;
    recovery.finish(last, used)
}

impl<'a> Recovery<'a> {
    fn look(options: &'a Options) -> Self {
        let found = take_all(&options.targets, &options.volume, options.limits.deadline);
        let mut recovery = Self {
            options,
            epochs: BTreeMap::new(),
            segments: Vec::new(),
            snapshots: Vec::new(),
            unfit: BTreeSet::new(),
            files: Files::default(),
            partial: Vec::new(),
        };
        let mut all: Vec<(usize, Found)> = Vec::new();
        for (place, found) in found.into_iter().enumerate() {
            match found {
                Ok(found) => all.extend(found.into_iter().map(|found| (place, found))),
                Err(error) => recovery.reject(place, &error.to_string()),
            }
        }
        for &(place, found) in &all {
            // An incomplete snapshot is useless, and its space may be needed. An empty file does
            // not even say whose it is.
            let ours = matches!(found.owner, Owner::Ours(_)) || found.bytes == 0;
            if matches!(found.file, TargetFile::Snapshot { .. }) && !found.complete && ours {
                recovery.partial.push((place, found.file));
            }
            match found.owner {
                Owner::Foreign => recovery.reject(place, "it holds the journal of another volume"),
                Owner::Unknown => {}
                Owner::Ours(epoch) => recovery.know(place, found, epoch),
            }
        }
        // A file that does not name its volume may still have valid frames of a group with its
        // name.
        for (place, found) in all.into_iter().filter(|(_, found)| found.owner == Owner::Unknown) {
            for group in recovery.segments.iter_mut().chain(&mut recovery.snapshots) {
                if group.file == found.file {
                    let target = options.targets[place].1.clone();
                    group.copies.push(Copy::new(place, target, found.file, found.bytes));
                }
            }
        }
        recovery.segments.sort_by_key(|group| (group.epoch.number, group.number));
        recovery.snapshots.sort_by_key(|group| std::cmp::Reverse((group.number, group.epoch.number)));
        let epochs = recovery.epochs.clone();
        recovery.snapshots.retain(|group| !void(&epochs, group.epoch.number, group.number));
        recovery
    }

    fn know(&mut self, place: usize, found: Found, epoch: Epoch) {
        let first = self.epochs.entry(epoch.number).or_insert(epoch.first);
        *first = epoch.first.min(*first);
        let (id, target) = &self.options.targets[place];
        let (groups, number) = match found.file {
            TargetFile::Journal { first } => (&mut self.segments, first),
            TargetFile::Snapshot { last } if found.complete => {
                let newest = self.files.complete.entry(*id).or_insert(last);
                *newest = last.max(*newest);
                (&mut self.snapshots, last)
            }
            _ => return,
        };
        let copy = Copy::new(place, target.clone(), found.file, found.bytes);
        match groups.iter_mut().find(|group| group.file == found.file && group.epoch == epoch) {
            Some(group) => group.copies.push(copy),
            None => groups.push(Group {
                file: found.file,
                epoch,
                number,
                copies: vec![copy],
                end: HEAD_BYTES as u64,
                misses: Vec::new(),
                counts: false,
            }),
        }
    }

    pub(super) fn reject(&mut self, place: usize, why: &str) {
        let id = self.options.targets[place].0;
        if self.unfit.insert(place) {
            self.files.failed.push(Failed { place: self.options.targets[place].clone(), why: why.into(), full: false });
        }
        self.files.last_error = Some(format!("target {}: {why}", id.0));
    }
}

/// Whether a transaction of an epoch was already gone when a later epoch began.
pub(super) fn void(epochs: &BTreeMap<u64, Seq>, epoch: u64, seq: Seq) -> bool {
    epochs.range(epoch.saturating_add(1)..).any(|(_, &first)| first <= seq)
}

/// Checks the options and returns the volume's id.
pub(super) fn check(options: &Options) -> Result<VolumeId, KvError> {
    match () {
        () if options.volume == [0; 16] => Err(KvError::Invalid("a volume's id is not all zeroes")),
        () if options.mirrors == 0 => Err(KvError::Invalid("a journal has at least one mirror")),
        () if options.targets.is_empty() => Err(KvError::Invalid("a journal needs a target")),
        () => Ok(options.volume),
    }
}

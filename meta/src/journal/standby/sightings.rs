//! What a follower finds on the targets: the newest history, and where its parts are.

use super::super::frame::{Epoch, EpochId, Head};
use super::super::opening::copies::Copy;
use super::super::opening::inventory::{FoundFile, Owner};
use super::super::opening::lineage::Lineage;
use super::super::opening::recover::{Group, void};
use super::super::options::MirrorTarget;
use crate::kv::IndexState;
use plan::TxId;
use std::collections::{BTreeMap, BTreeSet};
use volume::target::TargetFile;

/// A segment or a complete snapshot of the newest history.
#[derive(Clone, Debug)]
struct Sighting {
    file: TargetFile,
    epoch: Epoch,
    head: usize,
    /// The first transaction of a segment, or the last one of a snapshot.
    number: TxId,
    /// The indices of the targets that have it, and its length there, in bytes.
    at: Vec<(usize, u64)>,
}

/// A segment to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::journal) struct Segment {
    pub first: TxId,
    pub epoch: Epoch,
    /// The length of its head, in bytes.
    pub head: usize,
    /// No opening ignores its epoch.
    pub established: bool,
    /// Later transactions in it are void.
    pub last: TxId,
}

/// The newest history, as far as the targets that answered have it.
#[derive(Debug, Default)]
pub(in crate::journal) struct Sightings {
    lineage: Lineage,
    epochs: BTreeMap<u64, TxId>,
    segments: Vec<Sighting>,
    /// The newest first.
    snapshots: Vec<Sighting>,
    /// The targets that have something of an epoch.
    seen: BTreeMap<u64, BTreeSet<usize>>,
    losses: usize,
}

impl Sightings {
    /// Sorts what was found on targets; None if there is no journal, or two histories with one
    /// number. Format 1 has no ids of epochs and is not followed: the next opening for writing
    /// ends it.
    pub fn of(all: &[(usize, FoundFile)], losses: usize) -> Option<Self> {
        let ours = |(place, found): &(usize, FoundFile)| match &found.owner {
            Owner::Ours(head) if head.epoch.id != 0 => Some((*place, found.clone(), head.clone())),
            _ => None,
        };
        let all: Vec<(usize, FoundFile, Head)> = all.iter().filter_map(ours).collect();
        let newest = all.iter().map(|(_, _, head)| head.epoch.name()).max()?;
        let forks =
            |(_, _, head): &(usize, FoundFile, Head)| head.epoch.number == newest.number && head.epoch.id != newest.id;
        if all.iter().any(forks) {
            return None;
        }
        let lineage = Lineage::of(newest, &all.iter().map(|(_, _, head)| head).collect::<Vec<_>>());
        let mut sightings = Self { lineage, losses, ..Self::default() };
        for (place, found, head) in &all {
            if sightings.lineage.has(head.epoch.name()) {
                sightings.add(*place, found, head);
            }
        }
        let epochs = &sightings.epochs;
        let counts = |one: &Sighting| !void(epochs, one.epoch.number, one.number);
        sightings.segments.retain(counts);
        sightings.snapshots.retain(counts);
        sightings.segments.sort_by_key(|one| (one.epoch.number, one.number));
        sightings.snapshots.sort_by_key(|one| std::cmp::Reverse((one.number, one.epoch.number)));
        Some(sightings)
    }

    fn add(&mut self, place: usize, found: &FoundFile, head: &Head) {
        let epoch = head.epoch;
        let first = self.epochs.entry(epoch.number).or_insert(epoch.first);
        *first = epoch.first.min(*first);
        self.seen.entry(epoch.number).or_default().insert(place);
        let (all, number) = match found.file {
            TargetFile::Journal { first } => (&mut self.segments, first),
            TargetFile::Snapshot { last } if found.complete => (&mut self.snapshots, last),
            _ => return,
        };
        match all.iter_mut().find(|one| one.file == found.file && one.epoch == epoch) {
            Some(one) => one.at.push((place, found.bytes)),
            None => {
                all.push(Sighting { file: found.file, epoch, head: head.bytes, number, at: vec![(place, found.bytes)] })
            }
        }
    }

    pub fn newest(&self) -> EpochId {
        self.lineage.newest()
    }

    /// Whether a state of an index is one of this history.
    pub fn has(&self, state: &IndexState) -> bool {
        let name = EpochId { number: state.epoch, id: state.id };
        self.lineage.has(name) && !void(&self.epochs, state.epoch, state.applied)
    }

    /// Whether every opening finds an epoch or one that descends from it: m+1 targets have some of
    /// it. What its opening adopted is then in every later history.
    fn is_established(&self, epoch: u64) -> bool {
        let places: BTreeSet<usize> = self.seen.range(epoch..).flat_map(|(_, places)| places.iter().copied()).collect();
        places.len() > self.losses
    }

    /// The segment that has a transaction, if the journal has it.
    pub fn segment(&self, of: TxId) -> Option<Segment> {
        let one = self.segments.iter().rfind(|one| one.number <= of)?;
        let later = self.epochs.range(one.epoch.number.saturating_add(1)..);
        let last = later.map(|(_, &first)| first.previous()).min().unwrap_or(TxId::MAX);
        let established = self.is_established(one.epoch.number);
        Some(Segment { first: one.number, epoch: one.epoch, head: one.head, established, last })
    }

    /// The newest snapshot behind a transaction that no later opening ignores, for each target that
    /// has it, and at last from all of them together.
    pub fn snapshot(&self, after: Option<TxId>, places: &[MirrorTarget]) -> Vec<Group> {
        let counts =
            |one: &&Sighting| after.is_none_or(|after| one.number > after) && self.is_established(one.epoch.number);
        let Some(one) = self.snapshots.iter().find(counts) else { return Vec::new() };
        let copy = |&(place, bytes): &(usize, u64)| {
            places.get(place).map(|(_, target)| Copy::new(place, target.clone(), one.file, bytes))
        };
        let group = |copies: Vec<Copy>| Group {
            file: one.file,
            epoch: one.epoch,
            head: one.head,
            number: one.number,
            copies,
            end: one.head as u64,
            misses: Vec::new(),
            counts: true,
        };
        let mut groups: Vec<Group> = one.at.iter().map(|at| group(copy(at).into_iter().collect())).collect();
        if groups.len() > 1 {
            groups.push(group(one.at.iter().filter_map(copy).collect()));
        }
        groups
    }
}

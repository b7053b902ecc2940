//! Opening, first step: claims the targets and reads what is on them. Then `replay` brings the
//! index up to date, and `resync` the mirrors.

use super::super::claim::claims::{claim, give_back, quorum, too_few};
use super::super::claim::hold::Hold;
use super::super::files::{Failed, Files};
use super::super::frame::{Epoch, Head, VolumeId};
use super::super::options::{Granted, MirrorTarget, Options};
use super::super::shared::Start;
use super::copies::{Copy, Miss};
use super::inventory::{FoundFile, Owner, ask, take};
use super::lineage::Lineage;
use crate::kv::KvError;
use plan::TxId;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use volume::target::{ClaimRequest, TargetFile};

/// The result of recovery, with the start state of the engine.
pub(in crate::journal) struct Recovered {
    pub start: Start,
    /// The targets to continue with, the best first.
    pub chosen: Vec<Chosen>,
    /// Whether a new snapshot is needed.
    pub incomplete: bool,
    /// Files of other histories, and of targets that missed an opening.
    pub stale: Vec<(MirrorTarget, TargetFile)>,
    pub granted: Granted,
    /// The first claim that this volume ever had was made now.
    pub upgraded: bool,
    /// Renews the claims until the engine does.
    pub hold: Hold,
}

/// A target to continue with.
pub(in crate::journal) struct Chosen {
    pub place: MirrorTarget,
    /// It has everything.
    pub whole: bool,
    /// The snapshot that it is missing, if another one has it.
    pub lacks: Option<TargetFile>,
}

/// A segment or snapshot, with its copies on the targets.
pub(in crate::journal) struct Group {
    pub file: TargetFile,
    pub epoch: Epoch,
    /// The length of its head, in bytes.
    pub head: usize,
    /// The first transaction of a segment, or the last transaction of a snapshot.
    pub number: TxId,
    pub copies: Vec<Copy>,
    /// Where its valid part ends, and which copies are missing some of that.
    pub end: u64,
    pub misses: Vec<Miss>,
    /// It has transactions that are not void.
    pub counts: bool,
}

pub(in crate::journal) struct Recovery<'a> {
    pub options: &'a Options,
    /// The first transaction of every known epoch of the lineage.
    pub epochs: BTreeMap<u64, TxId>,
    pub lineage: Lineage,
    pub segments: Vec<Group>,
    pub snapshots: Vec<Group>,
    /// Targets that must not be mirrors.
    pub unfit: BTreeSet<usize>,
    pub files: Files,
    /// Incomplete snapshots.
    pub partial: Vec<(usize, TargetFile)>,
    stale: Vec<(usize, TargetFile)>,
    /// Targets that hold something of the highest epoch that is known, or may.
    believed: BTreeSet<usize>,
    /// Targets that were there and have what they had, when their files were listed.
    sound: Vec<usize>,
    /// Transactions that were durable may be missing.
    pub lossy: bool,
    /// A file that was listed is gone.
    gone: bool,
}

/// Claims the targets, and brings the index to the newest state that they prove.
///
/// # Errors
/// `Held` or `TooFew` when not enough targets can be claimed; `Unavailable` when no target has
/// enough of this volume; `Corrupt` when transactions that were durable are missing.
pub(in crate::journal) fn recover(options: &Options) -> Result<Recovered, KvError> {
    let granted = claim(options, options.index.state()?.epoch)?;
    let hold = Hold::begin(options, &granted);
    let upgraded = granted.highest().is_none();
    let read = read(options, &granted).and_then(|(recovery, last, used)| {
        let stale = recovery.stale.iter().map(|&(place, file)| (options.targets[place].clone(), file)).collect();
        Ok((stale, recovery.finish(&granted, last, used)?))
    });
    match read {
        Ok((stale, (start, chosen, incomplete))) => {
            Ok(Recovered { start, chosen, incomplete: incomplete || upgraded, stale, granted, upgraded, hold })
        }
        Err(error) => {
            hold.end(options.limits.deadline);
            give_back(options, &granted);
            Err(error)
        }
    }
}

/// How often an opening lists the files at most.
const MAX_LISTINGS: usize = 5;

fn read<'a>(options: &'a Options, granted: &Granted) -> Result<(Recovery<'a>, TxId, bool), KvError> {
    let mut listings = 1;
    loop {
        let mut recovery = Recovery::scan(options, granted)?;
        if recovery.segments.is_empty() && recovery.snapshots.is_empty() {
            let why = recovery.files.last_error.take().unwrap_or_else(|| "no target has this volume's journal".into());
            return Err(KvError::Unavailable(why));
        }
        let replayed = recovery.replay();
        // What is missing may be on a target that did not answer.
        match recovery.recount(granted) {
            // The opening before this one may still remove files that it no longer needs.
            Err(KvError::TooFew(_)) if recovery.gone && listings < MAX_LISTINGS => listings += 1,
            counted => {
                counted?;
                let (last, used) = replayed?;
                return Ok((recovery, last, used));
            }
        }
    }
}

impl<'a> Recovery<'a> {
    fn scan(options: &'a Options, granted: &Granted) -> Result<Self, KvError> {
        let claimed: Vec<usize> = (0..options.targets.len()).filter(|&place| granted.before[place].is_some()).collect();
        let places: Vec<MirrorTarget> = claimed.iter().map(|&place| options.targets[place].clone()).collect();
        let (volume, epoch) = (options.volume, granted.claim.epoch);
        let found = ask(&places, usize::MAX, usize::MAX, options.limits.deadline, move |target| {
            let found = take(target, &volume)?;
            // What it had it may have lost since it was claimed, and with it the claim. An earlier
            // opening may have claimed it since, and filled it.
            let state = target.claim(&ClaimRequest::Read)?;
            match state.proof().map(|claim| claim.epoch) {
                Some(held) if held == epoch || held.number > epoch.number => Ok(found),
                _ => Err(io::Error::other("it has just lost what it had")),
            }
        });
        let mut recovery = Self {
            options,
            epochs: BTreeMap::new(),
            lineage: Lineage::default(),
            segments: Vec::new(),
            snapshots: Vec::new(),
            unfit: BTreeSet::new(),
            files: Files::default(),
            partial: Vec::new(),
            stale: Vec::new(),
            believed: BTreeSet::new(),
            sound: Vec::new(),
            lossy: false,
            gone: false,
        };
        for place in (0..options.targets.len()).filter(|place| !claimed.contains(place)) {
            if granted.blank.contains(&place) {
                // It becomes a mirror when it has got everything.
                recovery.unfit.insert(place);
                continue;
            }
            let id = options.targets[place].0;
            let why = granted.missing.iter().find(|(missing, _)| *missing == id).map_or("", |(_, why)| why);
            recovery.reject(place, why);
        }
        let mut all: Vec<(usize, FoundFile)> = Vec::new();
        for (place, found) in claimed.into_iter().zip(found) {
            match found {
                Ok(found) => all.extend(found.into_iter().map(|found| (place, found))),
                Err(error) => recovery.reject(place, &error.to_string()),
            }
        }
        recovery.choose(granted, &all)?;
        for (place, found) in &all {
            // An incomplete snapshot is useless, and its space may be needed. An empty file does
            // not even say whose it is.
            let ours = matches!(found.owner, Owner::Ours(_)) || found.bytes == 0;
            if matches!(found.file, TargetFile::Snapshot { .. }) && !found.complete && ours {
                recovery.partial.push((*place, found.file));
            }
            match &found.owner {
                Owner::Foreign => recovery.reject(*place, "it holds the journal of another volume"),
                Owner::Unknown => {}
                Owner::Ours(head) if recovery.believed.contains(place) && recovery.lineage.has(head.epoch.name()) => {
                    recovery.know(*place, found, head);
                }
                Owner::Ours(_) => recovery.stale.push((*place, found.file)),
            }
        }
        // A file that does not name its volume may still have valid frames of a group with its
        // name.
        for (place, found) in all.iter().filter(|(_, found)| found.owner == Owner::Unknown) {
            for group in recovery.segments.iter_mut().chain(&mut recovery.snapshots) {
                if group.file == found.file && recovery.believed.contains(place) {
                    let target = options.targets[*place].1.clone();
                    let mut copy = Copy::new(*place, target, found.file, found.bytes);
                    copy.headed = false;
                    group.copies.push(copy);
                }
            }
        }
        recovery.segments.sort_by_key(|group| (group.epoch.number, group.number));
        recovery.snapshots.sort_by_key(|group| std::cmp::Reverse((group.number, group.epoch.number)));
        let epochs = recovery.epochs.clone();
        recovery.snapshots.retain(|group| !void(&epochs, group.epoch.number, group.number));
        // One that is void is as good as none: another one with its name must be written.
        for (group, copy) in
            recovery.snapshots.iter().flat_map(|group| group.copies.iter().map(move |copy| (group, copy)))
        {
            let newest = recovery.files.complete.entry(options.targets[copy.place].0).or_insert(group.number);
            *newest = group.number.max(*newest);
        }
        recovery.count(granted, &all)?;
        Ok(recovery)
    }

    /// Finds the highest epoch, its lineage, and the targets that may have something of it. A
    /// target with a lower claim missed an opening, and what it has may be of another history.
    ///
    /// The claim was read before it was replaced, and its holder may have claimed the target in
    /// between, made it a mirror there and answered what is durable on it. So a target with a file
    /// of the highest epoch missed nothing, whatever its claim was: such a file is written under a
    /// claim of that epoch or a higher one, claims never fall, and files are read after the claim
    /// of this opening was granted, when no other one writes there any more. Who counts as a mirror
    /// of an epoch has such a file: the barrier, or the segment that lists it.
    fn choose(&mut self, granted: &Granted, all: &[(usize, FoundFile)]) -> Result<(), KvError> {
        let heads = all.iter().filter_map(|(place, found)| match &found.owner {
            Owner::Ours(head) if granted.counts(*place) => Some((*place, head)),
            _ => None,
        });
        let heads: Vec<(usize, &Head)> = heads.collect();
        let newest = heads.iter().map(|(_, head)| head.epoch.name()).max();
        let Some(newest) = newest else { return Ok(()) };
        let forked = heads.iter().any(|(_, head)| head.epoch.number == newest.number && head.epoch.id != newest.id);
        if forked && !self.options.accept_loss {
            let number = newest.number;
            return Err(KvError::Corrupt(format!("the targets have two histories with epoch {number}")));
        }
        self.lossy |= forked;
        let missed = |place: usize| {
            let before = granted.before[place].flatten().map_or(0, |before| before.number);
            let proves = |(at, head): &(usize, &Head)| *at == place && head.epoch.name() == newest;
            newest.id != 0 && before < newest.number && !heads.iter().any(proves)
        };
        let places = 0..self.options.targets.len();
        self.believed = places.filter(|&place| granted.counts(place) && !missed(place)).collect();
        let believed = heads.iter().filter(|(place, _)| self.believed.contains(place)).map(|(_, head)| *head);
        self.lineage = Lineage::of(newest, &believed.collect::<Vec<_>>());
        Ok(())
    }

    /// Counts the targets that were read. A mirror of the newest segment that has no snapshot has
    /// lost what it had.
    fn count(&mut self, granted: &Granted, all: &[(usize, FoundFile)]) -> Result<(), KvError> {
        let newest = |(_, found): &&(usize, FoundFile)| match &found.owner {
            Owner::Ours(head) if matches!(found.file, TargetFile::Journal { .. }) => {
                self.lineage.has(head.epoch.name()).then_some((head.epoch.number, found.file))
            }
            _ => None,
        };
        let believed = all.iter().filter(|(place, _)| self.believed.contains(place));
        let last = believed.filter(|found| newest(found).is_some()).max_by_key(newest);
        let mirrors = match last.map(|(_, found)| &found.owner) {
            Some(Owner::Ours(head)) => &head.mirrors[..],
            _ => &[],
        };
        let lost = |place: usize| {
            let id = self.options.targets[place].0;
            mirrors.contains(&id) && self.believed.contains(&place) && !self.files.complete.contains_key(&id)
        };
        let sound = |place: &usize| granted.counts(*place) && !lost(*place);
        self.sound = (0..self.options.targets.len()).filter(sound).collect();
        self.recount(granted)
    }

    /// Counts the targets once more. One that was not read to the end of its journal may have
    /// transactions that were durable: it is as good as away.
    fn recount(&mut self, granted: &Granted) -> Result<(), KvError> {
        let copies = self.segments.iter_mut().chain(&mut self.snapshots).flat_map(|group| &mut group.copies);
        let unread: Vec<(usize, io::Error)> =
            copies.filter_map(|copy| Some((copy.place, copy.failed.take()?))).collect();
        unread.iter().for_each(|(place, why)| self.fail(*place, why));
        self.sound.retain(|place| !self.unfit.contains(place));
        let there = self.sound.len();
        if there < quorum(self.options) {
            let ids = self.sound.iter().map(|&place| self.options.targets[place].0).collect::<Vec<_>>();
            let failed = self.files.failed.iter().map(|failed| (failed.place.0, failed.why.clone()));
            return Err(too_few(self.options, &ids, &failed.chain(granted.missing.clone()).collect::<Vec<_>>()));
        }
        let normal = self.options.voters.len().saturating_sub(self.options.losses);
        self.lossy |= self.options.accept_loss && there < normal;
        Ok(())
    }

    fn know(&mut self, place: usize, found: &FoundFile, head: &Head) {
        let epoch = head.epoch;
        let first = self.epochs.entry(epoch.number).or_insert(epoch.first);
        *first = epoch.first.min(*first);
        let target = &self.options.targets[place].1;
        let (groups, number) = match found.file {
            TargetFile::Journal { first } => (&mut self.segments, first),
            TargetFile::Snapshot { last } if found.complete => (&mut self.snapshots, last),
            _ => return,
        };
        let copy = Copy::new(place, target.clone(), found.file, found.bytes);
        match groups.iter_mut().find(|group| group.file == found.file && group.epoch == epoch) {
            Some(group) => group.copies.push(copy),
            None => groups.push(Group {
                file: found.file,
                epoch,
                head: head.bytes,
                number,
                copies: vec![copy],
                end: head.bytes as u64,
                misses: Vec::new(),
                counts: false,
            }),
        }
    }

    /// Rejects a target on which a file that was listed could not be read or synced.
    pub(in crate::journal) fn fail(&mut self, place: usize, why: &io::Error) {
        self.gone |= why.kind() == io::ErrorKind::NotFound;
        self.reject(place, &why.to_string());
    }

    pub(in crate::journal) fn reject(&mut self, place: usize, why: &str) {
        let id = self.options.targets[place].0;
        if self.unfit.insert(place) {
            self.files.failed.push(Failed { place: self.options.targets[place].clone(), why: why.into(), full: false });
        }
        self.files.last_error = Some(format!("target {}: {why}", id.0));
    }
}

/// Whether a transaction of an epoch was already gone when a later epoch began.
pub(in crate::journal) fn void(epochs: &BTreeMap<u64, TxId>, epoch: u64, seq: TxId) -> bool {
    epochs.range(epoch.saturating_add(1)..).any(|(_, &first)| first <= seq)
}

/// Checks the options and returns the volume's id.
pub(in crate::journal) fn check(options: &Options) -> Result<VolumeId, KvError> {
    match () {
        () if options.volume == [0; 16] => Err(KvError::Invalid("a volume's id is not all zeroes")),
        () if options.voters.is_empty() => Err(KvError::Invalid("a volume has at least one target")),
        () if options.targets.is_empty() => Err(KvError::Invalid("a journal needs a target")),
        () => Ok(options.volume),
    }
}

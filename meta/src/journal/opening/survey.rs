//! Which transactions some targets of a volume have, and which ones they know of: what is told
//! before a loss is accepted. It claims nothing and changes nothing.

use super::super::frame::{Frame, Head, RecordKind, VolumeId, take_edit};
use super::super::options::MirrorTarget;
use super::copies::{Copy, walk};
use super::inventory::{FoundFile, Owner, take_all};
use super::lineage::Lineage;
use super::recover::void;
use crate::keys::{DIRECTORY, ENTRY, INODE_LOCATION};
use crate::record::{DirectoryState, Entry, InodeLocation, decode};
use plan::{TargetId, TxId};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;
use volume::target::TargetFile;

/// What is left of a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// The newest opening that left something; none if there is no journal.
    pub epoch: Option<u64>,
    /// The last transaction that can be read with all before it; none if no state can be read.
    pub readable: Option<TxId>,
    /// The highest transaction of which something that was found says that it was durable.
    pub durable: TxId,
    /// The mirrors that had everything when the newest segment was begun.
    pub mirrors: Vec<TargetId>,
    /// When the newest file or directory was changed whose change is in the journal and can be
    /// read, in seconds since 1970.
    pub changed: Option<i64>,
}

/// Segments or snapshots by what they are named after, each with its head and its copies.
type Files = BTreeMap<(u64, TxId), (Head, Vec<Copy>)>;

impl Survey {
    /// Looks at targets of a volume. One that does not answer within the deadline has nothing.
    pub fn of(volume: &VolumeId, places: &[MirrorTarget], deadline: Duration) -> Self {
        let found = take_all(places, volume, deadline).into_iter().map(Result::unwrap_or_default);
        let found: Vec<(usize, FoundFile, Head)> = found
            .enumerate()
            .flat_map(|(place, found)| found.into_iter().filter_map(move |one| ours(place, one)))
            .collect();
        let heads: Vec<&Head> = found.iter().map(|(_, _, head)| head).collect();
        let Some(newest) = heads.iter().map(|head| head.epoch.name()).max() else { return Self::default() };
        let lineage = Lineage::of(newest, &heads);
        let mut epochs: BTreeMap<u64, TxId> = BTreeMap::new();
        let (mut segments, mut snapshots) = (Files::new(), Files::new());
        for (place, found, head) in found {
            if !lineage.has(head.epoch.name()) {
                continue;
            }
            let first = epochs.entry(head.epoch.number).or_insert(head.epoch.first);
            *first = head.epoch.first.min(*first);
            let (files, number) = match found.file {
                TargetFile::Journal { first } => (&mut segments, first),
                TargetFile::Snapshot { last } if found.complete => (&mut snapshots, last),
                _ => continue,
            };
            let copy = Copy::new(place, places[place].1.clone(), found.file, found.bytes);
            files.entry((head.epoch.number, number)).or_insert((head, Vec::new())).1.push(copy);
        }
        let counts = |(epoch, number): &(u64, TxId)| !void(&epochs, *epoch, *number);
        segments.retain(|name, _| counts(name));
        let snapshot = snapshots.keys().filter(|name| counts(name)).map(|(_, last)| *last).max();
        let mut survey = Self { epoch: Some(newest.number), readable: snapshot, ..Self::default() };
        // A snapshot has nothing but what was durable.
        survey.durable = snapshot.unwrap_or_default();
        survey.mirrors = segments.values().next_back().map(|(head, _)| head.mirrors.clone()).unwrap_or_default();
        for ((epoch, first), (head, mut copies)) in segments {
            let last = epochs.range(epoch + 1..).map(|(_, &first)| first).min().unwrap_or(TxId::MAX);
            survey.read(volume, (first..last, &head), &mut copies);
        }
        survey
    }

    /// Reads a segment, of which these transactions count.
    fn read(&mut self, volume: &VolumeId, (counts, head): (std::ops::Range<TxId>, &Head), copies: &mut [Copy]) {
        for copy in &mut *copies {
            let said = copy.frame(volume, 0, 0).map(|(frame, _)| frame.commit_index).unwrap_or_default();
            self.durable = self.durable.max(said);
        }
        let epoch = head.epoch;
        let is_record = |frame: &Frame| frame.kind == RecordKind::Record && frame.epoch == epoch;
        let Ok((end, _)) = walk(copies, (volume, epoch.id, head.bytes), is_record, |frame, edits| {
            if counts.contains(&frame.tx()) {
                self.durable = self.durable.max(frame.commit_index);
                if self.readable.map(TxId::next) == Some(frame.tx()) {
                    self.readable = Some(frame.tx());
                    self.changed = self.changed.max(changed(edits));
                }
            }
            Ok::<_, Infallible>(true)
        });
        // Behind what is damaged, a record may tell of more.
        for copy in copies {
            copy.each_behind(volume, epoch.id, end, |frame| {
                if is_record(frame) && counts.contains(&frame.tx()) {
                    self.durable = self.durable.max(frame.commit_index);
                }
            });
        }
    }
}

fn ours(place: usize, found: FoundFile) -> Option<(usize, FoundFile, Head)> {
    match &found.owner {
        Owner::Ours(head) => {
            let head = head.clone();
            Some((place, found, head))
        }
        _ => None,
    }
}

/// The newest time of a change in the changes of a record.
fn changed(mut edits: &[u8]) -> Option<i64> {
    let mut newest = None;
    while let Some((key, value)) = take_edit(&mut edits) {
        let time = match (key.first(), value) {
            (Some(&ENTRY), Some(value)) => match decode(value) {
                Ok(Entry::Inside(dinode)) => Some(dinode.changed),
                _ => None,
            },
            (Some(&INODE_LOCATION), Some(value)) => match decode(value) {
                Ok(InodeLocation::Here(dinode)) => Some(dinode.changed),
                _ => None,
            },
            (Some(&DIRECTORY), Some(value)) => decode::<DirectoryState>(value).ok().map(|state| state.changed),
            _ => None,
        };
        newest = newest.max(time.map(|time| time.seconds).filter(|seconds| *seconds > 0));
    }
    newest
}

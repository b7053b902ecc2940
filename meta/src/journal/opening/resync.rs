//! Opening, third step: chooses the mirrors and makes them identical.

use super::super::files::Files;
use super::super::frame::{Epoch, EpochId, NO_NUMBER, Origin};
use super::super::options::{Access, Granted, Options, is_full};
use super::super::shared::Start;
use super::copies::{Miss, spread, spread_head};
use super::recover::{Chosen, Group, Recovery};
use crate::kv::KvError;
use plan::TxId;
use volume::target::TargetFile;

/// How many mirrors there are: one more than needed, so that a slow one delays no commit. For
/// reading, some need only the files.
pub(in crate::journal) fn wanted(options: &Options) -> usize {
    match options.access {
        Access::Write => options.losses + 2,
        Access::Read => options.losses + 1,
        Access::ReadFiles | Access::PossiblyOld => 1,
    }
}

impl Recovery<'_> {
    /// Chooses the mirrors, makes them identical, and begins a new epoch. Returns whether a new
    /// snapshot is needed, too.
    pub(in crate::journal) fn finish(
        mut self,
        granted: &Granted,
        last: TxId,
        gap: bool,
    ) -> Result<(Start, Vec<Chosen>, bool), KvError> {
        let targets = &self.options.targets;
        let newest = self.snapshots.first().map(|group| group.number);
        let has =
            |files: &Files, place: usize| newest.is_some() && files.complete.get(&targets[place].0) == newest.as_ref();
        let mut order: Vec<usize> = (0..targets.len()).filter(|place| !self.unfit.contains(place)).collect();
        let holds = |place: usize| {
            let counting = self.segments.iter().filter(|group| group.counts);
            counting.filter(|group| group.copies.iter().any(|copy| copy.place == place)).count()
        };
        order.sort_by_key(|&place| std::cmp::Reverse((has(&self.files, place), holds(place))));
        for &(place, file) in self.partial.iter().filter(|(place, _)| !self.unfit.contains(place)) {
            // A file that remains does no harm.
            let _ = targets[place].1.remove(file);
        }
        let wanted = wanted(self.options);
        let (mut chosen, mut full) = (Vec::new(), Vec::new());
        for place in order {
            if chosen.len() == wanted {
                break;
            }
            match self.resync(place) {
                Ok(()) => chosen.push(place),
                Err(error) if is_full(&error) => full.push(place),
                Err(error) => self.reject(place, &error.to_string()),
            }
        }
        // Full targets cannot get what they are missing. They become mirrors as they are, and have
        // everything after the next snapshot.
        full.truncate(wanted - chosen.len());
        full.iter().for_each(|&place| _ = self.files.complete.remove(&targets[place].0));
        if chosen.is_empty() && full.is_empty() {
            return Err(KvError::Unavailable("no target can take the journal".into()));
        }
        let whole = |place: usize| !gap && has(&self.files, place);
        let lacks = newest.map(|last| TargetFile::Snapshot { last });
        let lacks = lacks.filter(|_| chosen.iter().any(|&place| whole(place)));
        let choice = |place: usize, lacks: Option<TargetFile>| {
            let whole = whole(place);
            Chosen { place: targets[place].clone(), whole, lacks: lacks.filter(|_| !whole) }
        };
        let mut mirrors: Vec<Chosen> = chosen.iter().map(|&place| choice(place, lacks)).collect();
        mirrors.extend(full.iter().map(|&place| choice(place, None)));
        let incomplete = gap || !mirrors.iter().all(|mirror| mirror.whole);
        let counting = || self.segments.iter().filter(|group| group.counts);
        self.files.segments = counting().map(|group| group.number).collect();
        self.files.written = counting().map(|group| group.end).sum();
        self.files.snapshot = newest.unwrap_or_default();
        let length = |group: &Group| group.copies.iter().map(|copy| copy.bytes).max().unwrap_or(0);
        self.files.snapshot_bytes = self.snapshots.first().map_or(0, length);
        self.files.due = self.options.limits.snapshot_bytes.max(self.files.snapshot_bytes);
        let base = self.options.index.state()?;
        let left = counting().chain(self.snapshots.first()).map(|group| group.epoch.name());
        let parent = left.chain([EpochId { number: base.epoch, id: base.id }]).max().unwrap_or_default();
        let before = self.lineage.newest();
        let epoch = Epoch { number: granted.epoch.number, first: last.next(), id: granted.epoch.id };
        if epoch.number.max(epoch.first.0) > NO_NUMBER / 2 {
            return Err(KvError::Corrupt("the numbers in the journal are those of no volume".into()));
        }
        let origin = Origin { parent, before };
        let (files, lineage, lossy) = (self.files, self.lineage, self.lossy);
        let start = Start { epoch, origin, lineage, base, last, files, lossy };
        Ok((start, mirrors, incomplete))
    }

    /// Copies to a target what it is missing of the journal: so far a record may be on one mirror
    /// only.
    fn resync(&self, place: usize) -> std::io::Result<()> {
        let target = &*self.options.targets[place].1;
        for group in self.segments.iter().filter(|group| group.counts) {
            let misses: Vec<&Miss> = group.misses.iter().filter(|miss| miss.place == place).collect();
            let here = group.copies.iter().find(|copy| copy.place == place);
            let headed = here.is_some_and(|copy| copy.headed);
            if here.is_none() {
                // What has this name is of another history.
                target.remove(group.file)?;
            }
            if !headed {
                spread_head(&group.copies, group.head, target)?;
            }
            if here.is_none() {
                // Copy each range from a copy that is valid there.
                spread(&group.copies, &group.misses, group.head as u64..group.end, target)?;
                target.sync(group.file)?;
            } else if !headed || !misses.is_empty() {
                for miss in misses {
                    spread(&group.copies, &group.misses, miss.range.clone(), target)?;
                }
                target.sync(group.file)?;
            }
        }
        Ok(())
    }
}

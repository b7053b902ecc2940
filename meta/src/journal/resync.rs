//! Opening, third step: chooses the mirrors and makes them identical.

use super::copies::{Copy, Miss, transfer};
use super::files::Files;
use super::frame::{Epoch, Frame, HEAD_BYTES, Kind, NO_NUMBER};
use super::options::is_full;
use super::recover::{Group, Recovered, Recovery};
use super::shared::Start;
use crate::kv::{KvError, Seq};
use std::io::IoSlice;

impl Recovery<'_> {
    /// Chooses the mirrors, makes them identical, and begins a new epoch.
    pub(super) fn finish(mut self, last: Seq, gap: bool) -> Result<Recovered, KvError> {
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
        let (mut chosen, mut full) = (Vec::new(), Vec::new());
        for place in order {
            if chosen.len() == self.options.mirrors {
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
        full.truncate(self.options.mirrors - chosen.len());
        full.iter().for_each(|&place| _ = self.files.complete.remove(&targets[place].0));
        chosen.append(&mut full);
        if chosen.is_empty() {
            return Err(KvError::Unavailable("no target can take the journal".into()));
        }
        let incomplete = gap || !chosen.iter().all(|&place| has(&self.files, place));
        let counting = || self.segments.iter().filter(|group| group.counts);
        self.files.segments = counting().map(|group| group.number).collect();
        self.files.written = counting().map(|group| group.end).sum();
        self.files.snapshot = newest.unwrap_or(0);
        let length = |group: &Group| group.copies.iter().map(|copy| copy.bytes).max().unwrap_or(0);
        self.files.snapshot_bytes = self.snapshots.first().map_or(0, length);
        self.files.due = self.options.limits.snapshot_bytes.max(self.files.snapshot_bytes);
        let index_epoch = self.options.index.state()?.epoch;
        let newest_epoch = self.epochs.last_key_value().map_or(0, |(&number, _)| number);
        let epoch = Epoch { number: newest_epoch.max(index_epoch).saturating_add(1), first: last + 1 };
        if epoch.number.max(epoch.first) > NO_NUMBER / 2 {
            return Err(KvError::Corrupt("the numbers in the journal are those of no volume".into()));
        }
        let chosen = chosen.into_iter().map(|place| targets[place].clone()).collect();
        Ok(Recovered { start: Start { epoch, last, files: self.files }, chosen, incomplete })
    }

    /// Copies to a target what it is missing of the journal: so far a record may be on one mirror
    /// only.
    fn resync(&self, place: usize) -> std::io::Result<()> {
        let target = &*self.options.targets[place].1;
        for group in self.segments.iter().filter(|group| group.counts) {
            let from = |place: usize| &*self.options.targets[place].1;
            let misses: Vec<&Miss> = group.misses.iter().filter(|miss| miss.place == place).collect();
            let here = group.copies.iter().any(|copy| copy.place == place);
            let mut head = Vec::new();
            let frame = Frame::new(Kind::Segment, group.number, group.epoch, group.number - 1);
            frame.encode_head(&self.options.volume, &mut head);
            let mut found = [0; HEAD_BYTES];
            let headless = !here || target.read(group.file, 0, &mut found)? < HEAD_BYTES || found[..] != head;
            if !here {
                target.remove(group.file)?;
            }
            if headless {
                target.write(group.file, 0, &[IoSlice::new(&head)])?;
            }
            if !here {
                // Copy each range from a copy that is valid there.
                let mut at = HEAD_BYTES as u64;
                while at < group.end {
                    let bad = |copy: &&Copy| {
                        group.misses.iter().any(|miss| miss.place == copy.place && miss.range.contains(&at))
                    };
                    let Some(copy) = group.copies.iter().find(|copy| !bad(copy)) else {
                        return Err(std::io::Error::other("no sound copy"));
                    };
                    let ends = group.misses.iter().filter(|miss| miss.place == copy.place && miss.range.start > at);
                    let end = ends.map(|miss| miss.range.start).min().unwrap_or(group.end).min(group.end);
                    transfer(from(copy.place), target, group.file, at..end)?;
                    at = end;
                }
                target.sync(group.file)?;
            } else if headless || !misses.is_empty() {
                for miss in misses {
                    transfer(from(miss.from), target, group.file, miss.range.clone())?;
                }
                target.sync(group.file)?;
            }
        }
        Ok(())
    }
}

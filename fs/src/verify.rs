//! Verifying: every block against its checksum, every stripe's parity against its data.

use crate::{Error, FileSystem, Result};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use volume::{BlockState, Control};

/// What a verification found.
#[derive(Clone, Debug, Default)]
pub struct Verified {
    /// Stripes that were read.
    pub stripes: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// What is wrong.
    pub problems: Vec<Problem>,
    /// More that is wrong than is listed.
    pub unlisted: u64,
    /// Stripes of which too little is left.
    pub lost: u64,
}

/// Something wrong with a block or a stripe.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The chunk set.
    pub set: u64,
    /// Where the stripe's record begins.
    pub record: u32,
    /// The position of the block; None when it is the whole stripe.
    pub position: Option<usize>,
    /// What is wrong with it.
    pub what: String,
}

/// No more are listed.
const LISTED: usize = 1000;

impl Verified {
    fn add(&mut self, problem: Problem) {
        if self.problems.len() < LISTED {
            self.problems.push(problem);
        } else {
            self.unlisted += 1;
        }
    }

    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

/// How far a volume was verified.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Marks {
    /// Sets below are verified,
    below: u64,
    /// but for these, of which what is before a record is: they were being written to, or had damage.
    partly: BTreeMap<u64, u32>,
}

/// So many numbers of sets may be given out before their sets are there.
const SETS_IN_HAND: u64 = 64;

/// The setting that keeps them.
const MARKS: &str = "verified";

impl Marks {
    /// From which record of a set on it is to be verified; None when all of it is.
    fn from(&self, set: u64) -> Option<u32> {
        match self.partly.get(&set) {
            Some(&record) => Some(record),
            None => (set >= self.below).then_some(0),
        }
    }
}

impl FileSystem {
    /// Reads and checks every block that a file refers to. What is wrong is queued for repair.
    ///
    /// # Errors
    /// When it was cancelled or the metadata cannot be read; damage is no error but a result.
    pub fn verify(&self, control: &Control) -> Result<Verified> {
        self.verify_behind(&Marks::default(), control)
    }

    /// As `verify`, but only what was written since the last time that this or `verify` came to its end, and what had damage then.
    ///
    /// # Errors
    /// As `verify`.
    pub fn verify_new(&self, control: &Control) -> Result<Verified> {
        let marks = self.engine()?.meta.setting(MARKS)?.unwrap_or_default();
        self.verify_behind(&marks, control)
    }

    fn verify_behind(&self, marks: &Marks, control: &Control) -> Result<Verified> {
        if !self.is_read_only() {
            self.sync_all()?;
        }
        let mut total = 0;
        self.each_set(|set, record| {
            let Some(from) = marks.from(set) else { return Ok(()) };
            let stripes = self.engine()?.meta.stripes(set)?;
            let stripes = stripes.iter().filter(|(record, _)| *record >= from);
            total += stripes.map(|(_, stripe)| u64::from(stripe.block)).sum::<u64>() * record.places.len() as u64;
            Ok(())
        })?;
        control.start(total);
        let (mut found, mut now, mut seen) = (Verified::default(), Marks::default(), BTreeSet::new());
        self.each_set(|set, record| {
            now.below = set + 1;
            seen.insert(set);
            seen.retain(|&seen| seen + SETS_IN_HAND > set);
            let Some(from) = marks.from(set) else { return Ok(()) };
            let (damaged, end) = self.verify_set_from(set, from, record.places.len(), &mut found, control)?;
            if !damaged.is_empty() {
                now.partly.insert(set, from);
            } else if !record.sealed {
                now.partly.insert(set, end);
            }
            if !damaged.is_empty() && !self.is_read_only() {
                self.meta.queue_repair(set, &damaged.into_iter().collect::<Vec<u16>>())?;
            }
            Ok(())
        })?;
        now.below = now.below.max(marks.below);
        // A set gets its number a moment before it is there: one with a lower number may come yet.
        for set in now.below.saturating_sub(SETS_IN_HAND)..now.below {
            if !seen.contains(&set) {
                now.partly.entry(set).or_insert(0);
            }
        }
        if !self.is_read_only() {
            self.engine()?.meta.put_setting(MARKS, &now)?;
        }
        Ok(found)
    }

    /// Checks the stripes of a set from a record on; returns the positions with damage, and the record behind the last stripe.
    fn verify_set_from(
        &self,
        set: u64,
        from: u32,
        blocks: usize,
        found: &mut Verified,
        control: &Control,
    ) -> Result<(BTreeSet<u16>, u32)> {
        let (mut damaged, mut end) = (BTreeSet::new(), from);
        let layout = match self.store.layout(set) {
            // The collector deleted it meanwhile.
            Err(Error::Meta(meta::Error::NotFound)) => return Ok((damaged, end)),
            layout => layout?,
        };
        for (record, stripe) in self.engine()?.meta.stripes(set)? {
            if record < from {
                continue;
            }
            control.go_on()?;
            end = record + 1;
            let report = volume::verify_stripe(&self.store.targets, &layout, record, stripe.block);
            // What was given up while it was looked at is no damage.
            let engine = self.engine()?;
            let still_there = || engine.meta.stripe(set, record).is_ok_and(|s| s.is_some_and(|s| s.live > 0));
            let sound =
                report.blocks.iter().all(|state| *state == BlockState::Sound) && report.parity_fits != Some(false);
            if !sound && still_there() {
                for (position, state) in report.blocks.iter().enumerate() {
                    if *state != BlockState::Sound {
                        damaged.insert(position as u16);
                        found.add(Problem { set, record, position: Some(position), what: state.to_string() });
                    }
                }
                if report.parity_fits == Some(false) {
                    found.add(Problem { set, record, position: None, what: "the parity does not fit the data".into() });
                }
                if !report.recoverable {
                    found.lost += 1;
                    found.add(Problem { set, record, position: None, what: "too little is left of the stripe".into() });
                }
            }
            let bytes = u64::from(stripe.block) * blocks as u64;
            found.stripes += 1;
            found.bytes += bytes;
            control.count(bytes as usize);
        }
        Ok((damaged, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Lab, make};
    use volume::target::{Target, TargetFile};

    #[test]
    fn what_was_verified_is_not_read_again() {
        let lab = Lab::new("rs:2+1", 3);
        let control = Control::default();
        let write = |fs: &FileSystem, name: &str| {
            fs.write(make(fs, name), 0, &[7; 100_000]).unwrap();
            fs.sync_all().unwrap();
        };
        let fs = lab.open();
        write(&fs, "a");
        write(&fs, "b");
        assert_eq!(fs.verify(&control).unwrap().stripes, 2);
        assert_eq!(fs.verify_new(&control).unwrap().stripes, 0);
        write(&fs, "c");
        assert_eq!(fs.verify_new(&control).unwrap().stripes, 1, "of the set that is written to");
        fs.close_volume().unwrap();
        let fs = lab.open();
        assert_eq!(fs.verify_new(&control).unwrap().stripes, 0, "it was sealed meanwhile");
        write(&fs, "d");
        let chunks = lab.disks[1].list().unwrap().into_iter().map(|(file, _)| file);
        let last = chunks.filter(|file| matches!(file, TargetFile::Chunk { .. })).max().unwrap();
        lab.disks[1].remove(last).unwrap();
        assert!(!fs.verify_new(&control).unwrap().is_sound());
        fs.repair(&control).unwrap();
        let again = fs.verify_new(&control).unwrap();
        assert_eq!((again.stripes, again.is_sound()), (1, true), "what had damage is looked at again");
        assert_eq!(fs.verify_new(&control).unwrap().stripes, 0);
        fs.close_volume().unwrap();
    }
}

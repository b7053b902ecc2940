//! Verification: checks every block against its checksum and the parity of every stripe against its
//! data.

use crate::maintenance::presence;
use crate::{Error, FileSystem, Result};
use meta::SetRecord;
use plan::{Position, RecordOffset, SetId, TargetId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use volume::target::TargetFile;
use volume::{BlockState, Control};

/// The result of a verification.
#[derive(Clone, Debug, Default)]
pub struct Verified {
    /// Stripes that were read.
    pub stripes: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// The problems.
    pub problems: Vec<Problem>,
    /// The number of further problems that are not listed.
    pub unlisted: u64,
    /// Stripes that have lost too much to be read.
    pub lost: u64,
    /// Targets that do not answer, and the blocks that were not checked because of that.
    pub away: BTreeMap<TargetId, Away>,
    /// Stripes that cannot be read while these targets are away.
    pub unreadable: u64,
    /// Stripes whose blocks are all sound and whose parity does not fit: there is no block to
    /// repair.
    contradictory: u64,
}

/// A target that does not answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Away {
    /// The first error.
    pub why: String,
    /// Blocks on it that were not checked.
    pub blocks: u64,
    /// Chunk sets with such blocks.
    pub sets: u64,
    /// The last of these chunk sets.
    last: Option<SetId>,
}

/// A problem of a block or a stripe.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The chunk set.
    pub set: SetId,
    /// The offset of the stripe's record in the chunk.
    pub record: RecordOffset,
    /// The position of the block; None for the whole stripe.
    pub position: Option<Position>,
    /// A description.
    pub what: String,
}

/// The most problems that are listed.
const MAX_LISTED_PROBLEMS: usize = 1000;

impl Verified {
    fn add(&mut self, problem: Problem) {
        if self.problems.len() < MAX_LISTED_PROBLEMS {
            self.problems.push(problem);
        } else {
            self.unlisted += 1;
        }
    }

    /// Counts a block of a set on a target that does not answer.
    fn add_away(&mut self, id: TargetId, set: SetId, why: &str) {
        let away = self.away.entry(id).or_insert_with(|| Away { why: why.into(), ..Away::default() });
        away.blocks += 1;
        away.sets += u64::from(away.last != Some(set));
        away.last = Some(set);
    }

    /// Whether everything was checked and nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty() && self.away.is_empty()
    }
}

/// How far a volume was verified.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Marks {
    /// Sets below this number are verified,
    below: SetId,
    /// except for these, which are verified up to a record: they were being written, or had damage.
    partly: BTreeMap<SetId, RecordOffset>,
}

/// A verification that completed and found all targets present: of everything, or of what was new
/// and of what had damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scrub {
    /// When it ended, in seconds since 1970.
    pub when: i64,
    /// The number of problems.
    pub problems: u64,
}

/// The setting that holds the last one of everything.
pub(crate) const SCRUB_SETTING: &str = "scrub";
/// The setting that holds the last verification of new data, if no full one followed.
pub(crate) const SCRUB_NEW: &str = "scrub-new";
/// The setting that holds how many problems of the last verification are not in the repair queue.
/// Each verification counts them all, as each reads again what had damage.
pub(crate) const UNREPAIRABLE: &str = "unrepairable";

/// How many set numbers may be given out before their sets are in the metadata.
const SETS_IN_PROGRESS: u64 = 64;

/// The setting that holds the marks.
const MARKS_SETTING: &str = "verified";

impl Marks {
    /// The first record of a set that is to be verified; None when the whole set is verified.
    fn from(&self, set: SetId) -> Option<RecordOffset> {
        match self.partly.get(&set) {
            Some(&record) => Some(record),
            None => (set >= self.below).then_some(RecordOffset::default()),
        }
    }
}

impl FileSystem {
    /// Reads and checks every block that a file refers to. Queues problems for repair.
    ///
    /// # Errors
    /// When it was cancelled or the metadata cannot be read. Damage is not an error but part of the
    /// result.
    pub fn verify(&self, control: &Control) -> Result<Verified> {
        self.verify_behind(&Marks::default(), control)
    }

    /// As `verify`, but only for what was written since `verify` or this function last completed,
    /// and for what had damage then.
    ///
    /// # Errors
    /// As `verify`.
    pub fn verify_new(&self, control: &Control) -> Result<Verified> {
        let marks = self.engine()?.meta.setting(MARKS_SETTING)?.unwrap_or_default();
        self.verify_behind(&marks, control)
    }

    fn verify_behind(&self, marks: &Marks, control: &Control) -> Result<Verified> {
        if !self.is_read_only() {
            self.commit_possible()?;
        }
        let (mut total, mut last) = (0, None);
        self.each_set(|set, record| {
            last = Some(set);
            let Some(from) = marks.from(set) else { return Ok(()) };
            let stripes = self.engine()?.meta.stripes(set)?;
            let stripes = stripes.iter().filter(|(record, _)| *record >= from);
            total += stripes.map(|(_, stripe)| u64::from(stripe.block)).sum::<u64>() * record.places.len() as u64;
            Ok(())
        })?;
        control.start(total);
        let (mut found, mut now, mut seen) = (Verified::default(), Marks::default(), BTreeSet::new());
        self.each_set(|set, record| {
            // Sets that are created meanwhile are left to the next verification: they may be more
            // than those that `seen` has.
            if Some(set) > last {
                return Ok(());
            }
            now.below = set.next();
            seen.insert(set);
            seen.retain(|&seen| seen.0 + SETS_IN_PROGRESS > set.0);
            let Some(from) = marks.from(set) else { return Ok(()) };
            // Stripes may be committed later that are before those that are there now. The pin of
            // one ends when the table has it.
            let may_get_earlier =
                self.leases.is_held(set) || self.store.is_pinned(set) || !self.table.uncommitted_in(set).is_empty();
            let Looked { damaged, end, whole, stripes } =
                self.verify_set_from(set, record, from, &mut found, control)?;
            // One may have been appended and committed meanwhile.
            let got_earlier = || {
                let now = self.engine()?.meta.stripes(set)?;
                Ok::<_, Error>(now.iter().any(|(record, _)| *record < end && !stripes.contains(record)))
            };
            if !whole || may_get_earlier || got_earlier()? {
                now.partly.insert(set, from);
            } else if !record.sealed {
                now.partly.insert(set, end);
            }
            if !damaged.is_empty() && !self.is_read_only() {
                self.meta.queue_repair(set, &damaged.into_iter().collect::<Vec<_>>())?;
            }
            Ok(())
        })?;
        now.below = now.below.max(marks.below);
        // A set gets its number a moment before it is in the metadata: a set with a lower number
        // may still appear.
        for set in now.below.below(SETS_IN_PROGRESS) {
            if !seen.contains(&set) {
                now.partly.entry(set).or_default();
            }
        }
        if !self.is_read_only() {
            self.engine()?.meta.put_setting(MARKS_SETTING, &now)?;
            if found.away.is_empty() {
                let scrub =
                    Scrub { when: crate::now().seconds, problems: found.problems.len() as u64 + found.unlisted };
                let is_full = *marks == Marks::default();
                let meta = &self.engine()?.meta;
                if is_full {
                    meta.put_setting(SCRUB_SETTING, &scrub)?;
                }
                meta.put_setting(SCRUB_NEW, &(!is_full).then_some(scrub))?;
                meta.put_setting(UNREPAIRABLE, &found.contradictory)?;
            }
        }
        Ok(found)
    }

    /// Whether a target does not answer.
    fn is_away(&self, id: TargetId) -> bool {
        !self.store.targets.is_usable(id) || self.store.targets.hangs(id)
    }

    /// Checks the chunks of a set, and its stripes from a record on.
    fn verify_set_from(
        &self,
        set: SetId,
        record: &SetRecord,
        from: RecordOffset,
        found: &mut Verified,
        control: &Control,
    ) -> Result<Looked> {
        let mut looked = Looked { damaged: BTreeSet::new(), end: from, whole: true, stripes: BTreeSet::new() };
        let layout = match self.store.layout(set) {
            // The collector deleted the set meanwhile.
            Err(Error::Meta(meta::Error::NotFound)) => return Ok(looked),
            layout => layout?,
        };
        let stripes = self.engine()?.meta.stripes(set)?;
        looked.stripes = stripes.iter().map(|(record, _)| *record).collect();
        let astray = self.look_at(&[(set, record.clone())], &BTreeMap::new())?.remove(&set).unwrap_or_default();
        for &(position, presence) in &astray {
            if let (Some(what), Some(&(record, _))) = (presence::problem(presence), stripes.first()) {
                found.add(Problem { set, record, position: Some(position), what: what.into() });
                looked.damaged.insert(position);
            }
        }
        for (position, id) in Position::placed(&layout.places) {
            let Some(&(record, _)) = stripes.first() else { break };
            let file = TargetFile::Chunk { set, position };
            // Whether it can be read at all is found below.
            let is_headless = || !self.is_away(id) && self.has_header(id, file).is_ok_and(|has| !has);
            if !looked.damaged.contains(&position) && is_headless() && self.is_missed(set, position, id)? {
                let what = "its chunk has no sound header".into();
                found.add(Problem { set, record, position: Some(position), what });
                looked.damaged.insert(position);
            }
        }
        for (record, stripe) in stripes.into_iter().filter(|(record, _)| *record >= from) {
            control.go_on()?;
            looked.end = record.next();
            let report = volume::verify_stripe(&self.store.targets, &layout, record, stripe.block);
            // A stripe that was freed during the check is not damaged.
            let engine = self.engine()?;
            let still_there = || engine.meta.stripe(set, record).is_ok_and(|s| s.is_some_and(|s| s.live > 0));
            let sound =
                report.blocks.iter().all(|state| *state == BlockState::Sound) && report.parity_fits != Some(false);
            if !sound && still_there() {
                let mut away = 0;
                for (position, state) in Position::all(report.blocks.len()).zip(&report.blocks) {
                    match (state, layout.places[position.index()]) {
                        (BlockState::Sound, _) => {}
                        // The error says nothing about the block, and a target that rejoins needs
                        // no repair. But a block that a disk cannot read is damaged.
                        // It was not read, as its target hung.
                        (BlockState::Late, Some(id)) => {
                            found.add_away(id, set, &state.to_string());
                            away += 1;
                        }
                        (BlockState::Unreachable(why), Some(id)) if self.is_away(id) => {
                            found.add_away(id, set, why);
                            away += 1;
                        }
                        // Reported already.
                        (BlockState::Missing, _) if looked.damaged.contains(&position) => {}
                        _ => {
                            looked.damaged.insert(position);
                            found.add(Problem { set, record, position: Some(position), what: state.to_string() });
                        }
                    }
                }
                looked.whole &= away == 0;
                if report.parity_fits == Some(false) {
                    looked.whole = false;
                    found.contradictory += 1;
                    found.add(Problem { set, record, position: None, what: "the parity does not fit the data".into() });
                }
                if !report.recoverable && away > 0 {
                    found.unreadable += 1;
                } else if !report.recoverable {
                    found.lost += 1;
                    found.add(Problem { set, record, position: None, what: "too little is left of the stripe".into() });
                }
            }
            let bytes = u64::from(stripe.block) * report.blocks.len() as u64;
            found.stripes += 1;
            found.bytes += bytes;
            control.count(bytes as usize);
        }
        looked.whole &= looked.damaged.is_empty();
        Ok(looked)
    }
}

/// The result for one set.
struct Looked {
    /// Positions with damage.
    damaged: BTreeSet<Position>,
    /// The end of the last record.
    end: RecordOffset,
    /// Nothing is wrong with the set, and all of it was checked.
    whole: bool,
    /// The records of its stripes, as the verification found them.
    stripes: BTreeSet<RecordOffset>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Lab, make};
    use std::io::IoSlice;
    use volume::target::{Durable, Target, TargetFile};

    /// The settings of a volume. The bytes were made from `docs/format.md`, not by this code.
    #[test]
    fn settings_have_fixed_bytes() {
        fn fixed(value: &impl Serialize, bytes: &str) {
            let encoded = postcard::to_stdvec(value).unwrap();
            assert_eq!(encoded.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), bytes);
        }
        fixed(&Scrub { when: 1_700_000_000, problems: 3 }, "80c49fd50c03");
        fixed(&Some(Scrub { when: -1, problems: 0 }), "010100");
        fixed(&Marks { below: SetId(70_000), partly: [(SetId(300), RecordOffset(16))].into() }, "f0a20401ac0210");
        let ranges: crate::volume::history::Ranges = vec![(SetId(1), SetId(64)), (SetId(129), SetId(129))];
        fixed(&ranges, "02014081018101");
        let (sessions, sets) =
            (BTreeSet::from([1u64, 300]), BTreeMap::from([(3u64, BTreeSet::from([SetId(1), SetId(300)]))]));
        fixed(&sessions, "0201ac02");
        fixed(&sets, "01030201ac02");
        let key: [u8; 32] = std::array::from_fn(|at| at as u8);
        fixed(&key, "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
    }

    /// As a writer leaves them that was killed, and as damage does.
    #[test]
    fn chunks_without_a_header_are_found_and_rebuilt_however_many() {
        let lab = Lab::new("rs:2+1", 3);
        let control = Control::default();
        let fs = lab.open();
        let file = make(&fs, "file");
        fs.write(file, 0, &[7; 100_000]).unwrap();
        fs.close_volume().unwrap();
        drop(fs);
        let chunks = |number: usize| {
            let files = lab.disks[number].list().unwrap().into_iter().map(|(file, _)| file);
            files.filter(|file| matches!(file, TargetFile::Chunk { .. })).collect::<Vec<_>>()
        };
        for count in 1..=3 {
            for number in 0..count {
                for file in chunks(number) {
                    let zeroes = [0; volume::format::CHUNK_HEADER_BYTES];
                    lab.disks[number].write(file, 0, &[IoSlice::new(&zeroes)], Durable::Later).unwrap();
                }
            }
            let fs = lab.open();
            let found = fs.verify(&control).unwrap();
            assert_eq!((found.problems.len(), found.lost), (count, 0), "{:?}", found.problems);
            assert!(found.problems.iter().all(|problem| problem.what.contains("no sound header")));
            let repaired = fs.repair(&control).unwrap();
            assert_eq!((repaired.chunks, repaired.failed), (count, vec![]));
            assert!(fs.verify(&control).unwrap().is_sound());
            let mut content = [0; 100_000];
            fs.read(file, 0, &mut content).unwrap();
            assert_eq!(content, [7; 100_000]);
            fs.close_volume().unwrap();
            drop(fs);
            let is_headed = |number: usize| {
                let has = |&file: &TargetFile| volume::scan(&*lab.disks[number], file).unwrap().header.is_some();
                chunks(number).iter().all(has)
            };
            assert!((0..3).all(is_headed));
        }
    }

    /// A volume with countless problems has a report of a limited length, which counts them all.
    #[test]
    fn so_many_problems_are_listed_and_all_are_counted() {
        let mut found = Verified::default();
        for set in (0..MAX_LISTED_PROBLEMS as u64 + 500).map(SetId) {
            found.add(Problem { set, record: RecordOffset(0), position: None, what: "it is gone".into() });
            found.add_away(TargetId((set.0 % 3) as u16), set, "it is away");
        }
        assert_eq!((found.problems.len(), found.unlisted, found.away.len()), (MAX_LISTED_PROBLEMS, 500, 3));
        assert!(!found.is_sound());
    }

    /// Each target that is away is reported once, however many blocks it has, and none of them is
    /// repaired.
    #[test]
    fn what_is_on_targets_that_are_away_is_counted() {
        let lab = Lab::new("rs:4+2", 6);
        let fs = lab.open();
        for number in 0..20 {
            fs.write(make(&fs, &number.to_string()), 0, &[7; 100_000]).unwrap();
            fs.sync_all().unwrap();
        }
        let all = fs.store.targets.ids();
        let away = |count: usize| all[..count].iter().for_each(|&id| fs.store.targets.remove(id));
        away(2);
        let found = fs.verify(&Control::default()).unwrap();
        assert!(!found.is_sound() && found.problems.is_empty(), "{:?}", found.problems);
        assert_eq!((found.away.len(), found.stripes, found.lost, found.unreadable), (2, 20, 0, 0));
        assert!(found.away.values().all(|away| (away.blocks, away.sets) == (20, 1)), "{:?}", found.away);
        assert_eq!(fs.engine().unwrap().meta.repairs().unwrap(), []);
        away(3);
        let found = fs.verify(&Control::default()).unwrap();
        assert_eq!((found.away.len(), found.problems.len(), found.lost, found.unreadable), (3, 0, 0, 20));
        fs.abandon();
    }

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

    /// A verification of new data alone does not count as a full one, and repaired problems are not
    /// reported any more.
    #[test]
    fn a_status_tells_what_was_verified_and_what_of_it_is_still_wrong() {
        let lab = Lab::new("rs:2+1", 3);
        let control = Control::default();
        let fs = lab.open();
        let write = |name: &str| {
            fs.write(make(&fs, name), 0, &[7; 100_000]).unwrap();
            fs.sync_all().unwrap();
            fs.set_placement(fs.placement()).unwrap();
        };
        let lose_last = || {
            let chunks = lab.disks[1].list().unwrap().into_iter().map(|(file, _)| file);
            let last = chunks.filter(|file| matches!(file, TargetFile::Chunk { .. })).max().unwrap();
            lab.disks[1].remove(last).unwrap();
        };
        // Of everything, of what was new, and what is left; each as a number of problems.
        let found = || {
            let status = fs.status().unwrap();
            let problems = |scrub: Option<Scrub>| scrub.map(|scrub| scrub.problems);
            (problems(status.scrub), problems(status.scrub_new), status.problems_left())
        };
        assert_eq!(found(), (None, None, 0));
        write("a");
        fs.verify_new(&control).unwrap();
        assert_eq!(found(), (Some(0), None, 0), "the first one reads everything");
        write("b");
        lose_last();
        fs.verify_new(&control).unwrap();
        assert_eq!(found(), (Some(0), Some(1), 1));
        fs.repair(&control).unwrap();
        assert_eq!(found(), (Some(0), Some(1), 0));
        lose_last();
        fs.verify(&control).unwrap();
        assert_eq!(found(), (Some(1), None, 1), "it is newer than that of what was new");
        fs.repair(&control).unwrap();
        assert_eq!(found(), (Some(1), None, 0));
        fs.close_volume().unwrap();
    }
}

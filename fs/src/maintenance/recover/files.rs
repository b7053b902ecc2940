//! Which files are in chunks.

use super::names::Names;
use super::write::{Wanted, Work};
use super::{FoundVolume, Private, Recovered};
use crate::Result;
use crate::maintenance::chunk_contents::{Finder, files_of, size_of};
use ::volume::format::{StripeHeader, VolumeId};
use ::volume::target::checksum_of_records;
use ::volume::{Control, Shown};
use plan::SetId;
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::Mutex;

/// The most ranges of missing sets that are listed.
const MAX_RANGES: usize = 20;

impl FoundVolume {
    /// Writes all files of which there is anything into the directory `to`. `problems` are those of
    /// the survey: what it could not read may be missing here.
    ///
    /// # Errors
    /// When there is no space, or `Interrupted`. What cannot be recovered is a problem of the
    /// result.
    pub fn recover(&self, id: VolumeId, to: &Path, problems: &[String], control: &Control) -> Result<Recovered> {
        let mut done = Recovered::default();
        problems.iter().for_each(|problem| done.lost(problem.clone()));
        let targets = self.targets();
        let mut finder = Finder { targets: &targets, volume: id, code: self.code().into(), codes: HashMap::new() };
        let (mut stripes, mut layouts) = (Vec::new(), HashMap::new());
        for (&set, candidates) in &self.sets {
            control.go_on()?;
            let (mut notes, mut unreadable) = (Vec::new(), Vec::new());
            let found = finder.set(
                set,
                candidates,
                |position, target, records| {
                    let path = || Shown(self.path(set, position, target)).to_string();
                    match records {
                        Ok(records) => {
                            if let Some(&sealed) = self.records.get(&(set, target))
                                && sealed != summary(records)
                            {
                                let have = records.len();
                                notes.push(format!("{}: {have} of its {} records are sound", path(), sealed.0));
                            }
                        }
                        Err(why) => unreadable.push(format!("cannot read {}: {why}", path())),
                    }
                },
                |what| done.lost(what),
            );
            notes.into_iter().for_each(|note| done.note(note));
            unreadable.into_iter().for_each(|what| done.lost(what));
            match found {
                Ok(Some(found)) => {
                    stripes.extend(found.stripes);
                    layouts.insert(set, found.layout);
                }
                Ok(None) => {}
                Err(why) => done.lost(format!("chunk set {set}: {why}")),
            }
        }
        let missing = missing(self.sets.keys().copied());
        if !missing.is_empty() {
            done.note(format!(
                "no chunk was found of chunk sets {}: they were never used, or removed, or are lost; so a file with a \
                 gap counts as incomplete",
                listed(&missing)
            ));
        }
        let mut names = Names::default();
        let wanted: Vec<Wanted> = files_of(stripes)
            .into_iter()
            .map(|(ino, (map, file))| {
                let size = size_of(&map, file.as_ref());
                let path = names.give(ino, file.as_ref().map(|file| &*file.path), &mut done);
                Wanted { ino, map, file, size, path }
            })
            .collect();
        control.start(wanted.iter().fold(0, |sum, file| file.size.saturating_add(sum)));
        let in_doubt = !done.is_whole() || !missing.is_empty();
        let private = Private::make(to).map_err(::volume::Error::io("make a directory in", to))?;
        let (targets, layouts, done) = (&targets, &layouts, Mutex::new(done));
        let work = Work { targets, layouts, to, private: private.path(), names: &names, in_doubt, control, done };
        work.write_all(&wanted)?;
        // Once for all files, which may be many and small.
        let synced = File::open(to).and_then(|directory| Ok(rustix::fs::syncfs(directory)?));
        synced.map_err(::volume::Error::io("sync", to))?;
        let mut done = work.done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        done.incomplete.sort_unstable();
        Ok(done)
    }
}

fn summary(records: &[StripeHeader]) -> (usize, u64) {
    (records.len(), checksum_of_records(records.iter().map(StripeHeader::checksum)))
}

/// The numbers from 1 to that of the last set that no set has, as ranges. Numbers are given out
/// from 1 on, and never again: but each opening of a volume begins a new batch of them.
fn missing(found: impl Iterator<Item = SetId>) -> Vec<(u64, u64)> {
    let mut next = 1;
    let mut ranges = Vec::new();
    for SetId(set) in found {
        if set > next {
            ranges.push((next, set - 1));
        }
        next = set.saturating_add(1);
    }
    ranges
}

fn listed(ranges: &[(u64, u64)]) -> String {
    let range = |&(from, to): &(u64, u64)| if from == to { from.to_string() } else { format!("{from} to {to}") };
    let some: Vec<String> = ranges.iter().take(MAX_RANGES).map(range).collect();
    let more = ranges.len().saturating_sub(MAX_RANGES);
    some.join(", ") + &if more > 0 { format!(" and {more} more ranges") } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_no_set_has_are_ranges() {
        let of = |sets: &[u64]| listed(&missing(sets.iter().copied().map(SetId)));
        assert_eq!(of(&[]), "");
        assert_eq!(of(&[1, 2, 3]), "");
        assert_eq!(of(&[2, 4, 64, u64::MAX]), format!("1, 3, 5 to 63, 65 to {}", u64::MAX - 1));
        let many: Vec<u64> = (0..60).step_by(2).collect();
        assert!(of(&many).ends_with(" and 9 more ranges"), "{}", of(&many));
    }
}

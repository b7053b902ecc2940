//! Archives files in one piece, many in a batch.

use super::copy::Copying;
use super::encoding::shared_name;
use super::hash::Sealed;
use super::{Decision, Encoder, HASH, Trouble, decide, report};
use crate::message::{DirectoryPair, Group, Item, Problem, Stat};
use crate::roles::Made;
use crate::transport::Broken;
use crate::walk::{
    open_directory, open_file, read_attributes, read_attributes_at, stat_at, stat_of, sync_attributes, sync_directory,
    whole,
};
use blake3::Hasher;
use fs::{Attributes, FileKind};
use plan::Ino;
use rustix::fd::OwnedFd;
use rustix::fs::readlinkat;

/// How often a file is tried that changes while it is read.
const MAX_ATTEMPTS: usize = 2;

/// A file of the batch: where it is read, and what it becomes.
struct Source<'a> {
    place: &'a DirectoryPair,
    item: &'a Item,
    directory: &'a OwnedFd,
    ino: Ino,
}

/// Where a file is written first.
enum Into {
    /// Under its own name.
    DirectoryPair,
    /// Into the job's directory; from there it replaces the file that has its name.
    Replace,
    /// Into the job's directory; from there it gets all its names.
    Shared,
}

impl Encoder<'_> {
    pub(super) fn files(&mut self, groups: &[Group], problems: &mut Vec<Problem>) -> Result<Made, Broken> {
        let before = self.bulk_load.bytes();
        let known = problems.len();
        let mut stopped = false;
        for group in groups {
            stopped |= self.group(group, problems)?;
        }
        let bytes = self.bulk_load.bytes().saturating_sub(before);
        Ok(Made { bytes, good: problems.len() == known && !stopped, opened: None })
    }

    /// Archives the files of a directory. Returns whether the job was stopped.
    fn group(&mut self, group: &Group, problems: &mut Vec<Problem>) -> Result<bool, Broken> {
        let place = &group.place;
        let directory = match open_directory(&place.source) {
            Ok(directory) => directory,
            Err(error) => {
                for item in &group.items {
                    report(place.source_of(&item.name), error.into(), problems)?;
                }
                return Ok(false);
            }
        };
        self.places.entry(place.ino).or_insert_with(|| place.source.clone());
        let there = match place.fresh {
            true => vec![None; group.items.len()],
            false => {
                let names: Vec<_> = group.items.iter().map(|item| (place.ino, item.name.clone())).collect();
                self.volume().lookups(&names)?
            }
        };
        let first = self.volume().new_inos(group.items.len() as u32)?;
        for ((ino, item), there) in first.onwards().zip(&group.items).zip(there) {
            if self.job.control.go_on().is_err() {
                return Ok(true);
            }
            let source = Source { place, item, directory: &directory, ino };
            if let Err(trouble) = self.file(&source, there.as_ref(), problems) {
                report(place.source_of(&item.name), trouble, problems)?;
            }
        }
        Ok(false)
    }

    fn file(
        &mut self,
        source: &Source,
        there: Option<&Attributes>,
        problems: &mut Vec<Problem>,
    ) -> Result<(), Trouble> {
        let stat = &source.item.stat;
        let link = |there: &Attributes| {
            let target = readlinkat(source.directory, &source.item.name[..], Vec::new());
            target.is_ok_and(|target| self.volume().read_link(there.ino).ok().as_deref() == Some(target.as_bytes()))
        };
        let decision = decide(stat, there, link);
        let refused = match decision {
            Decision::Directory => Some("there is a directory of that name in the archive"),
            Decision::Differs if !self.job.update => {
                Some("the archive has another version of it, which only an update replaces")
            }
            Decision::Attributes if !self.job.update && there.is_some_and(|there| owner_differs(stat, there)) => {
                Some("the archive has it with another owner or mode, which only an update changes")
            }
            _ => None,
        };
        if let Some(what) = refused {
            problems.push(Problem { path: source.place.source_of(&source.item.name), what: what.into() });
            return Ok(());
        }
        if stat.links > 1 {
            return self.shared(source, decision, there);
        }
        match (decision, there) {
            (Decision::New, _) => self.put(source, Into::DirectoryPair),
            (Decision::Differs, _) => self.put(source, Into::Replace),
            (_, Some(there)) => self.unchanged(source, decision, there),
            _ => Ok(()),
        }
    }

    /// Handles a file whose content is in the archive already.
    fn unchanged(&mut self, source: &Source, decision: Decision, there: &Attributes) -> Result<(), Trouble> {
        if decision == Decision::Attributes && self.job.update {
            let broken = |error: Broken| Trouble::Volume(fs::Error::Conflict(error.0));
            let wanted = match source.item.stat.kind {
                FileKind::File => read_attributes(open_file(source.directory, &source.item.name)?)?,
                _ => read_attributes_at(source.directory, &source.item.name)?,
            };
            sync_attributes(self.volume(), there.ino, &wanted).map_err(broken)?;
            // Setting attributes has changed the times of the file, so set the times of the source.
            let there = self.volume().attributes(there.ino)?;
            sync_directory(self.volume(), &there, &source.item.stat).map_err(broken)?;
            self.later.changed();
        }
        self.tally.unchanged_files += 1;
        self.tally.unchanged_bytes = self.tally.unchanged_bytes.saturating_add(bytes_of(&source.item.stat));
        Ok(())
    }

    /// Handles a file that has several names: the first name that a worker meets stores the file,
    /// the others become links to it.
    fn shared(&mut self, source: &Source, decision: Decision, there: Option<&Attributes>) -> Result<(), Trouble> {
        let key = shared_name(&source.item.stat);
        let stat = &source.item.stat;
        let mut known = match self.volume().lookup(self.job.hidden, &key) {
            Ok(found) => Some(found),
            Err(fs::Error::Meta(meta::Error::NotFound)) => None,
            Err(error) => return Err(error.into()),
        };
        if known.is_some_and(|known| decide(stat, Some(&known), |_| true) == Decision::Differs) {
            // An earlier run has stored it, and the file has changed since.
            self.unshare(&key)?;
            known = None;
        }
        let kept = there.filter(|_| matches!(decision, Decision::Unchanged | Decision::Attributes));
        match (known, kept) {
            (Some(known), Some(kept)) if known.ino == kept.ino => return self.unchanged(source, decision, kept),
            (None, Some(kept)) if !self.begun.contains_key(&key) => {
                match self.volume().link(kept.ino, self.job.hidden, &key) {
                    // Another worker may have been faster. If it stored a different inode, a later
                    // run links the two.
                    Ok(_) | Err(fs::Error::Meta(meta::Error::Exists)) => {}
                    Err(error) => return Err(error.into()),
                }
                self.later.changed();
                return self.unchanged(source, decision, kept);
            }
            (None, _) if !self.begun.contains_key(&key) => {
                self.put(source, Into::Shared)?;
                self.begun.insert(key, stat.clone());
            }
            _ => self.tally.others += 1,
        }
        self.later.link(source.place, source.item);
        Ok(())
    }

    /// Stores a file.
    fn put(&mut self, source: &Source, into: Into) -> Result<(), Trouble> {
        let mut item = source.item.clone();
        for attempt in 1.. {
            match self.bring(source, &item, &into) {
                Err(Trouble::Changed) if attempt < MAX_ATTEMPTS => {
                    item.stat = stat_at(source.directory, &item.name)?;
                    if item.stat.kind != source.item.stat.kind {
                        return Err(Trouble::Changed);
                    }
                }
                done => return done,
            }
        }
        Ok(())
    }

    fn bring(&mut self, source: &Source, item: &Item, into: &Into) -> Result<(), Trouble> {
        let place = source.place;
        let about = fs::manifest::File {
            path: place.target_of(&item.name),
            size: item.stat.size,
            mode: item.stat.mode,
            uid: item.stat.uid,
            gid: item.stat.gid,
            modified: item.stat.modified,
        };
        self.bulk_load.begin(source.ino, about);
        let (attributes, link) = match self.content(source, item) {
            Ok(read) => read,
            Err(trouble) => {
                self.bulk_load.drop_last();
                return Err(trouble);
            }
        };
        let mut file = whole(place.ino, source.ino, item, attributes);
        file.new.link = link;
        match into {
            Into::DirectoryPair => {}
            Into::Replace => {
                let name = format!("r-{:x}", source.ino.0).into_bytes();
                self.later.rename(name.clone(), place, &item.name);
                (file.parent, file.name) = (self.job.hidden, name);
            }
            Into::Shared => (file.parent, file.name) = (self.job.hidden, shared_name(&item.stat)),
        }
        self.bulk_load.finish(file);
        // For a shared file, the commit shows whether this process stored it first.
        if !matches!(into, Into::Shared) {
            self.tally.count(&item.stat);
        }
        Ok(())
    }

    /// Reads the content of a file. Returns its extended attributes and, for a symbolic link, its
    /// target.
    #[allow(clippy::type_complexity, reason = "names and values")]
    fn content(&mut self, source: &Source, item: &Item) -> Result<(Vec<(Vec<u8>, Vec<u8>)>, Vec<u8>), Trouble> {
        let stat = &item.stat;
        match stat.kind {
            FileKind::File => {}
            FileKind::Symlink => {
                let target = readlinkat(source.directory, &item.name[..], Vec::new())?;
                return Ok((read_attributes_at(source.directory, &item.name)?, target.into_bytes()));
            }
            _ => return Ok((read_attributes_at(source.directory, &item.name)?, Vec::new())),
        }
        let file = open_file(source.directory, &item.name)?;
        let now = stat_of(&file)?;
        if (now.kind, now.size, now.modified) != (stat.kind, stat.size, stat.modified) {
            return Err(Trouble::Changed);
        }
        let mut attributes = read_attributes(&file)?;
        let mut hasher = Hasher::new();
        let copying = Copying { control: &self.job.control, limiter: &self.job.limiter };
        copying.copy(&file, stat, 0..stat.size, &mut self.bulk_load, &mut hasher)?;
        let sealed = Sealed { hash: *hasher.finalize().as_bytes(), modified: stat.modified };
        attributes.push((HASH.to_vec(), sealed.encode()));
        Ok((attributes, Vec::new()))
    }
}

/// The number of content bytes that count for the job: those of regular files.
pub(crate) fn bytes_of(stat: &Stat) -> u64 {
    if stat.kind == FileKind::File { stat.size } else { 0 }
}

/// Whether the owner or the mode differ.
pub(super) fn owner_differs(stat: &Stat, there: &Attributes) -> bool {
    (stat.mode, stat.uid, stat.gid) != (there.mode, there.uid, there.gid)
}

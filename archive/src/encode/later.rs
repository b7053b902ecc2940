//! Steps that follow when the files of a batch exist: links for files with several names, renames
//! of files that replace others, and marks for finished parts.

use super::encoding::{Encoding, shared_name};
use super::{Decision, decide};
use crate::message::{DirectoryPair, Item, Problem};
use crate::transport::Broken;
use fs::{Error, RenameMode, SetAttributes, SetTime, Time};
use plan::Ino;
use rustix::io::Errno;
use std::collections::BTreeMap;

/// The steps that follow a batch.
#[derive(Default)]
pub(super) struct Later {
    /// Files that get one more name. The job's directory lists them by their identity at the
    /// source.
    links: Vec<(DirectoryPair, Item)>,
    /// Files to rename from a name in the job's directory to their own name.
    moves: Vec<(Vec<u8>, DirectoryPair, Vec<u8>)>,
    /// Attributes to set on files in the job's directory.
    marks: Vec<(Ino, Vec<u8>, Vec<u8>)>,
    /// Directories that the job modified, with the times that they must have in the end.
    touched: BTreeMap<Ino, (Time, Time)>,
    /// Whether something was changed that is not yet durable.
    dirty: bool,
}

impl Later {
    pub fn link(&mut self, place: &DirectoryPair, item: &Item) {
        self.links.push((place.clone(), item.clone()));
    }

    pub fn rename(&mut self, from: Vec<u8>, place: &DirectoryPair, name: &[u8]) {
        self.moves.push((from, place.clone(), name.to_vec()));
    }

    pub fn mark(&mut self, ino: Ino, name: Vec<u8>, value: Vec<u8>) {
        self.marks.push((ino, name, value));
    }

    /// Notes that a directory was modified.
    pub fn touch(&mut self, place: &DirectoryPair) {
        self.dirty = true;
        self.touched.insert(place.ino, (place.accessed, place.modified));
    }

    /// Notes that something was changed.
    pub fn changed(&mut self) {
        self.dirty = true;
    }

    pub fn len(&self) -> usize {
        self.links.len() + self.moves.len() + self.marks.len()
    }

    /// Carries out the steps. Returns whether there is something to make durable.
    pub fn carry_out(mut self, job: &Encoding, problems: &mut Vec<Problem>) -> Result<bool, Broken> {
        let volume = &job.volume;
        for (place, item) in std::mem::take(&mut self.links) {
            self.touch(&place);
            let done = volume
                .lookup(job.hidden, &shared_name(&item.stat))
                .and_then(|file| put_name(job, file.ino, &place, &item));
            note_problem(done, place.source_of(&item.name), problems)?;
        }
        for (from, place, name) in std::mem::take(&mut self.moves) {
            self.touch(&place);
            let done = volume.rename((job.hidden, &from), (place.ino, &name), RenameMode::Replace);
            note_problem(done, place.source_of(&name), problems)?;
        }
        for (ino, name, value) in std::mem::take(&mut self.marks) {
            self.dirty = true;
            volume.set_attribute(ino, &name, &value, None)?;
        }
        for (ino, (accessed, modified)) in std::mem::take(&mut self.touched) {
            let (accessed, modified) = (Some(SetTime::To(accessed)), Some(SetTime::To(modified)));
            let times = SetAttributes { accessed, modified, ..SetAttributes::default() };
            match volume.set_attributes(ino, times) {
                // Another client removed it; every write into it has already failed.
                Err(error) if error.errno() == Errno::NOENT.raw_os_error() => {}
                done => _ = done?,
            }
        }
        Ok(self.dirty)
    }
}

/// A problem with one name is reported; a problem that concerns all of them ends the job.
fn note_problem(done: Result<(), Error>, path: Vec<u8>, problems: &mut Vec<Problem>) -> Result<(), Broken> {
    match done {
        Err(error @ Error::Meta(meta::Error::Unavailable(_) | meta::Error::NoSpace | meta::Error::Corrupt(_))) => {
            Err(error.into())
        }
        Err(error) => {
            problems.push(Problem { path, what: format!("it cannot be put under its name: {error}") });
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Gives a file a name. Replaces the file that has it if the content is the same, or in an update.
fn put_name(job: &Encoding, ino: Ino, place: &DirectoryPair, item: &Item) -> Result<(), Error> {
    let (volume, name) = (&job.volume, &item.name);
    match volume.link(ino, place.ino, name) {
        Err(Error::Meta(meta::Error::Exists)) => {}
        done => return done.map(drop),
    }
    let there = volume.lookup(place.ino, name)?;
    if there.ino == ino {
        return Ok(());
    }
    if !job.update && decide(&item.stat, Some(&there), |_| true) == Decision::Differs {
        return Err(meta::Error::Exists.into());
    }
    let temporary = format!("t-{:x}-{:x}", ino.0, fastrand::u64(..)).into_bytes();
    volume.link(ino, job.hidden, &temporary)?;
    volume.replace((job.hidden, &temporary), (place.ino, name), there.ino)
}

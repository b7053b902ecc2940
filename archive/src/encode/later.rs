//! What is done when the files of a batch are there: names of files that have several, files that replace others, and parts that are marked as done.

use super::{Encoding, shared_name};
use crate::message::{Item, Place, Problem};
use crate::transport::Broken;
use fs::{Error, RenameMode, SetAttributes, SetTime, Time};
use rustix::io::Errno;
use std::collections::BTreeMap;

/// What is to be done when a batch is there.
#[derive(Default)]
pub(super) struct Later {
    /// Files that get one more name, found in the job's directory by what they are at the source.
    links: Vec<(Place, Item)>,
    /// Files that go from a name in the job's directory to their own.
    moves: Vec<(Vec<u8>, Place, Vec<u8>)>,
    /// Attributes of files in the job's directory.
    marks: Vec<(u64, Vec<u8>, Vec<u8>)>,
    /// Directories that were changed on the way, with the times that they shall have.
    touched: BTreeMap<u64, (Time, Time)>,
    /// Something was changed that is not durable.
    dirty: bool,
}

impl Later {
    pub fn link(&mut self, place: &Place, item: &Item) {
        self.links.push((place.clone(), item.clone()));
    }

    pub fn rename(&mut self, from: Vec<u8>, place: &Place, name: &[u8]) {
        self.moves.push((from, place.clone(), name.to_vec()));
    }

    pub fn mark(&mut self, ino: u64, name: Vec<u8>, value: Vec<u8>) {
        self.marks.push((ino, name, value));
    }

    /// A directory was changed.
    pub fn touch(&mut self, place: &Place) {
        self.dirty = true;
        self.touched.insert(place.ino, (place.accessed, place.modified));
    }

    /// Something was changed.
    pub fn changed(&mut self) {
        self.dirty = true;
    }

    pub fn len(&self) -> usize {
        self.links.len() + self.moves.len() + self.marks.len()
    }

    /// Does it. Returns whether there is something to be made durable.
    pub fn carry_out(mut self, job: &Encoding, problems: &mut Vec<Problem>) -> Result<bool, Broken> {
        let volume = &job.volume;
        for (place, item) in std::mem::take(&mut self.links) {
            self.touch(&place);
            let done = volume
                .lookup(job.hidden, &shared_name(&item.stat))
                .and_then(|file| put_name(job, file.ino, &place, &item.name));
            told(done, place.source_of(&item.name), problems)?;
        }
        for (from, place, name) in std::mem::take(&mut self.moves) {
            self.touch(&place);
            let done = volume.rename((job.hidden, &from), (place.ino, &name), RenameMode::Replace);
            told(done, place.source_of(&name), problems)?;
        }
        for (ino, name, value) in std::mem::take(&mut self.marks) {
            self.dirty = true;
            volume.set_attribute(ino, &name, &value, None)?;
        }
        for (ino, (accessed, modified)) in std::mem::take(&mut self.touched) {
            let (accessed, modified) = (Some(SetTime::To(accessed)), Some(SetTime::To(modified)));
            let times = SetAttributes { accessed, modified, ..SetAttributes::default() };
            match volume.set_attributes(ino, times) {
                // Somebody removed it: what was put into it failed with that.
                Err(error) if error.errno() == Errno::NOENT.raw_os_error() => {}
                done => _ = done?,
            }
        }
        Ok(self.dirty)
    }
}

/// What went wrong with one name is told; what would go wrong with all ends the job.
fn told(done: Result<(), Error>, path: Vec<u8>, problems: &mut Vec<Problem>) -> Result<(), Broken> {
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

/// Gives a file a name, in place of what has it.
fn put_name(job: &Encoding, ino: u64, place: &Place, name: &[u8]) -> Result<(), Error> {
    let volume = &job.volume;
    match volume.link(ino, place.ino, name) {
        Err(Error::Meta(meta::Error::Exists)) => {}
        done => return done.map(drop),
    }
    if volume.lookup(place.ino, name)?.ino == ino {
        return Ok(());
    }
    let temporary = format!("t-{:x}-{:x}", ino, fastrand::u64(..)).into_bytes();
    volume.link(ino, job.hidden, &temporary)?;
    volume.rename((job.hidden, &temporary), (place.ino, name), RenameMode::Replace)
}

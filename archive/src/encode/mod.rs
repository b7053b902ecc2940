//! The worker's side of an archive job: files of the machine become files of the volume.
//!
//! The volume is the journal of the job: a file that the volume has with the size and time of the
//! source is done. So a stopped job is started again like a new one, and does only what is left.

mod copy;
mod decide;
mod encoding;
mod files;
pub mod hash;
mod later;
mod parts;

pub use copy::Trouble;
pub use decide::{Decision, decide};
pub use encoding::{Encoding, HIDDEN};
pub(crate) use files::bytes_of;

use crate::message::{Problem, Stat, Tally, Work};
use crate::roles::{Craft, Made};
use crate::transport::Broken;
use fs::{BulkLoad, FileSystem};
use later::Later;
use plan::Ino;
use std::collections::HashMap;

/// The attribute that stores the BLAKE3 hash of a file's content, see [`hash::Sealed`].
pub const HASH: &[u8] = b"user.weft.blake3";
/// A worker makes its work durable after this many bytes or files.
const COMMIT_BYTES: u64 = 64 << 20;
const COMMIT_FILES: usize = 4096;

/// A worker of an archive job.
pub struct Encoder<'a> {
    job: &'a Encoding,
    bulk_load: BulkLoad<'a>,
    later: Later,
    tally: Tally,
    /// The names in the job's directory that files of this batch go to, with the attributes of
    /// these files.
    begun: HashMap<Vec<u8>, Stat>,
    /// The paths of the directories of this batch, by inode number.
    places: HashMap<Ino, Vec<u8>>,
}

impl<'a> Encoder<'a> {
    /// A worker for this job.
    ///
    /// # Errors
    /// If the volume is open for reading only.
    pub fn new(job: &'a Encoding) -> Result<Self, Broken> {
        Ok(Self {
            job,
            bulk_load: job.volume.bulk_load()?,
            later: Later::default(),
            tally: Tally::default(),
            begun: HashMap::new(),
            places: HashMap::new(),
        })
    }

    fn volume(&self) -> &'a FileSystem {
        &self.job.volume
    }
}

/// Reports a problem with a file, or returns an error if the job cannot continue.
fn report(path: Vec<u8>, trouble: Trouble, problems: &mut Vec<Problem>) -> Result<(), Broken> {
    let what = match trouble {
        Trouble::Source(error) => std::io::Error::from(error).to_string(),
        Trouble::Changed => "it was changed while it was read, and was left out".into(),
        Trouble::Taken => {
            "the archive has got another file of this name meanwhile, which only an update replaces".into()
        }
        Trouble::Stopped => return Ok(()),
        Trouble::Volume(error) => return Err(error.into()),
    };
    problems.push(Problem { path, what });
    Ok(())
}

impl Craft for Encoder<'_> {
    fn work(&mut self, work: &Work, problems: &mut Vec<Problem>) -> Result<Made, Broken> {
        match work {
            Work::Files(groups) => self.files(groups, problems),
            Work::Open(large) => self.open(large, problems),
            Work::Part(large, part) => self.part(large, *part, problems),
            Work::Close(large) => self.close(large, problems),
        }
    }

    fn is_full(&self) -> bool {
        self.bulk_load.bytes() >= COMMIT_BYTES
            || self.bulk_load.len() >= COMMIT_FILES
            || self.later.len() >= COMMIT_FILES
    }

    fn commit(&mut self, problems: &mut Vec<Problem>) -> Result<Tally, Broken> {
        let done = self.bulk_load.commit()?;
        for (parent, name) in done.refused {
            // Another worker was the first to store a file with several names: this one is only
            // another name for it.
            if parent == self.job.hidden {
                self.tally.others += u64::from(self.begun.remove(&name).is_some());
            } else {
                let place = self.places.get(&parent).cloned().unwrap_or_default();
                let what = "somebody else has made a file of that name in the archive".into();
                problems.push(Problem { path: crate::message::join(&place, &name), what });
            }
        }
        if std::mem::take(&mut self.later).carry_out(self.job, problems)? {
            self.volume().sync(fs::ROOT)?;
        }
        for (_, stat) in self.begun.drain() {
            self.tally.count(&stat);
        }
        self.places.clear();
        Ok(std::mem::take(&mut self.tally))
    }
}

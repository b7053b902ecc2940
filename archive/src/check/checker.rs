//! The worker's side of a check: it reads files and compares their hashes.

use crate::encode::HASH;
use crate::encode::hash::{Sealed, add_zeroes};
use crate::message::{Group, Item, Problem, Tally, Work, join};
use crate::restore::read;
use crate::roles::{Craft, Made};
use crate::transport::Broken;
use crate::walk::{open_directory, open_file, stat_at};
use blake3::Hasher;
use fs::{FileKind, FileSystem};
use plan::Ino;
use rustix::fd::OwnedFd;
use rustix::io::{Errno, pread};
use std::sync::Arc;
use volume::Control;

/// How many bytes of the source are read at a time.
const READ_PIECE_BYTES: usize = 1 << 20;

/// What a check compares an archive with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Against {
    /// The hashes that were stored at archiving time. The check reads all data from the volume.
    Hashes,
    /// The source directory. The check reads the source and takes only the hashes from the volume.
    Source(Vec<u8>),
}

/// What all workers of a check share.
pub struct Checking {
    /// The volume.
    pub volume: Arc<FileSystem>,
    /// What the archive is compared with.
    pub against: Against,
    /// Stops the check.
    pub control: Arc<Control>,
}

/// A worker of a check.
pub struct Checker<'a> {
    job: &'a Checking,
    tally: Tally,
}

impl<'a> Checker<'a> {
    /// A worker for this check.
    pub fn new(job: &'a Checking) -> Self {
        Self { job, tally: Tally::default() }
    }

    fn group(&mut self, group: &Group, problems: &mut Vec<Problem>) -> Result<u64, Broken> {
        let place = &group.place;
        let source = match &self.job.against {
            Against::Hashes => None,
            Against::Source(root) => match open_directory(&join(root, &place.target)) {
                Ok(directory) => Some(directory),
                Err(error) => {
                    let what = format!("the directory at the source: {}", std::io::Error::from(error));
                    problems.push(Problem { path: place.source.clone(), what });
                    return Ok(0);
                }
            },
        };
        let before = self.tally.bytes;
        for item in &group.items {
            if self.job.control.go_on().is_err() {
                break;
            }
            if let Err(what) = self.file(item, source.as_ref())? {
                problems.push(Problem { path: place.source_of(&item.name), what });
            }
        }
        Ok(self.tally.bytes - before)
    }

    /// Checks a file. Returns what is wrong with it.
    fn file(&mut self, item: &Item, source: Option<&OwnedFd>) -> Result<Result<(), String>, Broken> {
        let (stat, volume) = (&item.stat, &self.job.volume);
        if stat.kind != FileKind::File {
            self.tally.others += 1;
            let there = source.map(|source| stat_at(source, &item.name).map(|there| there.kind));
            return Ok(match there {
                Some(Err(error)) => Err(format!("at the source: {}", std::io::Error::from(error))),
                Some(Ok(kind)) if kind != stat.kind => Err("it is something else at the source".into()),
                _ => Ok(()),
            });
        }
        let sealed = match volume.attribute(Ino(stat.identity.1), HASH) {
            Ok(bytes) => Sealed::decode(&bytes),
            Err(fs::Error::Meta(meta::Error::NoAttribute)) => None,
            Err(error) => return Err(error.into()),
        };
        let Some(sealed) = sealed.filter(|sealed| sealed.modified == stat.modified) else {
            return Ok(Err("there is no hash of it: it was not archived, or was changed since".into()));
        };
        let hash = match source {
            None => self.hash_of_volume(item),
            Some(source) => self.hash_of_source(source, item),
        };
        let Some(hash) = (match hash {
            Ok(hash) => hash,
            Err(what) => return Ok(Err(what)),
        }) else {
            return Ok(Ok(()));
        };
        if *hash.as_bytes() != sealed.hash {
            return Ok(Err("its content is not what was archived: its hash differs".into()));
        }
        self.tally.files += 1;
        self.tally.bytes = self.tally.bytes.saturating_add(stat.size);
        self.tally.sizes.add(stat.size);
        Ok(Ok(()))
    }

    /// Hashes a file of the volume. Returns None if the check was stopped.
    fn hash_of_volume(&self, item: &Item) -> Result<Option<blake3::Hash>, String> {
        enum Stop {
            Asked,
            Error(fs::Error),
        }
        impl From<fs::Error> for Stop {
            fn from(error: fs::Error) -> Self {
                Self::Error(error)
            }
        }
        let stat = &item.stat;
        let (mut hasher, holes) = (Hasher::new(), stat.allocated < stat.size);
        let go_on = |_, _: &[u8]| self.job.control.go_on().map_err(|_| Stop::Asked);
        match read(&self.job.volume, Ino(stat.identity.1), 0..stat.size, holes, &mut hasher, go_on) {
            Ok(()) => Ok(Some(hasher.finalize())),
            Err(Stop::Asked) => Ok(None),
            Err(Stop::Error(error)) => Err(error.to_string()),
        }
    }

    fn hash_of_source(&self, directory: &OwnedFd, item: &Item) -> Result<Option<blake3::Hash>, String> {
        let failed = |error: Errno| format!("at the source: {}", std::io::Error::from(error));
        let there = stat_at(directory, &item.name).map_err(failed)?;
        if there.kind != FileKind::File {
            return Err("it is something else at the source".into());
        }
        if there.size != item.stat.size {
            return Err(format!("it has {} bytes at the source and {} in the archive", there.size, item.stat.size));
        }
        let file = open_file(directory, &item.name).map_err(failed)?;
        let (mut hasher, mut at, mut piece) =
            (Hasher::new(), 0, vec![0; READ_PIECE_BYTES.min(there.size as usize).max(1)]);
        while at < there.size {
            if self.job.control.go_on().is_err() {
                return Ok(None);
            }
            match pread(&file, &mut piece[..], at).map_err(failed)? {
                0 => break,
                length => {
                    hasher.update(&piece[..length]);
                    at += length as u64;
                }
            }
        }
        // A file that became shorter in the meantime must get another hash.
        add_zeroes(&mut hasher, u64::from(at < there.size));
        Ok(Some(hasher.finalize()))
    }
}

impl Craft for Checker<'_> {
    fn work(&mut self, work: &Work, problems: &mut Vec<Problem>) -> Result<Made, Broken> {
        let mut made = Made { good: true, ..Made::default() };
        if let Work::Files(groups) = work {
            for group in groups {
                made.bytes = made.bytes.saturating_add(self.group(group, problems)?);
            }
        }
        Ok(made)
    }

    fn is_full(&self) -> bool {
        self.tally.files >= 1024
    }

    fn commit(&mut self, _: &mut Vec<Problem>) -> Result<Tally, Broken> {
        Ok(std::mem::take(&mut self.tally))
    }
}

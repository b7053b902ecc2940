//! The files that a disk keeps open.

use super::TargetFile;
use super::records::Records;
use super::tags;
use crate::lock;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

/// The maximum number of files that are kept open.
const OPEN_FILES: usize = 512;

/// An open file.
#[derive(Debug)]
pub(super) struct Open {
    pub file: Arc<File>,
    /// It has a given name: it is never closed to open another, and a sync includes its attributes.
    pub given: bool,
    /// Its inode: another file may have its name by now.
    pub inode: u64,
    /// The same file, opened for direct I/O; None where that is not possible.
    pub direct: OnceLock<Option<File>>,
    pub used: AtomicU64,
    /// Its name is durable. Unknown for an existing file: its creator may have died before the
    /// sync.
    pub named: AtomicBool,
    /// It is a chunk: clients rely on what they wrote to it before they sync.
    is_chunk: bool,
    /// A sync failed, for this reason: earlier writes may be lost even if the next sync succeeds.
    failed: OnceLock<(io::ErrorKind, String)>,
    /// Held by a write-back alone, and by syncs beside one another.
    pub syncing: RwLock<()>,
    /// A write-back runs.
    writing_back: AtomicBool,
    /// Another process removed or replaced the file: once it is closed, it cannot be read.
    pub unnamed: AtomicBool,
    /// What is known of its records, for its attributes.
    records: Mutex<Records>,
}

impl Open {
    /// An open file; `used` is when it is used first. A file with a given name has it for good.
    ///
    /// # Errors
    /// If the system does not tell which file it is.
    pub fn new(file: Arc<File>, given: bool, used: u64) -> io::Result<Self> {
        let found = file.metadata()?;
        let failed = OnceLock::new();
        if tags::has_failed(&file) {
            let _ = failed.set((io::ErrorKind::Other, "in a process before".into()));
        }
        Ok(Self {
            inode: found.ino(),
            file,
            given,
            direct: OnceLock::new(),
            used: AtomicU64::new(used),
            named: AtomicBool::new(given),
            is_chunk: false,
            failed,
            syncing: RwLock::default(),
            writing_back: AtomicBool::new(false),
            unnamed: AtomicBool::new(false),
            records: Mutex::new(Records::of_file(found.len())),
        })
    }

    /// As a chunk, or not.
    pub fn of_chunk(self, is_chunk: bool) -> Self {
        Self { is_chunk, ..self }
    }

    /// Syncs the content. The system may drop data that it failed to write and report nothing the
    /// next time, not even to the next process: it learns of that from the file.
    ///
    /// # Errors
    /// As the system.
    pub fn sync_content(&self) -> io::Result<()> {
        let synced = if self.given { self.file.sync_all() } else { self.file.sync_data() };
        synced.inspect_err(|why| {
            self.poison(why);
            if self.is_chunk {
                tags::mark_failed(&self.file);
            }
        })
    }

    /// Makes all later syncs fail.
    pub fn poison(&self, why: &io::Error) {
        // Any other kind might say that another sync can succeed.
        let is_full = matches!(why.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        let kind = if is_full { why.kind() } else { io::ErrorKind::Other };
        let _ = self.failed.set((kind, why.to_string()));
    }

    /// Whether no sync failed.
    ///
    /// # Errors
    /// As that sync.
    pub fn is_sound(&self) -> io::Result<()> {
        let failed = |(kind, why): &(io::ErrorKind, String)| {
            Err(io::Error::new(*kind, format!("an earlier sync of this file failed: {why}")))
        };
        self.failed.get().map_or(Ok(()), failed)
    }

    /// Whether this handle must be kept: another one would not know what this one does.
    pub fn is_needed(&self) -> bool {
        // A write-back that fails says so before it ends.
        self.given || self.writing_back.load(Ordering::SeqCst) || self.is_sound().is_err()
    }

    /// Writes the file back before its sync, which reports a failure. Returns false if a sync does
    /// that now.
    pub fn write_back(&self) -> bool {
        self.writing_back.store(true, Ordering::SeqCst);
        let free = self.syncing.try_write();
        if free.is_ok() {
            // The next sync fails, too.
            let _ = self.sync_content();
        }
        self.writing_back.store(false, Ordering::SeqCst);
        free.is_ok()
    }

    /// Describes a chunk as one that gets no more records.
    pub fn seal(&self) {
        let mut records = lock(&self.records);
        records.sealed = true;
        self.describe(&mut records);
    }

    /// Describes the file after a write. `first` are bytes at the beginning of what was written.
    pub fn wrote(&self, offset: u64, first: &[u8]) {
        let mut records = lock(&self.records);
        records.wrote(offset, first);
        if offset == 0 {
            tags::tag(&self.file, first, &records);
        }
        self.describe(&mut records);
    }

    /// Describes the file before space of it is given back.
    pub fn gives_back(&self, range: &Range<u64>) {
        let mut records = lock(&self.records);
        records.gave_back(range);
        self.describe(&mut records);
    }

    /// Corrects the attributes of a sealed chunk. After those of an earlier process were removed,
    /// and before it is sealed, a chunk has none.
    fn describe(&self, records: &mut Records) {
        if records.sealed {
            let length = self.file.metadata().map_or(0, |found| found.len());
            tags::tag_whole(&self.file, length, records);
        } else if std::mem::take(&mut records.old) {
            tags::untag_whole(&self.file);
        }
    }
}

/// Closes files until another one can be opened, those that were used the longest time ago. Files
/// whose handle is needed stay, and those in use: another handle would not learn of a failure.
///
/// # Errors
/// If all must stay because syncs of them failed.
pub(super) fn make_room(files: &mut HashMap<TargetFile, Arc<Open>>) -> io::Result<()> {
    while files.len() >= OPEN_FILES && close_oldest(files)? {}
    Ok(())
}

/// Closes one file. Returns whether it could.
fn close_oldest(files: &mut HashMap<TargetFile, Arc<Open>>) -> io::Result<bool> {
    let idle = files.iter().filter(|(_, open)| !open.is_needed() && Arc::strong_count(open) == 1);
    // Close last what only its open handle can still read.
    let age = |open: &Open| (open.unnamed.load(Ordering::Relaxed), open.used.load(Ordering::Relaxed));
    let Some(oldest) = idle.min_by_key(|(_, open)| age(open)).map(|(&file, _)| file) else {
        return match files.values().all(|open| !open.given && open.is_sound().is_err()) {
            true => Err(io::Error::other("syncs of too many files failed on this target")),
            false => Ok(false),
        };
    };
    // A write-back may have begun meanwhile, and even ended. One that begins now finds it closed.
    let kept = match files.remove(&oldest).map(Arc::try_unwrap) {
        Some(Err(used)) => used,
        Some(Ok(open)) if open.is_needed() => Arc::new(open),
        _ => return Ok(true),
    };
    files.insert(oldest, kept);
    Ok(false)
}

//! What an opening of a volume knows of it, and how it was asked for.

use crate::volume::label::Label;
use crate::volume::places::{Directories, Places};
use crate::volume::warnings::Warnings;
use crate::{Error, Result, mutex};
use plan::TargetId;
use plan::coding::Coding;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The index of the metadata in the volume directory. It is made again when it is lost.
pub(crate) const INDEX: &str = "index.redb";
/// The number of the first stripe after an opening is that of the opening, times this.
pub(crate) const STRIPES_PER_OPENING: u64 = 1 << 40;

/// Hears of what goes wrong without being an error to anybody, a line each.
pub type Warn = Box<dyn Fn(&str) + Send + Sync>;

/// How a volume is opened.
pub struct OpenOptions {
    /// Nothing is changed, neither in the volume nor on its targets.
    pub read_only: bool,
    /// Hears of what goes wrong without being an error to anybody.
    pub warn: Option<Warn>,
    /// Clients are served, see [`Sessions`](crate::Sessions); those of before a crash may come back and are waited for.
    pub serve: bool,
    /// Who codes stripes; None: what the volume says.
    pub coding: Option<Coding>,
    /// Knows what is at the places of the targets.
    pub places: Arc<dyn Places>,
    /// Memory for what is kept of the metadata, about.
    pub metadata_bytes: usize,
    /// Of a volume that is only read: only its files are of interest, not how many copies of the metadata there are. What copies lack is then not made again
    /// in memory, where all that is written goes.
    pub files_only: bool,
    /// Refuses, as [`Error::Unavailable`], while more targets do not answer than the code can miss: they may be about to start, and what they have be newer.
    pub insists: bool,
}

/// What is enough for metadata, and what it can do with.
pub const METADATA_BYTES: std::ops::RangeInclusive<usize> = 8 << 20..=128 << 20;

impl Default for OpenOptions {
    fn default() -> Self {
        let (places, metadata_bytes) = (Arc::new(Directories), *METADATA_BYTES.end());
        Self {
            read_only: false,
            warn: None,
            serve: false,
            coding: None,
            places,
            metadata_bytes,
            files_only: false,
            insists: false,
        }
    }
}

/// What is known of an open volume.
pub(crate) struct Opened {
    /// The volume directory; None for one on given targets.
    pub directory: Option<PathBuf>,
    pub label: Mutex<Label>,
    /// Held by the one that has targets come, go, or be emptied.
    pub changing: Mutex<()>,
    pub read_only: bool,
    pub warn: Option<Warn>,
    pub warnings: Warnings,
    pub places: Arc<dyn Places>,
    /// Targets that were not found, and why.
    pub missing: Mutex<HashMap<TargetId, String>>,
    /// Keeps others from opening it.
    pub _lock: Option<std::fs::File>,
}

/// The first number of the stripes of a session. Those of an opening that serves nobody are lower than those of its sessions.
pub(crate) fn first_stripe_of(session: u64) -> u64 {
    let (opening, number) = (session >> 32, session & u64::from(u32::MAX));
    (opening + 1) * STRIPES_PER_OPENING + (number << 26) % STRIPES_PER_OPENING
}

impl Opened {
    /// Of a volume whose metadata a server has.
    pub fn served(label: Label, options: OpenOptions) -> Self {
        Self {
            directory: None,
            label: Mutex::new(label),
            changing: Mutex::default(),
            read_only: options.read_only,
            warn: options.warn,
            warnings: Warnings::default(),
            places: options.places,
            missing: Mutex::default(),
            _lock: None,
        }
    }

    /// Says what goes wrong. What is said again and again is heard now and then.
    pub fn warn(&self, what: &str) {
        if let Some(warn) = &self.warn
            && let Some(line) = self.warnings.line(what)
        {
            warn(&line);
        }
    }

    pub fn label(&self) -> Label {
        mutex::lock(&self.label).clone()
    }
}

/// Locks a volume directory, so that it is open once.
pub(crate) fn lock(directory: &Path) -> Result<std::fs::File> {
    use rustix::fs::{FlockOperation, flock};
    let cannot = |why: &dyn std::fmt::Display| {
        Error::Conflict(format!("cannot lock the volume {}: {why}", volume::Shown(directory)))
    };
    let file = std::fs::File::open(directory).map_err(|why| cannot(&why))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::Conflict(format!(
            "the volume {} is open in another process; if it is mounted, use the mount point",
            volume::Shown(directory)
        ))),
        Err(why) => Err(cannot(&why)),
    }
}

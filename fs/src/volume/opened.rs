//! The state of an open volume, and the options with which it was opened.

use crate::ranks::{LabelChange, MissingTargets, TargetChanges, VolumeLabel};
use crate::volume::holder::here;
use crate::volume::label::Label;
use crate::volume::places::{Directories, Places};
use crate::volume::warnings::Warnings;
use crate::{Error, Result};
use ::volume::ranked::Ranked;
use meta::journal::Access;
use plan::coding::Coding;
use plan::topology::Coordinates;
use plan::{SessionId, StripeSeq, TargetId};
use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use volume::target::Holder;

/// The index of the metadata in the volume directory. It is rebuilt when it is lost.
pub(crate) const INDEX: &str = "index.redb";
/// The number of the first stripe after an opening is the number of the opening times this.
pub(crate) const STRIPES_PER_OPENING: u64 = 1 << 40;

/// Receives warnings, one line each: problems that no caller gets as an error.
pub type Warn = Box<dyn Fn(&str) + Send + Sync>;

/// How a volume is opened.
pub struct OpenOptions {
    /// Change nothing, neither in the volume nor on its targets.
    pub read_only: bool,
    /// Receives warnings: problems that no caller gets as an error.
    pub warn: Option<Warn>,
    /// Serve clients, see [`Sessions`](crate::Sessions). Wait for the clients of a server that
    /// crashed: they may reconnect.
    pub serve: bool,
    /// Which side codes stripes; None: as the label says.
    pub coding: Option<Coding>,
    /// For a client of a metadata server: user data of the longest stripe that it writes, in bytes;
    /// None for the usual length. Who has the metadata also moves the stripes of others, so it
    /// takes the usual length.
    pub stripe_bytes: Option<usize>,
    /// For a client: the place of a target, or the store of one, that is the Master of all chunk
    /// sets with a chunk on it; None: another one for each set.
    pub master: Option<PathBuf>,
    /// Where this process is in the torus of the volume, for the choice of Masters; None: only the
    /// ways between stores count.
    pub at: Option<Coordinates>,
    /// Finds the targets by their places.
    pub places: Arc<dyn Places>,
    /// Memory for cached metadata, in bytes; approximate.
    pub metadata_bytes: usize,
    /// For a volume that is opened for reading only: the caller needs only its files, not the
    /// number of copies of the metadata. Copies that are incomplete are then not resynced in
    /// memory, where a read-only opening puts everything that it writes.
    pub files_only: bool,
    /// Fail with [`Error::Unavailable`] while more voters do not answer than the code can miss.
    /// They may be about to start and may have newer data.
    pub insists: bool,
    /// The process that opens the volume. Without a name, this process on this machine.
    pub holder: Holder,
    /// How long a target keeps others away when this process does not renew its claim. None for
    /// directories, which notice when the process ends.
    pub lease: Option<Duration>,
    /// An operation of a target that takes longer has failed; None for 15 s. Tests shorten it.
    pub deadline: Option<Duration>,
    /// For reading only: with however few targets. Newer changes may be missing.
    pub possibly_old: bool,
    /// Open the volume however few targets there are, and with what is left of its metadata. For an
    /// operator who accepts the loss; it is recorded for ever, see
    /// [`FileSystem::accepted_losses`](crate::FileSystem::accepted_losses).
    pub accept_loss: bool,
    /// The lock of the volume directory, if the caller has it already; see
    /// [`lock_directory`](crate::lock_directory).
    pub lock: Option<Arc<File>>,
}

/// The range of useful memory for metadata, in bytes: enough, and the most that it can use.
pub const METADATA_BYTES: std::ops::RangeInclusive<usize> = 8 << 20..=128 << 20;

impl Default for OpenOptions {
    fn default() -> Self {
        let (places, metadata_bytes) = (Arc::new(Directories), *METADATA_BYTES.end());
        Self {
            read_only: false,
            warn: None,
            serve: false,
            coding: None,
            stripe_bytes: None,
            master: None,
            at: None,
            places,
            metadata_bytes,
            files_only: false,
            insists: false,
            holder: Holder::default(),
            lease: None,
            deadline: None,
            possibly_old: false,
            accept_loss: false,
            lock: None,
        }
    }
}

/// The state of an open volume.
pub(crate) struct Opened {
    /// The volume directory; None for a volume on given targets.
    pub directory: Option<PathBuf>,
    pub label: Ranked<Label, VolumeLabel>,
    /// Held while the label is changed, which waits for targets.
    pub relabelling: Ranked<(), LabelChange>,
    /// Held while targets are added, removed or emptied.
    pub changing: Ranked<(), TargetChanges>,
    pub read_only: bool,
    pub warn: Option<Warn>,
    pub warnings: Warnings,
    pub places: Arc<dyn Places>,
    /// Targets that were not found, with the reason.
    pub missing: Ranked<HashMap<TargetId, String>, MissingTargets>,
    /// Keeps other processes from opening the volume.
    pub _lock: Option<Arc<File>>,
}

/// The first stripe number of a session. An opening that serves no clients uses lower numbers than
/// its sessions would.
pub(crate) fn first_stripe_of(session: SessionId) -> StripeSeq {
    let (opening, number) = (session.0 >> 32, session.0 & u64::from(u32::MAX));
    StripeSeq((opening + 1) * STRIPES_PER_OPENING + (number << 26) % STRIPES_PER_OPENING)
}

impl Opened {
    /// The state of a volume whose metadata is on a server.
    pub fn served(label: Label, options: OpenOptions) -> Self {
        Self {
            directory: None,
            label: Ranked::new(label),
            relabelling: Ranked::default(),
            changing: Ranked::default(),
            read_only: options.read_only,
            warn: options.warn,
            warnings: Warnings::default(),
            places: options.places,
            missing: Ranked::default(),
            _lock: None,
        }
    }

    /// Sends a warning. Repeated warnings are passed on only now and then.
    pub fn warn(&self, what: &str) {
        if let Some(warn) = &self.warn
            && let Some(line) = self.warnings.line(what, Instant::now())
        {
            // The caller may hold the label.
            let label = self.label.try_lock();
            warn(&label.map_or_else(|| line.clone(), |label| label.with_paths(&line)));
        }
    }

    pub fn label(&self) -> Label {
        self.label.lock().clone()
    }
}

impl OpenOptions {
    /// What the volume is opened for.
    pub(crate) fn access(&self) -> Access {
        match self {
            Self { read_only: true, possibly_old: true, .. } => Access::PossiblyOld,
            Self { read_only: true, files_only: true, .. } => Access::ReadFiles,
            Self { read_only: true, .. } => Access::Read,
            _ => Access::Write,
        }
    }

    /// The holder that opens the volume in this directory.
    pub(crate) fn holder(&self, directory: Option<&Path>) -> Holder {
        let mut holder = self.holder.clone();
        if holder.name.is_empty() {
            holder.name = format!("process {} on {}", std::process::id(), ::volume::machine::host().trim());
        }
        if holder.id == 0
            && let Some(directory) = directory
        {
            holder.id = here(0, directory);
        }
        holder
    }
}

/// Locks a volume directory, so that only one process has it open. The lock is held until the last
/// copy of the handle is dropped; processes that this one starts do not get it.
///
/// # Errors
/// `Conflict` when another process has it, or it cannot be locked.
pub fn lock(directory: &Path) -> Result<Arc<File>> {
    use rustix::fs::{FlockOperation, flock};
    let cannot = |why: &dyn std::fmt::Display| {
        Error::Conflict(format!("cannot lock the volume {}: {why}", volume::Shown(directory)))
    };
    let file = File::open(directory).map_err(|why| cannot(&why))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Arc::new(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::Conflict(format!(
            "the volume {} is open in another process; if it is mounted, use the mount point",
            volume::Shown(directory)
        ))),
        Err(why) => Err(cannot(&why)),
    }
}

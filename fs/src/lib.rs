//! The file system as a library: files in erasure-coded stripes on targets, names and extents in the metadata. The mount, the command line,
//! the archive encoder and gateways are its users.
//!
//! ```text
//! write -> buffer -> stripe -> chunks on k+m targets      (commit.rs, store.rs)
//!                      `-> extents -> transaction -> journal on m+1 targets
//! ```
//!
//! A commit puts dirty data into stripes, syncs the chunks, and then names the stripes in one transaction. So what a transaction names is there,
//! and what no transaction names does not exist.
#![forbid(unsafe_code)]

mod background;
mod buffer;
mod cache;
mod census;
mod claims;
mod client;
mod clock;
mod coding;
mod collect;
mod commit;
mod compact;
mod counts;
mod ending;
mod error;
mod fence;
mod file;
mod find;
mod fsck;
mod history;
mod ingest;
pub mod label;
mod limits;
mod locks;
mod lookups;
pub mod manifest;
mod members;
mod mutex;
mod names;
mod open;
mod places;
mod presence;
mod probe;
mod read;
mod removals;
mod repair;
mod returns;
mod sessions;
mod sets;
mod status;
mod store;
mod strays;
mod targets;
#[cfg(test)]
mod testing;
mod topology;
mod verify;
mod warnings;
mod write;

pub use census::KnownTarget;
pub use client::{Find, Server};
pub use counts::{Counts, RepairProgress, Repairs};
pub use ending::Ending;
pub use error::Error;
pub use fsck::{Checked, Rebuilt, rebuild};
pub use ingest::{Ingest, Ingested};
pub use lookups::Lookup;
pub use members::Seen;
pub use meta::port::FileLock;
pub use meta::{Attributes, Kind, Listed, New, ROOT, RenameMode, SetTime, Time, Whole, unprivileged};
pub use names::SetAttributes;
pub use open::{Create, METADATA_BYTES, OpenOptions, Warn};
pub use places::{Directories, Places};
pub use plan::Domain;
pub use plan::coding::Coding;
pub use plan::membership::State;
pub use plan::placement::{Placement, PolicyName};
pub use probe::PROBE_SET;
pub use read::Seek;
pub use repair::Repaired;
pub use sessions::{Answer, Caller, Grant, Question, Recall, Request, Secret, Sessions};
pub use status::{AtRisk, DomainStatus, Status, TargetStatus, Written};
pub use store::full_stripe_bytes;
pub use targets::{reopen, wait_until_closed};
pub use verify::{Away, Problem, Scrub, Verified};
pub use write::Allocate;

pub(crate) use clock::now;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What `statfs` shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of user data that fit in all.
    pub total: u64,
    /// Bytes that still fit.
    pub free: u64,
    /// Files.
    pub files: u64,
}

/// An open volume.
pub struct FileSystem {
    pub(crate) meta: Arc<dyn meta::port::Port>,
    engine: Option<Engine>,
    pub(crate) client: Option<client::Client>,
    pub(crate) store: store::Store,
    pub(crate) table: file::Table,
    pub(crate) lookups: lookups::Lookups,
    pub(crate) memory: limits::Memory,
    pub(crate) room: limits::Room,
    pub(crate) collector: collect::Collector,
    pub(crate) inline: collect::Inline,
    pub(crate) compactor: compact::Compactor,
    pub(crate) strays: strays::Strays,
    pub(crate) returns: returns::Returns,
    pub(crate) members: members::Members,
    pub(crate) background: background::Background,
    pub(crate) volume: open::Opened,
    pub(crate) leases: sessions::Leases,
    pub(crate) counts: Counts,
    pub(crate) closed: AtomicBool,
}

/// The metadata itself, where no server has it.
pub(crate) struct Engine {
    pub meta: Arc<meta::Meta>,
    pub journal: Arc<meta::journal::Journaled>,
}

impl FileSystem {
    /// The metadata itself, for those who look after the volume.
    pub(crate) fn engine(&self) -> Result<&Engine> {
        self.engine.as_ref().ok_or(Error::Unsupported("only the metadata server of the volume can do that"))
    }

    /// What its owner calls it.
    pub fn name(&self) -> String {
        self.volume.label().name
    }

    /// Its id.
    ///
    /// # Errors
    /// When its label is damaged.
    pub fn id(&self) -> Result<[u8; 16]> {
        self.volume.label().id()
    }

    /// Whether it was opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.volume.read_only
    }

    fn writable(&self) -> Result<()> {
        if self.volume.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Room and files.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn usage(&self) -> Result<Usage> {
        let files = u64::try_from(self.meta.totals()?.files).unwrap_or(0);
        let (total, free) = self.room.now();
        Ok(Usage { total, free: free.saturating_sub(self.memory.used()), files })
    }
}

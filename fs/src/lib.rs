//! The file system as a library: files in erasure-coded stripes on targets, names and extents in
//! the metadata. The mount, the command line, the archive encoder and gateways use it.
//!
//! ```text
//! write -> buffer -> stripe -> chunks on k+m targets      (data/commit.rs, data/store.rs)
//!                      `-> extents -> transaction -> journal on m+1 targets
//! ```
//!
//! A commit writes dirty data into stripes, syncs the chunks, and then names the stripes in one
//! transaction. So everything that a transaction names is durable, and a stripe that no transaction
//! names does not exist.
//!
//! The modules, in layers. Each one uses only those above it in this list:
//!
//! - `volume`: the label of a volume, where its targets are, how a volume is created and found.
//! - `data`: files, names and their content. Other users of the volume are behind one trait
//!   (`data/sharing.rs`).
//! - `maintenance`: collection, compaction, repair, verification, targets that come and go. It runs
//!   only in the process that has the metadata.
//! - `server.rs`: what the sessions of clients need of a volume; `client`: the client's half of a
//!   session.
//! - `open.rs`, `role.rs`, `background.rs`: they put an open volume together and run its threads.
#![forbid(unsafe_code)]

mod background;
mod client;
mod clock;
mod data;
mod error;
mod maintenance;
mod open;
mod ranks;
mod role;
mod server;
mod tenure;
#[cfg(test)]
mod testing;
mod volume;

pub use ::volume::target::Holder;
pub use ::volume::{lock, shown, unpoisoned};
pub use background::caught;
pub use client::ending::Ending;
pub use client::{Find, Server};
pub use clock::simulate_clock;
pub use data::bulk_load::{BulkLoad, BulkLoaded};
pub use data::commit::INLINE_BYTES;
pub use data::counts::{Counts, RepairProgress, Repairs};
pub use data::lookups::Lookup;
pub use data::manifest;
pub use data::names::SetAttributes;
pub use data::read::Seek;
pub use data::write::Allocate;
pub use error::Error;
pub use maintenance::census::KnownTarget;
pub use maintenance::explain::SetExplained;
pub use maintenance::fsck::{Checked, Rebuilt, rebuild};
pub use maintenance::members::Seen;
pub use maintenance::probe::PROBE_SET;
pub use maintenance::rebalance::{
    DEFAULT_LIMIT as REBALANCE_LIMIT, Doing, Forecast, RebalanceSetting, RebalanceStatus, Rebalanced,
};
pub use maintenance::recover::{FoundObject, FoundVolume, Private, Recovered, Survey, survey};
pub use maintenance::reopen::{Known, Remains, reopen, reopen_with_loss};
pub use maintenance::repair::Repaired;
pub use maintenance::status::{AtRisk, DomainStatus, Status, TargetStatus, Written};
pub use maintenance::targets::wait_until_closed;
pub use maintenance::verify::{Away, Problem, Scrub, Verified};
pub use meta::{
    Attributes, BulkFile, FileKind, KeyEntry, KeyPage, Listed, New, ROOT, RenameMode, SetTime, Time, unprivileged,
};
pub use plan::coding::Coding;
pub use plan::membership::TargetState;
pub use plan::placement::{Placement, PolicyName, Scoring};
pub use plan::topology::{Coordinates, Torus};
pub use plan::{Domain, Ino, object_name};
pub use server::Sessions;
pub use session::port::FileLock;
pub use tenure::Tenure;
pub use volume::create::Create;
pub use volume::gauge::Gauge;
pub use volume::holder::holder_id;
pub use volume::label;
pub use volume::opened::{METADATA_BYTES, OpenOptions, Warn, lock as lock_directory};
pub use volume::places::{Directories, Places};
pub use volume::standby::standby_index;
pub use volume::stripe_size::{full_stripe_bytes, stripe_of_blocks};
pub use volume::torus::InTorus;
pub use volume::voters::Voters;
pub use volume::warnings::Warnings;

pub(crate) use clock::now;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Space and files, as `statfs` shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of user data that fit in total.
    pub total: u64,
    /// Bytes that still fit.
    pub free: u64,
    /// The number of files.
    pub files: u64,
}

/// An open volume.
pub struct FileSystem {
    pub(crate) meta: Arc<dyn session::port::Port>,
    pub(crate) role: role::Role,
    pub(crate) store: data::store::Store,
    pub(crate) table: data::file::Table,
    pub(crate) lookups: data::lookups::Lookups,
    pub(crate) memory: data::memory::Memory,
    pub(crate) space: data::space::VolumeSpace,
    pub(crate) collector: maintenance::collect::Collector,
    pub(crate) inline: maintenance::inline::Inline,
    pub(crate) compactor: maintenance::compact::Compactor,
    pub(crate) orphan_chunks: maintenance::orphan_chunks::OrphanChunks,
    pub(crate) rejoins: maintenance::rejoin::Rejoins,
    pub(crate) members: maintenance::members::Members,
    pub(crate) votes: maintenance::votes::Votes,
    pub(crate) rebalancing: maintenance::rebalance::Rebalancing,
    pub(crate) background: background::Background,
    pub(crate) volume: volume::opened::Opened,
    pub(crate) leases: session::server::Leases,
    pub(crate) counts: Counts,
    pub(crate) census: maintenance::census::Census,
    pub(crate) closed: AtomicBool,
}

impl FileSystem {
    /// The name that the owner gave the volume.
    pub fn name(&self) -> String {
        self.volume.label().name
    }

    /// A line with the paths of targets instead of their numbers: `target 3` becomes
    /// `target /disk3`.
    pub fn with_paths(&self, line: &str) -> String {
        self.volume.label().with_paths(line)
    }

    /// The id of the volume.
    ///
    /// # Errors
    /// When the label is damaged.
    pub fn id(&self) -> Result<[u8; 16]> {
        self.volume.label().id()
    }

    /// Whether the volume was opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.volume.read_only
    }

    fn writable(&self) -> Result<()> {
        if self.volume.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Total and free space, and the number of files.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn usage(&self) -> Result<Usage> {
        let files = u64::try_from(self.meta.totals()?.files).unwrap_or(0);
        let (total, free) = self.space.now();
        Ok(Usage { total, free: free.saturating_sub(self.memory.used()), files })
    }
}

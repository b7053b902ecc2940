//! The volume behind the sessions: what its metadata and its content have to do with them.

use super::Leases;
use meta::{DeadStripe, Meta, Result, SetRecord};
use plan::{Ino, SessionId, SetId, StripeSeq, TargetId, TxId};
use std::sync::Arc;

/// What a stripe in a new chunk set can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripeLimits {
    /// The data blocks of a stripe.
    pub data_blocks: usize,
    /// All its blocks.
    pub blocks: usize,
    /// The most data that a writer puts into one stripe, so that it can be moved into another.
    pub stripe_bytes: usize,
    /// The longest chunk.
    pub chunk_bytes: u32,
}

/// A volume that is open in this process.
pub trait Volume: Send + Sync + 'static {
    /// Why closing the volume failed.
    type Error;

    /// The chunk set of probes, to which every client may write.
    const PROBE_SET: SetId;

    /// What sessions hold.
    fn leases(&self) -> &Leases;

    /// The metadata.
    ///
    /// # Errors
    /// When another process has it.
    fn meta(&self) -> Result<&Meta>;

    /// The label, as JSON.
    fn label(&self) -> String;

    /// The generation of the label.
    fn generation(&self) -> u64;

    /// Capacity for user data, and how much of it is free, in bytes.
    fn space(&self) -> (u64, u64);

    /// The first number that a session gives to its stripes.
    fn first_stripe(&self, session: SessionId) -> StripeSeq;

    /// What a stripe can have that is written now.
    fn limits(&self) -> StripeLimits;

    /// The data blocks of the stripes of a chunk set. It may have been written with an earlier code
    /// of the volume.
    ///
    /// # Errors
    /// When the code is not known.
    fn data_blocks(&self, set: SetId, record: &SetRecord) -> Result<usize>;

    /// Places a chunk set, not on the targets to `avoid`, and on those of the writer's other
    /// open sets, `beside`, after others. Calls `held` with its number before anything
    /// else can see it.
    ///
    /// # Errors
    /// When too few targets can take data, or the metadata cannot be written.
    fn place_set(
        &self,
        avoid: &[TargetId],
        beside: &[Vec<Option<TargetId>>],
        held: &dyn Fn(SetId),
    ) -> Result<(SetId, SetRecord)>;

    /// Gives up a chunk set whose writer is gone: frees what no transaction names of it.
    ///
    /// # Errors
    /// When the metadata cannot be read or written.
    fn abandon_set(&self, set: SetId) -> Result<()>;

    /// Changes the content of files, these alone: the volume itself moves stripes, too.
    fn changing<T>(&self, inos: &[Ino], change: impl FnOnce() -> T) -> T;

    /// A file got so many bytes that are in the metadata.
    fn added_inline(&self, ino: Ino, bytes: u64);

    /// A client waits for a sync of the metadata.
    fn note_sync(&self);

    /// A transaction freed these stripes.
    fn freed(&self, dead: Vec<DeadStripe>, seq: TxId);

    /// Removes a file without a name that nobody needs any more.
    fn remove_orphan(&self, ino: Ino);

    /// Frees what sessions left that did not come back.
    ///
    /// # Errors
    /// When the metadata cannot be read or written.
    fn clean_up(&self) -> Result<()>;

    /// Looks for missing targets.
    fn rejoin_targets(self: &Arc<Self>);

    /// Does work of the server's own threads. None if it panicked: that is logged and counted.
    fn beside<T>(&self, what: &str, work: impl FnOnce() -> T) -> Option<T>;

    /// Tells the operator something.
    fn warn(&self, what: &str);

    /// Closes the volume. Returns the number of unreachable targets if nothing can be written
    /// without them and nothing is lost; 0 otherwise.
    ///
    /// # Errors
    /// When something could not be committed.
    fn close(&self) -> std::result::Result<usize, Self::Error>;
}

//! An open volume that a metadata server has: what its sessions need of it.

use crate::data::sets::Placed;
use crate::maintenance::probe::PROBE_SET;
use crate::volume::opened::first_stripe_of;
use crate::{Error, FileSystem};
use ::volume::Error as VolumeError;
use meta::{DeadStripe, Meta, Result, SetRecord};
use plan::{Ino, SessionId, SetId, StripeSeq, TargetId, TxId};
use session::server::{Leases, StripeLimits, Volume};
use std::sync::Arc;

/// The sessions of the clients of a volume. It must be open with
/// [`OpenOptions::serve`](crate::OpenOptions::serve).
pub type Sessions = session::server::Sessions<FileSystem>;

/// The error that a client gets for an error of the file system.
fn to_meta_error(error: Error) -> meta::Error {
    match error {
        Error::Meta(error) => error,
        Error::Volume(VolumeError::NoSpace(_)) => meta::Error::NoSpace,
        other => meta::Error::Unavailable(other.to_string()),
    }
}

impl Volume for FileSystem {
    type Error = Error;

    const PROBE_SET: SetId = PROBE_SET;

    fn leases(&self) -> &Leases {
        &self.leases
    }

    fn meta(&self) -> Result<&Meta> {
        Ok(&self.engine().map_err(to_meta_error)?.meta)
    }

    fn label(&self) -> String {
        self.volume.label().for_clients().to_json()
    }

    fn generation(&self) -> u64 {
        self.volume.label().generation
    }

    fn space(&self) -> (u64, u64) {
        self.space.now()
    }

    fn first_stripe(&self, session: SessionId) -> StripeSeq {
        first_stripe_of(session)
    }

    fn limits(&self) -> StripeLimits {
        let shape = self.store.options.code.shape();
        StripeLimits {
            data_blocks: shape.k,
            blocks: shape.blocks(),
            stripe_bytes: self.store.full_stripe(),
            chunk_bytes: self.store.options.chunk_bytes,
        }
    }

    fn data_blocks(&self, set: SetId, record: &SetRecord) -> Result<usize> {
        let layout = self.store.layout_of(set, record).map_err(|why| meta::Error::Corrupt(why.to_string()))?;
        Ok(layout.code.shape().k)
    }

    fn place_set(
        &self,
        avoid: &[TargetId],
        beside: &[Vec<Option<TargetId>>],
        held: &dyn Fn(SetId),
    ) -> Result<(SetId, SetRecord)> {
        let placed = Placed(self.engine().map_err(to_meta_error)?.meta.clone());
        placed.place(&self.store, avoid, beside, held).map_err(to_meta_error)
    }

    fn abandon_set(&self, set: SetId) -> Result<()> {
        Self::abandon_set(self, set).map_err(to_meta_error)
    }

    fn changing<T>(&self, inos: &[Ino], change: impl FnOnce() -> T) -> T {
        let mut inos = inos.to_vec();
        inos.sort_unstable();
        inos.dedup();
        let files: Vec<_> = inos.iter().map(|&ino| self.table.enter(ino)).collect();
        let _one_at_a_time: Vec<_> = files.iter().map(|file| file.content()).collect();
        let done = change();
        // Where this process reads these files, too, extents that it looked up before are old.
        files.iter().for_each(|file| file.state().changes += 1);
        done
    }

    fn added_inline(&self, ino: Ino, bytes: u64) {
        self.inline.add(ino, bytes);
    }

    fn note_sync(&self) {
        self.inline.note_sync();
    }

    fn freed(&self, dead: Vec<DeadStripe>, seq: TxId) {
        self.collector.add(dead, seq);
    }

    fn remove_orphan(&self, ino: Ino) {
        self.collector.add_orphan(ino);
    }

    fn clean_up(&self) -> Result<()> {
        Self::clean_up(self).map_err(to_meta_error)
    }

    fn rejoin_targets(self: &Arc<Self>) {
        Self::rejoin_targets(self);
    }

    fn beside<T>(&self, what: &str, work: impl FnOnce() -> T) -> Option<T> {
        Self::beside(self, what, work)
    }

    fn warn(&self, what: &str) {
        self.volume.warn(what);
    }

    fn close(&self) -> crate::Result<usize> {
        match self.shut(false) {
            Ok(()) => Ok(0),
            Err(why) => self.left_behind().ok_or(why),
        }
    }
}

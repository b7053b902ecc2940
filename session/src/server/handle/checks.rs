//! What a client sends is not believed: which files and stripes its requests may name.

use super::Handle;
use crate::server::Volume;
use meta::{BulkFile, Error, Result};
use plan::{Extent, ExtentPlace, Ino, Span};

impl<V: Volume> Handle<V> {
    /// Refuses to change content for a session that has ended. Call it while no session can end.
    pub(super) fn still_lives(&self) -> Result<()> {
        if self.sessions.leases().table().has(self.session) {
            return Ok(());
        }
        Err(Error::Unavailable("the session ended before this was done".into()))
    }

    /// Refuses to change files that others use without what this session has not committed of them.
    /// Call it while nothing can be superseded.
    pub(super) fn is_not_superseded(&self, inos: &[Ino]) -> Result<()> {
        let table = self.sessions.leases().table();
        let superseded: Vec<Ino> = inos.iter().copied().filter(|ino| table.is_superseded(self.session, *ino)).collect();
        if superseded.is_empty() { Ok(()) } else { Err(Error::Superseded(superseded)) }
    }

    /// Refuses to name stripes in sets of other sessions: those of an ended session were given up
    /// together with their data. Stripes that files name already may be named again.
    pub(super) fn may_name<'a>(&self, extents: impl IntoIterator<Item = &'a Extent>) -> Result<()> {
        for extent in extents {
            let ExtentPlace::Stripe(span) = extent.place else { continue };
            if self.sessions.leases().table().holds(self.session, span.set) {
                self.fits(&span, extent.length)?;
                continue;
            }
            let named = self.meta()?.stripe(span.set, span.record)?.filter(|stripe| stripe.live > 0);
            if named.as_ref().is_some_and(|stripe| stripe.block != span.block) {
                return Err(Error::Invalid("a stripe with blocks of another length".into()));
            }
            let Some(named) = named else {
                return Err(Error::Unavailable(
                    "the session ended before this was committed: what was written and not synced then is lost".into(),
                ));
            };
            // The set may have been written with an earlier code of the volume.
            let set = self.meta()?.set(span.set)?;
            let data = u64::from(named.block) * self.sessions.volume.data_blocks(span.set, &set)? as u64;
            if u64::from(span.start).saturating_add(extent.length) > data {
                return Err(Error::Invalid("bytes that are not in their stripe".into()));
            }
        }
        Ok(())
    }

    /// Refuses to create a file with a number that was not handed out or belongs to another file.
    pub(super) fn may_make(&self, file: &BulkFile) -> Result<()> {
        let meta = self.meta()?;
        let is_free = match meta.attributes(file.ino) {
            Err(Error::NotFound) => meta.gave_out(file.ino)?,
            // The file was created before, and the answer was lost.
            Ok(_) => match meta.lookup(file.parent, &file.name) {
                Err(Error::NotFound) => false,
                found => found?.ino == file.ino,
            },
            Err(error) => return Err(error),
        };
        if is_free { Ok(()) } else { Err(Error::Invalid("the number of another file".into())) }
    }

    /// Refuses a stripe that cannot be in a chunk set, and bytes that cannot be in the stripe.
    fn fits(&self, span: &Span, length: u64) -> Result<()> {
        let limits = self.sessions.volume.limits();
        let data = u64::from(span.block).saturating_mul(limits.data_blocks as u64).min(limits.stripe_bytes as u64);
        let end = ::volume::record_range(span.record, span.block).end;
        let starts = u64::from(span.record.0) >= ::volume::format::CHUNK_HEADER_BYTES as u64;
        if starts && end <= u64::from(limits.chunk_bytes) && u64::from(span.start).saturating_add(length) <= data {
            return Ok(());
        }
        Err(Error::Invalid("a stripe that is in no chunk set, or bytes that are not in it".into()))
    }
}

//! The operations on names and content, as a client asks for them.

use super::{Handle, extents_of};
use crate::port::Port;
use crate::server::Volume;
use meta::{
    AttributeChange, Attributes, BulkFile, BulkResult, ContentEdit, DeadStripe, Error, KeyPage, Listed, New, Removed,
    Rename, Result, SetRecord, Time, Totals,
};
use plan::{Extent, Ino, Position, RecordOffset, SetId, TxId};
use std::ops::Range;

impl<V: Volume> Port for Handle<V> {
    fn attributes(&self, ino: Ino) -> Result<Attributes> {
        self.with_closed_writes(self.meta()?.attributes(ino)?)
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attributes> {
        self.with_closed_writes(self.meta()?.lookup(parent, name)?)
    }

    fn parent(&self, ino: Ino) -> Result<Ino> {
        self.meta()?.parent(ino)
    }

    fn describe(&self, ino: Ino) -> Result<(Attributes, Option<Vec<u8>>)> {
        self.meta()?.describe(ino)
    }

    fn set_attributes(&self, ino: Ino, change: AttributeChange, now: Time) -> Result<(Attributes, TxId)> {
        match self.answered()? {
            Some(answer) => Ok(answer),
            None => self.meta()?.set_attributes_once(ino, change, now, self.idempotency_key().as_ref()),
        }
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        self.meta()?.read_link(ino)
    }

    fn attribute(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.meta()?.attribute(ino, name)
    }

    fn has_privileges(&self, ino: Ino) -> Result<bool> {
        self.meta()?.has_privileges(ino)
    }

    fn attribute_names(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.meta()?.attribute_names(ino)
    }

    fn set_attribute(&self, ino: Ino, name: &[u8], value: &[u8], must_exist: Option<bool>, now: Time) -> Result<TxId> {
        match self.answered()? {
            Some(((), seq)) => Ok(seq),
            None => self.meta()?.set_attribute_once(ino, name, value, must_exist, now, self.idempotency_key().as_ref()),
        }
    }

    fn remove_attribute(&self, ino: Ino, name: &[u8], now: Time) -> Result<TxId> {
        match self.answered()? {
            Some(((), seq)) => Ok(seq),
            None => self.meta()?.remove_attribute_once(ino, name, now, self.idempotency_key().as_ref()),
        }
    }

    fn make(&self, parent: Ino, name: &[u8], new: &New, now: Time) -> Result<(Attributes, TxId)> {
        match self.answered()? {
            Some(answer) => Ok(answer),
            None => self.meta()?.make_once(parent, name, new, now, self.idempotency_key().as_ref()),
        }
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8], now: Time) -> Result<(Attributes, TxId)> {
        match self.answered()? {
            Some(answer) => Ok(answer),
            None => self.meta()?.link_once(ino, parent, name, now, self.idempotency_key().as_ref()),
        }
    }

    fn unlink(&self, parent: Ino, name: &[u8], ino: Ino, keep: bool, now: Time) -> Result<Removed> {
        let keep = keep || self.is_needed(ino);
        Ok(self.removed(match self.answered()? {
            Some(((last, orphan), seq)) => Removed { ino, last, orphan, dead: Vec::new(), seq },
            None => self.meta()?.unlink_once(parent, name, ino, keep, now, self.idempotency_key().as_ref())?,
        }))
    }

    fn remove_directory(&self, parent: Ino, name: &[u8], ino: Ino, keep: bool, now: Time) -> Result<Removed> {
        let keep = keep || self.is_needed(ino);
        Ok(self.removed(match self.answered()? {
            Some(((last, orphan), seq)) => Removed { ino, last, orphan, dead: Vec::new(), seq },
            None => {
                self.meta()?.remove_directory_once(parent, name, ino, keep, now, self.idempotency_key().as_ref())?
            }
        }))
    }

    fn rename(&self, rename: &Rename, now: Time) -> Result<(Option<Removed>, TxId)> {
        let keep = rename.keep || rename.replaced.is_some_and(|ino| self.is_needed(ino));
        let (removed, seq) = match self.answered::<Option<(Ino, bool, bool)>>()? {
            Some((gone, seq)) => {
                (gone.map(|(ino, last, orphan)| Removed { ino, last, orphan, dead: Vec::new(), seq }), seq)
            }
            None => {
                self.meta()?.rename_once(&Rename { keep, ..rename.clone() }, now, self.idempotency_key().as_ref())?
            }
        };
        Ok((removed.map(|removed| self.removed(removed)), seq))
    }

    fn list(&self, parent: Ino, cookie: u64, limit: usize) -> Result<Vec<Listed>> {
        let mut listed = self.meta()?.list(parent, cookie, limit.min(10_000))?;
        for entry in &mut listed {
            entry.attributes = self.with_closed_writes(entry.attributes)?;
        }
        Ok(listed)
    }

    fn list_by_key(&self, parent: Ino, from: &[u8], limit: usize, attribute: &[u8]) -> Result<Option<KeyPage>> {
        let mut page = self.meta()?.list_by_key(parent, from, limit, attribute)?;
        for entry in page.iter_mut().flat_map(|page| &mut page.entries) {
            entry.attributes = self.with_closed_writes(entry.attributes)?;
        }
        Ok(page)
    }

    fn extents(&self, ino: Ino, range: Range<u64>) -> Result<Vec<Extent>> {
        let extents = self.meta()?.extents(ino, range)?;
        self.grant_read(&extents);
        Ok(extents)
    }

    fn content(&self, ino: Ino, range: Range<u64>) -> Result<(u64, Vec<Extent>)> {
        let (size, extents) = self.meta()?.content(ino, range)?;
        self.grant_read(&extents);
        Ok((size, extents))
    }

    fn change_content(&self, ino: Ino, edit: &ContentEdit) -> Result<(Attributes, Vec<DeadStripe>, TxId)> {
        if let Some((attributes, seq)) = self.answered()? {
            return Ok((attributes, Vec::new(), seq));
        }
        let (attributes, dead, seq) = self.sessions.volume.changing(&[ino], || {
            let _its_sets_stay = self.sessions.leases().naming();
            self.still_lives()?;
            self.is_not_superseded(&[ino])?;
            self.may_name(extents_of(edit))?;
            self.cutting(&[(ino, edit)], || {
                self.meta()?.change_content_once(ino, edit, self.idempotency_key().as_ref())
            })
        })?;
        self.follow(ino, edit);
        self.freed(dead, seq);
        Ok((attributes, Vec::new(), seq))
    }

    fn change_contents(&self, edits: &[(Ino, ContentEdit)]) -> Result<(Vec<DeadStripe>, TxId)> {
        if let Some(((), seq)) = self.answered()? {
            return Ok((Vec::new(), seq));
        }
        let inos: Vec<Ino> = edits.iter().map(|(ino, _)| *ino).collect();
        let (dead, seq) = self.sessions.volume.changing(&inos, || {
            let _its_sets_stay = self.sessions.leases().naming();
            self.still_lives()?;
            self.is_not_superseded(&inos)?;
            edits.iter().try_for_each(|(_, edit)| self.may_name(extents_of(edit)))?;
            let all: Vec<(Ino, &ContentEdit)> = edits.iter().map(|(ino, edit)| (*ino, edit)).collect();
            self.cutting(&all, || self.meta()?.change_contents_once(edits, self.idempotency_key().as_ref()))
        })?;
        edits.iter().for_each(|(ino, edit)| self.follow(*ino, edit));
        self.freed(dead, seq);
        Ok((Vec::new(), seq))
    }

    fn change_contents_durably(&self, edits: &[(Ino, ContentEdit)]) -> Result<(Vec<DeadStripe>, TxId)> {
        let (dead, seq) = self.change_contents(edits)?;
        self.sync(seq)?;
        Ok((dead, seq))
    }

    fn share(&self, stripes: &[(SetId, RecordOffset)], ino: Ino) -> Result<TxId> {
        for &(set, record) in stripes {
            let held = self.sessions.leases().table().holds(self.session, set);
            if !held && self.meta()?.stripe(set, record)?.is_none() {
                return Err(Error::NotFound);
            }
        }
        self.meta()?.share(stripes, ino)
    }

    fn set(&self, set: SetId) -> Result<SetRecord> {
        self.meta()?.set(set)
    }

    fn seal_set(&self, set: SetId, length: u32) -> Result<TxId> {
        if !self.sessions.leases().table().holds(self.session, set) {
            return Err(Error::Unavailable(
                "the session with the metadata server ended: the chunk set was given up".into(),
            ));
        }
        if length > self.sessions.volume.limits().chunk_bytes {
            return Err(Error::Invalid("a chunk set does not get so long".into()));
        }
        self.meta()?.seal_set(set, length)
    }

    fn queue_repair(&self, set: SetId, positions: &[Position]) -> Result<TxId> {
        let blocks = self.sessions.volume.limits().blocks;
        if positions.iter().any(|&position| position.index() >= blocks) {
            return Err(Error::Invalid("a chunk set has no such position".into()));
        }
        self.meta()?.queue_repair(set, positions)
    }

    fn totals(&self) -> Result<Totals> {
        self.meta()?.totals()
    }

    fn sync(&self, seq: TxId) -> Result<()> {
        self.sessions.volume.note_sync();
        self.meta()?.sync(seq)
    }

    fn new_inos(&self, count: u32) -> Result<Ino> {
        self.meta()?.new_inos(count)
    }

    fn put_files(&self, files: &[BulkFile]) -> Result<BulkResult> {
        let _its_sets_stay = self.sessions.leases().naming();
        self.still_lives()?;
        files.iter().try_for_each(|file| self.may_name(&file.extents).and_then(|()| self.may_make(file)))?;
        // No idempotency key is needed: a file that exists under its number is not created again.
        self.meta()?.put_files(files)
    }

    fn lookups(&self, names: &[(Ino, Vec<u8>)]) -> Result<Vec<Option<Attributes>>> {
        let found = self.meta()?.lookups(names)?;
        found.into_iter().map(|found| found.map(|found| self.with_closed_writes(found)).transpose()).collect()
    }
}

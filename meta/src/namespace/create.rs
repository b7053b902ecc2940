//! Creates files and adds names.

use super::find::{FoundDinode, directory, entry, find};
use super::{Attributes, MAX_LINK, MAX_LINKS, ROOT, check_name};
use crate::record::{Content, Dinode, DirectoryDelta, DirectoryState, Entry, FileKind, InodeLocation, Time};
use crate::transaction::{Transaction, run};
use crate::{Error, IdempotencyKey, Meta, Result, keys};
use plan::{Ino, TxId};
use serde::{Deserialize, Serialize};

/// A file to create.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct New {
    /// The type.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group. A set-group-ID directory passes on its own group instead.
    pub gid: u32,
    /// Device number, for devices.
    pub device: u32,
    /// The target of a symbolic link.
    pub link: Vec<u8>,
}

impl New {
    pub(super) fn dinode(&self, ino: Ino, now: Time) -> Dinode {
        Dinode {
            ino,
            kind: self.kind,
            mode: self.mode & 0o7777,
            uid: self.uid,
            gid: self.gid,
            links: 1,
            device: self.device,
            size: 0,
            allocated: 0,
            accessed: now,
            modified: now,
            changed: now,
            created: now,
            content: match self.kind {
                FileKind::Symlink => Content::Link(self.link.clone()),
                _ => Content::Here(Vec::new()),
            },
        }
    }
}

/// Updates a directory for an entry that was added or removed.
pub(super) fn count(t: &mut Transaction, parent: Ino, entries: i64, kind: FileKind, now: Time) {
    let directories = if kind == FileKind::Directory { entries } else { 0 };
    let delta = DirectoryDelta { modified: Some(now), changed: Some(now), entries, directories };
    t.merge(keys::directory(parent), &delta);
}

impl Meta {
    /// Creates the root directory if it does not exist.
    pub(crate) fn make_root(&self, owner: (u32, u32), now: Time) -> Result<()> {
        if self.kv.get(&keys::inode_location(ROOT))?.is_some() {
            return Ok(());
        }
        run(&*self.kv, |t| {
            let (uid, gid) = owner;
            let new = New { kind: FileKind::Directory, mode: 0o755, uid, gid, device: 0, link: Vec::new() };
            t.put(keys::inode_location(ROOT), &InodeLocation::Here(new.dinode(ROOT, now)));
            let delta = DirectoryDelta { modified: Some(now), changed: Some(now), ..DirectoryDelta::default() };
            t.merge(keys::directory(ROOT), &delta);
            t.count(1, 0);
            Ok(())
        })?;
        Ok(())
    }

    /// Creates a file.
    ///
    /// # Errors
    /// `NotFound` and `NotDirectory` for the parent, `Exists`, `NameTooLong`, `Invalid`.
    pub fn make(&self, parent: Ino, name: &[u8], new: &New, now: Time) -> Result<(Attributes, TxId)> {
        self.make_once(parent, name, new, now, None)
    }

    /// As `make`, for a request whose answer `answer_of` returns from then on.
    ///
    /// # Errors
    /// As `make`.
    pub fn make_once(
        &self,
        parent: Ino,
        name: &[u8],
        new: &New,
        now: Time,
        idempotency_key: Option<&IdempotencyKey>,
    ) -> Result<(Attributes, TxId)> {
        check_name(name)?;
        if new.link.len() > MAX_LINK {
            return Err(Error::NameTooLong);
        }
        let ino = self.next_ino()?;
        let (made, committed) = run(&*self.kv, |t| {
            let parent_directory = directory(t, parent)?;
            if parent_directory.links == 0 {
                return Err(Error::NotFound);
            }
            if entry(t, parent, name)?.is_some() {
                return Err(Error::Exists);
            }
            let mut dinode = new.dinode(ino, now);
            // A set-group-ID directory passes its group on, and the bit itself to subdirectories.
            if parent_directory.mode & 0o2000 != 0 {
                dinode.gid = parent_directory.gid;
                dinode.mode |= if new.kind == FileKind::Directory { 0o2000 } else { 0 };
            }
            t.put(keys::entry(parent, name), &Entry::Inside(dinode.clone()));
            t.put(keys::inode_location(ino), &InodeLocation::Entry { parent, name: name.to_vec() });
            count(t, parent, 1, new.kind, now);
            if new.kind == FileKind::Directory {
                let delta = DirectoryDelta { modified: Some(now), changed: Some(now), ..DirectoryDelta::default() };
                t.merge(keys::directory(ino), &delta);
            }
            t.count(1, 0);
            let state = DirectoryState { modified: now, changed: now, entries: 0, directories: 0 };
            let made = Attributes::new(&dinode, (new.kind == FileKind::Directory).then_some(state));
            self.note(t, idempotency_key, &made)?;
            Ok(made)
        })?;
        Ok((made, committed.seq))
    }

    /// Adds another name to a file.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `NotDirectory`, `TooManyLinks`; `NotPermitted` for directories.
    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8], now: Time) -> Result<(Attributes, TxId)> {
        self.link_once(ino, parent, name, now, None)
    }

    /// As `link`, for a request whose answer `answer_of` returns from then on.
    ///
    /// # Errors
    /// As `link`.
    pub fn link_once(
        &self,
        ino: Ino,
        parent: Ino,
        name: &[u8],
        now: Time,
        idempotency_key: Option<&IdempotencyKey>,
    ) -> Result<(Attributes, TxId)> {
        check_name(name)?;
        let (linked, committed) = run(&*self.kv, |t| {
            let FoundDinode { mut dinode, entry: inside } = find(t, ino)?;
            if dinode.kind == FileKind::Directory {
                return Err(Error::NotPermitted);
            }
            if directory(t, parent)?.links == 0 {
                return Err(Error::NotFound);
            }
            if entry(t, parent, name)?.is_some() {
                return Err(Error::Exists);
            }
            if dinode.links == 0 {
                t.delete(keys::orphan(ino));
            }
            if dinode.links >= MAX_LINKS {
                return Err(Error::TooManyLinks);
            }
            dinode.links += 1;
            dinode.changed = now;
            // With a second name, the dinode moves out of the first name's entry.
            if let Some((first_parent, first_name)) = inside {
                t.put(keys::entry(first_parent, &first_name), &Entry::Elsewhere(ino, dinode.kind));
            }
            t.put(keys::inode_location(ino), &InodeLocation::Here(dinode.clone()));
            t.put(keys::entry(parent, name), &Entry::Elsewhere(ino, dinode.kind));
            count(t, parent, 1, dinode.kind, now);
            let linked = Attributes::new(&dinode, None);
            self.note(t, idempotency_key, &linked)?;
            Ok(linked)
        })?;
        Ok((linked, committed.seq))
    }
}

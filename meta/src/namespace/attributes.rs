//! Reads and sets attributes and extended attributes.

use super::MAX_NAME;
use super::find::{find, put};
use crate::record::{Content, Dinode, DirectoryDelta, DirectoryState, FileKind, Time};
use crate::transaction::run;
use crate::{Error, IdempotencyKey, Meta, Result, keys};
use plan::{Ino, TxId};
use serde::{Deserialize, Serialize};

/// The largest value of an extended attribute, in bytes.
const MAX_ATTRIBUTE: usize = 65_536;

/// The attributes that `stat` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// The file's number (ino).
    pub ino: Ino,
    /// The file's type.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Number of names; for a directory, two plus its subdirectories.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, for devices.
    pub device: u32,
    /// Size of the content, in bytes; for a directory, a number that grows with its entries.
    pub size: u64,
    /// Size without holes, in bytes.
    pub allocated: u64,
    /// Last access.
    pub accessed: Time,
    /// Last change of content.
    pub modified: Time,
    /// Last change of content or attributes.
    pub changed: Time,
    /// Creation time.
    pub created: Time,
}

/// The extended attribute that holds the capabilities of a program file, see capabilities(7).
pub const FILE_CAPABILITIES: &[u8] = b"security.capability";

/// Clears set-user-ID, and set-group-ID if the group may execute; without that, the bit gives no
/// rights.
pub fn unprivileged(mode: u32) -> u32 {
    const SET_USER: u32 = 0o4000;
    const SET_GROUP: u32 = 0o2000;
    const GROUP_EXECUTES: u32 = 0o10;
    let group = if mode & GROUP_EXECUTES == 0 { 0 } else { SET_GROUP };
    mode & !(SET_USER | group)
}

/// Refuses an invalid extended attribute.
pub(super) fn check_attribute(name: &[u8], value: &[u8]) -> Result<()> {
    if name.len() > MAX_NAME {
        return Err(Error::NameTooLong);
    }
    if name.is_empty() || value.len() > MAX_ATTRIBUTE {
        return Err(Error::Invalid("no attribute can have that name or size".into()));
    }
    Ok(())
}

impl Attributes {
    pub(crate) fn new(dinode: &Dinode, state: Option<DirectoryState>) -> Self {
        let mut attributes = Self {
            ino: dinode.ino,
            kind: dinode.kind,
            mode: dinode.mode,
            links: dinode.links,
            uid: dinode.uid,
            gid: dinode.gid,
            device: dinode.device,
            size: match &dinode.content {
                Content::Link(target) => target.len() as u64,
                _ => dinode.size,
            },
            allocated: dinode.allocated,
            accessed: dinode.accessed,
            modified: dinode.modified,
            changed: dinode.changed,
            created: dinode.created,
        };
        if let Some(state) = state {
            attributes.links = if dinode.links == 0 { 0 } else { 2 + u32::try_from(state.directories).unwrap_or(0) };
            attributes.size = 4096 + 32 * u64::try_from(state.entries).unwrap_or(0);
            attributes.modified = state.modified;
            attributes.changed = state.changed;
        }
        attributes
    }
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetTime {
    /// The time of the operation.
    Now,
    /// This time.
    To(Time),
}

/// Attributes to set; `None` leaves one unchanged. [`Meta::change_content`] sets the size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttributeChange {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access.
    pub accessed: Option<SetTime>,
    /// Last change of content.
    pub modified: Option<SetTime>,
    /// Last change of content or attributes; the time of the operation if `None`.
    pub changed: Option<Time>,
    /// Creation time.
    pub created: Option<Time>,
}

impl Meta {
    /// The attributes of a dinode that the caller has read.
    pub(crate) fn attributes_of(&self, dinode: &Dinode) -> Result<Attributes> {
        let state = if dinode.kind == FileKind::Directory { Some(self.directory_state(dinode.ino)?) } else { None };
        Ok(Attributes::new(dinode, state))
    }

    /// The attributes of a file.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn attributes(&self, ino: Ino) -> Result<Attributes> {
        self.attributes_of(&self.dinode(ino)?)
    }

    /// The attributes of the file of this name. `.` and `..` work as names here.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`, `NameTooLong`.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attributes> {
        match name {
            _ if name.len() > MAX_NAME => Err(Error::NameTooLong),
            b"." => self.attributes(parent),
            b".." => self.attributes(self.parent(parent)?),
            _ => match self.dinode_at(parent, name) {
                Err(Error::NotFound) if self.dinode(parent)?.kind != FileKind::Directory => Err(Error::NotDirectory),
                found => self.attributes_of(&found?),
            },
        }
    }

    /// The parent of a directory; the root is its own parent.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn parent(&self, ino: Ino) -> Result<Ino> {
        let inode_location = self.kv.get(&keys::inode_location(ino))?.ok_or(Error::NotFound)?;
        Ok(match crate::record::decode(&inode_location)? {
            crate::record::InodeLocation::Entry { parent, .. } => parent,
            crate::record::InodeLocation::Here(_) => ino,
        })
    }

    /// The path of a file from the root, without a leading slash; `None` for a file with several
    /// names or none.
    ///
    /// # Errors
    /// `NotFound`; when the metadata cannot be read.
    pub fn path(&self, ino: Ino) -> Result<Option<Vec<u8>>> {
        let (mut at, mut path) = (ino, Vec::new());
        while at != super::ROOT {
            let inode_location =
                crate::record::decode(&self.kv.get(&keys::inode_location(at))?.ok_or(Error::NotFound)?)?;
            let crate::record::InodeLocation::Entry { parent, name } = inode_location else { return Ok(None) };
            // A cycle of directories is impossible; but if there were one, the loop would end here.
            if path.len() > 65_536 {
                return Ok(None);
            }
            let behind = std::mem::replace(&mut path, name);
            if !behind.is_empty() {
                path.push(b'/');
                path.extend(behind);
            }
            at = parent;
        }
        Ok(Some(path))
    }

    /// The committed attributes of a file, and its path as [`path`](Self::path) returns it, if it
    /// has a name. A server that carries this out waits for no client.
    ///
    /// # Errors
    /// `NotFound`; when the metadata cannot be read.
    pub fn describe(&self, ino: Ino) -> Result<(Attributes, Option<Vec<u8>>)> {
        let attributes = self.attributes(ino)?;
        match self.path(ino) {
            Err(Error::NotFound) => Ok((attributes, None)),
            path => Ok((attributes, path?)),
        }
    }

    /// Sets attributes and returns all of them.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn set_attributes(&self, ino: Ino, change: AttributeChange, now: Time) -> Result<(Attributes, TxId)> {
        self.set_attributes_once(ino, change, now, None)
    }

    /// As `set_attributes`, for a request whose answer `answer_of` returns from then on.
    ///
    /// # Errors
    /// As `set_attributes`.
    pub fn set_attributes_once(
        &self,
        ino: Ino,
        change: AttributeChange,
        now: Time,
        idempotency_key: Option<&IdempotencyKey>,
    ) -> Result<(Attributes, TxId)> {
        let at = |time| match time {
            SetTime::Now => now,
            SetTime::To(time) => time,
        };
        let (shown, outcome) = run(&*self.kv, |t| {
            let mut found = find(t, ino)?;
            let dinode = &mut found.dinode;
            dinode.mode = change.mode.map_or(dinode.mode, |mode| mode & 0o7777);
            dinode.uid = change.uid.unwrap_or(dinode.uid);
            dinode.gid = change.gid.unwrap_or(dinode.gid);
            dinode.accessed = change.accessed.map_or(dinode.accessed, at);
            dinode.created = change.created.unwrap_or(dinode.created);
            let (modified, changed) = (change.modified.map(at), change.changed.unwrap_or(now));
            let is_directory = dinode.kind == FileKind::Directory;
            if is_directory {
                let delta = DirectoryDelta { modified, changed: Some(changed), ..DirectoryDelta::default() };
                t.merge(keys::directory(ino), &delta);
            } else {
                dinode.modified = modified.unwrap_or(dinode.modified);
                dinode.changed = changed;
            }
            // Others may add entries meanwhile, which the answer may have or not.
            let state = if is_directory { Some(self.directory_state(ino)?) } else { None };
            let state =
                state.map(|state| DirectoryState { modified: modified.unwrap_or(state.modified), changed, ..state });
            let shown = Attributes::new(&found.dinode, state);
            put(t, found);
            self.note(t, idempotency_key, &shown)?;
            Ok(shown)
        })?;
        Ok((shown, outcome.seq))
    }

    /// Whether a file gives rights to a user who executes it: set-user-ID, set-group-ID or
    /// [capabilities](FILE_CAPABILITIES). They must be removed before another user changes its
    /// content. A server that carries this out waits for no client.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn has_privileges(&self, ino: Ino) -> Result<bool> {
        let dinode = self.dinode(ino)?;
        Ok(dinode.kind == FileKind::File
            && (dinode.mode != unprivileged(dinode.mode)
                || self.kv.get(&keys::attribute(ino, FILE_CAPABILITIES))?.is_some()))
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` when the file is not a symbolic link.
    pub fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        match self.dinode(ino)?.content {
            Content::Link(target) => Ok(target),
            _ => Err(Error::Invalid("not a symbolic link".into())),
        }
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// `NotFound`, `NoAttribute`.
    pub fn attribute(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        match self.kv.get(&keys::attribute(ino, name))? {
            Some(value) => Ok(value),
            None => self.dinode(ino).and(Err(Error::NoAttribute)),
        }
    }

    /// The names of a file's extended attributes.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn attribute_names(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let range = keys::attributes(ino);
        let found = self.kv.scan(&range.start..&range.end, usize::MAX)?;
        Ok(found.into_iter().map(|(key, _)| key[9..].to_vec()).collect())
    }

    /// Sets an extended attribute. `must_exist` says whether it must exist already or must not.
    ///
    /// # Errors
    /// `NotFound`, `NoAttribute`, `Exists`; `Invalid` and `NameTooLong` for an invalid name or
    /// value.
    pub fn set_attribute(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        must_exist: Option<bool>,
        now: Time,
    ) -> Result<TxId> {
        self.set_attribute_once(ino, name, value, must_exist, now, None)
    }

    /// The same for a request that must be carried out only once; see [`Meta::answer_of`].
    ///
    /// # Errors
    /// As `set_attribute`.
    pub fn set_attribute_once(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        must_exist: Option<bool>,
        now: Time,
        idempotency_key: Option<&IdempotencyKey>,
    ) -> Result<TxId> {
        check_attribute(name, value)?;
        let key = keys::attribute(ino, name);
        let ((), committed) = run(&*self.kv, |t| {
            let exists = t.get_bytes(&key)?.is_some();
            match must_exist {
                Some(true) if !exists => return Err(Error::NoAttribute),
                Some(false) if exists => return Err(Error::Exists),
                _ => {}
            }
            t.put_bytes(key.clone(), value.to_vec());
            touch(t, ino, now)?;
            self.note(t, idempotency_key, &())
        })?;
        Ok(committed.seq)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `NotFound`, `NoAttribute`.
    pub fn remove_attribute(&self, ino: Ino, name: &[u8], now: Time) -> Result<TxId> {
        self.remove_attribute_once(ino, name, now, None)
    }

    /// The same for a request that must be carried out only once; see [`Meta::answer_of`].
    ///
    /// # Errors
    /// As `remove_attribute`.
    pub fn remove_attribute_once(
        &self,
        ino: Ino,
        name: &[u8],
        now: Time,
        idempotency_key: Option<&IdempotencyKey>,
    ) -> Result<TxId> {
        let key = keys::attribute(ino, name);
        let ((), committed) = run(&*self.kv, |t| {
            t.get_bytes(&key)?.ok_or(Error::NoAttribute)?;
            t.delete(key.clone());
            touch(t, ino, now)?;
            self.note(t, idempotency_key, &())
        })?;
        Ok(committed.seq)
    }
}

/// Sets the time of the last change of content or attributes.
pub(super) fn touch(t: &mut crate::transaction::Transaction, ino: Ino, now: Time) -> Result<()> {
    let mut found = find(t, ino)?;
    if found.dinode.kind == FileKind::Directory {
        t.merge(keys::directory(ino), &DirectoryDelta { changed: Some(now), ..DirectoryDelta::default() });
    } else {
        found.dinode.changed = now;
        put(t, found);
    }
    Ok(())
}

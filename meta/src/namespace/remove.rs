//! Removes names, and files with their last name.

use super::content::release;
use super::create::count;
use super::find::{entry, find};
use crate::record::DeadStripe;
use crate::record::{Content, Dinode, Entry, FileKind, InodeLocation, Time};
use crate::transaction::{MAX_REMOVED_KEYS, Transaction, run};
use crate::{Error, IdempotencyKey, Meta, Result, keys};
use plan::{Ino, TxId};
use serde::{Deserialize, Serialize};

/// The result of removing a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// The file.
    pub ino: Ino,
    /// This was the file's last name.
    pub last: bool,
    /// The file has no name any more and waits for [`Meta::drop_orphan`].
    pub orphan: bool,
    /// Stripes to which nothing refers any more.
    pub dead: Vec<DeadStripe>,
    /// The transaction's number.
    pub seq: TxId,
}

/// Removes one name from a file whose entry is being removed or replaced. `keep` keeps a file
/// without names for clients that have it open. Returns whether it was the last name, and whether
/// the file is now an orphan.
pub(super) fn drop_name(t: &mut Transaction, entry: Entry, keep: bool, now: Time) -> Result<(bool, bool)> {
    let mut dinode = match entry {
        Entry::Inside(dinode) => dinode,
        Entry::Elsewhere(ino, _) => find(t, ino)?.dinode,
    };
    // None are left if others removed all names after this transaction read the entry: then it
    // begins anew.
    let left = dinode.links.checked_sub(1);
    dinode.links = left.ok_or_else(|| Error::Corrupt("a name of a file without names".into()))?;
    dinode.changed = now;
    if dinode.links > 0 {
        t.put(keys::inode_location(dinode.ino), &InodeLocation::Here(dinode));
        return Ok((false, false));
    }
    // A small file is removed here; a file with many extents or attributes, or an open one, first
    // becomes an orphan.
    if keep || dinode.content == Content::Elsewhere || !drop_few_attributes(t, dinode.ino)? {
        t.put(keys::orphan(dinode.ino), &());
        t.put(keys::inode_location(dinode.ino), &InodeLocation::Here(dinode));
        return Ok((true, true));
    }
    erase(t, &dinode);
    Ok((true, false))
}

/// The most attributes of a file that is removed in one transaction with others.
const FEW_ATTRIBUTES: usize = 16;

/// Removes the attributes of a file if they are few. Returns whether they were.
fn drop_few_attributes(t: &mut Transaction, ino: Ino) -> Result<bool> {
    let found = t.scan(&keys::attributes(ino), FEW_ATTRIBUTES + 1)?;
    let are_few = found.len() <= FEW_ATTRIBUTES;
    if are_few {
        found.into_iter().for_each(|(key, _)| t.delete(key));
    }
    Ok(are_few)
}

/// Whether a directory has no attributes, now and at the commit. One that is set meanwhile changes
/// nothing else that the removal of a directory reads.
fn has_no_attributes(t: &mut Transaction, ino: Ino) -> Result<bool> {
    let attributes = keys::attributes(ino);
    let is_empty = t.scan(&attributes, 1)?.is_empty();
    if is_empty {
        t.must_be_empty(attributes);
    }
    Ok(is_empty)
}

/// The most attributes that one transaction removes: each may have 64 KiB, which are read for that.
const MANY_ATTRIBUTES: usize = 256;

/// Removes some attributes of a file. Returns whether there were any.
fn drop_attributes(t: &mut Transaction, ino: Ino) -> Result<bool> {
    let some = t.scan(&keys::attributes(ino), MANY_ATTRIBUTES)?;
    if some.is_empty() {
        return has_no_attributes(t, ino).map(|has_none| !has_none);
    }
    some.into_iter().for_each(|(key, _)| t.delete(key));
    Ok(true)
}

/// Removes all of a file except its names, the extents that have keys of their own, and its
/// attributes.
fn erase(t: &mut Transaction, dinode: &Dinode) {
    if let Content::Here(extents) = &dinode.content {
        release(t, extents);
    }
    t.delete(keys::inode_location(dinode.ino));
    t.count(-1, 0);
}

impl Meta {
    /// Removes the name of a file other than a directory. `ino` is the file that the caller expects
    /// to have the name. With `keep`, a file that loses its last name exists until
    /// [`Meta::drop_orphan`].
    ///
    /// # Errors
    /// `NotFound`, also when another file has the name; `IsDirectory`.
    pub fn unlink(&self, parent: Ino, name: &[u8], ino: Ino, keep: bool, now: Time) -> Result<Removed> {
        self.unlink_once(parent, name, ino, keep, now, None)
    }

    /// As `unlink`, for a request whose answer `answer_of` returns from then on: whether this was
    /// the last name, and whether the file is an orphan.
    ///
    /// # Errors
    /// As `unlink`.
    pub fn unlink_once(
        &self,
        parent: Ino,
        name: &[u8],
        ino: Ino,
        keep: bool,
        now: Time,
        idempotency_key: Option<&IdempotencyKey>,
    ) -> Result<Removed> {
        let ((last, orphan), committed) = run(&*self.kv, |t| {
            let found = entry(t, parent, name)?.filter(|found| found.ino() == ino).ok_or(Error::NotFound)?;
            if found.kind() == FileKind::Directory {
                return Err(Error::IsDirectory);
            }
            count(t, parent, -1, found.kind(), now);
            t.delete(keys::entry(parent, name));
            let gone = drop_name(t, found, keep, now)?;
            self.note(t, idempotency_key, &gone)?;
            Ok(gone)
        })?;
        Ok(Removed { ino, last, orphan, dead: committed.dead, seq: committed.seq })
    }

    /// Removes an empty directory. `ino` is the directory that the caller expects to have the name.
    /// With `keep`, its dinode exists, without a name, until [`Meta::drop_orphan`].
    ///
    /// # Errors
    /// `NotFound`, also when another directory has the name; `NotDirectory`, `NotEmpty`.
    pub fn remove_directory(&self, parent: Ino, name: &[u8], ino: Ino, keep: bool, now: Time) -> Result<Removed> {
        self.remove_directory_once(parent, name, ino, keep, now, None)
    }

    /// As `remove_directory`, for a request whose answer `answer_of` returns from then on: whether
    /// this was the last name, and whether the directory is an orphan.
    ///
    /// # Errors
    /// As `remove_directory`.
    pub fn remove_directory_once(
        &self,
        parent: Ino,
        name: &[u8],
        ino: Ino,
        keep: bool,
        now: Time,
        idempotency_key: Option<&IdempotencyKey>,
    ) -> Result<Removed> {
        let (orphan, committed) = run(&*self.kv, |t| {
            let found = entry(t, parent, name)?.filter(|found| found.ino() == ino).ok_or(Error::NotFound)?;
            if found.kind() != FileKind::Directory {
                return Err(Error::NotDirectory);
            }
            must_be_empty(t, ino)?;
            count(t, parent, -1, FileKind::Directory, now);
            t.delete(keys::entry(parent, name));
            let orphan = drop_directory(t, found, keep)?;
            self.note(t, idempotency_key, &(true, orphan))?;
            Ok(orphan)
        })?;
        Ok(Removed { ino, last: true, orphan, dead: Vec::new(), seq: committed.seq })
    }

    /// Removes a file without a name, a large one in several transactions. Calls `freed` with the
    /// stripes that lost their last reference in each. Does nothing when the file is not an orphan.
    ///
    /// # Errors
    /// When the metadata cannot be written.
    pub fn drop_orphan(&self, ino: Ino, mut freed: impl FnMut(Vec<DeadStripe>, TxId)) -> Result<()> {
        loop {
            let (more, committed) = run(&*self.kv, |t| {
                if t.get_bytes(&keys::orphan(ino))?.is_none() {
                    return Ok(false);
                }
                let dinode = find(t, ino)?.dinode;
                let extents = t.scan(&keys::extents(ino), MAX_REMOVED_KEYS)?;
                for (key, value) in &extents {
                    release(t, &[super::content::decode_extent(key, value)?]);
                    t.delete(key.clone());
                }
                if extents.len() == MAX_REMOVED_KEYS || drop_attributes(t, ino)? {
                    return Ok(true);
                }
                t.delete(keys::orphan(ino));
                if dinode.kind == FileKind::Directory {
                    t.delete(keys::directory(ino));
                }
                erase(t, &dinode);
                Ok(false)
            })?;
            freed(committed.dead, committed.seq);
            if !more {
                return Ok(());
            }
        }
    }

    /// Removes orphans in one transaction, except directories with attributes, and files that have
    /// many of these or whose extents have keys of their own. Returns those that are left for
    /// [`Meta::drop_orphan`].
    ///
    /// # Errors
    /// When the metadata cannot be written.
    pub fn drop_small_orphans(&self, inos: &[Ino]) -> Result<(Vec<Ino>, Vec<DeadStripe>, TxId)> {
        let (large, committed) = run(&*self.kv, |t| {
            let mut large = Vec::new();
            for &ino in inos {
                if t.get_bytes(&keys::orphan(ino))?.is_none() {
                    continue;
                }
                let dinode = find(t, ino)?.dinode;
                let is_directory = dinode.kind == FileKind::Directory;
                let is_small = match is_directory {
                    true => has_no_attributes(t, ino)?,
                    false => dinode.content != Content::Elsewhere && drop_few_attributes(t, ino)?,
                };
                if !is_small {
                    large.push(ino);
                    continue;
                }
                t.delete(keys::orphan(ino));
                if is_directory {
                    t.delete(keys::directory(ino));
                }
                erase(t, &dinode);
            }
            Ok(large)
        })?;
        Ok((large, committed.dead, committed.seq))
    }

    /// Files without names, left by clients that had them open.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn orphans(&self) -> Result<Vec<Ino>> {
        let range = keys::under(vec![keys::ORPHAN]);
        let found = self.kv.scan(&range.start..&range.end, usize::MAX)?;
        Ok(found.iter().map(|(key, _)| Ino(keys::number(key, 1))).collect())
    }
}

/// Fails when a directory has entries, now or at the commit.
pub(super) fn must_be_empty(t: &mut Transaction, ino: Ino) -> Result<()> {
    let entries = keys::entries(ino);
    if !t.scan(&entries, 1)?.is_empty() {
        return Err(Error::NotEmpty);
    }
    t.must_be_empty(entries);
    Ok(())
}

/// Removes a directory whose entry is being removed or replaced.
pub(super) fn drop_directory(t: &mut Transaction, entry: Entry, keep: bool) -> Result<bool> {
    let Entry::Inside(mut dinode) = entry else { return Err(Error::Corrupt("a directory with two names".into())) };
    if keep || !has_no_attributes(t, dinode.ino)? {
        dinode.links = 0;
        t.put(keys::orphan(dinode.ino), &());
        t.put(keys::inode_location(dinode.ino), &InodeLocation::Here(dinode));
        return Ok(true);
    }
    t.delete(keys::directory(dinode.ino));
    erase(t, &dinode);
    Ok(false)
}

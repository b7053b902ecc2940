//! Renames files.

use super::create::count;
use super::find::{directory, entry};
use super::remove::{Removed, drop_directory, drop_name, must_be_empty};
use super::{ROOT, check_name};
use crate::record::{DirectoryDelta, Entry, FileKind, InodeLocation, Time};
use crate::transaction::{Transaction, run};
use crate::{Error, IdempotencyKey, Meta, Result, keys};
use plan::{Ino, TxId};
use serde::{Deserialize, Serialize};

/// What to do when a file already has the new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RenameMode {
    /// Replace that file.
    Replace,
    /// Fail.
    NoReplace,
    /// Exchange the two names.
    Exchange,
}

/// A rename request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rename {
    /// The file's current directory and name.
    pub from: (Ino, Vec<u8>),
    /// The new directory and name.
    pub to: (Ino, Vec<u8>),
    /// What to do when a file already has the new name.
    pub mode: RenameMode,
    /// The file that the caller expects to have the new name.
    pub replaced: Option<Ino>,
    /// Keeps that file until [`Meta::drop_orphan`] when this was its last name.
    pub keep: bool,
}

impl Meta {
    /// Renames a file.
    ///
    /// # Errors
    /// `NotFound`, also when another file than `replaced` has the new name by now; `Exists`,
    /// `NotEmpty`, `IsDirectory`, `NotDirectory`; `Invalid` when a directory would move into
    /// itself.
    pub fn rename(&self, rename: &Rename, now: Time) -> Result<(Option<Removed>, TxId)> {
        self.rename_once(rename, now, None)
    }

    /// As `rename`, for a request whose answer `answer_of` returns from then on: the file that lost
    /// the new name, whether that was its last name, and whether it is an orphan.
    ///
    /// # Errors
    /// As `rename`.
    pub fn rename_once(
        &self,
        rename: &Rename,
        now: Time,
        idempotency_key: Option<&IdempotencyKey>,
    ) -> Result<(Option<Removed>, TxId)> {
        check_name(&rename.from.1)?;
        check_name(&rename.to.1)?;
        let (gone, committed) = run(&*self.kv, |t| {
            let gone = rename_in(t, rename, now)?;
            self.note(t, idempotency_key, &gone)?;
            Ok(gone)
        })?;
        let dead = committed.dead;
        let removed = gone.map(|(ino, last, orphan)| Removed { ino, last, orphan, dead, seq: committed.seq });
        Ok((removed, committed.seq))
    }
}

/// Renames a file within a transaction. Returns the file that lost the new name, whether that was
/// its last name, and whether it is an orphan.
fn rename_in(t: &mut Transaction, rename: &Rename, now: Time) -> Result<Option<(Ino, bool, bool)>> {
    let &Rename { mode, replaced, keep, .. } = rename;
    let (from, to) = ((rename.from.0, &*rename.from.1), (rename.to.0, &*rename.to.1));
    let old = entry(t, from.0, from.1)?.ok_or(Error::NotFound)?;
    if directory(t, to.0)?.links == 0 {
        return Err(Error::NotFound);
    }
    let new = entry(t, to.0, to.1)?;
    if mode == RenameMode::NoReplace && new.is_some() {
        return Err(Error::Exists);
    }
    if new.as_ref().map(Entry::ino) != replaced {
        return Err(Error::NotFound);
    }
    if new.as_ref().is_some_and(|new| new.ino() == old.ino()) {
        return Ok(None);
    }
    if from.0 != to.0 {
        must_not_enclose(t, &old, to.0)?;
    }
    match (mode, new) {
        (RenameMode::Exchange, None) => Err(Error::NotFound),
        (RenameMode::Exchange, Some(new)) => {
            if from.0 != to.0 {
                must_not_enclose(t, &new, from.0)?;
            }
            for (parent, gone, come) in [(from.0, &old, &new), (to.0, &new, &old)] {
                count(t, parent, -1, gone.kind(), now);
                count(t, parent, 1, come.kind(), now);
            }
            settle(t, new, from, now)?;
            settle(t, old, to, now)?;
            Ok(None)
        }
        (_, new) => {
            let mut gone = None;
            if let Some(new) = new {
                let ino = new.ino();
                count(t, to.0, -1, new.kind(), now);
                let (last, orphan) = match (old.kind() == FileKind::Directory, new.kind() == FileKind::Directory) {
                    (true, false) => return Err(Error::NotDirectory),
                    (false, true) => return Err(Error::IsDirectory),
                    (true, true) => {
                        must_be_empty(t, ino)?;
                        (true, drop_directory(t, new, keep)?)
                    }
                    (false, false) => drop_name(t, new, keep, now)?,
                };
                gone = Some((ino, last, orphan));
            }
            count(t, from.0, -1, old.kind(), now);
            count(t, to.0, 1, old.kind(), now);
            t.delete(keys::entry(from.0, from.1));
            settle(t, old, to, now)?;
            Ok(gone)
        }
    }
}

/// Puts a file under a name.
fn settle(t: &mut Transaction, file: Entry, at: (Ino, &[u8]), now: Time) -> Result<()> {
    let (parent, name) = at;
    match file {
        Entry::Inside(mut dinode) => {
            dinode.changed = now;
            if dinode.kind == FileKind::Directory {
                let delta = DirectoryDelta { changed: Some(now), ..DirectoryDelta::default() };
                t.merge(keys::directory(dinode.ino), &delta);
            }
            t.put(keys::inode_location(dinode.ino), &InodeLocation::Entry { parent, name: name.to_vec() });
            t.put(keys::entry(parent, name), &Entry::Inside(dinode));
        }
        Entry::Elsewhere(ino, kind) => {
            super::attributes::touch(t, ino, now)?;
            t.put(keys::entry(parent, name), &Entry::Elsewhere(ino, kind));
        }
    }
    Ok(())
}

/// Fails when `target` is `moved` or is inside it. All directories on the way up are guarded, so
/// that two concurrent renames cannot create a cycle.
fn must_not_enclose(t: &mut Transaction, moved: &Entry, target: Ino) -> Result<()> {
    if moved.kind() != FileKind::Directory {
        return Ok(());
    }
    let mut at = target;
    while at != ROOT {
        if at == moved.ino() {
            return Err(Error::Invalid("a directory cannot be moved into itself".into()));
        }
        match t.get(&keys::inode_location(at))?.ok_or(Error::NotFound)? {
            InodeLocation::Entry { parent, .. } => at = parent,
            InodeLocation::Here(_) => break,
        }
    }
    Ok(())
}

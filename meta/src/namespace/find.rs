//! Finds dinodes, and writes them back to where they were.

use crate::record::{Dinode, DirectoryState, Entry, FileKind, InodeLocation};
use crate::transaction::Transaction;
use crate::{Error, Meta, Result, keys};
use plan::Ino;

/// A dinode and its place.
pub(crate) struct FoundDinode {
    pub dinode: Dinode,
    /// The entry that holds it; `None` when it is stored under its number.
    pub entry: Option<(Ino, Vec<u8>)>,
}

/// The dinode of a file.
pub(crate) fn find(t: &mut Transaction, ino: Ino) -> Result<FoundDinode> {
    match t.get(&keys::inode_location(ino))?.ok_or(Error::NotFound)? {
        InodeLocation::Here(dinode) => Ok(FoundDinode { dinode, entry: None }),
        InodeLocation::Entry { parent, name } => match t.get(&keys::entry(parent, &name))? {
            Some(Entry::Inside(dinode)) if dinode.ino == ino => Ok(FoundDinode { dinode, entry: Some((parent, name)) }),
            // The file moved between the two reads. Both are guarded, so the commit would notice.
            // For callers that only read, `find_unguarded` retries.
            _ => Err(Error::NotFound),
        },
    }
}

/// Writes a changed dinode back to its place.
pub(crate) fn put(t: &mut Transaction, found: FoundDinode) {
    match found.entry {
        Some((parent, name)) => t.put(keys::entry(parent, &name), &Entry::Inside(found.dinode)),
        None => t.put(keys::inode_location(found.dinode.ino), &InodeLocation::Here(found.dinode)),
    }
}

/// The dinode of a directory.
pub(crate) fn directory(t: &mut Transaction, ino: Ino) -> Result<Dinode> {
    let found = find(t, ino)?.dinode;
    if found.kind == FileKind::Directory { Ok(found) } else { Err(Error::NotDirectory) }
}

/// The entry of a name.
pub(crate) fn entry(t: &mut Transaction, parent: Ino, name: &[u8]) -> Result<Option<Entry>> {
    t.get(&keys::entry(parent, name))
}

impl Entry {
    pub(crate) fn ino(&self) -> Ino {
        match self {
            Self::Inside(dinode) => dinode.ino,
            Self::Elsewhere(ino, _) => *ino,
        }
    }

    pub(crate) fn kind(&self) -> FileKind {
        match self {
            Self::Inside(dinode) => dinode.kind,
            Self::Elsewhere(_, kind) => *kind,
        }
    }
}

impl Meta {
    /// The dinode of a file, from some single moment.
    pub(crate) fn dinode(&self, ino: Ino) -> Result<Dinode> {
        // If the file is renamed during the search, the next attempt finds it. Only a file that is
        // renamed all the time is not found.
        for _ in 0..100 {
            let inode_location = self.kv.get(&keys::inode_location(ino))?.ok_or(Error::NotFound)?;
            match crate::record::decode(&inode_location)? {
                InodeLocation::Here(dinode) => return Ok(dinode),
                InodeLocation::Entry { parent, name } => {
                    let entry = self.kv.get(&keys::entry(parent, &name))?;
                    match entry.as_deref().map(crate::record::decode).transpose()? {
                        Some(Entry::Inside(dinode)) if dinode.ino == ino => return Ok(dinode),
                        _ => {}
                    }
                }
            }
        }
        Err(Error::NotFound)
    }

    /// The dinode behind a name.
    pub(crate) fn dinode_at(&self, parent: Ino, name: &[u8]) -> Result<Dinode> {
        let entry = self.kv.get(&keys::entry(parent, name))?.ok_or(Error::NotFound)?;
        match crate::record::decode(&entry)? {
            Entry::Inside(dinode) => Ok(dinode),
            Entry::Elsewhere(ino, _) => self.dinode(ino),
        }
    }

    pub(crate) fn directory_state(&self, ino: Ino) -> Result<DirectoryState> {
        let state = self.kv.get(&keys::directory(ino))?;
        Ok(state.as_deref().map(crate::record::decode).transpose()?.unwrap_or_default())
    }
}

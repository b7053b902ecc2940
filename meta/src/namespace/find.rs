//! Finding dinodes, and putting them back where they were.

use crate::record::{Dinode, DirectoryState, Entry, Home, Kind};
use crate::transaction::Transaction;
use crate::{Error, Meta, Result, keys};

/// A dinode and where it is.
pub(crate) struct Found {
    pub dinode: Dinode,
    /// The entry that has it; None when it stands under its number.
    pub entry: Option<(u64, Vec<u8>)>,
}

/// The dinode of a number.
pub(crate) fn find(t: &mut Transaction, ino: u64) -> Result<Found> {
    match t.get(&keys::home(ino))?.ok_or(Error::NotFound)? {
        Home::Here(dinode) => Ok(Found { dinode, entry: None }),
        Home::Entry { parent, name } => match t.get(&keys::entry(parent, &name))? {
            Some(Entry::Inside(dinode)) if dinode.ino == ino => Ok(Found { dinode, entry: Some((parent, name)) }),
            // It moved between the two reads; what was read is guarded, so that the commit would notice. For those who only
            // read, `find_unguarded` tries again.
            _ => Err(Error::NotFound),
        },
    }
}

/// Writes a changed dinode where it was found.
pub(crate) fn put(t: &mut Transaction, found: Found) {
    match found.entry {
        Some((parent, name)) => t.put(keys::entry(parent, &name), &Entry::Inside(found.dinode)),
        None => t.put(keys::home(found.dinode.ino), &Home::Here(found.dinode)),
    }
}

/// The directory of a number.
pub(crate) fn directory(t: &mut Transaction, ino: u64) -> Result<Dinode> {
    let found = find(t, ino)?.dinode;
    if found.kind == Kind::Directory { Ok(found) } else { Err(Error::NotDirectory) }
}

/// The entry of a name.
pub(crate) fn entry(t: &mut Transaction, parent: u64, name: &[u8]) -> Result<Option<Entry>> {
    t.get(&keys::entry(parent, name))
}

impl Entry {
    pub(crate) fn ino(&self) -> u64 {
        match self {
            Self::Inside(dinode) => dinode.ino,
            Self::Elsewhere(ino, _) => *ino,
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Inside(dinode) => dinode.kind,
            Self::Elsewhere(_, kind) => *kind,
        }
    }
}

impl Meta {
    /// The dinode of a number, as of some moment.
    pub(crate) fn dinode(&self, ino: u64) -> Result<Dinode> {
        // A file that is renamed while it is looked for is found at the second try; only one that is renamed all the time is not.
        for _ in 0..100 {
            let home = self.kv.get(&keys::home(ino))?.ok_or(Error::NotFound)?;
            match crate::record::decode(&home)? {
                Home::Here(dinode) => return Ok(dinode),
                Home::Entry { parent, name } => {
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
    pub(crate) fn dinode_at(&self, parent: u64, name: &[u8]) -> Result<Dinode> {
        let entry = self.kv.get(&keys::entry(parent, name))?.ok_or(Error::NotFound)?;
        match crate::record::decode(&entry)? {
            Entry::Inside(dinode) => Ok(dinode),
            Entry::Elsewhere(ino, _) => self.dinode(ino),
        }
    }

    pub(crate) fn directory_state(&self, ino: u64) -> Result<DirectoryState> {
        let state = self.kv.get(&keys::directory(ino))?;
        Ok(state.as_deref().map(crate::record::decode).transpose()?.unwrap_or_default())
    }
}

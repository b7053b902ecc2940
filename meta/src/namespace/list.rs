//! Lists directories.

use super::Attributes;
use crate::record::{Entry, decode};
use crate::{Meta, Result, keys};
use plan::Ino;
use serde::{Deserialize, Serialize};

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Where a listing continues after this entry. It stays valid while other entries come and go,
    /// and is at least 256.
    pub cookie: u64,
    /// Its name.
    pub name: Vec<u8>,
    /// Its file's attributes.
    pub attributes: Attributes,
}

impl Meta {
    /// Up to `limit` entries of a directory after `cookie` (0: from the beginning), in the order of
    /// the hashes of their names. The result is empty only at the end.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn list(&self, parent: Ino, cookie: u64, limit: usize) -> Result<Vec<Listed>> {
        // A cookie is the hash of a name and its rank among equal hashes, counted from 1. A hash of
        // 0 is no special case, since hashes are shifted to begin at 256 here.
        let (hash, mut rank) = (cookie & !0xFF, cookie & 0xFF);
        let mut range = keys::entries_from(parent, hash.saturating_sub(256));
        let (mut listed, mut last, mut skip) = (Vec::new(), hash, rank as usize);
        let mut pairs = self.kv.scan(&range.start..&range.end, limit.saturating_add(skip))?.into_iter().peekable();
        while let Some((key, value)) = pairs.next() {
            if pairs.peek().is_none() && listed.is_empty() {
                // If this entry is gone or was listed before, the end is not reached yet.
                range.start = [&key[..], &[0]].concat();
                pairs = self.kv.scan(&range.start..&range.end, limit)?.into_iter().peekable();
            }
            let (hash, name) = keys::entry_name(&key);
            let hash = hash + 256;
            if hash != last {
                (last, rank, skip) = (hash, 0, 0);
            } else if skip > 0 {
                skip -= 1;
                continue;
            }
            rank += 1;
            let Some(attributes) = self.attributes_in(&value)? else { continue };
            listed.push(Listed { cookie: hash | rank.min(0xFF), name: name.to_vec(), attributes });
            if listed.len() == limit {
                break;
            }
        }
        Ok(listed)
    }

    /// The attributes of the file of an entry; None for one that went meanwhile.
    pub(super) fn attributes_in(&self, entry: &[u8]) -> Result<Option<Attributes>> {
        match decode(entry)? {
            Entry::Inside(dinode) => self.attributes_of(&dinode).map(Some),
            Entry::Elsewhere(ino, _) => match self.attributes(ino) {
                Err(crate::Error::NotFound) => Ok(None),
                found => found.map(Some),
            },
        }
    }
}

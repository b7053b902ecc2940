//! Listing directories.

use super::Attributes;
use crate::record::{Entry, decode};
use crate::{Meta, Result, keys};
use serde::{Deserialize, Serialize};

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Where a listing goes on behind it. It stays valid whatever else comes and goes, and is at least 256.
    pub cookie: u64,
    /// Its name.
    pub name: Vec<u8>,
    /// Its file.
    pub attributes: Attributes,
}

impl Meta {
    /// The next entries of a directory behind `cookie` (0: from the beginning), at most `limit`, in the order of the hashes of their names; none
    /// only at the end.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn list(&self, parent: u64, cookie: u64, limit: usize) -> Result<Vec<Listed>> {
        // A cookie is the hash of a name and its rank among equal hashes, from 1. Names whose hash is 0 make no exception, since hashes begin
        // at 256 here.
        let (hash, mut rank) = (cookie & !0xFF, cookie & 0xFF);
        let mut range = keys::entries_from(parent, hash.saturating_sub(256));
        let (mut listed, mut last, mut skip) = (Vec::new(), hash, rank as usize);
        let mut pairs = self.kv.scan(&range.start..&range.end, limit.saturating_add(skip))?.into_iter().peekable();
        while let Some((key, value)) = pairs.next() {
            if pairs.peek().is_none() && listed.is_empty() {
                // If this one is gone, or was listed before, it is not the end yet.
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
            let attributes = match decode(&value)? {
                Entry::Inside(dinode) => self.attributes_of(&dinode)?,
                Entry::Elsewhere(ino, _) => match self.attributes(ino) {
                    Err(crate::Error::NotFound) => continue,
                    found => found?,
                },
            };
            listed.push(Listed { cookie: hash | rank.min(0xFF), name: name.to_vec(), attributes });
            if listed.len() == limit {
                break;
            }
        }
        Ok(listed)
    }
}

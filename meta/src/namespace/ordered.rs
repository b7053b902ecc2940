//! Lists directories in the byte order of S3 keys.

use super::Attributes;
use crate::orders::{Record, text};
use crate::record::{Entry, decode};
use crate::{Meta, Result, keys};
use plan::{Ino, object_name};
use serde::{Deserialize, Serialize};

/// Directories with fewer entries are read and sorted for each page.
const SMALL: usize = 1000;
/// The largest page.
const MAX_PAGE: usize = 10_000;
/// A page ends when its values take this many bytes.
const MAX_VALUES: usize = 4 << 20;
/// How many entries are looked up before their bytes are counted.
const BATCH: usize = 1024;
/// How many threads look entries up.
const MAX_THREADS: usize = 4;
/// Fewer entries are not worth another thread.
const SHARE: usize = 128;

/// The text of an entry, and what is known of it.
type Named = (Vec<u8>, Known);

enum Known {
    Nothing,
    /// The value of its key.
    Entry(Vec<u8>),
    /// An encoded [`Record`].
    Record(Box<[u8]>),
}

/// An entry of a directory that has a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyEntry {
    /// Its name.
    pub name: Vec<u8>,
    /// Its file's attributes: a regular file or a directory.
    pub attributes: Attributes,
    /// The value of the extended attribute that was asked for, if the file has it.
    pub value: Option<Vec<u8>>,
}

/// A page of a directory in the order of [`object_name::order`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyPage {
    /// Entries, in order.
    pub entries: Vec<KeyEntry>,
    /// Where the next page begins; None at the end.
    pub next: Option<Vec<u8>>,
}

impl Meta {
    /// Up to `limit` entries of a directory, from the first whose order is not before `from`, with
    /// an extended attribute of each (none when it is empty). An entry that is there all the time
    /// is on one page of a listing, whatever else comes and goes. None when the directory has too
    /// many names for the memory that there is for that: then it is listed in the order of
    /// [`Meta::list`].
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn list_by_key(&self, parent: Ino, from: &[u8], limit: usize, attribute: &[u8]) -> Result<Option<KeyPage>> {
        let limit = limit.clamp(1, MAX_PAGE);
        let page = match self.orders.kept(parent, from, limit, attribute) {
            Some(page) => page,
            None => match self.small(parent)? {
                Some(all) => {
                    let begin = all.partition_point(|(text, _)| &**text < from);
                    return self.key_page(parent, all.into_iter().skip(begin), limit, None, attribute).map(Some);
                }
                None => match self.orders.page(&*self.kv, parent, from, limit, attribute)? {
                    Some(page) => page,
                    None => return Ok(None),
                },
            },
        };
        let texts = page.texts.into_iter().map(|(text, kept)| (text, kept.map_or(Known::Nothing, Known::Record)));
        self.key_page(parent, texts, limit, page.next, attribute).map(Some)
    }

    /// The entries of these texts, of which the values may be known.
    fn key_page(
        &self,
        parent: Ino,
        mut texts: impl Iterator<Item = Named>,
        limit: usize,
        next: Option<Vec<u8>>,
        attribute: &[u8],
    ) -> Result<KeyPage> {
        let (mut entries, mut bytes) = (Vec::new(), 0);
        loop {
            let wanted: Vec<Named> = texts.by_ref().take(BATCH.min(limit - entries.len())).collect();
            if wanted.is_empty() {
                let next = texts.next().map_or(next, |(text, _)| Some(text));
                return Ok(KeyPage { entries, next });
            }
            for (entry, (text, _)) in self.look_up(parent, &wanted, attribute).into_iter().zip(wanted) {
                if bytes >= MAX_VALUES {
                    return Ok(KeyPage { entries, next: Some(text) });
                }
                let Some(entry) = entry? else { continue };
                bytes += entry.value.as_ref().map_or(0, Vec::len);
                entries.push(entry);
            }
        }
    }

    /// Looks entries up, many at a time by several threads: each waits for memory and disk most of
    /// its time.
    fn look_up(&self, parent: Ino, wanted: &[Named], attribute: &[u8]) -> Vec<Result<Option<KeyEntry>>> {
        let unknown = wanted.iter().filter(|(_, known)| matches!(known, Known::Nothing)).count();
        let threads = match unknown < SHARE {
            true => 1,
            false => std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS),
        };
        let share = wanted.len().div_ceil(threads).max(SHARE);
        let look_up = |share: &[Named]| -> Vec<Result<Option<KeyEntry>>> {
            share.iter().map(|named| self.key_entry(parent, named, attribute)).collect()
        };
        std::thread::scope(|scope| {
            let mut shares = wanted.chunks(share);
            let first = shares.next().unwrap_or_default();
            let others: Vec<_> = shares.map(|share| (share, scope.spawn(move || look_up(share)))).collect();
            let mut found = look_up(first);
            for (share, other) in others {
                // A thread that failed is no reason to fail.
                found.extend(other.join().unwrap_or_else(|_| look_up(share)));
            }
            found
        })
    }

    /// None for an entry that went meanwhile.
    fn key_entry(&self, parent: Ino, (text, known): &Named, attribute: &[u8]) -> Result<Option<KeyEntry>> {
        let Some(name) = object_name::ordered(text) else { return Ok(None) };
        let entry = match known {
            Known::Record(record) => {
                let (entry, value): Record = decode(record)?;
                let Entry::Inside(dinode) = entry else { return Ok(None) };
                let attributes = self.attributes_of(&dinode)?;
                return Ok(Some(KeyEntry { name, attributes, value }));
            }
            Known::Entry(value) => self.attributes_in(value)?,
            Known::Nothing => match self.kv.get(&keys::entry(parent, &name))? {
                Some(value) => self.attributes_in(&value)?,
                None => None,
            },
        };
        let Some(attributes) = entry else { return Ok(None) };
        let value = match attribute {
            b"" => None,
            _ => self.kv.get(&keys::attribute(attributes.ino, attribute))?,
        };
        Ok(Some(KeyEntry { name, attributes, value }))
    }

    /// All entries of a small directory, in order; None for one that is not small.
    fn small(&self, parent: Ino) -> Result<Option<Vec<Named>>> {
        let range = keys::entries(parent);
        let pairs = self.kv.scan(&range.start..&range.end, SMALL + 1)?;
        if pairs.len() > SMALL {
            return Ok(None);
        }
        let mut all = Vec::with_capacity(pairs.len());
        for (key, value) in pairs {
            all.extend(text(&key, &decode(&value)?).map(|text| (text, Known::Entry(value))));
        }
        all.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        Ok(Some(all))
    }
}

//! The entries of one directory in the byte order of keys. A directory is kept by the hash of its
//! names, so this reads all of it: its cost is the number of its entries, whatever the page. Of a
//! directory that does not fit in memory, it keeps the first names that a page can need.

use crate::names;
use crate::objects::Objects;
use fs::{Attributes, FileKind, Ino};
use std::collections::BTreeMap;

/// How many entries are asked for at a time.
const STEP: usize = 1000;
/// What an entry takes besides its name, in bytes: estimated.
const ENTRY_BYTES: u64 = 160;

/// An entry: an object or a prefix of keys.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its part of the key; of a directory with a slash behind it. Keys below a directory begin
    /// with this, so the order of these texts is the order of keys, `a-b` before `a/b`.
    pub part: String,
    /// Its file.
    pub file: Attributes,
    /// Its name in the directory.
    pub name: Vec<u8>,
}

impl Entry {
    /// Whether keys go on below it.
    pub fn is_directory(&self) -> bool {
        self.file.kind == FileKind::Directory
    }

    /// What it takes in memory, in bytes: estimated.
    pub fn bytes(&self) -> u64 {
        ENTRY_BYTES + (self.part.len() + self.name.len()) as u64
    }
}

/// Entries of a directory.
pub struct Level {
    /// In order.
    pub entries: Vec<Entry>,
    /// There are no others behind these.
    pub is_complete: bool,
}

/// The entries of a directory from a part on, in order: all that take `memory` bytes together, or
/// the first of those, at least `least`.
///
/// # Errors
/// When the directory cannot be read.
pub fn read(objects: &Objects, directory: Ino, from: &str, least: usize, memory: u64) -> fs::Result<Level> {
    let (mut found, mut bytes, mut end) = (BTreeMap::<String, Entry>::new(), 0, None::<String>);
    let mut cookie = 0;
    loop {
        let listed = objects.fs.list(directory, cookie, STEP)?;
        let Some(last) = listed.last() else { break };
        cookie = last.cookie;
        for entry in listed {
            if !matches!(entry.attributes.kind, FileKind::File | FileKind::Directory) {
                continue;
            }
            let Some(mut part) = names::part(&entry.name) else { continue };
            let is_plain = !names::is_beside(&entry.name);
            if entry.attributes.kind == FileKind::Directory {
                // Only objects are beside directories.
                if !is_plain {
                    continue;
                }
                part.push('/');
            }
            // Below a directory whose text is a beginning of `from`, keys may be behind `from`.
            if part.as_str() < from && !from.starts_with(&part) {
                continue;
            }
            // Behind a part that was left out, nothing may be kept: the next entries begin there.
            if end.as_ref().is_some_and(|end| part >= *end) {
                continue;
            }
            let entry = Entry { part, file: entry.attributes, name: entry.name };
            // A plain name hides the other one of the same part.
            if found.contains_key(&entry.part) && !is_plain {
                continue;
            }
            bytes += entry.bytes();
            if let Some(before) = found.insert(entry.part.clone(), entry) {
                bytes -= before.bytes();
            }
            while bytes > memory && found.len() > least {
                if let Some((_, last)) = found.pop_last() {
                    bytes -= last.bytes();
                    end = Some(last.part);
                }
            }
        }
    }
    Ok(Level { entries: found.into_values().collect(), is_complete: end.is_none() })
}

//! The entries of one directory in the byte order of keys. The metadata lists directories so, with
//! what is kept of each object. One that has too many names for that is listed in the order of
//! hashes: it is read whole for each page, and the first names that the page can need are kept.

use crate::about::{ATTRIBUTE, About};
use crate::place::Objects;
use fs::{Attributes, FileKind, Ino, object_name as names};
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
    /// What is kept of it, if that is known by now.
    pub about: Option<About>,
}

impl Entry {
    /// Whether keys go on below it.
    pub fn is_directory(&self) -> bool {
        self.file.kind == FileKind::Directory
    }

    fn bytes(&self) -> u64 {
        ENTRY_BYTES + self.part.len() as u64
    }

    /// The lowest text behind it and all keys below it.
    pub fn behind(&self) -> Vec<u8> {
        match self.part.strip_suffix('/').filter(|_| self.is_directory()) {
            // `0` is the next character after a slash.
            Some(directory) => [directory.as_bytes(), b"0"].concat(),
            // Behind the other object of this part, too.
            None => [self.part.as_bytes(), b"\0\0"].concat(),
        }
    }
}

/// The part of an entry; None for a name that stands for none.
fn part(name: &[u8], is_directory: bool) -> Option<String> {
    let part = names::part(name)?;
    Some(if is_directory { part + "/" } else { part })
}

/// Entries of a directory.
#[derive(Default)]
pub struct Level {
    /// In order.
    pub entries: Vec<Entry>,
    /// Where others begin behind these.
    pub next: Option<Vec<u8>>,
}

/// The first entries of a directory from a text on, in order. None where the metadata does not list
/// it so.
///
/// # Errors
/// When the directory cannot be read.
pub fn read(objects: &Objects, directory: Ino, from: &[u8], limit: usize) -> fs::Result<Option<Level>> {
    let Some(page) = objects.fs.list_by_key(directory, from, limit, ATTRIBUTE)? else { return Ok(None) };
    let mut entries = Vec::<Entry>::with_capacity(page.entries.len());
    for fs::KeyEntry { name, attributes, value } in page.entries {
        let is_directory = attributes.kind == FileKind::Directory;
        let Some(part) = part(&name, is_directory) else { continue };
        // A plain name hides the other one of the same part.
        if entries.last().is_some_and(|last| last.part == part && !last.is_directory()) {
            continue;
        }
        let about = (!is_directory).then(|| About::decode(value.as_deref(), &attributes));
        entries.push(Entry { part, file: attributes, about });
    }
    let next =
        page.next.map(|next| entries.last().map_or_else(|| next.clone(), |last| next.clone().max(last.behind())));
    Ok(Some(Level { entries, next }))
}

/// The same, by reading the whole directory: the first entries that take `memory` bytes together,
/// at least `least`.
///
/// # Errors
/// When the directory cannot be read.
pub fn read_whole(objects: &Objects, directory: Ino, from: &[u8], least: usize, memory: u64) -> fs::Result<Level> {
    let (mut found, mut bytes, mut end) = (BTreeMap::<String, Entry>::new(), 0, false);
    let mut cookie = 0;
    loop {
        let listed = objects.fs.list(directory, cookie, STEP)?;
        let Some(last) = listed.last() else { break };
        cookie = last.cookie;
        for entry in listed {
            let file = entry.attributes;
            let is_directory = file.kind == FileKind::Directory;
            if !matches!(file.kind, FileKind::File | FileKind::Directory) {
                continue;
            }
            let Some(text) = names::order(&entry.name, is_directory) else { continue };
            if &*text < from {
                continue;
            }
            let Some(part) = part(&entry.name, is_directory) else { continue };
            // Behind a part that was left out, nothing may be kept: the next entries begin there.
            if end && found.last_key_value().is_some_and(|(last, _)| part > *last) {
                continue;
            }
            // A plain name hides the other one of the same part.
            if found.contains_key(&part) && names::is_beside(&entry.name) {
                continue;
            }
            let entry = Entry { part, file, about: None };
            bytes += entry.bytes();
            if let Some(before) = found.insert(entry.part.clone(), entry) {
                bytes -= before.bytes();
            }
            while bytes > memory && found.len() > least.max(1) {
                if let Some((_, last)) = found.pop_last() {
                    bytes -= last.bytes();
                    end = true;
                }
            }
        }
    }
    let entries: Vec<Entry> = found.into_values().collect();
    let next = entries.last().filter(|_| end).map(Entry::behind);
    Ok(Level { entries, next })
}

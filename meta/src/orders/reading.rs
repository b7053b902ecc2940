//! A directory that is read whole, in as much memory as there is for it.

use crate::kv::{Kv, Pair};
use crate::record::{Content, Entry, FileKind, decode, encode};
use crate::{Result, keys};
use plan::{Ino, object_name};
use std::collections::BTreeMap;

/// What a name takes besides its bytes, and what is kept of an entry besides its own: their places
/// in the tree, and what the allocator adds. Estimated.
pub(super) const NAME_BYTES: usize = 64;
/// Extended attributes are read in order if this many files have one of them at least.
const DENSE: u64 = 8;

/// Entries by their texts.
pub(super) type Tree = BTreeMap<Box<[u8]>, Option<Box<[u8]>>>;

/// What is kept of a regular file with one name: its entry without content, and the value of the
/// extended attribute.
pub(crate) type Record = (Entry, Option<Vec<u8>>);

/// What is read.
pub(super) struct Reading<'a> {
    pub kv: &'a dyn Kv,
    pub parent: Ino,
    /// The extended attribute.
    pub attribute: &'a [u8],
    /// How many entries the directory has, about.
    pub expected: usize,
    /// In bytes. While it is read, each entry takes the size of a [`Read`] besides.
    pub memory: usize,
    /// How many entries are read at a time.
    pub step: usize,
    /// Told how many bytes were read by now, at each step: whether to go on.
    pub goes_on: &'a dyn Fn(usize) -> bool,
}

/// How a reading ended.
pub(super) enum Outcome {
    /// With all entries, or with their names alone.
    All(Tree, bool),
    /// There is no memory for the names.
    TooLarge,
    /// It was told not to go on.
    Stopped,
}

/// An entry that was read: what is kept of it, at first without its extended attribute.
struct Read {
    text: Box<[u8]>,
    ino: Ino,
    kept: Option<Box<[u8]>>,
}

impl Reading<'_> {
    /// Reads all entries.
    pub fn all(&self) -> Result<Outcome> {
        let expected = self.expected.min(self.memory / NAME_BYTES);
        let (mut entries, mut bytes, mut only_names) = (Vec::<Read>::with_capacity(expected), 0, false);
        let mut range = keys::entries(self.parent);
        loop {
            let pairs = self.kv.scan(&range.start..&range.end, self.step)?;
            for (key, value) in &pairs {
                let entry = decode::<Entry>(value)?;
                let Some(text) = text(key, &entry) else { continue };
                let ino = entry.ino();
                let kept = if only_names { None } else { bare(entry).map(Vec::into_boxed_slice) };
                bytes += bytes_of(&text, kept.as_deref());
                entries.push(Read { text: text.into(), ino, kept });
            }
            if bytes > self.memory && !only_names {
                only_names = true;
                bytes = drop_records(&mut entries);
            }
            if bytes > self.memory {
                return Ok(Outcome::TooLarge);
            }
            if !(self.goes_on)(bytes) {
                return Ok(Outcome::Stopped);
            }
            match pairs.into_iter().last() {
                Some((last, _)) => range.start = [&last[..], &[0]].concat(),
                None => break,
            }
        }
        if !only_names && !self.attribute.is_empty() {
            // The extended attributes are in the order of files.
            entries.sort_unstable_by_key(|entry| entry.ino);
        }
        let mut values = Values::new(self.kv, self.attribute, &entries, self.step);
        for at in 0..entries.len() {
            let Read { ino, kept, .. } = &mut entries[at];
            let Some(bare) = kept.take() else { continue };
            bytes -= bare.len();
            let whole = record(bare.into_vec(), values.next(*ino)?);
            bytes += whole.len();
            *kept = Some(whole);
            if bytes > self.memory {
                only_names = true;
                drop_records(&mut entries);
                break;
            }
            if at % self.step == 0 && !(self.goes_on)(bytes) {
                return Ok(Outcome::Stopped);
            }
        }
        // A sorted list becomes a tree at once, with full nodes.
        entries.sort_unstable_by(|a, b| a.text.cmp(&b.text));
        Ok(Outcome::All(entries.into_iter().map(|Read { text, kept, .. }| (text, kept)).collect(), only_names))
    }
}

/// Names alone stay. Returns their bytes.
fn drop_records(entries: &mut [Read]) -> usize {
    entries.iter_mut().for_each(|entry| entry.kept = None);
    entries.iter().map(|entry| bytes_of(&entry.text, None)).sum()
}

/// What an entry takes, in bytes.
pub(super) fn bytes_of(text: &[u8], kept: Option<&[u8]>) -> usize {
    text.len() + NAME_BYTES + kept.map_or(0, |kept| kept.len() + NAME_BYTES / 4)
}

/// The text of an entry; None for one that no key has.
pub(crate) fn text(key: &[u8], entry: &Entry) -> Option<Vec<u8>> {
    let is_directory = match entry.kind() {
        FileKind::Directory => true,
        FileKind::File => false,
        _ => return None,
    };
    object_name::order(keys::entry_name(key).1, is_directory)
}

/// An entry without content, encoded; None when nothing is kept of it.
pub(super) fn bare(entry: Entry) -> Option<Vec<u8>> {
    match entry {
        Entry::Inside(mut dinode) if dinode.kind == FileKind::File => {
            dinode.content = Content::Here(Vec::new());
            Some(encode(&Entry::Inside(dinode)))
        }
        // Another name of the file changes without this one.
        _ => None,
    }
}

/// An encoded [`Record`].
pub(super) fn record(mut bare: Vec<u8>, value: Option<Vec<u8>>) -> Box<[u8]> {
    bare.extend(encode(&value));
    bare.into()
}

pub(super) fn value_of(kv: &dyn Kv, ino: Ino, attribute: &[u8]) -> Result<Option<Vec<u8>>> {
    if attribute.is_empty() { Ok(None) } else { Ok(kv.get(&keys::attribute(ino, attribute))?) }
}

/// The extended attributes of files that are asked for in order. If the files of the directory are
/// near each other in the volume, many are read at a time.
struct Values<'a> {
    kv: &'a dyn Kv,
    attribute: &'a [u8],
    is_dense: bool,
    step: usize,
    end: Vec<u8>,
    read: std::iter::Peekable<std::vec::IntoIter<Pair>>,
}

impl<'a> Values<'a> {
    fn new(kv: &'a dyn Kv, attribute: &'a [u8], entries: &[Read], step: usize) -> Self {
        let ino = |entry: Option<&Read>| entry.map_or(Ino(0), |entry| entry.ino);
        let (first, last) = (ino(entries.first()), ino(entries.last()));
        let is_dense = last.0.saturating_sub(first.0) < DENSE * entries.len() as u64;
        let end = keys::attributes(last).end;
        Self { kv, attribute, is_dense, step, end, read: Vec::new().into_iter().peekable() }
    }

    fn next(&mut self, ino: Ino) -> Result<Option<Vec<u8>>> {
        if !self.is_dense || self.attribute.is_empty() {
            return value_of(self.kv, ino, self.attribute);
        }
        let wanted = keys::attribute(ino, self.attribute);
        loop {
            while self.read.next_if(|(key, _)| *key < wanted).is_some() {}
            match self.read.next_if(|(key, _)| *key == wanted) {
                Some((_, value)) => return Ok(Some(value)),
                // It is behind the file.
                None if self.read.peek().is_some() => return Ok(None),
                None => {}
            }
            let pairs = self.kv.scan(&wanted..&self.end, self.step)?;
            if pairs.is_empty() {
                return Ok(None);
            }
            self.read = pairs.into_iter().peekable();
        }
    }
}

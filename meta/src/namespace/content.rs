//! The content of files: extents, sizes, and their references to stripes.
use serde::{Deserialize, Serialize};

use super::find::{FoundDinode, find, put};
use super::{Attributes, MAX_SIZE};
use crate::record::DeadStripe;
use crate::record::{Content, Dinode, FileKind, Time, decode, encode};
use crate::transaction::{Transaction, run};
use crate::{Error, IdempotencyKey, Meta, Result, keys};
use plan::extent::{Edit, edit};
use plan::{Extent, ExtentPlace, Ino, SetId, TxId};
use std::collections::BTreeMap;
use std::ops::Range;

/// A file with more extents than this keeps them under keys of their own.
const MAX_EMBEDDED_EXTENTS: usize = 4;
/// A file with more inline bytes than this keeps its extents under keys of their own.
const MAX_EMBEDDED_BYTES: usize = 2048;
/// How many extents one transaction may replace or remove. A larger change takes several.
pub(super) const MAX_REMOVED_EXTENTS: usize = 8192;
/// How many extents may go with each range of a transaction without being counted: those that
/// overlap its ends, and one that a write replaces.
const UNCOUNTED_EXTENTS: usize = 2;
/// The largest number of extents that [`Meta::extents`] returns.
pub const MAX_EXTENTS: usize = 16384;

/// A change to the content of one file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ContentEdit {
    /// The ranges that change, in order and without overlap, each with its new extents.
    pub ranges: Vec<(Range<u64>, Vec<Extent>)>,
    /// The change of the size.
    pub resize: Resize,
    /// The new time of the last change of content; it also becomes that of the last change of
    /// attributes.
    pub modified: Option<Time>,
}

/// How a change of content affects the size of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Resize {
    /// The size does not change.
    #[default]
    Keep,
    /// The size becomes at least this, in bytes.
    AtLeast(u64),
    /// The size becomes this, in bytes.
    To(u64),
}

/// Counts the extents that a transaction replaces or removes, over all ranges and files.
#[derive(Debug, Default)]
struct Removed {
    count: usize,
    /// The change does not fit into one transaction.
    too_many: bool,
}

impl Removed {
    /// Counts the extents of a range.
    fn add(&mut self, extents: usize) -> Result<()> {
        self.count += extents.saturating_sub(UNCOUNTED_EXTENTS);
        if self.count > MAX_REMOVED_EXTENTS { Err(self.too_many()) } else { Ok(()) }
    }

    /// Notes that there are too many, and returns the error that aborts the transaction. No caller
    /// sees that error.
    fn too_many(&mut self) -> Error {
        self.too_many = true;
        Error::TooLarge
    }
}

/// The extents of a file that a transaction has read, with its changes. The ranges of an edit come
/// in order, so each extent is read only once.
#[derive(Default)]
struct Met {
    extents: BTreeMap<u64, Extent>,
    /// `extents` has all extents that begin in this range, and the last one before it.
    known: Range<u64>,
}

/// The extents of one file while they change, wherever they are stored.
struct Extents<'t, 'kv> {
    t: &'t mut Transaction<'kv>,
    ino: Ino,
    here: Option<Vec<Extent>>,
    met: Met,
}

impl<'t, 'kv> Extents<'t, 'kv> {
    fn new(t: &'t mut Transaction<'kv>, ino: Ino, here: Option<Vec<Extent>>) -> Self {
        Self { t, ino, here, met: Met::default() }
    }

    /// Reads the extents that overlap or touch a range, unless they are known.
    fn meet(&mut self, range: &Range<u64>, removed: &mut Removed) -> Result<()> {
        if range.start < self.met.known.start {
            self.met = Met::default();
        }
        let known = self.met.known.end;
        if range.start > known {
            let between = keys::extent(self.ino, known)..keys::extent(self.ino, range.start);
            if let Some((key, value)) = self.t.last(&between)? {
                let last = decode_extent(&key, &value)?;
                self.met.extents.insert(last.offset, last);
            }
        }
        let (from, end) = (known.max(range.start), range.end.saturating_add(1));
        if end > from {
            let rest = keys::extent(self.ino, from)..keys::extent(self.ino, end);
            let rest = self.t.scan(&rest, MAX_REMOVED_EXTENTS + 2)?;
            if rest.len() > MAX_REMOVED_EXTENTS + 1 {
                return Err(removed.too_many());
            }
            for (key, value) in rest {
                let extent = decode_extent(&key, &value)?;
                self.met.extents.insert(extent.offset, extent);
            }
        }
        self.met.known = range.start..end.max(from);
        Ok(())
    }

    /// The extents that overlap or touch a range, in order.
    fn touching(&mut self, range: &Range<u64>, removed: &mut Removed) -> Result<Vec<Extent>> {
        match &self.here {
            Some(extents) => {
                Ok(extents.iter().filter(|e| e.end() >= range.start && e.offset <= range.end).cloned().collect())
            }
            None => {
                self.meet(range, removed)?;
                let before = self.met.extents.range(..range.start).next_back().map(|(_, extent)| extent);
                let before = before.filter(|extent| extent.end() >= range.start);
                let inside = self.met.extents.range(range.start..=range.end).map(|(_, extent)| extent);
                let found: Vec<Extent> = before.into_iter().chain(inside).cloned().collect();
                if found.len() > MAX_REMOVED_EXTENTS + 2 {
                    return Err(removed.too_many());
                }
                Ok(found)
            }
        }
    }

    /// Applies an edit.
    fn apply(&mut self, edit: Edit) {
        match &mut self.here {
            Some(extents) => {
                extents.retain(|e| !edit.remove.contains(&e.offset) && !edit.put.iter().any(|p| p.offset == e.offset));
                extents.extend(edit.put);
                extents.sort_by_key(|extent| extent.offset);
            }
            None => {
                for offset in &edit.remove {
                    self.t.delete(keys::extent(self.ino, *offset));
                    self.met.extents.remove(offset);
                }
                for extent in edit.put {
                    put_extent(self.t, self.ino, &extent);
                    self.met.extents.insert(extent.offset, extent);
                }
            }
        }
    }

    /// Replaces the content of `range`; returns by how many bytes the allocated size grows.
    fn replace(&mut self, range: Range<u64>, new: &[Extent], removed: &mut Removed) -> Result<i64> {
        let old = self.touching(&range, removed)?;
        // The few extents in a dinode have no keys.
        if self.here.is_none() {
            removed.add(old.iter().filter(|extent| range.contains(&extent.offset)).count())?;
        }
        let edit = edit(&old, range, new);
        refer(self.t, new);
        release(self.t, &edit.released);
        let bytes = |extents: &[Extent]| extents.iter().map(|extent| extent.length).sum::<u64>() as i64;
        let grown = bytes(new) - bytes(&edit.released);
        self.apply(edit);
        Ok(grown)
    }

    /// The new content of the dinode: a few extents stay in it, many move out.
    fn into_content(self) -> Content {
        let Some(extents) = self.here else { return Content::Elsewhere };
        let bytes = |e: &Extent| if let ExtentPlace::Bytes(bytes) = &e.place { bytes.len() } else { 0 };
        if extents.len() <= MAX_EMBEDDED_EXTENTS && extents.iter().map(bytes).sum::<usize>() <= MAX_EMBEDDED_BYTES {
            return Content::Here(extents);
        }
        extents.iter().for_each(|extent| put_extent(self.t, self.ino, extent));
        Content::Elsewhere
    }
}

/// The content of a new file.
pub(super) fn put_new(t: &mut Transaction, ino: Ino, extents: &[Extent]) -> Content {
    refer(t, extents);
    Extents::new(t, ino, Some(extents.to_vec())).into_content()
}

fn put_extent(t: &mut Transaction, ino: Ino, extent: &Extent) {
    t.put_bytes(keys::extent(ino, extent.offset), encode(&(extent.length, &extent.place)));
}

pub(super) fn decode_extent(key: &[u8], value: &[u8]) -> Result<Extent> {
    let (length, place) = decode(value)?;
    Ok(Extent { offset: keys::number(key, 9), length, place })
}

/// Counts the references of a file to these extents.
fn refer(t: &mut Transaction, extents: &[Extent]) {
    count_references(t, extents, 1);
}

/// Removes the references of a file to these extents.
pub(super) fn release(t: &mut Transaction, extents: &[Extent]) {
    count_references(t, extents, -1);
}

fn count_references(t: &mut Transaction, extents: &[Extent], sign: i64) {
    let mut bytes = 0;
    for extent in extents {
        bytes += extent.length as i64;
        if let ExtentPlace::Stripe(span) = extent.place {
            t.refer(span.stripe(), span.block, sign * extent.length as i64);
        }
    }
    t.count(0, sign * bytes);
}

/// Changes the content of a file in a transaction.
fn change(t: &mut Transaction, ino: Ino, change: &ContentEdit, removed: &mut Removed) -> Result<Dinode> {
    let FoundDinode { mut dinode, entry } = find(t, ino)?;
    match dinode.kind {
        FileKind::File => {}
        FileKind::Directory => return Err(Error::IsDirectory),
        _ => return Err(Error::Invalid("not a regular file".into())),
    }
    let here = match std::mem::replace(&mut dinode.content, Content::Elsewhere) {
        Content::Here(extents) => Some(extents),
        _ => None,
    };
    let mut extents = Extents::new(t, ino, here);
    let mut grown = 0;
    for (range, new) in &change.ranges {
        grown += extents.replace(range.clone(), new, removed)?;
    }
    dinode.size = match change.resize {
        Resize::Keep => dinode.size,
        Resize::AtLeast(size) => dinode.size.max(size),
        Resize::To(size) => {
            grown += extents.replace(size..u64::MAX, &[], removed)?;
            // An empty file again keeps its extents in the dinode.
            if size == 0 {
                extents.here = Some(Vec::new());
            }
            size
        }
    };
    if dinode.size > MAX_SIZE {
        return Err(Error::TooLarge);
    }
    dinode.allocated = dinode.allocated.saturating_add_signed(grown);
    dinode.content = extents.into_content();
    if let Some(now) = change.modified {
        (dinode.modified, dinode.changed) = (now, now);
    }
    put(t, FoundDinode { dinode: dinode.clone(), entry });
    Ok(dinode)
}

impl Meta {
    /// The extents of a file that overlap a range, clipped to it, in order. It returns at most
    /// [`MAX_EXTENTS`]; when it returns that many, there may be more behind the last one.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn extents(&self, ino: Ino, range: Range<u64>) -> Result<Vec<Extent>> {
        match self.dinode(ino)?.content {
            Content::Here(extents) => Ok(extents.iter().filter_map(|extent| extent.clip(&range)).collect()),
            Content::Link(_) => Ok(Vec::new()),
            Content::Elsewhere => {
                // Read all from one state: two reads could both miss extents that are joined in
                // between.
                let inside = keys::extent(ino, range.start)..keys::extent(ino, range.end);
                let found =
                    self.kv.scan_with_previous(&keys::extent(ino, 0), &inside.start..&inside.end, MAX_EXTENTS)?;
                let extents = found.iter().map(|(key, value)| decode_extent(key, value));
                let extents = extents.filter_map(|extent| extent.map(|extent| extent.clip(&range)).transpose());
                extents.take(MAX_EXTENTS).collect()
            }
        }
    }

    /// The size of a file and its extents that overlap a range, both from one state. Otherwise,
    /// data that another client truncates meanwhile would look like a hole.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn content(&self, ino: Ino, range: Range<u64>) -> Result<(u64, Vec<Extent>)> {
        loop {
            let extents = self.extents(ino, range.clone())?;
            let size = self.dinode(ino)?.size;
            // The extents determine the content: no other content has the same ones.
            if self.extents(ino, range.clone())? == extents {
                return Ok((size, extents));
            }
        }
    }

    /// The chunk sets that hold bytes of a file.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn sets_of(&self, ino: Ino) -> Result<std::collections::BTreeSet<SetId>> {
        let (mut sets, mut from) = (std::collections::BTreeSet::new(), 0);
        loop {
            let extents = self.extents(ino, from..MAX_SIZE)?;
            sets.extend(extents.iter().filter_map(|e| match e.place {
                ExtentPlace::Stripe(span) => Some(span.set),
                _ => None,
            }));
            match extents.last() {
                Some(last) if extents.len() == MAX_EXTENTS => from = last.end(),
                _ => return Ok(sets),
            }
        }
    }

    /// Calls `each` with the number of every file.
    ///
    /// # Errors
    /// When the metadata cannot be read, and any error that `each` returns.
    pub fn each_file<E: From<Error>>(
        &self,
        mut each: impl FnMut(Ino) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        const BATCH_EXTENTS: usize = 1000;
        let all = keys::under(vec![keys::INODE_LOCATION]);
        let mut from = all.start;
        loop {
            let found = self.kv.scan(&from..&all.end, BATCH_EXTENTS).map_err(Error::from)?;
            let Some((last, _)) = found.last() else { return Ok(()) };
            from = [last, &[0][..]].concat();
            for (key, _) in &found {
                each(Ino(keys::number(key, 1)))?;
            }
        }
    }

    /// Whether the extents of a file have keys of their own.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn has_many_extents(&self, ino: Ino) -> Result<bool> {
        Ok(self.dinode(ino)?.content == Content::Elsewhere)
    }

    /// Changes the content of a file. Calls for one file must come one at a time. The change is one
    /// transaction, unless it would replace or remove very many extents. Then the file gets its new
    /// content in pieces, a transaction each, and is truncated from its end; its size and time have
    /// their new values after the last one.
    ///
    /// # Errors
    /// `NotFound`, `IsDirectory`, `Invalid`, `TooLarge`.
    pub fn change_content(&self, ino: Ino, edit: &ContentEdit) -> Result<(Attributes, Vec<DeadStripe>, TxId)> {
        self.change_content_once(ino, edit, None)
    }

    /// As `change_content`, for a request whose answer `answer_of` returns from then on.
    ///
    /// # Errors
    /// As `change_content`.
    pub fn change_content_once(
        &self,
        ino: Ino,
        edit: &ContentEdit,
        idempotency_key: Option<&IdempotencyKey>,
    ) -> Result<(Attributes, Vec<DeadStripe>, TxId)> {
        let (changed, dead, seq) = self.bounded(&[(ino, edit)], |t, edits, removed| {
            let (_, edit) = edits.first().ok_or(Error::NotFound)?;
            let changed = Attributes::new(&change(t, ino, edit, removed)?, None);
            self.note(t, idempotency_key, &changed)?;
            Ok(changed)
        })?;
        Ok((changed, dead, seq))
    }

    /// Carries out a transaction with these edits. If there are too many extents for one, pieces of
    /// the edits go first, and the transaction gets the rest.
    fn bounded<T>(
        &self,
        edits: &[(Ino, &ContentEdit)],
        mut work: impl FnMut(&mut Transaction, &[(Ino, &ContentEdit)], &mut Removed) -> Result<T>,
    ) -> Result<(T, Vec<DeadStripe>, TxId)> {
        let (mut dead, mut removed) = (Vec::new(), Removed::default());
        let mut carry_out = |edits: &[(Ino, &ContentEdit)], removed: &mut Removed| {
            run(&*self.kv, |t| {
                *removed = Removed::default();
                work(t, edits, removed)
            })
        };
        let (result, committed) = match carry_out(edits, &mut removed) {
            Err(_) if removed.too_many => {
                let mut budget = MAX_REMOVED_EXTENTS;
                let mut rest = Vec::with_capacity(edits.len());
                for (ino, edit) in edits {
                    match self.change_pieces(*ino, edit, &mut budget, &mut dead) {
                        Err(Error::NotFound) => {}
                        left => rest.push((*ino, left?)),
                    }
                }
                let rest: Vec<(Ino, &ContentEdit)> = rest.iter().map(|(ino, edit)| (*ino, edit)).collect();
                carry_out(&rest, &mut removed)?
            }
            done => done?,
        };
        dead.extend(committed.dead);
        Ok((result, dead, committed.seq))
    }

    /// Carries out pieces of an edit until the rest, with what other files leave of `budget`, fits
    /// into one transaction; returns the rest.
    fn change_pieces(
        &self,
        ino: Ino,
        edit: &ContentEdit,
        budget: &mut usize,
        dead: &mut Vec<DeadStripe>,
    ) -> Result<ContentEdit> {
        if self.dinode(ino)?.content != Content::Elsewhere {
            return Ok(edit.clone());
        }
        let extents = |range: &Range<u64>| keys::extent(ino, range.start)..keys::extent(ino, range.end);
        // The ranges of the next piece, and how many extents go with them.
        let (mut ranges, mut count) = (Vec::new(), 0);
        let piece = |ranges: Vec<_>| ContentEdit { ranges, ..ContentEdit::default() };
        for (range, new) in &edit.ranges {
            let (mut range, mut new) = (range.clone(), new.clone());
            loop {
                let (old, left) = (extents(&range), MAX_REMOVED_EXTENTS - count);
                let old = self.kv.scan(&old.start..&old.end, left + 1)?;
                if old.len() <= left {
                    count += old.len().saturating_sub(1);
                    ranges.push((range, new));
                    break;
                }
                let first = range.start..keys::number(&old[left].0, 9);
                if !first.is_empty() {
                    range.start = first.end;
                    ranges.push((first.clone(), new.iter().filter_map(|extent| extent.clip(&first)).collect()));
                    new = new.iter().filter_map(|extent| extent.clip(&range)).collect();
                }
                self.change_piece(ino, &piece(std::mem::take(&mut ranges)), dead)?;
                count = 0;
            }
        }
        if count > *budget || matches!(edit.resize, Resize::To(_)) && !ranges.is_empty() {
            self.change_piece(ino, &piece(std::mem::take(&mut ranges)), dead)?;
            count = 0;
        }
        *budget -= count;
        let rest = ContentEdit { ranges, resize: edit.resize, modified: edit.modified };
        let Resize::To(size) = edit.resize else { return Ok(rest) };
        loop {
            let old = extents(&(size..u64::MAX));
            let old = self.kv.scan_back(&old.start..&old.end, MAX_REMOVED_EXTENTS + 1)?;
            if old.len() <= *budget {
                *budget -= old.len();
                return Ok(rest);
            }
            // The file keeps, for now, a prefix of its old content. It is shorter than before and
            // longer than it will be.
            let first = old.iter().map(|(key, _)| keys::number(key, 9)).min().unwrap_or(size);
            let is_longer = self.dinode(ino)?.size > first;
            let resize = if is_longer { Resize::To(first) } else { Resize::Keep };
            let ranges = if is_longer { Vec::new() } else { vec![(first..u64::MAX, Vec::new())] };
            self.change_piece(ino, &ContentEdit { ranges, resize, modified: None }, dead)?;
        }
    }

    fn change_piece(&self, ino: Ino, edit: &ContentEdit, dead: &mut Vec<DeadStripe>) -> Result<()> {
        let ((), committed) = run(&*self.kv, |t| change(t, ino, edit, &mut Removed::default()).map(drop))?;
        dead.extend(committed.dead);
        Ok(())
    }

    /// Changes the content of several files in one transaction. Files that no longer exist are
    /// skipped.
    ///
    /// # Errors
    /// As `change_content`.
    pub fn change_contents(&self, edits: &[(Ino, ContentEdit)]) -> Result<(Vec<DeadStripe>, TxId)> {
        self.change_contents_once(edits, None)
    }

    /// As `change_contents`, and waits until this and everything before is durable. On failure, the
    /// dead stripes are not reported.
    ///
    /// # Errors
    /// As `change_contents`, and an error when durability cannot be confirmed.
    pub fn change_contents_durably(&self, edits: &[(Ino, ContentEdit)]) -> Result<(Vec<DeadStripe>, TxId)> {
        let (dead, seq) = self.change_contents(edits)?;
        self.sync(seq)?;
        Ok((dead, seq))
    }

    /// As `change_contents`, for a request whose answer `answer_of` returns from then on.
    ///
    /// # Errors
    /// As `change_content`.
    pub fn change_contents_once(
        &self,
        edits: &[(Ino, ContentEdit)],
        idempotency_key: Option<&IdempotencyKey>,
    ) -> Result<(Vec<DeadStripe>, TxId)> {
        let all: Vec<(Ino, &ContentEdit)> = edits.iter().map(|(ino, edit)| (*ino, edit)).collect();
        let ((), dead, seq) = self.bounded(&all, |t, edits, removed| {
            for (ino, edit) in edits {
                match change(t, *ino, edit, removed) {
                    Err(Error::NotFound) => {}
                    done => _ = done?,
                }
            }
            self.note(t, idempotency_key, &())
        })?;
        Ok((dead, seq))
    }
}

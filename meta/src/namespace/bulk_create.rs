//! Creates complete files, many in one transaction. An archive encoder stores its output this way,
//! so that each of its tasks happens completely or not at all.

use super::create::New;
use super::find::directory;
use super::{Attributes, MAX_LINK, MAX_SIZE, check_name};
use crate::namespace::attributes::check_attribute;
use crate::namespace::content::put_new;
use crate::record::{DirectoryDelta, Entry, FileKind, InodeLocation, Time};
use crate::transaction::run;
use crate::{Error, Meta, Result, keys};
use plan::{Extent, Ino, TxId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A file with all its attributes and content.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BulkFile {
    /// Its number, from [`Meta::new_inos`].
    pub ino: Ino,
    /// Its directory.
    pub parent: Ino,
    /// Its name in the directory.
    pub name: Vec<u8>,
    /// The file to create.
    pub new: New,
    /// Size of the content, in bytes.
    pub size: u64,
    /// Last access.
    pub accessed: Time,
    /// Last change of content.
    pub modified: Time,
    /// Last change of content or attributes.
    pub changed: Time,
    /// Its extents, in order and without overlap.
    pub extents: Vec<Extent>,
    /// Extended attributes.
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

impl BulkFile {
    fn check(&self) -> Result<()> {
        check_name(&self.name)?;
        if self.new.link.len() > MAX_LINK {
            return Err(Error::NameTooLong);
        }
        if self.size > MAX_SIZE || self.extents.last().is_some_and(|last| last.end() > self.size) {
            return Err(Error::TooLarge);
        }
        if !self.extents.is_empty() && self.new.kind != FileKind::File {
            return Err(Error::Invalid("only a regular file has content".into()));
        }
        if self.extents.windows(2).any(|pair| pair[0].end() > pair[1].offset) {
            return Err(Error::Invalid("the extents of a file overlap".into()));
        }
        self.attributes.iter().try_for_each(|(name, value)| check_attribute(name, value))
    }
}

/// The result of creating files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkResult {
    /// The indices of files whose name is taken by another file, or whose directory is gone.
    pub refused: Vec<u32>,
    /// The transaction's number.
    pub seq: TxId,
}

impl Meta {
    /// Allocates `count` consecutive numbers for new files; returns the first.
    ///
    /// # Errors
    /// When the metadata cannot be written.
    pub fn new_inos(&self, count: u32) -> Result<Ino> {
        self.next_inos(count)
    }

    /// Creates complete files in one transaction. The times of their directories do not change: a
    /// caller that writes a tree sets them itself. A file that exists from an earlier attempt is
    /// not created again. Files whose name is taken by another file are refused; the others are
    /// created.
    ///
    /// # Errors
    /// When one of the files is invalid; then none is created.
    pub fn put_files(&self, files: &[BulkFile]) -> Result<BulkResult> {
        files.iter().try_for_each(BulkFile::check)?;
        let (refused, committed) = run(&*self.kv, |t| {
            let (mut refused, mut parents) = (Vec::new(), BTreeMap::<Ino, Option<DirectoryDelta>>::new());
            let mut made = 0;
            for (index, file) in files.iter().enumerate() {
                let delta = match parents.entry(file.parent) {
                    std::collections::btree_map::Entry::Occupied(there) => there.into_mut(),
                    std::collections::btree_map::Entry::Vacant(new) => new.insert(match directory(t, file.parent) {
                        Ok(found) if found.links > 0 => Some(DirectoryDelta::default()),
                        Ok(_) | Err(Error::NotFound | Error::NotDirectory) => None,
                        Err(error) => return Err(error),
                    }),
                };
                let there: Option<Entry> = t.get(&keys::entry(file.parent, &file.name))?;
                let (Some(delta), None) = (delta, &there) else {
                    if there.is_none_or(|there| there.ino() != file.ino) {
                        refused.push(index as u32);
                    }
                    continue;
                };
                delta.entries += 1;
                delta.directories += i64::from(file.new.kind == FileKind::Directory);
                let mut dinode = file.new.dinode(file.ino, file.modified);
                (dinode.size, dinode.accessed, dinode.changed) = (file.size, file.accessed, file.changed);
                if file.new.kind == FileKind::File {
                    dinode.allocated = file.extents.iter().map(|extent| extent.length).sum();
                    dinode.content = put_new(t, file.ino, &file.extents);
                }
                t.put(keys::entry(file.parent, &file.name), &Entry::Inside(dinode));
                t.put(
                    keys::inode_location(file.ino),
                    &InodeLocation::Entry { parent: file.parent, name: file.name.clone() },
                );
                if file.new.kind == FileKind::Directory {
                    let (modified, changed) = (Some(file.modified), Some(file.changed));
                    t.merge(keys::directory(file.ino), &DirectoryDelta { modified, changed, ..Default::default() });
                }
                for (name, value) in &file.attributes {
                    t.put_bytes(keys::attribute(file.ino, name), value.clone());
                }
                made += 1;
            }
            for (parent, delta) in parents {
                if let Some(delta) = delta.filter(|delta| delta.entries > 0) {
                    t.merge(keys::directory(parent), &delta);
                }
            }
            t.count(made, 0);
            Ok(refused)
        })?;
        Ok(BulkResult { refused, seq: committed.seq })
    }

    /// The attributes of the files of many names, each in its directory; `None` for a missing file.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn lookups(&self, names: &[(Ino, Vec<u8>)]) -> Result<Vec<Option<Attributes>>> {
        let one = |(parent, name): &(Ino, Vec<u8>)| match self.lookup(*parent, name) {
            Err(Error::NotFound | Error::NotDirectory | Error::NameTooLong) => Ok(None),
            found => found.map(Some),
        };
        names.iter().map(one).collect()
    }
}

//! The explorer's side of jobs that read an archive: it lists directories of the volume, piece by
//! piece.

use super::Root;
use crate::encode::HIDDEN;
use crate::message::{DirectoryPair, Group, Item, MAX_ITEMS, NAME_BYTES, Problem, Stat, Walk, join};
use crate::roles::{Found, Tree};
use crate::transport::Broken;
use crate::walk::Filter;
use fs::{Attributes, FileKind, FileSystem};
use std::sync::Arc;

/// What all explorers of a job that reads an archive share.
pub struct Walked {
    /// The volume.
    pub volume: Arc<FileSystem>,
    /// Which files to take.
    pub filter: Filter,
    /// Where directories are created, if the job does that.
    pub root: Option<Arc<Root>>,
    /// Whether only directories are passed on, as work of their own: for the steps after everything
    /// in them is done.
    pub directories: bool,
}

/// A tree of a volume.
pub struct VolumeTree {
    walked: Arc<Walked>,
    /// The walk in progress, and the entry after which it continues.
    current: Option<(Walk, u64)>,
}

impl VolumeTree {
    /// A tree that walks what the manager sends.
    pub fn new(walked: Arc<Walked>) -> Self {
        Self { walked, current: None }
    }
}

/// The attributes of a file of a volume.
pub fn stat(attributes: &Attributes) -> Stat {
    let Attributes { kind, mode, uid, gid, links, device, size, allocated, .. } = *attributes;
    Stat {
        kind,
        mode,
        uid,
        gid,
        links,
        device,
        size,
        allocated,
        accessed: attributes.accessed,
        modified: attributes.modified,
        changed: attributes.changed,
        identity: (0, attributes.ino.0),
    }
}

impl Tree for VolumeTree {
    fn begin(&mut self, walk: Walk) -> Result<(), Broken> {
        self.current = Some((walk, 0));
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Found>, Broken> {
        let Some((walk, cookie)) = self.current.take() else { return Ok(None) };
        let mut found = Found::default();
        match walk {
            Walk::Directory(place) => {
                if cookie == 0
                    && let Err(what) = self.walked.make(&place)
                {
                    found.problems.push(Problem { path: place.source, what });
                    return Ok(Some(found));
                }
                let listed = self.walked.volume.list(place.ino, cookie, MAX_ITEMS)?;
                if let Some(last) = listed.last().map(|last| last.cookie) {
                    let entries = listed.into_iter().map(|entry| (entry.name, entry.attributes));
                    self.walked.look(&place, entries, false, &mut found);
                    self.current = Some((Walk::Directory(place), last));
                }
            }
            Walk::Names(place, names) => {
                if let Err(what) = self.walked.make(&place) {
                    found.problems.push(Problem { path: place.source, what });
                    return Ok(Some(found));
                }
                for name in names {
                    match self.walked.volume.lookup(place.ino, &name) {
                        Ok(attributes) => self.walked.look(&place, [(name, attributes)], true, &mut found),
                        Err(error) => {
                            found.problems.push(Problem { path: place.source_of(&name), what: error.to_string() });
                        }
                    }
                }
            }
            Walk::List(_) => {}
        }
        Ok(Some(found))
    }
}

impl Walked {
    fn make(&self, place: &DirectoryPair) -> Result<(), String> {
        match &self.root {
            Some(root) if !self.directories => {
                root.make(&place.target).map(drop).map_err(|error| std::io::Error::from(error).to_string())
            }
            _ => Ok(()),
        }
    }

    fn look(
        &self,
        place: &DirectoryPair,
        entries: impl IntoIterator<Item = (Vec<u8>, Attributes)>,
        named: bool,
        found: &mut Found,
    ) {
        let (mut items, mut bytes) = (Vec::new(), 0);
        for (name, attributes) in entries {
            // The directory of an unfinished job is no part of the archive.
            if name == HIDDEN {
                continue;
            }
            let stat = stat(&attributes);
            let is_directory = attributes.kind == FileKind::Directory;
            let wanted = named || self.filter.is_open() || {
                let below = place.below_of(&name);
                if is_directory { self.filter.enters(&below, &name) } else { self.filter.takes(&below, &name) }
            };
            if !wanted {
                continue;
            }
            if is_directory {
                let source = place.source_of(&name);
                found.walks.push(Walk::Directory(DirectoryPair {
                    below: if named { source.len() + 1 } else { place.below },
                    source,
                    target: join(&place.target, &name),
                    ino: attributes.ino,
                    ..DirectoryPair::default()
                }));
            }
            if is_directory == self.directories {
                bytes += name.len();
                items.push(Item { name, stat });
            }
            if bytes > NAME_BYTES {
                let items = std::mem::take(&mut items);
                found.groups.push(Group { place: place.clone(), items });
                bytes = 0;
            }
        }
        if !items.is_empty() {
            found.groups.push(Group { place: place.clone(), items });
        }
    }
}

//! The explorer's side of an archive job: it lists directories piece by piece, creates them in the
//! volume, and passes on their content.
//!
//! Nothing about a file is kept after it was passed on. A file that cannot be read is reported as a
//! problem, never silently left out.

use super::{Extended, Filter, List, OWN, open_directory, read_attributes, stat_at, stat_of};
use crate::message::{DirectoryPair, Group, Item, MAX_ITEMS, NAME_BYTES, Problem, Stat, Walk, join};
use crate::roles::{Found, Tree};
use crate::transport::Broken;
use fs::{Attributes, BulkFile, FileKind, FileSystem, New, SetAttributes, SetTime};
use plan::Ino;
use rustix::fd::OwnedFd;
use rustix::fs::Dir;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use volume::lock;

/// How many directories of a list are cached, so that they need not be created again.
const MAX_CACHED_DIRECTORIES: usize = 4096;

/// What all explorers of a job share.
pub struct Walking {
    /// The volume.
    pub volume: Arc<FileSystem>,
    /// Which files to take.
    pub filter: Filter,
    /// Whether to stay on the file system of the source.
    pub one_file_system: bool,
    /// Whether this is a dry run, which creates nothing.
    pub dry: bool,
    /// The volume's own directories: their content is not archived.
    pub avoid: Vec<(u64, u64)>,
    /// The list of files, if the job walks one.
    pub list: Mutex<Option<List>>,
}

/// The walk in progress.
enum Current {
    Directory(DirectoryPair, Dir, OwnedFd),
    Names(DirectoryPair, OwnedFd, Vec<Vec<u8>>),
    List(DirectoryPair, HashMap<Vec<u8>, DirectoryPair>),
    Problem(Problem),
    Nothing,
}

/// A tree of the machine that goes into a volume.
pub struct SourceTree {
    walking: Arc<Walking>,
    current: Current,
}

impl SourceTree {
    /// A tree that walks what the manager sends.
    pub fn new(walking: Arc<Walking>) -> Self {
        Self { walking, current: Current::Nothing }
    }
}

fn problem(path: Vec<u8>, what: impl std::fmt::Display) -> Problem {
    Problem { path, what: what.to_string() }
}

/// The reason of a failed system call.
fn errno(error: rustix::io::Errno) -> std::io::Error {
    error.into()
}

impl Tree for SourceTree {
    fn begin(&mut self, walk: Walk) -> Result<(), Broken> {
        self.current = match walk {
            Walk::Directory(place) => {
                let opened = open_directory(&place.source).and_then(|fd| Ok((Dir::read_from(&fd)?, fd)));
                match opened {
                    Ok((dir, fd)) => Current::Directory(place, dir, fd),
                    Err(error) => Current::Problem(problem(place.source, errno(error))),
                }
            }
            Walk::Names(place, names) => match open_directory(&place.source) {
                Ok(fd) => Current::Names(place, fd, names),
                Err(error) => Current::Problem(problem(place.source, errno(error))),
            },
            Walk::List(place) => Current::List(place, HashMap::new()),
        };
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Found>, Broken> {
        let mut current = std::mem::replace(&mut self.current, Current::Nothing);
        let mut found = Found::default();
        let more = match &mut current {
            Current::Nothing => return Ok(None),
            Current::Problem(problem) => {
                found.problems.push(problem.clone());
                false
            }
            Current::Names(place, fd, names) => {
                let names = std::mem::take(names);
                self.walking.look(place, fd, names, true, &mut found)?;
                false
            }
            Current::Directory(place, dir, fd) => {
                let names = next_names(place, dir, &mut found.problems);
                let more = !names.is_empty();
                self.walking.look(place, fd, names, false, &mut found)?;
                more
            }
            Current::List(place, known) => self.walking.next_of_list(place, known, &mut found)?,
        };
        if more {
            self.current = current;
        }
        Ok(Some(found))
    }
}

/// The next names of a directory, as many as fit into a message; none at its end.
fn next_names(place: &DirectoryPair, dir: &mut Dir, problems: &mut Vec<Problem>) -> Vec<Vec<u8>> {
    let (mut names, mut bytes) = (Vec::new(), 0);
    while names.len() < MAX_ITEMS && bytes < NAME_BYTES {
        match dir.next() {
            None => break,
            Some(Err(error)) => {
                problems.push(problem(place.source.clone(), format_args!("cannot be listed: {}", errno(error))));
                break;
            }
            Some(Ok(entry)) => {
                let name = entry.file_name().to_bytes();
                if !matches!(name, b"." | b"..") {
                    bytes += name.len();
                    names.push(name.to_vec());
                }
            }
        }
    }
    names
}

impl Walking {
    /// Reads the attributes of files of a directory. `named` files are taken even if the filter
    /// excludes them.
    fn look(
        &self,
        place: &DirectoryPair,
        fd: &OwnedFd,
        names: Vec<Vec<u8>>,
        named: bool,
        found: &mut Found,
    ) -> Result<(), Broken> {
        let (mut items, mut directories) = (Vec::new(), Vec::new());
        let open = named || self.filter.is_open();
        for name in names {
            let below = if open { Vec::new() } else { place.below_of(&name) };
            if !open && !self.filter.enters(&below, &name) {
                continue;
            }
            match stat_at(fd, &name) {
                // It was removed after it was listed.
                Err(rustix::io::Errno::NOENT) if !named => {}
                Err(error) => found.problems.push(problem(place.source_of(&name), errno(error))),
                Ok(stat) if stat.kind == FileKind::Directory => directories.push(Item { name, stat }),
                Ok(stat) if open || self.filter.takes(&below, &name) => items.push(Item { name, stat }),
                Ok(_) => {}
            }
        }
        let made = self.make(place, fd, &directories, found)?;
        if self.dry {
            // A dry run creates no directories, so that its workers must see them.
            items.extend(directories.iter().cloned());
        }
        for (item, made) in directories.into_iter().zip(made) {
            let Some((ino, fresh)) = made else { continue };
            let inside = inside(place, &item, ino, fresh, named);
            let elsewhere = item.stat.identity.0 != place.system && place.system != 0;
            if self.avoid.contains(&item.stat.identity) {
                found.problems.push(problem(inside.source, "it belongs to the volume itself and was left out"));
            } else if !(self.one_file_system && elsewhere) {
                found.walks.push(Walk::Directory(inside));
            }
        }
        if !items.is_empty() {
            found.groups.push(Group { place: place.clone(), items });
        }
        Ok(())
    }

    /// Creates directories in the volume with all their attributes, or sets the attributes of those
    /// that exist. Returns their inode numbers and whether they are new.
    fn make(
        &self,
        place: &DirectoryPair,
        fd: &OwnedFd,
        items: &[Item],
        found: &mut Found,
    ) -> Result<Vec<Option<(Ino, bool)>>, Broken> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let there = match place.fresh {
            true => vec![None; items.len()],
            false if place.ino == Ino(0) => vec![None; items.len()],
            false => {
                self.volume.lookups(&items.iter().map(|item| (place.ino, item.name.clone())).collect::<Vec<_>>())?
            }
        };
        let first = if self.dry { Ino(0) } else { self.volume.new_inos(items.len() as u32)? };
        let (mut made, mut new) = (Vec::new(), Vec::new());
        for ((number, item), there) in (0..).zip(items).zip(there) {
            let path = || place.source_of(&item.name);
            match there {
                Some(there) if there.kind != FileKind::Directory => {
                    found.problems.push(problem(path(), "there is a file of that name in the archive"));
                    made.push(None);
                }
                Some(there) => {
                    made.push(Some((there.ino, false)));
                    if !self.dry
                        && let Err(error) = self.refresh(&there, item, fd)
                    {
                        found.problems.push(problem(path(), error));
                    }
                }
                None => {
                    let attributes = extended(fd, item).unwrap_or_else(|error| {
                        found.problems.push(problem(path(), errno(error)));
                        Vec::new()
                    });
                    new.push((made.len(), whole(place.ino, first.plus(number), item, attributes)));
                    made.push(Some((if self.dry { Ino(0) } else { first.plus(number) }, true)));
                }
            }
        }
        found.done.others += new.len() as u64;
        if self.dry || new.is_empty() {
            return Ok(made);
        }
        let (indices, new): (Vec<usize>, Vec<BulkFile>) = new.into_iter().unzip();
        for refused in self.volume.put_files(&new)? {
            // Another explorer was faster, as with a list, or another client works there.
            let index = indices[refused as usize];
            let there = self.volume.lookup(place.ino, &items[index].name).ok();
            made[index] = there.filter(|there| there.kind == FileKind::Directory).map(|there| (there.ino, false));
            if made[index].is_none() {
                let what = "there is a file of that name in the archive";
                found.problems.push(problem(place.source_of(&items[index].name), what));
            }
        }
        Ok(made)
    }

    /// Gives a directory of the volume the attributes that it has at the source.
    fn refresh(&self, there: &Attributes, item: &Item, parent: &OwnedFd) -> Result<(), Broken> {
        let failed = |error: rustix::io::Errno| Broken(errno(error).to_string());
        if there.changed != item.stat.changed {
            sync_attributes(&self.volume, there.ino, &extended(parent, item).map_err(failed)?)?;
        }
        sync_directory(&self.volume, there, &item.stat)
    }

    /// The next files of a list. Returns whether more may follow.
    fn next_of_list(
        &self,
        root: &DirectoryPair,
        known: &mut HashMap<Vec<u8>, DirectoryPair>,
        found: &mut Found,
    ) -> Result<bool, Broken> {
        let mut list = lock(&self.list);
        let Some(list) = list.as_mut() else { return Ok(false) };
        let mut bytes = 0;
        let mut count = 0;
        while count < MAX_ITEMS && bytes < NAME_BYTES {
            let listed = list.next_file().map_err(|why| Broken(format!("cannot read the list of files: {why}")))?;
            let Some(listed) = listed else { return Ok(false) };
            (count, bytes) = (count + 1, bytes + listed.path.len());
            let names: Vec<&[u8]> =
                listed.path.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b".")).collect();
            let Some((name, above)) = names.split_last() else { continue };
            if names.contains(&&b".."[..]) {
                found.problems.push(problem(listed.path.clone(), "a path of a list must not have .. in it"));
                continue;
            }
            let Some(place) = self.directory_of_list(root, known, above, found)? else { continue };
            let fd = match open_directory(&place.source) {
                Ok(fd) => fd,
                Err(error) => {
                    found.problems.push(problem(place.source, errno(error)));
                    continue;
                }
            };
            if let Some(expected) = listed.expected {
                let now = stat_at(&fd, name).ok().filter(|now| now.kind != FileKind::Directory);
                if now.is_none_or(|now| (now.size, now.modified) != (expected.size, expected.modified)) {
                    let what = "it is not what it was when the plan was made, and was left out";
                    found.problems.push(problem(place.source_of(name), what));
                    continue;
                }
            }
            let mut one = Found::default();
            self.look(&place, &fd, vec![name.to_vec()], true, &mut one)?;
            // A directory in a list means only itself.
            if one.walks.is_empty() {
                append(found, one.groups);
            }
            found.problems.append(&mut one.problems);
            found.done.others += one.done.others;
        }
        Ok(true)
    }

    /// The directory of a file of a list. Creates it and its parents if they do not exist.
    fn directory_of_list(
        &self,
        root: &DirectoryPair,
        known: &mut HashMap<Vec<u8>, DirectoryPair>,
        names: &[&[u8]],
        found: &mut Found,
    ) -> Result<Option<DirectoryPair>, Broken> {
        let Some((name, above)) = names.split_last() else { return Ok(Some(root.clone())) };
        let path = names.join(&b'/');
        if let Some(place) = known.get(&path) {
            return Ok(Some(place.clone()));
        }
        let Some(parent) = self.directory_of_list(root, known, above, found)? else { return Ok(None) };
        let stat = open_directory(&parent.source).and_then(|fd| Ok((stat_at(&fd, name)?, fd)));
        let (stat, fd) = match stat {
            Ok((stat, fd)) if stat.kind == FileKind::Directory => (stat, fd),
            Ok(_) => {
                found.problems.push(problem(parent.source_of(name), "it is not a directory"));
                return Ok(None);
            }
            Err(error) => {
                found.problems.push(problem(parent.source_of(name), errno(error)));
                return Ok(None);
            }
        };
        let item = Item { name: name.to_vec(), stat };
        let made = self.make(&parent, &fd, std::slice::from_ref(&item), found)?;
        let Some(Some((ino, _))) = made.first() else { return Ok(None) };
        if known.len() >= MAX_CACHED_DIRECTORIES {
            known.clear();
        }
        // Other explorers may have filled it by the time it is used.
        let place = inside(&parent, &item, *ino, false, false);
        known.insert(path, place.clone());
        Ok(Some(place))
    }
}

/// Appends groups; files of the same directory join one group.
fn append(found: &mut Found, groups: Vec<Group>) {
    for mut group in groups {
        match found.groups.last_mut().filter(|last| last.place == group.place) {
            Some(last) => last.items.append(&mut group.items),
            None => found.groups.push(group),
        }
    }
}

/// The extended attributes of a directory inside another.
fn extended(parent: &OwnedFd, item: &Item) -> Result<Extended, rustix::io::Errno> {
    use rustix::fs::{Mode, OFlags, openat};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(parent, &item.name[..], flags, Mode::empty()) {
        // The walk of the directory will report it.
        Err(rustix::io::Errno::ACCESS) => Ok(Vec::new()),
        opened => read_attributes(opened?),
    }
}

/// A directory inside another. Paths below a directory that was `named` begin at that directory.
fn inside(place: &DirectoryPair, item: &Item, ino: Ino, fresh: bool, named: bool) -> DirectoryPair {
    let source = place.source_of(&item.name);
    DirectoryPair {
        below: if named { source.len() + 1 } else { place.below },
        source,
        target: join(&place.target, &item.name),
        ino,
        fresh,
        system: item.stat.identity.0,
        accessed: item.stat.accessed,
        modified: item.stat.modified,
    }
}

/// A description of a new file, without content.
pub fn whole(parent: Ino, ino: Ino, item: &Item, attributes: Vec<(Vec<u8>, Vec<u8>)>) -> BulkFile {
    let stat = &item.stat;
    let (kind, mode, uid, gid, device) = (stat.kind, stat.mode, stat.uid, stat.gid, stat.device);
    BulkFile {
        ino,
        parent,
        name: item.name.clone(),
        new: New { kind, mode, uid, gid, device, link: Vec::new() },
        size: if kind == FileKind::File { stat.size } else { 0 },
        accessed: stat.accessed,
        modified: stat.modified,
        changed: stat.changed,
        extents: Vec::new(),
        attributes,
    }
}

/// Gives a directory of the volume the owner, mode and times that it has elsewhere, if they differ.
///
/// # Errors
/// If the metadata cannot be written.
pub fn sync_directory(volume: &FileSystem, there: &Attributes, stat: &Stat) -> Result<(), Broken> {
    let same = (there.mode, there.uid, there.gid, there.modified, there.changed)
        == (stat.mode, stat.uid, stat.gid, stat.modified, stat.changed);
    if !same {
        let change = SetAttributes {
            mode: Some(stat.mode),
            uid: Some(stat.uid),
            gid: Some(stat.gid),
            accessed: Some(SetTime::To(stat.accessed)),
            modified: Some(SetTime::To(stat.modified)),
            changed: Some(stat.changed),
            ..SetAttributes::default()
        };
        volume.set_attributes(there.ino, change)?;
    }
    Ok(())
}

/// Sets exactly these extended attributes on a file of the volume; Weft's own attributes stay.
///
/// # Errors
/// If the metadata cannot be read or written.
pub fn sync_attributes(volume: &FileSystem, ino: Ino, wanted: &[(Vec<u8>, Vec<u8>)]) -> Result<(), Broken> {
    for name in volume.attribute_names(ino)? {
        if !name.starts_with(OWN) && !wanted.iter().any(|(wanted, _)| *wanted == name) {
            volume.remove_attribute(ino, &name)?;
        }
    }
    for (name, value) in wanted {
        if volume.attribute(ino, name).ok().as_ref() != Some(value) {
            volume.set_attribute(ino, name, value, None)?;
        }
    }
    Ok(())
}

/// The attributes of the root of a tree.
///
/// # Errors
/// If it cannot be read.
pub fn root_stat(path: &[u8]) -> std::io::Result<Stat> {
    Ok(stat_of(open_directory(path)?)?)
}

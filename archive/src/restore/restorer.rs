//! The worker's side of a restore: it writes whole files and parts of large ones.

use super::attributes::{Keeps, give, give_at};
use super::content::read;
use super::{Root, open_below};
use crate::encode::hash::{Sealed, part_hasher};
use crate::encode::{Decision, decide};
use crate::limit::Limiter;
use crate::message::{DirectoryPair, Group, Item, Large, Problem, Stat, Tally, Work};
use crate::roles::{Craft, Made};
use crate::transport::Broken;
use crate::walk::stat_at;
use blake3::Hasher;
use fs::{Attributes, FileKind, FileSystem};
use plan::Ino;
use plan::schedule::Parts;
use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, ftruncate, linkat, mknodat, openat, readlinkat, renameat,
    renameat_with, symlinkat, unlinkat,
};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::sync::Arc;
use volume::Control;

/// The job's directory, inside the directory of the restore. It holds incomplete files and the
/// files with several names.
pub const HIDDEN: &[u8] = b".weft-restore";

/// What all workers of a restore share.
pub struct Restoring {
    /// The volume.
    pub volume: Arc<FileSystem>,
    /// The directory to restore into.
    pub root: Arc<Root>,
    /// The job's directory there.
    pub hidden: OwnedFd,
    /// Whether files that exist and differ are replaced.
    pub force: bool,
    /// What the file system keeps of owners and modes.
    pub keeps: Keeps,
    /// Limits the rate of the job.
    pub limiter: Limiter,
    /// Stops the job.
    pub control: Arc<Control>,
}

/// A worker of a restore.
pub struct Restorer<'a> {
    job: &'a Restoring,
    tally: Tally,
}

/// Why a file was not restored.
enum Trouble {
    File(String),
    Stopped,
    Volume(fs::Error),
}

impl From<fs::Error> for Trouble {
    fn from(error: fs::Error) -> Self {
        match error {
            // The error concerns this file; other files may be intact.
            fs::Error::Volume(why) => Self::File(why.to_string()),
            error => Self::Volume(error),
        }
    }
}

impl From<Errno> for Trouble {
    fn from(error: Errno) -> Self {
        Self::File(std::io::Error::from(error).to_string())
    }
}

impl Craft for Restorer<'_> {
    fn work(&mut self, work: &Work, problems: &mut Vec<Problem>) -> Result<Made, Broken> {
        let known = problems.len();
        let mut made = Made::default();
        match work {
            Work::Files(groups) => {
                for group in groups {
                    made.bytes = made.bytes.saturating_add(self.group(group, problems)?);
                }
            }
            Work::Open(large) => match self.open(large, problems) {
                Ok(Some(parts)) => made.opened = Some((Large { ino: Ino(1), ..large.clone() }, parts)),
                Ok(None) => {}
                Err(trouble) => report(&large.place, &large.item, trouble, problems)?,
            },
            Work::Part(large, part) => match self.part(large, *part) {
                Ok(bytes) => made.bytes = bytes,
                Err(trouble) => report(&large.place, &large.item, trouble, problems)?,
            },
            Work::Close(large) => {
                if let Err(trouble) = self.close(large, problems) {
                    report(&large.place, &large.item, trouble, problems)?;
                }
            }
        }
        made.good = problems.len() == known;
        Ok(made)
    }

    fn is_full(&self) -> bool {
        self.tally.files + self.tally.others >= 1024
    }

    fn commit(&mut self, _: &mut Vec<Problem>) -> Result<Tally, Broken> {
        Ok(std::mem::take(&mut self.tally))
    }
}

fn report(place: &DirectoryPair, item: &Item, trouble: Trouble, problems: &mut Vec<Problem>) -> Result<(), Broken> {
    match trouble {
        Trouble::File(what) => problems.push(Problem { path: place.source_of(&item.name), what }),
        Trouble::Stopped => {}
        Trouble::Volume(error) => return Err(error.into()),
    }
    Ok(())
}

/// Removes a name, if it is there.
fn remove(directory: &OwnedFd, name: &[u8]) -> Result<(), Trouble> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The attributes of an existing file, in the volume's form.
fn as_attributes(stat: &Stat) -> Attributes {
    Attributes {
        ino: Ino(stat.identity.1),
        kind: stat.kind,
        mode: stat.mode,
        links: stat.links,
        uid: stat.uid,
        gid: stat.gid,
        device: stat.device,
        size: stat.size,
        allocated: stat.allocated,
        accessed: stat.accessed,
        modified: stat.modified,
        changed: stat.changed,
        created: stat.changed,
    }
}

impl<'a> Restorer<'a> {
    /// A worker for this job.
    pub fn new(job: &'a Restoring) -> Self {
        Self { job, tally: Tally::default() }
    }

    fn volume(&self) -> &'a FileSystem {
        &self.job.volume
    }

    fn go_on(&self) -> Result<(), Trouble> {
        self.job.control.go_on().map_err(|_| Trouble::Stopped)
    }

    fn group(&mut self, group: &Group, problems: &mut Vec<Problem>) -> Result<u64, Broken> {
        let place = &group.place;
        let directory = match self.job.root.directory(&place.target) {
            Ok(directory) => directory,
            Err(error) => {
                for item in &group.items {
                    report(place, item, error.into(), problems)?;
                }
                return Ok(0);
            }
        };
        let before = self.tally.bytes;
        for item in &group.items {
            let done = self.go_on().and_then(|()| match item.stat.kind {
                FileKind::Directory => self.directory(&directory, item),
                _ => self.file(&directory, place, item, problems),
            });
            if let Err(trouble) = done {
                report(place, item, trouble, problems)?;
            }
        }
        Ok(self.tally.bytes - before)
    }

    /// Sets the attributes of a directory when all files are in it.
    fn directory(&mut self, parent: &OwnedFd, item: &Item) -> Result<(), Trouble> {
        let directory = open_below(parent, &item.name)?;
        give(&directory, &item.stat, self.volume(), Ino(item.stat.identity.1)).map_err(Trouble::File)?;
        self.tally.others += 1;
        Ok(())
    }

    /// Decides what to do with a file. Also returns what has its name now.
    fn look(&self, directory: &OwnedFd, item: &Item) -> Result<(Decision, Option<Stat>), Trouble> {
        let there = match stat_at(directory, &item.name) {
            Ok(there) => Some(there),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(error.into()),
        };
        let link = |_: &Attributes| {
            let target = readlinkat(directory, &item.name[..], Vec::new()).map(|target| target.into_bytes());
            target.ok() == self.volume().read_link(Ino(item.stat.identity.1)).ok()
        };
        Ok((decide(&item.stat, there.as_ref().map(as_attributes).as_ref(), link), there))
    }

    fn file(
        &mut self,
        directory: &OwnedFd,
        place: &DirectoryPair,
        item: &Item,
        problems: &mut Vec<Problem>,
    ) -> Result<(), Trouble> {
        let (decision, there) = self.look(directory, item)?;
        self.may_replace(decision)?;
        let same = matches!(decision, Decision::Unchanged | Decision::Attributes);
        if item.stat.links > 1 {
            let key = self.shared_name(item);
            if same && self.is_shared(&key, there.as_ref())? {
                return self.keep(directory, place, item, there.as_ref(), problems);
            }
            if self.link(&key, directory, item)? {
                self.tally.others += 1;
                return Ok(());
            }
            // From an earlier run: this file gets the other names.
            if same {
                return match linkat(directory, &item.name[..], &self.job.hidden, &key[..], AtFlags::empty()) {
                    Ok(()) | Err(Errno::EXIST) => self.keep(directory, place, item, there.as_ref(), problems),
                    Err(error) => Err(error.into()),
                };
            }
        } else if same {
            return self.keep(directory, place, item, there.as_ref(), problems);
        }
        let part = self.temporary(item);
        remove(directory, &part)?;
        let made = self.make(directory, &part, item).and_then(|incomplete| {
            if let Some(what) = incomplete {
                let what = format!("it was restored without {what}");
                problems.push(Problem { path: place.source_of(&item.name), what });
            }
            self.put(directory, (directory, &part), item)
        });
        if made.is_err() {
            let _ = unlinkat(directory, &part[..], AtFlags::empty());
        }
        if made? {
            self.count(item);
        } else {
            self.tally.others += 1;
        }
        Ok(())
    }

    /// Leaves a file with the content of the archive where it is. Its owner and mode are those of
    /// the archive then, or the file is named.
    fn keep(
        &mut self,
        directory: &OwnedFd,
        place: &DirectoryPair,
        item: &Item,
        there: Option<&Stat>,
        problems: &mut Vec<Problem>,
    ) -> Result<(), Trouble> {
        if there.is_some_and(|there| self.job.keeps.shows_another(&item.stat, there)) {
            if !self.job.force {
                return Err(Trouble::File("it is there with another owner or mode, which stay without --force".into()));
            }
            if let Err(what) = self.give_again(directory, item)? {
                let what = format!("it has the content of the archive, but not {what}");
                problems.push(Problem { path: place.source_of(&item.name), what });
            }
        }
        self.tally.unchanged_files += 1;
        let bytes = if item.stat.kind == FileKind::File { item.stat.size } else { 0 };
        self.tally.unchanged_bytes = self.tally.unchanged_bytes.saturating_add(bytes);
        Ok(())
    }

    fn give_again(&self, directory: &OwnedFd, item: &Item) -> Result<Result<(), String>, Trouble> {
        let ino = Ino(item.stat.identity.1);
        if item.stat.kind != FileKind::File {
            return Ok(give_at(directory, &item.name, &item.stat, self.volume(), ino));
        }
        // No link is followed that took its place meanwhile.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(directory, &item.name[..], flags, Mode::empty())?;
        Ok(give(&file, &item.stat, self.volume(), ino))
    }

    fn count(&mut self, item: &Item) {
        self.tally.count(&item.stat);
    }

    fn may_replace(&self, decision: Decision) -> Result<(), Trouble> {
        match decision {
            Decision::Directory => {
                Err(Trouble::File("there is a directory of that name, which is not replaced".into()))
            }
            Decision::Differs if !self.job.force => {
                Err(Trouble::File("something else is there and is not replaced".into()))
            }
            _ => Ok(()),
        }
    }

    /// The name of a file in its directory until it is complete. A restore that was killed leaves
    /// it; the next one that comes to this file removes it.
    fn temporary(&self, item: &Item) -> Vec<u8> {
        let of = (self.volume().name(), item.stat.identity, &item.name);
        let bytes = postcard::to_stdvec(&of).expect("what was in a message can be written down");
        format!(".weft-part-{}", &blake3::hash(&bytes).to_hex()[..32]).into_bytes()
    }

    /// The name of a file with several names in the job's directory. It must not be mistaken for a
    /// file of another restore.
    fn shared_name(&self, item: &Item) -> Vec<u8> {
        let stat = &item.stat;
        let of = (self.volume().name(), stat.identity, stat.size, stat.modified);
        let bytes = postcard::to_stdvec(&of).expect("numbers can be written down");
        format!("l-{}", &blake3::hash(&bytes).to_hex()[..32]).into_bytes()
    }

    /// Whether an existing file is the one with several names.
    fn is_shared(&self, key: &[u8], there: Option<&Stat>) -> Result<bool, Trouble> {
        match stat_at(&self.job.hidden, key) {
            Ok(known) => Ok(there.is_some_and(|there| there.identity == known.identity)),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Links the file with several names to this name, if it is restored already.
    fn link(&mut self, key: &[u8], directory: &OwnedFd, item: &Item) -> Result<bool, Trouble> {
        let part = self.temporary(item);
        remove(directory, &part)?;
        match linkat(&self.job.hidden, key, directory, &part[..], AtFlags::empty()) {
            Err(Errno::NOENT) => return Ok(false),
            done => done?,
        }
        renameat(directory, &part[..], directory, &item.name[..])?;
        // If both names are the same file, the rename leaves both.
        let _ = unlinkat(directory, &part[..], AtFlags::empty());
        Ok(true)
    }

    /// Creates a file under a name that no other worker uses. Returns the attributes that could not
    /// be set.
    fn make(&mut self, directory: &OwnedFd, name: &[u8], item: &Item) -> Result<Option<String>, Trouble> {
        let (stat, ino) = (&item.stat, Ino(item.stat.identity.1));
        let kind = match stat.kind {
            FileKind::File => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?;
                let hash = self.write(&file, item, 0..stat.size, Hasher::new())?.finalize();
                let sealed = self.volume().attribute(ino, crate::encode::HASH).ok();
                let known =
                    sealed.and_then(|bytes| Sealed::decode(&bytes)).filter(|known| known.modified == stat.modified);
                if known.is_some_and(|known| known.hash != *hash.as_bytes()) {
                    return Err(Trouble::File("its content is not what was archived: its hash differs".into()));
                }
                return Ok(give(&file, stat, self.volume(), ino).err());
            }
            FileKind::Symlink => {
                let target = self.volume().read_link(ino)?;
                symlinkat(&target[..], directory, name)?;
                return Ok(give_at(directory, name, stat, self.volume(), ino).err());
            }
            FileKind::Fifo => FileType::Fifo,
            FileKind::Socket => FileType::Socket,
            FileKind::BlockDevice => FileType::BlockDevice,
            FileKind::CharacterDevice => FileType::CharacterDevice,
            FileKind::Directory => return Ok(None),
        };
        // The kernel writes device numbers in 32 bits.
        let (major, minor) = ((stat.device >> 8) & 0xFFF, (stat.device & 0xFF) | ((stat.device >> 12) & 0xFFF00));
        mknodat(directory, name, kind, Mode::RUSR | Mode::WUSR, rustix::fs::makedev(major, minor))?;
        Ok(give_at(directory, name, stat, self.volume(), ino).err())
    }

    /// Writes a range of a file's content; holes stay holes.
    fn write(
        &self,
        file: impl AsFd,
        item: &Item,
        range: std::ops::Range<u64>,
        mut hasher: Hasher,
    ) -> Result<Hasher, Trouble> {
        let stat = &item.stat;
        let (file, last) = (file.as_fd(), range.end == stat.size);
        let has_holes = stat.allocated < stat.size;
        read(self.volume(), Ino(stat.identity.1), range, has_holes, &mut hasher, |offset, bytes| {
            self.go_on()?;
            let (mut offset, mut bytes) = (offset, bytes);
            self.job.limiter.pass(bytes.len() as u64);
            while !bytes.is_empty() {
                let written = rustix::io::pwrite(file, bytes, offset)?;
                (offset, bytes) = (offset + written as u64, &bytes[written..]);
            }
            Ok::<(), Trouble>(())
        })?;
        if last {
            ftruncate(file, stat.size)?;
        }
        Ok(hasher)
    }

    /// Gives a complete file its name. Returns whether this file got it: for a file with several
    /// names, another worker may be faster.
    fn put(&self, directory: &OwnedFd, part: (&OwnedFd, &[u8]), item: &Item) -> Result<bool, Trouble> {
        let mut first = true;
        if item.stat.links > 1 {
            let key = self.shared_name(item);
            match linkat(part.0, part.1, &self.job.hidden, &key[..], AtFlags::empty()) {
                Ok(()) => {}
                Err(Errno::EXIST) => {
                    first = false;
                    unlinkat(part.0, part.1, AtFlags::empty())?;
                    linkat(&self.job.hidden, &key[..], part.0, part.1, AtFlags::empty())?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        if self.job.force {
            renameat(part.0, part.1, directory, &item.name[..])?;
            return Ok(first);
        }
        match renameat_with(part.0, part.1, directory, &item.name[..], RenameFlags::NOREPLACE) {
            // The file system does not support that; an earlier look has shown that the name is
            // free.
            Err(Errno::INVAL | Errno::NOSYS) => renameat(part.0, part.1, directory, &item.name[..])?,
            done => done?,
        }
        Ok(first)
    }

    fn parts(large: &Large) -> Parts {
        Parts::new(large.item.stat.size, 1, Some(large.part_bytes))
    }

    /// The name of a file in parts in the job's directory.
    fn part_name(&self, large: &Large) -> Vec<u8> {
        let of = (self.volume().name(), &large.place.target, &large.item, large.part_bytes);
        let bytes = postcard::to_stdvec(&of).expect("what was in a message can be written down");
        format!("p-{}", &blake3::hash(&bytes).to_hex()[..32]).into_bytes()
    }

    /// The name of the note that a part is done.
    fn note(name: &[u8], part: u32) -> Vec<u8> {
        [name, format!("-{part}").as_bytes()].concat()
    }

    /// The parts of a file that are left to restore; None if the file need not be done in parts.
    fn open(&mut self, large: &Large, problems: &mut Vec<Problem>) -> Result<Option<Vec<u32>>, Trouble> {
        let directory = self.job.root.directory(&large.place.target)?;
        let item = &large.item;
        let (decision, there) = self.look(&directory, item)?;
        self.may_replace(decision)?;
        let same = matches!(decision, Decision::Unchanged | Decision::Attributes);
        if same && item.stat.links == 1 {
            self.keep(&directory, &large.place, item, there.as_ref(), problems)?;
            return Ok(None);
        }
        if item.stat.links > 1 {
            let key = self.shared_name(item);
            if same && (self.is_shared(&key, there.as_ref())? || stat_at(&self.job.hidden, &key).is_err()) {
                _ = linkat(&directory, &item.name[..], &self.job.hidden, &key[..], AtFlags::empty());
                self.keep(&directory, &large.place, item, there.as_ref(), problems)?;
                return Ok(None);
            }
            if self.link(&key, &directory, item)? {
                self.tally.others += 1;
                return Ok(None);
            }
        }
        let name = self.part_name(large);
        if matches!(stat_at(&self.job.hidden, &name), Err(Errno::NOENT)) {
            // Notes that are left of an earlier file of this name say nothing of the new one.
            self.forget_notes(large, &name)?;
            match rustix::fs::fsync(&self.job.hidden) {
                // The file system does not do that with directories.
                Ok(()) | Err(Errno::INVAL) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.job.hidden, &name[..], flags, Mode::RUSR | Mode::WUSR)?;
        ftruncate(&file, item.stat.size)?;
        let lacks = |part: &u32| stat_at(&self.job.hidden, &Self::note(&name, *part)).is_err();
        Ok(Some((0..Self::parts(large).count()).filter(lacks).collect()))
    }

    fn part(&mut self, large: &Large, part: u32) -> Result<u64, Trouble> {
        let name = self.part_name(large);
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.job.hidden, &name[..], flags, Mode::empty())?;
        let range = Self::parts(large).range(part);
        let bytes = range.end - range.start;
        self.write(&file, &large.item, range.clone(), part_hasher(range.start))?;
        // Make the data durable first: a noted part must be there.
        rustix::fs::fdatasync(&file)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&self.job.hidden, &Self::note(&name, part)[..], flags, Mode::RUSR | Mode::WUSR)?;
        Ok(bytes)
    }

    fn close(&mut self, large: &Large, problems: &mut Vec<Problem>) -> Result<(), Trouble> {
        let directory = self.job.root.directory(&large.place.target)?;
        let name = self.part_name(large);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.job.hidden, &name[..], flags, Mode::empty())?;
        let (item, ino) = (&large.item, Ino(large.item.stat.identity.1));
        if let Err(what) = give(&file, &item.stat, self.volume(), ino) {
            let what = format!("it was restored without {what}");
            problems.push(Problem { path: large.place.source_of(&item.name), what });
        }
        self.put(&directory, (&self.job.hidden, &name), item)?;
        // Those that stay are removed before the next file of this name is begun.
        let _ = self.forget_notes(large, &name);
        self.count(item);
        Ok(())
    }

    fn forget_notes(&self, large: &Large, name: &[u8]) -> Result<(), Trouble> {
        (0..Self::parts(large).count()).try_for_each(|part| remove(&self.job.hidden, &Self::note(name, part)))
    }
}

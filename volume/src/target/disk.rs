//! A local directory as a target.
//!
//! Every access goes through a handle on the directory. So a directory that was removed or replaced
//! is detected and never filled by mistake.

use super::claim::{ClaimRequest, ClaimState, ClaimedChange};
use super::claim_file::ClaimFile;
use super::clock::Clock;
use super::listing::list_directory;
use super::machine::file_system;
use super::open::{Open, make_room};
use super::rename::rename_new;
use super::unsynced::Unsynced;
use super::volume_names::{CHUNKS, JOURNAL, SNAPSHOTS, name_of};
use super::{Allocation, Durable, Owner, Presence, ReadPart, Space, Target, TargetFile, Wait, timed};
use crate::{Error, Result, Shown, lock, unpoisoned};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::Duration;

/// A local directory.
#[derive(Debug)]
pub struct Disk {
    path: PathBuf,
    directory: File,
    identity: (u64, u64),
    open: Mutex<HashMap<TargetFile, Arc<Open>>>,
    unsynced: Unsynced,
    given: RwLock<BTreeMap<TargetFile, GivenName>>,
    clock: AtomicU64,
    claim: Mutex<ClaimFile>,
}

/// The name of a file that belongs to no volume.
#[derive(Debug)]
struct GivenName {
    name: OsString,
    /// A rename to this name may replace a file.
    replaces: bool,
}

/// Locks out other processes for as long as the directory is open.
pub(super) fn lock_directory(directory: &File, path: &Path) -> Result<()> {
    match rustix::fs::flock(directory, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => {
            Err(Error::Conflict { path: path.to_path_buf(), what: "is in use by another process".into() })
        }
        _ => Ok(()),
    }
}

impl Disk {
    /// Opens a directory that is formatted as a target.
    ///
    /// # Errors
    /// If it does not exist.
    pub fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let opened = rustix::fs::open(path, flags, Mode::empty()).map_err(Error::io("open the directory", path))?;
        let directory = File::from(opened);
        let found = directory.metadata().map_err(Error::io("look at", path))?;
        Ok(Self {
            path: path.to_path_buf(),
            directory,
            identity: (found.dev(), found.ino()),
            open: Mutex::default(),
            unsynced: Unsynced::default(),
            given: RwLock::default(),
            clock: AtomicU64::new(0),
            claim: Mutex::default(),
        })
    }

    /// Serves the directory to others. No other process can claim it from now on, and its leases
    /// survive this process. The server checks the epochs of changes.
    ///
    /// # Errors
    /// If another process holds the claim, or the claim cannot be read.
    pub fn serve(&self) -> Result<()> {
        self.claims().serve(&self.directory).map_err(Error::io("claim", &self.path))
    }

    /// Replaces the clock of leases.
    pub fn set_clock(&self, clock: Clock) {
        self.claims().set_clock(clock);
    }

    fn claims(&self) -> MutexGuard<'_, ClaimFile> {
        lock(&self.claim)
    }

    /// Fails if another opening of the volume has the target and the change needs the claim.
    fn allow(&self, change: ClaimedChange, file: TargetFile) -> io::Result<()> {
        let needs = change.needs_claim(file) && !unpoisoned(self.given.read()).contains_key(&file);
        if needs { self.claims().check(&self.directory) } else { Ok(()) }
    }

    /// Locks out other processes for as long as this value exists.
    ///
    /// # Errors
    /// `Conflict` if another process holds the lock. A file system without locks is used without.
    pub fn lock(&self) -> Result<()> {
        lock_directory(&self.directory, &self.path)
    }

    fn files(&self) -> MutexGuard<'_, HashMap<TargetFile, Arc<Open>>> {
        lock(&self.open)
    }

    /// The directory itself.
    pub(super) fn directory(&self) -> &File {
        &self.directory
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Device and inode of the directory.
    pub(super) fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// Gives a file another name than that of a file of a volume. So it needs no claim.
    pub(super) fn name_file(&self, file: TargetFile, name: &OsStr, replaces: bool) {
        unpoisoned(self.given.write()).insert(file, GivenName { name: name.into(), replaces });
    }

    /// Uses an open file under a given name.
    ///
    /// # Errors
    /// If the system does not tell which file it is.
    pub(super) fn adopt(&self, file: TargetFile, name: &OsStr, opened: Arc<File>) -> io::Result<()> {
        let open = Open::new(opened, true, 0)?;
        self.name_file(file, name, false);
        self.files().insert(file, Arc::new(open));
        Ok(())
    }

    /// The path of a file, relative to the directory.
    fn name(&self, file: TargetFile) -> OsString {
        let given = unpoisoned(self.given.read());
        given.get(&file).map_or_else(|| name_of(file).into(), |given| given.name.clone())
    }

    /// The open file. Opens or creates it if necessary.
    fn file(&self, file: TargetFile, create: bool) -> io::Result<Arc<Open>> {
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        let mut files = self.files();
        if let Some(open) = files.get(&file) {
            open.used.store(now, Ordering::Relaxed);
            return Ok(open.clone());
        }
        let name = self.name(file);
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        let opened: OwnedFd = match rustix::fs::openat(&self.directory, &name, flags, mode) {
            Err(Errno::NOENT) if create => rustix::fs::openat(&self.directory, &name, flags | OFlags::CREATE, mode)?,
            // A read-only target is still good for reading.
            Err(Errno::ROFS | Errno::ACCESS) if !create => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                rustix::fs::openat(&self.directory, &name, flags, mode)?
            }
            opened => opened?,
        };
        let is_chunk = matches!(file, TargetFile::Chunk { .. } | TargetFile::NewChunk { .. });
        let open = Arc::new(Open::new(Arc::new(opened.into()), false, now)?.of_chunk(is_chunk));
        make_room(&mut files)?;
        files.insert(file, open.clone());
        Ok(open)
    }

    /// The handle for direct I/O. Whole pages that are not read soon cost half the time this way,
    /// and leave the page cache to others.
    fn direct<'a>(&self, file: TargetFile, open: &'a Open) -> Option<&'a File> {
        let direct = open.direct.get_or_init(|| {
            let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::DIRECT;
            let direct = File::from(rustix::fs::openat(&self.directory, self.name(file), flags, Mode::empty()).ok()?);
            let same = direct.metadata().ok()?.ino() == open.file.metadata().ok()?.ino();
            same.then_some(direct)
        });
        direct.as_ref()
    }

    /// The inode of the file that has this name now; None if there is none.
    fn inode_of(&self, file: TargetFile) -> io::Result<Option<u64>> {
        match rustix::fs::statat(&self.directory, self.name(file), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok((FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then_some(stat.st_ino)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(why) => Err(why.into()),
        }
    }

    /// Makes the names in the directory of a file durable.
    fn sync_names(&self, file: TargetFile) -> io::Result<()> {
        let name = self.name(file);
        match Path::new(&name).parent().filter(|below| !below.as_os_str().is_empty()) {
            None => self.directory.sync_all(),
            Some(below) => {
                let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
                let below = rustix::fs::openat(&self.directory, below, flags, Mode::empty())?;
                Ok(rustix::fs::fsync(below)?)
            }
        }
    }

    /// Writes; the next sync makes it durable. Returns the file if it went into the page cache.
    fn write_parts(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<Option<Arc<Open>>> {
        self.allow(ClaimedChange::Write, file)?;
        let open = self.file(file, true)?;
        let parts: Vec<&[u8]> = parts.iter().map(|part| &**part).filter(|part| !part.is_empty()).collect();
        let is_direct = self.write_content(file, &open, offset, &parts)?;
        if let (TargetFile::Chunk { .. } | TargetFile::NewChunk { .. }, Some(first)) = (file, parts.first()) {
            open.wrote(offset, first);
        }
        Ok(Some(open).filter(|_| !is_direct))
    }

    /// Returns whether it went past the page cache.
    fn write_content(&self, file: TargetFile, open: &Open, offset: u64, parts: &[&[u8]]) -> io::Result<bool> {
        if super::vectored::is_whole_pages(offset, parts)
            && let Some(direct) = self.direct(file, open)
        {
            match super::write_at(direct, offset, parts) {
                // Some file systems report only now that they do not support it.
                Err(why) if why.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {}
                done => return done.map(|()| true),
            }
        }
        super::write_at(&open.file, offset, parts)?;
        Ok(false)
    }

    /// Counts a write that went into the page cache, and waits if the disk is far behind. Encoders
    /// of single files write back themselves, and the metadata is synced soon.
    fn count_unsynced(&self, file: TargetFile, open: &Arc<Open>, range: Range<u64>) {
        if matches!(file, TargetFile::Chunk { .. } | TargetFile::NewChunk { .. }) && !open.given {
            self.unsynced.wrote(file, open, range);
            self.unsynced.wait();
        }
    }

    /// Makes a file durable.
    fn sync_file(&self, file: TargetFile) -> io::Result<()> {
        self.allow(ClaimedChange::Write, file)?;
        let open = self.file(file, false)?;
        self.unsynced.forget(file);
        // The system reports a failure to one of several syncs only.
        let _no_write_back = unpoisoned(open.syncing.read());
        open.is_sound()?;
        let synced = open.sync_content().and_then(|()| {
            open.is_sound()?;
            if !open.named.load(Ordering::Relaxed) {
                self.sync_names(file)?;
                open.named.store(true, Ordering::Relaxed);
            }
            // A file that was removed from outside still accepts writes, but they are lost.
            match self.inode_of(file)? {
                Some(inode) if inode == open.inode => Ok(()),
                Some(_) => Err(io::Error::new(io::ErrorKind::NotFound, "the file was replaced while it was in use")),
                None => Err(io::Error::new(io::ErrorKind::NotFound, "the file was removed while it was in use")),
            }
        });
        synced.inspect_err(|why| open.poison(why))
    }

    /// See `Allocation::Reserve`.
    fn reserve(&self, file: TargetFile, bytes: u64) -> io::Result<()> {
        self.allow(ClaimedChange::Write, file)?;
        let open = self.file(file, true)?;
        match rustix::fs::fallocate(&open.file, FallocateFlags::KEEP_SIZE, 0, bytes) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(()),
            done => Ok(done?),
        }
    }

    /// See `Allocation::Trim`.
    fn trim(&self, file: TargetFile) -> io::Result<()> {
        self.allow(ClaimedChange::Write, file)?;
        let open = self.file(file, false)?;
        // Setting the length to the current end releases the space beyond it.
        open.file.set_len(open.file.metadata()?.len())
    }

    /// See `Allocation::Punch`.
    fn punch(&self, file: TargetFile, range: Range<u64>) -> io::Result<()> {
        self.allow(ClaimedChange::Remove, file)?;
        let open = self.file(file, false)?;
        open.gives_back(&range);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&open.file, flags, range.start, range.end - range.start) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            done => Ok(done?),
        }
    }
}

impl Disk {
    /// Reads what is in the page cache; None if not all of it is.
    fn read_cached(&self, file: TargetFile, parts: &mut [ReadPart<'_>]) -> Option<()> {
        // The holder of the lock may wait for a directory that hangs.
        let open = self.open.try_lock().ok()?.get(&file).cloned()?;
        open.used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        super::read_cached_parts(&open.file, parts)
    }
}

impl Target for Disk {
    fn write(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>], durable: Durable) -> io::Result<Duration> {
        timed(|| {
            let cached = self.write_parts(file, offset, parts)?;
            if durable == Durable::Now {
                return self.sync_file(file);
            }
            let bytes: usize = parts.iter().map(|part| part.len()).sum();
            cached.inspect(|open| self.count_unsynced(file, open, offset..offset + bytes as u64));
            Ok(())
        })
    }

    fn read(&self, file: TargetFile, parts: &mut [ReadPart<'_>], wait: Wait) -> io::Result<()> {
        match wait {
            Wait::Never => self.read_cached(file, parts).ok_or_else(|| io::ErrorKind::WouldBlock.into()),
            wait => {
                wait.refuse_limit()?;
                super::read_parts(&self.file(file, false)?.file, parts)
            }
        }
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn sync(&self, file: TargetFile) -> io::Result<Duration> {
        timed(|| self.sync_file(file))
    }

    fn allocate(&self, file: TargetFile, change: Allocation) -> io::Result<()> {
        match change {
            Allocation::Reserve(bytes) => self.reserve(file, bytes),
            Allocation::Trim => self.trim(file),
            Allocation::Punch(range) => self.punch(file, range),
        }
    }

    fn seal(&self, file: TargetFile) -> io::Result<()> {
        self.allow(ClaimedChange::Write, file)?;
        let open = self.file(file, false)?;
        open.seal();
        Ok(())
    }

    fn rename(&self, from: TargetFile, to: TargetFile) -> io::Result<()> {
        self.allow(ClaimedChange::Remove, to)?;
        let mut files = self.files();
        let [old, new] = [from, to].map(|file| self.name(file));
        match unpoisoned(self.given.read()).get(&to) {
            Some(given) if !given.replaces => rename_new(&self.directory, Path::new(&old), Path::new(&new))?,
            _ => rustix::fs::renameat(&self.directory, old, &self.directory, new)?,
        }
        files.remove(&from);
        files.remove(&to);
        drop(files);
        self.unsynced.forget(from);
        self.unsynced.forget(to);
        self.sync_names(to)
    }

    fn remove(&self, file: TargetFile) -> io::Result<()> {
        self.allow(ClaimedChange::Remove, file)?;
        let mut files = self.files();
        match rustix::fs::unlinkat(&self.directory, self.name(file), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            failed => failed?,
        }
        files.remove(&file);
        self.unsynced.forget(file);
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        let mut found = Vec::new();
        let given: Vec<TargetFile> = unpoisoned(self.given.read()).keys().copied().collect();
        for file in [TargetFile::Label, TargetFile::NewLabel].into_iter().chain(given) {
            match rustix::fs::statat(&self.directory, self.name(file), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => found.push((file, stat.st_size as u64)),
                Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let below = (0..=u8::MAX).map(|number| format!("{CHUNKS}/{number:02x}"));
        for directory in below.chain([JOURNAL.into(), SNAPSHOTS.into()]) {
            list_directory(&self.directory, &directory, &mut found)?;
        }
        Ok(found)
    }

    fn list_metadata(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        let mut found = Vec::new();
        for directory in [JOURNAL, SNAPSHOTS] {
            list_directory(&self.directory, directory, &mut found)?;
        }
        Ok(found)
    }

    fn claim(&self, ask: &ClaimRequest) -> io::Result<ClaimState> {
        self.claims().claim(&self.directory, ask)
    }

    fn look(&self, files: &[TargetFile]) -> io::Result<Vec<Presence>> {
        let presence = |&file: &TargetFile| {
            // Hold the lock, so that no rename or removal happens between the two checks.
            let all = self.files();
            Ok(match (all.get(&file), self.inode_of(file)?) {
                (Some(open), named) if named != Some(open.inode) => {
                    open.unnamed.store(true, Ordering::Relaxed);
                    Presence::Unnamed
                }
                (_, Some(_)) => Presence::There,
                (_, None) => Presence::Absent,
            })
        };
        files.iter().map(presence).collect()
    }

    fn space(&self) -> io::Result<Space> {
        // A directory that was removed or replaced still answers through its handle.
        let there = std::fs::metadata(&self.path)?;
        if (there.dev(), there.ino()) != self.identity {
            let what = format!("{} is another directory than it was", Shown(&self.path));
            return Err(io::Error::new(io::ErrorKind::NotFound, what));
        }
        let stat = rustix::fs::fstatvfs(&self.directory)?;
        let unit = stat.f_frsize;
        Ok(Space {
            total: stat.f_blocks.saturating_mul(unit),
            free: stat.f_bavail.saturating_mul(unit),
            system: file_system(self.identity.0),
        })
    }

    fn owner(&self) -> Option<Owner<'_>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ReadAt, tags};
    use super::*;
    use plan::Position;
    use plan::SetId;

    /// The system reports a failure to one process only.
    #[test]
    fn the_next_process_knows_of_a_sync_that_failed() {
        let place = std::env::temp_dir().join(format!("weft-failed-{}", std::process::id()));
        let disk = Disk::format(&place).unwrap();
        if !tags::has_attributes(disk.directory()) {
            return eprintln!("skipped: no extended attributes here");
        }
        let chunk = TargetFile::Chunk { set: SetId(7), position: Position(0) };
        disk.write(chunk, 0, &[IoSlice::new(b"lost")], Durable::Now).unwrap();
        let open = disk.file(chunk, false).unwrap();
        open.poison(&Errno::IO.into());
        tags::mark_failed(&open.file);
        assert!(disk.sync(chunk).unwrap_err().to_string().contains("an earlier sync of this file failed"));
        drop((open, disk));
        let disk = Disk::open(&place).unwrap();
        assert!(disk.sync(chunk).unwrap_err().to_string().contains("in a process before"));
        // A chunk that was rebuilt is another file.
        let new = TargetFile::NewChunk { set: SetId(7), position: Position(0) };
        disk.write(new, 0, &[IoSlice::new(b"rebuilt")], Durable::Now).unwrap();
        disk.rename(new, chunk).unwrap();
        disk.sync(chunk).unwrap();
        std::fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn what_is_made_is_for_its_user_alone() {
        let place = std::env::temp_dir().join(format!("weft-private-{}", std::process::id()));
        let disk = Disk::format(&place).unwrap();
        let chunk = TargetFile::Chunk { set: SetId(7), position: Position(0) };
        disk.write(chunk, 0, &[IoSlice::new(b"secret")], Durable::Later).unwrap();
        for path in [
            place.clone(),
            place.join(CHUNKS),
            place.join("chunks/00"),
            place.join(JOURNAL),
            place.join(name_of(chunk)),
        ] {
            assert_eq!(path.metadata().unwrap().mode() & 0o077, 0, "{}", path.display());
        }
        std::fs::remove_dir_all(place).unwrap();
    }

    /// A file that is removed or replaced by hand stays readable; a fresh look and the next sync
    /// report it.
    #[test]
    fn what_is_removed_while_it_is_open_is_noticed() {
        let place = std::env::temp_dir().join(format!("weft-disk-{}", std::process::id()));
        let disk = Disk::format(&place).unwrap();
        let files = [0, 1, 2, 3].map(|position| TargetFile::Chunk { set: SetId(7), position: Position(position) });
        for file in files {
            disk.write(file, 0, &[IoSlice::new(b"old")], Durable::Later).unwrap();
            disk.sync(file).unwrap();
        }
        assert_eq!(disk.look(&files).unwrap(), [Presence::There; 4]);
        let path = |number: usize| disk.path.join(name_of(files[number]));
        std::fs::remove_file(path(0)).unwrap();
        std::fs::write(disk.path.join("new"), "new").unwrap();
        std::fs::rename(disk.path.join("new"), path(1)).unwrap();
        // It still has a name, only another one.
        std::fs::rename(path(2), disk.path.join("elsewhere")).unwrap();
        let found = [Presence::Unnamed, Presence::Unnamed, Presence::Unnamed, Presence::There];
        assert_eq!(disk.look(&files).unwrap(), found);
        for file in files {
            let mut bytes = [0; 3];
            assert_eq!((disk.read_at(file, 0, &mut bytes).unwrap(), &bytes), (3, b"old"));
        }
        assert_eq!(files.map(|file| disk.sync(file).is_ok()), [false, false, false, true]);
        // After a rebuild, it is complete.
        let new = TargetFile::NewChunk { set: SetId(7), position: Position(0) };
        disk.write(new, 0, &[IoSlice::new(b"made")], Durable::Later).unwrap();
        disk.sync(new).unwrap();
        disk.rename(new, files[0]).unwrap();
        assert_eq!(disk.look(&files[..1]).unwrap(), [Presence::There]);
        disk.sync(files[0]).unwrap();
        // No file is open after this: what is gone is gone.
        let again = Disk::open(&disk.path).unwrap();
        let found = [Presence::There, Presence::There, Presence::Absent, Presence::There];
        assert_eq!(again.look(&files).unwrap(), found);
        std::fs::remove_dir_all(place).unwrap();
    }
}

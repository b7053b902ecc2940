//! Where objects are: from a bucket and a key to a directory and a name, and the change of a name
//! that makes an object visible. The rest of the crate asks the file system here.

use crate::about::{ATTRIBUTE, About};
use crate::failure::{Error, Result, error, failed, is, no_name};
use crate::home::{Home, is_missing, new};
use crate::opened::Opened;
use fs::object_name as names;
use fs::{Attributes, BulkFile, FileKind, FileSystem, Ino, RenameMode, Time};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// How often a change is tried again because others changed the same directories meanwhile.
pub const ATTEMPTS: usize = 32;
/// What the names of access keys that have no name yet begin with.
pub const KEY: &[u8] = b"key-";
/// Marks directories that a key made, which go with their last key.
pub const MADE: &[u8] = b"{\"directory\":true}";

/// The open volume, as a place of objects.
pub struct Objects {
    /// The file system.
    pub fs: Arc<FileSystem>,
    /// Where everything is.
    pub home: Home,
    /// Begins names that no other gateway gives.
    unique: String,
    count: AtomicU64,
    is_ending: AtomicBool,
    /// The directory of the buckets is one, too: its name is empty.
    is_bucket: bool,
}

/// An object that is there.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its directory.
    pub parent: Ino,
    /// Its name in there.
    pub name: Vec<u8>,
    /// Its file.
    pub file: Attributes,
}

/// What must hold for a change to happen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    #[default]
    Always,
    /// The key has no object.
    Absent,
    /// The key has an object.
    Present,
    /// The key's object has this ETag.
    Matches(String),
}

impl Objects {
    /// The objects below a path of an open volume.
    ///
    /// # Errors
    /// When the path is no directory, or the reserved directory cannot be made in it.
    pub fn new(fs: Arc<FileSystem>, path: &str) -> fs::Result<Self> {
        let home = Home::open(&fs, path)?;
        let mut random = [0; 8];
        fastrand::fill(&mut random);
        Ok(Self {
            fs,
            home,
            unique: crate::text::hex(&random),
            count: AtomicU64::new(0),
            is_ending: AtomicBool::new(false),
            is_bucket: false,
        })
    }

    /// The same; besides, the directory itself is a bucket, whose name is empty. Its keys begin
    /// with the names of the others.
    ///
    /// # Errors
    /// As [`Objects::new`].
    pub fn with_whole(fs: Arc<FileSystem>, path: &str) -> fs::Result<Self> {
        Ok(Self { is_bucket: true, ..Self::new(fs, path)? })
    }

    /// What goes on for long by itself ends soon.
    pub fn end(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    /// Whether it must end.
    pub fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Relaxed)
    }

    /// A name that nothing has.
    pub fn unique(&self) -> Vec<u8> {
        format!("{}-{}", self.unique, self.count.fetch_add(1, Ordering::Relaxed)).into_bytes()
    }

    /// Whether a file without a name may be one that this process is about to name.
    pub fn may_be_own(&self, name: &[u8]) -> bool {
        name.starts_with(self.unique.as_bytes()) || name.starts_with(KEY)
    }

    /// The directory of a bucket.
    pub fn bucket(&self, bucket: &str) -> Result<Attributes> {
        if bucket.is_empty() && self.is_bucket {
            return self.fs.attributes(self.home.root).map_err(|error| failed(&error));
        }
        match self.fs.lookup(self.home.root, bucket.as_bytes()) {
            Ok(found) if found.kind == FileKind::Directory && is_bucket(bucket.as_bytes()) => Ok(found),
            Ok(_) => Err(error!(NoSuchBucket)),
            Err(error) if is_missing(&error) => Err(error!(NoSuchBucket)),
            Err(error) => Err(failed(&error)),
        }
    }

    /// What has a name in a directory.
    pub fn entry(&self, parent: Ino, name: &[u8]) -> Result<Option<Attributes>> {
        match self.fs.lookup(parent, name) {
            Ok(found) => Ok(Some(found)),
            Err(error) if is_missing(&error) || is(&error, Errno::NOTDIR) || is(&error, Errno::STALE) => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }

    /// The directory of some parts below one, if it is there.
    pub fn directory(&self, mut at: Ino, parts: &[&str]) -> Result<Option<Ino>> {
        for part in parts {
            let Ok(name) = names::name(part) else { return Ok(None) };
            match self.entry(at, &name)? {
                Some(found) if found.kind == FileKind::Directory => at = found.ino,
                _ => return Ok(None),
            }
        }
        Ok(Some(at))
    }

    /// The object of the last part of a key, in its directory.
    fn object_in(&self, parent: Ino, part: &str) -> Result<Option<Found>> {
        let (plain, beside) = (names::name(part).map_err(no_name)?, names::beside(part).ok());
        // Between the first look and the second, a new key below this one may move the file aside.
        for name in [Some(plain.clone()), beside, Some(plain)].into_iter().flatten() {
            if let Some(file) = self.entry(parent, &name)?.filter(|file| file.kind == FileKind::File) {
                return Ok(Some(Found { parent, name, file }));
            }
        }
        Ok(None)
    }

    /// The object of a key, if it is there.
    ///
    /// # Errors
    /// `NoSuchBucket`.
    pub fn find(&self, bucket: &str, key: &str) -> Result<Option<Found>> {
        let bucket = self.bucket(bucket)?.ino;
        let parts = names::parts(key);
        let Some((last, above)) = parts.split_last() else { return Ok(None) };
        match self.directory(bucket, above)? {
            Some(parent) => self.object_in(parent, last),
            None => Ok(None),
        }
    }

    /// The same for a key that must be there.
    pub fn get(&self, bucket: &str, key: &str) -> Result<(Found, About)> {
        for _ in 0..ATTEMPTS {
            let found = self.find(bucket, key)?.ok_or_else(|| error!(NoSuchKey))?;
            // Another one may have replaced it meanwhile.
            if let Some(about) = self.about_if_there(&found.file)? {
                return Ok((found, about));
            }
        }
        Err(error!(OperationAborted, "others change the same key"))
    }

    /// The same, open: its bytes stay until the file is dropped, whatever becomes of the key.
    pub fn open(&self, bucket: &str, key: &str) -> Result<(Found, About, Opened)> {
        for _ in 0..ATTEMPTS {
            let (found, about) = self.get(bucket, key)?;
            match Opened::new(&self.fs, found.file.ino) {
                Ok(opened) => return Ok((found, about, opened)),
                Err(error) if is_overtaken(&error) => {}
                Err(error) => return Err(failed(&error)),
            }
        }
        Err(error!(OperationAborted, "others change the same key"))
    }

    /// What is kept of an object.
    pub fn about(&self, file: &Attributes) -> Result<About> {
        Ok(self.about_if_there(file)?.unwrap_or_else(|| About::decode(None, file)))
    }

    /// The same; None when the file is gone.
    pub fn about_if_there(&self, file: &Attributes) -> Result<Option<About>> {
        match self.fs.attribute(file.ino, ATTRIBUTE) {
            Ok(stored) => Ok(Some(About::decode(Some(&stored), file))),
            Err(error) if is(&error, Errno::NODATA) => Ok(Some(About::decode(None, file))),
            Err(error) if is_missing(&error) || is(&error, Errno::STALE) => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }

    /// The directory of some parts below a bucket, made where it is missing. A file that has the
    /// name of one is moved aside: it is the object of a key, and stays that.
    fn make_directories(&self, bucket: Ino, parts: &[&str]) -> Result<Ino> {
        // A directory above may be pruned meanwhile: then all are found anew.
        for attempt in 0..ATTEMPTS {
            let below = |at: Option<Ino>, part: &&str| at.map_or(Ok(None), |at| self.make_one(at, part, attempt));
            if let Some(last) = parts.iter().try_fold(Some(bucket), below)? {
                return Ok(last);
            }
        }
        Err(error!(OperationAborted, "others change the same directory"))
    }

    /// The directory of one part. None when others change the place meanwhile.
    fn make_one(&self, at: Ino, part: &str, attempt: usize) -> Result<Option<Ino>> {
        let name = names::name(part).map_err(no_name)?;
        for _ in 0..3 {
            match self.entry(at, &name)? {
                Some(found) if found.kind == FileKind::Directory => return Ok(Some(found.ino)),
                Some(found) if found.kind == FileKind::File => self.move_aside(at, part, attempt)?,
                Some(_) => return Err(error!(InvalidRequest, "a link or device of the mount is in the way")),
                None => self.make_directory(at, &name)?,
            }
        }
        Ok(None)
    }

    /// Moves the object of a part to its name beside a directory. The caller looks what came of it.
    fn move_aside(&self, at: Ino, part: &str, attempt: usize) -> Result<()> {
        let (name, beside) = (names::name(part).map_err(no_name)?, names::beside(part).map_err(no_name)?);
        let (from, to) = ((at, &name[..]), (at, &beside[..]));
        let moved = match self.entry(at, &beside)? {
            None => self.fs.rename(from, to, RenameMode::NoReplace),
            // A writer that finds two files of its key gives way (`Objects::alone`). If none does,
            // the plain name counts, as for readers.
            Some(there) if attempt > ATTEMPTS / 2 => self.fs.replace(from, to, there.ino),
            Some(_) => return Ok(()),
        };
        moved.or_else(|error| if is_overtaken(&error) { Ok(()) } else { Err(failed(&error)) })?;
        // If the object went and a directory came before the move, the directory goes back.
        if self.entry(at, &beside)?.is_some_and(|moved| moved.kind == FileKind::Directory) {
            let back = self.fs.rename(to, from, RenameMode::NoReplace);
            return back.or_else(|error| if is_overtaken(&error) { Ok(()) } else { Err(failed(&error)) });
        }
        Ok(())
    }

    /// Makes a directory that goes with its last key. That another one is there is no error.
    fn make_directory(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let ino = self.fs.new_inos(1).map_err(|error| failed(&error))?;
        let mut directory = whole(ino, parent, name.to_vec(), About::default(), 0, now());
        (directory.new, directory.attributes) =
            (new(FileKind::Directory, 0o755), vec![(ATTRIBUTE.to_vec(), MADE.to_vec())]);
        let made = self.fs.put_files(&[directory]).map(drop);
        made.or_else(|error| if is_overtaken(&error) { Ok(()) } else { Err(failed(&error)) })
    }

    /// Where a new object of a key goes: its directory, which is made, and the name that is free;
    /// or the object that is there.
    ///
    /// # Errors
    /// `PreconditionFailed`, also when a condition can no longer come true.
    pub fn aim(&self, bucket: &str, key: &str, condition: &Condition) -> Result<Aim> {
        let at = self.bucket(bucket)?.ino;
        if matches!(condition, Condition::Present | Condition::Matches(_)) {
            // Before directories are made for nothing.
            self.check(condition, self.find(bucket, key)?.as_ref())?;
        }
        let parts = names::parts(key);
        let Some((last, above)) = parts.split_last() else { return Err(error!(InvalidArgument)) };
        // Before directories are made for a key that is refused.
        for part in &parts {
            names::name(part).map_err(no_name)?;
        }
        let parent = self.make_directories(at, above)?;
        let there = self.object_in(parent, last)?;
        self.check(condition, there.as_ref())?;
        if let Some(there) = there {
            return Ok(Aim { parent, name: there.name, replaced: Some(there.file.ino) });
        }
        let name = names::name(last).map_err(no_name)?;
        let name = match self.entry(parent, &name)? {
            Some(found) if found.kind == FileKind::Directory => names::beside(last).map_err(no_name)?,
            Some(_) => return Err(error!(InvalidRequest, "a link or device of the mount has this name")),
            None => name,
        };
        Ok(Aim { parent, name, replaced: None })
    }

    /// Whether a condition holds for what is there.
    pub fn check(&self, condition: &Condition, there: Option<&Found>) -> Result<()> {
        let holds = match (condition, there) {
            (Condition::Always, _) | (Condition::Absent, None) | (Condition::Present, Some(_)) => true,
            (Condition::Matches(tag), Some(there)) => self.about(&there.file)?.etag == *tag,
            (Condition::Matches(_) | Condition::Present, None) => return Err(error!(NoSuchKey)),
            (Condition::Absent, Some(_)) => false,
        };
        if holds { Ok(()) } else { Err(error!(PreconditionFailed)) }
    }
}

/// Where a new object goes.
#[derive(Clone, Debug)]
pub struct Aim {
    /// The directory.
    pub parent: Ino,
    /// The name in it.
    pub name: Vec<u8>,
    /// The file that has the name.
    pub replaced: Option<Ino>,
}

/// Whether an error says that others changed the same names meanwhile: look again.
pub fn is_overtaken(error: &fs::Error) -> bool {
    let errnos = [Errno::NOENT, Errno::EXIST, Errno::ISDIR, Errno::NOTDIR, Errno::STALE];
    errnos.iter().any(|&errno| is(error, errno))
}

/// Whether a directory of this name is a bucket.
pub fn is_bucket(name: &[u8]) -> bool {
    !name.starts_with(b".") && std::str::from_utf8(name).is_ok()
}

/// The time.
pub fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { seconds: since.as_secs().cast_signed(), nanoseconds: since.subsec_nanos() }
}

/// A file with what is kept of its object, as it is created.
pub fn whole(ino: Ino, parent: Ino, name: Vec<u8>, about: About, size: u64, at: Time) -> BulkFile {
    let attributes = vec![(ATTRIBUTE.to_vec(), about.of(size, at).encode())];
    let new = new(FileKind::File, 0o644);
    let (accessed, modified, changed) = (at, at, at);
    BulkFile { ino, parent, name, new, size, accessed, modified, changed, extents: Vec::new(), attributes }
}

/// An error of the file system, as an answer.
pub fn answer(error: fs::Error) -> Error {
    failed(&error)
}

//! Where objects are: from a bucket and a key to a directory and a name, and the change of a name
//! that makes an object visible. The rest of the crate asks the file system here.

use crate::about::{ATTRIBUTE, About};
use crate::failure::{failed, is, no_name};
use crate::home::{Home, is_missing, new};
use crate::names;
use fs::{Attributes, BulkFile, FileKind, FileSystem, Ino, RenameMode, Time};
use rustix::io::Errno;
use s3s::dto::ETagCondition;
use s3s::{S3Error, S3Result, s3_error};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// How often a change is tried again because others changed the same directories meanwhile.
const ATTEMPTS: usize = 32;
/// What the names of access keys that have no name yet begin with.
pub const KEY: &[u8] = b"key-";
/// Marks directories that a key made, which go with their last key.
const MADE: &[u8] = b"{\"directory\":true}";

/// The open volume, as a place of objects.
pub struct Objects {
    /// The file system.
    pub fs: Arc<FileSystem>,
    /// Where everything is.
    pub home: Home,
    /// Begins names that no other gateway gives.
    unique: String,
    count: AtomicU64,
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

impl Condition {
    /// From the headers `If-Match` and `If-None-Match` of a write.
    pub fn of_write(matches: Option<&ETagCondition>, differs: Option<&ETagCondition>) -> S3Result<Self> {
        match (matches, differs) {
            (None, None) => Ok(Self::Always),
            (None, Some(ETagCondition::Any)) => Ok(Self::Absent),
            (Some(ETagCondition::Any), None) => Ok(Self::Present),
            (Some(ETagCondition::ETag(tag)), None) => Ok(Self::Matches(tag.value().to_owned())),
            _ => Err(s3_error!(NotImplemented, "a write takes If-None-Match: * or If-Match, and not both")),
        }
    }
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
        Ok(Self { fs, home, unique: crate::about::hex(&random), count: AtomicU64::new(0) })
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
    pub fn bucket(&self, bucket: &str) -> S3Result<Attributes> {
        match self.fs.lookup(self.home.root, bucket.as_bytes()) {
            Ok(found) if found.kind == FileKind::Directory && is_bucket(bucket.as_bytes()) => Ok(found),
            Ok(_) => Err(s3_error!(NoSuchBucket)),
            Err(error) if is_missing(&error) => Err(s3_error!(NoSuchBucket)),
            Err(error) => Err(failed(&error)),
        }
    }

    fn entry(&self, parent: Ino, name: &[u8]) -> S3Result<Option<Attributes>> {
        match self.fs.lookup(parent, name) {
            Ok(found) => Ok(Some(found)),
            Err(error) if is_missing(&error) || is(&error, Errno::NOTDIR) || is(&error, Errno::STALE) => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }

    /// The directory of some parts below one, if it is there.
    pub fn directory(&self, mut at: Ino, parts: &[&str]) -> S3Result<Option<Ino>> {
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
    fn object_in(&self, parent: Ino, part: &str) -> S3Result<Option<Found>> {
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
    pub fn find(&self, bucket: &str, key: &str) -> S3Result<Option<Found>> {
        let bucket = self.bucket(bucket)?.ino;
        let parts = names::parts(key);
        let Some((last, above)) = parts.split_last() else { return Ok(None) };
        match self.directory(bucket, above)? {
            Some(parent) => self.object_in(parent, last),
            None => Ok(None),
        }
    }

    /// The same for a key that must be there.
    pub fn get(&self, bucket: &str, key: &str) -> S3Result<(Found, About)> {
        let found = self.find(bucket, key)?.ok_or_else(|| s3_error!(NoSuchKey))?;
        let about = self.about(&found.file)?;
        Ok((found, about))
    }

    /// What is kept of an object.
    pub fn about(&self, file: &Attributes) -> S3Result<About> {
        match self.fs.attribute(file.ino, ATTRIBUTE) {
            Ok(stored) => Ok(About::decode(Some(&stored), file)),
            Err(error) if is(&error, Errno::NODATA) || is_missing(&error) => Ok(About::decode(None, file)),
            Err(error) => Err(failed(&error)),
        }
    }

    /// The directory of some parts below a bucket, made where it is missing. A file that has the
    /// name of one is moved aside: it is the object of a key, and stays that.
    fn make_directories(&self, mut at: Ino, parts: &[&str]) -> S3Result<Ino> {
        for part in parts {
            let name = names::name(part).map_err(no_name)?;
            let mut attempts = 0;
            at = loop {
                attempts += 1;
                match self.entry(at, &name)? {
                    Some(found) if found.kind == FileKind::Directory => break found.ino,
                    Some(found) if found.kind == FileKind::File => {
                        let beside = names::beside(part).map_err(no_name)?;
                        let moved = self.fs.rename((at, &name), (at, &beside), RenameMode::Replace);
                        moved.or_else(|error| if is_missing(&error) { Ok(()) } else { Err(failed(&error)) })?;
                    }
                    Some(_) => return Err(s3_error!(InvalidRequest, "a link or device of the mount is in the way")),
                    None => self.make_directory(at, &name)?,
                }
                if attempts > ATTEMPTS {
                    return Err(s3_error!(OperationAborted, "others change the same directory"));
                }
            };
        }
        Ok(at)
    }

    /// Makes a directory that goes with its last key. That another one is there is no error.
    fn make_directory(&self, parent: Ino, name: &[u8]) -> S3Result<()> {
        let ino = self.fs.new_inos(1).map_err(|error| failed(&error))?;
        let mut directory = whole(ino, parent, name.to_vec(), About::default(), 0, now());
        (directory.new, directory.attributes) =
            (new(FileKind::Directory, 0o755), vec![(ATTRIBUTE.to_vec(), MADE.to_vec())]);
        self.fs.put_files(&[directory]).map(drop).map_err(|error| failed(&error))
    }

    /// Where a new object of a key goes: its directory, which is made, and the name that is free;
    /// or the object that is there.
    ///
    /// # Errors
    /// `PreconditionFailed`, also when a condition can no longer come true.
    pub fn aim(&self, bucket: &str, key: &str, condition: &Condition) -> S3Result<Aim> {
        let at = self.bucket(bucket)?.ino;
        if matches!(condition, Condition::Present | Condition::Matches(_)) {
            // Before directories are made for nothing.
            self.check(condition, self.find(bucket, key)?.as_ref())?;
        }
        let parts = names::parts(key);
        let Some((last, above)) = parts.split_last() else { return Err(s3_error!(InvalidArgument)) };
        let parent = self.make_directories(at, above)?;
        let there = self.object_in(parent, last)?;
        self.check(condition, there.as_ref())?;
        if let Some(there) = there {
            return Ok(Aim { parent, name: there.name, replaced: Some(there.file.ino) });
        }
        let name = names::name(last).map_err(no_name)?;
        let name = match self.entry(parent, &name)? {
            Some(found) if found.kind == FileKind::Directory => names::beside(last).map_err(no_name)?,
            Some(_) => return Err(s3_error!(InvalidRequest, "a link or device of the mount has this name")),
            None => name,
        };
        Ok(Aim { parent, name, replaced: None })
    }

    /// Whether a condition holds for what is there.
    pub fn check(&self, condition: &Condition, there: Option<&Found>) -> S3Result<()> {
        let holds = match (condition, there) {
            (Condition::Always, _) | (Condition::Absent, None) | (Condition::Present, Some(_)) => true,
            (Condition::Matches(tag), Some(there)) => self.about(&there.file)?.etag == *tag,
            (Condition::Matches(_) | Condition::Present, None) => return Err(s3_error!(NoSuchKey)),
            (Condition::Absent, Some(_)) => false,
        };
        if holds { Ok(()) } else { Err(s3_error!(PreconditionFailed)) }
    }

    /// Gives a whole file that has a name in `home.temporary` the name of a key, in one
    /// transaction, and returns when that is durable. The file goes if the condition does not hold.
    pub fn name(&self, temporary: &[u8], bucket: &str, key: &str, condition: &Condition) -> S3Result<()> {
        let named = self.name_in_time(temporary, bucket, key, condition);
        if named.is_err() {
            // What is left in there goes at the next start, too.
            let _ = self.fs.unlink(self.home.temporary, temporary);
        }
        named
    }

    fn name_in_time(&self, temporary: &[u8], bucket: &str, key: &str, condition: &Condition) -> S3Result<()> {
        let from = (self.home.temporary, temporary);
        for _ in 0..ATTEMPTS {
            let aim = self.aim(bucket, key, condition)?;
            let to = (aim.parent, &aim.name[..]);
            let done = match (condition, aim.replaced) {
                // Whatever is there by then is replaced, too.
                (Condition::Always, Some(_)) => self.fs.rename(from, to, RenameMode::Replace),
                (_, Some(there)) => self.fs.replace(from, to, there),
                (_, None) => self.fs.rename(from, to, RenameMode::NoReplace),
            };
            match done {
                Ok(()) => return self.settle(aim.parent),
                // The directory or the object came, went or changed meanwhile: look again.
                Err(error)
                    if [Errno::NOENT, Errno::EXIST, Errno::ISDIR, Errno::STALE]
                        .iter()
                        .any(|&errno| is(&error, errno)) => {}
                Err(error) => return Err(failed(&error)),
            }
        }
        Err(s3_error!(OperationAborted, "others change the same key"))
    }

    /// Returns when all changes of names until now are durable.
    pub fn settle(&self, directory: Ino) -> S3Result<()> {
        self.fs.sync(directory).map_err(|error| failed(&error))
    }

    /// Removes the object of a key; one that is not there is no error. The caller settles.
    pub fn remove(&self, bucket: &str, key: &str, condition: &Condition) -> S3Result<()> {
        for _ in 0..ATTEMPTS {
            let found = self.find(bucket, key)?;
            if found.is_some() || *condition != Condition::Always {
                self.check(condition, found.as_ref())?;
            }
            let Some(found) = found else { return Ok(()) };
            match self.fs.unlink_file(found.parent, &found.name, found.file.ino) {
                // One that is beside a directory may have had a plain name's file before it.
                Ok(()) => {
                    self.prune(bucket, key)?;
                    return Ok(());
                }
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(failed(&error)),
            }
        }
        Err(s3_error!(OperationAborted, "others change the same key"))
    }

    /// Removes the directories of a key that have nothing in them any more, if keys made them.
    fn prune(&self, bucket: &str, key: &str) -> S3Result<()> {
        let bucket = self.bucket(bucket)?.ino;
        let parts = names::parts(key);
        let above = parts.split_last().map_or(&[][..], |(_, above)| above);
        for depth in (0..above.len()).rev() {
            let (Some(parent), Ok(name)) = (self.directory(bucket, &above[..depth])?, names::name(above[depth])) else {
                continue;
            };
            let Some(found) = self.entry(parent, &name)?.filter(|found| found.kind == FileKind::Directory) else {
                continue;
            };
            let is_made = self.fs.attribute(found.ino, ATTRIBUTE).is_ok_and(|stored| stored == MADE);
            if !is_made || self.fs.remove_directory(parent, &name).is_err() {
                return Ok(());
            }
        }
        Ok(())
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
pub fn answer(error: fs::Error) -> S3Error {
    failed(&error)
}

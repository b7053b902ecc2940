//! Persistent volumes: directories below one directory of a Weft volume. The name of a directory is
//! the volume's id, and an extended attribute of it has the capacity that was asked for.

use crate::messages::{CapacityRange, Volume};
use rustix::fs::{
    AtFlags, CWD, Dir, Mode, OFlags, RenameFlags, fchmod, mkdirat, openat, renameat, renameat_with, unlinkat,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ffi::CStr;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};
use tonic::Status;
use xattr::FileExt;

/// The attribute of a directory that makes it a volume.
const RECORD: &str = "user.weft.csi";
/// Where deleted volumes go until they are removed, which may take long; and new ones that have no
/// name yet.
const DELETED: &str = ".deleted";
/// How the name of a volume begins that is being created, in [`DELETED`].
const NEW: &str = "new-";
/// After this time, what is being created is left from a creation that broke off.
const BROKE_OFF: Duration = Duration::from_secs(3600);
/// The longest name of a directory, in bytes.
const MAX_NAME_BYTES: usize = 255;
/// A volume's directory is open to whatever user its programs have.
const FOR_ALL: Mode = Mode::RWXU.union(Mode::RWXG).union(Mode::RWXO);

/// What is known of a volume.
#[derive(Serialize, Deserialize)]
struct Record {
    capacity: i64,
}

/// The directory with all volumes. Others can write to the Weft volume, too, and this process has
/// all rights: no symbolic link is followed in it.
pub struct Volumes {
    root: File,
}

/// What the caller can do nothing about.
fn internal(what: &str, name: &str, why: impl std::fmt::Display) -> Status {
    Status::internal(format!("cannot {what} {name}: {why}"))
}

fn not_found(id: &str) -> Status {
    Status::not_found(format!("there is no volume {id:?}"))
}

/// Whether a name can be that of a directory of a volume.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME_BYTES && !name.starts_with('.') && !name.contains(['/', '\0'])
}

/// The capacity for a range.
fn wanted(range: Option<&CapacityRange>) -> Result<(i64, i64), Status> {
    let (required, limit) = range.map_or((0, 0), |range| (range.required_bytes, range.limit_bytes));
    if required < 0 || limit < 0 {
        return Err(Status::invalid_argument("a capacity below zero"));
    }
    if limit > 0 && required > limit {
        return Err(Status::out_of_range(format!("{required} bytes are required, and {limit} is the limit")));
    }
    Ok((required, limit))
}

impl Volumes {
    /// The volumes in a directory of a mount, which is created if it does not exist.
    ///
    /// # Errors
    /// When it cannot be.
    pub fn open(mount: &Path, root: &str) -> Result<Self, Status> {
        let mut at = directory(CWD, mount).map_err(|why| internal("open", &mount.display().to_string(), why))?;
        for name in root.split('/').filter(|name| !name.is_empty()) {
            // Others reach a volume where it is published only.
            make(&at, name, Mode::RWXU).map_err(|why| internal("create", name, why))?;
            at = directory(&at, name).map_err(|why| internal("open", name, why))?;
        }
        make(&at, DELETED, Mode::RWXU).map_err(|why| internal("create", DELETED, why))?;
        Ok(Self { root: at })
    }

    /// The directory of a volume.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such volume.
    pub fn directory(&self, id: &str) -> Result<File, Status> {
        self.find(id)?.map(|(directory, _)| directory).ok_or_else(|| not_found(id))
    }

    /// Finds a volume. A directory without a record is not a volume.
    fn find(&self, id: &str) -> Result<Option<(File, Record)>, Status> {
        if !is_plain(id) {
            return Ok(None);
        }
        match directory(&self.root, id) {
            Ok(found) => Ok(read(&found, id)?.map(|record| (found, record))),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(why) => Err(internal("open", id, why)),
        }
    }

    /// Creates a volume. One that is there and fits is returned.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if it is there with another capacity, or if the name is that of something
    /// else.
    pub fn create(&self, name: &str, range: Option<&CapacityRange>) -> Result<Volume, Status> {
        if !is_plain(name) {
            let what = format!("{name:?}: a name has up to {MAX_NAME_BYTES} bytes, no slash, and no dot first");
            return Err(Status::invalid_argument(what));
        }
        let (required, limit) = wanted(range)?;
        let capacity = if required > 0 { required } else { limit };
        if self.find(name)?.is_none() && self.make(name, &Record { capacity })? {
            return Ok(describe(name, capacity));
        }
        let Some((_, Record { capacity })) = self.find(name)? else {
            return Err(Status::already_exists(format!("{name:?} is there, and is no persistent volume")));
        };
        if capacity < required || limit > 0 && capacity > limit {
            let what = format!("volume {name:?} is there with a capacity of {capacity} bytes");
            return Err(Status::already_exists(what));
        }
        Ok(describe(name, capacity))
    }

    /// Makes a volume that has its name only when it is complete, and returns whether it did: the
    /// name may be taken.
    fn make(&self, name: &str, record: &Record) -> Result<bool, Status> {
        let deleted = self.deleted()?;
        let own = format!("{NEW}{}", random());
        let failed = |why: Errno| internal("create", name, why);
        mkdirat(&deleted, &own, FOR_ALL).map_err(failed)?;
        let made = directory(&deleted, &own).map_err(failed)?;
        // The process may have a umask.
        fchmod(&made, FOR_ALL).map_err(failed)?;
        write(&made, name, record)?;
        match renameat_with(&deleted, &own, &self.root, name, RenameFlags::NOREPLACE) {
            Ok(()) => sync(&self.root, name).map(|()| true),
            Err(Errno::EXIST) => unlinkat(&deleted, &own, AtFlags::REMOVEDIR).map_err(failed).map(|()| false),
            Err(why) => Err(failed(why)),
        }
    }

    /// Deletes a volume. Its files are removed later. One that is gone is no error.
    ///
    /// # Errors
    /// When its directory cannot be renamed.
    pub fn delete(&self, id: &str) -> Result<(), Status> {
        if self.find(id)?.is_none() {
            return Ok(());
        }
        match renameat(&self.root, id, self.deleted()?, random()) {
            Ok(()) => sync(&self.root, id),
            Err(Errno::NOENT) => Ok(()),
            Err(why) => Err(internal("delete", id, why)),
        }
    }

    fn deleted(&self) -> Result<File, Status> {
        directory(&self.root, DELETED).map_err(|why| internal("open", DELETED, why))
    }

    /// Removes the files of deleted volumes.
    ///
    /// # Errors
    /// When some are left, as when a program still writes there.
    pub fn remove_deleted(&self) -> Result<(), Status> {
        let deleted = self.deleted()?;
        loop {
            let (mut removed, mut failed) = (false, Ok(()));
            for name in names(&deleted).map_err(|why| internal("list", DELETED, why))? {
                let name = name.map_err(|why| internal("list", DELETED, why))?;
                if name.to_bytes().starts_with(NEW.as_bytes()) && is_young(&deleted, &name) {
                    continue;
                }
                match remove(&deleted, &name) {
                    Ok(()) | Err(Errno::NOENT) => removed = true,
                    Err(why) => failed = Err(internal("remove", &name.to_string_lossy(), why)),
                }
            }
            if !removed {
                return failed;
            }
        }
    }

    /// Changes the capacity of a volume to at least what is required.
    ///
    /// # Errors
    /// `NOT_FOUND`; `OUT_OF_RANGE` if it is above the limit already.
    pub fn expand(&self, id: &str, range: &CapacityRange) -> Result<i64, Status> {
        let (required, limit) = wanted(Some(range))?;
        let (directory, Record { capacity: known }) = self.find(id)?.ok_or_else(|| not_found(id))?;
        if limit > 0 && known > limit {
            return Err(Status::out_of_range(format!("volume {id:?} has {known} bytes already")));
        }
        let capacity = known.max(required);
        write(&directory, id, &Record { capacity })?;
        Ok(capacity)
    }

    /// The volumes behind a name, in their order, of at most `most` directories; and the name to go
    /// on behind, if there are more.
    pub fn list(&self, after: &str, most: usize) -> Result<(Vec<Volume>, Option<String>), Status> {
        let failed = |why: Errno| internal("list", "the volumes", why);
        let all = names(&self.root).map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let names = all.into_iter().filter_map(|name| name.into_string().ok());
        let mut names: Vec<String> = names.filter(|name| is_plain(name) && name.as_str() > after).collect();
        names.sort_unstable();
        let has_more = names.len() > most;
        names.truncate(most);
        let mut volumes = Vec::with_capacity(names.len());
        for name in &names {
            // A directory without a record is not a volume.
            if let Some((_, Record { capacity })) = self.find(name)? {
                volumes.push(describe(name, capacity));
            }
        }
        Ok((volumes, names.pop().filter(|_| has_more)))
    }

    pub fn root(&self) -> &File {
        &self.root
    }
}

fn describe(name: &str, capacity: i64) -> Volume {
    Volume { capacity_bytes: capacity, volume_id: name.into(), ..Volume::default() }
}

fn random() -> String {
    format!("{:016x}", fastrand::u64(..))
}

/// Opens a directory in another one. It follows no symbolic link.
fn directory(at: impl std::os::fd::AsFd, name: impl rustix::path::Arg) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, name, flags, Mode::empty()).map(File::from)
}

/// Makes a directory, unless there is something of that name.
fn make(at: &File, name: &str, mode: Mode) -> Result<(), Errno> {
    match mkdirat(at, name, mode) {
        Err(Errno::EXIST) => Ok(()),
        made => made,
    }
}

/// What is in a directory, but for itself and the one above.
fn names(at: &File) -> Result<impl Iterator<Item = Result<std::ffi::CString, Errno>>, Errno> {
    let is_own = |name: &CStr| name != c"." && name != c"..";
    let entries = Dir::read_from(at)?.map(|entry| entry.map(|entry| entry.file_name().to_owned()));
    Ok(entries.filter(move |entry| entry.as_ref().map_or(true, |name| is_own(name))))
}

fn is_young(at: &File, name: &CStr) -> bool {
    let changed = directory(at, name).ok().and_then(|found| found.metadata().ok()?.modified().ok());
    changed.is_some_and(|changed| SystemTime::now().duration_since(changed).unwrap_or_default() < BROKE_OFF)
}

/// Removes a file, or a directory whose own directories come up beside it first: then the depth of
/// a tree costs no stack and no open files.
fn remove(at: &File, name: &CStr) -> Result<(), Errno> {
    let inside = match directory(at, name) {
        Ok(inside) => inside,
        Err(Errno::NOTDIR | Errno::LOOP) => return unlinkat(at, name, AtFlags::empty()),
        Err(why) => return Err(why),
    };
    for entry in names(&inside)? {
        let entry = entry?;
        match unlinkat(&inside, &entry, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::ISDIR | Errno::PERM) => renameat(&inside, &entry, at, random())?,
            Err(why) => return Err(why),
        }
    }
    unlinkat(at, name, AtFlags::REMOVEDIR)
}

/// The record of a volume, if the directory has one.
fn read(directory: &File, id: &str) -> Result<Option<Record>, Status> {
    let bytes = directory.get_xattr(RECORD).map_err(|why| internal("read the attributes of", id, why))?;
    let record = bytes.map(|bytes| serde_json::from_slice(&bytes)).transpose();
    record.map_err(|_| Status::internal(format!("{id}: {RECORD} cannot be read")))
}

fn write(directory: &File, id: &str, record: &Record) -> Result<(), Status> {
    let bytes = serde_json::to_vec(record).map_err(|why| Status::internal(why.to_string()))?;
    directory.set_xattr(RECORD, &bytes).map_err(|why| internal("write the attributes of", id, why))?;
    sync(directory, id)
}

fn sync(directory: &File, id: &str) -> Result<(), Status> {
    directory.sync_all().map_err(|why| internal("sync", id, why))
}

/// Whether a path is the directory.
pub fn is_at(directory: &File, path: &Path) -> bool {
    let (own, other) = (directory.metadata(), std::fs::metadata(path));
    own.and_then(|own| Ok((own.dev(), own.ino()) == other.map(|data| (data.dev(), data.ino()))?)).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_directories() {
        for good in ["pvc-0", "a b", "ü", &"x".repeat(255)] {
            assert!(is_plain(good), "{good}");
        }
        for bad in ["", ".", "..", ".deleted", "a/b", "a\0b", &"x".repeat(256)] {
            assert!(!is_plain(bad), "{bad:?}");
        }
    }

    #[test]
    fn capacities_are_within_their_range() {
        let range = |required_bytes, limit_bytes| wanted(Some(&CapacityRange { required_bytes, limit_bytes }));
        assert_eq!(range(5, 0).unwrap(), (5, 0));
        assert_eq!(wanted(None).unwrap(), (0, 0));
        assert_eq!(range(5, 4).unwrap_err().code(), tonic::Code::OutOfRange);
        assert_eq!(range(-1, 4).unwrap_err().code(), tonic::Code::InvalidArgument);
    }

    struct Place(std::path::PathBuf);

    impl Drop for Place {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn place(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("weft-csi-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    #[test]
    fn what_is_no_volume_is_neither_used_nor_deleted() {
        let place = place("foreign");
        let volumes = Volumes::open(&place.0, "a/b").unwrap();
        let at = place.0.join("a/b");
        std::fs::create_dir(at.join("films")).unwrap();
        std::fs::write(at.join("file"), "").unwrap();
        volumes.create("real", None).unwrap();
        std::os::unix::fs::symlink("real", at.join("link")).unwrap();
        for name in ["films", "file", "link"] {
            assert_eq!(volumes.directory(name).unwrap_err().code(), tonic::Code::NotFound, "{name}");
            assert_eq!(volumes.create(name, None).unwrap_err().code(), tonic::Code::AlreadyExists, "{name}");
            volumes.delete(name).unwrap();
            assert!(at.join(name).symlink_metadata().is_ok(), "{name}");
        }
        // A page may have no volume at all.
        let (page, next) = volumes.list("", 1).unwrap();
        assert_eq!((page.len(), next.as_deref()), (0, Some("file")));
        let (page, next) = volumes.list("films", 9).unwrap();
        assert_eq!((page.len(), page[0].volume_id.as_str(), next), (1, "real", None));
        // The root's own parts may not be links either.
        std::os::unix::fs::symlink("a", place.0.join("z")).unwrap();
        assert!(Volumes::open(&place.0, "z/b").is_err());
    }

    #[test]
    fn a_tree_of_any_depth_is_removed() {
        let place = place("deep");
        let volumes = Volumes::open(&place.0, "v").unwrap();
        volumes.create("deep", None).unwrap();
        let mut at = volumes.directory("deep").unwrap();
        for _ in 0..3000 {
            mkdirat(&at, "d", FOR_ALL).unwrap();
            openat(&at, "file", OFlags::CREATE | OFlags::WRONLY, FOR_ALL).unwrap();
            at = directory(&at, "d").unwrap();
        }
        volumes.delete("deep").unwrap();
        // Another creation is under way.
        std::fs::create_dir(place.0.join("v/.deleted/new-1")).unwrap();
        volumes.remove_deleted().unwrap();
        let left = std::fs::read_dir(place.0.join("v/.deleted")).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(left.collect::<Vec<_>>(), ["new-1"]);
    }
}

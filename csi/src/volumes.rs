//! Persistent volumes: directories below one directory of a Weft volume. The name of a directory is
//! the volume's id, and an extended attribute of it has the capacity that was asked for.

use crate::messages::{CapacityRange, Volume};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tonic::Status;

/// The attribute of a directory that makes it a volume.
const RECORD: &str = "user.weft.csi";
/// Where deleted volumes go until they are removed, which may take long.
const DELETED: &str = ".deleted";
/// The longest name of a directory, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// What is known of a volume.
#[derive(Serialize, Deserialize)]
struct Record {
    capacity: i64,
}

/// The directory with all volumes.
pub struct Volumes {
    root: PathBuf,
}

/// What the caller can do nothing about.
fn internal(what: &str, path: &Path, why: &io::Error) -> Status {
    Status::internal(format!("cannot {what} {}: {why}", path.display()))
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
    /// The volumes in a directory, which is created if it does not exist.
    ///
    /// # Errors
    /// When it cannot be.
    pub fn open(root: PathBuf) -> Result<Self, Status> {
        let deleted = root.join(DELETED);
        // Others reach a volume where it is published only.
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&deleted);
        made.map_err(|why| internal("create", &deleted, &why))?;
        Ok(Self { root })
    }

    /// The directory of a volume.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such volume.
    pub fn path(&self, id: &str) -> Result<PathBuf, Status> {
        let path = self.root.join(id);
        if is_plain(id) && path.is_dir() { Ok(path) } else { Err(not_found(id)) }
    }

    /// Creates a volume. One that is there and fits is returned.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if it is there with another capacity.
    pub fn create(&self, name: &str, range: Option<&CapacityRange>) -> Result<Volume, Status> {
        if !is_plain(name) {
            let what = format!("{name:?}: a name has up to {MAX_NAME_BYTES} bytes, no slash, and no dot first");
            return Err(Status::invalid_argument(what));
        }
        let (required, limit) = wanted(range)?;
        let path = self.root.join(name);
        let made = DirBuilder::new().create(&path);
        match made {
            Ok(()) => {}
            Err(why) if why.kind() == ErrorKind::AlreadyExists => {}
            Err(why) => return Err(internal("create", &path, &why)),
        }
        // A creation that broke off has no record yet.
        let Some(Record { capacity }) = read(&path)? else {
            let capacity = if required > 0 { required } else { limit };
            // Whatever user its programs have; a pod's fsGroup narrows it.
            let opened = fs::set_permissions(&path, fs::Permissions::from_mode(0o777));
            opened.map_err(|why| internal("open to all", &path, &why))?;
            write(&path, &Record { capacity })?;
            sync(&self.root)?;
            return Ok(self.describe(name, capacity));
        };
        if capacity < required || limit > 0 && capacity > limit {
            let what = format!("volume {name:?} is there with a capacity of {capacity} bytes");
            return Err(Status::already_exists(what));
        }
        Ok(self.describe(name, capacity))
    }

    /// Deletes a volume. Its files are removed later. One that is gone is no error.
    ///
    /// # Errors
    /// When its directory cannot be renamed.
    pub fn delete(&self, id: &str) -> Result<(), Status> {
        if !is_plain(id) {
            return Ok(());
        }
        let path = self.root.join(id);
        let away = self.root.join(DELETED).join(format!("{:016x}", fastrand::u64(..)));
        match fs::rename(&path, &away) {
            Ok(()) => sync(&self.root),
            Err(why) if why.kind() == ErrorKind::NotFound => Ok(()),
            Err(why) => Err(internal("delete", &path, &why)),
        }
    }

    /// Removes the files of deleted volumes.
    pub fn remove_deleted(&self) {
        let deleted = self.root.join(DELETED);
        let entries = fs::read_dir(&deleted).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            if let Err(why) = fs::remove_dir_all(&path) {
                eprintln!("weft-csi: a deleted volume: cannot remove {}: {why}", path.display());
            }
        }
    }

    /// Changes the capacity of a volume to at least what is required.
    ///
    /// # Errors
    /// `NOT_FOUND`; `OUT_OF_RANGE` if it is above the limit already.
    pub fn expand(&self, id: &str, range: &CapacityRange) -> Result<i64, Status> {
        let (required, limit) = wanted(Some(range))?;
        let path = self.path(id)?;
        let known = read(&path)?.map_or(0, |record| record.capacity);
        if limit > 0 && known > limit {
            return Err(Status::out_of_range(format!("volume {id:?} has {known} bytes already")));
        }
        let capacity = known.max(required);
        write(&path, &Record { capacity })?;
        Ok(capacity)
    }

    /// The volumes behind a name, in their order, at most `most`, and whether there are more.
    pub fn list(&self, after: &str, most: usize) -> Result<(Vec<Volume>, bool), Status> {
        let entries = fs::read_dir(&self.root).map_err(|why| internal("list", &self.root, &why))?;
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| is_plain(name) && name.as_str() > after).collect();
        names.sort_unstable();
        let has_more = names.len() > most;
        names.truncate(most);
        let mut volumes = Vec::with_capacity(names.len());
        for name in names {
            // One without a record is being created, or no volume.
            if let Some(Record { capacity }) = read(&self.root.join(&name))? {
                volumes.push(self.describe(&name, capacity));
            }
        }
        Ok((volumes, has_more))
    }

    fn describe(&self, name: &str, capacity: i64) -> Volume {
        Volume { capacity_bytes: capacity, volume_id: name.into(), ..Volume::default() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }
}

/// The record of a volume, if the directory has one.
fn read(path: &Path) -> Result<Option<Record>, Status> {
    match xattr::get(path, RECORD) {
        Ok(Some(bytes)) => {
            let bad = |_| Status::internal(format!("{}: {RECORD} cannot be read", path.display()));
            serde_json::from_slice(&bytes).map(Some).map_err(bad)
        }
        Ok(None) => Ok(None),
        // It was deleted meanwhile, or is a file.
        Err(why) if why.kind() == ErrorKind::NotFound || why.raw_os_error() == Some(Errno::NOTDIR.raw_os_error()) => {
            Ok(None)
        }
        Err(why) => Err(internal("read the attributes of", path, &why)),
    }
}

fn write(path: &Path, record: &Record) -> Result<(), Status> {
    let bytes = serde_json::to_vec(record).map_err(|why| Status::internal(why.to_string()))?;
    xattr::set(path, RECORD, &bytes).map_err(|why| internal("write the attributes of", path, &why))?;
    sync(path)
}

fn sync(directory: &Path) -> Result<(), Status> {
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|why| internal("sync", directory, &why))
}

/// Whether two paths are the same directory.
pub fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    let identity = |path: &Path| fs::metadata(path).map(|data| (data.dev(), data.ino()));
    Ok(identity(one)? == identity(other)?)
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
}

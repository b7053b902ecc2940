//! Formats directories as targets. One that was formatted in part is no target.

use super::claim_file;
use super::disk::{Disk, lock_directory};
use super::private::{LOST_AND_FOUND, make_private};
use super::tags;
use super::volume_names::{CHUNKS, JOURNAL, LABEL, SNAPSHOTS, UNFINISHED_CHUNKS};
use crate::{Error, Result, Shown};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// What a format that was interrupted leaves.
const UNFINISHED: [&str; 4] = [UNFINISHED_CHUNKS, JOURNAL, SNAPSHOTS, claim_file::NAME];

/// Removes that from a directory, the first one last.
fn remove_unfinished(path: &Path) -> io::Result<()> {
    let there = |removed: io::Result<()>| match removed {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
        _ => Ok(()),
    };
    there(std::fs::remove_file(path.join(claim_file::NAME)))?;
    for below in [JOURNAL, SNAPSHOTS] {
        there(std::fs::remove_dir(path.join(below)))?;
    }
    let chunks = path.join(UNFINISHED_CHUNKS);
    for below in std::fs::read_dir(&chunks)? {
        std::fs::remove_dir(below?.path())?;
    }
    std::fs::remove_dir(chunks)
}

impl Disk {
    /// Formats a directory as a target. Creates it if it does not exist.
    ///
    /// # Errors
    /// If it is a target already, contains other things, or cannot be written.
    pub fn format(path: &Path) -> Result<Self> {
        // Only this user gets access, whatever the umask: otherwise others could read chunks
        // despite the permissions of files, or remove them.
        make_private(path).map_err(Error::io("make the directory", path))?;
        let directory = File::open(path).map_err(Error::io("open the directory", path))?;
        let locked = lock_directory(&directory, path);
        let mut private = DirBuilder::new();
        private.mode(0o700);
        let mut entries = std::fs::read_dir(path).map_err(Error::io("list", path))?;
        let is_unfinished = path.join(UNFINISHED_CHUNKS).is_dir();
        let foreign = |entry: &std::fs::DirEntry| {
            let name = entry.file_name();
            name != LOST_AND_FOUND && !(is_unfinished && UNFINISHED.iter().any(|of| name == **of))
        };
        if entries.any(|entry| entry.as_ref().map_or(true, foreign)) {
            let what = if path.join(LABEL).exists() {
                "is a target of a volume already"
            } else {
                "is not empty; give an empty directory"
            };
            return Err(Error::Conflict { path: path.to_path_buf(), what: what.into() });
        }
        // Until the end, nobody else takes this for what an interrupted try left.
        locked?;
        if is_unfinished {
            remove_unfinished(path).map_err(Error::io("remove what an interrupted try left in", path))?;
        }
        // The directory is a target when the last step, a rename, is done.
        let (chunks, unfinished) = (path.join(CHUNKS), path.join(UNFINISHED_CHUNKS));
        for below in [unfinished.clone(), path.join(JOURNAL), path.join(SNAPSHOTS)] {
            private.create(&below).map_err(Error::io("make the directory", &below))?;
        }
        for number in 0..=u8::MAX {
            let below = unfinished.join(format!("{number:02x}"));
            private.create(&below).map_err(Error::io("make the directory", &below))?;
        }
        // It is made now, so that a disk that is full can be claimed later.
        claim_file::create(&directory).map_err(Error::io("write to", path))?;
        if !tags::has_attributes(File::open(path).map_err(Error::io("open the directory", path))?) {
            static NOTE: std::sync::Once = std::sync::Once::new();
            NOTE.call_once(|| {
                let path = Shown(path);
                tracing::warn!("the file system of {path} has no extended attributes; chunks work without them");
            });
        }
        let sync = |below: &Path| {
            let synced = File::open(below).and_then(|directory| directory.sync_all());
            synced.map_err(Error::io("sync the directory", below))
        };
        sync(&unfinished)?;
        sync(path)?;
        std::fs::rename(&unfinished, &chunks).map_err(Error::io("make the directory", &chunks))?;
        sync(path)?;
        drop(directory);
        Self::open(path)
    }

    /// Whether a directory is formatted as a target.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub fn is_one(path: &Path) -> Result<bool> {
        let chunks = path.join(CHUNKS);
        match std::fs::metadata(&chunks) {
            Ok(found) => Ok(found.is_dir()),
            Err(why) if matches!(why.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
            Err(why) => Err(Error::io("look at", &chunks)(why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that was killed while it formatted a directory left no target, and the next one
    /// starts again. What is not its own stays.
    #[test]
    fn a_directory_that_was_formatted_in_part_is_formatted_again() {
        let place = std::env::temp_dir().join(format!("weft-unfinished-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&place);
        std::fs::create_dir_all(place.join(UNFINISHED_CHUNKS).join("00")).unwrap();
        std::fs::create_dir(place.join(JOURNAL)).unwrap();
        std::fs::write(place.join(claim_file::NAME), b"").unwrap();
        assert!(!Disk::is_one(&place).unwrap());
        std::fs::write(place.join(JOURNAL).join("other"), b"").unwrap();
        Disk::format(&place).unwrap_err();
        assert!(place.join(JOURNAL).join("other").exists() && !Disk::is_one(&place).unwrap());
        std::fs::remove_file(place.join(JOURNAL).join("other")).unwrap();
        drop(Disk::format(&place).unwrap());
        assert!(Disk::is_one(&place).unwrap() && !place.join(UNFINISHED_CHUNKS).exists());
        assert_eq!(std::fs::read_dir(place.join(CHUNKS)).unwrap().count(), 256);
        let why = Disk::format(&place).unwrap_err().to_string();
        assert!(why.contains("is not empty"), "{why}");
        std::fs::remove_dir_all(&place).unwrap();
    }
}

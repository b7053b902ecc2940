//! Files that are there as a whole or not at all, also after a crash: keys, certificates, settings.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What is written first, beside the file.
fn beside(path: &Path) -> PathBuf {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    new.into()
}

fn prepare(path: &Path, text: &str, mode: u32) -> io::Result<PathBuf> {
    let new = beside(path);
    match std::fs::remove_file(&new) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
        _ => {}
    }
    let mut file = File::options().write(true).create_new(true).mode(mode).open(&new)?;
    // Whatever the umask of the user is.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    Ok(new)
}

fn sync(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// Reads one.
///
/// # Errors
/// `Invalid`, with the path, when it cannot be read.
pub(crate) fn read(path: &Path) -> fs::Result<String> {
    std::fs::read_to_string(path).map_err(|why| fs::Error::Invalid(format!("cannot read {}: {why}", path.display())))
}

/// Writes a file, in the place of an earlier one.
///
/// # Errors
/// When it cannot be written; the earlier one stays then.
pub fn replace(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    std::fs::rename(prepare(path, text, mode)?, path)?;
    sync(path)
}

/// Writes a file that must not be there.
///
/// # Errors
/// When it is there, or cannot be written.
pub fn create(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let new = prepare(path, text, mode)?;
    let made = match std::fs::hard_link(&new, path) {
        // A file system without links, such as FAT.
        Err(why) if matches!(why.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported) => {
            if path.symlink_metadata().is_ok() {
                Err(io::ErrorKind::AlreadyExists.into())
            } else {
                replace(path, text, mode)
            }
        }
        made => made,
    };
    let _ = std::fs::remove_file(&new);
    made.and_then(|()| sync(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_whole_and_has_its_mode() {
        let folder = std::env::temp_dir().join(format!("weft-whole-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("file");
        // What a killed process left does no harm.
        std::fs::write(beside(&path), "ha").unwrap();
        create(&path, "one", 0o600).unwrap();
        assert_eq!(create(&path, "two", 0o600).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one");
        replace(&path, "three", 0o646).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "three");
        // No usual umask allows this one.
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o646);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        std::fs::remove_dir_all(folder).unwrap();
    }
}

//! Files and directories of a machine: written as a whole, and given to the user of the servers.

use crate::failure::Failure;
use cluster::whole;
use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Uid};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use volume::Shown;

/// The user of the packages' units.
const USER: &str = "weft";

pub fn failed<'a>(path: &'a Path) -> impl Fn(io::Error) -> Failure + 'a {
    move |why| Failure::Other(format!("cannot write {}: {why}", Shown(path)))
}

/// Writes a file that must not be there.
pub fn write(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    whole::create(path, text, mode).map_err(failed(path))?;
    give(path)
}

/// Whether a file has this text: an earlier try may have written it. With another text it is
/// refused; `else_say` is what to do then.
pub fn is_written(path: &Path, text: &str, else_say: &str) -> Result<bool, Failure> {
    match std::fs::read_to_string(path) {
        Ok(other) if other == text => Ok(true),
        Ok(_) => Err(Failure::Other(format!("{} {else_say}", Shown(path)))),
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(false),
        Err(why) => Err(Failure::Other(format!("cannot read {}: {why}", Shown(path)))),
    }
}

/// Writes a file that is not there, or has the same text.
pub fn write_once(path: &Path, text: &str, mode: u32, else_say: &str) -> Result<(), Failure> {
    if is_written(path, text, else_say)? { give(path) } else { write(path, text, mode) }
}

/// Makes a directory for this user, if it is not there.
pub fn make(path: &Path) -> Result<(), Failure> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed(path))
}

/// Makes the directory of keys, which the servers may enter.
pub fn make_directory(path: &Path) -> Result<(), Failure> {
    if path.is_dir() {
        return Ok(());
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o750).create(path).map_err(failed(path))?;
    // Whatever the umask of the user is.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o750)).map_err(failed(path))?;
    match user() {
        Some((_, group)) => std::os::unix::fs::chown(path, None, Some(group)).map_err(failed(path)),
        None => Ok(()),
    }
}

/// The user of the servers and its group, if this one is root and there is one.
fn user() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let line = users.lines().find(|line| line.split(':').next() == Some(USER))?;
    let mut ids = line.split(':').skip(2).map_while(|id| id.parse().ok());
    Some((ids.next()?, ids.next()?))
}

/// Gives a file or a directory to the user of the servers.
pub fn give_alone(path: &Path) -> Result<(), Failure> {
    let Some((owner, group)) = user() else { return Ok(()) };
    std::os::unix::fs::lchown(path, Some(owner), Some(group)).map_err(failed(path))
}

/// Gives a file, or a directory and all in it, to the user of the servers.
pub fn give(path: &Path) -> Result<(), Failure> {
    user().map_or(Ok(()), |user| give_to(path, user).map_err(failed(path)))
}

/// The same for a user and a group. The directory may be in one that this user can write: what is
/// opened is what is given, no link is followed, and a file that has a second name stays, as that
/// may be anywhere.
fn give_to(path: &Path, user: (u32, u32)) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    give_opened(&rustix::fs::open(path, flags, Mode::empty())?, user)
}

fn give_opened(opened: &OwnedFd, user: (u32, u32)) -> io::Result<()> {
    let stat = rustix::fs::fstat(opened)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let listed = rustix::fs::openat(opened, c".", flags, Mode::empty())?;
            for entry in Dir::read_from(&listed)? {
                let entry = entry?;
                if matches!(entry.file_name().to_bytes(), b"." | b"..") {
                    continue;
                }
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                match rustix::fs::openat(opened, entry.file_name(), flags, Mode::empty()) {
                    Ok(inside) => give_opened(&inside, user)?,
                    Err(rustix::io::Errno::NOENT) => {}
                    Err(why) => return Err(why.into()),
                }
            }
        }
        FileType::RegularFile if stat.st_nlink > 1 => return Err(io::Error::other("a file in it has two names")),
        _ => {}
    }
    // The directory comes after what is in it: until then only this user can change what is there.
    let (owner, group) = (Uid::from_raw(user.0), Gid::from_raw(user.1));
    Ok(rustix::fs::chownat(opened, c"", Some(owner), Some(group), AtFlags::EMPTY_PATH)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    #[test]
    fn what_is_given_is_in_the_directory_and_no_link_is_followed() {
        let folder = std::env::temp_dir().join(format!("weft-give-{}", std::process::id()));
        let (inside, elsewhere) = (folder.join("given/inside"), folder.join("elsewhere"));
        std::fs::create_dir_all(&inside).unwrap();
        std::fs::create_dir_all(&elsewhere).unwrap();
        for file in [inside.join("file"), elsewhere.join("file")] {
            std::fs::write(file, "x").unwrap();
        }
        symlink(&elsewhere, inside.join("link")).unwrap();
        symlink(&elsewhere, folder.join("link")).unwrap();
        let owner = |path: &Path| std::fs::symlink_metadata(path).unwrap().uid();
        // Only root can give; all others give to themselves here.
        let before = owner(&elsewhere);
        let to = if rustix::process::geteuid().is_root() { 12_345 } else { before };
        let group = std::fs::metadata(&elsewhere).unwrap().gid();
        give_to(&folder.join("given"), (to, group)).unwrap();
        give_to(&folder.join("link"), (to, group)).unwrap();
        for given in [folder.join("given"), inside.clone(), inside.join("file"), inside.join("link")] {
            assert_eq!(owner(&given), to, "{}", given.display());
        }
        assert_eq!((owner(&elsewhere), owner(&elsewhere.join("file"))), (before, before), "a link was followed");
        std::fs::hard_link(elsewhere.join("file"), inside.join("second")).unwrap();
        assert!(give_to(&folder.join("given"), (to, group)).unwrap_err().to_string().contains("two names"));
        assert_eq!(owner(&elsewhere.join("file")), before);
        std::fs::remove_dir_all(folder).unwrap();
    }
}

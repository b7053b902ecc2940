//! Giving files of the machine the attributes that they have in an archive.

use crate::message::Stat;
use crate::walk::OWN;
use fs::{FileSystem, Kind, Time};
use rustix::fs::{
    AtFlags, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, fchmod, fchown, fsetxattr, futimens, utimensat,
};
use rustix::io::Errno;
use std::os::fd::AsFd;

fn timestamps(stat: &Stat) -> Timestamps {
    let spec = |time: Time| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    Timestamps { last_access: spec(stat.accessed), last_modification: spec(stat.modified) }
}

fn owner(stat: &Stat) -> (Option<Uid>, Option<Gid>) {
    (Some(Uid::from_raw(stat.uid)), Some(Gid::from_raw(stat.gid)))
}

/// Whether this process may do anything.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// What an ordinary user may not do is no failure: such files belong to who restores them.
fn allowed(done: Result<(), Errno>) -> Result<(), Errno> {
    match done {
        Err(Errno::PERM) if !is_root() => Ok(()),
        done => done,
    }
}

/// Owner, extended attributes, mode and times of an open file or directory, in an order in which none takes back another.
///
/// # Errors
/// Says which of them it does not have; the others it has.
pub fn give(file: impl AsFd, stat: &Stat, volume: &FileSystem, ino: u64) -> Result<(), String> {
    let file = file.as_fd();
    let mut failed = Vec::new();
    let mut note = |what: &str, done: Result<(), Errno>| {
        if let Err(error) = allowed(done) {
            failed.push(format!("{what}: {}", std::io::Error::from(error)));
        }
    };
    let (uid, gid) = owner(stat);
    note("its owner", fchown(file, uid, gid));
    match volume.attribute_names(ino) {
        Err(error) => return Err(error.to_string()),
        Ok(names) => {
            for name in names.into_iter().filter(|name| !name.starts_with(OWN)) {
                let value = volume.attribute(ino, &name).map_err(|error| error.to_string())?;
                let shown = String::from_utf8_lossy(&name).into_owned();
                note(&shown, fsetxattr(file, &name[..], &value, XattrFlags::empty()));
            }
        }
    }
    note("its mode", fchmod(file, Mode::from_raw_mode(stat.mode)));
    note("its times", futimens(file, &timestamps(stat)));
    if failed.is_empty() { Ok(()) } else { Err(failed.join(", ")) }
}

/// The same for what cannot be opened: links and special files.
///
/// # Errors
/// Those of the system calls.
pub fn give_at(directory: impl AsFd, name: &[u8], stat: &Stat) -> Result<(), Errno> {
    let directory = directory.as_fd();
    let (uid, gid) = owner(stat);
    allowed(rustix::fs::chownat(directory, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW))?;
    if stat.kind != Kind::Symlink {
        rustix::fs::chmodat(directory, name, Mode::from_raw_mode(stat.mode), AtFlags::empty())?;
    }
    utimensat(directory, name, &timestamps(stat), AtFlags::SYMLINK_NOFOLLOW)
}

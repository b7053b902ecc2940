//! Gives files of the machine the attributes that they have in an archive.

use crate::message::Stat;
use crate::walk::{OWN, path_of};
use fs::{FileKind, FileSystem, Time};
use plan::Ino;
use rustix::fs::{
    AtFlags, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, fchmod, fchown, fsetxattr, futimens, lsetxattr,
    utimensat,
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

/// Whether this process runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A missing permission is no failure for an ordinary user: such files belong to the user who
/// restores them.
fn allowed(done: Result<(), Errno>) -> Result<(), Errno> {
    match done {
        Err(Errno::PERM) if !is_root() => Ok(()),
        done => done,
    }
}

/// The attributes that could not be set on a file.
#[derive(Default)]
struct Failed(Vec<String>);

impl Failed {
    fn note(&mut self, what: &str, done: Result<(), Errno>) {
        if let Err(error) = allowed(done) {
            self.0.push(format!("{what}: {}", std::io::Error::from(error)));
        }
    }

    /// Sets the extended attributes that a file of the volume has.
    fn set(
        &mut self,
        volume: &FileSystem,
        ino: Ino,
        set: impl Fn(&[u8], &[u8]) -> Result<(), Errno>,
    ) -> Result<(), String> {
        let names = volume.attribute_names(ino).map_err(|error| error.to_string())?;
        for name in names.into_iter().filter(|name| !name.starts_with(OWN)) {
            let value = volume.attribute(ino, &name).map_err(|error| error.to_string())?;
            self.note(&String::from_utf8_lossy(&name), set(&name, &value));
        }
        Ok(())
    }

    fn done(self) -> Result<(), String> {
        if self.0.is_empty() { Ok(()) } else { Err(self.0.join(", ")) }
    }
}

/// Sets owner, extended attributes, mode and times of an open file or directory, in an order in
/// which no step undoes another.
///
/// # Errors
/// Names the attributes that could not be set; the others are set.
pub fn give(file: impl AsFd, stat: &Stat, volume: &FileSystem, ino: Ino) -> Result<(), String> {
    let file = file.as_fd();
    let mut failed = Failed::default();
    let (uid, gid) = owner(stat);
    failed.note("its owner", fchown(file, uid, gid));
    failed.set(volume, ino, |name, value| fsetxattr(file, name, value, XattrFlags::empty()))?;
    failed.note("its mode", fchmod(file, Mode::from_raw_mode(stat.mode)));
    failed.note("its times", futimens(file, &timestamps(stat)));
    failed.done()
}

/// Does the same for files that cannot be opened: links and special files.
///
/// # Errors
/// Names the attributes that could not be set; the others are set.
pub fn give_at(directory: impl AsFd, name: &[u8], stat: &Stat, volume: &FileSystem, ino: Ino) -> Result<(), String> {
    let directory = directory.as_fd();
    let mut failed = Failed::default();
    let (uid, gid) = owner(stat);
    failed.note("its owner", rustix::fs::chownat(directory, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW));
    let path = path_of(directory, name);
    failed.set(volume, ino, |name, value| lsetxattr(&path[..], name, value, XattrFlags::empty()))?;
    if stat.kind != FileKind::Symlink {
        let mode = Mode::from_raw_mode(stat.mode);
        failed.note("its mode", rustix::fs::chmodat(directory, name, mode, AtFlags::empty()));
    }
    failed.note("its times", utimensat(directory, name, &timestamps(stat), AtFlags::SYMLINK_NOFOLLOW));
    failed.done()
}

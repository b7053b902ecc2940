//! Gives files of the machine the attributes that they have in an archive.

use crate::message::Stat;
use crate::walk::{OWN, path_of};
use fs::{FileKind, FileSystem, Time};
use plan::Ino;
use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags, fchmod, fchown, fsetxattr, fstat, futimens,
    lsetxattr, openat, unlinkat, utimensat,
};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};

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

/// What a file system keeps of the owners and modes that files are given: some drop them without an
/// error.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keeps {
    modes: bool,
    owners: bool,
}

impl Keeps {
    /// Tries it with a file in a directory.
    pub fn probe(directory: &OwnedFd) -> Self {
        let name = format!("probe-{:x}", fastrand::u64(..));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(file) = openat(directory, &name[..], flags, Mode::RUSR | Mode::WUSR) else { return Self::default() };
        let _ = unlinkat(directory, &name[..], AtFlags::empty());
        let (mode, id) = (0o604, 12_345);
        let given = fchmod(&file, Mode::from_raw_mode(mode));
        let modes = given.and_then(|()| fstat(&file)).is_ok_and(|seen| seen.st_mode & 0o777 == mode);
        let given = fchown(&file, Some(Uid::from_raw(id)), Some(Gid::from_raw(id)));
        let owners = given.and_then(|()| fstat(&file)).is_ok_and(|seen| (seen.st_uid, seen.st_gid) == (id, id));
        Self { modes, owners: owners && is_root() }
    }

    /// Whether a file has another owner or mode than the archive says, as far as this user could
    /// change that.
    pub fn shows_another(self, archived: &Stat, there: &Stat) -> bool {
        let is_own = there.uid == rustix::process::geteuid().as_raw();
        // The kernel takes the upper bits from files of ordinary users. A link has no mode of its
        // own.
        let bits = if is_root() { 0o7777 } else { 0o777 };
        let may_change = self.modes && (is_root() || is_own) && archived.kind != FileKind::Symlink;
        may_change && (archived.mode ^ there.mode) & bits != 0
            || self.owners && (archived.uid, archived.gid) != (there.uid, there.gid)
    }
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

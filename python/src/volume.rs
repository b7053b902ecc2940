//! A volume and the names in it. Paths are bytes here; `weft.Volume` in Python takes any path.

use crate::bytes::Source;
use crate::failure::{Failure, Result};
use crate::file::File;
use crate::opened::{self, Opened, Wanted, in_drop, is_not_forked};
use crate::paths::{Found, find, is, missing, split, walk};
use fs::{Attributes, FileKind, FileSystem, Ino, New, RenameMode, SetAttributes, SetTime, Time, lock};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// How often an operation is tried again because others changed the same names meanwhile.
const ATTEMPTS: usize = 32;
/// Entries that are listed at a time.
const LIST_BATCH_ENTRIES: usize = 1000;
const NANOSECONDS: i64 = 1_000_000_000;

/// Attributes as `os.stat_result` needs them: mode, ino, nlink, uid, gid, size, rdev, blocks, and
/// the times of access, modification, change and creation in nanoseconds.
type Stat = (u32, u64, u32, u32, u32, u64, u32, u64, i64, i64, i64, i64);

/// A volume.
#[pyclass(frozen, module = "weft._weft")]
pub struct Volume {
    wanted: Wanted,
    state: Mutex<State>,
}

enum State {
    /// It is opened when it is first needed.
    Unopened,
    Open(Arc<Opened>),
    Closed,
}

impl Volume {
    /// The open volume; it is opened if it was not yet. Without the interpreter: it waits.
    fn opened(&self) -> Result<Arc<Opened>> {
        is_not_forked()?;
        let mut state = lock(&self.state);
        match &*state {
            State::Open(opened) => Ok(opened.clone()),
            State::Closed => Err(Failure::Closed("volume")),
            State::Unopened => {
                let opened = opened::open(&self.wanted)?;
                *state = State::Open(opened.clone());
                Ok(opened)
            }
        }
    }

    fn fs(&self) -> Result<Arc<FileSystem>> {
        self.opened()?.fs()
    }

    /// Does something with the file system, without the interpreter. An error is about the path.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        path: &[u8],
        work: impl FnOnce(&FileSystem) -> Result<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| work(&*self.fs()?)).map_err(|failure| failure.about(path))
    }

    fn end(&self, closes: bool) -> Result<()> {
        if is_not_forked().is_err() {
            return Ok(());
        }
        match std::mem::replace(&mut *lock(&self.state), State::Closed) {
            State::Open(opened) => opened.leave(closes),
            _ => Ok(()),
        }
    }
}

#[pymethods]
impl Volume {
    #[new]
    #[pyo3(signature = (place, identity = None, read_only = false, lazy = false))]
    fn new(py: Python<'_>, place: PathBuf, identity: Option<PathBuf>, read_only: bool, lazy: bool) -> PyResult<Self> {
        let shown = place.clone().into_os_string().into_vec();
        let volume = Self { wanted: Wanted { place, identity, read_only }, state: Mutex::new(State::Unopened) };
        if !lazy {
            volume.with(py, &shown, |_| Ok(()))?;
        }
        Ok(volume)
    }

    /// The name that the owner gave the volume.
    fn name(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, b"", |fs| Ok(fs.name()))
    }

    /// Total and free bytes, and the number of files.
    fn usage(&self, py: Python<'_>) -> PyResult<(u64, u64, u64)> {
        self.with(py, b"", |fs| Ok(fs.usage().map(|usage| (usage.total, usage.free, usage.files))?))
    }

    /// Takes the warnings that came since the last call.
    fn take_warnings(&self, py: Python<'_>) -> Vec<String> {
        // A thread that is not in a forked child may have locked the state.
        if is_not_forked().is_err() {
            return Vec::new();
        }
        py.detach(|| match &*lock(&self.state) {
            State::Open(opened) => opened.take_warnings(),
            _ => Vec::new(),
        })
    }

    /// Returns when everything that was written is durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, b"", |fs| Ok(fs.sync_all()?))
    }

    /// Commits everything and closes the volume, if no other `Volume` of this process uses it.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| self.end(true))?)
    }

    /// Whether `close` was called.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        is_not_forked().is_ok() && py.detach(|| matches!(&*lock(&self.state), State::Closed))
    }

    /// Opens a file, with flags of open(2). The access mode, `O_CREAT`, `O_EXCL` and `O_TRUNC`
    /// count.
    fn open(&self, py: Python<'_>, path: &[u8], flags: u32, mode: u32) -> PyResult<File> {
        let flags = OFlags::from_bits_retain(flags);
        let done = py.detach(|| {
            let opened = self.opened()?;
            let ino = open(&*opened.fs()?, path, flags, mode)?;
            Ok::<_, Failure>(File::new(opened, ino, writes(flags)))
        });
        done.map_err(|failure| failure.about(path))
    }

    /// The whole content of a file.
    fn read_bytes<'py>(&self, py: Python<'py>, path: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let file = self.open(py, path, OFlags::RDONLY.bits(), 0)?;
        let bytes = file.whole(py)?;
        file.close(py)?;
        Ok(bytes)
    }

    /// Makes a file with this content, or replaces one: readers see the old content or the new one,
    /// and it is durable when this returns. With `overwrite` false, a file that is there stays, and
    /// is an error.
    fn write_bytes(
        &self,
        py: Python<'_>,
        path: &[u8],
        data: &Bound<'_, PyAny>,
        mode: u32,
        overwrite: bool,
    ) -> PyResult<usize> {
        let source = Source::of(data)?;
        let bytes = source.bytes();
        self.with(py, path, |fs| {
            put(fs, path, mode, overwrite, |ino| Ok(fs.write(ino, 0, bytes)?))?;
            Ok(bytes.len())
        })
    }

    /// Copies a file within the volume. Both share their stripes: no data is read or written. The
    /// copy appears whole, and is durable when this returns.
    fn copy(&self, py: Python<'_>, source: &[u8], target: &[u8]) -> PyResult<u64> {
        self.with(py, source, |fs| {
            let from = open(fs, source, OFlags::RDONLY, 0)?;
            let mut copied = 0;
            let done = fs.attributes(from).map_err(Failure::from).and_then(|found| {
                put(fs, target, found.mode & 0o777, true, |ino| {
                    loop {
                        match fs.copy_range((from, copied), (ino, copied), u64::MAX >> 1)? {
                            0 => return Ok(()),
                            more => copied += more,
                        }
                    }
                })
            });
            fs.close(from);
            done.map(|()| copied)
        })
    }

    /// The attributes of a file.
    fn stat(&self, py: Python<'_>, path: &[u8], follow: bool) -> PyResult<Stat> {
        self.with(py, path, |fs| Ok(stat(&find(fs, path, follow)?)))
    }

    /// The entries of a directory with their attributes, in the order of their names' bytes.
    fn list(&self, py: Python<'_>, path: &[u8]) -> PyResult<Vec<(OsString, Stat)>> {
        self.with(py, path, |fs| {
            let directory = find(fs, path, true)?;
            if directory.kind != FileKind::Directory {
                return Err(Failure::Errno(Errno::NOTDIR, "not a directory"));
            }
            let (mut all, mut cookie) = (Vec::new(), 0);
            loop {
                let listed = fs.list(directory.ino, cookie, LIST_BATCH_ENTRIES)?;
                let Some(last) = listed.last() else { break };
                cookie = last.cookie;
                all.extend(listed.into_iter().map(|entry| (OsString::from_vec(entry.name), stat(&entry.attributes))));
            }
            all.sort_by(|a, b| a.0.cmp(&b.0));
            Ok(all)
        })
    }

    /// Makes a directory.
    fn mkdir(&self, py: Python<'_>, path: &[u8], mode: u32) -> PyResult<()> {
        self.with(py, path, |fs| {
            let (parent, name) = split(fs, path).map_err(|why| match why {
                Failure::Errno(Errno::BUSY, _) => Failure::Errno(Errno::EXIST, "the directory exists"),
                why => why,
            })?;
            Ok(fs.make(parent, &name, &new(FileKind::Directory, mode, Vec::new())).map(drop)?)
        })
    }

    /// Removes a name of a file.
    fn unlink(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.with(py, path, |fs| {
            let (parent, name) = split(fs, path)?;
            Ok(fs.unlink(parent, &name)?)
        })
    }

    /// Removes an empty directory.
    fn rmdir(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.with(py, path, |fs| {
            let (parent, name) = split(fs, path)?;
            Ok(fs.remove_directory(parent, &name)?)
        })
    }

    /// Gives a file another name. With `replace`, a file that has it goes.
    fn rename(&self, py: Python<'_>, source: &[u8], target: &[u8], replace: bool) -> PyResult<()> {
        self.with(py, source, |fs| {
            let ((parent, name), (to, new)) = (split(fs, source)?, split(fs, target)?);
            let mode = if replace { RenameMode::Replace } else { RenameMode::NoReplace };
            Ok(fs.rename((parent, &name), (to, &new), mode)?)
        })
    }

    /// Gives a file one more name.
    fn link(&self, py: Python<'_>, source: &[u8], target: &[u8]) -> PyResult<()> {
        self.with(py, source, |fs| {
            let (found, (to, name)) = (find(fs, source, false)?, split(fs, target)?);
            Ok(fs.link(found.ino, to, &name).map(drop)?)
        })
    }

    /// Makes a symbolic link.
    fn symlink(&self, py: Python<'_>, target: &[u8], path: &[u8]) -> PyResult<()> {
        self.with(py, path, |fs| {
            let (parent, name) = split(fs, path)?;
            Ok(fs.make(parent, &name, &new(FileKind::Symlink, 0o777, target.to_vec())).map(drop)?)
        })
    }

    /// Where a symbolic link leads.
    fn readlink(&self, py: Python<'_>, path: &[u8]) -> PyResult<OsString> {
        self.with(py, path, |fs| Ok(OsString::from_vec(fs.read_link(find(fs, path, false)?.ino)?)))
    }

    /// Sets attributes: permissions, owner, group, size, and the times of access and modification
    /// in nanoseconds.
    #[pyo3(signature = (
        path, follow, mode = None, uid = None, gid = None, size = None, accessed = None, modified = None
    ))]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
    fn set_attributes(
        &self,
        py: Python<'_>,
        path: &[u8],
        follow: bool,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<i64>,
        modified: Option<i64>,
    ) -> PyResult<()> {
        let time = |nanoseconds: i64| {
            let (seconds, rest) = (nanoseconds.div_euclid(NANOSECONDS), nanoseconds.rem_euclid(NANOSECONDS));
            SetTime::To(Time { seconds, nanoseconds: u32::try_from(rest).unwrap_or(0) })
        };
        let (accessed, modified) = (accessed.map(time), modified.map(time));
        let change = SetAttributes { mode, uid, gid, size, accessed, modified, ..SetAttributes::default() };
        self.with(py, path, |fs| Ok(fs.set_attributes(find(fs, path, follow)?.ino, change).map(drop)?))
    }

    /// The value of an extended attribute.
    fn getxattr<'py>(&self, py: Python<'py>, path: &[u8], name: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let value = self.with(py, path, |fs| Ok(fs.attribute(find(fs, path, true)?.ino, name)?))?;
        Ok(PyBytes::new(py, &value))
    }

    /// The names of the extended attributes.
    fn listxattr(&self, py: Python<'_>, path: &[u8]) -> PyResult<Vec<OsString>> {
        self.with(py, path, |fs| {
            let names = fs.attribute_names(find(fs, path, true)?.ino)?;
            Ok(names.into_iter().map(OsString::from_vec).collect())
        })
    }

    /// Sets an extended attribute.
    fn setxattr(&self, py: Python<'_>, path: &[u8], name: &[u8], value: &[u8]) -> PyResult<()> {
        self.with(py, path, |fs| Ok(fs.set_attribute(find(fs, path, true)?.ino, name, value, None)?))
    }

    /// Removes an extended attribute.
    fn removexattr(&self, py: Python<'_>, path: &[u8], name: &[u8]) -> PyResult<()> {
        self.with(py, path, |fs| Ok(fs.remove_attribute(find(fs, path, true)?.ino, name)?))
    }

    /// Returns when the directory's names are durable.
    fn sync_directory(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.with(py, path, |fs| Ok(fs.sync(find(fs, path, true)?.ino)?))
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // A program that needs the errors closes it.
        in_drop(|| _ = self.end(false));
    }
}

/// Whether a file that is opened so may be written.
fn writes(flags: OFlags) -> bool {
    flags.intersects(OFlags::WRONLY | OFlags::RDWR)
}

/// Opens a file, and makes it where that is asked for. Returns its number.
fn open(fs: &FileSystem, path: &[u8], flags: OFlags, mode: u32) -> Result<Ino> {
    let exclusive = flags.contains(OFlags::CREATE | OFlags::EXCL);
    for _ in 0..ATTEMPTS {
        let found = match walk(fs, path, !exclusive)? {
            Found::There(_) if exclusive => return Err(Failure::Errno(Errno::EXIST, "the file exists")),
            Found::There(found) => found,
            Found::Missing(..) if !flags.contains(OFlags::CREATE) => return Err(missing()),
            Found::Missing(parent, name) => match fs.make(parent, &name, &new(FileKind::File, mode, Vec::new())) {
                Ok(made) => made,
                Err(error) if is(&error, Errno::EXIST) && !exclusive => continue,
                Err(error) => return Err(error.into()),
            },
        };
        if found.kind != FileKind::File {
            return Err(not_regular(found.kind));
        }
        match fs.open(found.ino, writes(flags)) {
            Ok(()) => {}
            // Another one may have replaced it meanwhile.
            Err(error) if is(&error, Errno::STALE) => continue,
            Err(error) => return Err(error.into()),
        }
        if flags.contains(OFlags::TRUNC) {
            let emptied = fs.set_attributes(found.ino, SetAttributes { size: Some(0), ..SetAttributes::default() });
            emptied.inspect_err(|_| fs.close(found.ino))?;
        }
        return Ok(found.ino);
    }
    Err(Failure::Errno(Errno::BUSY, "others change the same name"))
}

/// Gives a path a file with a content that `fill` writes, whole and durable, whatever file or link
/// had the path before; or only if none had it.
fn put(fs: &FileSystem, path: &[u8], mode: u32, overwrite: bool, fill: impl FnOnce(Ino) -> Result<()>) -> Result<()> {
    let (parent, name) = split(fs, path)?;
    match fs.lookup(parent, &name) {
        // The rename would say so, when everything is written.
        Ok(_) if !overwrite => return Err(Failure::Errno(Errno::EXIST, "the file exists")),
        Ok(found) if found.kind == FileKind::Directory => return Err(not_regular(found.kind)),
        _ => {}
    }
    let how = if overwrite { RenameMode::Replace } else { RenameMode::NoReplace };
    let part = temporary_name();
    let made = fs.make(parent, &part, &new(FileKind::File, mode, Vec::new()))?;
    fs.open(made.ino, true)?;
    let done = fill(made.ino).and_then(|()| {
        fs.sync(made.ino)?;
        fs.rename((parent, &part), (parent, &name), how)?;
        Ok(fs.sync(parent)?)
    });
    if done.is_err() {
        let _ = fs.unlink(parent, &part);
    }
    fs.close(made.ino);
    done
}

/// A name for an incomplete file, which nobody else uses.
fn temporary_name() -> Vec<u8> {
    use std::hash::{BuildHasher, RandomState};
    // Each state has keys of its own, from the system's random numbers.
    format!(".weft-part-{:016x}", RandomState::new().hash_one(std::process::id())).into_bytes()
}

/// A new file of this process.
fn new(kind: FileKind, mode: u32, link: Vec<u8>) -> New {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    New { kind, mode, uid, gid, device: 0, link }
}

fn not_regular(kind: FileKind) -> Failure {
    match kind {
        FileKind::Directory => Failure::Errno(Errno::ISDIR, "it is a directory"),
        _ => Failure::Errno(Errno::NXIO, "not a regular file"),
    }
}

fn stat(found: &Attributes) -> Stat {
    let kind = match found.kind {
        FileKind::File => 0o100_000,
        FileKind::Directory => 0o040_000,
        FileKind::Symlink => 0o120_000,
        FileKind::Fifo => 0o010_000,
        FileKind::Socket => 0o140_000,
        FileKind::BlockDevice => 0o060_000,
        FileKind::CharacterDevice => 0o020_000,
    };
    let time = |time: Time| time.seconds.saturating_mul(NANOSECONDS).saturating_add(time.nanoseconds.into());
    (
        kind | found.mode,
        found.ino.0,
        found.links,
        found.uid,
        found.gid,
        found.size,
        found.device,
        found.allocated.div_ceil(512),
        time(found.accessed),
        time(found.modified),
        time(found.changed),
        time(found.created),
    )
}

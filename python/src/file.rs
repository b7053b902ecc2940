//! An open file, without a position: `weft.RawFile` in Python has that.

use crate::bytes::{Room, Source};
use crate::failure::{Failure, Result};
use crate::opened::{Opened, in_drop, is_not_forked};
use fs::{FileSystem, Ino, SetAttributes};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An open file of a volume. Its methods can be called from several threads at a time.
#[pyclass(frozen, module = "weft._weft")]
pub struct File {
    opened: Arc<Opened>,
    ino: Ino,
    writable: bool,
    closed: AtomicBool,
}

/// Up to here the bytes of a read are made room for without a look at the size of the file: 1 MiB.
const MAX_ASKED: usize = 1 << 20;
/// Up to here a read from the page cache keeps the interpreter's lock, in bytes: many threads with
/// short reads spend more time on handing the lock to each other (`bench/python-reads.py`).
const MAX_AT_HAND: usize = 64 << 10;
/// The most threads of `read_ranges`.
const MAX_THREADS: usize = 64;

impl File {
    /// A file that has been opened: `FileSystem::open` counted it.
    pub fn new(opened: Arc<Opened>, ino: Ino, writable: bool) -> Self {
        opened.opens_file();
        Self { opened, ino, writable, closed: AtomicBool::new(false) }
    }

    fn fs(&self) -> Result<Arc<FileSystem>> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Failure::Closed("file"));
        }
        self.opened.fs()
    }

    /// The whole content.
    pub fn whole<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let size = py.detach(|| self.length())?;
        self.read_into_bytes(py, usize::try_from(size).unwrap_or(usize::MAX), 0)
    }

    fn length(&self) -> Result<u64> {
        Ok(self.fs()?.attributes(self.ino)?.size)
    }

    fn read_into_bytes<'py>(&self, py: Python<'py>, length: usize, offset: u64) -> PyResult<Bound<'py, PyBytes>> {
        let mut read = 0;
        let whole = PyBytes::new_with(py, length, |into| {
            read = self.read(py, offset, into)?;
            Ok(())
        })?;
        if read == length { Ok(whole) } else { Ok(PyBytes::new(py, &whole.as_bytes()[..read])) }
    }

    fn read(&self, py: Python<'_>, offset: u64, into: &mut [u8]) -> Result<usize> {
        let fs = self.fs()?;
        let at_hand = if into.len() <= MAX_AT_HAND { fs.read_at_hand(self.ino, offset, into) } else { None };
        match at_hand {
            Some(read) => Ok(read),
            None => py.detach(move || Ok(fs.read(self.ino, offset, into)?)),
        }
    }

    fn end(&self) -> Result<()> {
        if self.closed.swap(true, Ordering::Relaxed) || is_not_forked().is_err() {
            return Ok(());
        }
        // When the volume was closed first, everything was committed, and nothing is open.
        let done = self.opened.fs().map_or(Ok(()), |fs| {
            let done = match self.writable {
                true => fs.commit_at_close(self.ino).and_then(|()| fs.check_loss_at_close(self.ino)),
                false => Ok(()),
            };
            fs.close(self.ino);
            done
        });
        let left = self.opened.closes_file();
        done?;
        left
    }
}

#[pymethods]
impl File {
    /// The size in bytes.
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(py.detach(|| self.length())?)
    }

    /// Up to `size` bytes from `offset`; fewer only at the end of the file.
    fn pread<'py>(&self, py: Python<'py>, size: usize, offset: u64) -> PyResult<Bound<'py, PyBytes>> {
        // A size far beyond the end takes no memory.
        let length = match size {
            0..=MAX_ASKED => size,
            _ => size.min(usize::try_from(self.size(py)?.saturating_sub(offset)).unwrap_or(usize::MAX)),
        };
        self.read_into_bytes(py, length, offset)
    }

    /// Reads from `offset` into a buffer, and returns the number of bytes: fewer than it has room
    /// for only at the end of the file.
    fn preadinto(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, offset: u64) -> PyResult<usize> {
        let mut room = Room::of(buffer)?;
        Ok(self.read(py, offset, room.bytes())?)
    }

    /// Several ranges, each `(offset, length)`, with up to `threads` reads at a time.
    #[pyo3(signature = (ranges, threads = 16))]
    fn read_ranges<'py>(
        &self,
        py: Python<'py>,
        ranges: Vec<(u64, usize)>,
        threads: usize,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let read = |size: u64, &(offset, length): &(u64, usize)| {
            let room = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
            let (length, mut bytes) = (length.min(room), Vec::new());
            // Of a file with a hole, a range may be longer than any memory.
            bytes.try_reserve_exact(length).map_err(|_| Failure::Errno(Errno::NOMEM, "a range is too long"))?;
            bytes.resize(length, 0);
            let read = self.fs()?.read(self.ino, offset, &mut bytes)?;
            bytes.truncate(read);
            Ok::<_, Failure>(bytes)
        };
        let done = py.detach(|| {
            let size = self.fs()?.attributes(self.ino)?.size;
            let threads = threads.clamp(1, MAX_THREADS);
            let some = |part: &[(u64, usize)]| part.iter().map(|range| read(size, range)).collect::<Result<Vec<_>>>();
            std::thread::scope(|scope| {
                let parts = ranges.chunks(ranges.len().div_ceil(threads).max(1));
                let parts: Vec<_> = parts.map(|part| scope.spawn(move || some(part))).collect();
                parts.into_iter().map(|part| part.join().expect("a read does not panic")).collect::<Result<Vec<_>>>()
            })
        })?;
        Ok(done.iter().flatten().map(|bytes| PyBytes::new(py, bytes)).collect())
    }

    /// Writes at `offset`, and returns the number of bytes, which is all of them.
    fn pwrite(&self, py: Python<'_>, data: &Bound<'_, PyAny>, offset: u64) -> PyResult<usize> {
        let source = Source::of(data)?;
        let bytes = source.bytes();
        py.detach(|| Ok::<_, Failure>(self.fs()?.write(self.ino, offset, bytes)?))?;
        Ok(bytes.len())
    }

    /// Writes at the end, wherever that is by then, and returns the number of bytes.
    fn append(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        let source = Source::of(data)?;
        let bytes = source.bytes();
        py.detach(|| Ok::<_, Failure>(self.fs()?.append(self.ino, bytes)?))?;
        Ok(bytes.len())
    }

    /// Sets the size.
    fn truncate(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        let change = SetAttributes { size: Some(size), ..SetAttributes::default() };
        Ok(py.detach(|| Ok::<_, Failure>(self.fs()?.set_attributes(self.ino, change).map(drop)?))?)
    }

    /// Returns when everything that was written is durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| Ok::<_, Failure>(self.fs()?.sync(self.ino)?))?)
    }

    /// Closes it. What was written is durable after `sync`, or when the volume is closed.
    pub fn close(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| self.end())?)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // A program that needs the errors closes it.
        in_drop(|| _ = self.end());
    }
}

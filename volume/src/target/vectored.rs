//! Positional reads and writes of several buffers at once, repeated until all bytes are
//! transferred.

use super::ReadPart;
use rustix::fd::AsFd;
use rustix::io::{Errno, ReadWriteFlags, preadv, preadv2, pwritev};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::num::NonZeroU64;

/// The maximum number of buffers per system call.
const MAX_BUFFERS: usize = 1024;

/// Fills the buffers from `offset` on; returns how many bytes were read before the end of the file.
pub(crate) fn read_at(file: impl AsFd, mut offset: u64, buffers: &mut [&mut [u8]]) -> io::Result<usize> {
    let mut slices: Vec<IoSliceMut<'_>> = buffers.iter_mut().map(|b| IoSliceMut::new(b)).collect();
    let mut rest = &mut slices[..];
    let mut total = 0;
    IoSliceMut::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        let count = rest.len().min(MAX_BUFFERS);
        match preadv(&file, &mut rest[..count], offset) {
            Ok(0) => break,
            Ok(read) => {
                IoSliceMut::advance_slices(&mut rest, read);
                offset += read as u64;
                total += read;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(total)
}

/// Writes the buffers from `offset` on.
pub(crate) fn write_at(file: impl AsFd, mut offset: u64, buffers: &[&[u8]]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = buffers.iter().map(|b| IoSlice::new(b)).collect();
    let mut rest = &mut slices[..];
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        let count = rest.len().min(MAX_BUFFERS);
        match pwritev(&file, &rest[..count], offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                IoSlice::advance_slices(&mut rest, written);
                offset += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Shorter writes go through the page cache, which gathers them.
const DIRECT_BYTES: usize = 256 << 10;

/// Whether a write is long enough for direct I/O and consists of whole pages, in memory and in the
/// file.
pub(super) fn is_whole_pages(offset: u64, parts: &[&[u8]]) -> bool {
    const PAGE: usize = 4096;
    offset.is_multiple_of(PAGE as u64)
        && parts.iter().all(|part| part.len().is_multiple_of(PAGE) && (part.as_ptr() as usize).is_multiple_of(PAGE))
        && parts.iter().map(|part| part.len()).sum::<usize>() >= DIRECT_BYTES
}
/// Reads parts of a file. The system fetches the others while the first one is read.
pub(crate) fn read_parts(file: &File, parts: &mut [ReadPart<'_>]) -> io::Result<()> {
    for part in parts.iter().skip(1) {
        let length = NonZeroU64::new(part.into.len() as u64);
        let _ = rustix::fs::fadvise(file, part.offset, length, rustix::fs::Advice::WillNeed);
    }
    for part in parts {
        part.read = read_at(file, part.offset, &mut [part.into])?;
    }
    Ok(())
}

/// As `read_parts`, from the page cache; None if not all of it is there.
pub(crate) fn read_cached_parts(file: &File, parts: &mut [ReadPart<'_>]) -> Option<()> {
    for part in parts {
        let into = &mut [IoSliceMut::new(part.into)];
        part.read = preadv2(file, into, part.offset, ReadWriteFlags::NOWAIT).ok()?;
        // A shorter read may end at the end of the file, or at the end of what is cached.
        if part.read != part.into.len() {
            return None;
        }
    }
    Some(())
}

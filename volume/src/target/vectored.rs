//! Positional reads and writes of several buffers at once, repeated until all bytes are
//! transferred.

use rustix::fd::AsFd;
use rustix::io::{Errno, preadv, pwritev};
use std::io::{self, IoSlice, IoSliceMut};

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

//! The blocks of a stripe in memory: equal rows of one buffer that is used again for every stripe.
//! Before each block there is space for its record header, so that a record is read and written in
//! one piece.

use crate::lock;
use crate::{Error, Result};
use std::sync::Mutex;

/// Rows begin at multiples of this, the widest vector and a cache line.
const ALIGNMENT: usize = 64;

/// Zeroes that cost memory only when they are touched.
///
/// # Errors
/// When there is not so much memory.
pub(super) fn zeroed(bytes: usize) -> Result<Vec<u8>> {
    // Only `vec!` gets zeroes without writing them, and it ends the process if memory is short. So
    // one thread at a time tries to get the memory first.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = lock(&ONE_AT_A_TIME);
    Vec::<u8>::new().try_reserve_exact(bytes).map_err(|_| {
        Error::Invalid(format!("{bytes} bytes of memory for a stripe cannot be had; fewer threads need less"))
    })?;
    Ok(vec![0; bytes])
}

/// A buffer of rows.
#[derive(Debug)]
pub(super) struct Rows {
    bytes: Vec<u8>,
    start: usize,
    rows: usize,
    lead: usize,
    stride: usize,
}

impl Rows {
    /// `rows` rows with space for `max_bytes` each, and for `lead` bytes before each (a multiple of
    /// 64). Untouched rows cost no memory.
    ///
    /// # Errors
    /// When there is not so much memory.
    pub fn new(rows: usize, lead: usize, max_bytes: usize) -> Result<Self> {
        // An odd number of cache lines between the rows: at a power of two, the same offset of all
        // rows would fall into the same few places of the first-level cache.
        let stride = ((lead + max_bytes).div_ceil(ALIGNMENT) | 1) * ALIGNMENT;
        let bytes = zeroed(rows * stride + ALIGNMENT)?;
        let start = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Ok(Self { bytes, start, rows, lead, stride })
    }

    /// The first `length` bytes of a row.
    pub fn row(&self, row: usize, length: usize) -> &[u8] {
        &self.bytes[self.start + row * self.stride + self.lead..][..length]
    }

    /// The first `length` bytes of a row, to be written.
    pub fn row_mut(&mut self, row: usize, length: usize) -> &mut [u8] {
        &mut self.bytes[self.start + row * self.stride + self.lead..][..length]
    }

    /// The first `length` bytes of a row and the `header` bytes before them.
    pub fn record_mut(&mut self, row: usize, header: usize, length: usize) -> &mut [u8] {
        &mut self.bytes[self.start + row * self.stride + self.lead - header..][..header + length]
    }

    /// The first `length` bytes of every row.
    pub fn all_mut(&mut self, length: usize) -> Vec<&mut [u8]> {
        // What is left of the space for the alignment may be as long as a short row.
        let rows = self.bytes[self.start..].chunks_exact_mut(self.stride).take(self.rows);
        rows.map(|row| &mut row[self.lead..self.lead + length]).collect()
    }

    /// Some rows to read and others to write.
    ///
    /// # Panics
    /// When a row is named twice.
    pub fn split(
        &mut self,
        length: usize,
        read: impl IntoIterator<Item = usize>,
        write: impl IntoIterator<Item = usize>,
    ) -> (Vec<&[u8]>, Vec<&mut [u8]>) {
        let mut rows: Vec<Option<&mut [u8]>> = self.all_mut(length).into_iter().map(Some).collect();
        let written = write.into_iter().map(|row| rows[row].take().expect("a row is used once")).collect();
        let read = read.into_iter().map(|row| &*rows[row].take().expect("a row is used once")).collect();
        (read, written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_rows_as_were_asked_for() {
        for length in [0, 1, 64, 65, 4096] {
            assert_eq!(Rows::new(3, 64, length).unwrap().all_mut(length).len(), 3);
        }
    }

    #[test]
    fn rows_are_apart_and_aligned() {
        let mut rows = Rows::new(3, 128, 100).unwrap();
        rows.row_mut(1, 100).fill(1);
        let (read, written) = rows.split(100, [1], [0, 2]);
        written.into_iter().for_each(|row| row.copy_from_slice(read[0]));
        assert!((0..3).all(|r| rows.row(r, 100) == [1; 100] && rows.row(r, 1).as_ptr().align_offset(64) == 0));
    }
}

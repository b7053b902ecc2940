//! The blocks of a stripe in memory: equal rows of one buffer that is used again for every stripe.

/// Rows begin at multiples of this, the widest vector and a cache line.
const ALIGNMENT: usize = 64;

/// A buffer of rows.
#[derive(Debug)]
pub(super) struct Rows {
    bytes: Vec<u8>,
    start: usize,
    stride: usize,
}

impl Rows {
    /// `rows` rows with room for `max_bytes` each. Untouched rows cost no memory.
    pub fn new(rows: usize, max_bytes: usize) -> Self {
        // An odd number of cache lines between the rows: at a power of two, the same offset of all rows would fall
        // into the same few places of the first-level cache.
        let stride = (max_bytes.div_ceil(ALIGNMENT) | 1) * ALIGNMENT;
        let bytes = vec![0; rows * stride + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { bytes, start, stride }
    }

    /// The first `length` bytes of a row.
    pub fn row(&self, row: usize, length: usize) -> &[u8] {
        &self.bytes[self.start + row * self.stride..][..length]
    }

    /// The first `length` bytes of a row, to be written.
    pub fn row_mut(&mut self, row: usize, length: usize) -> &mut [u8] {
        &mut self.bytes[self.start + row * self.stride..][..length]
    }

    /// The first `length` bytes of every row.
    pub fn all_mut(&mut self, length: usize) -> Vec<&mut [u8]> {
        self.bytes[self.start..].chunks_exact_mut(self.stride).map(|row| &mut row[..length]).collect()
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
    fn rows_are_apart_and_aligned() {
        let mut rows = Rows::new(3, 100);
        rows.row_mut(1, 100).fill(1);
        let (read, written) = rows.split(100, [1], [0, 2]);
        written.into_iter().for_each(|row| row.copy_from_slice(read[0]));
        assert!((0..3).all(|r| rows.row(r, 100) == [1; 100] && rows.row(r, 1).as_ptr().align_offset(64) == 0));
    }
}

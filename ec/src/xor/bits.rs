//! Matrices over GF(2), one row of bits per plane made.

/// A matrix of bits, rows packed into words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BitMatrix {
    columns: usize,
    words: usize,
    bits: Vec<u64>,
}

impl BitMatrix {
    /// All zeroes.
    pub fn zero(rows: usize, columns: usize) -> Self {
        let words = columns.div_ceil(64);
        Self { columns, words, bits: vec![0; rows * words] }
    }

    /// The matrix of multiplication by elements: each becomes a w x w block, column x holding the
    /// bits of `e * 2^x`, bit l in row l.
    pub fn expand(elements: &[Vec<u8>], w: usize, double: impl Fn(u8) -> u8) -> Self {
        let columns = elements.first().map_or(0, Vec::len);
        let mut out = Self::zero(elements.len() * w, columns * w);
        for (i, row) in elements.iter().enumerate() {
            for (j, &element) in row.iter().enumerate() {
                let mut e = element;
                for x in 0..w {
                    (0..w).filter(|l| e >> l & 1 == 1).for_each(|l| out.set(i * w + l, j * w + x));
                    e = double(e);
                }
            }
        }
        out
    }

    pub fn rows(&self) -> usize {
        self.bits.len().checked_div(self.words).unwrap_or(0)
    }

    pub fn columns(&self) -> usize {
        self.columns
    }

    pub fn get(&self, row: usize, column: usize) -> bool {
        self.row(row)[column / 64] >> (column % 64) & 1 == 1
    }

    pub fn set(&mut self, row: usize, column: usize) {
        self.bits[row * self.words + column / 64] |= 1 << (column % 64);
    }

    pub fn flip(&mut self, row: usize, column: usize) {
        self.bits[row * self.words + column / 64] ^= 1 << (column % 64);
    }

    fn row(&self, row: usize) -> &[u64] {
        &self.bits[row * self.words..][..self.words]
    }

    /// The columns that are set in a row.
    pub fn ones(&self, row: usize) -> Vec<usize> {
        (0..self.columns).filter(|&c| self.get(row, c)).collect()
    }

    /// The columns picked, in that order.
    pub fn select(&self, columns: &[usize]) -> Self {
        let mut out = Self::zero(self.rows(), columns.len());
        for row in 0..self.rows() {
            for (to, &from) in columns.iter().enumerate() {
                if self.get(row, from) {
                    out.set(row, to);
                }
            }
        }
        out
    }

    /// This matrix with the identity on its right.
    pub fn with_identity(&self) -> Self {
        let rows = self.rows();
        let mut out = Self::zero(rows, self.columns + rows);
        for row in 0..rows {
            self.ones(row).into_iter().chain([self.columns + row]).for_each(|c| out.set(row, c));
        }
        out
    }

    fn add_row(&mut self, to: usize, from: usize) {
        for word in 0..self.words {
            self.bits[to * self.words + word] ^= self.bits[from * self.words + word];
        }
    }

    /// Solves `self * planes = 0` for the planes of `wanted`, given those of `known`: see
    /// `linear::solve`. The result has a row per wanted plane over all planes.
    pub fn solve(&self, wanted: &[usize], known: &[usize]) -> Result<Self, Vec<usize>> {
        let mut is_known = vec![false; self.columns];
        known.iter().for_each(|&p| is_known[p] = true);
        let mut is_wanted = vec![false; self.columns];
        wanted.iter().for_each(|&p| is_wanted[p] = true);
        let mut rows = self.clone();
        let mut used = vec![false; rows.rows()];
        let mut pivots = vec![None; self.columns];
        let others = (0..self.columns).filter(|&p| !is_known[p] && !is_wanted[p]);
        for plane in wanted.iter().copied().chain(others) {
            let Some(pivot) = (0..used.len()).find(|&r| !used[r] && rows.get(r, plane)) else { continue };
            used[pivot] = true;
            pivots[plane] = Some(pivot);
            for r in (0..used.len()).filter(|&r| r != pivot) {
                if rows.get(r, plane) {
                    rows.add_row(r, pivot);
                }
            }
        }
        let mut out = Self::zero(wanted.len(), self.columns);
        let mut missing = Vec::new();
        for (to, &plane) in wanted.iter().enumerate() {
            match pivots[plane].map(|r| rows.ones(r)) {
                Some(ones) if ones.iter().all(|&p| p == plane || is_known[p]) => {
                    ones.into_iter().filter(|&p| p != plane).for_each(|p| out.set(to, p));
                }
                _ => missing.push(plane),
            }
        }
        if missing.is_empty() { Ok(out) } else { Err(missing) }
    }

    /// Ones in the whole matrix.
    pub fn weight(&self) -> usize {
        self.bits.iter().map(|w| w.count_ones() as usize).sum()
    }
}

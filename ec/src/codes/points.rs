//! Codes of evaluation at k+m points, made systematic: Backblaze's and zfec's.

use crate::linear::{Matrix, inverse, product};
use gf::field::power;

/// The parity rows of the systematic code that evaluates at `points`.
fn systematic(points: &[u8], k: usize) -> Matrix {
    let mut values: Matrix = points.iter().map(|&p| (0..k).map(|c| power(p, c)).collect()).collect();
    let parity = values.split_off(k);
    product(&parity, &inverse(&values).expect("distinct points"))
}

/// Backblaze, klauspost's default, reed-solomon-erasure: points 0, 1, 2, ...
pub(crate) fn backblaze(k: usize, m: usize) -> Matrix {
    systematic(&Vec::from_iter((0..k + m).map(|p| p as u8)), k)
}

/// Rizzo's fec and zfec: points 0, 1, a, a^2, ...
pub(crate) fn zfec(k: usize, m: usize) -> Matrix {
    let points = std::iter::once(0).chain((0..k + m - 1).map(|e| power(2, e)));
    systematic(&Vec::from_iter(points), k)
}

/// Gluster's non-systematic code: fragment r = 0 .. n-1 has the row (r+1)^(k-1-j).
pub(crate) fn gluster(k: usize, m: usize) -> Matrix {
    (0..k + m).map(|r| (0..k).map(|j| power((r + 1) as u8, k - 1 - j)).collect()).collect()
}

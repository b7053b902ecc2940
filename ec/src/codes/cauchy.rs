//! Cauchy matrices: ISA-L's (`rs`), and Jerasure's original and good ones.

use crate::linear::Matrix;
use gf::field::{inv, mul, power};

/// ISA-L `gf_gen_cauchy1_matrix`, MarFS, klauspost's Cauchy: 1 / ((k + i) + j). Always MDS.
pub(crate) fn isa(k: usize, m: usize) -> Matrix {
    (0..m).map(|i| (0..k).map(|j| inv(((k + i) ^ j) as u8)).collect()).collect()
}

/// Jerasure `cauchy_original_coding_matrix`: 1 / (i + (m + j)).
pub(crate) fn original(k: usize, m: usize) -> Matrix {
    (0..m).map(|i| (0..k).map(|j| inv((i ^ (m + j)) as u8)).collect()).collect()
}

/// Ones in the 8x8 bit matrix of an element: column x holds the bits of e * 2^x.
fn ones(e: u8) -> u32 {
    (0..8).map(|x| mul(e, power(2, x)).count_ones()).sum()
}

/// Jerasure `cauchy_good_general_coding_matrix`, w = 8. For m = 2 a row of ones and the elements in
/// order of their ones (k <= 254, so there are enough); else `original` with columns divided by
/// their first entry, and each row by the entry that leaves the fewest ones (the first strict
/// improvement wins).
pub(crate) fn good(k: usize, m: usize) -> Matrix {
    if m == 2 {
        let mut sparsest: Vec<u8> = (1..=255).collect();
        sparsest.sort_by_key(|&e| (ones(e), e));
        sparsest.truncate(k);
        return vec![vec![1; k], sparsest];
    }
    let mut a = original(k, m);
    for j in 0..k {
        let scale = inv(a[0][j]);
        a.iter_mut().for_each(|row| row[j] = mul(row[j], scale));
    }
    for row in &mut a[1..] {
        let mut best = row.iter().map(|&e| ones(e)).sum::<u32>();
        let mut divisor = None;
        for &entry in row.iter().filter(|&&e| e != 1) {
            let scale = inv(entry);
            let count = row.iter().map(|&e| ones(mul(e, scale))).sum();
            if count < best {
                (best, divisor) = (count, Some(scale));
            }
        }
        if let Some(scale) = divisor {
            row.iter_mut().for_each(|e| *e = mul(*e, scale));
        }
    }
    a
}

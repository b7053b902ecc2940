//! Vandermonde matrices: ISA-L's, Jerasure's extended and reduced one, and RAID-6's.

use crate::linear::Matrix;
use gf::field::{inv, mul, power};

/// ISA-L `gf_gen_rs_matrix`: (2^i)^j. Not MDS for every shape, see [`isa_is_mds`].
pub(crate) fn isa(k: usize, m: usize) -> Matrix {
    (0..m).map(|i| (0..k).map(|j| power(power(2, i), j)).collect()).collect()
}

/// The shapes for which ISA-L's Vandermonde code is known to be MDS (ISA-L's documentation says so,
/// and all minors were checked).
pub(crate) fn isa_is_mds(k: usize, m: usize) -> bool {
    m <= 3 || k <= 3 || (k == 4 && k + m <= 25) || (k == 5 && k + m <= 10) || (m == 4 && k <= 21)
}

/// Jerasure `reed_sol_vandermonde_coding_matrix`, w = 8: the extended Vandermonde matrix made
/// systematic by column operations, then scaled so that the first row and the first column of the
/// parity part are ones.
pub(crate) fn jerasure(k: usize, m: usize) -> Matrix {
    let rows = k + m;
    let mut d: Matrix = (0..rows).map(|i| (0..k).map(|c| power(i as u8, c)).collect()).collect();
    d[0] = (0..k).map(|c| u8::from(c == 0)).collect();
    d[rows - 1] = (0..k).map(|c| u8::from(c == k - 1)).collect();
    for i in 1..k {
        let pivot = (i..rows).find(|&r| d[r][i] != 0).expect("a Vandermonde matrix has full rank");
        d.swap(i, pivot);
        let scale = inv(d[i][i]);
        d.iter_mut().for_each(|row| row[i] = mul(row[i], scale));
        for j in (0..k).filter(|&j| j != i) {
            let factor = d[i][j];
            d.iter_mut().for_each(|row| row[j] ^= mul(factor, row[i]));
        }
    }
    for j in 0..k {
        let scale = inv(d[k][j]);
        d[k..].iter_mut().for_each(|row| row[j] = mul(row[j], scale));
    }
    for row in &mut d[k + 1..] {
        let scale = inv(row[0]);
        row.iter_mut().for_each(|v| *v = mul(*v, scale));
    }
    d.split_off(k)
}

/// RAID-6: P = sum of d_j, Q = sum of 2^j d_j. MDS for k <= 255.
pub(crate) fn raid6(k: usize) -> Matrix {
    vec![vec![1; k], (0..k).map(|j| power(2, j)).collect()]
}

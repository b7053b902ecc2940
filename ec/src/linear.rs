//! Linear algebra over GF(2^8): products, inverses, and which unknowns a parity-check system
//! determines.

use gf::field::{inv, mul};

/// A matrix in rows.
pub type Matrix = Vec<Vec<u8>>;

/// The identity of size n.
pub fn identity(n: usize) -> Matrix {
    (0..n).map(|i| (0..n).map(|j| u8::from(i == j)).collect()).collect()
}

/// The product a b.
pub fn product(a: &Matrix, b: &Matrix) -> Matrix {
    let columns = b.first().map_or(0, Vec::len);
    a.iter()
        .map(|row| {
            let mut out = vec![0; columns];
            for (&factor, from) in row.iter().zip(b) {
                add_scaled(&mut out, from, factor);
            }
            out
        })
        .collect()
}

/// The inverse of a square matrix, or None when it is singular.
pub fn inverse(matrix: &Matrix) -> Option<Matrix> {
    let n = matrix.len();
    let mut left = matrix.clone();
    let mut right = identity(n);
    for i in 0..n {
        let pivot = (i..n).find(|&r| left[r][i] != 0)?;
        left.swap(i, pivot);
        right.swap(i, pivot);
        let scale = inv(left[i][i]);
        for row in [&mut left[i], &mut right[i]] {
            row.iter_mut().for_each(|v| *v = mul(*v, scale));
        }
        for r in 0..n {
            let factor = left[r][i];
            if r != i && factor != 0 {
                let (l, p) = pair(&mut left, r, i);
                add_scaled(l, p, factor);
                let (l, p) = pair(&mut right, r, i);
                add_scaled(l, p, factor);
            }
        }
    }
    Some(right)
}

/// `row += factor * other`.
fn add_scaled(row: &mut [u8], other: &[u8], factor: u8) {
    if factor != 0 {
        row.iter_mut().zip(other).for_each(|(a, &b)| *a ^= mul(factor, b));
    }
}

fn pair(rows: &mut Matrix, a: usize, b: usize) -> (&mut Vec<u8>, &Vec<u8>) {
    let [a, b] = rows.get_disjoint_mut([a, b]).expect("two different rows");
    (a, b)
}

/// Solves `checks * blocks = 0` for the blocks of `wanted`, given those of `known`; every other
/// block is unknown. `checks` has a column for each of the `blocks`. Returns for each wanted block
/// its coefficients over all blocks (zero outside `known`), or the wanted blocks that are not
/// determined.
///
/// Earlier checks are used first, so a code lists its cheap ones (local groups) first.
pub fn solve(checks: &Matrix, blocks: usize, wanted: &[usize], known: &[usize]) -> Result<Matrix, Vec<usize>> {
    let mut is_known = vec![false; blocks];
    known.iter().for_each(|&b| is_known[b] = true);
    let mut rows = checks.clone();
    let mut used = vec![false; rows.len()];
    let mut pivot_of = vec![None; blocks];
    // Wanted blocks first: they get the earliest checks, and what is not wanted takes what is left.
    let unknown = wanted.iter().copied().chain((0..blocks).filter(|b| !is_known[*b] && !wanted.contains(b)));
    for block in unknown {
        let Some(pivot) = (0..rows.len()).find(|&r| !used[r] && rows[r][block] != 0) else { continue };
        used[pivot] = true;
        pivot_of[block] = Some(pivot);
        let scale = inv(rows[pivot][block]);
        rows[pivot].iter_mut().for_each(|v| *v = mul(*v, scale));
        for r in 0..rows.len() {
            let factor = rows[r][block];
            if r != pivot && factor != 0 {
                let (row, by) = pair(&mut rows, r, pivot);
                add_scaled(row, by, factor);
            }
        }
    }
    let determined = |&block: &usize| {
        let row = &rows[pivot_of[block]?];
        let clean = (0..blocks).all(|b| b == block || is_known[b] || row[b] == 0);
        clean.then(|| (0..blocks).map(|b| if b == block { 0 } else { row[b] }).collect::<Vec<u8>>())
    };
    let missing: Vec<usize> = wanted.iter().copied().filter(|b| determined(b).is_none()).collect();
    if !missing.is_empty() {
        return Err(missing);
    }
    Ok(wanted.iter().filter_map(determined).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inverse_times_its_matrix_is_the_identity() {
        let cauchy: Matrix = (0..9).map(|i| (0..9).map(|j| inv((9 + i) ^ j)).collect()).collect();
        assert_eq!(product(&cauchy, &inverse(&cauchy).unwrap()), identity(9));
        assert_eq!(inverse(&vec![vec![1, 2], vec![1, 2]]), None);
    }

    #[test]
    fn only_what_is_determined_is_solved() {
        // Two checks over five blocks: a + b + c = 0 and c + d + e = 0.
        let checks = vec![vec![1, 1, 1, 0, 0], vec![0, 0, 1, 1, 1]];
        assert_eq!(solve(&checks, 5, &[0], &[1, 2]).unwrap(), [[0, 1, 1, 0, 0]]);
        assert_eq!(solve(&checks, 5, &[0], &[1, 3, 4]).unwrap(), [[0, 1, 0, 1, 1]]);
        assert_eq!(solve(&checks, 5, &[0, 3], &[1, 2]), Err(vec![3]));
    }
}

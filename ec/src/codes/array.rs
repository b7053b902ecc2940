//! The RAID-6 array codes as bit matrices, m = 2: liberation, EVENODD and RDP. Rows are the planes
//! of P, then of Q.

use crate::xor::bits::BitMatrix;

fn is_prime(n: usize) -> bool {
    n >= 2 && (2..n).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d))
}

/// The least prime that is at least n.
pub(crate) fn prime_from(n: usize) -> usize {
    (n..).find(|&p| is_prime(p)).expect("there are more primes")
}

/// Whether `p` is a prime that liberation, EVENODD or RDP can be built on.
pub(crate) fn odd_prime(p: usize) -> bool {
    p > 2 && is_prime(p)
}

/// P of every code here: plane i is the sum of plane i of all blocks.
fn with_row_parity(k: usize, w: usize) -> BitMatrix {
    let mut matrix = BitMatrix::zero(2 * w, k * w);
    for i in 0..w {
        (0..k).for_each(|j| matrix.set(i, j * w + i));
    }
    matrix
}

/// Liberation (Plank, FAST'08; Jerasure `liberation_coding_bitmatrix`), w prime, k <= w.
pub(crate) fn liberation(k: usize, w: usize) -> BitMatrix {
    let mut matrix = with_row_parity(k, w);
    for j in 0..k {
        for i in 0..w {
            matrix.set(w + i, j * w + (i + j) % w);
        }
        if j > 0 {
            let y = j * ((w - 1) / 2) % w;
            matrix.set(w + y, j * w + (y + j - 1) % w);
        }
    }
    matrix
}

/// EVENODD (Blaum et al., 1995), p prime, k <= p, w = p - 1: Q is the diagonal sums plus the sum of
/// the diagonal that misses Q.
pub(crate) fn evenodd(k: usize, p: usize) -> BitMatrix {
    let w = p - 1;
    let mut matrix = with_row_parity(k, w);
    for i in 0..w {
        for j in 0..k {
            for diagonal in [i, p - 1] {
                let row = (diagonal + p - j) % p;
                if row < w {
                    matrix.flip(w + i, j * w + row);
                }
            }
        }
    }
    matrix
}

/// RDP (Corbett et al., FAST'04), p prime, k <= p - 1, w = p - 1: the diagonals run over the data
/// and P.
pub(crate) fn rdp(k: usize, p: usize) -> BitMatrix {
    let w = p - 1;
    let mut matrix = with_row_parity(k, w);
    for i in 0..w {
        for j in 0..k {
            let row = (i + p - j) % p;
            if row < w {
                matrix.flip(w + i, j * w + row);
            }
        }
        // P stands at column p - 1; its plane is the sum of that plane of all data blocks.
        let row = (i + 1) % p;
        if row < w {
            (0..k).for_each(|j| matrix.flip(w + i, j * w + row));
        }
    }
    matrix
}

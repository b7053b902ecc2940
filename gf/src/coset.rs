//! The additive Fourier transform over GF(2^8), as mathematics: twiddles, and what a transform computes.
//!
//! Over the basis 1, 2, 4, .., 128 (Lin, Chung and Han) a polynomial of degree < 2^n in the novel basis is evaluated
//! at a coset `shift + {0 .. 2^n - 1}` by n layers of butterflies. Kernels run the layers on blocks of bytes.

use crate::field::{inv, mul};

/// The subspace polynomial of {0 .. 2^level - 1}, the product of (y + v) over its members, at `point`.
pub fn vanishing(level: usize, point: u8) -> u8 {
    (0..1u16 << level).fold(1, |product, v| mul(product, point ^ v as u8))
}

/// The normalised subspace polynomial (level below 8): linear, zero on {0 .. 2^level - 1}, one at 2^level.
pub fn normalised(level: usize, point: u8) -> u8 {
    mul(vanishing(level, point), inv(vanishing(level, (1u16 << level) as u8)))
}

/// The derivative of the subspace polynomial of {0 .. 2^level - 1}, a constant: the product of its nonzero members.
pub fn vanishing_derivative(level: usize) -> u8 {
    (1..1u16 << level).fold(1, |product, v| mul(product, v as u8))
}

/// The twiddles of a transform of `size` points at `shift`, in the order level 0 first, by rising start:
/// `size - 1` elements; level l has `size >> (l + 1)` of them.
pub fn twiddles(size: usize, shift: u8) -> Vec<u8> {
    let mut out = Vec::with_capacity(size.saturating_sub(1));
    let mut half = 1;
    while half < size {
        let level = half.trailing_zeros() as usize;
        out.extend((0..size).step_by(2 * half).map(|start| normalised(level, shift ^ start as u8)));
        half *= 2;
    }
    out
}

/// Where the twiddles of `level` begin in the order of [`twiddles`].
pub(crate) const fn twiddle_offset(size: usize, level: usize) -> usize {
    // size/2 + size/4 + .. (level terms)
    size - (size >> level)
}

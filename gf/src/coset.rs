//! The additive Fourier transform over GF(2^8), as mathematics: twiddles, and what a transform
//! computes.
//!
//! Over the basis 1, 2, 4, .., 128 (Lin, Chung and Han) a polynomial of degree < 2^n in the novel
//! basis is evaluated at a coset `shift + {0 .. 2^n - 1}` by n layers of butterflies. Kernels run
//! the layers on blocks of bytes.

use crate::field::{inv, mul};

/// The subspace polynomial of {0 .. 2^level - 1}, the product of (y + v) over its members, at
/// `point`.
pub fn vanishing(level: usize, point: u8) -> u8 {
    (0..1u16 << level).fold(1, |product, v| mul(product, point ^ v as u8))
}

/// The normalised subspace polynomial (level below 8): linear, zero on {0 .. 2^level - 1}, one at
/// 2^level.
pub fn normalised(level: usize, point: u8) -> u8 {
    mul(vanishing(level, point), inv(vanishing(level, (1u16 << level) as u8)))
}

/// The derivative of the subspace polynomial of {0 .. 2^level - 1}, a constant: the product of its
/// nonzero members.
pub fn vanishing_derivative(level: usize) -> u8 {
    (1..1u16 << level).fold(1, |product, v| mul(product, v as u8))
}

/// The twiddles of a transform of `size` points at `shift`, in the order level 0 first, by rising
/// start: `size - 1` elements; level l has `size >> (l + 1)` of them.
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

/// The members of the field in the order of a Cantor basis b0 = 1, b(i)^2 + b(i) = b(i-1): member i
/// is the sum of the basis elements at the bits of i. Over this basis the subspace polynomials have
/// coefficients 0 and 1, so that they are normalised as they are, have derivative 1, and
/// s_l(b(i)) = b(i - l). (D. Cantor, On arithmetical algorithms over finite fields, 1989.)
pub(crate) fn cantor_members() -> [u8; 256] {
    let mut members = [0, 1].repeat(128);
    let mut basis = 1u8;
    for bit in 1..8 {
        // Of the two roots, which differ by 1, the smaller.
        basis = (0..=255).find(|&b| mul(b, b) ^ b == basis).expect("a field of 2^(2^3) elements has a Cantor basis");
        members.iter_mut().enumerate().filter(|(i, _)| i >> bit & 1 == 1).for_each(|(_, member)| *member ^= basis);
    }
    members.try_into().expect("256 members")
}

/// As [`twiddles`], of all points in the order of [`cantor_members`].
pub(crate) fn cantor_twiddles(members: &[u8; 256]) -> Vec<u8> {
    // s_l takes the member at a position to the member that many levels lower.
    (0..8).flat_map(|level| (0..256).step_by(2 << level).map(move |start| members[start >> level])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_a_cantor_basis_subspace_polynomials_are_normalised_and_have_derivative_one() {
        let members = cantor_members();
        let twiddles = cantor_twiddles(&members);
        assert_eq!(twiddles.len(), 255);
        for level in 0..8 {
            let subspace = &members[..1 << level];
            let vanishing = |point: u8| subspace.iter().fold(1, |product, &v| mul(product, point ^ v));
            assert_eq!(vanishing(members[1 << level]), 1, "level {level}");
            assert_eq!(subspace[1..].iter().fold(1, |product, &v| mul(product, v)), 1, "level {level}");
            for (index, start) in (0..256).step_by(2 << level).enumerate() {
                assert_eq!(twiddles[twiddle_offset(256, level) + index], vanishing(members[start]), "level {level}");
            }
        }
    }
}

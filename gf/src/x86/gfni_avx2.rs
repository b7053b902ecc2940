//! 32-byte registers, products by one affine instruction (GFNI, VEX form).
//! The field's polynomial is not GFNI's own, so products go by bit matrix, `GF2P8AFFINEQB`.

use crate::field::affine_matrix;
use crate::vector::Vector;
use core::arch::x86_64::*;

/// Multiplication by 2, worked out at compile time.
const DOUBLE: u64 = affine_matrix(2);

#[derive(Clone, Copy)]
pub(crate) struct GfniAvx2(__m256i);

impl Vector for GfniAvx2 {
    const BYTES: usize = 32;
    const FACTOR_BYTES: usize = 8;
    type Factor = __m256i;
    type Split = __m256i;

    fn expand(c: u8, out: &mut [u8]) {
        out.copy_from_slice(&affine_matrix(c).to_le_bytes());
    }
    #[inline(always)]
    unsafe fn zero() -> Self {
        Self(_mm256_setzero_si256())
    }
    #[inline(always)]
    unsafe fn load(p: *const u8) -> Self {
        Self(_mm256_loadu_si256(p.cast()))
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut u8) {
        _mm256_storeu_si256(p.cast(), self.0)
    }
    #[inline(always)]
    unsafe fn stream(self, p: *mut u8) {
        _mm256_stream_si256(p.cast(), self.0)
    }
    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        Self(_mm256_xor_si256(self.0, other.0))
    }
    #[inline(always)]
    unsafe fn factor(p: *const u8) -> Self::Factor {
        _mm256_set1_epi64x(p.cast::<i64>().read_unaligned())
    }
    #[inline(always)]
    unsafe fn split(self) -> Self::Split {
        self.0
    }
    #[inline(always)]
    unsafe fn mul(split: Self::Split, factor: Self::Factor) -> Self {
        Self(_mm256_gf2p8affine_epi64_epi8::<0>(split, factor))
    }
    #[inline(always)]
    unsafe fn double(self) -> Self {
        Self::mul(self.0, _mm256_set1_epi64x(DOUBLE as i64))
    }
}

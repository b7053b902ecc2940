//! 64-byte registers, products by one affine instruction (GFNI, EVEX form), three-way logic for the
//! sums.

use crate::field::affine_matrix;
use crate::vector::Vector;
use core::arch::x86_64::*;

/// Multiplication by 2, worked out at compile time.
const DOUBLE: u64 = affine_matrix(2);

#[derive(Clone, Copy)]
pub(crate) struct GfniAvx512(__m512i);

/// The truth table of a XOR b XOR c.
const XOR3: i32 = 0x96;

impl Vector for GfniAvx512 {
    const BYTES: usize = 64;
    const FACTOR_BYTES: usize = 8;
    type Factor = __m512i;
    type Split = __m512i;

    fn expand(c: u8, out: &mut [u8]) {
        out.copy_from_slice(&affine_matrix(c).to_le_bytes());
    }
    #[inline(always)]
    unsafe fn zero() -> Self {
        Self(_mm512_setzero_si512())
    }
    #[inline(always)]
    unsafe fn load(p: *const u8) -> Self {
        Self(_mm512_loadu_si512(p.cast()))
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut u8) {
        _mm512_storeu_si512(p.cast(), self.0)
    }
    #[inline(always)]
    unsafe fn stream(self, p: *mut u8) {
        _mm512_stream_si512(p.cast(), self.0)
    }
    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        Self(_mm512_xor_si512(self.0, other.0))
    }
    #[inline(always)]
    unsafe fn xor3(self, b: Self, c: Self) -> Self {
        Self(_mm512_ternarylogic_epi64::<XOR3>(self.0, b.0, c.0))
    }
    #[inline(always)]
    unsafe fn factor(p: *const u8) -> Self::Factor {
        _mm512_set1_epi64(p.cast::<i64>().read_unaligned())
    }
    #[inline(always)]
    unsafe fn split(self) -> Self::Split {
        self.0
    }
    #[inline(always)]
    unsafe fn mul(split: Self::Split, factor: Self::Factor) -> Self {
        Self(_mm512_gf2p8affine_epi64_epi8::<0>(split, factor))
    }
    #[inline(always)]
    unsafe fn double(self) -> Self {
        Self::mul(self.0, _mm512_set1_epi64(DOUBLE as i64))
    }
}

//! 64-byte registers, products by nibble shuffle (AVX-512BW VPSHUFB) with three-way logic for the
//! sums.

use crate::field::nibble_tables;
use crate::vector::Vector;
use core::arch::x86_64::*;

#[derive(Clone, Copy)]
pub(crate) struct Avx512(__m512i);

/// The truth table of a XOR b XOR c.
const XOR3: i32 = 0x96;

impl Vector for Avx512 {
    const BYTES: usize = 64;
    const FACTOR_BYTES: usize = 32;
    type Factor = (__m512i, __m512i);
    type Split = (__m512i, __m512i);

    fn expand(c: u8, out: &mut [u8]) {
        out.copy_from_slice(&nibble_tables(c));
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
        (_mm512_broadcast_i32x4(_mm_loadu_si128(p.cast())), _mm512_broadcast_i32x4(_mm_loadu_si128(p.add(16).cast())))
    }
    #[inline(always)]
    unsafe fn split(self) -> Self::Split {
        let mask = _mm512_set1_epi8(0x0f);
        (_mm512_and_si512(self.0, mask), _mm512_and_si512(_mm512_srli_epi64::<4>(self.0), mask))
    }
    #[inline(always)]
    unsafe fn mul(split: Self::Split, factor: Self::Factor) -> Self {
        Self(_mm512_xor_si512(_mm512_shuffle_epi8(factor.0, split.0), _mm512_shuffle_epi8(factor.1, split.1)))
    }
    #[inline(always)]
    unsafe fn mul_add(self, split: Self::Split, factor: Self::Factor) -> Self {
        self.xor3(Self(_mm512_shuffle_epi8(factor.0, split.0)), Self(_mm512_shuffle_epi8(factor.1, split.1)))
    }
    #[inline(always)]
    unsafe fn double(self) -> Self {
        let carry = _mm512_maskz_set1_epi8(_mm512_movepi8_mask(self.0), 0x1d);
        Self(_mm512_xor_si512(_mm512_add_epi8(self.0, self.0), carry))
    }
}

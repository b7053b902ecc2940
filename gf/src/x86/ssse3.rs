//! 16-byte registers, products by nibble shuffle (PSHUFB).

use crate::field::nibble_tables;
use crate::vector::Vector;
use core::arch::x86_64::*;

#[derive(Clone, Copy)]
pub(crate) struct Ssse3(__m128i);

impl Vector for Ssse3 {
    const BYTES: usize = 16;
    const FACTOR_BYTES: usize = 32;
    type Factor = (__m128i, __m128i);
    type Split = (__m128i, __m128i);

    fn expand(c: u8, out: &mut [u8]) {
        out.copy_from_slice(&nibble_tables(c));
    }
    #[inline(always)]
    unsafe fn zero() -> Self {
        Self(_mm_setzero_si128())
    }
    #[inline(always)]
    unsafe fn load(p: *const u8) -> Self {
        Self(_mm_loadu_si128(p.cast()))
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut u8) {
        _mm_storeu_si128(p.cast(), self.0)
    }
    #[inline(always)]
    unsafe fn stream(self, p: *mut u8) {
        _mm_stream_si128(p.cast(), self.0)
    }
    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        Self(_mm_xor_si128(self.0, other.0))
    }
    #[inline(always)]
    unsafe fn factor(p: *const u8) -> Self::Factor {
        (_mm_loadu_si128(p.cast()), _mm_loadu_si128(p.add(16).cast()))
    }
    #[inline(always)]
    unsafe fn split(self) -> Self::Split {
        let mask = _mm_set1_epi8(0x0f);
        (_mm_and_si128(self.0, mask), _mm_and_si128(_mm_srli_epi64::<4>(self.0), mask))
    }
    #[inline(always)]
    unsafe fn mul(split: Self::Split, factor: Self::Factor) -> Self {
        Self(_mm_xor_si128(_mm_shuffle_epi8(factor.0, split.0), _mm_shuffle_epi8(factor.1, split.1)))
    }
    #[inline(always)]
    unsafe fn double(self) -> Self {
        let carry = _mm_and_si128(_mm_cmpgt_epi8(_mm_setzero_si128(), self.0), _mm_set1_epi8(0x1d));
        Self(_mm_xor_si128(_mm_add_epi8(self.0, self.0), carry))
    }
}

//! 32-byte registers, products by nibble shuffle (VPSHUFB).

use crate::field::nibble_tables;
use crate::vector::Vector;
use core::arch::x86_64::*;

#[derive(Clone, Copy)]
pub(crate) struct Avx2(__m256i);

impl Vector for Avx2 {
    const BYTES: usize = 32;
    const FACTOR_BYTES: usize = 32;
    type Factor = (__m256i, __m256i);
    type Split = (__m256i, __m256i);

    fn expand(c: u8, out: &mut [u8]) {
        out.copy_from_slice(&nibble_tables(c));
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
        (
            _mm256_broadcastsi128_si256(_mm_loadu_si128(p.cast())),
            _mm256_broadcastsi128_si256(_mm_loadu_si128(p.add(16).cast())),
        )
    }
    #[inline(always)]
    unsafe fn split(self) -> Self::Split {
        let mask = _mm256_set1_epi8(0x0f);
        (_mm256_and_si256(self.0, mask), _mm256_and_si256(_mm256_srli_epi64::<4>(self.0), mask))
    }
    #[inline(always)]
    unsafe fn mul(split: Self::Split, factor: Self::Factor) -> Self {
        Self(_mm256_xor_si256(_mm256_shuffle_epi8(factor.0, split.0), _mm256_shuffle_epi8(factor.1, split.1)))
    }
    #[inline(always)]
    unsafe fn double(self) -> Self {
        let carry = _mm256_and_si256(_mm256_cmpgt_epi8(_mm256_setzero_si256(), self.0), _mm256_set1_epi8(0x1d));
        Self(_mm256_xor_si256(_mm256_add_epi8(self.0, self.0), carry))
    }
}

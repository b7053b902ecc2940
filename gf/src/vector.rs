//! The small vector trait that every SIMD algorithm of this crate is written over: one algorithm,
//! one thin file per instruction set under `x86/`. All methods are `inline(always)` so that they
//! melt into a caller that has the instruction set enabled; none may be called elsewhere.

/// One register of bytes and the operations that the kernels need on it.
///
/// # Safety
/// Every method requires that the processor has the implementation's instruction set, and pointers
/// must be valid for `BYTES` bytes (`factor`: for `FACTOR_BYTES`). Alignment is never required.
pub(crate) trait Vector: Copy {
    /// Bytes in one register.
    const BYTES: usize;
    /// Bytes of one expanded coefficient in memory, see `expand`.
    const FACTOR_BYTES: usize;
    /// A constant multiplier in registers.
    type Factor: Copy;
    /// An operand made ready to be multiplied by several constants.
    type Split: Copy;

    /// Writes the in-memory form of the multiplier `c`, `FACTOR_BYTES` long.
    fn expand(c: u8, out: &mut [u8]);
    unsafe fn zero() -> Self;
    unsafe fn load(p: *const u8) -> Self;
    unsafe fn store(self, p: *mut u8);
    /// Stores past the caches; `p` is a multiple of `BYTES`.
    unsafe fn stream(self, p: *mut u8);
    unsafe fn xor(self, other: Self) -> Self;
    /// Three-way XOR; one instruction where the processor has it.
    #[inline(always)]
    unsafe fn xor3(self, b: Self, c: Self) -> Self {
        self.xor(b).xor(c)
    }
    unsafe fn factor(p: *const u8) -> Self::Factor;
    unsafe fn split(self) -> Self::Split;
    unsafe fn mul(split: Self::Split, factor: Self::Factor) -> Self;
    /// `self + split * factor`.
    #[inline(always)]
    unsafe fn mul_add(self, split: Self::Split, factor: Self::Factor) -> Self {
        self.xor(Self::mul(split, factor))
    }
    /// Asks for the cache line at an address, which need not be valid.
    #[inline(always)]
    unsafe fn prefetch(p: *const u8) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(p.cast());
    }
    /// Every byte times 2.
    unsafe fn double(self) -> Self;
}

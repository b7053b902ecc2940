//! Coefficients in the form that one kernel multiplies by: nibble tables or bit matrices,
//! contiguous and aligned.

use crate::isa::Isa;
use std::cell::Cell;

#[derive(Clone, Copy)]
#[repr(align(64))]
#[allow(dead_code, reason = "read as bytes")]
struct Line([u8; 64]);

/// Bytes at a 64-byte boundary, so that no table and no tile straddles a cache line.
#[derive(Clone)]
pub(crate) struct Aligned {
    lines: Vec<Line>,
}

impl Aligned {
    /// `length` zero bytes, rounded up to whole lines.
    pub fn zeroed(length: usize) -> Self {
        Self { lines: vec![Line([0; 64]); length.div_ceil(64)] }
    }

    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `Line` is 64 plain bytes without padding, so the lines are 64 bytes each,
        // initialised, in a row.
        unsafe { core::slice::from_raw_parts(self.lines.as_ptr().cast(), self.lines.len() * 64) }
    }

    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`; the borrow is exclusive.
        unsafe { core::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.lines.len() * 64) }
    }
}

thread_local! {
    static SCRATCH: Cell<Option<Aligned>> = const { Cell::new(None) };
}

/// Working memory that the thread keeps for the next map: clearing half a second-level cache for
/// every call would cost more than a tenth of the work. What is in it is left from before.
pub(crate) struct Scratch(Aligned);

impl Scratch {
    /// At least `length` bytes.
    pub fn of(length: usize) -> Self {
        let kept = SCRATCH.take().filter(|kept| kept.as_slice().len() >= length);
        Self(kept.unwrap_or_else(|| Aligned::zeroed(length)))
    }

    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.0.as_mut_slice().as_mut_ptr()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let kept = Aligned { lines: std::mem::take(&mut self.0.lines) };
        // A thread that is ending keeps nothing.
        let _ = SCRATCH.try_with(|scratch| scratch.set(Some(kept)));
    }
}

/// Brings coefficients into the form of one kernel. Every [`Kernel`](crate::Kernel) does.
///
/// Sealed, as the kernels are.
pub trait Expand: sealed::Sealed {
    /// Expands coefficients for this kernel.
    fn factors(&self, values: &[u8]) -> Factors;
}

/// Keeps other crates from implementing [`Expand`], and so kernels.
pub(crate) mod sealed {
    pub trait Sealed {}
}

/// A list of coefficients made ready for one kernel by [`Expand::factors`].
#[derive(Clone)]
pub struct Factors {
    kernel: Isa,
    stride: usize,
    values: Vec<u8>,
    table: Aligned,
}

impl Factors {
    pub(crate) fn new(kernel: Isa, stride: usize, values: &[u8], expand: impl Fn(u8, &mut [u8])) -> Self {
        let mut table = Aligned::zeroed(values.len() * stride);
        for (slot, &value) in table.as_mut_slice().chunks_exact_mut(stride.max(1)).zip(values) {
            expand(value, slot);
        }
        Self { kernel, stride, values: values.to_vec(), table }
    }

    /// The coefficients as field elements.
    pub fn values(&self) -> &[u8] {
        &self.values
    }

    /// The expanded form of coefficient `index` and all after it.
    ///
    /// # Panics
    /// When another kernel made the factors, or `index` is past the end: programmer errors.
    pub(crate) fn at(&self, kernel: Isa, index: usize) -> *const u8 {
        assert_eq!(self.kernel, kernel, "factors of one kernel used with another");
        assert!(index <= self.values.len(), "factor {index} of {}", self.values.len());
        self.table.as_slice()[index * self.stride..].as_ptr()
    }
}

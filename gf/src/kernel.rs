//! The port between mathematics and machine: what a kernel can do, on blocks given as slices.
//!
//! Every method works on the byte range `at` of all its blocks and leaves the rest alone. All
//! kernels give the same bytes; `naive` is the oracle they are tested against. Lengths and
//! alignment are free.

use crate::factors::{Expand, Factors};
use crate::isa::Isa;
use crate::{Dyadic, Erasure, Grouped};
use std::ops::Range;

/// One instruction set's implementation of the operations that the codes are made of.
///
/// Sealed: the kernels of this crate trust each other's factors with raw pointers. Every operation
/// panics when a block ends before the range, or the blocks are not those of the map: programmer
/// errors.
pub trait Kernel: Expand + Send + Sync + 'static {
    /// The instruction set that it is written for.
    fn isa(&self) -> Isa;

    /// The name that `WEFT_KERNEL` takes.
    fn name(&self) -> &'static str {
        self.isa().name()
    }

    /// `output = inputs[0] + inputs[1] + ..`; zeroes when there is no input.
    fn xor(&self, inputs: &[&[u8]], output: &mut [u8], at: Range<usize>);

    /// `outputs[i] += factors[i] * input`: one step of P(j) = P(j-1) + gj dj for several parities.
    fn multiply_add(&self, factors: &Factors, input: &[u8], outputs: &mut [&mut [u8]], at: Range<usize>);

    /// A linear map given as cosets and a matrix on whole cosets; with cosets of one point a plain
    /// matrix product.
    fn grouped(&self, map: &Grouped, inputs: &[&[u8]], outputs: &mut [&mut [u8]], at: Range<usize>);

    /// As `grouped`, but outputs are written past the caches where that can be done: for those that
    /// leave the caches before anybody reads them. The memory behind a line is then not read before
    /// it is overwritten.
    fn grouped_streaming(&self, map: &Grouped, inputs: &[&[u8]], outputs: &mut [&mut [u8]], at: Range<usize>) {
        self.grouped(map, inputs, outputs, at);
    }

    /// A linear map given as groups of inputs with dyadic coefficients.
    fn dyadic(&self, map: &Dyadic, inputs: &[&[u8]], outputs: &mut [&mut [u8]], at: Range<usize>);

    /// As `dyadic`, but outputs are written past the caches as `grouped_streaming` does.
    fn dyadic_streaming(&self, map: &Dyadic, inputs: &[&[u8]], outputs: &mut [&mut [u8]], at: Range<usize>) {
        self.dyadic(map, inputs, outputs, at);
    }

    /// Lost blocks from survivors by the error-locator transform.
    fn erasure(&self, map: &Erasure, inputs: &[&[u8]], outputs: &mut [&mut [u8]], at: Range<usize>);

    /// RAID-6: `p = sum of inputs[j]`, `q = sum of 2^j * inputs[j]`.
    fn pq(&self, inputs: &[&[u8]], p: &mut [u8], q: &mut [u8], at: Range<usize>);
}

impl std::fmt::Debug for dyn Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Panics unless every block reaches to the end of the range: the bound all raw accesses of the
/// kernels rest on.
pub(crate) fn check(inputs: &[&[u8]], outputs: &[&mut [u8]], at: &Range<usize>) {
    assert!(at.start <= at.end, "reversed range");
    assert!(
        inputs.iter().all(|b| b.len() >= at.end) && outputs.iter().all(|b| b.len() >= at.end),
        "a block is shorter than the range {at:?}"
    );
}

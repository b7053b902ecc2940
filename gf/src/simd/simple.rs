//! XOR of many blocks, multiply-add into several, and RAID-6's P and Q.

use crate::vector::Vector;
use std::ops::Range;

/// Registers of one block held at a time.
const UNROLL: usize = 4;

/// Bytes of one step of [`xor`] and [`pq`].
pub(crate) const fn xor_step<V: Vector>() -> usize {
    UNROLL * V::BYTES
}

/// # Safety
/// V's instruction set; every block reaches `at.end`; `at` is a multiple of `xor_step` long.
#[inline(always)]
pub(crate) unsafe fn xor<V: Vector>(inputs: &[&[u8]], output: &mut [u8], at: Range<usize>) {
    let mut pos = at.start;
    while pos < at.end {
        let mut sum = [V::zero(); UNROLL];
        let mut pairs = inputs.chunks_exact(2);
        for pair in &mut pairs {
            let (a, b) = (pair[0].as_ptr().add(pos), pair[1].as_ptr().add(pos));
            for (u, s) in sum.iter_mut().enumerate() {
                *s = s.xor3(V::load(a.add(u * V::BYTES)), V::load(b.add(u * V::BYTES)));
            }
        }
        for last in pairs.remainder() {
            for (u, s) in sum.iter_mut().enumerate() {
                *s = s.xor(V::load(last.as_ptr().add(pos + u * V::BYTES)));
            }
        }
        for (u, s) in sum.iter().enumerate() {
            s.store(output.as_mut_ptr().add(pos + u * V::BYTES));
        }
        pos += xor_step::<V>();
    }
}

/// # Safety
/// V's instruction set; every block reaches `at.end`; `at` is a multiple of `V::BYTES` long;
/// `factors` has one for each output and is this kernel's.
#[inline(always)]
pub(crate) unsafe fn multiply_add<V: Vector>(
    table: *const u8,
    input: &[u8],
    outputs: &mut [&mut [u8]],
    at: Range<usize>,
) {
    // One output at a time keeps its factor in registers; the input range stays in the first-level
    // cache.
    const PIECE_BYTES: usize = 8192;
    let mut start = at.start;
    while start < at.end {
        let end = at.end.min(start + PIECE_BYTES);
        for (i, output) in outputs.iter_mut().enumerate() {
            let factor = V::factor(table.add(i * V::FACTOR_BYTES));
            let mut pos = start;
            while pos < end {
                let out = output.as_mut_ptr().add(pos);
                V::load(out).mul_add(V::load(input.as_ptr().add(pos)).split(), factor).store(out);
                pos += V::BYTES;
            }
        }
        start = end;
    }
}

/// # Safety
/// V's instruction set; every block reaches `at.end`; `at` is a multiple of `xor_step` long.
#[inline(always)]
pub(crate) unsafe fn pq<V: Vector>(inputs: &[&[u8]], p: &mut [u8], q: &mut [u8], at: Range<usize>) {
    let mut pos = at.start;
    while pos < at.end {
        let mut sum = [V::zero(); UNROLL];
        let mut horner = [V::zero(); UNROLL];
        for input in inputs.iter().rev() {
            for u in 0..UNROLL {
                let v = V::load(input.as_ptr().add(pos + u * V::BYTES));
                sum[u] = sum[u].xor(v);
                horner[u] = horner[u].double().xor(v);
            }
        }
        for u in 0..UNROLL {
            sum[u].store(p.as_mut_ptr().add(pos + u * V::BYTES));
            horner[u].store(q.as_mut_ptr().add(pos + u * V::BYTES));
        }
        pos += UNROLL * V::BYTES;
    }
}

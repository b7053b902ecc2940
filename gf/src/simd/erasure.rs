//! `Erasure` on a tile: scale, inverse transform, formal derivative, transform, scale.

use super::tile::{inverse_transform, scale, transform};
use crate::erasure::Erasure;
use crate::factors::Aligned;
use crate::vector::Vector;
use std::ops::Range;

/// Bytes of each block in the tile: 256 blocks of 64 bytes are half of a 32 KiB first-level cache.
pub(crate) const WIDTH: usize = 64;

/// # Safety
/// V's instruction set; every block reaches `at.end`; `at` is a multiple of `WIDTH` long; there is an input for each
/// input point and an output for each output point, and the map was made for this kernel.
#[inline(always)]
pub(crate) unsafe fn erasure<V: Vector>(
    map: &Erasure,
    kernel: &'static str,
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    at: Range<usize>,
) {
    let mut tile = Aligned::zeroed(map.size * WIDTH);
    let work = tile.as_mut_slice().as_mut_ptr();
    let mut slots = [work; 256];
    for (i, slot) in slots.iter_mut().enumerate().take(map.size) {
        *slot = work.add(i * WIDTH);
    }
    let twiddles = map.transform.at(kernel, 0);
    let factor = |table: *const u8, i: usize| V::factor(table.add(i * V::FACTOR_BYTES));
    let (before, after) = (map.to_derivative.at(kernel, 0), map.from_derivative.at(kernel, 0));
    let (input_scale, output_scale) = (map.input_scale.at(kernel, 0), map.output_scale.at(kernel, 0));
    let mut pos = at.start;
    while pos < at.end {
        std::ptr::write_bytes(work, 0, map.size * WIDTH);
        for (i, (&point, input)) in map.input_points.iter().zip(inputs).enumerate() {
            scale::<V>(input.as_ptr().add(pos), work.add(point * WIDTH), WIDTH, factor(input_scale, i));
        }
        inverse_transform::<V>(&slots.map(|p| p.cast_const()), work, map.size, WIDTH, twiddles, true, false);
        for i in 0..map.size {
            let slot = work.add(i * WIDTH);
            scale::<V>(slot, slot, WIDTH, factor(before, i));
        }
        for i in 0..map.size {
            // Ascending in place: a coefficient's derivative reads only coefficients of higher index.
            for offset in (0..WIDTH).step_by(V::BYTES) {
                let mut sum = V::zero();
                let mut bit = 1;
                while bit < map.size {
                    if i & bit == 0 {
                        sum = sum.xor(V::load(work.add((i | bit) * WIDTH + offset)));
                    }
                    bit *= 2;
                }
                V::mul(sum.split(), factor(after, i)).store(work.add(i * WIDTH + offset));
            }
        }
        transform::<V>(work, &slots, map.size, WIDTH, twiddles, true, false);
        for (i, (&point, output)) in map.output_points.iter().zip(outputs.iter_mut()).enumerate() {
            scale::<V>(work.add(point * WIDTH), output.as_mut_ptr().add(pos), WIDTH, factor(output_scale, i));
        }
        pos += WIDTH;
    }
}

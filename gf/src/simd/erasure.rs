//! `Erasure` on a tile: scale, inverse transform, formal derivative, transform, scale.

use super::tile::{inverse_transform, scale, transform};
use crate::coset::twiddle_offset;
use crate::erasure::Erasure;
use crate::factors::{Aligned, Scratch};
use crate::isa::Isa;
use crate::vector::Vector;
use std::ops::Range;

/// Bytes of each block in the tile: 256 blocks of 64 bytes are half of a 32 KiB first-level cache.
pub(crate) const WIDTH: usize = 64;

/// # Safety
/// V's instruction set; every block reaches `at.end`; `at` is a multiple of `WIDTH` long; there is
/// an input for each input point and an output for each output point, and the map was made for this
/// kernel.
#[inline(always)]
pub(crate) unsafe fn erasure<V: Vector>(
    map: &Erasure,
    kernel: Isa,
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    at: Range<usize>,
) {
    debug_assert!(map.size >= 4, "two layers are taken at once");
    let mut tile = Scratch::of(map.size * WIDTH);
    let work = tile.as_mut_ptr();
    let mut slots = [work; 256];
    for (i, slot) in slots.iter_mut().enumerate().take(map.size) {
        *slot = work.add(i * WIDTH);
    }
    let blank = Aligned::zeroed(WIDTH);
    let mut sources = slots.map(|slot| slot.cast_const());
    for &slot in &map.lost_slots {
        sources[slot] = blank.as_slice().as_ptr();
    }
    let (levels, twiddles) = (map.size.trailing_zeros() as usize, map.transform.at(kernel, 0));
    let weights = map.weights.as_ref().map(|weights| [weights[0].at(kernel, 0), weights[1].at(kernel, 0)]);
    let (input_scale, output_scale) = (map.input_scale.at(kernel, 0), map.output_scale.at(kernel, 0));
    let factor = |table: *const u8, i: usize| V::factor(table.add(i * V::FACTOR_BYTES));
    let mut pos = at.start;
    while pos < at.end {
        for (i, (&slot, input)) in map.input_slots.iter().zip(inputs).enumerate() {
            scale::<V>(input.as_ptr().add(pos), slots[slot], WIDTH, factor(input_scale, i));
        }
        inverse_transform::<V>(&sources, work, map.size, WIDTH, twiddles, true, false);
        if let Some([to, _]) = weights {
            scale_all::<V>(work, map.size, to);
        }
        derive::<V>(work, map.size, weights.map(|[_, from]| from), twiddles);
        transform::<V>(work, &slots, map.size, levels - 2, WIDTH, twiddles, true, false);
        for (i, (&slot, output)) in map.output_slots.iter().zip(outputs.iter_mut()).enumerate() {
            scale::<V>(slots[slot], output.as_mut_ptr().add(pos), WIDTH, factor(output_scale, i));
        }
        pos += WIDTH;
    }
}

#[inline(always)]
unsafe fn scale_all<V: Vector>(work: *mut u8, size: usize, table: *const u8) {
    for i in 0..size {
        let slot = work.add(i * WIDTH);
        scale::<V>(slot, slot, WIDTH, V::factor(table.add(i * V::FACTOR_BYTES)));
    }
}

/// Adds to every coefficient those with one more bit, and takes the two highest layers of the
/// transform in the same pass. In place: of a quarter, only coefficients of higher index are read.
/// What to add is listed for each index, since a branch at each bit was badly predicted and took
/// half of the time (perf, AVX2).
#[inline(always)]
unsafe fn derive<V: Vector>(work: *mut u8, size: usize, weights: Option<*const u8>, twiddles: *const u8) {
    let (levels, quarter) = (size.trailing_zeros() as usize, size / 4);
    // Of the other twiddles of these layers, all are zero.
    let high = V::factor(twiddles.add((twiddle_offset(size, levels - 2) + 1) * V::FACTOR_BYTES));
    for i in 0..quarter {
        // How far it is to those that have one more of the lower bits.
        let (mut ups, mut count) = ([0; 8], 0);
        for bit in 0..levels - 2 {
            ups[count] = WIDTH << bit;
            count += !i >> bit & 1;
        }
        let slots = [0, 1, 2, 3].map(|q| work.add((q * quarter + i) * WIDTH));
        for offset in (0..WIDTH).step_by(V::BYTES) {
            let mut own = [V::zero(); 4];
            for (value, slot) in own.iter_mut().zip(slots) {
                *value = V::load(slot.add(offset));
            }
            let [a, b, c, d] = own;
            let mut sums = [a.xor(b).xor(c), b.xor(d), c.xor(d), d];
            for &up in &ups[..count] {
                for (sum, slot) in sums.iter_mut().zip(slots) {
                    *sum = sum.xor(V::load(slot.add(offset + up)));
                }
            }
            if let Some(table) = weights {
                for (q, sum) in sums.iter_mut().enumerate() {
                    *sum = V::mul(sum.split(), V::factor(table.add((q * quarter + i) * V::FACTOR_BYTES)));
                }
            }
            let [a, b, c, d] = sums;
            let (c, d) = (c.xor(a), d.xor(b));
            let c = c.mul_add(d.split(), high);
            for (value, slot) in [a, b.xor(a), c, d.xor(c)].into_iter().zip(slots) {
                value.store(slot.add(offset));
            }
        }
    }
}

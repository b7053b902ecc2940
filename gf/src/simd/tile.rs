//! `Grouped` through a tile in the first-level cache, for wide codes and large groups: coefficients of every group
//! for a few bytes of each block, transformed two layers at a time in registers.

use super::{MAX_BLOCKS, PREFETCH_BYTES};
use crate::coset::twiddle_offset;
use crate::factors::Aligned;
use crate::grouped::{Grouped, NO_BLOCK, Way};
use crate::vector::Vector;
use std::ops::Range;

/// # Safety
/// V's instruction set; every block reaches `at.end`; `at` is a multiple of the tile's width long; the map's block
/// indices are in bounds, it is `Way::Tile` and made for this kernel.
#[inline(always)]
pub(crate) unsafe fn grouped<V: Vector>(
    map: &Grouped,
    kernel: &'static str,
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    at: Range<usize>,
) {
    let Way::Tile { width } = map.way else { unreachable!("not a tile map") };
    let spec = &map.spec;
    let (size, columns, rows) = (spec.size, spec.inputs.len(), spec.outputs.len());
    let mut tile = Aligned::zeroed((columns + rows) * size * width);
    let coefficients = tile.as_mut_slice().as_mut_ptr();
    let sums = coefficients.add(columns * size * width);
    let twiddles = |group: usize| map.transform.at(kernel, group * (size - 1));
    let mut pos = at.start;
    while pos < at.end {
        for (g, group) in spec.inputs.iter().enumerate() {
            let work = coefficients.add(g * size * width);
            for (i, &block) in group.blocks.iter().enumerate() {
                let slot = work.add(i * width);
                if block != NO_BLOCK {
                    for line in (pos..pos + width).step_by(64) {
                        V::prefetch(inputs[block].as_ptr().wrapping_add(line + PREFETCH_BYTES));
                    }
                }
                match (block, spec.input_scale.is_empty()) {
                    (NO_BLOCK, _) => std::ptr::write_bytes(slot, 0, width),
                    (_, true) => copy::<V>(inputs[block].as_ptr().add(pos), slot, width),
                    (_, false) => {
                        let factor = V::factor(map.input_scale.at(kernel, block));
                        scale::<V>(inputs[block].as_ptr().add(pos), slot, width, factor);
                    }
                }
            }
            inverse_transform::<V>(work, size, width, twiddles(g), group.shift == 0);
        }
        for pass in &map.passes {
            let table = pass.factors.at(kernel, 0);
            for i in 0..size {
                let from = coefficients.add(i * width);
                let to = sums.add((pass.first * size + i) * width);
                let strides = (size * width, columns);
                match pass.count {
                    1 => dot::<V, 1>(from, to, strides, width, table),
                    2 => dot::<V, 2>(from, to, strides, width, table),
                    3 => dot::<V, 3>(from, to, strides, width, table),
                    4 => dot::<V, 4>(from, to, strides, width, table),
                    5 => dot::<V, 5>(from, to, strides, width, table),
                    _ => dot::<V, 6>(from, to, strides, width, table),
                }
            }
        }
        for (g, group) in spec.outputs.iter().enumerate() {
            let work = sums.add(g * size * width);
            transform::<V>(work, size, width, twiddles(columns + g), group.shift == 0);
            if !spec.direct.is_empty() {
                for (d, direct) in spec.direct.iter().enumerate() {
                    if let Some(i) = group.blocks.iter().position(|&b| b == direct.output) {
                        let factor = V::factor(map.direct.at(kernel, d));
                        multiply_add::<V>(inputs[direct.input].as_ptr().add(pos), work.add(i * width), width, factor);
                    }
                }
            }
            for (i, &block) in group.blocks.iter().enumerate() {
                if block == NO_BLOCK {
                    continue;
                }
                let (slot, target) = (work.add(i * width), outputs[block].as_mut_ptr().add(pos));
                if spec.output_scale.is_empty() {
                    copy::<V>(slot, target, width);
                } else {
                    scale::<V>(slot, target, width, V::factor(map.output_scale.at(kernel, block)));
                }
            }
        }
        pos += width;
    }
}

#[inline(always)]
pub(super) unsafe fn copy<V: Vector>(from: *const u8, to: *mut u8, width: usize) {
    for offset in (0..width).step_by(V::BYTES) {
        V::load(from.add(offset)).store(to.add(offset));
    }
}

#[inline(always)]
pub(super) unsafe fn scale<V: Vector>(from: *const u8, to: *mut u8, width: usize, factor: V::Factor) {
    for offset in (0..width).step_by(V::BYTES) {
        V::mul(V::load(from.add(offset)).split(), factor).store(to.add(offset));
    }
}

#[inline(always)]
unsafe fn multiply_add<V: Vector>(from: *const u8, to: *mut u8, width: usize, factor: V::Factor) {
    for offset in (0..width).step_by(V::BYTES) {
        V::load(to.add(offset)).mul_add(V::load(from.add(offset)).split(), factor).store(to.add(offset));
    }
}

/// P sums over the groups for one coefficient index.
#[inline(always)]
unsafe fn dot<V: Vector, const P: usize>(
    from: *const u8,
    to: *mut u8,
    (stride, columns): (usize, usize),
    width: usize,
    table: *const u8,
) {
    debug_assert!(columns <= MAX_BLOCKS);
    for offset in (0..width).step_by(V::BYTES) {
        let mut sum = [V::zero(); P];
        let mut factors = table;
        for column in 0..columns {
            let split = V::load(from.add(column * stride + offset)).split();
            for s in &mut sum {
                *s = s.mul_add(split, V::factor(factors));
                factors = factors.add(V::FACTOR_BYTES);
            }
        }
        for (p, s) in sum.iter().enumerate() {
            s.store(to.add(p * stride + offset));
        }
    }
}

/// Coefficients from values, in place; `size` slots of `width` bytes. `zero`: the coset is the subspace itself.
#[inline(always)]
pub(super) unsafe fn inverse_transform<V: Vector>(
    work: *mut u8,
    size: usize,
    width: usize,
    twiddles: *const u8,
    zero: bool,
) {
    let twiddle = |level: usize, index: usize| V::factor(twiddles.add((twiddle_offset(size, level) + index) * V::FACTOR_BYTES));
    let levels = size.trailing_zeros() as usize;
    let mut level = 0;
    while level + 2 <= levels {
        let half = 1 << level;
        for (quad, start) in (0..size).step_by(4 * half).enumerate() {
            let (low, high, top) = (twiddle(level, 2 * quad), twiddle(level, 2 * quad + 1), twiddle(level + 1, quad));
            let skip = zero && quad == 0;
            for i in start..start + half {
                for offset in (0..width).step_by(V::BYTES) {
                    let p = |j: usize| work.add((i + j * half) * width + offset);
                    let (mut a, mut b, mut c, mut d) = (V::load(p(0)), V::load(p(1)), V::load(p(2)), V::load(p(3)));
                    b = b.xor(a);
                    d = d.xor(c);
                    c = c.mul_add(d.split(), high);
                    if skip {
                        c = c.xor(a);
                        d = d.xor(b);
                    } else {
                        a = a.mul_add(b.split(), low);
                        c = c.xor(a);
                        d = d.xor(b);
                        a = a.mul_add(c.split(), top);
                        b = b.mul_add(d.split(), top);
                    }
                    a.store(p(0));
                    b.store(p(1));
                    c.store(p(2));
                    d.store(p(3));
                }
            }
        }
        level += 2;
    }
    if level < levels {
        let half = 1 << level;
        let t = twiddle(level, 0);
        for i in 0..half {
            for offset in (0..width).step_by(V::BYTES) {
                let (pa, pb) = (work.add(i * width + offset), work.add((i + half) * width + offset));
                let a = V::load(pa);
                let b = V::load(pb).xor(a);
                b.store(pb);
                if !zero {
                    a.mul_add(b.split(), t).store(pa);
                }
            }
        }
    }
}

/// Values from coefficients, in place: the mirror of [`inverse_transform`].
#[inline(always)]
pub(super) unsafe fn transform<V: Vector>(work: *mut u8, size: usize, width: usize, twiddles: *const u8, zero: bool) {
    let twiddle = |level: usize, index: usize| V::factor(twiddles.add((twiddle_offset(size, level) + index) * V::FACTOR_BYTES));
    let levels = size.trailing_zeros() as usize;
    let mut level = levels;
    if levels % 2 == 1 {
        level -= 1;
        let half = 1 << level;
        let t = twiddle(level, 0);
        for i in 0..half {
            for offset in (0..width).step_by(V::BYTES) {
                let (pa, pb) = (work.add(i * width + offset), work.add((i + half) * width + offset));
                let (mut a, b) = (V::load(pa), V::load(pb));
                if !zero {
                    a = a.mul_add(b.split(), t);
                    a.store(pa);
                }
                b.xor(a).store(pb);
            }
        }
    }
    while level >= 2 {
        level -= 2;
        let half = 1 << level;
        for (quad, start) in (0..size).step_by(4 * half).enumerate() {
            let (low, high, top) = (twiddle(level, 2 * quad), twiddle(level, 2 * quad + 1), twiddle(level + 1, quad));
            let skip = zero && quad == 0;
            for i in start..start + half {
                for offset in (0..width).step_by(V::BYTES) {
                    let p = |j: usize| work.add((i + j * half) * width + offset);
                    let (mut a, mut b, mut c, mut d) = (V::load(p(0)), V::load(p(1)), V::load(p(2)), V::load(p(3)));
                    if skip {
                        c = c.xor(a);
                        d = d.xor(b);
                    } else {
                        a = a.mul_add(c.split(), top);
                        c = c.xor(a);
                        b = b.mul_add(d.split(), top);
                        d = d.xor(b);
                        a = a.mul_add(b.split(), low);
                    }
                    b = b.xor(a);
                    c = c.mul_add(d.split(), high);
                    d = d.xor(c);
                    a.store(p(0));
                    b.store(p(1));
                    c.store(p(2));
                    d.store(p(3));
                }
            }
        }
    }
}

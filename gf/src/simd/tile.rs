//! `Grouped` through a tile in the first-level cache, for wide codes and large groups: coefficients
//! of every group for a few bytes of each block, transformed two layers at a time in registers.

use super::{FAR_BYTES, MAX_BLOCKS, put};
use crate::coset::twiddle_offset;
use crate::factors::{Aligned, Scratch};
use crate::grouped::{Grouped, NO_BLOCK, Way};
use crate::isa::Isa;
use crate::vector::Vector;
use std::ops::Range;

/// Ranges are whole multiples of this many bytes; tile widths are too.
pub(crate) const STEP_BYTES: usize = 64;

/// The most points of a group.
const MAX_POINTS: usize = 256;

/// # Safety
/// V's instruction set; every block reaches `at.end`; `at` is a multiple of `STEP_BYTES` long; the
/// map's block indices are in bounds, it is `Way::Tile` and made for this kernel. `streaming`:
/// outputs begin at a line there, and the map stores each once.
#[inline(always)]
pub(crate) unsafe fn grouped<V: Vector>(
    map: &Grouped,
    kernel: Isa,
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    at: Range<usize>,
    streaming: bool,
) {
    let Way::Tile { width: widest } = map.way else { unreachable!("not a tile map") };
    let spec = &map.spec;
    let (size, columns, rows) = (spec.size, spec.inputs.len(), spec.outputs.len());
    let levels = size.trailing_zeros() as usize;
    let mut tile = Scratch::of((columns + rows) * size * widest.min(at.len()));
    let coefficients = tile.as_mut_ptr();
    let far = at.len() * inputs.len() > FAR_BYTES;
    let twiddles = |group: usize| map.transform.at(kernel, group * (size - 1));
    // What a slot without a block is read from, or a slot whose block needs more work is written
    // to.
    let blank = Aligned::zeroed(widest.min(at.len()));
    let mut pos = at.start;
    while pos < at.end {
        let width = widest.min(at.end - pos);
        let sums = coefficients.add(columns * size * width);
        for (g, group) in spec.inputs.iter().enumerate() {
            let work = coefficients.add(g * size * width);
            let mut sources = [std::ptr::null(); MAX_POINTS];
            for (i, (source, &block)) in sources.iter_mut().zip(&group.blocks).enumerate() {
                *source = blank.as_slice().as_ptr();
                if block != NO_BLOCK {
                    *source = inputs[block].as_ptr().add(pos);
                    if !spec.input_scale.is_empty() {
                        let slot = work.add(i * width);
                        scale::<V>(*source, slot, width, V::factor(map.input_scale.at(kernel, block)));
                        *source = slot.cast_const();
                    }
                }
            }
            inverse_transform::<V>(&sources, work, size, width, twiddles(g), group.shift == 0, far);
        }
        for pass in &map.passes {
            let table = pass.factors.at(kernel, 0);
            for i in 0..size {
                let from = coefficients.add(i * width);
                let to = sums.add((pass.first * size + i) * width);
                let strides = (size * width, columns);
                match pass.count {
                    1 => dot::<V, 1, 2>(from, to, strides, width, table),
                    2 => dot::<V, 2, 2>(from, to, strides, width, table),
                    3 => dot::<V, 3, 2>(from, to, strides, width, table),
                    4 => dot::<V, 4, 1>(from, to, strides, width, table),
                    5 => dot::<V, 5, 1>(from, to, strides, width, table),
                    _ => dot::<V, 6, 1>(from, to, strides, width, table),
                }
            }
        }
        for (g, group) in spec.outputs.iter().enumerate() {
            let work = sums.add(g * size * width);
            let finish = !spec.direct.is_empty() || !spec.output_scale.is_empty();
            let mut targets = [std::ptr::null_mut(); MAX_POINTS];
            for (i, (target, &block)) in targets.iter_mut().zip(&group.blocks).enumerate() {
                *target = if block == NO_BLOCK || finish {
                    work.add(i * width)
                } else {
                    outputs[block].as_mut_ptr().add(pos)
                };
            }
            transform::<V>(work, &targets, size, levels, width, twiddles(columns + g), group.shift == 0, streaming);
            if !finish {
                continue;
            }
            for (d, direct) in spec.direct.iter().enumerate() {
                if let Some(i) = group.blocks.iter().position(|&b| b == direct.output) {
                    let factor = V::factor(map.direct.at(kernel, d));
                    multiply_add::<V>(inputs[direct.input].as_ptr().add(pos), work.add(i * width), width, factor);
                }
            }
            for (i, &block) in group.blocks.iter().enumerate().filter(|&(_, &block)| block != NO_BLOCK) {
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

/// P sums over the groups for one coefficient index, U registers of each at a time.
#[inline(always)]
unsafe fn dot<V: Vector, const P: usize, const U: usize>(
    from: *const u8,
    to: *mut u8,
    (stride, columns): (usize, usize),
    width: usize,
    table: *const u8,
) {
    debug_assert!(columns <= MAX_BLOCKS);
    // Widths are multiples of 64, so two registers of 64 bytes may not go into the last step.
    let mut offset = 0;
    while offset < width {
        let second = if offset + U * V::BYTES <= width { V::BYTES } else { 0 };
        let mut sum = [[V::zero(); U]; P];
        let mut factors = table;
        for column in 0..columns {
            let p = from.add(column * stride + offset);
            let mut splits = [V::load(p).split(); U];
            if U == 2 {
                splits[1] = V::load(p.add(second)).split();
            }
            for s in &mut sum {
                let factor = V::factor(factors);
                for u in 0..U {
                    s[u] = s[u].mul_add(splits[u], factor);
                }
                factors = factors.add(V::FACTOR_BYTES);
            }
        }
        for (p, s) in sum.iter().enumerate() {
            let to = to.add(p * stride + offset);
            s[0].store(to);
            if U == 2 {
                s[1].store(to.add(second));
            }
        }
        offset += U * V::BYTES;
    }
}

/// The slots of one butterfly over two layers.
#[inline(always)]
unsafe fn quadruple(work: *mut u8, i: usize, half: usize, width: usize) -> [*mut u8; 4] {
    let p = work.add(i * width);
    [p, p.add(half * width), p.add(2 * half * width), p.add(3 * half * width)]
}

#[inline(always)]
fn constant(p: [*mut u8; 4]) -> [*const u8; 4] {
    [p[0].cast_const(), p[1].cast_const(), p[2].cast_const(), p[3].cast_const()]
}

/// Coefficients in `work`, `size` slots of `width` bytes, from the values at `sources`, which may
/// be the slots themselves. Two layers a pass; the inner loop runs along the bytes, so that the
/// first pass reads four blocks in long runs. `zero`: the coset is the subspace itself. `far`: the
/// sources come from memory, and those of the next runs are asked for in this one.
#[inline(always)]
pub(super) unsafe fn inverse_transform<V: Vector>(
    sources: &[*const u8],
    work: *mut u8,
    size: usize,
    width: usize,
    twiddles: *const u8,
    zero: bool,
    far: bool,
) {
    let twiddle = |level: usize, index: usize| twiddles.add((twiddle_offset(size, level) + index) * V::FACTOR_BYTES);
    let levels = size.trailing_zeros() as usize;
    let mut level = 0;
    if levels == 0 {
        return copy::<V>(sources[0], work, width);
    }
    if levels % 2 == 1 {
        for start in (0..size).step_by(2) {
            let t = V::factor(twiddle(0, start / 2));
            let (from, to) =
                ([sources[start], sources[start + 1]], [work.add(start * width), work.add((start + 1) * width)]);
            let next = if far && start + 4 <= size { [sources[start + 2], sources[start + 3]] } else { from };
            for offset in (0..width).step_by(V::BYTES) {
                if far && offset.is_multiple_of(64) {
                    next.iter().for_each(|p| V::prefetch(p.wrapping_add(offset)));
                }
                let a = V::load(from[0].add(offset));
                let b = V::load(from[1].add(offset)).xor(a);
                let a = if zero && start == 0 { a } else { a.mul_add(b.split(), t) };
                a.store(to[0].add(offset));
                b.store(to[1].add(offset));
            }
        }
        level = 1;
    }
    while level < levels {
        let half = 1 << level;
        for (quad, start) in (0..size).step_by(4 * half).enumerate() {
            let (low, high) = (V::factor(twiddle(level, 2 * quad)), V::factor(twiddle(level, 2 * quad + 1)));
            let top = V::factor(twiddle(level + 1, quad));
            let skip = zero && quad == 0;
            for i in start..start + half {
                let to = quadruple(work, i, half, width);
                let from = if level == 0 {
                    [sources[i], sources[i + 1], sources[i + 2], sources[i + 3]]
                } else {
                    constant(to)
                };
                let asked = far && level == 0 && i + 8 <= size;
                let next = if asked { [sources[i + 4], sources[i + 5], sources[i + 6], sources[i + 7]] } else { from };
                for offset in (0..width).step_by(V::BYTES) {
                    if asked && offset.is_multiple_of(64) {
                        next.iter().for_each(|p| V::prefetch(p.wrapping_add(offset)));
                    }
                    let (mut a, mut b) = (V::load(from[0].add(offset)), V::load(from[1].add(offset)));
                    let (mut c, mut d) = (V::load(from[2].add(offset)), V::load(from[3].add(offset)));
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
                    a.store(to[0].add(offset));
                    b.store(to[1].add(offset));
                    c.store(to[2].add(offset));
                    d.store(to[3].add(offset));
                }
            }
        }
        level += 2;
    }
}

/// Values at `targets`, which may be the slots themselves, from the coefficients in `work`, which
/// are overwritten: the mirror of [`inverse_transform`], but for the layers above the lowest
/// `levels`, which are done already. `streaming`: the targets are written past the caches. Where no
/// layer is left (but for one point), the targets are the slots.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "where from, where to, and how")]
pub(super) unsafe fn transform<V: Vector>(
    work: *mut u8,
    targets: &[*mut u8],
    size: usize,
    levels: usize,
    width: usize,
    twiddles: *const u8,
    zero: bool,
    streaming: bool,
) {
    let twiddle = |level: usize, index: usize| twiddles.add((twiddle_offset(size, level) + index) * V::FACTOR_BYTES);
    let mut level = levels;
    if size == 1 {
        return copy::<V>(work, targets[0], width);
    }
    while level >= 2 {
        level -= 2;
        let half = 1 << level;
        let last = streaming && level == 0;
        for (quad, start) in (0..size).step_by(4 * half).enumerate() {
            let (low, high) = (V::factor(twiddle(level, 2 * quad)), V::factor(twiddle(level, 2 * quad + 1)));
            let top = V::factor(twiddle(level + 1, quad));
            let skip = zero && quad == 0;
            for i in start..start + half {
                let from = quadruple(work, i, half, width);
                let to = if level == 0 { [targets[i], targets[i + 1], targets[i + 2], targets[i + 3]] } else { from };
                for offset in (0..width).step_by(V::BYTES) {
                    let (mut a, mut b) = (V::load(from[0].add(offset)), V::load(from[1].add(offset)));
                    let (mut c, mut d) = (V::load(from[2].add(offset)), V::load(from[3].add(offset)));
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
                    put(a, to[0].add(offset), last);
                    put(b, to[1].add(offset), last);
                    put(c, to[2].add(offset), last);
                    put(d, to[3].add(offset), last);
                }
            }
        }
    }
    if level == 1 {
        for start in (0..size).step_by(2) {
            let t = V::factor(twiddle(0, start / 2));
            let (from, to) =
                ([work.add(start * width), work.add((start + 1) * width)], [targets[start], targets[start + 1]]);
            for offset in (0..width).step_by(V::BYTES) {
                let (a, b) = (V::load(from[0].add(offset)), V::load(from[1].add(offset)));
                let a = if zero && start == 0 { a } else { a.mul_add(b.split(), t) };
                put(a, to[0].add(offset), streaming);
                put(b.xor(a), to[1].add(offset), streaming);
            }
        }
    }
}

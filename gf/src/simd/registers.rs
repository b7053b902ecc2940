//! `Grouped` with everything in registers: accumulators for the outputs of a pass, one input group
//! at a time.

use super::{FAR_BYTES, PREFETCH_BYTES, Pointers, put};
use crate::grouped::{Grouped, NO_BLOCK, Pass};
use crate::isa::Isa;
use crate::vector::Vector;
use std::ops::Range;

/// Registers of each block held at a time, U below: at least a cache line with AVX2, so that each
/// line is touched once even when all blocks fall into the same cache set; more where few outputs
/// leave space, to load factors less often.
const BLOCK_REGISTERS: usize = 4;

/// Input bytes in all that several passes go over before the next are read: a part of the
/// second-level cache.
const PIECE_BYTES: usize = 256 << 10;

/// Bytes of one step.
pub(crate) const fn step<V: Vector>() -> usize {
    BLOCK_REGISTERS * V::BYTES
}

/// # Safety
/// V's instruction set; every block reaches `at.end`; `at` is a multiple of `step` long; the map's
/// block indices are in bounds, it is `Way::Registers` and made for this kernel. `streaming`:
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
    let pointers = Pointers::new(inputs, &map.input_blocks);
    let pointers = pointers.as_slice();
    let zero_first = map.spec.inputs.first().is_some_and(|g| g.shift == 0);
    // With several passes over the inputs, each piece of them stays in cache from the first to the
    // last.
    let whole =
        if map.passes.len() > 1 { (PIECE_BYTES / pointers.len().max(1)).next_multiple_of(4096) } else { usize::MAX };
    let mut start = at.start;
    while start < at.end {
        let piece = start..at.end.min(start.saturating_add(whole));
        for pass in &map.passes {
            let table = pass.factors.at(kernel, 0);
            let mut targets = [std::ptr::null_mut(); 8];
            let blocks = map.spec.outputs[pass.first..][..pass.count].iter().flat_map(|g| &g.blocks);
            for (i, &block) in blocks.enumerate() {
                // An unwanted output goes where a wanted one of its group is stored over it.
                targets[i] = match block {
                    NO_BLOCK => targets[i - i % map.spec.size],
                    _ => outputs[block].as_mut_ptr(),
                };
            }
            dispatch::<V>(map.spec.size, pass, zero_first, pointers, &targets, table, piece.clone(), streaming);
        }
        start = piece.end;
    }
}

#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "what a pass is made of")]
unsafe fn dispatch<V: Vector>(
    size: usize,
    pass: &Pass,
    zero_first: bool,
    inputs: &[*const u8],
    outputs: &[*mut u8; 8],
    table: *const u8,
    at: Range<usize>,
    streaming: bool,
) {
    let far = at.len() * inputs.len() > FAR_BYTES;
    if size == 1 && pass.count == 1 && !pass.ones {
        match *inputs {
            [a, b] => return few::<V, 2>([a, b], outputs[0], table, at, streaming),
            [a, b, c] => return few::<V, 3>([a, b, c], outputs[0], table, at, streaming),
            [a, b, c, d] => return few::<V, 4>([a, b, c, d], outputs[0], table, at, streaming),
            _ => {}
        }
    }
    macro_rules! instances {
        ($(($g:literal, $p:literal, $u:literal, $ones:literal)),+ $(,)?) => {
            match (size, pass.count, pass.ones) {
                $(($g, $p, $ones) => if far {
                    run::<V, $g, $p, $u, $ones, true>(zero_first, inputs, outputs, table, at, streaming)
                } else {
                    run::<V, $g, $p, $u, $ones, false>(zero_first, inputs, outputs, table, at, streaming)
                },)+
                other => unreachable!("no instance for {other:?}"),
            }
        };
    }
    instances!(
        (1, 1, 4, true),
        (1, 2, 4, true),
        (1, 3, 2, true),
        (1, 4, 2, true),
        (1, 5, 2, true),
        (1, 6, 2, true),
        (1, 1, 4, false),
        (1, 2, 4, false),
        (1, 3, 2, false),
        (1, 4, 2, false),
        (1, 5, 2, false),
        (1, 6, 2, false),
        (2, 1, 4, false),
        (2, 2, 2, false),
        (2, 3, 2, false),
        (2, 4, 2, false),
        (4, 1, 2, false),
        (4, 2, 2, false),
    );
}

/// One pass: G points in a group, P output groups, U registers of each block, ONES when output 0 is
/// a plain XOR, FAR when the inputs come from beyond the first-level cache.
#[inline(always)]
unsafe fn run<V: Vector, const G: usize, const P: usize, const U: usize, const ONES: bool, const FAR: bool>(
    zero_first: bool,
    inputs: &[*const u8],
    outputs: &[*mut u8; 8],
    table: *const u8,
    at: Range<usize>,
    streaming: bool,
) {
    let (group_factors, transform_factors) = ((G - 1 + P) * V::FACTOR_BYTES, (G - 1) * V::FACTOR_BYTES);
    let groups = inputs.len() / G;
    let mut pos = at.start;
    while pos < at.end {
        let mut sum = [[[V::zero(); U]; G]; P];
        let mut factors = table;
        if groups > 0 {
            // By itself, so that the compiler sees what it adds to: zero.
            if G > 1 && zero_first {
                absorb::<V, G, P, U, ONES, FAR, true>(&mut sum, inputs.as_ptr(), factors, pos);
            } else {
                absorb::<V, G, P, U, ONES, FAR, false>(&mut sum, inputs.as_ptr(), factors, pos);
            }
            factors = factors.add(group_factors);
        }
        for group in 1..groups {
            absorb::<V, G, P, U, ONES, FAR, false>(&mut sum, inputs.as_ptr().add(group * G), factors, pos);
            factors = factors.add(group_factors);
        }
        for values in &mut sum {
            transform::<V, G, U>(values, factors);
            factors = factors.add(transform_factors);
        }
        // Backwards, so that a group's first output is stored last, over the unwanted ones.
        for (values, outputs) in sum.iter().zip(outputs.chunks_exact(G)).rev() {
            for (value, output) in values.iter().zip(outputs).rev() {
                for (u, v) in value.iter().enumerate() {
                    put(*v, output.add(pos + u * V::BYTES), streaming);
                }
            }
        }
        pos += U * V::BYTES;
    }
}

/// One output from K inputs, so few that all factors stay in registers.
#[inline(always)]
unsafe fn few<V: Vector, const K: usize>(
    inputs: [*const u8; K],
    output: *mut u8,
    table: *const u8,
    at: Range<usize>,
    streaming: bool,
) {
    let mut factors = [V::factor(table); K];
    for (j, factor) in factors.iter_mut().enumerate() {
        *factor = V::factor(table.add(j * V::FACTOR_BYTES));
    }
    let mut pos = at.start;
    while pos < at.end {
        for _ in 0..2 {
            let mut sum = V::mul(V::load(inputs[0].add(pos)).split(), factors[0]);
            for j in 1..K {
                sum = sum.mul_add(V::load(inputs[j].add(pos)).split(), factors[j]);
            }
            put(sum, output.add(pos), streaming);
            pos += V::BYTES;
        }
    }
}

/// Adds one input group to the sums. ZERO: the group stands at shift 0, where most twiddles are
/// zero.
#[inline(always)]
unsafe fn absorb<
    V: Vector,
    const G: usize,
    const P: usize,
    const U: usize,
    const ONES: bool,
    const FAR: bool,
    const ZERO: bool,
>(
    sum: &mut [[[V; U]; G]; P],
    inputs: *const *const u8,
    factors: *const u8,
    pos: usize,
) {
    let mut c = [[V::zero(); U]; G];
    for (i, value) in c.iter_mut().enumerate() {
        let p = (*inputs.add(i)).add(pos);
        if FAR {
            for line in (0..U * V::BYTES).step_by(64) {
                V::prefetch(p.wrapping_add(line + PREFETCH_BYTES));
            }
        }
        for (u, v) in value.iter_mut().enumerate() {
            *v = V::load(p.add(u * V::BYTES));
        }
    }
    let twiddle = |i: usize| V::factor(factors.add(i * V::FACTOR_BYTES));
    if G == 2 {
        inverse::<V, G, U>(&mut c, 0, 1, if ZERO { None } else { Some(twiddle(0)) });
    } else if G == 4 {
        inverse::<V, G, U>(&mut c, 0, 1, if ZERO { None } else { Some(twiddle(0)) });
        inverse::<V, G, U>(&mut c, 2, 3, Some(twiddle(1)));
        let top = if ZERO { None } else { Some(twiddle(2)) };
        inverse::<V, G, U>(&mut c, 0, 2, top);
        inverse::<V, G, U>(&mut c, 1, 3, top);
    }
    for (i, c) in c.iter().enumerate() {
        let mut splits = [V::zero().split(); U];
        for (split, c) in splits.iter_mut().zip(c) {
            *split = c.split();
        }
        for (p, sum) in sum.iter_mut().enumerate() {
            let factor = V::factor(factors.add((G - 1 + p) * V::FACTOR_BYTES));
            for (u, sum) in sum[i].iter_mut().enumerate() {
                *sum = if ONES && p == 0 { sum.xor(c[u]) } else { sum.mul_add(splits[u], factor) };
            }
        }
    }
}

#[inline(always)]
unsafe fn inverse<V: Vector, const G: usize, const U: usize>(
    c: &mut [[V; U]; G],
    a: usize,
    b: usize,
    twiddle: Option<V::Factor>,
) {
    let [a, b] = c.get_disjoint_unchecked_mut([a, b]);
    for (a, b) in a.iter_mut().zip(b) {
        *b = b.xor(*a);
        if let Some(t) = twiddle {
            *a = a.mul_add(b.split(), t);
        }
    }
}

#[inline(always)]
unsafe fn forward<V: Vector, const G: usize, const U: usize>(c: &mut [[V; U]; G], a: usize, b: usize, t: V::Factor) {
    let [a, b] = c.get_disjoint_unchecked_mut([a, b]);
    for (a, b) in a.iter_mut().zip(b) {
        *a = a.mul_add(b.split(), t);
        *b = b.xor(*a);
    }
}

/// Values of one output group from its coefficients.
#[inline(always)]
unsafe fn transform<V: Vector, const G: usize, const U: usize>(c: &mut [[V; U]; G], factors: *const u8) {
    let twiddle = |i: usize| V::factor(factors.add(i * V::FACTOR_BYTES));
    if G == 2 {
        forward::<V, G, U>(c, 0, 1, twiddle(0));
    } else if G == 4 {
        forward::<V, G, U>(c, 0, 2, twiddle(2));
        forward::<V, G, U>(c, 1, 3, twiddle(2));
        forward::<V, G, U>(c, 0, 1, twiddle(0));
        forward::<V, G, U>(c, 2, 3, twiddle(1));
    }
}

//! `Dyadic` in registers: the sums of all outputs, one group of inputs at a time.

use super::{FAR_BYTES, PREFETCH_BYTES, Pointers, put};
use crate::dyadic::Dyadic;
use crate::isa::Isa;
use crate::vector::Vector;
use std::ops::Range;

/// Registers of every block in one step, at most.
const MAX_REGISTERS: usize = 4;

/// Bytes of one step.
pub(crate) const fn step<V: Vector>() -> usize {
    MAX_REGISTERS * V::BYTES
}

/// Where a pass finds its blocks.
struct Blocks<'a> {
    /// Those of the groups, in their order.
    inputs: &'a [*const u8],
    outputs: [*mut u8; 4],
    /// Groups of four, of two and of one block.
    counts: [usize; 3],
    factors: *const u8,
}

/// # Safety
/// V's instruction set; every block reaches `at.end`; `at` is a multiple of `step` long; the map's
/// block indices are in bounds, and it is made for this kernel. `streaming`: outputs begin at a
/// line there.
#[inline(always)]
pub(crate) unsafe fn dyadic<V: Vector>(
    map: &Dyadic,
    kernel: Isa,
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    at: Range<usize>,
    streaming: bool,
) {
    let pointers = Pointers::new(inputs, &map.input_blocks);
    let mut targets = [std::ptr::null_mut(); 4];
    for (target, output) in targets.iter_mut().zip(outputs) {
        *target = output.as_mut_ptr();
    }
    let blocks = Blocks {
        inputs: pointers.as_slice(),
        outputs: targets,
        counts: map.counts,
        factors: map.factors.at(kernel, 0),
    };
    let far = at.len() * blocks.inputs.len() > FAR_BYTES;
    // One register of each block where there are four sums: with 16 of them there is no space for
    // the inputs of more.
    macro_rules! instances {
        ($(($s:literal, $out:literal, $u:expr)),+) => {
            match (map.outputs, far, streaming) {
                $(
                    ($out, false, false) => run::<V, $s, $out, { $u }, false, false>(&blocks, at),
                    ($out, true, false) => run::<V, $s, $out, { $u }, true, false>(&blocks, at),
                    ($out, _, true) => run::<V, $s, $out, { $u }, true, true>(&blocks, at),
                )+
                (outputs, ..) => unreachable!("{outputs} outputs"),
            }
        };
    }
    instances!((2, 2, MAX_REGISTERS), (4, 3, 1), (4, 4, 1));
}

/// S points in a full group, OUT outputs, U registers of each block, FAR when the inputs come from
/// beyond the first-level cache.
#[inline(always)]
unsafe fn run<V: Vector, const S: usize, const OUT: usize, const U: usize, const FAR: bool, const STREAMING: bool>(
    blocks: &Blocks<'_>,
    at: Range<usize>,
) {
    let width = U * V::BYTES;
    let mut pos = at.start;
    while pos < at.end {
        sums::<V, S, OUT, U, FAR, STREAMING>(blocks, pos);
        pos += width;
        // What the first register asked for is the second's line as well.
        if FAR && width < 64 {
            sums::<V, S, OUT, U, false, STREAMING>(blocks, pos);
            pos += width;
        }
    }
}

/// One register, or U, of all outputs.
#[inline(always)]
unsafe fn sums<V: Vector, const S: usize, const OUT: usize, const U: usize, const FAR: bool, const STREAMING: bool>(
    blocks: &Blocks<'_>,
    pos: usize,
) {
    let [fours, twos, ones] = blocks.counts;
    let (full, halves) = if S == 4 { (fours, twos) } else { (twos, 0) };
    let mut sums = [[V::zero(); U]; S];
    let (mut input, mut factors) = (blocks.inputs.as_ptr(), blocks.factors);
    // The first by itself, so that the compiler sees what it adds to: zero.
    absorb::<V, S, OUT, U, FAR, S>(&mut sums, &mut input, &mut factors, pos);
    for _ in 1..full {
        absorb::<V, S, OUT, U, FAR, S>(&mut sums, &mut input, &mut factors, pos);
    }
    for _ in 0..halves {
        absorb::<V, S, OUT, U, FAR, 2>(&mut sums, &mut input, &mut factors, pos);
    }
    for _ in 0..ones {
        absorb::<V, S, OUT, U, FAR, 1>(&mut sums, &mut input, &mut factors, pos);
    }
    for bit in [1, 2] {
        for i in (0..OUT).filter(|i| i & bit != 0) {
            let other = sums[i ^ bit];
            for (sum, other) in sums[i].iter_mut().zip(other) {
                *sum = sum.xor(other);
            }
        }
    }
    for (sum, output) in sums.iter().zip(&blocks.outputs).take(OUT) {
        for (u, &value) in sum.iter().enumerate() {
            put(value, output.add(pos + u * V::BYTES), STREAMING);
        }
    }
}

/// Adds the next group, of N blocks.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "one lane of all sums, not all lanes of one")]
unsafe fn absorb<V: Vector, const S: usize, const OUT: usize, const U: usize, const FAR: bool, const N: usize>(
    sums: &mut [[V; U]; S],
    input: &mut *const *const u8,
    factors: &mut *const u8,
    pos: usize,
) {
    let mut f = [V::factor(*factors); S];
    for (t, f) in f.iter_mut().enumerate() {
        *f = V::factor(factors.add(t * V::FACTOR_BYTES));
    }
    for u in 0..U {
        let mut d = [V::zero(); N];
        for (j, d) in d.iter_mut().enumerate() {
            let p = (*input.add(j)).add(pos + u * V::BYTES);
            if FAR && (u * V::BYTES).is_multiple_of(64) {
                V::prefetch(p.wrapping_add(PREFETCH_BYTES));
            }
            *d = V::load(p);
        }
        for bit in [1, 2] {
            for j in 0..N {
                if j & bit == 0 && j | bit < N {
                    d[j] = d[j].xor(d[j | bit]);
                }
            }
        }
        for (j, d) in d.iter().enumerate() {
            let split = d.split();
            for t in 0..OUT {
                if t & j == 0 {
                    sums[t][u] = sums[t][u].mul_add(split, f[t | j]);
                }
            }
        }
    }
    *input = input.add(N);
    *factors = factors.add(S * V::FACTOR_BYTES);
}

//! The kernel without SIMD: products are looked up a byte at a time in one table of 64 KiB, sums
//! are made 64 bits at a time in general registers. It is the class of zfec and of Jerasure 1.2,
//! which studies call "plain" or "x86", and is here to be compared with: every code then does what
//! those libraries do, with no library installed.
//!
//! It takes matrices as they are. Transforms and dyadic groups are not of that class; they go to
//! [`Naive`], and codes do not choose them for this kernel.

use crate::dyadic::Dyadic;
use crate::erasure::Erasure;
use crate::factors::{Expand, Factors, sealed};
use crate::field::PRODUCTS;
use crate::grouped::{Grouped, NO_BLOCK};
use crate::isa::Isa;
use crate::kernel::{Kernel, check};
use crate::naive::Naive;
use std::ops::Range;

/// Bytes of a block that are multiplied at a time: zfec's stride is as long, half of a usual
/// first-level cache for one output and one input.
const STRIDE: usize = 8192;

/// Words that are summed at a time: as many as there are registers for.
const WORDS: usize = 8;
/// Their bytes.
pub(crate) const CHUNK: usize = 8 * WORDS;

/// The kernel of table lookups.
pub struct Plain;

impl sealed::Sealed for Plain {}

impl Expand for Plain {
    fn factors(&self, values: &[u8]) -> Factors {
        Factors::new(Isa::Plain, 0, values, |_, _| ())
    }
}

impl Kernel for Plain {
    fn isa(&self) -> Isa {
        Isa::Plain
    }

    fn xor(&self, inputs: &[&[u8]], output: &mut [u8], at: Range<usize>) {
        check(inputs, &[&mut *output], &at);
        for start in at.clone().step_by(CHUNK) {
            let end = at.end.min(start + CHUNK);
            sum(inputs.iter().map(|block| &block[start..end]), &mut output[start..end]);
        }
    }

    fn multiply_add(&self, factors: &Factors, input: &[u8], outputs: &mut [&mut [u8]], at: Range<usize>) {
        check(&[input], outputs, &at);
        assert_eq!(factors.values().len(), outputs.len(), "one factor for each output");
        for (output, &factor) in outputs.iter_mut().zip(factors.values()) {
            add_product(factor, &input[at.clone()], &mut output[at.clone()]);
        }
    }

    fn grouped(&self, map: &Grouped, inputs: &[&[u8]], outputs: &mut [&mut [u8]], at: Range<usize>) {
        let spec = &map.spec;
        if spec.size != 1 || !spec.input_scale.is_empty() || !spec.output_scale.is_empty() {
            return Naive.grouped(map, inputs, outputs, at);
        }
        check(inputs, outputs, &at);
        map.check_blocks(inputs.len(), outputs.len());
        for start in at.clone().step_by(STRIDE) {
            let piece = start..at.end.min(start + STRIDE);
            for (row, group) in spec.outputs.iter().enumerate().filter(|(_, group)| group.blocks[0] != NO_BLOCK) {
                let output = &mut outputs[group.blocks[0]][piece.clone()];
                output.fill(0);
                let factors = &spec.matrix[row * spec.inputs.len()..][..spec.inputs.len()];
                for (input, &factor) in spec.inputs.iter().zip(factors).filter(|(input, _)| input.blocks[0] != NO_BLOCK)
                {
                    add_product(factor, &inputs[input.blocks[0]][piece.clone()], output);
                }
                for direct in spec.direct.iter().filter(|direct| direct.output == group.blocks[0]) {
                    add_product(direct.coefficient, &inputs[direct.input][piece.clone()], output);
                }
            }
        }
    }

    fn dyadic(&self, map: &Dyadic, inputs: &[&[u8]], outputs: &mut [&mut [u8]], at: Range<usize>) {
        Naive.dyadic(map, inputs, outputs, at);
    }

    fn erasure(&self, map: &Erasure, inputs: &[&[u8]], outputs: &mut [&mut [u8]], at: Range<usize>) {
        Naive.erasure(map, inputs, outputs, at);
    }

    fn pq(&self, inputs: &[&[u8]], p: &mut [u8], q: &mut [u8], at: Range<usize>) {
        check(inputs, &[&mut *p, &mut *q], &at);
        self.xor(inputs, p, at.clone());
        let double = &PRODUCTS[2];
        for start in at.clone().step_by(STRIDE) {
            let piece = start..at.end.min(start + STRIDE);
            q[piece.clone()].fill(0);
            for input in inputs.iter().rev() {
                for (q, &input) in q[piece.clone()].iter_mut().zip(&input[piece.clone()]) {
                    *q = double[usize::from(*q)] ^ input;
                }
            }
        }
    }
}

/// `output += factor * input`.
fn add_product(factor: u8, input: &[u8], output: &mut [u8]) {
    match factor {
        0 => (),
        1 => {
            for start in (0..input.len()).step_by(CHUNK) {
                let end = input.len().min(start + CHUNK);
                let mut words = load(&output[start..end]);
                add(&mut words, &input[start..end]);
                store(words, &mut output[start..end]);
            }
        }
        _ => {
            let products = &PRODUCTS[usize::from(factor)];
            for (output, &input) in output.iter_mut().zip(input) {
                *output ^= products[usize::from(input)];
            }
        }
    }
}

/// `output = the sum of the sources`, all as long as it, at most [`CHUNK`] bytes.
#[inline]
pub(crate) fn sum<'a>(mut sources: impl Iterator<Item = &'a [u8]>, output: &mut [u8]) {
    let mut words = sources.next().map_or([0; WORDS], load);
    sources.for_each(|source| add(&mut words, source));
    store(words, output);
}

#[inline]
fn add(words: &mut [u64; WORDS], source: &[u8]) {
    let source = load(source);
    words.iter_mut().zip(source).for_each(|(word, source)| *word = in_register(*word ^ source));
}

/// Up to [`CHUNK`] bytes, and zeroes after them.
#[inline]
fn load(bytes: &[u8]) -> [u64; WORDS] {
    let whole: [u8; CHUNK] = bytes.try_into().unwrap_or_else(|_| {
        let mut padded = [0; CHUNK];
        padded[..bytes.len()].copy_from_slice(bytes);
        padded
    });
    std::array::from_fn(|at| u64::from_ne_bytes(whole[8 * at..][..8].try_into().expect("eight bytes")))
}

#[inline]
fn store(words: [u64; WORDS], bytes: &mut [u8]) {
    if let Ok(bytes) = <&mut [u8; CHUNK]>::try_from(&mut *bytes) {
        bytes.chunks_exact_mut(8).zip(words).for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_ne_bytes()));
        return;
    }
    bytes.chunks_mut(8).zip(words).for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_ne_bytes()[..bytes.len()]));
}

/// The word itself, which passes through a general register here: the compiler would otherwise make
/// one instruction on a vector of several words, and this kernel is what a processor does without.
#[inline(always)]
pub fn in_register(word: u64) -> u64 {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    {
        let mut word = word;
        // SAFETY: there is no instruction, and no register but that of the word is named.
        unsafe { std::arch::asm!("/* {0} */", inout(reg) word, options(pure, nomem, nostack, preserves_flags)) };
        word
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    word
}

//! The oracle: every operation straight from its definition, one byte at a time. Never fast, always
//! right.

use crate::coset::{twiddle_offset, twiddles};
use crate::dyadic::Dyadic;
use crate::erasure::Erasure;
use crate::factors::{Expand, Factors, sealed};
use crate::field::mul;
use crate::grouped::{Grouped, NO_BLOCK};
use crate::isa::Isa;
use crate::kernel::{Kernel, check};
use std::ops::Range;

/// The kernel without any instruction set.
pub struct Naive;

impl sealed::Sealed for Naive {}

impl Expand for Naive {
    fn factors(&self, values: &[u8]) -> Factors {
        Factors::new(Isa::Naive, 0, values, |_, _| ())
    }
}

impl Kernel for Naive {
    fn isa(&self) -> Isa {
        Isa::Naive
    }

    fn xor(&self, inputs: &[&[u8]], output: &mut [u8], at: Range<usize>) {
        check(inputs, &[], &at);
        for i in at {
            output[i] = inputs.iter().fold(0, |sum, block| sum ^ block[i]);
        }
    }

    fn multiply_add(&self, factors: &Factors, input: &[u8], outputs: &mut [&mut [u8]], at: Range<usize>) {
        check(&[input], outputs, &at);
        assert_eq!(factors.values().len(), outputs.len(), "one factor for each output");
        for (output, &factor) in outputs.iter_mut().zip(factors.values()) {
            for i in at.clone() {
                output[i] ^= mul(factor, input[i]);
            }
        }
    }

    fn grouped(&self, map: &Grouped, inputs: &[&[u8]], outputs: &mut [&mut [u8]], at: Range<usize>) {
        check(inputs, outputs, &at);
        map.check_blocks(inputs.len(), outputs.len());
        let spec = &map.spec;
        let scaled = |scale: &[u8], block: usize, value| scale.get(block).map_or(value, |&s| mul(s, value));
        for i in at {
            let coefficients: Vec<Vec<u8>> = spec
                .inputs
                .iter()
                .map(|group| {
                    let value = |&b: &usize| if b == NO_BLOCK { 0 } else { scaled(&spec.input_scale, b, inputs[b][i]) };
                    let mut values: Vec<u8> = group.blocks.iter().map(value).collect();
                    inverse_transform(&mut values, group.shift);
                    values
                })
                .collect();
            for (row, group) in spec.outputs.iter().enumerate() {
                let mut sum = vec![0; spec.size];
                for (column, input) in coefficients.iter().enumerate() {
                    let factor = spec.matrix[row * spec.inputs.len() + column];
                    sum.iter_mut().zip(input).for_each(|(s, &c)| *s ^= mul(factor, c));
                }
                transform(&mut sum, group.shift);
                for (&block, mut value) in group.blocks.iter().zip(sum) {
                    if block != NO_BLOCK {
                        for direct in spec.direct.iter().filter(|d| d.output == block) {
                            value ^= mul(direct.coefficient, inputs[direct.input][i]);
                        }
                        outputs[block][i] = scaled(&spec.output_scale, block, value);
                    }
                }
            }
        }
    }

    fn dyadic(&self, map: &Dyadic, inputs: &[&[u8]], outputs: &mut [&mut [u8]], at: Range<usize>) {
        check(inputs, outputs, &at);
        map.check_blocks(inputs.len(), outputs.len());
        for (i, output) in outputs.iter_mut().enumerate() {
            output[at.clone()].fill(0);
            for group in &map.groups {
                for (j, &block) in group.blocks.iter().enumerate() {
                    for at in at.clone() {
                        output[at] ^= mul(group.coefficients[i ^ j], inputs[block][at]);
                    }
                }
            }
        }
    }

    fn erasure(&self, map: &Erasure, inputs: &[&[u8]], outputs: &mut [&mut [u8]], at: Range<usize>) {
        check(inputs, outputs, &at);
        map.check_blocks(inputs.len(), outputs.len());
        let weigh = |work: &mut [u8], direction: usize| {
            if let Some(weights) = &map.weights {
                work.iter_mut().zip(weights[direction].values()).for_each(|(w, &f)| *w = mul(*w, f));
            }
        };
        for i in at {
            let mut work = vec![0; map.size];
            for ((&slot, &scale), block) in map.input_slots.iter().zip(map.input_scale.values()).zip(inputs) {
                work[slot] = mul(scale, block[i]);
            }
            inverse_layers(&mut work, map.transform.values());
            weigh(&mut work, 0);
            for c in 0..map.size {
                let higher = (0..map.size.trailing_zeros()).filter(|l| c >> l & 1 == 0).map(|l| work[c | 1 << l]);
                work[c] = higher.fold(0, |sum, w| sum ^ w);
            }
            weigh(&mut work, 1);
            layers(&mut work, map.transform.values());
            for ((&slot, &scale), block) in map.output_slots.iter().zip(map.output_scale.values()).zip(&mut *outputs) {
                block[i] = mul(scale, work[slot]);
            }
        }
    }

    fn pq(&self, inputs: &[&[u8]], p: &mut [u8], q: &mut [u8], at: Range<usize>) {
        check(inputs, &[p, q], &at);
        for i in at {
            p[i] = inputs.iter().fold(0, |sum, block| sum ^ block[i]);
            q[i] = inputs.iter().rev().fold(0, |sum, block| mul(2, sum) ^ block[i]);
        }
    }
}

/// Coefficients from the values at the coset of `shift`, in place.
pub fn inverse_transform(c: &mut [u8], shift: u8) {
    inverse_layers(c, &twiddles(c.len(), shift));
}

/// Values at the coset of `shift` from coefficients, in place.
pub fn transform(c: &mut [u8], shift: u8) {
    layers(c, &twiddles(c.len(), shift));
}

/// Coefficients from values; the twiddles in the order of [`twiddles`].
fn inverse_layers(c: &mut [u8], twiddles: &[u8]) {
    let mut half = 1;
    while half < c.len() {
        let offset = twiddle_offset(c.len(), half.trailing_zeros() as usize);
        for (start, t) in (0..c.len()).step_by(2 * half).zip(&twiddles[offset..]) {
            for i in start..start + half {
                c[i + half] ^= c[i];
                c[i] ^= mul(*t, c[i + half]);
            }
        }
        half *= 2;
    }
}

/// Values from coefficients.
fn layers(c: &mut [u8], twiddles: &[u8]) {
    let mut half = c.len() / 2;
    while half > 0 {
        let offset = twiddle_offset(c.len(), half.trailing_zeros() as usize);
        for (start, t) in (0..c.len()).step_by(2 * half).zip(&twiddles[offset..]) {
            for i in start..start + half {
                c[i] ^= mul(*t, c[i + half]);
                c[i + half] ^= c[i];
            }
        }
        half /= 2;
    }
}

//! `Erasure`: many lost blocks from the survivors in O(n log n), by the error locator.
//!
//! With c the codeword's polynomial of degree < k and e the locator that vanishes at the lost
//! points, F = c e has its values known everywhere; F' = c'e + c e', so at a lost point c = F' /
//! e'. One inverse transform over all points, a formal derivative, one forward transform. Where all
//! elements of the field are points, they stand in the order of a Cantor basis, over which the
//! derivative takes no multiplications. F itself is zero at the lost points: F + F' does as well,
//! and spares clearing F.

use crate::coset::{cantor_members, cantor_twiddles, twiddles, vanishing, vanishing_derivative};
use crate::factors::{Expand, Factors};
use crate::field::{inv, mul};

/// The map from survivors to lost blocks, ready for one kernel.
#[derive(Clone)]
pub struct Erasure {
    /// Points in the transform, a power of two.
    pub(crate) size: usize,
    /// For every input block, and for every output block, where in the transform its point stands.
    pub(crate) input_slots: Vec<usize>,
    pub(crate) output_slots: Vec<usize>,
    /// Where nothing is known.
    pub(crate) lost_slots: Vec<usize>,
    pub(crate) input_scale: Factors,
    pub(crate) output_scale: Factors,
    pub(crate) transform: Factors,
    /// Makes the formal derivative XOR only, where it is not: coefficient i times the product of
    /// the basis derivatives of i's bits; and back.
    pub(crate) weights: Option<[Factors; 2]>,
}

impl Erasure {
    /// `size` points in all; the survivors stand at `inputs` and the wanted lost blocks at
    /// `outputs`, everything else counts as lost. `column` is the multiplier that makes the block
    /// at a point a value of the codeword's polynomial (all ones for an evaluation code).
    ///
    /// # Panics
    /// When input points repeat, a point is not below `size` (or 4), an output is an input, or a
    /// column multiplier is zero: programmer errors.
    pub fn new(
        kernel: &dyn Expand,
        size: usize,
        inputs: &[usize],
        outputs: &[usize],
        column: impl Fn(usize) -> u8,
    ) -> Self {
        assert!(size.is_power_of_two() && size <= 256, "transform size {size}");
        // Kernels take two layers at once; more points are only more lost ones.
        let size = size.max(4);
        let mut known = vec![false; size];
        for &point in inputs {
            assert!(!std::mem::replace(&mut known[point], true), "point {point} twice");
        }
        assert!(outputs.iter().all(|&p| !known[p]), "an output is an input");
        // The locator at a known point, its derivative at a lost one: both are the product over the
        // other lost points.
        let locator = |point: usize| {
            (0..size)
                .filter(|&lost| !known[lost] && lost != point)
                .fold(1, |product, lost| mul(product, (lost ^ point) as u8))
        };
        let input_scale: Vec<u8> = inputs.iter().map(|&p| mul(locator(p), column(p))).collect();
        let output_scale: Vec<u8> = outputs.iter().map(|&p| inv(mul(locator(p), column(p)))).collect();
        let (members, twiddles, weights) = if size == 256 {
            let members = cantor_members();
            (members.to_vec(), cantor_twiddles(&members), None)
        } else {
            let weights = derivative_weights(size);
            let inverse: Vec<u8> = weights.iter().map(|&w| inv(w)).collect();
            let weights = [weights, inverse].map(|w| kernel.factors(&w));
            ((0..size).map(|point| point as u8).collect(), twiddles(size, 0), Some(weights))
        };
        let mut slots = vec![0; size];
        members.iter().enumerate().for_each(|(slot, &point)| slots[usize::from(point)] = slot);
        let at = |points: &[usize]| points.iter().map(|&point| slots[point]).collect();
        Self {
            size,
            input_slots: at(inputs),
            output_slots: at(outputs),
            lost_slots: (0..size).filter(|&slot| !known[usize::from(members[slot])]).collect(),
            input_scale: kernel.factors(&input_scale),
            output_scale: kernel.factors(&output_scale),
            transform: kernel.factors(&twiddles),
            weights,
        }
    }

    pub(crate) fn check_blocks(&self, inputs: usize, outputs: usize) {
        assert!(inputs == self.input_slots.len() && outputs == self.output_slots.len(), "block count");
    }

    /// Multiplications for one byte of every block, the model that candidates are ranked by.
    pub fn multiplications(&self) -> usize {
        let levels = self.size.trailing_zeros() as usize;
        let weighted = if self.weights.is_some() { 2 * self.size } else { 0 };
        self.size * levels + weighted + self.input_slots.len() + self.output_slots.len()
    }
}

/// For each coefficient over the basis 1, 2, 4, .. what makes the derivative a sum of others.
fn derivative_weights(size: usize) -> Vec<u8> {
    let levels = size.trailing_zeros() as usize;
    let basis: Vec<u8> =
        (0..levels).map(|l| mul(vanishing_derivative(l), inv(vanishing(l, (1u16 << l) as u8)))).collect();
    let weight = |i: usize| (0..levels).filter(|&l| i >> l & 1 == 1).fold(1, |w, l| mul(w, basis[l]));
    (0..size).map(weight).collect()
}

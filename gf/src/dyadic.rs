//! `Dyadic`: a map onto two to four blocks whose inputs come in groups with a coefficient that
//! depends on i XOR j alone, as those of a Cauchy matrix do between two cosets of one subspace.
//!
//! Over a field of characteristic two such a group of two takes three products instead of four
//! (Karatsuba), one of four nine instead of sixteen, and what follows the sum over all groups are
//! XORs. With F\[t\] the sum of the coefficients at the subsets of t, D\[j\] that of the inputs at
//! the supersets of j, sum t gains F\[t | j\] D\[j\] for all j without a bit of t; output i is the
//! sum of the sums at the subsets of i.

use crate::factors::{Expand, Factors};

/// Inputs of one coset.
#[derive(Clone, Debug)]
pub struct DyadicGroup {
    /// One, two or (with more than two outputs) four blocks, by member.
    pub blocks: Vec<usize>,
    /// Coefficient `i ^ j` is that of member j in output i.
    pub coefficients: [u8; 4],
}

/// The map, ready to run on one kernel.
#[derive(Clone)]
pub struct Dyadic {
    pub(crate) outputs: usize,
    /// Full ones first.
    pub(crate) groups: Vec<DyadicGroup>,
    /// Their blocks in a row.
    pub(crate) input_blocks: Vec<usize>,
    /// Groups of four, of two and of one block.
    pub(crate) counts: [usize; 3],
    /// F of every group, `size` each.
    pub(crate) factors: Factors,
}

impl Dyadic {
    /// Prepares a map onto two, three or four blocks.
    ///
    /// # Panics
    /// On another number of outputs, on groups of other sizes, or when no group is full: programmer
    /// errors.
    pub fn new(kernel: &dyn Expand, outputs: usize, mut groups: Vec<DyadicGroup>) -> Self {
        assert!((2..=4).contains(&outputs), "{outputs} outputs");
        // Points of a full group.
        let size = outputs.next_power_of_two();
        assert!(groups.iter().all(|g| g.blocks.len().is_power_of_two() && g.blocks.len() <= size), "group length");
        groups.sort_by_key(|group| std::cmp::Reverse(group.blocks.len()));
        assert!(groups.first().is_some_and(|g| g.blocks.len() == size), "no full group");
        let subsets = |t: usize| (0..size).filter(move |s| s & t == *s);
        let factor = |g: &DyadicGroup, t| subsets(t).fold(0, |sum, s| sum ^ g.coefficients[s]);
        let values: Vec<u8> = groups.iter().flat_map(|g| (0..size).map(move |t| factor(g, t))).collect();
        let count = |size| groups.iter().filter(|g| g.blocks.len() == size).count();
        Self {
            outputs,
            counts: [4, 2, 1].map(count),
            input_blocks: groups.iter().flat_map(|g| g.blocks.iter().copied()).collect(),
            factors: kernel.factors(&values),
            groups,
        }
    }

    /// Every block index the map touches is below these counts of inputs and outputs.
    pub(crate) fn check_blocks(&self, inputs: usize, outputs: usize) {
        assert!(self.input_blocks.iter().all(|&b| b < inputs), "an input block is missing");
        assert_eq!(outputs, self.outputs, "outputs");
    }

    /// Multiplications for one byte of every input, the model that candidates are ranked by.
    pub fn multiplications(&self) -> usize {
        let sums = |j: usize| (0..self.outputs).filter(|t| t & j == 0).count();
        self.groups.iter().map(|g| (0..g.blocks.len()).map(sums).sum::<usize>()).sum()
    }
}

//! Generalised Reed-Solomon structure: a stripe is the values of one polynomial of degree < k at
//! one point per block, each divided by a multiplier of its own. ISA-L's Cauchy code and
//! Backblaze's evaluation code both are.
//!
//! Any blocks then follow from any k others by a Cauchy matrix between two scalings, whose rows and
//! columns fall into cosets: the maps here are all the ways to compute it, and the fastest is found
//! by measuring.

use crate::fastest::{Candidate, fastest};
use crate::transform::Transform;
use gf::coset::{vanishing, vanishing_derivative};
use gf::field::{inv, mul};
use gf::{Direct, Dyadic, DyadicGroup, Erasure, Group, Grouped, GroupedSpec, Isa, Kernel, NO_BLOCK, Way};

/// Block i stands at point i; `column[i]` times the block is the polynomial's value there.
#[derive(Clone, Debug)]
pub(crate) struct Grs {
    k: usize,
    column: Vec<u8>,
}

/// Bytes of each block in a tile. The tile of 256 blocks takes half of a 1 MiB second-level cache;
/// shorter runs were a little faster from cache and a third slower from memory, where the
/// prefetchers want long ones.
const TILE_BYTES: usize = 2048;

impl Grs {
    /// ISA-L's Cauchy code: parity i = sum of d_j / ((k + i) + j).
    pub fn cauchy(k: usize, m: usize) -> Self {
        let others = |x: usize| (0..k).filter(|&t| t != x).fold(1, |p, t| mul(p, (x ^ t) as u8));
        Self { k, column: (0..k + m).map(others).collect() }
    }

    /// Backblaze's code: every block is the polynomial's value itself.
    pub fn evaluation(k: usize, m: usize) -> Self {
        Self { k, column: vec![1; k + m] }
    }

    /// The fastest map from exactly k blocks to some others. `matrix` is the same map as a plain
    /// matrix, row-major.
    pub fn map(&self, kernel: &'static dyn Kernel, inputs: &[usize], outputs: &[usize], matrix: &[u8]) -> Transform {
        if kernel.isa() <= Isa::Plain {
            return Transform::matrix(kernel, inputs.len(), matrix);
        }
        fastest(self.candidates(kernel, inputs, outputs, matrix))
    }

    /// Every way to compute the map.
    fn candidates(
        &self,
        kernel: &'static dyn Kernel,
        inputs: &[usize],
        outputs: &[usize],
        matrix: &[u8],
    ) -> Vec<Candidate> {
        let (columns, rows) = (inputs.len(), outputs.len());
        assert_eq!(columns, self.k, "a polynomial of degree < k needs k values");
        let mut candidates = vec![Candidate::new(Transform::matrix(kernel, columns, matrix), columns * rows)];
        if rows == 0 || columns < 2 || (rows == 1 && matrix.iter().all(|&c| c == 1)) {
            return candidates;
        }
        let (input_scale, output_scale) = self.scales(inputs, outputs);
        for size in [2, 4, 8, 16, 32, 64] {
            if size > 2 * rows.next_power_of_two() {
                break;
            }
            let spec = cosets(size, inputs, outputs, &input_scale, &output_scale);
            let cost = spec.multiplications();
            let build = |way, per_pass| {
                let map = Grouped::new(kernel, spec.clone(), way, per_pass);
                Candidate::new(Transform::grouped(kernel, columns, rows, map), cost)
            };
            if Grouped::fits_registers(&spec) {
                let per_pass = if size == 2 { [6, 8] } else { [4, 8] };
                candidates.extend(
                    per_pass
                        .iter()
                        .filter(|&&p| p == per_pass[0] || rows > per_pass[0])
                        .map(|&p| build(Way::Registers, p)),
                );
            }
            // A tile pays for its extra loads and stores only when it saves much.
            if 2 * cost < columns * rows {
                candidates.push(build(Way::Tile { width: TILE_BYTES }, 6));
            }
        }
        if let Some(groups) = dyadic_groups(inputs, outputs, matrix) {
            let map = Dyadic::new(kernel, rows, groups);
            let cost = map.multiplications();
            candidates.push(Candidate::new(Transform::dyadic(kernel, columns, rows, map), cost));
        }
        let size = (self.column.len()).next_power_of_two();
        if rows >= 8 && size <= 256 {
            let map = Erasure::new(kernel, size, inputs, outputs, |p| self.column.get(p).copied().unwrap_or(1));
            let cost = map.multiplications();
            candidates.push(Candidate::new(Transform::erasure(kernel, columns, rows, map), cost));
        }
        candidates
    }

    /// The multipliers v and u in out_x = u_x * sum of v_s in_s / (x + s), by Lagrange
    /// interpolation.
    fn scales(&self, inputs: &[usize], outputs: &[usize]) -> (Vec<u8>, Vec<u8>) {
        let vanishing_at = |x: usize| inputs.iter().filter(|&&s| s != x).fold(1, |p, &s| mul(p, (s ^ x) as u8));
        let input = |&s: &usize| mul(self.column[s], inv(vanishing_at(s)));
        let output = |&x: &usize| mul(vanishing_at(x), inv(self.column[x]));
        (inputs.iter().map(input).collect(), outputs.iter().map(output).collect())
    }
}

/// The Cauchy map by cosets of `size` points. Scalings that are equal within every coset go into
/// the matrix.
fn cosets(size: usize, inputs: &[usize], outputs: &[usize], input_scale: &[u8], output_scale: &[u8]) -> GroupedSpec {
    let level = size.trailing_zeros() as usize;
    let (input_groups, output_groups) = (groups(size, inputs), groups(size, outputs));
    let folded_inputs = fold(&input_groups, input_scale);
    let folded_outputs = fold(&output_groups, output_scale);
    let derivative = vanishing_derivative(level);
    let mut spec = GroupedSpec { size, ..GroupedSpec::default() };
    for (o, out) in output_groups.iter().enumerate() {
        for (i, group) in input_groups.iter().enumerate() {
            if out.shift != group.shift {
                let scale =
                    mul(folded_inputs.as_ref().map_or(1, |f| f[i]), folded_outputs.as_ref().map_or(1, |f| f[o]));
                spec.matrix.push(mul(scale, mul(derivative, inv(vanishing(level, out.shift ^ group.shift)))));
                continue;
            }
            // Points of both sides share this coset: their few terms are added one by one.
            spec.matrix.push(0);
            for &output in out.blocks.iter().filter(|&&b| b != NO_BLOCK) {
                for &input in group.blocks.iter().filter(|&&b| b != NO_BLOCK) {
                    let mut coefficient = mul(input_scale[input], inv((outputs[output] ^ inputs[input]) as u8));
                    if let Some(f) = &folded_outputs {
                        coefficient = mul(coefficient, f[o]);
                    }
                    spec.direct.push(Direct { output, input, coefficient });
                }
            }
        }
    }
    if folded_inputs.is_none() {
        spec.input_scale = input_scale.to_vec();
    }
    if folded_outputs.is_none() {
        spec.output_scale = output_scale.to_vec();
    }
    (spec.inputs, spec.outputs) = (input_groups, output_groups);
    spec
}

/// The cosets of `size` points that hold any of the points, with the index of the point at each
/// member.
fn groups(size: usize, points: &[usize]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (block, &point) in points.iter().enumerate() {
        let shift = (point & !(size - 1)) as u8;
        let at = groups.iter().position(|g| g.shift == shift).unwrap_or_else(|| {
            groups.push(Group { shift, blocks: vec![NO_BLOCK; size] });
            groups.len() - 1
        });
        groups[at].blocks[point & (size - 1)] = block;
    }
    groups.sort_by_key(|g| g.shift);
    groups
}

/// The inputs of a map onto two to four points as dyadic groups, if any group is full. `matrix` is
/// the map, row-major: what its coefficients are not dyadic for stays by itself.
fn dyadic_groups(inputs: &[usize], outputs: &[usize], matrix: &[u8]) -> Option<Vec<DyadicGroup>> {
    // The subspace of which the outputs are a coset, but for the last of four.
    let members = match *outputs {
        [a, b] => vec![0, a ^ b],
        [a, b, c] => vec![0, a ^ b, a ^ c, b ^ c],
        [a, b, c, d] if a ^ b == c ^ d => vec![0, a ^ b, a ^ c, b ^ c],
        _ => return None,
    };
    // Coefficient t of a group, if all pairs of an output i and a member j with i ^ j = t have the
    // same.
    let dyadic = |blocks: &[usize]| {
        let mut coefficients = [None; 4];
        let pairs = (0..outputs.len()).flat_map(|i| blocks.iter().enumerate().map(move |(j, &block)| (i, j, block)));
        for (i, j, block) in pairs {
            let coefficient = matrix[i * inputs.len() + block];
            if *coefficients[i ^ j].get_or_insert(coefficient) != coefficient {
                return None;
            }
        }
        Some(coefficients.map(Option::unwrap_or_default))
    };
    let mut is_free = vec![true; inputs.len()];
    let mut groups = Vec::new();
    for size in [4, 2, 1].into_iter().filter(|&size| size <= members.len()) {
        for first in 0..inputs.len() {
            let find = |&member: &usize| inputs.iter().position(|&point| point == inputs[first] ^ member);
            let Some(blocks) = members[..size].iter().map(find).collect::<Option<Vec<usize>>>() else { continue };
            if blocks.iter().all(|&block| is_free[block])
                && let Some(coefficients) = dyadic(&blocks)
            {
                blocks.iter().for_each(|&block| is_free[block] = false);
                groups.push(DyadicGroup { blocks, coefficients });
            }
        }
    }
    groups.first().is_some_and(|group| group.blocks.len() == members.len()).then_some(groups)
}

/// One multiplier for each group, if every group's blocks agree on theirs.
fn fold(groups: &[Group], scale: &[u8]) -> Option<Vec<u8>> {
    let of = |group: &Group| {
        let mut values = group.blocks.iter().filter(|&&b| b != NO_BLOCK).map(|&b| scale[b]);
        let first = values.next()?;
        values.all(|v| v == first).then_some(first)
    };
    groups.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes;
    use crate::linear::Matrix;

    #[test]
    fn inputs_that_form_cosets_with_the_outputs_are_dyadic_groups() {
        let sizes = |k: usize, m: usize| {
            let (inputs, outputs) = (Vec::from_iter(0..k), Vec::from_iter(k..k + m));
            let groups = dyadic_groups(&inputs, &outputs, &codes::cauchy::isa(k, m).concat())?;
            Some(groups.iter().map(|g| g.blocks.len()).collect::<Vec<_>>())
        };
        assert_eq!(sizes(8, 4), Some(vec![4, 4]));
        assert_eq!(sizes(4, 3), Some(vec![4]));
        assert_eq!(sizes(9, 3), Some(vec![4, 4, 1]));
        // 10, 11, 12, 13 are a coset of {0, 1, 6, 7}, as 0, 1, 6, 7 and 2, 3, 4, 5 are.
        assert_eq!(sizes(10, 4), Some(vec![4, 4, 2]));
        assert_eq!(sizes(5, 2), Some(vec![2, 2, 1]));
        // 11, 12, 13, 14 and 7, 8 are no cosets of anything that the inputs are made of.
        assert_eq!(sizes(7, 2), None);
        assert_eq!(sizes(8, 5), None);
        assert_eq!(sizes(3, 1), None);
    }

    /// Every way gives the same bytes, on every kernel: matrix, cosets of all sizes, error locator.
    #[test]
    fn all_ways_give_the_bytes_of_the_matrix() {
        let mut random = fastrand::Rng::with_seed(29);
        for (k, m) in [
            (4, 2),
            (5, 2),
            (8, 3),
            (5, 3),
            (10, 4),
            (12, 4),
            (11, 4),
            (9, 6),
            (16, 4),
            (37, 11),
            (64, 32),
            (160, 80),
            (100, 29),
        ] {
            let data: Vec<Vec<u8>> = (0..k).map(|_| (0..130).map(|_| random.u8(..)).collect()).collect();
            let sources: Vec<&[u8]> = data.iter().map(|b| &b[..]).collect();
            let check = |grs: Grs, parity: Matrix| {
                let (inputs, outputs) = (Vec::from_iter(0..k), Vec::from_iter(k..k + m));
                let mut ways = 0;
                let mut expected: Option<Vec<Vec<u8>>> = None;
                for kernel in gf::select::listed() {
                    for candidate in grs.candidates(kernel, &inputs, &outputs, &parity.concat()) {
                        let mut made = vec![vec![0u8; 130]; m];
                        let mut targets: Vec<&mut [u8]> = made.iter_mut().map(|b| &mut b[..]).collect();
                        candidate.transform.run(&sources, &mut targets);
                        let expected = expected.get_or_insert_with(|| made.clone());
                        assert!(made == *expected, "{k}+{m}: {:?}", candidate.transform);
                        ways += 1;
                    }
                }
                assert!(m < 32 || ways >= 3 * gf::select::listed().len(), "{k}+{m} has only {ways} ways");
            };
            check(Grs::cauchy(k, m), codes::cauchy::isa(k, m));
            check(Grs::evaluation(k, m), codes::points::backblaze(k, m));
        }
    }
}

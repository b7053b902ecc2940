//! From a bit matrix to a short XOR program: common pairs are taken out greedily (Paar), sums used
//! once are fused into their user, and steps are ordered so that an intermediate sum is made right
//! before its first use (Uezato, SC'21, for the fusion).

use super::bits::BitMatrix;
use gf::{Plane, Program, Step};

/// Matrices with more ones than this are not searched for common pairs: the search is quadratic in
/// the planes.
const MAX_ONES: usize = 20_000;

/// Ones that all tries together may go through, so that making a code of many planes stays a matter
/// of milliseconds.
const MAX_TRIED_ONES: usize = 10_000;

/// The shortest program of up to `tries` tries, the same for the same matrix always.
pub(crate) fn program(matrix: &BitMatrix, planes: usize, tries: usize) -> Program {
    let candidate = |seed| {
        let (pairs, rows) = common_pairs(matrix, &mut fastrand::Rng::with_seed(seed));
        order(matrix, planes, pairs, rows)
    };
    let tries = tries.min(MAX_TRIED_ONES / matrix.weight().max(1)).max(1);
    (0..tries as u64).map(candidate).min_by_key(Program::xors).expect("at least one try")
}

/// Values are numbered: inputs first, then the pairs taken out, each the sum of two earlier values.
type Pairs = Vec<[usize; 2]>;

/// Takes out the pair of values that most rows share, again and again; ties are broken at random.
fn common_pairs(matrix: &BitMatrix, random: &mut fastrand::Rng) -> (Pairs, Vec<Vec<usize>>) {
    let (rows, inputs) = (matrix.rows(), matrix.columns());
    let mut sums: Vec<Vec<usize>> = (0..rows).map(|r| matrix.ones(r)).collect();
    let mut pairs = Pairs::new();
    if sums.iter().map(Vec::len).sum::<usize>() > MAX_ONES {
        return (pairs, sums);
    }
    // For each value the rows that contain it, as bits; for each pair of values how many rows
    // contain both.
    let words = rows.div_ceil(64);
    let mut members: Vec<Vec<u64>> = vec![vec![0; words]; inputs];
    for (row, sum) in sums.iter().enumerate() {
        sum.iter().for_each(|&v| members[v][row / 64] |= 1 << (row % 64));
    }
    let shared = |a: &[u64], b: &[u64]| a.iter().zip(b).map(|(a, b)| (a & b).count_ones()).sum::<u32>() as u16;
    let mut counts: Vec<Vec<u16>> =
        (0..inputs).map(|b| (0..b).map(|a| shared(&members[a], &members[b])).collect()).collect();
    let mut best: Vec<u16> = counts.iter().map(|row| row.iter().copied().max().unwrap_or(0)).collect();
    loop {
        let most = best.iter().copied().max().unwrap_or(0);
        if most < 2 {
            break;
        }
        // Any of the best pairs: first one of the values that have one, then one of its partners.
        let highs: Vec<usize> = (0..best.len()).filter(|&b| best[b] == most).collect();
        let b = highs[random.usize(..highs.len())];
        let lows: Vec<usize> = (0..b).filter(|&a| counts[b][a] == most).collect();
        let a = lows[random.usize(..lows.len())];
        pairs.push([a, b]);
        let new = members.len();
        let both: Vec<u64> = members[a].iter().zip(&members[b]).map(|(a, b)| a & b).collect();
        for word in 0..words {
            members[a][word] &= !both[word];
            members[b][word] &= !both[word];
        }
        members.push(both);
        counts.push(vec![0; new]);
        best.push(0);
        for value in [a, b, new] {
            for other in (0..=new).filter(|&o| o != value) {
                let (low, high) = (value.min(other), value.max(other));
                let before = std::mem::replace(&mut counts[high][low], shared(&members[low], &members[high]));
                let now = counts[high][low];
                // Only a row that may have lost its greatest count is looked through again.
                if now >= best[high] {
                    best[high] = now;
                } else if before == best[high] {
                    best[high] = counts[high].iter().copied().max().unwrap_or(0);
                }
            }
        }
    }
    for (row, sum) in sums.iter_mut().enumerate() {
        *sum = (0..members.len()).filter(|&v| members[v][row / 64] >> (row % 64) & 1 == 1).collect();
    }
    (pairs, sums)
}

/// Puts the sums in order, depth first from each output, fusing pairs that are used once into their
/// user.
fn order(matrix: &BitMatrix, planes: usize, pairs: Pairs, rows: Vec<Vec<usize>>) -> Program {
    let inputs = matrix.columns();
    let mut uses = vec![0usize; inputs + pairs.len()];
    pairs.iter().flatten().chain(rows.iter().flatten()).for_each(|&v| uses[v] += 1);
    let mut builder = Builder { inputs, pairs: &pairs, uses: &uses, names: vec![None; pairs.len()], steps: Vec::new() };
    for (output, row) in rows.iter().enumerate() {
        let sources = builder.sources(row);
        builder.steps.push(Step { target: Plane::Output(output), sources });
    }
    Program::new(planes, inputs / planes, rows.len() / planes, builder.steps)
}

struct Builder<'a> {
    inputs: usize,
    pairs: &'a Pairs,
    uses: &'a [usize],
    /// The temporary that holds each pair once it is made.
    names: Vec<Option<usize>>,
    steps: Vec<Step>,
}

impl Builder<'_> {
    /// The planes to add for a sum of values; makes those that are missing.
    fn sources(&mut self, values: &[usize]) -> Vec<Plane> {
        let mut sources = Vec::new();
        for &value in values {
            if value < self.inputs {
                sources.push(Plane::Input(value));
            } else if self.uses[value] == 1 {
                let pair = self.pairs[value - self.inputs];
                sources.extend(self.sources(&pair));
            } else {
                sources.push(self.make(value));
            }
        }
        sources
    }

    fn make(&mut self, value: usize) -> Plane {
        let at = value - self.inputs;
        if let Some(name) = self.names[at] {
            return Plane::Temporary(name);
        }
        let sources = self.sources(&self.pairs[at]);
        let name = self.steps.iter().filter(|s| matches!(s.target, Plane::Temporary(_))).count();
        self.names[at] = Some(name);
        self.steps.push(Step { target: Plane::Temporary(name), sources });
        Plane::Temporary(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// What a program computes, as sets of inputs.
    fn symbolic(program: &Program, matrix: &BitMatrix) -> BitMatrix {
        let mut values: HashMap<Plane, Vec<bool>> = HashMap::new();
        let mut out = BitMatrix::zero(matrix.rows(), matrix.columns());
        for step in program.steps() {
            let mut sum = vec![false; matrix.columns()];
            for source in &step.sources {
                match source {
                    Plane::Input(i) => sum[*i] ^= true,
                    other => sum.iter_mut().zip(&values[other]).for_each(|(s, v)| *s ^= v),
                }
            }
            if let Plane::Output(row) = step.target {
                (0..sum.len()).filter(|&c| sum[c]).for_each(|c| out.set(row, c));
            }
            values.insert(step.target, sum);
        }
        out
    }

    #[test]
    fn programs_compute_their_matrix_with_fewer_xors() {
        let mut random = fastrand::Rng::with_seed(3);
        for (rows, columns) in [(1, 1), (4, 8), (16, 40), (32, 80)] {
            let mut matrix = BitMatrix::zero(rows, columns);
            for row in 0..rows {
                (0..columns).filter(|_| random.bool()).for_each(|c| matrix.set(row, c));
            }
            let program = program(&matrix, 1, 2);
            assert_eq!(symbolic(&program, &matrix), matrix);
            assert!(program.xors() <= matrix.weight().saturating_sub(1));
        }
    }
}

//! `Grouped`: a linear map between blocks whose rows and columns fall into cosets, as a Cauchy
//! matrix's do.
//!
//! Inputs come in groups of `size` points, each turned into coefficients by an inverse transform; a
//! matrix multiplies whole groups of coefficients; each output group is evaluated by a forward
//! transform. With size 1 it is the plain matrix product. Multiplications per input block:
//! log2(size)/2 + outputs/size instead of outputs.

use crate::coset::twiddles;
use crate::factors::{Expand, Factors};

/// A slot of a group without a block: an input counts as zero, an output is not stored.
pub const NO_BLOCK: usize = usize::MAX;

/// One coset on either side of the map.
#[derive(Clone, Debug)]
pub struct Group {
    /// The coset's first point; its members are `shift ^ 0 .. shift ^ (size - 1)`.
    pub shift: u8,
    /// Which block stands at each member, or [`NO_BLOCK`].
    pub blocks: Vec<usize>,
}

/// A term that the cosets cannot express: `outputs[output] += coefficient * inputs[input]`.
#[derive(Clone, Copy, Debug)]
pub struct Direct {
    /// Index of the output block.
    pub output: usize,
    /// Index of the input block.
    pub input: usize,
    /// The multiplier.
    pub coefficient: u8,
}

/// The map's definition, before it is made ready for a kernel.
#[derive(Clone, Debug, Default)]
pub struct GroupedSpec {
    /// Points in a coset, a power of two from 1 to 128.
    pub size: usize,
    /// The groups of input blocks.
    pub inputs: Vec<Group>,
    /// The groups of output blocks.
    pub outputs: Vec<Group>,
    /// Row-major, outputs x inputs, one element for each pair of groups.
    pub matrix: Vec<u8>,
    /// Multipliers of the input blocks before the transform, by block; empty for none.
    pub input_scale: Vec<u8>,
    /// Multipliers of the output blocks after the transform, by block; empty for none.
    pub output_scale: Vec<u8>,
    /// Terms added before the output is scaled, with unscaled inputs.
    pub direct: Vec<Direct>,
}

impl GroupedSpec {
    /// A plain matrix product: `matrix` is row-major, rows x columns.
    pub fn matrix(columns: usize, matrix: &[u8]) -> Self {
        let rows = matrix.len().checked_div(columns).unwrap_or(0);
        let points = |n: usize| (0..n).map(|i| Group { shift: 0, blocks: vec![i] }).collect();
        Self { size: 1, inputs: points(columns), outputs: points(rows), matrix: matrix.to_vec(), ..Self::default() }
    }

    /// Whether every input slot has a block and every output group begins with one.
    fn complete(&self) -> bool {
        self.inputs.iter().all(|g| g.blocks.iter().all(|&b| b != NO_BLOCK))
            && self.outputs.iter().all(|g| g.blocks[0] != NO_BLOCK)
    }

    /// One more than the highest block that is touched: of the inputs, of the outputs.
    fn reach(&self) -> [usize; 2] {
        let beyond = |groups: &[Group], direct: fn(&Direct) -> usize| {
            let blocks = groups.iter().flat_map(|g| g.blocks.iter().copied()).filter(|&b| b != NO_BLOCK);
            blocks
                .chain(self.direct.iter().map(direct))
                .max()
                .map_or(0, |last| last.checked_add(1).expect("a block index"))
        };
        [beyond(&self.inputs, |d| d.input), beyond(&self.outputs, |d| d.output)]
    }

    /// Multiplications for one byte of every input, the model that candidates are ranked by.
    pub fn multiplications(&self) -> usize {
        let levels = self.size.trailing_zeros() as usize;
        let (i, o) = (self.inputs.len(), self.outputs.len());
        (i + o) * self.size * levels / 2
            + i * o * self.size
            + self.direct.len()
            + self.input_scale.len()
            + self.output_scale.len()
    }
}

/// How a kernel runs the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Everything in registers, several passes over the inputs when there are many outputs. Size 1,
    /// 2 or 4, complete input groups, output groups that begin with a block, no scaling and no
    /// direct terms.
    Registers,
    /// Coefficients of all groups in a tile in the second-level cache, at most `width` bytes of
    /// every block at a time.
    Tile {
        /// Bytes of each block in the tile, a multiple of 64.
        width: usize,
    },
}

/// Output groups of one pass and the factors it reads, in the order it reads them.
#[derive(Clone)]
pub(crate) struct Pass {
    pub first: usize,
    pub count: usize,
    /// Whether the first output row is all ones (size 1 only): a plain XOR.
    pub ones: bool,
    pub factors: Factors,
}

/// A [`GroupedSpec`] ready to run on one kernel.
#[derive(Clone)]
pub struct Grouped {
    pub(crate) spec: GroupedSpec,
    pub(crate) way: Way,
    /// The input blocks, group by group.
    pub(crate) input_blocks: Vec<usize>,
    /// Blocks that the map needs at least: inputs, outputs.
    reach: [usize; 2],
    pub(crate) passes: Vec<Pass>,
    /// Tile way: twiddles of the input groups, then of the output groups, `size - 1` each.
    pub(crate) transform: Factors,
    pub(crate) input_scale: Factors,
    pub(crate) output_scale: Factors,
    pub(crate) direct: Factors,
}

impl Grouped {
    /// Whether `Way::Registers` can run this map.
    pub fn fits_registers(spec: &GroupedSpec) -> bool {
        matches!(spec.size, 1 | 2 | 4)
            && spec.complete()
            && spec.input_scale.is_empty()
            && spec.output_scale.is_empty()
            && spec.direct.is_empty()
    }

    /// Prepares a map; `outputs_per_pass` bounds the output blocks of one pass over the inputs (6
    /// is a good number with 16 registers).
    ///
    /// # Panics
    /// On a spec that contradicts itself, or a way that cannot run it: programmer errors.
    pub fn new(kernel: &dyn Expand, mut spec: GroupedSpec, way: Way, outputs_per_pass: usize) -> Self {
        let size = spec.size;
        assert!(size.is_power_of_two() && size <= 128, "group size {size}");
        assert_eq!(spec.matrix.len(), spec.inputs.len() * spec.outputs.len(), "matrix shape");
        let groups = || spec.inputs.iter().chain(&spec.outputs);
        assert!(groups().all(|g| g.blocks.len() == size), "group length");
        assert!(spec.inputs.len() * size <= 256 && spec.outputs.len() * size <= 512, "more points than the field has");
        if let Way::Tile { width } = way {
            assert!(width > 0 && width.is_multiple_of(64), "tile width {width}");
        } else {
            assert!(Self::fits_registers(&spec), "map does not fit the register way");
        }
        if way == Way::Registers {
            move_zero_group_first(&mut spec);
        }
        let most = [6, 4, 2].get(size.trailing_zeros() as usize).copied().unwrap_or(6);
        let count = (outputs_per_pass / size).clamp(1, most);
        let passes = (0..spec.outputs.len())
            .step_by(count)
            .map(|first| pass(kernel, &spec, way, first, count.min(spec.outputs.len() - first)))
            .collect();
        let all: Vec<u8> =
            spec.inputs.iter().chain(&spec.outputs).flat_map(|group| twiddles(size, group.shift)).collect();
        Self {
            input_blocks: spec.inputs.iter().flat_map(|group| group.blocks.iter().copied()).collect(),
            reach: spec.reach(),
            transform: kernel.factors(if way == Way::Registers { &[] } else { &all }),
            input_scale: kernel.factors(&spec.input_scale),
            output_scale: kernel.factors(&spec.output_scale),
            direct: kernel.factors(&spec.direct.iter().map(|d| d.coefficient).collect::<Vec<_>>()),
            spec,
            way,
            passes,
        }
    }

    /// The definition this was made from.
    pub fn spec(&self) -> &GroupedSpec {
        &self.spec
    }

    /// Which way it runs.
    pub fn way(&self) -> Way {
        self.way
    }

    /// Whether every output is stored once, by the last step of its group.
    pub(crate) fn stores_once(&self) -> bool {
        let complete = self.spec.outputs.iter().all(|g| g.blocks.iter().all(|&b| b != NO_BLOCK));
        complete && self.spec.direct.is_empty() && self.spec.output_scale.is_empty()
    }

    /// Every block index the map touches is below these counts of inputs and outputs.
    pub(crate) fn check_blocks(&self, inputs: usize, outputs: usize) {
        assert!(self.reach[0] <= inputs, "an input block is missing");
        assert!(self.reach[1] <= outputs, "an output block is missing");
        let scale = |s: &[u8], n| s.is_empty() || s.len() == n;
        assert!(scale(&self.spec.input_scale, inputs) && scale(&self.spec.output_scale, outputs), "scale length");
    }
}

/// The group at shift 0 has zero twiddles; the register way skips those in the first group.
fn move_zero_group_first(spec: &mut GroupedSpec) {
    let Some(zero) = spec.inputs.iter().position(|g| g.shift == 0) else { return };
    let columns = spec.inputs.len();
    spec.inputs.swap(0, zero);
    for row in spec.matrix.chunks_exact_mut(columns) {
        row.swap(0, zero);
    }
}

fn pass(kernel: &dyn Expand, spec: &GroupedSpec, way: Way, first: usize, count: usize) -> Pass {
    let columns = spec.inputs.len();
    let mut values = Vec::new();
    for (column, group) in spec.inputs.iter().enumerate() {
        if way == Way::Registers {
            values.extend(twiddles(spec.size, group.shift));
        }
        values.extend((first..first + count).map(|row| spec.matrix[row * columns + column]));
    }
    if way == Way::Registers {
        for group in &spec.outputs[first..first + count] {
            values.extend(twiddles(spec.size, group.shift));
        }
    }
    let ones = spec.size == 1 && columns > 0 && spec.matrix[first * columns..][..columns].iter().all(|&c| c == 1);
    Pass { first, count, ones, factors: kernel.factors(&values) }
}

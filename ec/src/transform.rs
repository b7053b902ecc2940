//! A linear map between blocks in memory, ready to run: what encoders and repairs are made of.

use crate::xor::PlaneMap;
use gf::{Dyadic, Erasure, Factors, Grouped, GroupedSpec, Kernel, Way};
use std::fmt;
use std::ops::Range;

/// A map from some blocks to others of the same length.
pub struct Transform {
    kernel: &'static dyn Kernel,
    inputs: usize,
    outputs: usize,
    kind: Kind,
}

enum Kind {
    /// Each output is the XOR of all inputs.
    Xor,
    /// Each output is zeroes.
    Zeroes,
    /// Output i is a copy of input `sources[i]`.
    Copy(Vec<usize>),
    /// RAID-6's P and Q.
    Pq,
    Grouped(Grouped),
    Dyadic(Dyadic),
    Erasure(Erasure),
    Planes(PlaneMap),
}

impl Transform {
    pub(crate) fn xor(kernel: &'static dyn Kernel, inputs: usize) -> Self {
        Self { kernel, inputs, outputs: 1, kind: Kind::Xor }
    }

    pub(crate) fn zeroes(kernel: &'static dyn Kernel, inputs: usize, outputs: usize) -> Self {
        Self { kernel, inputs, outputs, kind: Kind::Zeroes }
    }

    pub(crate) fn copy(kernel: &'static dyn Kernel, inputs: usize, sources: Vec<usize>) -> Self {
        Self { kernel, inputs, outputs: sources.len(), kind: Kind::Copy(sources) }
    }

    pub(crate) fn pq(kernel: &'static dyn Kernel, inputs: usize) -> Self {
        Self { kernel, inputs, outputs: 2, kind: Kind::Pq }
    }

    pub(crate) fn grouped(kernel: &'static dyn Kernel, inputs: usize, outputs: usize, map: Grouped) -> Self {
        Self { kernel, inputs, outputs, kind: Kind::Grouped(map) }
    }

    pub(crate) fn dyadic(kernel: &'static dyn Kernel, inputs: usize, outputs: usize, map: Dyadic) -> Self {
        Self { kernel, inputs, outputs, kind: Kind::Dyadic(map) }
    }

    pub(crate) fn erasure(kernel: &'static dyn Kernel, inputs: usize, outputs: usize, map: Erasure) -> Self {
        Self { kernel, inputs, outputs, kind: Kind::Erasure(map) }
    }

    pub(crate) fn planes(kernel: &'static dyn Kernel, inputs: usize, outputs: usize, map: PlaneMap) -> Self {
        Self { kernel, inputs, outputs, kind: Kind::Planes(map) }
    }

    /// A plain matrix of elements, row-major, with the simplest kind that does it.
    pub(crate) fn matrix(kernel: &'static dyn Kernel, columns: usize, matrix: &[u8]) -> Self {
        let rows = matrix.len().checked_div(columns).unwrap_or(0);
        let unit = |row: &[u8]| {
            let source = row.iter().position(|&c| c != 0)?;
            let single = row[source] == 1 && row.iter().filter(|&&c| c != 0).count() == 1;
            single.then_some(source)
        };
        if rows == 1 && matrix.iter().all(|&c| c == 1) && columns > 1 {
            return Self::xor(kernel, columns);
        }
        if let Some(sources) = (columns > 0).then(|| matrix.chunks_exact(columns).map(unit).collect()).flatten() {
            return Self::copy(kernel, columns, sources);
        }
        let map = Grouped::new(kernel, GroupedSpec::matrix(columns, matrix), Way::Registers, 6);
        Self::grouped(kernel, columns, rows, map)
    }

    /// How many blocks `run` takes.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// How many blocks `run` makes.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Ranges given to `run_at` begin at multiples of this many bytes and end there or at the
    /// block's end.
    pub fn granularity(&self) -> usize {
        match &self.kind {
            Kind::Planes(map) => map.region_bytes(),
            _ => 1,
        }
    }

    /// Whether each byte of the inputs is read once, however long a range is: then nothing is
    /// gained by a range that fits in a cache.
    pub(crate) fn is_one_pass(&self) -> bool {
        !matches!(self.kind, Kind::Planes(_) | Kind::Copy(_))
    }

    /// Bytes of every block that are best coded in one go, besides multiples of them.
    pub(crate) fn stride(&self) -> usize {
        match &self.kind {
            Kind::Grouped(map) => match map.way() {
                Way::Tile { width } => width,
                Way::Registers => 1,
            },
            _ => self.granularity(),
        }
    }

    /// Makes the outputs from the inputs; all blocks have one length.
    ///
    /// # Panics
    /// When the number of blocks or their lengths are not those of the map.
    pub fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        let length = inputs.first().map(|b| b.len()).or(outputs.first().map(|b| b.len())).unwrap_or(0);
        assert!(inputs.iter().all(|b| b.len() == length), "blocks differ in length");
        assert!(outputs.iter().all(|b| b.len() == length), "blocks differ in length");
        self.run_at(inputs, outputs, 0..length);
    }

    /// Makes the outputs' bytes of one range, which is aligned to `granularity`, from the inputs'
    /// bytes of that range.
    ///
    /// # Panics
    /// As `run`, or when a block ends before the range.
    pub fn run_at(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]], at: Range<usize>) {
        self.run_stored(inputs, outputs, at, false);
    }

    /// As `run_at`, panics included; with `streaming` outputs are written past the caches where
    /// that can be done: for those that leave the caches before anybody reads them.
    pub(crate) fn run_stored(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]], at: Range<usize>, streaming: bool) {
        assert!(inputs.len() == self.inputs && outputs.len() == self.outputs, "{self:?} given {} blocks", inputs.len());
        match &self.kind {
            Kind::Xor => self.kernel.xor(inputs, outputs[0], at),
            Kind::Zeroes => outputs.iter_mut().for_each(|output| output[at.clone()].fill(0)),
            Kind::Copy(sources) => {
                for (output, &source) in outputs.iter_mut().zip(sources) {
                    output[at.clone()].copy_from_slice(&inputs[source][at.clone()]);
                }
            }
            Kind::Pq => {
                let [p, q] = outputs else { unreachable!("two outputs") };
                self.kernel.pq(inputs, p, q, at);
            }
            Kind::Grouped(map) if streaming => self.kernel.grouped_streaming(map, inputs, outputs, at),
            Kind::Grouped(map) => self.kernel.grouped(map, inputs, outputs, at),
            Kind::Dyadic(map) if streaming => self.kernel.dyadic_streaming(map, inputs, outputs, at),
            Kind::Dyadic(map) => self.kernel.dyadic(map, inputs, outputs, at),
            Kind::Erasure(map) => self.kernel.erasure(map, inputs, outputs, at),
            Kind::Planes(map) => map.run(self.kernel, inputs, outputs, at, streaming),
        }
    }
}

impl fmt::Debug for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} blocks from {} ", self.outputs, self.inputs)?;
        match &self.kind {
            Kind::Xor => write!(f, "by XOR"),
            Kind::Zeroes => write!(f, "as zeroes"),
            Kind::Copy(_) => write!(f, "by copying"),
            Kind::Pq => write!(f, "by P and Q"),
            Kind::Grouped(map) => match (map.spec().size, map.way()) {
                (1, Way::Registers) => write!(f, "by matrix"),
                (size, Way::Registers) => write!(f, "by cosets of {size} in registers"),
                (size, Way::Tile { width }) => write!(f, "by cosets of {size} in a tile of {width} bytes"),
            },
            Kind::Dyadic(_) => write!(f, "by dyadic groups"),
            Kind::Erasure(_) => write!(f, "by error locator"),
            Kind::Planes(map) => write!(f, "by {map:?}"),
        }?;
        write!(f, " on {}", self.kernel.name())
    }
}

/// The column of each data block, for accumulation.
pub(crate) struct Columns(Vec<Factors>);

impl Columns {
    /// From the rows of the coded blocks.
    pub fn new(kernel: &dyn Kernel, k: usize, rows: &[Vec<u8>]) -> Self {
        Self((0..k).map(|j| kernel.factors(&rows.iter().map(|row| row[j]).collect::<Vec<_>>())).collect())
    }

    /// `coded += column j * block`.
    pub fn accumulate(&self, kernel: &dyn Kernel, j: usize, block: &[u8], coded: &mut [&mut [u8]]) {
        assert!(coded.iter().all(|b| b.len() == block.len()), "blocks differ in length");
        kernel.multiply_add(&self.0[j], block, coded, 0..block.len());
    }
}

//! Codes whose blocks are bit planes: a matrix over GF(2), run as XOR programs.

use crate::cache::Cache;
use crate::code::{Code, Read, Repair, Unrecoverable};
use crate::spec::{Shape, Spec};
use crate::transform::Transform;
use crate::xor::bits::BitMatrix;
use crate::xor::optimise::program;
use crate::xor::{Layout, PlaneMap, Program};
use gf::Kernel;
use std::sync::{Arc, OnceLock};

/// What a bit-matrix code is made from.
pub(crate) struct Definition {
    pub spec: Spec,
    pub shape: Shape,
    pub layout: Layout,
    /// Rows of the coded planes over the data planes: parity only for a systematic code, all blocks
    /// otherwise.
    pub coded: BitMatrix,
    pub systematic: bool,
}

/// Tries of the optimiser for an encoder, which is made once, and for a repair, which a caller
/// waits for.
const ENCODER_TRIES: usize = 8;
const REPAIR_TRIES: usize = 1;

/// A code over bit planes.
pub(crate) struct PlaneCode {
    definition: Definition,
    kernel: &'static dyn Kernel,
    /// Planes of all blocks that a stripe's equations speak of; equations * planes = 0. A
    /// non-systematic code's data blocks stand before its stored ones.
    equations: BitMatrix,
    program: Program,
    encoder: Transform,
    columns: Vec<OnceLock<Transform>>,
    repairs: Cache<Repair>,
    reads: Cache<Repair>,
}

impl PlaneCode {
    pub fn new(kernel: &'static dyn Kernel, definition: Definition) -> Self {
        let Definition { shape, layout, ref coded, .. } = definition;
        let outputs = coded.rows() / layout.planes;
        let program = program(coded, layout.planes, ENCODER_TRIES);
        let map = PlaneMap::new(kernel, program.clone(), layout);
        Self {
            kernel,
            equations: coded.with_identity(),
            encoder: Transform::planes(kernel, shape.k, outputs, map),
            program,
            columns: (0..shape.k).map(|_| OnceLock::new()).collect(),
            repairs: Cache::default(),
            reads: Cache::default(),
            definition,
        }
    }

    /// Where stored block `position` stands among the blocks of the equations.
    fn slot(&self, position: usize) -> usize {
        if self.definition.systematic { position } else { self.definition.shape.k + position }
    }

    fn planes_of(&self, slots: &[usize]) -> Vec<usize> {
        let w = self.definition.layout.planes;
        slots.iter().flat_map(|s| s * w..(s + 1) * w).collect()
    }

    /// The repair of the blocks at `slots` (as equations count them), called `names`, from the
    /// stored blocks `have`.
    fn make(&self, slots: &[usize], names: &[usize], have: &[usize]) -> Result<Repair, Unrecoverable> {
        let w = self.definition.layout.planes;
        let known: Vec<usize> = have.iter().map(|&p| self.slot(p)).collect();
        let solved = self.equations.solve(&self.planes_of(slots), &self.planes_of(&known)).map_err(|planes| {
            let mut blocks: Vec<usize> =
                planes.iter().filter_map(|p| slots.iter().position(|s| s == &(p / w)).map(|at| names[at])).collect();
            blocks.dedup();
            Unrecoverable { blocks, have: have.len(), need: self.definition.shape.k }
        })?;
        let used = |plane: usize| (0..solved.rows()).any(|row| solved.get(row, plane));
        let reads: Vec<Read> = have
            .iter()
            .map(|&block| {
                let slot = self.slot(block);
                Read { block, parts: (slot * w..(slot + 1) * w).filter(|&p| used(p)).count(), of: w }
            })
            .filter(|read| read.parts > 0)
            .collect();
        let inputs: Vec<usize> = reads.iter().map(|r| self.slot(r.block)).collect();
        let matrix = solved.select(&self.planes_of(&inputs));
        let map = PlaneMap::new(self.kernel, program(&matrix, w, REPAIR_TRIES), self.definition.layout);
        Ok(Repair::new(reads, names.to_vec(), Transform::planes(self.kernel, inputs.len(), slots.len(), map)))
    }

    /// The map from data block j alone to all coded blocks.
    fn column(&self, j: usize) -> &Transform {
        self.columns[j].get_or_init(|| {
            let coded = &self.definition.coded;
            let matrix = coded.select(&self.planes_of(&[j]));
            let map = PlaneMap::new(
                self.kernel,
                program(&matrix, self.definition.layout.planes, REPAIR_TRIES),
                self.definition.layout,
            );
            Transform::planes(self.kernel, 1, coded.rows() / self.definition.layout.planes, map)
        })
    }
}

impl Code for PlaneCode {
    fn spec(&self) -> &Spec {
        &self.definition.spec
    }

    fn shape(&self) -> Shape {
        self.definition.shape
    }

    fn systematic(&self) -> bool {
        self.definition.systematic
    }

    fn unit(&self) -> usize {
        self.definition.layout.unit()
    }

    fn encoder(&self) -> &Transform {
        &self.encoder
    }

    fn repair(&self, lost: &[usize], have: &[usize]) -> Result<Arc<Repair>, Unrecoverable> {
        let slots: Vec<usize> = lost.iter().map(|&p| self.slot(p)).collect();
        self.repairs.get(self.definition.shape.blocks(), lost, have, || self.make(&slots, lost, have))
    }

    fn read(&self, data: &[usize], have: &[usize]) -> Result<Arc<Repair>, Unrecoverable> {
        assert!(data.iter().all(|&j| j < self.definition.shape.k), "data blocks are below k");
        if self.definition.systematic {
            return self.repair(data, have);
        }
        // Data blocks and stored blocks are different things here; the cache tells them apart by
        // counting on.
        let k = self.definition.shape.k;
        let stored: Vec<usize> = have.iter().map(|p| k + p).collect();
        self.reads.get(k + self.definition.shape.blocks(), data, &stored, || self.make(data, data, have))
    }

    fn accumulate(&self, j: usize, block: &[u8], coded: &mut [&mut [u8]]) {
        assert!(coded.iter().all(|b| b.len() == block.len()), "blocks differ in length");
        let mut column = vec![vec![0u8; block.len()]; coded.len()];
        let mut slices: Vec<&mut [u8]> = column.iter_mut().map(|b| &mut b[..]).collect();
        self.column(j).run(&[block], &mut slices);
        let one = self.kernel.factors(&[1]);
        for (coded, column) in coded.iter_mut().zip(&column) {
            self.kernel.multiply_add(&one, column, &mut [coded], 0..block.len());
        }
    }

    fn program(&self) -> Option<&Program> {
        Some(&self.program)
    }
}

impl std::fmt::Debug for PlaneCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {:?}", self.definition.spec, self.encoder)
    }
}

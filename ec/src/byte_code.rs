//! Codes whose blocks are bytes of GF(2^8): a generator matrix, one row per stored block.

use crate::cache::Cache;
use crate::code::{Code, Read, Repair, Unrecoverable};
use crate::grs::Grs;
use crate::linear::{Matrix, solve};
use crate::spec::{Shape, Spec};
use crate::transform::{Columns, Transform};
use gf::Kernel;
use std::sync::Arc;

/// What a systematic byte code is made from.
pub(crate) struct Definition {
    pub spec: Spec,
    pub shape: Shape,
    /// The parity rows, m x k.
    pub parity: Matrix,
    /// Any this many losses can be repaired.
    pub tolerates: usize,
    /// Present when the code is generalised Reed-Solomon with block i at point i.
    pub grs: Option<Grs>,
    /// RAID-6's P and Q have a faster encoder than their matrix.
    pub pq: bool,
}

/// A systematic code over bytes.
pub(crate) struct ByteCode {
    definition: Definition,
    kernel: &'static dyn Kernel,
    /// The parity check matrix [P | I]: checks * blocks = 0.
    checks: Matrix,
    encoder: Transform,
    columns: Columns,
    repairs: Cache<Repair>,
}

impl ByteCode {
    pub fn new(kernel: &'static dyn Kernel, definition: Definition) -> Self {
        let Shape { k, m } = definition.shape;
        let checks: Matrix = (definition.parity.iter().enumerate())
            .map(|(i, row)| row.iter().copied().chain((0..m).map(|j| u8::from(i == j))).collect())
            .collect();
        let flat: Vec<u8> = definition.parity.concat();
        let encoder = match &definition.grs {
            _ if definition.pq => Transform::pq(kernel, k),
            _ if definition.spec.stores_zeroes() => Transform::zeroes(kernel, k, m),
            Some(grs) => grs.map(kernel, &Vec::from_iter(0..k), &Vec::from_iter(k..k + m), &flat),
            None => Transform::matrix(kernel, k, &flat),
        };
        let columns = Columns::new(kernel, k, &definition.parity);
        Self { kernel, checks, encoder, columns, repairs: Cache::default(), definition }
    }

    fn make_repair(&self, lost: &[usize], have: &[usize]) -> Result<Repair, Unrecoverable> {
        let blocks = self.definition.shape.blocks();
        let coefficients = solve(&self.checks, blocks, lost, have).map_err(|blocks| Unrecoverable {
            blocks,
            have: have.len(),
            need: self.definition.shape.k,
        })?;
        let reads: Vec<usize> = (0..blocks).filter(|&b| coefficients.iter().any(|row| row[b] != 0)).collect();
        let matrix: Vec<u8> = coefficients.iter().flat_map(|row| reads.iter().map(|&b| row[b])).collect();
        let transform = match &self.definition.grs {
            Some(grs) if reads.len() == self.definition.shape.k => grs.map(self.kernel, &reads, lost, &matrix),
            _ if reads.is_empty() => Transform::zeroes(self.kernel, 0, lost.len()),
            _ => Transform::matrix(self.kernel, reads.len(), &matrix),
        };
        let reads = reads.into_iter().map(|block| Read { block, parts: 1, of: 1 }).collect();
        Ok(Repair::new(reads, lost.to_vec(), transform))
    }
}

impl Code for ByteCode {
    fn spec(&self) -> &Spec {
        &self.definition.spec
    }

    fn shape(&self) -> Shape {
        self.definition.shape
    }

    fn unit(&self) -> usize {
        1
    }

    fn tolerates(&self) -> usize {
        self.definition.tolerates
    }

    fn encoder(&self) -> &Transform {
        &self.encoder
    }

    fn repair(&self, lost: &[usize], have: &[usize]) -> Result<Arc<Repair>, Unrecoverable> {
        self.repairs.get(self.definition.shape.blocks(), lost, have, || self.make_repair(lost, have))
    }

    fn read(&self, data: &[usize], have: &[usize]) -> Result<Arc<Repair>, Unrecoverable> {
        assert!(data.iter().all(|&j| j < self.definition.shape.k), "data blocks are below k");
        self.repair(data, have)
    }

    fn accumulate(&self, j: usize, block: &[u8], coded: &mut [&mut [u8]]) {
        self.columns.accumulate(self.kernel, j, block, coded);
    }
}

impl std::fmt::Debug for ByteCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {:?}", self.definition.spec, self.encoder)
    }
}

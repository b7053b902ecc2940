//! The erasure codes, on blocks that are buffers of Python: bytes, arrays of numpy and others.
//! Nothing is copied, and other threads of the interpreter run meanwhile.

use crate::bytes::{Room, Source};
use ec::partition::Partition;
use ec::{Shape, Transform};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyDict, PyList};
use std::sync::Arc;

/// An erasure code of one shape, like `rs:4+2`. A stripe has `k` data blocks and `m` parity blocks
/// of equal length, at the positions `0..k` and `k..n`.
#[pyclass(frozen, module = "weft._weft")]
pub struct Code {
    code: Arc<dyn ec::Code>,
    partition: Partition,
}

/// The most threads that share a stripe.
const MAX_THREADS: usize = 256;

/// The names of all families of codes, each with an example and what it is.
#[pyfunction]
pub fn families() -> Vec<(&'static str, &'static str, &'static str)> {
    ec::catalogue().iter().map(|family| (family.name, family.example, family.title)).collect()
}

fn refused(why: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(why.to_string())
}

/// Blocks of zeroes.
fn blank<'py>(py: Python<'py>, count: usize, length: usize) -> PyResult<Vec<Bound<'py, PyAny>>> {
    (0..count).map(|_| Ok(PyByteArray::new_with(py, length, |_| Ok(()))?.into_any())).collect()
}

#[pymethods]
impl Code {
    #[new]
    #[pyo3(signature = (spec, threads = 1))]
    fn new(spec: &str, threads: usize) -> PyResult<Self> {
        let partition = Partition { region_bytes: None, threads: threads.clamp(1, MAX_THREADS) };
        Ok(Self { code: ec::parse(spec).map_err(refused)?, partition })
    }

    /// The canonical spec: equal specs give equal bytes.
    #[getter]
    fn spec(&self) -> String {
        self.code.spec().to_string()
    }

    /// Data blocks of a stripe.
    #[getter]
    fn k(&self) -> usize {
        self.code.shape().k
    }

    /// Parity blocks of a stripe.
    #[getter]
    fn m(&self) -> usize {
        self.code.shape().m
    }

    /// All blocks of a stripe.
    #[getter]
    fn n(&self) -> usize {
        self.code.shape().blocks()
    }

    /// Block lengths are multiples of this many bytes.
    #[getter]
    fn unit(&self) -> usize {
        self.code.unit()
    }

    /// How many lost blocks can be repaired, whichever they are.
    #[getter]
    fn tolerates(&self) -> usize {
        self.code.tolerates()
    }

    /// Whether the data blocks are stored as they are.
    #[getter]
    fn systematic(&self) -> bool {
        self.code.systematic()
    }

    /// The threads that share a stripe.
    #[getter]
    fn threads(&self) -> usize {
        self.partition.threads
    }

    fn __repr__(&self) -> String {
        format!("Code('{}')", self.code.spec())
    }

    fn __getnewargs__(&self) -> (String, usize) {
        (self.spec(), self.partition.threads)
    }

    /// The coded blocks of the k data blocks: the parity of a systematic code, else all n blocks.
    #[pyo3(signature = (data, out = None))]
    fn encode<'py>(
        &self,
        py: Python<'py>,
        data: Vec<Bound<'py, PyAny>>,
        out: Option<Vec<Bound<'py, PyAny>>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let Shape { k, .. } = self.code.shape();
        if data.len() != k {
            return Err(refused(format!("{} takes {k} data blocks, not {}", self.code.spec(), data.len())));
        }
        let made = self.run(py, self.code.encoder(), &data, out)?;
        PyList::new(py, made)
    }

    /// Makes blocks that are lost from the others. `blocks` has an entry for each of the n
    /// positions, None where the block is missing. Makes all that are missing, or those in `lost`,
    /// into new blocks or into `out`, and returns them by position.
    #[pyo3(signature = (blocks, lost = None, out = None))]
    fn repair<'py>(
        &self,
        py: Python<'py>,
        blocks: Vec<Option<Bound<'py, PyAny>>>,
        lost: Option<Vec<usize>>,
        out: Option<Vec<Bound<'py, PyAny>>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (have, missing) = self.sorted(&blocks)?;
        let lost = lost.unwrap_or(missing);
        let mut seen = vec![false; blocks.len()];
        for &position in &lost {
            let is_missing = blocks.get(position).is_some_and(Option::is_none);
            if !is_missing || std::mem::replace(&mut seen[position], true) {
                return Err(refused(format!("lost: {position} is there, out of range, or named twice")));
            }
        }
        let made = self.rebuilt(py, &blocks, &lost, &have, out, Way::Repair)?;
        let by_position = PyDict::new(py);
        lost.iter().zip(made).try_for_each(|(position, block)| by_position.set_item(position, block))?;
        Ok(by_position)
    }

    /// The k data blocks, from what is there of the n blocks. Blocks that are stored as they are
    /// come back as the same objects. New ones are made, or taken from `out`, for the others.
    #[pyo3(signature = (blocks, out = None))]
    fn decode<'py>(
        &self,
        py: Python<'py>,
        blocks: Vec<Option<Bound<'py, PyAny>>>,
        out: Option<Vec<Bound<'py, PyAny>>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let (have, _) = self.sorted(&blocks)?;
        let is_stored = |position: &usize| self.code.systematic() && blocks[*position].is_some();
        let wanted: Vec<usize> = (0..self.code.shape().k).filter(|position| !is_stored(position)).collect();
        let mut made = self.rebuilt(py, &blocks, &wanted, &have, out, Way::Read)?.into_iter();
        let stored = |position: usize| blocks[position].clone().filter(|_| is_stored(&position));
        let data = (0..self.code.shape().k).filter_map(|position| stored(position).or_else(|| made.next()));
        PyList::new(py, data.collect::<Vec<_>>())
    }

    /// Which of the blocks in `have` a repair of those in `lost` reads, with the share of each that
    /// it uses.
    fn reads(&self, lost: Vec<usize>, have: Vec<usize>) -> PyResult<Vec<(usize, f64)>> {
        let mut seen = vec![false; self.code.shape().blocks()];
        for &position in lost.iter().chain(&have) {
            if seen.get(position).copied().unwrap_or(true) {
                return Err(refused(format!("{position} is out of range or named twice")));
            }
            seen[position] = true;
        }
        let repair = self.code.repair(&lost, &have).map_err(refused)?;
        Ok(repair.reads().iter().map(|read| (read.block, read.parts as f64 / read.of as f64)).collect())
    }
}

/// What is made of the blocks that are there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Stored blocks.
    Repair,
    /// Data blocks.
    Read,
}

impl Code {
    /// The positions that are there, and those that are missing.
    fn sorted(&self, blocks: &[Option<Bound<'_, PyAny>>]) -> PyResult<(Vec<usize>, Vec<usize>)> {
        let wanted = self.code.shape().blocks();
        if blocks.len() != wanted {
            let given = blocks.len();
            return Err(refused(format!(
                "{} has {wanted} blocks, None for each that is missing, not {given}",
                self.spec()
            )));
        }
        Ok((0..wanted).partition(|&position| blocks[position].is_some()))
    }

    fn rebuilt<'py>(
        &self,
        py: Python<'py>,
        blocks: &[Option<Bound<'py, PyAny>>],
        wanted: &[usize],
        have: &[usize],
        out: Option<Vec<Bound<'py, PyAny>>>,
        way: Way,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let repair = match way {
            Way::Repair => self.code.repair(wanted, have),
            Way::Read => self.code.read(wanted, have),
        };
        let repair = repair.map_err(refused)?;
        let reads: Vec<_> = repair.reads().iter().filter_map(|read| blocks[read.block].clone()).collect();
        self.run(py, repair.transform(), &reads, out)
    }

    /// Runs a map from blocks to others, which it returns.
    fn run<'py>(
        &self,
        py: Python<'py>,
        transform: &Transform,
        inputs: &[Bound<'py, PyAny>],
        out: Option<Vec<Bound<'py, PyAny>>>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let sources = inputs.iter().map(Source::of).collect::<PyResult<Vec<_>>>()?;
        let sources: Vec<&[u8]> = sources.iter().map(Source::bytes).collect();
        let length = sources.first().map_or(0, |block| block.len());
        let unit = self.code.unit();
        if sources.iter().any(|block| block.len() != length) {
            return Err(refused("the blocks differ in length"));
        }
        if !length.is_multiple_of(unit) {
            return Err(refused(format!("{}: block lengths are multiples of {unit} bytes, not {length}", self.spec())));
        }
        let made = match out {
            Some(out) => out,
            None => blank(py, transform.outputs(), length)?,
        };
        if made.len() != transform.outputs() {
            return Err(refused(format!("out: {} blocks are made, not {}", transform.outputs(), made.len())));
        }
        let mut rooms = made.iter().map(Room::of).collect::<PyResult<Vec<_>>>()?;
        let mut spans: Vec<_> = rooms.iter().map(Room::span).collect();
        if spans.iter().any(|span| span.len() != length) {
            return Err(refused(format!("out: the blocks have {length} bytes each")));
        }
        // What is written must overlap nothing else. What is only read may.
        spans.sort_by_key(|span| span.start);
        let is_written = |block: &[u8]| {
            let begin = block.as_ptr() as usize;
            spans.iter().any(|span| span.start < begin + length && begin < span.end)
        };
        if spans.windows(2).any(|pair| pair[0].end > pair[1].start) || sources.iter().any(|block| is_written(block)) {
            return Err(refused("out: the blocks overlap each other or what is read"));
        }
        let mut outputs: Vec<&mut [u8]> = rooms.iter_mut().map(Room::bytes).collect();
        py.detach(|| self.partition.run(transform, &sources, &mut outputs));
        drop(outputs);
        Ok(made)
    }
}

//! XOR straight-line programs over bit planes, and their interpreter.
//!
//! A block of a bit-matrix code is cut into regions of `planes` packets; packet y of a region is
//! bit plane y (Jerasure's packet layout). The program says which input planes each output plane is
//! the sum of.

use crate::isa::Isa;
use crate::kernel::{Kernel, check};
use crate::plain::{CHUNK, sum};
use std::fmt;
use std::ops::Range;

/// Bytes of a packet that go through a whole program at a time when it runs on 64-bit words: long
/// enough that steps are not read again for every line, short enough that temporaries stay near.
const WORD_PIECE: usize = 512;

/// A value in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Plane {
    /// Plane `i % planes` of input block `i / planes`.
    Input(usize),
    /// An intermediate sum.
    Temporary(usize),
    /// Plane `i % planes` of output block `i / planes`.
    Output(usize),
}

/// One sum: `target = sources[0] + sources[1] + ..`; zero without sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What is made; each plane is made once.
    pub target: Plane,
    /// What it is the sum of, all inputs or made before.
    pub sources: Vec<Plane>,
}

/// A program: steps in the order they run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    planes: usize,
    inputs: usize,
    outputs: usize,
    temporaries: usize,
    steps: Vec<Step>,
}

impl Program {
    /// A program over blocks of `planes` planes each, with `inputs` input and `outputs` output
    /// blocks.
    ///
    /// # Panics
    /// When a step uses a plane that is not made yet, names a source twice, makes a plane twice, or
    /// an output is never made, or there are no planes or more than memory has: programmer errors.
    pub fn new(planes: usize, inputs: usize, outputs: usize, steps: Vec<Step>) -> Self {
        assert!(planes > 0, "a block has planes");
        let count = |blocks: usize| blocks.checked_mul(planes).expect("planes fit in memory");
        let (input_planes, output_planes) = (count(inputs), count(outputs));
        let temporaries = steps.iter().filter(|s| matches!(s.target, Plane::Temporary(_))).count();
        let mut made = vec![false; temporaries];
        let mut out = vec![false; output_planes];
        for step in &steps {
            let mut distinct = std::collections::HashSet::new();
            for source in &step.sources {
                assert!(distinct.insert(source), "{source:?} is named twice");
                assert!(
                    match *source {
                        Plane::Input(i) => i < input_planes,
                        Plane::Temporary(i) => made[i],
                        Plane::Output(i) => out[i],
                    },
                    "{source:?} is used before it is made"
                );
            }
            let slot = match step.target {
                Plane::Input(i) => panic!("input {i} is a target"),
                Plane::Temporary(i) => &mut made[i],
                Plane::Output(i) => &mut out[i],
            };
            assert!(!std::mem::replace(slot, true), "{:?} is made twice", step.target);
        }
        assert!(out.iter().all(|&o| o), "an output is never made");
        Self { planes, inputs, outputs, temporaries, steps }
    }

    /// Planes of a block.
    pub fn planes(&self) -> usize {
        self.planes
    }

    /// Input blocks.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Output blocks.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Intermediate sums.
    pub fn temporaries(&self) -> usize {
        self.temporaries
    }

    /// The steps in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Two-operand XORs in all.
    pub fn xors(&self) -> usize {
        self.steps.iter().map(|s| s.sources.len().saturating_sub(1)).sum()
    }

    /// Planes read and written, the fused count of Uezato (SC'21): each step reads its sources and
    /// writes its target.
    pub fn memory_touches(&self) -> usize {
        self.steps.iter().map(|s| s.sources.len() + 1).sum()
    }

    /// Runs the program step by step on the regions of `at`, whose bounds are multiples of
    /// `planes * packet`.
    ///
    /// # Panics
    /// On other bounds, another number of blocks, or blocks that end before the range.
    pub fn interpret(
        &self,
        kernel: &dyn Kernel,
        packet: usize,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        at: Range<usize>,
    ) {
        check(inputs, outputs, &at);
        assert!(inputs.len() == self.inputs && outputs.len() == self.outputs, "block count");
        let region = self.planes.checked_mul(packet).filter(|&r| r > 0).expect("a region has bytes");
        assert!(at.start.is_multiple_of(region) && at.end.is_multiple_of(region), "{at:?} is not whole regions");
        if kernel.isa() == Isa::Plain {
            return self.in_words(packet, inputs, outputs, at);
        }
        // Temporaries of a piece of every plane stay in the second-level cache.
        let piece = packet.min((256 * 1024 / (self.temporaries + 1)).next_multiple_of(64).clamp(64, 4096));
        let mut temporaries = vec![vec![0u8; piece]; self.temporaries];
        let mut sum = vec![0u8; piece];
        for start in at.step_by(region) {
            for offset in (0..packet).step_by(piece) {
                let length = piece.min(packet - offset);
                let place = |i: usize| (i / self.planes, start + i % self.planes * packet + offset);
                for step in &self.steps {
                    let sources: Vec<&[u8]> = (step.sources.iter())
                        .map(|source| match *source {
                            Plane::Input(i) => &inputs[place(i).0][place(i).1..][..length],
                            Plane::Temporary(i) => &temporaries[i][..length],
                            Plane::Output(i) => &outputs[place(i).0][place(i).1..][..length],
                        })
                        .collect();
                    kernel.xor(&sources, &mut sum, 0..length);
                    let target = match step.target {
                        Plane::Temporary(i) => &mut temporaries[i][..length],
                        Plane::Output(i) => &mut outputs[place(i).0][place(i).1..][..length],
                        Plane::Input(_) => unreachable!("checked in new"),
                    };
                    target.copy_from_slice(&sum[..length]);
                }
            }
        }
    }

    /// As `interpret`, 64 bits at a time in general registers. A step has its sum there until it is
    /// stored, and nothing is allocated between two, so that packets may be as short as a cache
    /// line.
    fn in_words(&self, packet: usize, inputs: &[&[u8]], outputs: &mut [&mut [u8]], at: Range<usize>) {
        let mut temporaries = vec![[0u8; WORD_PIECE]; self.temporaries];
        for start in at.step_by(self.planes * packet) {
            for offset in (0..packet).step_by(WORD_PIECE) {
                let length = WORD_PIECE.min(packet - offset);
                let place = |i: usize| (i / self.planes, start + i % self.planes * packet + offset);
                for step in &self.steps {
                    for chunk in (0..length).step_by(CHUNK) {
                        let within = chunk..length.min(chunk + CHUNK);
                        let source = |source: &Plane| match *source {
                            Plane::Input(i) => &inputs[place(i).0][place(i).1..][within.clone()],
                            Plane::Temporary(i) => &temporaries[i][within.clone()],
                            Plane::Output(i) => &outputs[place(i).0][place(i).1..][within.clone()],
                        };
                        let mut made = [0; CHUNK];
                        let made = &mut made[..within.len()];
                        sum(step.sources.iter().map(source), made);
                        match step.target {
                            Plane::Temporary(i) => temporaries[i][within].copy_from_slice(made),
                            Plane::Output(i) => outputs[place(i).0][place(i).1..][within].copy_from_slice(made),
                            Plane::Input(_) => unreachable!("checked in new"),
                        }
                    }
                }
            }
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |plane: &Plane| match *plane {
            Plane::Input(i) => format!("d{}.{}", i / self.planes, i % self.planes),
            Plane::Temporary(i) => format!("t{i}"),
            Plane::Output(i) => format!("p{}.{}", i / self.planes, i % self.planes),
        };
        for step in &self.steps {
            let sources: Vec<String> = step.sources.iter().map(name).collect();
            let sum = if sources.is_empty() { "0".into() } else { sources.join(" + ") };
            writeln!(f, "{} = {sum}", name(&step.target))?;
        }
        Ok(())
    }
}

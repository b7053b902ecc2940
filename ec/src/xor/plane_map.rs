//! Running an XOR program over blocks: compiled where that works, interpreted elsewhere.

use gf::{Kernel, Program};
use std::fmt;
use std::ops::Range;
#[cfg(all(feature = "jit", target_arch = "x86_64"))]
use std::sync::OnceLock;

/// How planes lie in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Planes of a block, w.
    pub planes: usize,
    /// Bytes of a plane in one region.
    pub packet: usize,
    /// Whether a block may end with one shorter region, whose packets share its length equally.
    pub short_tail: bool,
}

impl Layout {
    /// Bytes of one region.
    pub fn region(self) -> usize {
        self.planes * self.packet
    }

    /// What block lengths are multiples of.
    pub fn unit(self) -> usize {
        if self.short_tail { self.planes } else { self.region() }
    }
}

/// A program ready to run in one layout.
pub(crate) struct PlaneMap {
    program: Program,
    layout: Layout,
    #[cfg(all(feature = "jit", target_arch = "x86_64"))]
    compiled: Option<gf::jit::Compiled>,
    /// For input blocks that crowd each other out of the first-level cache, for outputs that leave
    /// the caches anyway, and for both; made when they are first needed.
    #[cfg(all(feature = "jit", target_arch = "x86_64"))]
    variants: [OnceLock<Option<gf::jit::Compiled>>; 3],
}

impl PlaneMap {
    pub fn new(kernel: &dyn Kernel, program: Program, layout: Layout) -> Self {
        assert_eq!(program.planes(), layout.planes, "planes of program and layout");
        #[cfg(not(all(feature = "jit", target_arch = "x86_64")))]
        let _ = kernel;
        Self {
            #[cfg(all(feature = "jit", target_arch = "x86_64"))]
            compiled: compile(kernel, &program, layout.packet, gf::jit::Style::default()),
            #[cfg(all(feature = "jit", target_arch = "x86_64"))]
            variants: Default::default(),
            program,
            layout,
        }
    }

    pub fn region_bytes(&self) -> usize {
        self.layout.region()
    }

    /// Runs on the bytes of `at`, which begins at a region's begin; `streaming`: no code reads the
    /// outputs soon.
    pub fn run(
        &self,
        kernel: &dyn Kernel,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        at: Range<usize>,
        streaming: bool,
    ) {
        let region = self.layout.region();
        assert!(at.start.is_multiple_of(region), "{} is inside a region of {region} bytes", at.start);
        let whole = at.start..at.end - at.len() % region;
        let tail = whole.end..at.end;
        if !whole.is_empty() {
            self.regions(kernel, self.layout.packet, inputs, outputs, whole, streaming);
        }
        if !tail.is_empty() {
            let last = inputs.iter().all(|b| b.len() == tail.end) && tail.len().is_multiple_of(self.layout.planes);
            assert!(self.layout.short_tail && last, "{tail:?} is a part of a region, and not the last");
            self.tail(kernel, inputs, outputs, tail);
        }
    }

    fn regions(
        &self,
        kernel: &dyn Kernel,
        bytes: usize,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        at: Range<usize>,
        streaming: bool,
    ) {
        #[cfg(all(feature = "jit", target_arch = "x86_64"))]
        if let Some(compiled) = &self.compiled {
            // A register of a whole cache line takes the line at once and gains nothing by
            // gathering.
            let gathered = compiled.lane() == gf::jit::Lane::Avx2 && crowded(inputs, self.layout);
            let variant = self.variant(kernel, gf::jit::Style { gathered, streaming });
            let fitting = variant.filter(|v| v.fits(outputs, at.start));
            return fitting.unwrap_or(compiled).run_partial(inputs, outputs, at, bytes);
        }
        let _ = (bytes, streaming);
        self.program.interpret(kernel, self.layout.packet, inputs, outputs, at);
    }

    /// The program compiled in another style than the plain one.
    #[cfg(all(feature = "jit", target_arch = "x86_64"))]
    fn variant(&self, kernel: &dyn Kernel, style: gf::jit::Style) -> Option<&gf::jit::Compiled> {
        let at = (usize::from(style.gathered) + 2 * usize::from(style.streaming)).checked_sub(1)?;
        self.variants[at].get_or_init(|| compile(kernel, &self.program, self.layout.packet, style)).as_ref()
    }

    /// The last, shorter region goes through one of full length.
    fn tail(&self, kernel: &dyn Kernel, inputs: &[&[u8]], outputs: &mut [&mut [u8]], at: Range<usize>) {
        let (region, packet) = (self.layout.region(), self.layout.packet);
        let short = at.len() / self.layout.planes;
        let mut scratch = vec![0u8; (inputs.len() + outputs.len()) * region];
        let (head, back) = scratch.split_at_mut(inputs.len() * region);
        for (wide, input) in head.chunks_exact_mut(region).zip(inputs) {
            for (to, from) in wide.chunks_exact_mut(packet).zip(input[at.clone()].chunks_exact(short)) {
                to[..short].copy_from_slice(from);
            }
        }
        let wide_inputs: Vec<&[u8]> = head.chunks_exact(region).collect();
        let mut wide_outputs: Vec<&mut [u8]> = back.chunks_exact_mut(region).collect();
        self.regions(kernel, short, &wide_inputs, &mut wide_outputs, 0..region, false);
        for (output, wide) in outputs.iter_mut().zip(wide_outputs) {
            for (to, from) in output[at.clone()].chunks_exact_mut(short).zip(wide.chunks_exact(packet)) {
                to.copy_from_slice(&from[..short]);
            }
        }
    }
}

/// Compiled for the widest registers that the kernel in use stands for, so that a forced kernel is
/// obeyed here too.
#[cfg(all(feature = "jit", target_arch = "x86_64"))]
fn compile(kernel: &dyn Kernel, program: &Program, packet: usize, style: gf::jit::Style) -> Option<gf::jit::Compiled> {
    use gf::Isa;
    use gf::jit::{Compiled, Lane};
    match kernel.isa() {
        Isa::Naive | Isa::Plain | Isa::Ssse3 => None,
        Isa::Avx512 | Isa::GfniAvx512 => Compiled::new(program, packet, Lane::Avx512, style)
            .or_else(|| Compiled::new(program, packet, Lane::Avx2, style)),
        _ => Compiled::new(program, packet, Lane::Avx2, style),
    }
}

/// Whether more planes of the inputs begin in one set of the first-level cache than it has ways to
/// spare beside the outputs: true of page-aligned blocks, whose lines then evict each other between
/// two uses.
#[cfg(all(feature = "jit", target_arch = "x86_64"))]
fn crowded(inputs: &[&[u8]], layout: Layout) -> bool {
    const SETS: usize = 64;
    const WAYS: u16 = 6;
    let mut lines = [0u16; SETS];
    for block in inputs {
        for plane in 0..layout.planes {
            lines[(block.as_ptr().addr() + plane * layout.packet) / 64 % SETS] += 1;
        }
    }
    lines.iter().any(|&count| count > WAYS)
}

impl fmt::Debug for PlaneMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an XOR program of {} XORs", self.program.xors())?;
        #[cfg(all(feature = "jit", target_arch = "x86_64"))]
        if let Some(compiled) = &self.compiled {
            return write!(f, ", compiled ({} bytes, {:?})", compiled.code_bytes(), compiled.lane());
        }
        write!(f, ", interpreted")
    }
}

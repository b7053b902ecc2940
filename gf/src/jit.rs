//! XOR programs compiled to straight-line machine code: one register's width of every plane in one
//! go, intermediate sums in registers, the loop running over the bytes of a packet.
//!
//! The compiler knows the whole program, so it evicts the register whose value is needed last
//! (Belady), re-reads inputs instead of spilling them, and folds loads into the XORs.

use crate::factors::Aligned;
use crate::program::{Plane, Program, Step};
use iced_x86::IcedError;
use iced_x86::code_asm::*;
use std::collections::HashMap;

/// The instruction sets that the compiler writes for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// 32 bytes, VEX encoding.
    Avx2,
    /// 64 bytes, EVEX encoding, three-way XOR.
    Avx512,
}

impl Lane {
    /// Bytes of a register.
    const fn bytes(self) -> usize {
        match self {
            Self::Avx2 => 32,
            Self::Avx512 => 64,
        }
    }

    const fn registers(self) -> usize {
        match self {
            Self::Avx2 => 16,
            Self::Avx512 => 32,
        }
    }
}

/// How the code gets at blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// First copies each turn's input bytes together: dearer, but it touches each of the inputs'
    /// cache lines once, for blocks that compete for the same cache sets.
    pub gathered: bool,
    /// Writes outputs past the caches, line by line at the end of each turn: for blocks that leave
    /// the caches before anybody reads them. The memory behind a line is then not read before it is
    /// overwritten.
    pub streaming: bool,
}

/// Bytes of every plane in one turn of the loop: a cache line, whatever the width of the registers,
/// so that a line is used up before others take its place.
const TURN_BYTES: usize = 64;

/// Programs that read more planes than this would leave the instruction cache many times over; they
/// are interpreted. It also bounds the spilled temporaries.
const MAX_SOURCES: usize = 12_000;

/// The most bytes of a region, and of gathered inputs: every displacement in the code stays far
/// inside 32 bits.
const MAX_REGION_BYTES: usize = 1 << 28;

/// `fn(blocks, start, end, scratch, regions)`: runs the program on bytes `start..end` of every
/// packet of `regions` regions, in whole turns. `blocks` holds the addresses of the first region in
/// the input blocks, then in the output blocks.
type Entry = unsafe extern "sysv64" fn(*const *mut u8, usize, usize, *mut u8, usize);

/// A compiled program.
pub struct Compiled {
    code: memmap2::Mmap,
    lane: Lane,
    style: Style,
    packet: usize,
    planes: usize,
    blocks: usize,
    inputs: usize,
    /// Gathered inputs, and intermediate sums that found no register.
    scratch_bytes: usize,
}

impl Compiled {
    /// Compiles for packets of `packet` bytes.
    ///
    /// None where this cannot be done: packets shorter than a turn (streaming: not whole turns), a
    /// processor without the instructions, a system that forbids new code, a program too long to be
    /// worth it.
    pub fn new(program: &Program, packet: usize, lane: Lane, style: Style) -> Option<Self> {
        let runs = match lane {
            Lane::Avx2 => std::arch::is_x86_feature_detected!("avx2"),
            Lane::Avx512 => std::arch::is_x86_feature_detected!("avx512f"),
        };
        let small = |bytes: Option<usize>| bytes.is_some_and(|b| b <= MAX_REGION_BYTES);
        let region = program.planes().checked_mul(packet);
        let gathered_bytes = ((program.inputs() + program.outputs()) * program.planes()).checked_mul(TURN_BYTES);
        let sources: usize = program.steps().iter().map(|s| s.sources.len().max(1)).sum();
        let turns = packet >= TURN_BYTES && (!style.streaming || packet.is_multiple_of(TURN_BYTES));
        if !runs || !turns || sources > MAX_SOURCES || !small(region) || !small(gathered_bytes) {
            return None;
        }
        let (code, scratch_bytes) = Compiler::new(program, packet, lane, style).ok()?.compile(program).ok()?;
        let mut map = memmap2::MmapMut::map_anon(code.len()).ok()?;
        map.copy_from_slice(&code);
        Some(Self {
            code: map.make_exec().ok()?,
            lane,
            style,
            packet,
            planes: program.planes(),
            blocks: program.inputs() + program.outputs(),
            inputs: program.inputs(),
            scratch_bytes,
        })
    }

    /// Bytes of machine code.
    pub fn code_bytes(&self) -> usize {
        self.code.len()
    }

    /// Whether it can write to these blocks from `start` on: streaming stores want whole lines.
    pub fn fits(&self, outputs: &[&mut [u8]], start: usize) -> bool {
        !self.style.streaming || outputs.iter().all(|b| (b.as_ptr().addr() + start).is_multiple_of(TURN_BYTES))
    }

    /// Which instructions it uses.
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// Runs on the regions of `at`, whose bounds are multiples of `planes * packet`.
    ///
    /// # Panics
    /// On other bounds, another number of blocks, blocks that end before the range, or outputs that
    /// it does not fit.
    pub fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]], at: std::ops::Range<usize>) {
        self.run_partial(inputs, outputs, at, self.packet);
    }

    /// As `run`, panics included, but only the first `bytes` of every packet are made (at least;
    /// whole turns are written).
    pub fn run_partial(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]], at: std::ops::Range<usize>, bytes: usize) {
        crate::kernel::check(inputs, outputs, &at);
        let region = self.planes * self.packet;
        assert!(at.start.is_multiple_of(region) && at.end.is_multiple_of(region), "{at:?} is not whole regions");
        assert!(inputs.len() == self.inputs && inputs.len() + outputs.len() == self.blocks, "block count");
        assert!(self.fits(outputs, at.start), "an output to stream to does not begin at a line");
        let bytes = bytes.next_multiple_of(TURN_BYTES).min(self.packet);
        let whole = bytes - bytes % TURN_BYTES;
        // SAFETY: the map begins with the code of an `Entry`, written by `Compiler` for the sysv64
        // convention.
        let entry: Entry = unsafe { std::mem::transmute(self.code.as_ptr()) };
        let mut scratch = Aligned::zeroed(self.scratch_bytes);
        let scratch = scratch.as_mut_slice().as_mut_ptr();
        let blocks: Vec<*mut u8> = (inputs.iter().map(|b| b.as_ptr().cast_mut()))
            .chain(outputs.iter_mut().map(|b| b.as_mut_ptr()))
            .map(|p| p.wrapping_add(at.start))
            .collect();
        let regions = at.len() / region;
        if regions == 0 {
            return;
        }
        // SAFETY: every block reaches `at.end` (checked above), and the code touches `regions`
        // times `planes * packet` bytes from each pointer, reads only inputs and outputs already
        // made, and writes only outputs. A last turn that overlaps the one before computes the same
        // bytes again from inputs, which it never writes; streaming code, whose stores fault off a
        // line's begin, has none such, for its packets are whole turns and its outputs fit.
        unsafe {
            entry(blocks.as_ptr(), 0, whole, scratch, regions);
            if whole < bytes {
                entry(blocks.as_ptr(), bytes - TURN_BYTES, bytes, scratch, regions);
            }
        }
    }
}

/// General registers that hold block addresses; rdi, rsi, rax and rbp hold the table, end, offset
/// and scratch.
const POINTERS: [AsmRegister64; 11] = [rcx, rdx, rbx, r8, r9, r10, r11, r12, r13, r14, r15];

const YMM: [AsmRegisterYmm; 16] =
    [ymm0, ymm1, ymm2, ymm3, ymm4, ymm5, ymm6, ymm7, ymm8, ymm9, ymm10, ymm11, ymm12, ymm13, ymm14, ymm15];

#[rustfmt::skip]
const ZMM: [AsmRegisterZmm; 32] = [
    zmm0, zmm1, zmm2, zmm3, zmm4, zmm5, zmm6, zmm7, zmm8, zmm9, zmm10, zmm11, zmm12, zmm13, zmm14, zmm15,
    zmm16, zmm17, zmm18, zmm19, zmm20, zmm21, zmm22, zmm23, zmm24, zmm25, zmm26, zmm27, zmm28, zmm29, zmm30, zmm31,
];

/// Sources added in one go: fewer than the pointer registers, so that none is reassigned before it
/// is read, and than the vector registers, so that a target is always found.
const SOURCES_AT_ONCE: usize = 6;

/// For each value the steps that use it, the last first, so that the next use is dropped by
/// popping.
fn uses(program: &Program) -> HashMap<Plane, Vec<usize>> {
    let mut uses: HashMap<Plane, Vec<usize>> = HashMap::new();
    for (at, step) in program.steps().iter().enumerate().rev() {
        for source in &step.sources {
            uses.entry(*source).or_default().push(at);
        }
    }
    uses
}

/// An operand of a sum: in a register, or in memory.
#[derive(Clone, Copy)]
enum Source {
    Register(usize),
    Memory(AsmMemoryOperand),
}

struct Compiler {
    asm: CodeAssembler,
    lane: Lane,
    packet: usize,
    planes: usize,
    inputs: usize,
    /// What each vector register holds.
    held: Vec<Option<Plane>>,
    /// The position in `uses` of each value's next use.
    uses: HashMap<Plane, Vec<usize>>,
    /// Slots of spilled temporaries in the scratch area.
    slots: HashMap<Plane, usize>,
    spills: usize,
    style: Style,
    /// Where outputs of a turn that will be streamed begin in the scratch area, after the gathered
    /// inputs.
    output_base: usize,
    /// Where spilled temporaries begin there.
    spill_base: usize,
    /// Which block's address each pointer register holds, and when it was used last.
    pointers: Vec<(Option<usize>, usize)>,
    /// Bytes into the turn.
    offset: usize,
    clock: usize,
}

impl Compiler {
    fn new(program: &Program, packet: usize, lane: Lane, style: Style) -> Result<Self, IcedError> {
        let output_base = if style.gathered { program.inputs() * program.planes() * TURN_BYTES } else { 0 };
        let streamed = if style.streaming { program.outputs() * program.planes() * TURN_BYTES } else { 0 };
        Ok(Self {
            asm: CodeAssembler::new(64)?,
            lane,
            packet,
            planes: program.planes(),
            inputs: program.inputs(),
            held: vec![None; lane.registers()],
            uses: HashMap::new(),
            slots: HashMap::new(),
            spills: 0,
            style,
            output_base,
            spill_base: output_base + streamed,
            pointers: vec![(None, 0); POINTERS.len()],
            offset: 0,
            clock: 0,
        })
    }

    fn compile(mut self, program: &Program) -> Result<(Vec<u8>, usize), IcedError> {
        const SAVED: [AsmRegister64; 6] = [rbp, rbx, r12, r13, r14, r15];
        for register in SAVED {
            self.asm.push(register)?;
        }
        self.asm.push(r8)?;
        self.asm.mov(rax, rsi)?;
        self.asm.mov(rsi, rdx)?;
        self.asm.mov(rbp, rcx)?;
        self.asm.sub(rdx, rax)?;
        self.asm.push(rdx)?;
        // Now [rsp] holds the bytes of a packet to run, [rsp + 8] the regions to go.
        let blocks = program.inputs() + program.outputs();
        let resident = blocks <= POINTERS.len();
        if resident {
            for (block, &register) in POINTERS[..blocks].iter().enumerate() {
                self.asm.mov(register, qword_ptr(rdi + 8 * block))?;
                self.pointers[block].0 = Some(block);
            }
        }
        let mut again = self.asm.create_label();
        let mut done = self.asm.create_label();
        self.asm.cmp(rax, rsi)?;
        self.asm.jae(done)?;
        self.asm.set_label(&mut again)?;
        if self.style.gathered {
            self.gather(program)?;
        }
        for offset in (0..TURN_BYTES).step_by(self.lane.bytes()) {
            self.offset = offset;
            self.uses = uses(program);
            self.slots.clear();
            for step in program.steps() {
                self.emit(step)?;
            }
        }
        if self.style.streaming {
            self.scatter(program)?;
        }
        self.asm.add(rax, TURN_BYTES as i32)?;
        self.asm.cmp(rax, rsi)?;
        self.asm.jb(again)?;
        self.asm.dec(qword_ptr(rsp + 8))?;
        self.asm.jz(done)?;
        self.asm.add(rsi, (self.planes * self.packet) as i32)?;
        self.asm.mov(rax, rsi)?;
        self.asm.sub(rax, qword_ptr(rsp))?;
        self.asm.jmp(again)?;
        self.asm.set_label(&mut done)?;
        if self.style.streaming {
            // Other threads that learn of the outputs must see them.
            self.asm.sfence()?;
        }
        self.asm.add(rsp, 16)?;
        for register in SAVED.into_iter().rev() {
            self.asm.pop(register)?;
        }
        self.asm.vzeroupper()?;
        self.asm.ret()?;
        Ok((self.asm.assemble(0)?, self.spill_base + self.spills * self.lane.bytes()))
    }

    /// Writes the turn's outputs from the scratch area to their places, line by line and past the
    /// caches.
    fn scatter(&mut self, program: &Program) -> Result<(), IcedError> {
        for i in 0..program.outputs() * self.planes {
            for offset in (0..TURN_BYTES).step_by(self.lane.bytes()) {
                self.offset = offset;
                let to = self.block_address(self.inputs + i / self.planes, i % self.planes)?;
                let register = (i * TURN_BYTES + offset) / self.lane.bytes() % 4;
                self.load(register, ptr(rbp + (self.output_base + i * TURN_BYTES + offset) as i32))?;
                match self.lane {
                    Lane::Avx2 => self.asm.vmovntdq(to, YMM[register])?,
                    Lane::Avx512 => self.asm.vmovntdq(to, ZMM[register])?,
                }
            }
        }
        self.held.fill(None);
        Ok(())
    }

    /// Copies the turn's bytes of every input plane that is used into the scratch area.
    fn gather(&mut self, program: &Program) -> Result<(), IcedError> {
        let used = uses(program);
        for i in (0..program.inputs() * self.planes).filter(|&i| used.contains_key(&Plane::Input(i))) {
            for offset in (0..TURN_BYTES).step_by(self.lane.bytes()) {
                self.offset = offset;
                let from = self.block_address(i / self.planes, i % self.planes)?;
                // Two registers in turn, so that a load need not wait for the store before it.
                let register = (i * TURN_BYTES + offset) / self.lane.bytes() % 2;
                self.load(register, from)?;
                self.store(ptr(rbp + (i * TURN_BYTES + offset) as i32), register)?;
            }
        }
        Ok(())
    }

    /// One sum: a few sources at a time into one register, then to memory if it is an output.
    fn emit(&mut self, step: &Step) -> Result<(), IcedError> {
        let mut target = None;
        let mut rest = &step.sources[..];
        loop {
            let (chunk, after) = rest.split_at(rest.len().min(SOURCES_AT_ONCE));
            let mut pinned: Vec<usize> = target.into_iter().collect();
            let mut operands: Vec<Source> = target.map(Source::Register).into_iter().collect();
            for &source in chunk {
                let operand = self.operand(source, &pinned)?;
                if let Source::Register(register) = operand {
                    pinned.push(register);
                }
                operands.push(operand);
            }
            for source in chunk {
                self.uses.get_mut(source).expect("every source was counted").pop();
            }
            let dying = |&&r: &&usize| self.held[r].is_some_and(|v| self.next_use(v).is_none());
            let into = match target.or(pinned.iter().find(dying).copied()) {
                Some(register) => register,
                None => self.take_register(&pinned, None)?.expect("more registers than sources at once"),
            };
            // Registers first: the sum begins with them, and loads fold into the rest.
            operands.sort_by_key(|s| matches!(s, Source::Memory(_)));
            self.sum(into, &operands)?;
            for register in 0..self.held.len() {
                if self.held[register].is_some_and(|v| self.next_use(v).is_none()) {
                    self.held[register] = None;
                }
            }
            target = Some(into);
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        let target = target.expect("the loop ran");
        self.held[target] = self.next_use(step.target).is_some().then_some(step.target);
        if let Plane::Output(_) = step.target {
            let address = self.address(step.target)?;
            self.store(address, target)?;
        }
        Ok(())
    }

    fn next_use(&self, value: Plane) -> Option<usize> {
        self.uses.get(&value).and_then(|uses| uses.last().copied())
    }

    /// Where a source is read from. An input or spilled value that is needed again moves into a
    /// register if one is free or holds something needed later still.
    fn operand(&mut self, value: Plane, pinned: &[usize]) -> Result<Source, IcedError> {
        if let Some(register) = self.held.iter().position(|h| *h == Some(value)) {
            return Ok(Source::Register(register));
        }
        let address = self.address(value)?;
        // The last use on the list is this one, the one before it comes next.
        let following = self.uses.get(&value).and_then(|uses| uses.iter().rev().nth(1).copied());
        if let Some(next) = following
            && let Some(register) = self.take_register(pinned, Some(next))?
        {
            self.load(register, address)?;
            self.held[register] = Some(value);
            return Ok(Source::Register(register));
        }
        Ok(Source::Memory(address))
    }

    /// A register outside `pinned`: a free one, or the one whose value is needed last, spilled if
    /// it must be. With `before`, only if its value is needed later than that.
    fn take_register(&mut self, pinned: &[usize], before: Option<usize>) -> Result<Option<usize>, IcedError> {
        let candidates = (0..self.held.len()).filter(|r| !pinned.contains(r));
        let need = |r: &usize| self.held[*r].map_or(usize::MAX, |v| self.next_use(v).unwrap_or(usize::MAX));
        let Some(register) = candidates.max_by_key(need) else { return Ok(None) };
        if before.is_some_and(|next| need(&register) <= next) {
            return Ok(None);
        }
        if let Some(value) = self.held[register].take()
            && matches!(value, Plane::Temporary(_))
            && self.next_use(value).is_some()
            && !self.slots.contains_key(&value)
        {
            self.slots.insert(value, self.slots.len());
            self.spills = self.spills.max(self.slots.len());
            let address = self.address(value)?;
            self.store(address, register)?;
        }
        Ok(Some(register))
    }

    /// The memory behind a value, for the lane at the offset in rax.
    fn address(&mut self, value: Plane) -> Result<AsmMemoryOperand, IcedError> {
        match value {
            Plane::Temporary(_) => Ok(ptr(rbp + (self.spill_base + self.slots[&value] * self.lane.bytes()) as i32)),
            Plane::Output(i) if self.style.streaming => {
                Ok(ptr(rbp + (self.output_base + i * TURN_BYTES + self.offset) as i32))
            }
            Plane::Input(i) if self.style.gathered => Ok(ptr(rbp + (i * TURN_BYTES + self.offset) as i32)),
            Plane::Input(i) => self.block_address(i / self.planes, i % self.planes),
            Plane::Output(i) => self.block_address(self.inputs + i / self.planes, i % self.planes),
        }
    }

    fn block_address(&mut self, block: usize, plane: usize) -> Result<AsmMemoryOperand, IcedError> {
        let register = self.pointer(block)?;
        Ok(ptr(register + rax + (plane * self.packet + self.offset) as i32))
    }

    /// A general register with the block's address.
    fn pointer(&mut self, block: usize) -> Result<AsmRegister64, IcedError> {
        self.clock += 1;
        let found = self.pointers.iter().position(|&(held, _)| held == Some(block));
        let at = match found {
            Some(at) => at,
            None => {
                let at = (0..POINTERS.len()).min_by_key(|&i| self.pointers[i].1).expect("there are registers");
                self.asm.mov(POINTERS[at], qword_ptr(rdi + 8 * block))?;
                at
            }
        };
        self.pointers[at] = (Some(block), self.clock);
        Ok(POINTERS[at])
    }

    fn load(&mut self, register: usize, address: AsmMemoryOperand) -> Result<(), IcedError> {
        match self.lane {
            Lane::Avx2 => self.asm.vmovdqu(YMM[register], address),
            Lane::Avx512 => self.asm.vmovdqu64(ZMM[register], address),
        }
    }

    fn store(&mut self, address: AsmMemoryOperand, register: usize) -> Result<(), IcedError> {
        match self.lane {
            Lane::Avx2 => self.asm.vmovdqu(address, YMM[register]),
            Lane::Avx512 => self.asm.vmovdqu64(address, ZMM[register]),
        }
    }

    /// `target = sum of the sources`, registers before memory; the target may be one of the
    /// registers.
    fn sum(&mut self, target: usize, sources: &[Source]) -> Result<(), IcedError> {
        // Begin with the target itself if it is a source, so that it is not overwritten before it
        // is read.
        let mut rest: Vec<Source> = sources.to_vec();
        let own = rest.iter().position(|s| matches!(s, Source::Register(r) if *r == target));
        let mut begun = own.map(|at| rest.remove(at)).is_some();
        let mut rest = rest.into_iter().peekable();
        if !begun && rest.len() == 0 {
            return match self.lane {
                Lane::Avx2 => self.asm.vpxor(YMM[target], YMM[target], YMM[target]),
                Lane::Avx512 => self.asm.vpxorq(ZMM[target], ZMM[target], ZMM[target]),
            };
        }
        while let Some(source) = rest.next() {
            if !begun {
                begun = true;
                match (source, rest.peek().copied()) {
                    (Source::Register(a), Some(b)) => {
                        rest.next();
                        self.xor(target, a, b)?;
                    }
                    (Source::Register(a), None) => match self.lane {
                        Lane::Avx2 => self.asm.vmovdqa(YMM[target], YMM[a])?,
                        Lane::Avx512 => self.asm.vmovdqa64(ZMM[target], ZMM[a])?,
                    },
                    (Source::Memory(address), _) => self.load(target, address)?,
                }
            } else if let (Lane::Avx512, Source::Register(a), Some(b)) = (self.lane, source, rest.peek().copied()) {
                rest.next();
                match b {
                    Source::Register(b) => self.asm.vpternlogq(ZMM[target], ZMM[a], ZMM[b], XOR3)?,
                    Source::Memory(b) => self.asm.vpternlogq(ZMM[target], ZMM[a], b, XOR3)?,
                }
            } else {
                self.xor(target, target, source)?;
            }
        }
        Ok(())
    }

    fn xor(&mut self, target: usize, a: usize, b: Source) -> Result<(), IcedError> {
        match (self.lane, b) {
            (Lane::Avx2, Source::Register(b)) => self.asm.vpxor(YMM[target], YMM[a], YMM[b]),
            (Lane::Avx2, Source::Memory(b)) => self.asm.vpxor(YMM[target], YMM[a], b),
            (Lane::Avx512, Source::Register(b)) => self.asm.vpxorq(ZMM[target], ZMM[a], ZMM[b]),
            (Lane::Avx512, Source::Memory(b)) => self.asm.vpxorq(ZMM[target], ZMM[a], b),
        }
    }
}

/// The truth table of a XOR b XOR c.
const XOR3: u32 = 0x96;

//! Every kernel that runs here against the naive one: random shapes, odd lengths, unaligned blocks,
//! partial ranges.

use proptest::prelude::*;
use weft_gf::{
    Direct, Dyadic, DyadicGroup, Erasure, Group, Grouped, GroupedSpec, Isa, Kernel, NO_BLOCK, Way, naive::Naive, select,
};

/// The lengths where loops begin and end, and some at random.
fn length() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0), Just(1), Just(31), Just(63), Just(64), Just(65), Just(127), Just(129), 0..1000usize]
}

/// Blocks in one buffer each at its own odd offset, so that none is aligned.
struct Blocks {
    buffers: Vec<Vec<u8>>,
    length: usize,
}

impl Blocks {
    fn random(count: usize, length: usize, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let buffers = (0..count).map(|i| (0..length + 1 + i % 7).map(|_| random.u8(..)).collect()).collect();
        Self { buffers, length }
    }
    fn slices(&self) -> Vec<&[u8]> {
        self.buffers.iter().map(|b| &b[b.len() - self.length..]).collect()
    }
    fn slices_mut(&mut self) -> Vec<&mut [u8]> {
        let length = self.length;
        self.buffers
            .iter_mut()
            .map(|b| {
                let n = b.len();
                &mut b[n - length..]
            })
            .collect()
    }
}

/// Runs `operation` with every kernel on equal blocks and compares whole buffers, so that a stray
/// write shows.
fn agree(
    inputs: usize,
    outputs: usize,
    length: usize,
    seed: u64,
    operation: impl Fn(&dyn Kernel, &[&[u8]], &mut [&mut [u8]], std::ops::Range<usize>),
) {
    let input = Blocks::random(inputs, length, seed);
    let start = length / 5;
    for range in [0..length, start..length, start..length - length / 7] {
        let run = |kernel: &dyn Kernel| {
            let mut output = Blocks::random(outputs, length, seed + 1);
            operation(kernel, &input.slices(), &mut output.slices_mut(), range.clone());
            output.buffers
        };
        let expected = run(&Naive);
        for kernel in select::listed() {
            assert!(run(kernel) == expected, "{} differs on {range:?} of {length}", kernel.name());
        }
    }
}

/// What an operation makes of blocks at one distance from their lines, or (apart) at different
/// ones; with what lies between the blocks, so that a stray write shows.
fn in_spaced_blocks(
    count: usize,
    length: usize,
    skip: usize,
    apart: usize,
    operation: impl FnOnce(&mut [&mut [u8]], std::ops::Range<usize>),
) -> Vec<u8> {
    let pitch = length.next_multiple_of(64) + 64 + apart;
    let mut buffer = vec![0xA5u8; count * pitch + 256];
    let begin = buffer.as_ptr().align_offset(64) + skip;
    let blocks = buffer[begin..].chunks_exact_mut(pitch).take(count);
    operation(&mut blocks.map(|b| &mut b[..length]).collect::<Vec<_>>(), length / 5..length);
    buffer[begin - skip..][..count * pitch + skip].to_vec()
}

/// `counts` groups of all points of a coset, of two, and of one.
fn random_dyadic(outputs: usize, counts: [usize; 3], seed: u64) -> Vec<DyadicGroup> {
    let mut random = fastrand::Rng::with_seed(seed);
    let sizes = counts.into_iter().zip([outputs.next_power_of_two(), 2, 1]);
    let mut groups: Vec<DyadicGroup> = Vec::new();
    let mut next = 0..;
    for size in sizes.flat_map(|(count, size)| std::iter::repeat_n(size, count)) {
        let coefficients = std::array::from_fn(|_| random.u8(..));
        groups.push(DyadicGroup { blocks: next.by_ref().take(size).collect(), coefficients });
    }
    groups
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn xor(inputs in 0..40usize, length in length(), seed: u64) {
        agree(inputs, 1, length, seed >> 1, |k, i, o, at| k.xor(i, o[0], at));
    }

    #[test]
    fn multiply_add(factors: Vec<u8>, length in length(), seed: u64) {
        let factors = &factors[..factors.len().min(9)];
        agree(1, factors.len(), length, seed >> 1, |k, i, o, at| k.multiply_add(&k.factors(factors), i[0], o, at));
    }

    #[test]
    fn pq(inputs in 1..30usize, length in length(), seed: u64) {
        agree(inputs, 2, length, seed >> 1, |k, i, o, at| {
            let [p, q] = o else { unreachable!() };
            k.pq(i, p, q, at);
        });
    }

    #[test]
    fn grouped_in_registers(level in 0..3usize, columns in 1..9usize, rows in 1..9usize, length in length(),
            ones: bool, gap: bool, pass in 1..9usize, seed: u64) {
        let size = 1 << level;
        let mut spec = random_map(size, columns, rows, ones, seed);
        if gap && size > 1 {
            *spec.outputs.last_mut().unwrap().blocks.last_mut().unwrap() = NO_BLOCK;
        }
        agree(columns * size, rows * size, length, seed >> 1, |k, i, o, at| {
            k.grouped(&Grouped::new(k, spec.clone(), Way::Registers, pass), i, o, at);
        });
    }

    #[test]
    fn grouped_in_a_tile(level in 0..6usize, columns in 1..5usize, rows in 1..9usize, length in length(),
            gaps: bool, scaled: bool, width in 1..4usize, seed: u64) {
        let size = 1 << level;
        let mut random = fastrand::Rng::with_seed(seed);
        let mut spec = random_map(size, columns, rows, false, seed);
        if gaps {
            // The last block of either side is nowhere in the groups; the output is then made by
            // direct terms only if some group names it, so it is left out of the count too.
            for group in [spec.inputs.last_mut().unwrap(), spec.outputs.last_mut().unwrap()] {
                if size > 1 {
                    *group.blocks.last_mut().unwrap() = NO_BLOCK;
                }
            }
            spec.direct = (0..3).map(|_| Direct {
                output: random.usize(..rows * size), input: random.usize(..columns * size), coefficient: random.u8(..),
            }).collect();
        }
        if scaled {
            spec.input_scale = (0..columns * size).map(|_| random.u8(..)).collect();
            spec.output_scale = (0..rows * size).map(|_| random.u8(..)).collect();
        }
        agree(columns * size, rows * size, length, seed >> 1, |k, i, o, at| {
            k.grouped(&Grouped::new(k, spec.clone(), Way::Tile { width: 64 * width }, 6), i, o, at);
        });
    }

    #[test]
    fn streaming_is_grouped(tile: bool, level in 0..4usize, columns in 1..9usize, rows in 1..9usize, gap: bool,
            length in prop_oneof![length(), 0..5000usize], skip in 0..130usize, apart in 0..2usize, seed: u64) {
        let size = if tile { 1 << level } else { 1 << (level % 3) };
        let mut spec = random_map(size, columns, rows, false, seed);
        if gap && size > 1 {
            *spec.outputs.last_mut().unwrap().blocks.last_mut().unwrap() = NO_BLOCK;
        }
        let input = Blocks::random(columns * size, length, seed >> 1);
        for kernel in select::listed() {
            let way = if tile { Way::Tile { width: 192 } } else { Way::Registers };
            let map = Grouped::new(kernel, spec.clone(), way, 6);
            let run = |streaming| in_spaced_blocks(rows * size, length, skip, apart, |blocks, at| {
                if streaming {
                    kernel.grouped_streaming(&map, &input.slices(), blocks, at);
                } else {
                    kernel.grouped(&map, &input.slices(), blocks, at);
                }
            });
            prop_assert!(run(true) == run(false), "{} {:?}", kernel.name(), way);
        }
    }

    #[test]
    fn dyadic(
        outputs in 2..5usize, full in 1..6usize, halves in 0..3usize, ones in 0..3usize, length in length(),
        seed: u64
    ) {
        let groups = random_dyadic(outputs, [full, halves, ones], seed);
        let inputs = groups.iter().map(|g| g.blocks.len()).sum();
        agree(inputs, outputs, length, seed >> 1, |k, i, o, at| {
            k.dyadic(&Dyadic::new(k, outputs, groups.clone()), i, o, at);
        });
    }

    #[test]
    fn streaming_is_dyadic(outputs in 2..5usize, full in 1..6usize, ones in 0..3usize,
            length in prop_oneof![length(), 0..5000usize], skip in 0..130usize, apart in 0..2usize, seed: u64) {
        let groups = random_dyadic(outputs, [full, 0, ones], seed);
        let input = Blocks::random(groups.iter().map(|g| g.blocks.len()).sum(), length, seed >> 1);
        for kernel in select::listed() {
            let map = Dyadic::new(kernel, outputs, groups.clone());
            let made = |streaming| in_spaced_blocks(outputs, length, skip, apart, |blocks, at| {
                if streaming {
                    kernel.dyadic_streaming(&map, &input.slices(), blocks, at);
                } else {
                    kernel.dyadic(&map, &input.slices(), blocks, at);
                }
            });
            prop_assert!(made(true) == made(false), "{}", kernel.name());
        }
    }

    #[test]
    fn erasure(
        level in 1..9usize, known in 1..200usize,
        length in prop_oneof![Just(0usize), Just(1), Just(65), 0..200usize], seed: u64
    ) {
        let size = 1 << level;
        let mut points: Vec<usize> = (0..size).collect();
        fastrand::Rng::with_seed(seed).shuffle(&mut points);
        let (inputs, outputs) = points.split_at(known.min(size - 1));
        let outputs = &outputs[..outputs.len().min(20)];
        agree(inputs.len(), outputs.len(), length, seed >> 1, |k, i, o, at| {
            k.erasure(&Erasure::new(k, size, inputs, outputs, |p| (p % 255) as u8 + 1), i, o, at);
        });
    }
}

fn random_map(size: usize, columns: usize, rows: usize, ones: bool, seed: u64) -> GroupedSpec {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut groups = |n: usize| {
        (0..n)
            .map(|g| Group {
                shift: (if g == 0 && random.bool() { 0 } else { random.usize(..256 / size) * size }) as u8,
                blocks: (g * size..(g + 1) * size).collect(),
            })
            .collect::<Vec<_>>()
    };
    let (inputs, outputs) = (groups(columns), groups(rows));
    let mut matrix: Vec<u8> = (0..columns * rows).map(|_| random.u8(..)).collect();
    if ones {
        matrix[..columns].fill(1);
    }
    GroupedSpec { size, inputs, outputs, matrix, ..GroupedSpec::default() }
}

#[test]
fn the_erasure_transform_recovers_an_evaluation_code() {
    use weft_gf::field::{mul, power};
    // Values of a random polynomial of degree < 5 at 16 points; five known ones give back all
    // others.
    let coefficients = [7, 0, 200, 3, 91u8];
    let value = |x: usize| (0..5).fold(0, |sum, c| sum ^ mul(coefficients[c], power(x as u8, c)));
    let (inputs, outputs) = ([1, 4, 9, 14, 15], [0, 2, 3, 13]);
    let blocks: Vec<[u8; 1]> = inputs.iter().map(|&x| [value(x)]).collect();
    let mut lost = [[0u8; 1]; 4];
    let map = Erasure::new(&Naive, 16, &inputs, &outputs, |_| 1);
    let (ins, mut outs): (Vec<&[u8]>, Vec<&mut [u8]>) =
        (blocks.iter().map(|b| &b[..]).collect(), lost.iter_mut().map(|b| &mut b[..]).collect());
    Naive.erasure(&map, &ins, &mut outs, 0..1);
    assert_eq!(lost.map(|b| b[0]), outputs.map(value));
}

#[test]
fn inputs_larger_than_the_first_level_cache() {
    const BLOCK_BYTES: usize = 20_123;
    for outputs in 2..5 {
        let groups = random_dyadic(outputs, [2, 1, 1], outputs as u64);
        let inputs = groups.iter().map(|g| g.blocks.len()).sum();
        agree(inputs, outputs, BLOCK_BYTES, 9, |k, i, o, at| {
            k.dyadic(&Dyadic::new(k, outputs, groups.clone()), i, o, at)
        });
    }
    for (columns, rows) in [(2, 1), (3, 1), (4, 1), (5, 1), (8, 2), (8, 4), (5, 7)] {
        let spec = random_map(1, columns, rows, false, columns as u64);
        agree(columns, rows, BLOCK_BYTES, 9, |k, i, o, at| {
            k.grouped(&Grouped::new(k, spec.clone(), Way::Registers, 6), i, o, at);
        });
    }
}

#[test]
fn many_inputs_and_outputs_fit() {
    let spec = GroupedSpec::matrix(128, &[3; 128 * 128]);
    agree(128, 128, 200, 5, |k, i, o, at| {
        k.grouped(&Grouped::new(k, spec.clone(), Way::Registers, 6), i, o, at);
    });
}

/// A random program: sums of anything made before, each output made once.
#[cfg(all(feature = "jit", target_arch = "x86_64"))]
fn random_program(planes: usize, inputs: usize, outputs: usize, temporaries: usize, seed: u64) -> weft_gf::Program {
    use weft_gf::{Plane, Step};
    let mut random = fastrand::Rng::with_seed(seed);
    let mut made: Vec<Plane> = (0..planes * inputs).map(Plane::Input).collect();
    let mut targets: Vec<Plane> = (0..temporaries).map(Plane::Temporary).collect();
    targets.extend((0..planes * outputs).map(Plane::Output));
    let steps = targets.into_iter().map(|target| {
        let count = if random.u8(..) < 20 { 0 } else { random.usize(1..made.len().min(30) + 1) };
        random.shuffle(&mut made);
        let sources = made[..count].to_vec();
        made.push(target);
        Step { target, sources }
    });
    weft_gf::Program::new(planes, inputs, outputs, steps.collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    #[cfg(all(feature = "jit", target_arch = "x86_64"))]
    fn compiled_programs_do_what_interpreted_ones_do(planes in 1..9usize, inputs in 1..20usize, outputs in 1..5usize,
            temporaries in 0..60usize, packet in 32..200usize, regions in 1..4usize, seed: u64) {
        use weft_gf::jit::{Compiled, Lane, Style};
        let program = random_program(planes, inputs, outputs, temporaries, seed);
        let length = planes * packet * regions;
        let input = Blocks::random(inputs, length, seed >> 1);
        type Run<'a> = &'a dyn Fn(&[&[u8]], &mut [&mut [u8]]);
        let run = |f: Run<'_>| {
            let mut output = Blocks::random(outputs, length, seed >> 2);
            f(&input.slices(), &mut output.slices_mut());
            output.buffers
        };
        let expected = run(&|i, o| program.interpret(&Naive, packet, i, o, 0..length));
        for kernel in select::listed() {
            prop_assert!(run(&|i, o| program.interpret(kernel, packet, i, o, 0..length)) == expected);
        }
        for lane in [Lane::Avx2, Lane::Avx512] {
            for gathered in [false, true] {
                if let Some(compiled) = Compiled::new(&program, packet, lane, Style { gathered, streaming: false }) {
                    prop_assert!(run(&|i, o| compiled.run(i, o, 0..length)) == expected, "{:?} {}", lane, gathered);
                }
            }
        }
    }

    #[test]
    #[cfg(all(feature = "jit", target_arch = "x86_64"))]
    fn streaming_programs_do_what_interpreted_ones_do(planes in 1..9usize, inputs in 1..20usize, outputs in 1..9usize,
            temporaries in 0..60usize, packet in 1..4usize, regions in 1..4usize, seed: u64) {
        use weft_gf::jit::{Compiled, Lane, Style};
        let program = random_program(planes, inputs, outputs, temporaries, seed);
        let packet = packet * 64;
        let length = planes * packet * regions;
        let input = Blocks::random(inputs, length, seed >> 1);
        let mut expected = vec![vec![0u8; length]; outputs];
        let mut targets: Vec<&mut [u8]> = expected.iter_mut().map(|b| &mut b[..]).collect();
        program.interpret(&Naive, packet, &input.slices(), &mut targets, 0..length);
        for lane in [Lane::Avx2, Lane::Avx512] {
            for gathered in [false, true] {
                let style = Style { gathered, streaming: true };
                prop_assert!(Compiled::new(&program, packet + 32, lane, style).is_none());
                let Some(compiled) = Compiled::new(&program, packet, lane, style) else { continue };
                let mut buffer = vec![0u8; outputs * length + 64];
                let skip = buffer.as_ptr().align_offset(64);
                let mut made: Vec<&mut [u8]> = buffer[skip..].chunks_exact_mut(length).take(outputs).collect();
                prop_assert!(compiled.fits(&made, 0) && !compiled.fits(&made, 16));
                compiled.run(&input.slices(), &mut made, 0..length);
                prop_assert!(made.iter().zip(&expected).all(|(m, e)| **m == e[..]), "{:?} {:?}", lane, style);
            }
        }
    }
}

#[test]
fn what_is_listed_is_found_and_what_is_not_has_its_name_in_the_error() {
    use select::{NoKernel, all, kernel};
    for available in all() {
        match available.listed {
            Some(listed) => assert_eq!(kernel(available.isa).unwrap().isa(), listed.isa()),
            None => assert!(
                kernel(available.isa).is_ok_and(|probed| probed.isa() == available.isa)
                    || NoKernel::NotHere(available.isa).to_string().contains(available.isa.name())
            ),
        }
    }
    assert_eq!(kernel(Isa::Naive).unwrap().name(), "naive");
    let forced = NoKernel::Forced(Box::new("sse9".parse::<Isa>().unwrap_err().into())).to_string();
    assert!(forced.starts_with("WEFT_KERNEL: ") && forced.contains("sse9"), "{forced}");
}

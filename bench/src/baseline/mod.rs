//! Gluster's published algorithm on this processor, as wide as SSE2, and without SIMD: what it has
//! over the published figures is the processor; what this engine has over it is the engine.
//!
//! Horner's rule on bit-sliced chunks: fragment r is (..(d0 r + d1) r + ..) + d(k-1), and each
//! multiplication by r is a list of XORs of 64-byte planes with common pairs taken out. Compiled
//! for the base instruction set, which on x86-64 has 128-bit registers. It is never used for
//! anything but this comparison.

mod words;

use crate::arena::{Arena, Stripe};
use crate::subject::{Job, Subject};
use std::time::Instant;

/// One bit of 512 symbols.
type Plane = [u64; 8];
const PLANE_BYTES: usize = 64;
const CHUNK_BYTES: usize = 8 * PLANE_BYTES;

/// Most values in a multiplication: eight planes and what is common to several rows.
const VALUES: usize = 32;

/// The subject: with 128-bit registers, or without SIMD.
pub enum Baseline {
    Vector,
    Words,
}

/// Multiplication by a constant: sums of earlier values, then which value each product plane is.
struct Multiplication {
    sums: Vec<(usize, usize)>,
    planes: [usize; 8],
}

impl Multiplication {
    fn by(r: u8) -> Self {
        // Row i has bit x where plane x of the factor goes into plane i of the product.
        let column = |x: u8| gf::field::mul(r, 1 << x);
        let mut rows: [u32; 8] = std::array::from_fn(|i| (0..8).map(|x| u32::from(column(x) >> i & 1) << x).sum());
        let mut sums = vec![];
        // Greedily, the pair that most rows have becomes a value of its own, until every row is one
        // value.
        while rows.iter().any(|row| row.count_ones() > 1) {
            let values = 8 + sums.len();
            let pairs = (0..values).flat_map(|a| (a + 1..values).map(move |b| (a, b)));
            let has = |row: u32, (a, b): (usize, usize)| row >> a & row >> b & 1 == 1;
            let uses = |pair: &(usize, usize)| rows.iter().filter(|&&row| has(row, *pair)).count();
            let Some(pair) = pairs.max_by_key(uses) else { break };
            let both = 1 << pair.0 | 1 << pair.1;
            rows.iter_mut().filter(|row| has(**row, pair)).for_each(|row| *row = *row & !both | 1 << values);
            sums.push(pair);
        }
        assert!(8 + sums.len() <= VALUES, "a multiplication takes few sums");
        Self { sums, planes: rows.map(|row| row.trailing_zeros() as usize) }
    }

    /// `value = value * r + chunk`.
    fn step(&self, values: &mut [Plane; VALUES], chunk: &[u8]) {
        for (at, &(a, b)) in self.sums.iter().enumerate() {
            values[(8 + at) % VALUES] = xor(values[a % VALUES], values[b % VALUES]);
        }
        let product: [Plane; 8] = std::array::from_fn(|i| values[self.planes[i] % VALUES]);
        for ((value, product), plane) in values.iter_mut().zip(product).zip(chunk.chunks_exact(PLANE_BYTES)) {
            *value = xor(product, load(plane));
        }
    }
}

fn xor(a: Plane, b: Plane) -> Plane {
    std::array::from_fn(|i| a[i] ^ b[i])
}

fn load(bytes: &[u8]) -> Plane {
    let (words, _) = bytes.as_chunks::<8>();
    std::array::from_fn(|i| u64::from_ne_bytes(words[i]))
}

fn encode(multiplications: &[Multiplication], inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
    let length = inputs[0].len();
    for at in (0..length).step_by(CHUNK_BYTES) {
        for (multiplication, output) in multiplications.iter().zip(outputs.iter_mut()) {
            let mut values = [[0u64; 8]; VALUES];
            for input in inputs {
                multiplication.step(&mut values, &input[at..at + CHUNK_BYTES]);
            }
            for (bytes, value) in
                output[at..at + CHUNK_BYTES].as_chunks_mut::<8>().0.iter_mut().zip(values.as_flattened())
            {
                *bytes = value.to_ne_bytes();
            }
        }
    }
}

impl Subject for Baseline {
    fn name(&self) -> &str {
        match self {
            Self::Vector => "gluster-2016",
            Self::Words => "gluster-2016-plain",
        }
    }

    fn version(&self) -> &str {
        "algorithm"
    }

    fn kernel(&self) -> &str {
        match self {
            Self::Vector => "128-bit",
            Self::Words => "64-bit",
        }
    }

    fn supports(&self, code: &str) -> bool {
        code == "gluster"
    }

    fn time_encode(&mut self, job: &Job) -> Result<f64, String> {
        let (k, fragments) = (job.k, job.k + job.m);
        let most = if let Self::Words = self { words::MAX_FRAGMENTS } else { 255 };
        if !job.block_bytes.is_multiple_of(CHUNK_BYTES) || fragments > most {
            return Err(format!("blocks are multiples of {CHUNK_BYTES} bytes, at most {most}"));
        }
        let multiplications: Vec<Multiplication> = (1..=fragments).map(|r| Multiplication::by(r as u8)).collect();
        let mut arena = Arena::of_blocks((k + fragments) * job.stripes, job.block_bytes);
        let (reads, makes) = (Vec::from_iter(0..k), Vec::from_iter(k..k + fragments));
        let stripes = arena.stripes(k + fragments, job.block_bytes).into_iter();
        let mut stripes: Vec<Stripe> = stripes.map(|blocks| Stripe::new(blocks, &reads, &makes)).collect();
        let mut run = |stripe: &mut Stripe| match self {
            Self::Vector => encode(&multiplications, &stripe.inputs, &mut stripe.outputs),
            Self::Words => words::encode(&stripe.inputs, &mut stripe.outputs),
        };
        stripes.iter_mut().take(1).for_each(&mut run);
        let start = Instant::now();
        (0..job.iterations).for_each(|_| stripes.iter_mut().for_each(&mut run));
        Ok(start.elapsed().as_secs_f64())
    }

    fn time_decode(&mut self, _: &Job, _: &[usize]) -> Result<f64, String> {
        Err("only encoding was published".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_makes_the_bytes_of_the_engines_gluster() {
        let (k, m, length) = (5, 3, 2 * CHUNK_BYTES);
        let mut arena = Arena::of_blocks(k, length);
        let stripe = arena.stripes(k, length).remove(0);
        let inputs: Vec<&[u8]> = stripe.iter().map(|b| &**b).collect();
        let code = crate::own::build(gf::select::listed()[0], "gluster", k, m, 0).unwrap();
        let multiplications: Vec<Multiplication> = (1..=8).map(Multiplication::by).collect();
        let mut made = vec![vec![vec![0u8; length]; k + m]; 3];
        let [own, baseline, plain] = &mut made[..] else { unreachable!() };
        code.encode(&inputs, &mut own.iter_mut().map(|b| &mut b[..]).collect::<Vec<_>>());
        encode(&multiplications, &inputs, &mut baseline.iter_mut().map(|b| &mut b[..]).collect::<Vec<_>>());
        words::encode(&inputs, &mut plain.iter_mut().map(|b| &mut b[..]).collect::<Vec<_>>());
        assert_eq!(own, baseline);
        assert_eq!(own, plain);
    }
}

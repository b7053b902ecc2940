//! Lists the kernels, says which of them run here, and times a matrix product with each.
//!
//! `cargo run --release -p weft-gf --example kernels`

use std::time::{Duration, Instant};
use weft_gf::{Kernel, naive, select};

/// Data blocks and parity blocks of the product.
const SHAPE: (usize, usize) = (10, 4);
/// A length that fits caches.
const BLOCK_BYTES: usize = 16 << 10;
const RUNS: u32 = 1000;

fn main() -> Result<(), select::NoKernel> {
    let (k, m) = SHAPE;
    let data: Vec<Vec<u8>> =
        (0..k).map(|block| (0..BLOCK_BYTES).map(|at| (at * (block + 3)) as u8).collect()).collect();
    // A Cauchy matrix: any k of the k + m blocks would give the data back.
    let column = |block: usize| -> Vec<u8> {
        (0..m).map(|parity| weft_gf::field::inv((k + parity) as u8 ^ block as u8)).collect()
    };
    let columns: Vec<Vec<u8>> = (0..k).map(column).collect();
    let expected = product(&naive::Naive, &columns, &data, 1).1;
    for each in select::all() {
        let Some(kernel) = each.listed else {
            println!("{:12} does not run here", each.isa.name());
            continue;
        };
        let (time, parity) = product(kernel, &columns, &data, RUNS);
        assert!(parity == expected, "all kernels give the same bytes");
        let mib = (k * BLOCK_BYTES) as f64 / f64::from(1 << 20) * f64::from(RUNS);
        println!("{:12} {:8.0} MiB/s", each.isa.name(), mib / time.as_secs_f64());
    }
    println!("chosen: {}", select::chosen()?.isa().name());
    Ok(())
}

/// Multiplies the data with the matrix, `runs` times; returns the time and the parity blocks.
fn product(kernel: &dyn Kernel, columns: &[Vec<u8>], data: &[Vec<u8>], runs: u32) -> (Duration, Vec<Vec<u8>>) {
    let factors: Vec<_> = columns.iter().map(|column| kernel.factors(column)).collect();
    let mut parity = vec![vec![0; BLOCK_BYTES]; SHAPE.1];
    let begun = Instant::now();
    for _ in 0..runs {
        parity.iter_mut().for_each(|block| block.fill(0));
        let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        for (factors, block) in factors.iter().zip(data) {
            kernel.multiply_add(factors, block, &mut outputs, 0..BLOCK_BYTES);
        }
    }
    (begun.elapsed(), parity)
}

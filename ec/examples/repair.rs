//! Encodes a stripe, loses as many blocks as the code survives, and repairs them.
//!
//! `cargo run --release -p weft-ec --example repair -- rs:10+4`

use std::error::Error;
use std::time::Instant;

/// Bytes of a block, before it is rounded up to what the code takes.
const BLOCK_BYTES: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let text = std::env::args().nth(1).unwrap_or_else(|| "rs:10+4".into());
    let code = weft_ec::parse(&text)?;
    let (k, blocks) = (code.shape().k, code.shape().blocks());
    let length = BLOCK_BYTES.next_multiple_of(code.unit());
    println!("{code:?}");

    // Encode. A non-systematic code stores coded blocks only; a systematic one stores the data,
    // then the parity.
    let data: Vec<Vec<u8>> = (0..k).map(|block| (0..length).map(|at| (at * (block + 3)) as u8).collect()).collect();
    let mut coded = vec![vec![0; length]; code.coded().len()];
    let start = Instant::now();
    code.encode(&slices(&data), &mut slices_mut(&mut coded));
    let mib = (k * length) as f64 / f64::from(1 << 20);
    println!("encoded {mib:.0} MiB at {:.0} MiB/s", mib / start.elapsed().as_secs_f64());
    let stored = if code.systematic() { [data, coded].concat() } else { coded };

    // Lose the first blocks.
    let lost: Vec<usize> = (0..code.tolerates()).collect();
    let have: Vec<usize> = (lost.len()..blocks).collect();

    // Repair them. The code chooses which of the blocks at hand it reads.
    let repair = code.repair(&lost, &have)?;
    let reads: Vec<&[u8]> = repair.reads().iter().map(|read| &stored[read.block][..]).collect();
    let mut repaired = vec![vec![0; length]; lost.len()];
    repair.run(&reads, &mut slices_mut(&mut repaired));
    for (&block, repaired) in lost.iter().zip(&repaired) {
        assert_eq!(repaired, &stored[block], "block {block}");
    }
    println!("lost blocks {lost:?}, repaired them from {} others", reads.len());

    // What cannot be repaired is an error that says why.
    if let Err(why) = code.repair(&Vec::from_iter(0..blocks), &[]) {
        println!("without any block: {why}");
    }
    Ok(())
}

fn slices(blocks: &[Vec<u8>]) -> Vec<&[u8]> {
    blocks.iter().map(Vec::as_slice).collect()
}

fn slices_mut(blocks: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    blocks.iter_mut().map(Vec::as_mut_slice).collect()
}

//! The published algorithm without SIMD: 64-bit words, a word of each of the eight planes in
//! general registers. Gluster has a function for each multiplier, written by a program; here the
//! compiler makes one from a list that it computes itself.

use super::{CHUNK_BYTES, PLANE_BYTES};
use gf::plain::in_register;

/// Most fragments that there is a function for: those of the published table.
pub const MAX_FRAGMENTS: usize = 20;

/// Most values in a multiplication: eight planes and what is common to several rows.
const VALUES: usize = 32;

/// Multiplication by a constant: sums of earlier values, then which value each product plane is.
struct Steps {
    sums: [(usize, usize); VALUES],
    count: usize,
    planes: [usize; 8],
}

/// Rows have a bit where a plane of the factor goes into a plane of the product. The pair of values
/// that most rows have becomes a value of its own, until every row is one value.
const fn steps(r: u8) -> Steps {
    let mut rows = [0u32; 8];
    let (mut column, mut x) = (r, 0);
    while x < 8 {
        let mut i = 0;
        while i < 8 {
            rows[i] |= ((column >> i & 1) as u32) << x;
            i += 1;
        }
        column = (column << 1) ^ if column & 0x80 != 0 { 0x1D } else { 0 };
        x += 1;
    }
    let mut steps = Steps { sums: [(0, 0); VALUES], count: 0, planes: [0; 8] };
    loop {
        let (mut best, mut uses, mut a) = ((0, 0), 0, 0);
        while a < 8 + steps.count {
            let mut b = a + 1;
            while b < 8 + steps.count {
                let (mut found, mut i) = (0, 0);
                while i < 8 {
                    found += rows[i] >> a & rows[i] >> b & 1;
                    i += 1;
                }
                if found > uses {
                    (best, uses) = ((a, b), found);
                }
                b += 1;
            }
            a += 1;
        }
        if uses == 0 {
            break;
        }
        let (both, mut i) = (1 << best.0 | 1 << best.1, 0);
        while i < 8 {
            if rows[i] & both == both {
                rows[i] = rows[i] & !both | 1 << (8 + steps.count);
            }
            i += 1;
        }
        steps.sums[steps.count] = best;
        steps.count += 1;
    }
    let mut i = 0;
    while i < 8 {
        steps.planes[i] = rows[i].trailing_zeros() as usize;
        i += 1;
    }
    steps
}

/// Makes fragment R: (..(d0 R + d1) R + ..) + d(k-1).
fn fragment<const R: u8>(inputs: &[&[u8]], output: &mut [u8]) {
    for (at, output) in output.chunks_exact_mut(CHUNK_BYTES).enumerate() {
        for word in (0..PLANE_BYTES).step_by(8) {
            let mut value = [0u64; 8];
            for input in inputs {
                let chunk = &input[at * CHUNK_BYTES..][..CHUNK_BYTES];
                let product = multiply::<R>(value);
                value = std::array::from_fn(|plane| {
                    let bytes = &chunk[plane * PLANE_BYTES + word..][..8];
                    in_register(product[plane] ^ u64::from_ne_bytes(bytes.try_into().expect("eight bytes")))
                });
            }
            for (plane, value) in value.iter().enumerate() {
                output[plane * PLANE_BYTES + word..][..8].copy_from_slice(&value.to_ne_bytes());
            }
        }
    }
}

#[inline(always)]
fn multiply<const R: u8>(value: [u64; 8]) -> [u64; 8] {
    let list = const { steps(R) };
    let mut values = [0; VALUES];
    values[..8].copy_from_slice(&value);
    for at in 0..const { steps(R).count } {
        let (a, b) = list.sums[at];
        values[8 + at] = in_register(values[a] ^ values[b]);
    }
    list.planes.map(|plane| values[plane])
}

macro_rules! fragments {
    ($($r:literal),+) => {
        const FRAGMENTS: [fn(&[&[u8]], &mut [u8]); MAX_FRAGMENTS] = [$(fragment::<$r>),+];
    };
}

fragments!(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20);

/// Makes all fragments, whose length is a multiple of a chunk's.
pub fn encode(inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
    outputs.iter_mut().zip(FRAGMENTS).for_each(|(output, fragment)| fragment(inputs, output));
}

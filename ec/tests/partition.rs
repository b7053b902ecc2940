//! Partition Encoding: regions, threads and fused checksums never change a byte.

use weft_ec::partition::{Partition, encode_checksummed};

fn stripe(code: &dyn weft_ec::Code, length: usize) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let mut random = fastrand::Rng::with_seed(length as u64);
    let data: Vec<Vec<u8>> = (0..code.shape().k).map(|_| (0..length).map(|_| random.u8(..)).collect()).collect();
    let mut coded = vec![vec![0u8; length]; code.coded().len()];
    let sources: Vec<&[u8]> = data.iter().map(|b| &b[..]).collect();
    code.encode(&sources, &mut coded.iter_mut().map(|b| &mut b[..]).collect::<Vec<_>>());
    (data, coded)
}

const CODES: [&str; 8] =
    ["rs:4+2", "rs:40+20", "crs:10+4", "crs:12+6", "gluster:4+2", "cauchy-good:4+2,packet=64", "raid6:5+2", "none:2"];

#[test]
fn regions_and_threads_give_the_same_bytes() {
    for text in CODES {
        let code = weft_ec::parse(text).unwrap();
        for length in [0, 1, 4096, 70_001, 300_000] {
            let length = usize::next_multiple_of(length, code.unit());
            let (data, coded) = stripe(&*code, length);
            let sources: Vec<&[u8]> = data.iter().map(|b| &b[..]).collect();
            for (region_bytes, threads) in [(None, 1), (Some(1), 1), (Some(5000), 3), (None, 2), (Some(1 << 30), 2)] {
                let mut made = vec![vec![0xAAu8; length]; coded.len()];
                let partition = Partition { region_bytes, threads };
                partition.run(code.encoder(), &sources, &mut made.iter_mut().map(|b| &mut b[..]).collect::<Vec<_>>());
                assert!(made == coded, "{text}, {length} bytes, {partition:?}");
            }
        }
    }
}

/// Stripes far larger than the caches, on lines and off them.
#[test]
fn large_stripes_have_the_bytes_of_small_ones() {
    for text in ["rs:10+4", "rs:9+3", "rs:40+20", "crs:10+4", "crs:12+6", "cauchy-good:4+2", "raid6:5+2"] {
        let code = weft_ec::parse(text).unwrap();
        let outputs = code.coded().len();
        let length = usize::next_multiple_of((64 << 20) / (code.shape().k + outputs), code.unit());
        let (data, coded) = stripe(&*code, length);
        let sources: Vec<&[u8]> = data.iter().map(|b| &b[..]).collect();
        for (skip, gap, threads) in [(0, 0, 1), (0, 64, 2), (16, 32, 1), (1, 0, 2)] {
            let pitch = length.next_multiple_of(64) + gap;
            let mut buffer = vec![0u8; outputs * pitch + 128];
            let begin = buffer.as_ptr().align_offset(64) + skip;
            let mut made: Vec<&mut [u8]> =
                buffer[begin..].chunks_exact_mut(pitch).take(outputs).map(|b| &mut b[..length]).collect();
            Partition { region_bytes: None, threads }.run(code.encoder(), &sources, &mut made);
            assert!(made.iter().zip(&coded).all(|(m, c)| **m == c[..]), "{text}, {skip} bytes off, {threads} threads");
        }
    }
}

#[test]
fn fused_checksums_are_those_of_the_granules() {
    for text in CODES {
        let code = weft_ec::parse(text).unwrap();
        for (length, granule) in [(0, 64), (1, 64), (100_000, 4096), (262_144, 65_536), (70_001, 1000)] {
            let length = usize::next_multiple_of(length, code.unit());
            let (data, coded) = stripe(&*code, length);
            let sources: Vec<&[u8]> = data.iter().map(|b| &b[..]).collect();
            let mut made = vec![vec![0u8; length]; coded.len()];
            let mut targets: Vec<&mut [u8]> = made.iter_mut().map(|b| &mut b[..]).collect();
            let sums = encode_checksummed(&*code, &sources, &mut targets, granule);
            assert!(made == coded, "{text}");
            let stored: Vec<&Vec<u8>> =
                if code.systematic() { data.iter().chain(&coded).collect() } else { coded.iter().collect() };
            assert_eq!(sums.len(), stored.len());
            for (sums, block) in sums.iter().zip(stored) {
                let expected: Vec<u64> = block.chunks(granule).map(gf::checksum::crc64).collect();
                assert_eq!(*sums, expected, "{text}, {length} bytes in granules of {granule}");
            }
        }
    }
}

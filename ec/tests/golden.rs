//! Parity of the real libraries, kept in `golden/` (made by `bench/peers/golden.py`): ours must
//! equal it, and their blocks must decode here, with every kernel.

use std::path::Path;
use weft_ec::{Code, Shape, Spec};

/// The data of the golden files: one splitmix64 stream.
fn data(k: usize, length: usize) -> Vec<Vec<u8>> {
    let mut state = 0x5745_4654u64;
    let mut next = move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    let bytes: Vec<u8> = (0..(k * length).div_ceil(8)).flat_map(|_| next().to_le_bytes()).collect();
    bytes[..k * length].chunks_exact(length).map(<[u8]>::to_vec).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |b: u8| char::from(b).to_digit(16).expect("a hex digit") as u8;
    text.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

/// The spec of a golden line: bit-matrix codes carry the packet of the line.
fn spec(name: &str, k: usize, m: usize, packet: usize) -> Spec {
    let (name, w) = name.split_once('/').map_or((name, None), |(name, w)| (name, Some(w)));
    let mut text = format!("{name}:{k}+{m}");
    if let Some(w) = w {
        text += &format!(",w={w}");
    }
    if packet > 0 {
        text += &format!(",packet={packet}");
    }
    text.parse().unwrap()
}

#[test]
fn parity_equals_the_real_libraries_and_their_blocks_decode() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut random = fastrand::Rng::with_seed(23);
    let mut lines = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        for line in std::fs::read_to_string(&path).unwrap().lines().filter(|l| !l.starts_with('#')) {
            lines += 1;
            let [name, k, m, packet, length, parity] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{}: {line}", path.display())
            };
            let number = |text: &str| text.parse::<usize>().unwrap();
            let spec = spec(name, number(k), number(m), number(packet));
            let (data, parity) = (data(number(k), number(length)), unhex(parity));
            for kernel in gf::select::listed() {
                let code = weft_ec::build(&spec, kernel).unwrap_or_else(|e| panic!("{spec}: {e}"));
                check(&*code, &data, &parity, &mut random);
            }
        }
    }
    assert!(lines > 250, "only {lines} golden lines were found");
}

fn check(code: &dyn Code, data: &[Vec<u8>], theirs: &[u8], random: &mut fastrand::Rng) {
    let Shape { k, m } = code.shape();
    let length = data[0].len();
    let mut parity = vec![0u8; m * length];
    let sources: Vec<&[u8]> = data.iter().map(|b| &b[..]).collect();
    code.encode(&sources, &mut parity.chunks_exact_mut(length).collect::<Vec<_>>());
    assert!(parity == theirs, "{code:?}: parity differs from the library's");

    let stored: Vec<&[u8]> = sources.iter().copied().chain(theirs.chunks_exact(length)).collect();
    let mut lost: Vec<usize> = (0..k + m).collect();
    random.shuffle(&mut lost);
    let have = lost.split_off(random.usize(1..=m));
    let repair = code.repair(&lost, &have).unwrap();
    let reads: Vec<&[u8]> = repair.reads().iter().map(|r| stored[r.block]).collect();
    let mut made = vec![0u8; lost.len() * length];
    repair.run(&reads, &mut made.chunks_exact_mut(length).collect::<Vec<_>>());
    assert!(
        made.chunks_exact(length).zip(&lost).all(|(made, &b)| made == stored[b]),
        "{code:?}: {lost:?} decode wrongly"
    );
}

//! Every erasure pattern of every small shape of every code: what can be repaired is, and nothing
//! else claims to be.

use std::sync::Arc;
use weft_ec::{Code, Shape};

/// Shapes small enough for all their patterns.
const CODES: &[&str] = &[
    "rs:1+1",
    "rs:2+1",
    "rs:4+2",
    "rs:3+3",
    "rs:5+3",
    "rs:8+4",
    "rs:1+4",
    "rs:10+3",
    "rs:6+6",
    "rs:4+8",
    "rs-points:4+2",
    "rs-points:5+3",
    "rs-points:8+4",
    "rs-points:2+6",
    "rs-isa-vandermonde:4+2",
    "rs-isa-vandermonde:7+3",
    "rs-isa-vandermonde:6+4",
    "rs-vandermonde:4+2",
    "rs-vandermonde:6+4",
    "zfec:3+7",
    "zfec:4+2",
    "cauchy-original:4+2,packet=64",
    "cauchy-original:5+3,packet=8",
    "cauchy-good:4+2,packet=32",
    "cauchy-good:5+3,packet=40",
    "liberation:2+2,packet=32",
    "liberation:4+2,packet=8",
    "liberation:7+2,packet=32",
    "liberation:5+2,w=11,packet=8",
    "evenodd:1+2,packet=32",
    "evenodd:3+2,packet=32",
    "evenodd:5+2,packet=8",
    "evenodd:6+2,packet=32",
    "evenodd:4+2,p=7,packet=32",
    "rdp:2+2,packet=32",
    "rdp:4+2,packet=8",
    "rdp:5+2,packet=32",
    "rdp:6+2,packet=32",
    "rdp:3+2,p=11,packet=32",
    "gluster:2+1",
    "gluster:4+2",
    "gluster:4+3",
    "crs:2+1",
    "crs:4+2",
    "crs:5+3",
    "crs:8+4",
    "crs:3+5",
    "crs:12+3",
    "crs:14+3",
    "crs:1+6",
    "raid6:1+2",
    "raid6:4+2",
    "raid6:9+2",
    "xor:1+1",
    "xor:5+1",
    "replica:1+3",
    "none:3",
    "none:3+2,unsafe=1",
    "lrc:4+2+2",
    "lrc:6+2+2",
    "lrc:6+3+1",
    "lrc:3+3+3",
];

/// A stripe: its data blocks, and its stored blocks.
fn stripe(code: &dyn Code, regions: usize, seed: u64) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let Shape { k, .. } = code.shape();
    let length = (code.unit() * regions).max(5);
    let length = length.next_multiple_of(code.unit());
    let mut random = fastrand::Rng::with_seed(seed);
    let data: Vec<Vec<u8>> = (0..k).map(|_| (0..length).map(|_| random.u8(..)).collect()).collect();
    let mut coded = vec![vec![0xEEu8; length]; code.coded().len()];
    code.encode(&slices(&data), &mut slices_mut(&mut coded));
    let stored = if code.systematic() { data.iter().cloned().chain(coded).collect() } else { coded };
    (data, stored)
}

fn slices(blocks: &[Vec<u8>]) -> Vec<&[u8]> {
    blocks.iter().map(|b| &b[..]).collect()
}

fn slices_mut(blocks: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    blocks.iter_mut().map(|b| &mut b[..]).collect()
}

fn run(repair: &weft_ec::Repair, stored: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let reads: Vec<&[u8]> = repair.reads().iter().map(|r| &stored[r.block][..]).collect();
    let mut makes = vec![vec![0x11u8; stored[0].len()]; repair.makes().len()];
    repair.run(&reads, &mut slices_mut(&mut makes));
    makes
}

#[test]
fn every_pattern_of_up_to_tolerated_losses_is_repaired() {
    for &text in CODES {
        let code: Arc<dyn Code> = weft_ec::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let Shape { k, m } = code.shape();
        let blocks = k + m;
        let (data, stored) = stripe(&*code, 2, 7);
        for pattern in 0u32..1 << blocks {
            let lost: Vec<usize> = (0..blocks).filter(|b| pattern >> b & 1 == 1).collect();
            // All patterns for small shapes; with more blocks the ones near the limit.
            if lost.len() > m + 1 || (blocks > 11 && !lost.is_empty() && lost.len() + 1 < m) {
                continue;
            }
            let have: Vec<usize> = (0..blocks).filter(|b| pattern >> b & 1 == 0).collect();
            match code.repair(&lost, &have) {
                Ok(repair) => {
                    assert!(lost.len() <= m, "{text} claims to repair {lost:?}");
                    let made = run(&repair, &stored);
                    assert!(
                        lost.iter().zip(&made).all(|(&b, made)| *made == stored[b]),
                        "{text} repairs {lost:?} wrongly"
                    );
                    assert!(repair.reads().len() <= k, "{text} reads too much");
                }
                Err(error) => {
                    assert!(lost.len() > code.tolerates(), "{text} cannot repair {lost:?}: {error}");
                    assert!(!error.blocks.is_empty());
                }
            }
            // Reading the data back needs the same patterns to work.
            let wanted: Vec<usize> =
                if code.systematic() { lost.iter().copied().filter(|&b| b < k).collect() } else { (0..k).collect() };
            if lost.len() <= code.tolerates() {
                let read = code.read(&wanted, &have).unwrap_or_else(|e| panic!("{text} reads {lost:?}: {e}"));
                let made = run(&read, &stored);
                assert!(
                    wanted.iter().zip(&made).all(|(&j, made)| *made == data[j]),
                    "{text} reads wrongly without {lost:?}"
                );
            }
        }
    }
}

#[test]
fn one_wanted_block_is_repaired_alone_among_several_losses() {
    for &text in CODES {
        let code = weft_ec::parse(text).unwrap();
        let (_, stored) = stripe(&*code, 1, 9);
        let blocks = code.shape().blocks();
        for wanted in 0..blocks {
            let also = (wanted + 1) % blocks;
            if code.tolerates() < 2 || also == wanted {
                continue;
            }
            let have: Vec<usize> = (0..blocks).filter(|&b| b != wanted && b != also).collect();
            let repair = code.repair(&[wanted], &have).unwrap();
            assert_eq!(run(&repair, &stored)[0], stored[wanted], "{text}, block {wanted} without {also}");
        }
    }
}

#[test]
fn accumulating_in_any_order_is_encoding_and_a_difference_updates() {
    for &text in CODES {
        let code = weft_ec::parse(text).unwrap();
        let (mut data, stored) = stripe(&*code, 3, 11);
        let coded = &stored[code.coded()];
        let mut sums = vec![vec![0u8; stored[0].len()]; coded.len()];
        let mut order: Vec<usize> = (0..data.len()).collect();
        fastrand::Rng::with_seed(1).shuffle(&mut order);
        for j in order {
            code.accumulate(j, &data[j], &mut slices_mut(&mut sums));
        }
        assert_eq!(sums, coded, "{text}");
        let difference: Vec<u8> = data[0].iter().enumerate().map(|(i, _)| (i * 7) as u8).collect();
        code.accumulate(0, &difference, &mut slices_mut(&mut sums));
        data[0].iter_mut().zip(&difference).for_each(|(d, x)| *d ^= x);
        let mut again = vec![vec![0u8; data[0].len()]; sums.len()];
        code.encode(&slices(&data), &mut slices_mut(&mut again));
        assert_eq!(sums, again, "{text}");
    }
}

#[test]
fn a_spec_names_its_code_for_ever() {
    for &text in CODES {
        let code = weft_ec::parse(text).unwrap();
        let canonical = code.spec().to_string();
        let again = weft_ec::parse(&canonical).unwrap();
        assert_eq!(again.spec().to_string(), canonical);
        assert_eq!(stripe(&*code, 2, 3), stripe(&*again, 2, 3));
    }
}

/// A pattern of an LRC that any code of its structure could repair: after each group's local parity
/// has mended one loss of the group, at most g losses are left.
fn information_allows(k: usize, l: usize, g: usize, lost: &[usize]) -> bool {
    let group_of = |b: usize| {
        if b < k {
            Some(b / (k / l))
        } else if b < k + l {
            Some(b - k)
        } else {
            None
        }
    };
    let mut left = 0;
    for group in 0..l {
        left += lost.iter().filter(|&&b| group_of(b) == Some(group)).count().saturating_sub(1);
    }
    left + lost.iter().filter(|&&b| b >= k + l).count() <= g
}

#[test]
fn azure_lrc_repairs_every_pattern_that_any_code_of_its_structure_could() {
    for (k, text) in [(12, "lrc:12+2+2"), (6, "lrc:6+2+2"), (4, "lrc:4+2+2")] {
        let code = weft_ec::parse(text).unwrap();
        let mut counts = [0; 2];
        for pattern in 0u32..1 << (k + 4) {
            if pattern.count_ones() > 4 {
                continue;
            }
            let lost: Vec<usize> = (0..k + 4).filter(|b| pattern >> b & 1 == 1).collect();
            let have: Vec<usize> = (0..k + 4).filter(|b| pattern >> b & 1 == 0).collect();
            let possible = information_allows(k, 2, 2, &lost);
            assert_eq!(code.repair(&lost, &have).is_ok(), possible, "{text} {lost:?}");
            if lost.len() == 4 {
                counts[usize::from(possible)] += 1;
            }
        }
        println!("{text}: {} of {} patterns of four losses are repaired", counts[1], counts[0] + counts[1]);
    }
}

#[test]
fn one_loss_of_an_lrc_reads_its_group_only() {
    let code = weft_ec::parse("lrc:12+2+2").unwrap();
    for lost in 0..14 {
        let have: Vec<usize> = (0..16).filter(|&b| b != lost).collect();
        assert_eq!(code.repair(&[lost], &have).unwrap().reads().len(), 6, "block {lost}");
    }
    // The wide one of HPC archives: 160 data, 8 local, 12 global.
    let wide = weft_ec::parse("lrc:160+8+12").unwrap();
    let have: Vec<usize> = (0..180).filter(|&b| b != 77).collect();
    assert_eq!(wide.repair(&[77], &have).unwrap().reads().len(), 20);
    assert_eq!(wide.tolerates(), 13);
    let mut random = fastrand::Rng::with_seed(5);
    let (_, stored) = stripe(&*wide, 1, 5);
    for _ in 0..20 {
        let mut all: Vec<usize> = (0..180).collect();
        random.shuffle(&mut all);
        let have = all.split_off(13);
        assert!(run(&wide.repair(&all, &have).unwrap(), &stored).iter().zip(&all).all(|(made, &b)| *made == stored[b]));
    }
}

#[test]
fn what_a_code_cannot_do_is_refused_with_what_works() {
    for (text, hint) in [
        ("raid6:4+3", "raid6:4+2"),
        ("xor:4+2", "xor:4+1"),
        ("rs:200+57", "rs:199+57"),
        ("rs:0+2", "data block"),
        ("rs:4+0", "none:4"),
        ("rs-isa-vandermonde:30+4", "rs-isa-vandermonde:21+4"),
        ("crs:40+4", "rs:40+4"),
        ("liberation:8+2,w=7", "w=11"),
        ("evenodd:4+2,p=6", "p=5"),
        ("replica:2+1", "replica:1+1"),
        ("rs:4+2,packet=8", "no parameters"),
        ("cauchy-good:4+2,w=3", "packet"),
        ("nope:4+2", "rs"),
        ("lrc:12+4", "lrc:12+2+2"),
        ("cauchy-good:4+2,packet=12", "packet=2048"),
        ("gluster:250+6", "gluster:249+6"),
        ("none:4+1", "none:4"),
        ("none:4+2,unsafe=2", "none:4"),
        ("none:4,unsafe=1", "no parameters"),
        ("lrc:2+3+1", "lrc:12+2+2"),
        ("rs:9999999+9999999", "256"),
    ] {
        let error = weft_ec::parse(text).expect_err(text).to_string();
        assert!(error.contains(hint), "{text}: {error}");
        assert!(!error.contains('\n'));
    }
}

/// The baseline of comparisons: as many blocks, and no coding.
#[test]
fn zeroes_instead_of_parity_protect_nothing() {
    let code = weft_ec::parse("none:4+2,unsafe=1").unwrap();
    assert_eq!(code.spec().to_string(), "none:4+2,unsafe=1");
    assert!(code.spec().stores_zeroes() && code.tolerates() == 0);
    assert_eq!((code.shape().k, code.shape().m), (4, 2));
    let (_, stored) = stripe(&*code, 2, 5);
    assert!(stored[4..].iter().flatten().all(|&byte| byte == 0));
    for lost in 0..4 {
        let have: Vec<usize> = (0..6).filter(|&block| block != lost).collect();
        let error = code.repair(&[lost], &have).unwrap_err();
        assert_eq!(error.blocks, [lost]);
        assert!(error.to_string().contains("cannot make blocks"), "{error}");
    }
    let made = code.repair(&[4, 5], &[0, 1, 2, 3]).unwrap();
    assert!(made.reads().is_empty() && run(&made, &stored) == stored[4..]);
    for other in ["none:4", "rs:4+2", "none:4+0"] {
        assert!(!weft_ec::parse(other).unwrap().spec().stores_zeroes());
    }
}

#[test]
fn every_suggestion_works() {
    let names = weft_ec::CATALOGUE.iter().map(|f| f.name);
    for name in names {
        for shape in ["300+2", "300+6", "255+1", "1+255", "300+4", "40+3", "0+1", "4+0", "300+2+2", "4", "9+9", "254+2"]
        {
            let text = format!("{name}:{shape}");
            let Err(error) = weft_ec::parse(&text) else { continue };
            let message = error.to_string();
            for word in
                message.split([' ', ';', ',', '"']).filter(|w| w.contains(':') && w.contains('+') && !w.ends_with(':'))
            {
                if word != text && word.split(':').next() != Some(&text) {
                    assert!(weft_ec::parse(word.trim_end_matches(':')).is_ok(), "{text}: {message}");
                }
            }
        }
    }
}

//! Wide shapes, where the fast ways differ most from the definition: every kernel against the naive
//! one, and random losses of all sizes.

use std::sync::Arc;
use weft_ec::{Code, Spec};

fn code(text: &str, kernel: &'static dyn gf::Kernel) -> Arc<dyn Code> {
    weft_ec::build(&text.parse::<Spec>().unwrap(), kernel).unwrap()
}

fn encode(code: &dyn Code, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut coded = vec![vec![0u8; data[0].len()]; code.coded().len()];
    let sources: Vec<&[u8]> = data.iter().map(|b| &b[..]).collect();
    code.encode(&sources, &mut coded.iter_mut().map(|b| &mut b[..]).collect::<Vec<_>>());
    coded
}

#[test]
fn every_kernel_gives_the_same_parity_and_repairs_random_losses() {
    let mut random = fastrand::Rng::with_seed(17);
    let shapes = [
        "rs:160+80",
        "rs:160+40",
        "rs:160+32",
        "rs:100+29",
        "rs:33+15",
        "rs:128+128",
        "rs:1+255",
        "rs:251+5",
        "rs:17+9",
        "rs:20+8",
        "rs:16+16",
        "rs:24+12",
        "rs:10+4",
        "rs:12+6",
        "rs:16+4",
        "rs:16+3",
        "rs-points:160+80",
        "rs-points:64+64",
        "rs-points:37+11",
        "rs-points:10+4",
        "rs-points:128+16",
        "zfec:60+30",
        "rs-vandermonde:60+30",
        "cauchy-good:30+10,packet=64",
        "crs:20+12",
        "gluster:40+20",
    ];
    for text in shapes {
        let naive = code(text, &gf::naive::Naive);
        let (k, blocks) = (naive.shape().k, naive.shape().blocks());
        let length = 200usize.next_multiple_of(naive.unit());
        let data: Vec<Vec<u8>> = (0..k).map(|_| (0..length).map(|_| random.u8(..)).collect()).collect();
        let expected = encode(&*naive, &data);
        for kernel in gf::select::listed() {
            let code = code(text, kernel);
            assert!(encode(&*code, &data) == expected, "{code:?} differs from the naive one");
            let stored: Vec<&Vec<u8>> =
                if code.systematic() { data.iter().chain(&expected).collect() } else { expected.iter().collect() };
            let m = code.tolerates();
            for count in [1, m.div_ceil(2), m] {
                let mut lost: Vec<usize> = (0..blocks).collect();
                random.shuffle(&mut lost);
                let mut have = lost.split_off(count);
                have.sort();
                check(&*code, &lost, &have, &stored);
            }
            // The first m data blocks: whole cosets are lost, which has a way of its own.
            let lost: Vec<usize> = (0..m.min(k)).collect();
            check(&*code, &lost, &(lost.len()..blocks).collect::<Vec<_>>(), &stored);
        }
    }
}

fn check(code: &dyn Code, lost: &[usize], have: &[usize], stored: &[&Vec<u8>]) {
    let repair = code.repair(lost, have).unwrap_or_else(|e| panic!("{code:?} {lost:?}: {e}"));
    let reads: Vec<&[u8]> = repair.reads().iter().map(|r| &stored[r.block][..]).collect();
    let mut makes = vec![vec![0u8; stored[0].len()]; lost.len()];
    repair.run(&reads, &mut makes.iter_mut().map(|b| &mut b[..]).collect::<Vec<_>>());
    for (made, &block) in makes.iter().zip(lost) {
        assert!(made == stored[block], "{repair:?} makes block {block} wrongly");
    }
}

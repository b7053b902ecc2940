//! The real libraries, live and both ways: their parity equals ours, we decode their blocks and
//! they ours. They are the programs that `cargo xtask peers` builds (`bench/peers/README.md` has
//! the protocol); a missing one is skipped and named, and `golden.rs` covers it all the same.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Peers and the codes that they share with us.
const PEERS: [(&str, &[&str]); 5] = [
    ("isal", &["rs", "rs-isa-vandermonde", "raid6"]),
    ("jerasure", &["rs-vandermonde", "cauchy-original", "cauchy-good", "liberation", "raid6"]),
    ("zfec", &["zfec"]),
    ("klauspost", &["rs", "rs-points"]),
    ("reed-solomon-erasure", &["rs-points"]),
];

/// The shapes of the papers' tables (G2, C9, S2).
const SHAPES: [(usize, usize); 17] = [
    (2, 1),
    (4, 1),
    (4, 2),
    (4, 3),
    (8, 2),
    (8, 3),
    (8, 4),
    (16, 3),
    (16, 4),
    (5, 3),
    (6, 2),
    (10, 4),
    (12, 4),
    (12, 6),
    (160, 32),
    (160, 40),
    (160, 80),
];

struct Peer {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Peer {
    fn start(program: &Path) -> Self {
        let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let requests = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, requests, answers }
    }

    /// Sends a request with its blocks; the answer's bytes, or None when the peer refuses.
    fn ask<'a>(&mut self, request: &str, blocks: impl Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
        writeln!(self.requests, "{request}").unwrap();
        for block in blocks {
            self.requests.write_all(block).unwrap();
        }
        self.requests.flush().unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        let count = match line.trim().split_once(' ') {
            Some(("ok", count)) => count.parse().unwrap(),
            Some(("no", _)) => return None,
            _ => panic!("{request}: answered {line:?}"),
        };
        let mut bytes = vec![0; count];
        self.answers.read_exact(&mut bytes).unwrap();
        Some(bytes)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn live_libraries_agree_both_ways() {
    let folder = std::env::var_os("WEFT_PEERS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/peers"), PathBuf::from);
    let mut random = fastrand::Rng::new();
    let seed = random.get_seed();
    println!("seed {seed}");
    for (name, codes) in PEERS {
        let program = folder.join(name);
        if !program.is_file() {
            println!("skipped: {name} is not built; `cargo xtask peers` builds it");
            continue;
        }
        let mut peer = Peer::start(&program);
        let mut compared = 0;
        let some = (0..12).map(|_| (random.usize(1..=40), random.usize(1..=20))).collect::<Vec<_>>();
        for code in codes {
            for &(k, m) in SHAPES.iter().chain(&some) {
                compared += usize::from(compare(&mut peer, code, k, m, &mut random));
            }
            if matches!(*code, "raid6" | "liberation") {
                compared += (2..=12).filter(|&k| compare(&mut peer, code, k, 2, &mut random)).count();
            }
        }
        println!("{name}: {compared} shapes agree");
        assert!(compared >= 15, "{name} agreed on {compared} shapes only, seed {seed}");
    }
}

/// Compares one shape; false when either side does not do it.
fn compare(peer: &mut Peer, name: &str, k: usize, m: usize, random: &mut fastrand::Rng) -> bool {
    let bit_matrix = name.starts_with("cauchy") || name == "liberation";
    let packet = if bit_matrix { 64 } else { 0 };
    let text = if bit_matrix { format!("{name}:{k}+{m},packet={packet}") } else { format!("{name}:{k}+{m}") };
    let Ok(code) = weft_ec::parse(&text) else { return false };
    if bit_matrix && k + m > 60 {
        return false; // Their schedules take minutes there; the golden files have some.
    }
    let length = if bit_matrix { 2 * code.unit() } else { 64 * random.usize(1..20) };
    let data: Vec<Vec<u8>> = (0..k).map(|_| (0..length).map(|_| random.u8(..)).collect()).collect();
    let sources: Vec<&[u8]> = data.iter().map(|b| &b[..]).collect();
    let Some(theirs) = peer.ask(&format!("encode {name} {k} {m} {length} {packet}"), sources.iter().copied()) else {
        return false;
    };
    let mut ours = vec![0u8; m * length];
    code.encode(&sources, &mut ours.chunks_exact_mut(length).collect::<Vec<_>>());
    assert!(ours == theirs, "{code:?}: parity differs");

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
        "{code:?}: we decode {lost:?} wrongly"
    );

    let zeroes = vec![0u8; length];
    let holes = stored.iter().enumerate().map(|(b, block)| if lost.contains(&b) { &zeroes[..] } else { block });
    let list: Vec<String> = lost.iter().map(usize::to_string).collect();
    let request = format!("decode {name} {k} {m} {length} {packet} {}", list.join(","));
    let decoded = peer.ask(&request, holes).unwrap_or_else(|| panic!("{text}: the peer does not decode"));
    assert!(decoded.chunks_exact(length).zip(&stored).all(|(a, b)| a == *b), "{text}: they decode {lost:?} wrongly");
    true
}

//! Random operations against a model, on targets that fail, with crashes in between.
//!
//! `WEFT_SOAK_SECONDS` sets the duration (default 10), `WEFT_SOAK_SEED` the first seed; a failure
//! prints its seed.

mod compare;
mod faults;
#[path = "../lab/mod.rs"]
mod lab;
mod operations;

use fs::{FileSystem, ROOT};
use lab::Lab;
use plan::Ino;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const CODES: &[(&str, usize)] = &[("rs:4+2", 7), ("rs:2+1", 4), ("none:4", 4), ("crs:4+2", 6), ("gluster:4+2", 6)];
const STEP_COUNT: usize = 250;
/// The longest file.
const MAX_FILE_BYTES: u64 = 5 << 20;

/// The model of a file.
#[derive(Clone, Debug, Default, PartialEq)]
struct Content {
    bytes: Vec<u8>,
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

#[derive(Debug)]
enum Node {
    File {
        now: Content,
        /// Its content at the last sync, and all contents since.
        since: Vec<Vec<u8>>,
    },
    Directory(BTreeMap<Vec<u8>, Ino>),
    Link(Vec<u8>),
}

struct Soak {
    lab: Lab,
    fs: Arc<FileSystem>,
    code: &'static str,
    /// How many targets may be lost.
    spare: usize,
    dice: fastrand::Rng,
    nodes: BTreeMap<Ino, Node>,
    open: Vec<Ino>,
    bad: Vec<usize>,
    log: Vec<String>,
}

fn empty_directory() -> Node {
    Node::Directory(BTreeMap::new())
}

impl Soak {
    fn new(seed: u64) -> Self {
        let mut dice = fastrand::Rng::with_seed(seed);
        let (code, targets) = CODES[dice.usize(..CODES.len())];
        let mut lab = Lab::new(code, targets);
        let fs = lab.open();
        let spare = ec::parse(code).unwrap().tolerates();
        let nodes = BTreeMap::from([(ROOT, empty_directory())]);
        Self { lab, fs, code, spare, dice, nodes, open: Vec::new(), bad: Vec::new(), log: Vec::new() }
    }

    fn note(&mut self, what: String) {
        self.log.push(what);
    }

    fn directory(&mut self, ino: Ino) -> &mut BTreeMap<Vec<u8>, Ino> {
        match self.nodes.get_mut(&ino) {
            Some(Node::Directory(names)) => names,
            other => panic!("{ino} is no directory but {other:?}"),
        }
    }

    fn pick(&mut self, which: impl Fn(&Node) -> bool) -> Option<Ino> {
        let all: Vec<Ino> = self.nodes.iter().filter(|(_, node)| which(node)).map(|(ino, _)| *ino).collect();
        (!all.is_empty()).then(|| all[self.dice.usize(..all.len())])
    }

    fn any_directory(&mut self) -> Ino {
        let named = self.named();
        let all: Vec<Ino> = self
            .nodes
            .iter()
            .filter(|(ino, node)| matches!(node, Node::Directory(_)) && (**ino == ROOT || named.contains_key(*ino)))
            .map(|(ino, _)| *ino)
            .collect();
        all[self.dice.usize(..all.len())]
    }

    fn any_file(&mut self) -> Option<Ino> {
        self.pick(|node| matches!(node, Node::File { .. }))
    }

    fn name(&mut self) -> Vec<u8> {
        format!("n{}", self.dice.u8(..12)).into_bytes()
    }

    /// The number of names of each file.
    fn named(&self) -> BTreeMap<Ino, u32> {
        let mut named = BTreeMap::new();
        for node in self.nodes.values() {
            if let Node::Directory(names) = node {
                names.values().for_each(|ino| *named.entry(*ino).or_default() += 1);
            }
        }
        named
    }

    /// Changes the model of a file.
    fn change(&mut self, ino: Ino, change: impl FnOnce(&mut Vec<u8>)) {
        if let Some(Node::File { now, since }) = self.nodes.get_mut(&ino) {
            change(&mut now.bytes);
            since.push(now.bytes.clone());
        }
    }

    fn bytes(&self, ino: Ino) -> &[u8] {
        match &self.nodes[&ino] {
            Node::File { now, .. } => &now.bytes,
            _ => &[],
        }
    }

    /// A file lost a name: it is removed if that was the last one and the file is not open.
    fn dropped(&mut self, ino: Ino) {
        if !self.named().contains_key(&ino) && !self.open.contains(&ino) {
            self.nodes.remove(&ino);
        }
    }

    fn synced(&mut self, ino: Ino) {
        if let Some(Node::File { now, since }) = self.nodes.get_mut(&ino) {
            *since = vec![now.bytes.clone()];
        }
    }

    fn step(&mut self) {
        match self.dice.u8(..100) {
            0..=11 => self.make(),
            12..=39 => self.write(),
            40..=44 => self.truncate(),
            45..=51 => self.allocate(),
            52..=56 => self.copy(),
            57..=61 => self.rename(),
            62..=64 => self.link(),
            65..=69 => self.remove(),
            70..=72 => self.open_or_close(),
            73..=76 => self.attribute(),
            77..=85 => self.sync_one(),
            86..=87 => self.sync_all(),
            88..=94 => self.read_some(),
            95..=96 => self.break_or_heal(),
            97 => self.reopen(),
            _ => self.compare(),
        }
    }
}

fn run(seed: u64) {
    let mut soak = Soak::new(seed);
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for _ in 0..STEP_COUNT {
            soak.step();
        }
        soak.compare();
        if soak.dice.bool() { soak.crash() } else { soak.remove_all() }
    }));
    if let Err(why) = done {
        let lines = if std::env::var_os("WEFT_SOAK_LOUD").is_some() { usize::MAX } else { 40 };
        soak.log.iter().skip(soak.log.len().saturating_sub(lines)).for_each(|line| eprintln!("  {line}"));
        eprintln!("seed {seed}, {}, step {}", soak.code, soak.log.len());
        std::panic::resume_unwind(why);
    }
}

#[test]
fn soak() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let begun = Instant::now();
    let first = number("WEFT_SOAK_SEED").unwrap_or(1);
    let time = Duration::from_secs(number("WEFT_SOAK_SECONDS").unwrap_or(10));
    for seed in first.. {
        run(seed);
        if begun.elapsed() > time {
            eprintln!("seeds {first} to {seed}");
            break;
        }
    }
}

//! Random operations against a model, on targets that fail, with crashes in between.
//!
//! `WEFT_SOAK_SECONDS` sets the duration (default 20), `WEFT_SOAK_SEED` the first seed; a failure
//! prints its seed.

mod lab;

use fs::{Allocate, FileSystem, Kind, ROOT, RenameMode, Seek, SetAttributes, SetTime, Time};
use lab::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use volume::Control;
use volume::target::{Faults, TargetFile};

const CODES: &[(&str, usize)] = &[("rs:4+2", 7), ("rs:2+1", 4), ("none:4", 4), ("crs:4+2", 6), ("gluster:4+2", 6)];
const STEPS: usize = 250;
/// The longest file.
const LONGEST: u64 = 5 << 20;

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
    Directory(BTreeMap<Vec<u8>, u64>),
    Link(Vec<u8>),
}

struct Soak {
    lab: Lab,
    fs: Arc<FileSystem>,
    code: &'static str,
    /// How many targets may be lost.
    spare: usize,
    dice: fastrand::Rng,
    nodes: BTreeMap<u64, Node>,
    open: Vec<u64>,
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

    fn directory(&mut self, ino: u64) -> &mut BTreeMap<Vec<u8>, u64> {
        match self.nodes.get_mut(&ino) {
            Some(Node::Directory(names)) => names,
            other => panic!("{ino} is no directory but {other:?}"),
        }
    }

    fn pick(&mut self, which: impl Fn(&Node) -> bool) -> Option<u64> {
        let all: Vec<u64> = self.nodes.iter().filter(|(_, node)| which(node)).map(|(ino, _)| *ino).collect();
        (!all.is_empty()).then(|| all[self.dice.usize(..all.len())])
    }

    fn any_directory(&mut self) -> u64 {
        let named = self.named();
        let all: Vec<u64> = self
            .nodes
            .iter()
            .filter(|(ino, node)| matches!(node, Node::Directory(_)) && (**ino == ROOT || named.contains_key(*ino)))
            .map(|(ino, _)| *ino)
            .collect();
        all[self.dice.usize(..all.len())]
    }

    fn any_file(&mut self) -> Option<u64> {
        self.pick(|node| matches!(node, Node::File { .. }))
    }

    fn name(&mut self) -> Vec<u8> {
        format!("n{}", self.dice.u8(..12)).into_bytes()
    }

    /// The number of names of each file.
    fn named(&self) -> BTreeMap<u64, u32> {
        let mut named = BTreeMap::new();
        for node in self.nodes.values() {
            if let Node::Directory(names) = node {
                names.values().for_each(|ino| *named.entry(*ino).or_default() += 1);
            }
        }
        named
    }

    /// Changes the model of a file.
    fn change(&mut self, ino: u64, change: impl FnOnce(&mut Vec<u8>)) {
        if let Some(Node::File { now, since }) = self.nodes.get_mut(&ino) {
            change(&mut now.bytes);
            since.push(now.bytes.clone());
        }
    }

    fn bytes(&self, ino: u64) -> &[u8] {
        match &self.nodes[&ino] {
            Node::File { now, .. } => &now.bytes,
            _ => &[],
        }
    }

    /// A file lost a name: it is removed if that was the last one and the file is not open.
    fn dropped(&mut self, ino: u64) {
        if !self.named().contains_key(&ino) && !self.open.contains(&ino) {
            self.nodes.remove(&ino);
        }
    }

    fn synced(&mut self, ino: u64) {
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
            95..=96 => self.break_or_mend(),
            97 => self.reopen(),
            _ => self.compare(),
        }
    }

    fn make(&mut self) {
        let (parent, name) = (self.any_directory(), self.name());
        let kind = [Kind::File, Kind::File, Kind::File, Kind::Directory, Kind::Symlink][self.dice.usize(..5)];
        let mut new = new(kind);
        if kind == Kind::Symlink {
            new.link = b"somewhere/else".to_vec();
        }
        let exists = self.directory(parent).contains_key(&name);
        match self.fs.make(parent, &name, &new) {
            Ok(made) => {
                assert!(!exists);
                self.note(format!("make {:?} {} in {parent}: {}", kind, String::from_utf8_lossy(&name), made.ino));
                self.directory(parent).insert(name, made.ino);
                let node = match kind {
                    Kind::Directory => empty_directory(),
                    Kind::Symlink => Node::Link(new.link),
                    _ => Node::File { now: Content::default(), since: vec![Vec::new()] },
                };
                self.nodes.insert(made.ino, node);
            }
            Err(error) => assert!(exists && error.errno() == 17, "{error}"),
        }
    }

    fn write(&mut self) {
        let Some(ino) = self.any_file() else { return };
        let size = self.bytes(ino).len() as u64;
        let length = match self.dice.u8(..10) {
            0..=3 => self.dice.usize(1..5_000),
            4..=8 => self.dice.usize(1..100_000),
            _ => self.dice.usize(1..1_500_000),
        };
        let append = self.dice.u8(..3) == 0;
        let offset = if append { size } else { self.dice.u64(..(size + size / 2 + 10_000).min(LONGEST)) };
        let data = pattern(self.dice.u64(..), length);
        self.note(format!("write {ino} {offset}+{length}, append {append}"));
        if append {
            self.fs.append(ino, &data).unwrap();
        } else {
            self.fs.write(ino, offset, &data).unwrap();
        }
        self.change(ino, |bytes| {
            bytes.resize(bytes.len().max(offset as usize + length), 0);
            bytes[offset as usize..][..length].copy_from_slice(&data);
        });
    }

    fn truncate(&mut self) {
        let Some(ino) = self.any_file() else { return };
        let size = self.dice.u64(..self.bytes(ino).len() as u64 * 3 / 2 + 100);
        self.note(format!("truncate {ino} to {size}"));
        let change = SetAttributes { size: Some(size), ..SetAttributes::default() };
        assert_eq!(self.fs.set_attributes(ino, change).unwrap().size, size);
        self.change(ino, |bytes| bytes.resize(size as usize, 0));
    }

    fn allocate(&mut self) {
        let Some(ino) = self.any_file() else { return };
        let size = self.bytes(ino).len() as u64;
        let (offset, length) = (self.dice.u64(..size + 1000), self.dice.u64(1..size / 2 + 5000));
        let all = [Allocate::Grow, Allocate::KeepSize, Allocate::PunchHole, Allocate::Zero, Allocate::ZeroKeepSize];
        let how = all[self.dice.usize(..all.len())];
        self.note(format!("{how:?} {ino} {offset}+{length}"));
        self.fs.allocate(ino, how, offset, length).unwrap();
        self.change(ino, |bytes| {
            let end = (offset + length) as usize;
            if matches!(how, Allocate::Grow | Allocate::Zero) {
                bytes.resize(bytes.len().max(end), 0);
            }
            if !matches!(how, Allocate::Grow | Allocate::KeepSize) && (offset as usize) < bytes.len() {
                let end = end.min(bytes.len());
                bytes[offset as usize..end].fill(0);
            }
        });
    }

    fn copy(&mut self) {
        let (Some(from), Some(to)) = (self.any_file(), self.any_file()) else { return };
        let (size, room) = (self.bytes(from).len() as u64, self.bytes(to).len() as u64);
        let (start, at) = (self.dice.u64(..size + 10), self.dice.u64(..room + 1000));
        let length = self.dice.u64(1..size + 100);
        self.note(format!("copy {from} {start}+{length} to {to} {at}"));
        let real = length.min(size.saturating_sub(start));
        match self.fs.copy_range((from, start), (to, at), length) {
            Ok(copied) => {
                assert_eq!(copied, real);
                if real == 0 {
                    return;
                }
                let data = self.bytes(from)[start as usize..][..real as usize].to_vec();
                self.change(to, |bytes| {
                    bytes.resize(bytes.len().max((at + real) as usize), 0);
                    bytes[at as usize..][..data.len()].copy_from_slice(&data);
                });
            }
            Err(error) => assert!(from == to && error.errno() == 22, "{error}"),
        }
    }

    /// Whether a directory is, or is in, another one.
    fn is_within(&mut self, ino: u64, outer: u64) -> bool {
        let mut inside = vec![outer];
        while let Some(at) = inside.pop() {
            if at == ino {
                return true;
            }
            if let Some(Node::Directory(names)) = self.nodes.get(&at) {
                inside.extend(names.values());
            }
        }
        false
    }

    fn rename(&mut self) {
        let (a, b) = (self.any_directory(), self.any_directory());
        let (x, y) = (self.name(), self.name());
        let mode = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange][self.dice.usize(..3)];
        let (old, replaced) = (self.directory(a).get(&x).copied(), self.directory(b).get(&y).copied());
        let result = self.fs.rename((a, &x), (b, &y), mode);
        self.note(format!("rename {a}/{x:?} to {b}/{y:?} {mode:?}: {result:?}"));
        let is_directory = |soak: &Self, ino| matches!(soak.nodes[&ino], Node::Directory(_));
        let full = |soak: &Self, ino| matches!(&soak.nodes[&ino], Node::Directory(names) if !names.is_empty());
        let Some(old) = old else { return assert_eq!(result.unwrap_err().errno(), 2) };
        let expected = match (mode, replaced) {
            (RenameMode::NoReplace, Some(_)) => Some(17),
            (_, Some(new)) if new == old => None,
            _ if a != b && is_directory(self, old) && self.is_within(b, old) => Some(22),
            (RenameMode::Exchange, None) => Some(2),
            (RenameMode::Exchange, Some(new)) => {
                (a != b && is_directory(self, new) && self.is_within(a, new)).then_some(22)
            }
            (_, None) => None,
            (_, Some(new)) => match (is_directory(self, old), is_directory(self, new)) {
                (true, false) => Some(20),
                (false, true) => Some(21),
                (true, true) if full(self, new) => Some(39),
                _ => None,
            },
        };
        assert_eq!(result.as_ref().err().map(fs::Error::errno), expected);
        if expected.is_some() || replaced == Some(old) {
            return;
        }
        self.directory(a).remove(&x);
        self.directory(b).insert(y, old);
        match (mode, replaced) {
            (RenameMode::Exchange, Some(new)) => _ = self.directory(a).insert(x, new),
            (_, Some(new)) => self.dropped(new),
            _ => {}
        }
    }

    fn link(&mut self) {
        let (Some(ino), parent, name) = (self.any_file(), self.any_directory(), self.name()) else { return };
        let exists = self.directory(parent).contains_key(&name);
        let result = self.fs.link(ino, parent, &name);
        self.note(format!("link {ino} as {parent}/{name:?}: {:?}", result.as_ref().err()));
        match result {
            Ok(_) => _ = self.directory(parent).insert(name, ino),
            Err(error) => assert!(exists && error.errno() == 17, "{error}"),
        }
    }

    fn remove(&mut self) {
        let parent = self.any_directory();
        let names: Vec<(Vec<u8>, u64)> = self.directory(parent).iter().map(|(n, i)| (n.clone(), *i)).collect();
        if names.is_empty() {
            return;
        }
        let (name, ino) = names[self.dice.usize(..names.len())].clone();
        self.note(format!("remove {parent}/{name:?}, {ino}"));
        if let Node::Directory(inside) = &self.nodes[&ino] {
            let full = !inside.is_empty();
            match self.fs.remove_directory(parent, &name) {
                Ok(()) => assert!(!full),
                Err(error) => return assert!(full && error.errno() == 39, "{error}"),
            }
        } else {
            self.fs.unlink(parent, &name).unwrap();
        }
        self.directory(parent).remove(&name);
        self.dropped(ino);
    }

    fn open_or_close(&mut self) {
        if self.open.len() > 3 || self.dice.bool() && !self.open.is_empty() {
            let ino = self.open.swap_remove(self.dice.usize(..self.open.len()));
            self.note(format!("close {ino}"));
            self.fs.close(ino);
            self.dropped(ino);
        } else if let Some(ino) = self.any_file() {
            self.note(format!("open {ino}"));
            self.fs.open(ino, true).unwrap();
            self.open.push(ino);
        }
    }

    fn attribute(&mut self) {
        let Some(ino) = self.any_file() else { return };
        let (name, value) = (format!("user.{}", self.dice.u8(..3)).into_bytes(), pattern(self.dice.u64(..), 20));
        self.note(format!("attributes of {ino}"));
        let time = Time { seconds: self.dice.i64(0..1 << 30), nanoseconds: 5 };
        let change = SetAttributes {
            mode: Some(0o600),
            modified: Some(SetTime::To(time)),
            accessed: Some(SetTime::To(time)),
            ..SetAttributes::default()
        };
        let set = self.fs.set_attributes(ino, change).unwrap();
        assert_eq!((set.modified, set.accessed, set.mode), (time, time, 0o600));
        assert_eq!(self.fs.attributes(ino).unwrap().modified, time);
        let remove = self.dice.bool();
        let Some(Node::File { now, .. }) = self.nodes.get_mut(&ino) else { return };
        if remove {
            assert_eq!(self.fs.remove_attribute(ino, &name).is_ok(), now.attributes.remove(&name).is_some());
        } else {
            self.fs.set_attribute(ino, &name, &value, None).unwrap();
            now.attributes.insert(name, value);
        }
    }

    fn sync_one(&mut self) {
        let Some(ino) = self.any_file() else { return };
        self.note(format!("sync {ino}"));
        self.fs.sync(ino).unwrap();
        self.synced(ino);
    }

    fn sync_all(&mut self) {
        self.note("sync all".into());
        self.fs.sync_all().unwrap();
        let all: Vec<u64> = self.nodes.keys().copied().collect();
        all.into_iter().for_each(|ino| self.synced(ino));
    }

    fn read_some(&mut self) {
        let Some(ino) = self.any_file() else { return };
        let size = self.bytes(ino).len() as u64;
        let (offset, length) = (self.dice.u64(..size + 100), self.dice.usize(1..200_000));
        let mut found = vec![0xEE; length];
        let read = self.fs.read(ino, offset, &mut found).unwrap();
        let want = &self.bytes(ino)[offset.min(size) as usize..(offset + length as u64).min(size) as usize];
        assert!(found[..read] == *want, "{ino} {offset}+{length}");
        // A hole reads as zeroes; data may contain zeroes, too.
        if let Ok(hole) = self.fs.seek(ino, offset, Seek::Hole) {
            let data = self.fs.seek(ino, hole, Seek::Data).unwrap_or(size);
            assert!(
                self.bytes(ino)[hole as usize..data as usize].iter().all(|byte| *byte == 0),
                "{ino} {hole}..{data}"
            );
        } else {
            assert!(offset >= size);
        }
    }

    /// Makes as many targets fail as may fail, or makes all work again and repairs everything.
    fn break_or_mend(&mut self) {
        if self.bad.is_empty() {
            for _ in 0..self.spare {
                let number = self.dice.usize(..self.lab.seen.len());
                let faults = match self.dice.u8(..4) {
                    0 => dead(),
                    1 => full(),
                    2 => Faults { unsynced: true, ..Faults::default() },
                    _ => self.flips(number),
                };
                self.note(format!("target {number} fails: {faults:?}"));
                self.lab.fault(number, faults);
                self.bad.push(number);
            }
        } else {
            self.mend();
        }
    }

    /// Flips some bits in some chunks of a target.
    fn flips(&mut self, number: usize) -> Faults {
        let all = self.lab.chunks().into_iter().filter(|(of, ..)| *of == number);
        let chunks: Vec<(TargetFile, u64)> = all.map(|(_, file, length)| (file, length)).collect();
        let mut flip = |(file, length)| {
            let at = self.dice.u64(..length);
            (file, at..at + self.dice.u64(1..5000))
        };
        Faults { flipped: chunks.into_iter().map(&mut flip).collect(), ..Faults::default() }
    }

    fn mend(&mut self) {
        self.note("mend".into());
        self.lab.fault_all(Faults::default);
        self.bad.clear();
        std::thread::sleep(Duration::from_millis(60));
        self.fs.verify(&Control::default()).unwrap();
        let done = self.fs.repair(&Control::default()).unwrap();
        assert!(done.failed.is_empty(), "{:?}", done.failed);
        let verified = self.fs.verify(&Control::default()).unwrap();
        assert!(verified.is_sound(), "after a repair: {:#?}", verified.problems);
        // The next targets to fail may be those that have the metadata now.
        let begun = Instant::now();
        while !self.fs.status().unwrap().is_healthy() {
            assert!(begun.elapsed() < Duration::from_secs(30), "{:#?}", self.fs.status());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn reopen(&mut self) {
        self.note("reopen".into());
        for ino in std::mem::take(&mut self.open) {
            self.fs.close(ino);
            self.dropped(ino);
        }
        self.fs.close_volume().unwrap();
        let all: Vec<u64> = self.nodes.keys().copied().collect();
        all.into_iter().for_each(|ino| self.synced(ino));
        self.fs = self.lab.open();
        self.compare();
        // Faults belong to an opening.
        if !self.bad.is_empty() {
            self.mend();
        }
    }

    fn compare(&mut self) {
        let named = self.named();
        for (&ino, node) in &self.nodes {
            let attributes = self.fs.attributes(ino).unwrap();
            match node {
                Node::File { now, .. } => {
                    assert_same(&content(&self.fs, ino).unwrap(), &now.bytes, ino);
                    assert_eq!(attributes.size, now.bytes.len() as u64, "size of {ino}");
                    assert_eq!(attributes.links, named.get(&ino).copied().unwrap_or(0), "links of {ino}");
                    let names = self.fs.attribute_names(ino).unwrap().into_iter();
                    let found: BTreeMap<_, _> =
                        names.map(|name| (name.clone(), self.fs.attribute(ino, &name).unwrap())).collect();
                    assert_eq!(found, now.attributes, "attributes of {ino}");
                }
                Node::Directory(names) => {
                    let (mut found, mut cookie) = (BTreeMap::new(), 0);
                    loop {
                        let some = self.fs.list(ino, cookie, 5).unwrap();
                        let Some(last) = some.last() else { break };
                        cookie = last.cookie;
                        found.extend(some.into_iter().map(|entry| (entry.name, entry.attributes.ino)));
                    }
                    assert_eq!(found, *names, "names in {ino}");
                    let below = names.values().filter(|ino| matches!(self.nodes[*ino], Node::Directory(_))).count();
                    assert_eq!(attributes.links as usize, 2 + below, "links of {ino}");
                }
                Node::Link(to) => assert_eq!(self.fs.read_link(ino).unwrap(), *to),
            }
        }
    }

    /// The process or the machine dies; what was synced survives. Ends the run: names may be those
    /// of any moment since.
    fn crash(&mut self) {
        let power = self.dice.bool();
        let seed = self.dice.u64(..);
        self.note(format!("crash, of the machine: {power}"));
        // All names survive; content may not.
        let named = self.named();
        let fs = self.fs.clone();
        if power {
            self.lab.lose_power(fs, seed);
        } else {
            self.lab.kill(fs);
        }
        // One more target may be lost, if none was already.
        let more = if self.bad.is_empty() { self.spare.min(1) } else { 0 };
        let missing: Vec<usize> = (0..more).map(|_| self.dice.usize(..self.lab.disks.len())).collect();
        self.fs = self.lab.try_open(&missing).unwrap();
        for (ino, node) in &self.nodes {
            let Node::File { since, .. } = node else { continue };
            if !named.contains_key(ino) {
                continue;
            }
            let found = match content(&self.fs, *ino) {
                Ok(found) => found,
                // It was created since the last sync of anything.
                Err(error) if error.errno() == 2 && since[0].is_empty() => continue,
                Err(error) => panic!("{ino} after a crash, {missing:?} missing: {error}"),
            };
            if since.len() == 1 {
                assert!(found == since[0], "{ino} was synced and has other content after a crash");
            }
            assert!(since.iter().any(|state| state.len() == found.len()), "{ino} never had {} bytes", found.len());
            for (at, byte) in found.iter().enumerate() {
                let was = |state: &Vec<u8>| state.get(at).copied().unwrap_or(0) == *byte;
                assert!(since.iter().any(was), "{ino} never had {byte} at {at}");
            }
        }
        let fs = self.fs.clone();
        self.lab.fault_all(Faults::default);
        let checked = fs.check().unwrap();
        assert!(checked.problems.is_empty(), "{:#?}", checked.problems);
        if missing.is_empty() {
            fs.repair(&Control::default()).unwrap();
            assert_sound(&fs);
        }
        fs.close_volume().unwrap();
    }

    /// Removes everything; all chunks must be deleted, too.
    fn remove_all(&mut self) {
        if !self.bad.is_empty() {
            self.mend();
        }
        for ino in std::mem::take(&mut self.open) {
            self.fs.close(ino);
        }
        assert_sound(&self.fs);
        remove_below(&self.fs, ROOT);
        self.fs.close_volume().unwrap();
        self.fs = self.lab.open();
        assert_eq!((self.fs.usage().unwrap().files, self.fs.status().unwrap().bytes), (1, 0));
        // Clean up what dead targets missed.
        self.fs.repair(&Control::default()).unwrap();
        self.fs.close_volume().unwrap();
        assert_eq!(self.lab.chunks(), []);
    }
}

/// Reports where two contents differ, which is more useful than printing them.
#[track_caller]
fn assert_same(found: &[u8], wanted: &[u8], ino: u64) {
    assert_eq!(found.len(), wanted.len(), "size of {ino}");
    let differs: Vec<usize> = (0..found.len()).filter(|&at| found[at] != wanted[at]).collect();
    if let (Some(first), Some(last)) = (differs.first(), differs.last()) {
        let zero = differs.iter().all(|&at| found[at] == 0);
        panic!(
            "content of {ino}: {} bytes of {} differ, {first}..={last}; all zero: {zero}",
            differs.len(),
            found.len()
        );
    }
}

fn remove_below(fs: &FileSystem, parent: u64) {
    for entry in fs.list(parent, 0, 1000).unwrap() {
        if entry.attributes.kind == Kind::Directory {
            remove_below(fs, entry.attributes.ino);
            fs.remove_directory(parent, &entry.name).unwrap();
        } else {
            fs.unlink(parent, &entry.name).unwrap();
        }
    }
}

fn run(seed: u64) {
    let mut soak = Soak::new(seed);
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for _ in 0..STEPS {
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
    let time = Duration::from_secs(number("WEFT_SOAK_SECONDS").unwrap_or(20));
    for seed in first.. {
        run(seed);
        if begun.elapsed() > time {
            eprintln!("seeds {first} to {seed}");
            break;
        }
    }
}

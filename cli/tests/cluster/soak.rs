//! Everything at once, at random: clients keep their own record of what they wrote, while servers
//! are killed, stopped and started again, and, where there can be a network for the test, cut off.
//! Never are more than two stores away. `WEFT_SOAK_SECONDS` and `WEFT_SOAK_SEED` say how long and
//! which.

use crate::lab::{Cluster, Mount, possible};
use crate::network::{Machine, Network};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The largest length of a file, in bytes.
const MAX_FILE_BYTES: usize = 3_000_000;
/// Files of a client.
const FILES: usize = 12;
/// The machine of the metadata server.
const META: Machine = 0;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// How long it takes.
pub fn time() -> Duration {
    Duration::from_secs(number("WEFT_SOAK_SECONDS", 10))
}

/// What happened, to explain a failure.
struct Record {
    begun: Instant,
    lines: Mutex<Vec<String>>,
}

impl Record {
    fn add(&self, what: String) {
        let line = format!("{:9.3} {what}", self.begun.elapsed().as_secs_f64());
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    /// Prints the last part of it.
    fn show(&self) {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines[lines.len().saturating_sub(400)..].iter().for_each(|line| eprintln!("{line}"));
    }
}

/// A client, and what it knows: the content of each of its files.
struct Worker<'a> {
    who: usize,
    mount: &'a Mount,
    /// The other one, where the same must be seen.
    other: &'a Mount,
    random: fastrand::Rng,
    files: BTreeMap<String, Vec<u8>>,
    made: usize,
    done: &'a AtomicU64,
    record: &'a Record,
    slowest: (Duration, &'static str),
}

impl Worker<'_> {
    fn at(&self, name: &str) -> PathBuf {
        self.mount.at(format!("{}-{name}", self.who))
    }

    fn pick(&mut self) -> Option<String> {
        let at = self.random.usize(..self.files.len().max(1));
        self.files.keys().nth(at).cloned()
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = match self.random.u8(..10) {
            0..5 => self.random.usize(1..5_000),
            5..8 => self.random.usize(5_000..200_000),
            _ => self.random.usize(200_000..MAX_FILE_BYTES),
        };
        let mut bytes = vec![0; length];
        self.random.fill(&mut bytes);
        bytes
    }

    /// One operation; what it did is in the record. Each ends synced, so that nothing may be lost.
    fn step(&mut self) -> (&'static str, io::Result<()>) {
        let Some(name) = self.pick().filter(|_| self.files.len() >= 3) else { return ("creating", self.create()) };
        match self.random.u8(..16) {
            0..3 if self.files.len() < FILES => ("creating", self.create()),
            0..6 => ("overwriting", self.overwrite(&name)),
            6..9 => ("appending", self.append(&name)),
            9..10 => ("cutting off", self.cut(&name)),
            10..12 => ("renaming", self.rename(&name)),
            12..13 => ("removing", self.remove(&name)),
            13..15 => ("reading", self.read(&name, false)),
            _ => ("reading at the other mount", self.read(&name, true)),
        }
    }

    fn note(&self, what: &str, name: &str, from: usize, to: usize) {
        self.record.add(format!("client {}: {what} {name} {from}..{to}", self.who));
    }

    fn new_name(&mut self) -> String {
        self.made += 1;
        format!("f{}", self.made)
    }

    fn create(&mut self) -> io::Result<()> {
        let (name, bytes) = (self.new_name(), self.bytes());
        self.note("create", &name, 0, bytes.len());
        let mut file = OpenOptions::new().write(true).create_new(true).open(self.at(&name))?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        self.files.insert(name, bytes);
        Ok(())
    }

    fn overwrite(&mut self, name: &str) -> io::Result<()> {
        let bytes = self.bytes();
        let length = self.files[name].len();
        let at = self.random.usize(..=length);
        self.note("overwrite", name, at, at + bytes.len());
        let file = OpenOptions::new().write(true).open(self.at(name))?;
        file.write_all_at(&bytes, at as u64)?;
        file.sync_data()?;
        let content = self.files.get_mut(name).expect("it is in the record");
        content.resize(length.max(at + bytes.len()), 0);
        content[at..at + bytes.len()].copy_from_slice(&bytes);
        content.truncate(2 * MAX_FILE_BYTES);
        if content.len() == 2 * MAX_FILE_BYTES {
            file.set_len(content.len() as u64)?;
            file.sync_all()?;
        }
        Ok(())
    }

    fn append(&mut self, name: &str) -> io::Result<()> {
        let bytes = self.bytes();
        let end = self.files[name].len();
        self.note("append", name, end, end + bytes.len());
        let mut file = OpenOptions::new().append(true).open(self.at(name))?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        self.files.get_mut(name).expect("it is in the record").extend(bytes);
        if self.files[name].len() > 2 * MAX_FILE_BYTES { self.cut(name) } else { Ok(()) }
    }

    fn cut(&mut self, name: &str) -> io::Result<()> {
        let length = self.random.usize(..=self.files[name].len());
        self.note("cut", name, length, self.files[name].len());
        let file = OpenOptions::new().write(true).open(self.at(name))?;
        file.set_len(length as u64)?;
        file.sync_all()?;
        self.files.get_mut(name).expect("it is in the record").truncate(length);
        Ok(())
    }

    fn rename(&mut self, name: &str) -> io::Result<()> {
        // Now and then onto one that is there.
        let to = self.pick().filter(|to| to != name && self.random.bool());
        let to = to.unwrap_or_else(|| self.new_name());
        self.note(&format!("rename to {to}"), name, 0, self.files[name].len());
        fs::rename(self.at(name), self.at(&to))?;
        File::open(&self.mount.point)?.sync_all()?;
        let content = self.files.remove(name).expect("it is in the record");
        self.files.insert(to, content);
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.note("remove", name, 0, self.files[name].len());
        fs::remove_file(self.at(name))?;
        File::open(&self.mount.point)?.sync_all()?;
        self.files.remove(name);
        Ok(())
    }

    fn read(&mut self, name: &str, other: bool) -> io::Result<()> {
        let path = if other { self.other.at(format!("{}-{name}", self.who)) } else { self.at(name) };
        let read = fs::read(&path)?;
        differs(&self.files[name], &read).map_or(Ok(()), |how| Err(io::Error::other(format!("{name}: {how}"))))
    }

    fn work(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::SeqCst) {
            let begun = Instant::now();
            let (what, done) = self.step();
            if let Err(why) = done {
                stop.store(true, Ordering::SeqCst);
                self.record.show();
                panic!("client {}, {what}, after {:?}: {why}", self.who, begun.elapsed());
            }
            if begun.elapsed() > self.slowest.0 {
                self.slowest = (begun.elapsed(), what);
            }
            self.done.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// How what was read differs from what was written.
fn differs(written: &[u8], read: &[u8]) -> Option<String> {
    if written == read {
        return None;
    }
    let first = written.iter().zip(read).position(|(a, b)| a != b).unwrap_or(written.len().min(read.len()));
    let wrong = written.iter().zip(read).filter(|(a, b)| a != b).count();
    let zeroes = read.iter().skip(first).take_while(|&&byte| byte == 0).count();
    Some(format!(
        "{} bytes instead of {}, {wrong} differ, the first at {first} ({zeroes} zeroes there)",
        read.len(),
        written.len()
    ))
}

/// What may be the matter with a store.
#[derive(Clone, Copy, PartialEq)]
enum Away {
    Killed,
    Stopped,
    /// From everybody.
    Cut,
    /// From one client only.
    Parted(Machine),
}

impl Away {
    fn goes(self, cluster: &Cluster, store: usize) {
        match self {
            Self::Killed => cluster.stores[store].kill(),
            Self::Stopped => cluster.stores[store].stop(),
            Self::Cut => cluster.network().cut(cluster.machine(store)),
            Self::Parted(client) => cluster.network().part(cluster.machine(store), client),
        }
    }

    fn comes_back(self, cluster: &Cluster, store: usize) {
        match self {
            Self::Killed => cluster.stores[store].start(),
            Self::Stopped => cluster.stores[store].go_on(),
            Self::Cut => cluster.network().heal(cluster.machine(store)),
            Self::Parted(client) => cluster.network().rejoin(cluster.machine(store), client),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Stopped => "stopped",
            Self::Cut => "cut off",
            Self::Parted(_) => "parted from a client",
        }
    }
}

/// What befalls the metadata server.
#[derive(Clone, Copy)]
enum Pause {
    Killed,
    Stopped,
    Cut,
    Ended,
}

impl Pause {
    fn befalls(self, cluster: &Cluster, time: Duration) {
        let meta = &cluster.meta;
        match self {
            Self::Killed => meta.kill(),
            Self::Stopped => meta.stop(),
            Self::Cut => cluster.network().cut(META),
            Self::Ended => assert!(meta.end(), "{}", meta.log()),
        }
        sleep(time);
        match self {
            Self::Killed | Self::Ended => meta.start(),
            Self::Stopped => meta.go_on(),
            Self::Cut => cluster.network().heal(META),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Killed => "meta killed",
            Self::Stopped => "meta stopped",
            Self::Cut => "meta cut off",
            Self::Ended => "meta ended",
        }
    }
}

/// Has servers fail and come back until it is time; then all are back.
fn trouble(
    cluster: &Cluster,
    clients: &[Mount],
    random: &mut fastrand::Rng,
    stop: &AtomicBool,
    until: Instant,
    record: &Record,
) -> BTreeMap<String, u32> {
    let mut away: BTreeMap<usize, (Away, Instant)> = BTreeMap::new();
    let mut counts = BTreeMap::new();
    let come_back = |store: usize, how: Away| {
        record.add(format!("store {store}, {}, comes back", how.name()));
        how.comes_back(cluster, store);
    };
    // A store that comes back has missed something: until it was made good, another loss may be one
    // too many.
    let mut losses = 0;
    while Instant::now() < until && !stop.load(Ordering::SeqCst) {
        sleep(Duration::from_millis(random.u64(100..1200)));
        let due: Vec<usize> =
            away.iter().filter(|(_, (_, back))| Instant::now() >= *back).map(|(&store, _)| store).collect();
        for store in due {
            come_back(store, away.remove(&store).expect("it is away").0);
        }
        if away.is_empty() && losses == 2 {
            cluster.heal();
            losses = 0;
        }
        let networked = cluster.between.is_some();
        let store = match random.u8(..15) {
            0..3 => Some(Away::Killed),
            3..5 => Some(Away::Stopped),
            5..7 if networked => Some(Away::Cut),
            7..9 if networked => Some(Away::Parted(clients[random.usize(..clients.len())].machine())),
            _ => None,
        };
        if let Some(how) = store.filter(|_| losses < 2) {
            let store = random.usize(..cluster.stores.len());
            if away.contains_key(&store) {
                continue;
            }
            record.add(format!("store {store} is {}", how.name()));
            how.goes(cluster, store);
            losses += 1;
            away.insert(store, (how, Instant::now() + Duration::from_millis(random.u64(200..8000))));
            *counts.entry(format!("stores {}", how.name())).or_default() += 1;
        }
        let meta = match random.u8(..40) {
            0..2 => Some(Pause::Killed),
            2..4 => Some(Pause::Stopped),
            4..6 if networked => Some(Pause::Cut),
            6 => Some(Pause::Ended),
            _ => None,
        };
        if let Some(how) = meta {
            record.add(how.name().into());
            how.befalls(cluster, Duration::from_millis(random.u64(..4000)));
            record.add("meta is back".into());
            *counts.entry(how.name().into()).or_default() += 1;
        }
    }
    for (store, (how, _)) in away {
        come_back(store, how);
    }
    counts
}

#[test]
fn what_was_synced_survives_random_faults() {
    if !possible("what_was_synced_survives_random_faults") {
        return;
    }
    let seed = number("WEFT_SOAK_SEED", fastrand::u64(..1_000_000));
    eprintln!("WEFT_SOAK_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    // Nothing that clients may have is repaired for the time of a lease after the metadata server
    // was killed; and a client must live through all that happens here.
    let lease = ["--lease", "20"];
    let cluster = match Network::possible("cutting servers off in what_was_synced_survives_random_faults") {
        true => Cluster::networked("rs:4+2", 7, &lease),
        false => Cluster::with("rs:4+2", 7, &lease),
    };
    let mounts = [cluster.mount("a"), cluster.mount("b")];
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let record = Record { begun: Instant::now(), lines: Mutex::default() };
    let mut workers: Vec<Worker> = (0..3)
        .map(|who| Worker {
            who,
            mount: &mounts[who % 2],
            other: &mounts[(who + 1) % 2],
            random: random.fork(),
            files: BTreeMap::new(),
            made: 0,
            done: &done,
            record: &record,
            slowest: (Duration::ZERO, "nothing"),
        })
        .collect();
    let until = Instant::now() + time();
    let counts = std::thread::scope(|scope| {
        let running: Vec<_> = workers.iter_mut().map(|worker| scope.spawn(|| worker.work(&stop))).collect();
        let counts = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            trouble(&cluster, &mounts, &mut random, &stop, until, &record)
        }));
        stop.store(true, Ordering::SeqCst);
        running.into_iter().for_each(|worker| worker.join().unwrap());
        counts.unwrap()
    });
    let slowest: Vec<_> = workers.iter().map(|worker| worker.slowest).collect();
    eprintln!("{} operations, {counts:?}, slowest {slowest:?}", done.load(Ordering::Relaxed));
    let fresh = cluster.mount("fresh");
    let mut wrong = Vec::new();
    for mount in [&mounts[0], &mounts[1], &fresh] {
        let mut expected: Vec<String> = Vec::new();
        for worker in &workers {
            for (name, content) in &worker.files {
                let name = format!("{}-{name}", worker.who);
                match fs::read(mount.at(&name)) {
                    Ok(read) => wrong.extend(differs(content, &read).map(|how| format!("{name}: {how}"))),
                    Err(why) => wrong.push(format!("{name}: {why}")),
                }
                expected.push(name);
            }
        }
        let mut found: Vec<String> = fs::read_dir(&mount.point)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        expected.sort();
        found.sort();
        if found != expected {
            wrong.push(format!("names: {found:?} instead of {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "seed {seed}: {wrong:#?}");
    drop(workers);
    mounts.into_iter().for_each(Mount::unmount);
    cluster.heal();
    cluster.is_healthy();
}

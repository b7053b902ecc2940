//! The writers: a process of its own, so that processes which are started meanwhile do not inherit
//! files of mounts. An inherited file is closed, and committed, by the new process, which may be
//! the very server that the commit waits for.
//!
//! It reads lines that say what happens to the mounts, and prints lines that say what it found.

use super::model::{CELL, Model, Versions, bytes, versions};
use crate::lock::lock;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Files of a writer.
const FILES: usize = 10;
/// The most cells of a file: 4 MiB.
const MAX_FILE_CELLS: usize = 65_536;
/// The cause of an error must arrive within this time.
const CAUSE_TIMEOUT: Duration = Duration::from_secs(5);

const RUN: u8 = 0;
const PAUSE: u8 = 1;
const CHECK: u8 = 2;
const END: u8 = 3;

/// What the writers were told.
struct World {
    mounts: Vec<PathBuf>,
    /// Odd while a mount is down, or may lose unsynced data.
    epochs: Vec<AtomicU32>,
    /// Whether there may be no space.
    full: AtomicBool,
    phase: AtomicU8,
    failed: AtomicBool,
    operations: AtomicU64,
    no_space: AtomicU64,
    begun: Instant,
    /// What each writer does, and since when.
    doing: Vec<Mutex<(String, Instant)>>,
    slowest: Mutex<(Duration, String)>,
}

fn say(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

impl World {
    fn fail(&self, why: &str) {
        if !self.failed.swap(true, SeqCst) {
            say(&format!("fail {:.3} {why}", self.begun.elapsed().as_secs_f64()));
        }
    }

    fn epoch(&self, mount: usize) -> u32 {
        self.epochs[mount].load(SeqCst)
    }

    fn phase(&self) -> u8 {
        self.phase.load(SeqCst)
    }
}

/// Begins `count` writers with a seed, on these mounts, and follows what standard input says.
///
/// # Errors
/// When the arguments are not those.
pub fn run(arguments: &[&str]) -> Result<(), String> {
    let [count, seed, mounts @ ..] = arguments else { return Err("torture-writers COUNT SEED MOUNT...".into()) };
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} is not a number"));
    let (count, seed) = (number(count)? as usize, number(seed)?);
    let world = Arc::new(World {
        mounts: mounts.iter().map(PathBuf::from).collect(),
        epochs: mounts.iter().map(|_| AtomicU32::new(0)).collect(),
        full: AtomicBool::new(false),
        phase: AtomicU8::new(RUN),
        failed: AtomicBool::new(false),
        operations: AtomicU64::new(0),
        no_space: AtomicU64::new(0),
        begun: Instant::now(),
        doing: (0..count).map(|_| Mutex::new(("starting".into(), Instant::now()))).collect(),
        slowest: Mutex::new((Duration::ZERO, "nothing".into())),
    });
    let barrier = Arc::new(Barrier::new(count));
    let mut random = fastrand::Rng::with_seed(seed);
    for who in 0..count {
        let (world, barrier, random) = (world.clone(), barrier.clone(), random.fork());
        std::thread::spawn(move || {
            let mut writer = Writer::new(who, &world, random);
            writer.work(&barrier);
        });
    }
    let ticking = world.clone();
    std::thread::spawn(move || {
        loop {
            sleep(Duration::from_secs(1));
            say(&report(&ticking));
        }
    });
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["epoch", mount] => _ = world.epochs[number(mount)? as usize].fetch_add(1, SeqCst),
            ["full", is_full] => world.full.store(is_full == "1", SeqCst),
            ["run"] => world.phase.store(RUN, SeqCst),
            ["pause"] => world.phase.store(PAUSE, SeqCst),
            ["check"] => world.phase.store(CHECK, SeqCst),
            ["end"] => break,
            _ => return Err(format!("{line:?} is no order")),
        }
    }
    world.phase.store(END, SeqCst);
    Ok(())
}

/// `tick OPERATIONS NO_ROOM SECONDS WHAT`: how long the longest operation that goes on has taken;
/// behind it the slowest of all.
fn report(world: &World) -> String {
    let doing = world.doing.iter().map(|doing| lock(doing).clone());
    let (what, since) = doing.min_by_key(|(_, since)| *since).expect("a writer");
    let (slowest, name) = lock(&world.slowest).clone();
    format!(
        "tick {} {} {:.1} {} {what}; slowest {name}",
        world.operations.load(SeqCst),
        world.no_space.load(SeqCst),
        since.elapsed().as_secs_f64(),
        slowest.as_millis(),
    )
}

/// A writer: the only one that changes its files.
struct Writer<'a> {
    who: usize,
    world: &'a World,
    mount: usize,
    random: fastrand::Rng,
    files: Vec<Model>,
    /// The epoch of the mount when everything was last known to be as the models say.
    epoch: u32,
}

impl<'a> Writer<'a> {
    fn new(who: usize, world: &'a World, random: fastrand::Rng) -> Self {
        let file = |slot| Model::new(((who as u64 + 1) << 32) | slot as u64);
        let mount = who % world.mounts.len();
        Self { who, world, mount, random, files: (0..FILES).map(file).collect(), epoch: 0 }
    }

    fn at(&self, mount: usize, slot: usize) -> PathBuf {
        self.world.mounts[mount].join(format!("w{}/f{slot}", self.who))
    }

    fn directory(&self) -> PathBuf {
        self.world.mounts[self.mount].join(format!("w{}", self.who))
    }

    fn sync_directory(&self) -> io::Result<()> {
        File::open(self.directory())?.sync_all()
    }

    fn doing(&self, what: &str) {
        let mut doing = lock(&self.world.doing[self.who]);
        let took = doing.1.elapsed();
        let mut slowest = lock(&self.world.slowest);
        if took > slowest.0 && !["waiting", "starting"].contains(&doing.0.as_str()) {
            *slowest = (took, doing.0.clone());
        }
        *doing = (what.into(), Instant::now());
    }

    /// Waits until the mount is up again. False when the run is over.
    fn ready(&mut self) -> bool {
        while self.world.epoch(self.mount) % 2 == 1 && self.world.phase() != END {
            self.doing("waiting");
            sleep(Duration::from_millis(5));
        }
        self.world.phase() != END
    }

    fn work(&mut self, barrier: &Barrier) {
        let made = fs::create_dir_all(self.directory());
        if let Err(why) = made.and_then(|()| self.sync_directory()) {
            return self.world.fail(&format!("writer {}: making its directory: {why}", self.who));
        }
        let mut answered = RUN;
        while !self.world.failed.load(SeqCst) {
            match self.world.phase() {
                END => return,
                RUN => {
                    answered = RUN;
                    if !self.ready() {
                        return;
                    }
                    if let Err(why) = self.step() {
                        return self.world.fail(&format!("writer {}: {why}", self.who));
                    }
                    self.world.operations.fetch_add(1, SeqCst);
                }
                phase if phase == answered => {
                    self.doing("waiting");
                    sleep(Duration::from_millis(20));
                }
                phase => {
                    if phase == CHECK
                        && let Err(why) = self.check_all()
                    {
                        return self.world.fail(&format!("writer {}: {why}", self.who));
                    }
                    answered = phase;
                    self.doing("waiting");
                    if barrier.wait().is_leader() {
                        say(if phase == CHECK { "checked" } else { "paused" });
                    }
                }
            }
        }
    }

    /// One operation on one file.
    fn step(&mut self) -> Result<(), String> {
        if self.world.epoch(self.mount) != self.epoch {
            return self.recover();
        }
        let slot = self.random.usize(..FILES);
        let other = self.random.usize(..self.world.mounts.len());
        let seen = self.world.epoch(other);
        // A disk that was full when the operation began may be the reason when it ends.
        let full = self.world.full.load(SeqCst);
        let is_there = self.files[slot].now.is_some();
        let (what, done) = match self.random.u8(..20) {
            _ if !is_there => ("create", self.replace(slot)),
            0..7 => ("write", self.write(slot)),
            7..11 => ("fsync", self.sync(slot)),
            11..12 => ("truncate", self.truncate(slot)),
            12..14 => ("replace", self.replace(slot)),
            14 => ("remove", self.remove(slot)),
            19 if seen.is_multiple_of(2) => ("read at another mount", self.read(slot, other)),
            _ => ("read", self.read(slot, self.mount)),
        };
        match done {
            Ok(()) => Ok(()),
            Err(Fault::Wrong(why)) => Err(format!("{what} of f{slot}: WRONG: {why}")),
            Err(Fault::Failed(_)) if self.world.epoch(other) != seen && what.contains("another") => Ok(()),
            Err(Fault::Failed(why)) => self.failed(slot, what, &why, full),
        }
    }

    /// An operation failed: that is in order when the mount lost its state, or nothing had space.
    fn failed(&mut self, slot: usize, what: &str, why: &io::Error, full: bool) -> Result<(), String> {
        let begun = Instant::now();
        if why.kind() == ErrorKind::StorageFull && (full || self.world.full.load(SeqCst)) {
            self.world.no_space.fetch_add(1, SeqCst);
            return self.write_anew(slot);
        }
        while begun.elapsed() < CAUSE_TIMEOUT {
            if self.world.epoch(self.mount) != self.epoch {
                return Ok(());
            }
            sleep(Duration::from_millis(5));
        }
        Err(format!("{what} of f{slot}: {why}"))
    }

    /// Replaces a file with a failed write once there is space. Until then, the kernel may show
    /// data that was never stored: a failed sync leaves its pages as they are.
    fn write_anew(&mut self, slot: usize) -> Result<(), String> {
        let (begun, epoch) = (Instant::now(), self.epoch);
        while self.world.epoch(self.mount) == epoch && self.world.phase() != END {
            match self.replace(slot) {
                Ok(()) => return Ok(()),
                Err(Fault::Failed(why)) if begun.elapsed() > CAUSE_TIMEOUT * 24 => {
                    return Err(format!("f{slot} cannot be written anew: {why}"));
                }
                Err(_) => sleep(Duration::from_millis(50)),
            }
        }
        Ok(())
    }

    /// The mount lost unsynced data. Every file must be as it was synced, or later.
    fn recover(&mut self) -> Result<(), String> {
        loop {
            if !self.ready() {
                return Ok(());
            }
            let epoch = self.world.epoch(self.mount);
            let recovered = (0..FILES).try_for_each(|slot| self.settle(slot));
            if self.world.epoch(self.mount) == epoch {
                self.epoch = epoch;
                return recovered;
            }
        }
    }

    /// Makes what there is of a file durable, and looks whether it may be so.
    fn settle(&mut self, slot: usize) -> Result<(), String> {
        self.doing(&format!("settling f{slot}"));
        let epoch = self.world.epoch(self.mount);
        let begun = Instant::now();
        // The first sync may tell what was lost, and space may have to come back.
        let read = loop {
            let synced = match File::open(self.at(self.mount, slot)) {
                Ok(file) => file.sync_all().and_then(|()| self.sync_directory()),
                Err(why) if why.kind() == ErrorKind::NotFound => self.sync_directory(),
                Err(why) => Err(why),
            };
            match synced.and_then(|()| self.content(slot, self.mount)) {
                Ok(read) => break read,
                Err(_) if self.world.epoch(self.mount) != epoch || self.world.phase() == END => return Ok(()),
                Err(why) if begun.elapsed() > CAUSE_TIMEOUT * 12 => {
                    return Err(format!("f{slot} cannot be read after a fault: {why}"));
                }
                Err(_) => sleep(Duration::from_millis(20)),
            }
        };
        let model = &mut self.files[slot];
        let read = read.map(|read| versions(model.file, &read)).transpose();
        let read = read.map_err(|why| format!("f{slot}: WRONG: {why}"))?;
        model.is_possible(read.as_ref()).map_err(|why| format!("f{slot} after a fault: WRONG: {why}"))?;
        model.settle(read);
        Ok(())
    }

    fn content(&self, slot: usize, mount: usize) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.at(mount, slot)) {
            Ok(read) => Ok(Some(read)),
            Err(why) if why.kind() == ErrorKind::NotFound => Ok(None),
            Err(why) => Err(why),
        }
    }

    fn read(&mut self, slot: usize, mount: usize) -> Done {
        self.doing(&format!("reading f{slot} at mount {mount}"));
        let read = self.content(slot, mount)?;
        let model = &self.files[slot];
        // What another mount shows beside a fault of this one is checked after it.
        let same = self.world.epoch(self.mount) == self.epoch;
        let read = read.map(|read| versions(model.file, &read)).transpose().map_err(Fault::Wrong)?;
        if same { model.is_exact(read.as_ref()).map_err(Fault::Wrong) } else { Ok(()) }
    }

    fn open(&self, slot: usize) -> io::Result<File> {
        OpenOptions::new().write(true).open(self.at(self.mount, slot))
    }

    /// A number of cells, small ones more often.
    fn count(&mut self) -> usize {
        let most = [16, 16, 256, 256, 4096, MAX_FILE_CELLS / 4][self.random.usize(..6)];
        self.random.usize(1..=most)
    }

    fn write(&mut self, slot: usize) -> Done {
        let length = self.files[slot].now.as_ref().map_or(0, Vec::len);
        // At the end, inside, or with a hole before it.
        let first = match self.random.u8(..4) {
            0 => length,
            1 => (length + self.random.usize(..100)).min(MAX_FILE_CELLS - 1),
            _ => self.random.usize(..=length),
        };
        let first = first.min(MAX_FILE_CELLS - 1);
        let count = self.count().min(MAX_FILE_CELLS - first);
        self.doing(&format!("writing f{slot} {first}+{count}"));
        let file = self.open(slot)?;
        let model = &mut self.files[slot];
        let version = model.next_version();
        model.write(first, count, version);
        file.write_all_at(&bytes(model.file, first, count, version), (first * CELL) as u64)?;
        self.told_of_space(&file)
    }

    /// A kernel that keeps pages back says at close that there was no space for them, and `File`
    /// does not tell: so what may have none is synced before.
    fn told_of_space(&self, file: &File) -> Done {
        if self.world.full.load(SeqCst) {
            file.sync_data()?;
        }
        Ok(())
    }

    fn sync(&mut self, slot: usize) -> Done {
        self.doing(&format!("syncing f{slot}"));
        let file = self.open(slot)?;
        if self.random.bool() {
            file.sync_all()?
        } else {
            file.sync_data()?
        }
        // A sync that was acknowledged beside a fault says nothing of what the fault dropped.
        if self.world.epoch(self.mount) == self.epoch {
            self.files[slot].sync();
        }
        Ok(())
    }

    fn truncate(&mut self, slot: usize) -> Done {
        let length = self.files[slot].now.as_ref().map_or(0, Vec::len);
        let length = self.random.usize(..=(length + length / 8).min(MAX_FILE_CELLS));
        self.doing(&format!("truncating f{slot} to {length}"));
        let file = self.open(slot)?;
        self.files[slot].set_length(length);
        file.set_len((length * CELL) as u64)?;
        self.told_of_space(&file)
    }

    /// Writes a new file, syncs it, and renames it over the old one: readers see one or the other.
    fn replace(&mut self, slot: usize) -> Done {
        let count = self.count();
        self.doing(&format!("replacing f{slot}"));
        let model = &mut self.files[slot];
        let version = model.next_version();
        let content: Versions = vec![version; count];
        let new = bytes(model.file, 0, count, version);
        model.replace(Some(content));
        let path = self.at(self.mount, slot);
        let beside = path.with_extension("new");
        let mut file = File::create(&beside).map_err(at("creating"))?;
        file.write_all(&new).map_err(at("writing"))?;
        file.sync_all().map_err(at("syncing"))?;
        fs::rename(&beside, &path).map_err(at("renaming"))?;
        self.sync_directory().map_err(at("syncing the directory"))?;
        self.files[slot].replaced();
        Ok(())
    }

    fn remove(&mut self, slot: usize) -> Done {
        self.doing(&format!("removing f{slot}"));
        self.files[slot].replace(None);
        fs::remove_file(self.at(self.mount, slot))?;
        self.sync_directory()?;
        self.files[slot].replaced();
        Ok(())
    }

    /// Every file at every mount.
    fn check_all(&mut self) -> Result<(), String> {
        if self.world.epoch(self.mount) != self.epoch {
            self.recover()?;
        }
        for mount in 0..self.world.mounts.len() {
            for slot in 0..FILES {
                self.read(slot, mount).map_err(|fault| match fault {
                    Fault::Wrong(why) => format!("f{slot} at mount {mount}: WRONG: {why}"),
                    Fault::Failed(why) => format!("f{slot} at mount {mount}: {why}"),
                })?;
            }
        }
        Ok(())
    }
}

/// Says at which step something failed.
fn at(step: &'static str) -> impl FnOnce(io::Error) -> io::Error {
    move |why| io::Error::new(why.kind(), format!("{step}: {why}"))
}

enum Fault {
    /// The content is not what it must be.
    Wrong(String),
    Failed(io::Error),
}

impl From<io::Error> for Fault {
    fn from(why: io::Error) -> Self {
        Self::Failed(why)
    }
}

type Done = Result<(), Fault>;

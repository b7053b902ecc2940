//! The writers, a process of their own. It reads orders from standard input, a line each, and
//! answers each with a line: `begin` (a round begins), `wait` (until each writer has gone on since;
//! the answer has the longest wait of an operation in microseconds), `check` (all that was
//! acknowledged is read). What is wrong is the answer to the next order.

use crate::lock::lock;
use crate::torture::MAX_WAIT;
use crate::torture::model::{bytes, versions};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

const WRITERS_OF_A_MOUNT: usize = 2;
/// Files of a writer.
const FILES: usize = 64;
const MAX_CELLS: usize = 1024;
/// A takeover may fail a sync once, and a session that ends once more.
const MAX_FAILURES: usize = 20;
const EIO: i32 = rustix::io::Errno::IO.raw_os_error();

#[derive(Default)]
struct State {
    /// Turns of each writer that are done.
    turns: Vec<AtomicU64>,
    longest_wait: Mutex<Duration>,
    paused: AtomicBool,
    failure: Mutex<Option<String>>,
    /// What is durable: files and the cells and version of each, of each writer.
    files: Vec<Mutex<BTreeMap<usize, (usize, u32)>>>,
}

/// Writes until standard input ends.
///
/// # Errors
/// When there is no mount to write to.
pub fn run(mounts: &[&str]) -> Result<(), String> {
    if mounts.is_empty() {
        return Err("failover-clients MOUNT...".into());
    }
    let writers = mounts.len() * WRITERS_OF_A_MOUNT;
    let mut state = State::default();
    state.turns.resize_with(writers, AtomicU64::default);
    state.files.resize_with(writers, Mutex::default);
    let state: &State = Box::leak(Box::new(state));
    let mounts: Vec<PathBuf> = mounts.iter().map(PathBuf::from).collect();
    for writer in 0..writers {
        let mount = &mounts[writer % mounts.len()];
        let folder = mount.join(format!("w{writer}"));
        let created = fs::create_dir(&folder).and_then(|()| File::open(mount)?.sync_all());
        created.map_err(|why| format!("{}: {why}", folder.display()))?;
        std::thread::spawn(move || write(state, writer, &folder));
    }
    let mut before = Vec::new();
    for order in io::stdin().lines().map_while(Result::ok) {
        let answer = match order.as_str() {
            "begin" => {
                before = state.turns.iter().map(|turns| turns.load(SeqCst)).collect();
                *lock(&state.longest_wait) = Duration::ZERO;
                Ok("began".into())
            }
            "wait" => all_go_on(state, &before),
            "check" => check(state, &mounts),
            order => Err(format!("what is {order:?}?")),
        };
        let failure = lock(&state.failure).clone();
        let line = failure.map_or(answer, Err).unwrap_or_else(|why| format!("fail {}", why.replace('\n', "; ")));
        let mut out = io::stdout().lock();
        writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|why| why.to_string())?;
    }
    Ok(())
}

/// Waits until each writer has done what it was doing, and one thing more.
fn all_go_on(state: &State, before: &[u64]) -> Result<String, String> {
    let begun = Instant::now();
    let goes_on = |(turns, before): (&AtomicU64, &u64)| turns.load(SeqCst) >= before + 2;
    while !state.turns.iter().zip(before).all(goes_on) {
        if lock(&state.failure).is_some() || begun.elapsed() > MAX_WAIT {
            return Err(format!("not all go on within {MAX_WAIT:?}"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(format!("waited {}", lock(&state.longest_wait).as_micros()))
}

/// Reads each file through each mount. From then on nothing is written.
fn check(state: &State, mounts: &[PathBuf]) -> Result<String, String> {
    state.paused.store(true, SeqCst);
    let (mut count, mut total) = (0, 0);
    for (writer, files) in state.files.iter().enumerate() {
        // The writer holds it while it writes.
        for (&file, &(cells, version)) in &*lock(files) {
            for mount in mounts {
                let path = mount.join(format!("w{writer}/{file}"));
                let read = fs::read(&path).map_err(|why| format!("{}: {why}", path.display()))?;
                is_right(&read, writer, file, cells, version).map_err(|why| format!("{}: {why}", path.display()))?;
                (count, total) = (count + 1, total + read.len());
            }
        }
    }
    let turns: u64 = state.turns.iter().map(|turns| turns.load(SeqCst)).sum();
    Ok(format!("checked {turns} durable changes were made; {count} files with {total} bytes are as they were written"))
}

fn is_right(read: &[u8], writer: usize, file: usize, cells: usize, version: u32) -> Result<(), String> {
    match versions(id(writer, file), read)? {
        found if found.len() != cells => Err(format!("{} cells instead of {cells}", found.len())),
        found => match found.iter().find(|&&found| found != version) {
            Some(found) => Err(format!("version {found} instead of {version}")),
            None => Ok(()),
        },
    }
}

fn id(writer: usize, file: usize) -> u64 {
    (writer * FILES + file) as u64
}

fn write(state: &State, writer: usize, folder: &Path) {
    let mut random = fastrand::Rng::with_seed(writer as u64);
    for version in 1.. {
        while state.paused.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let (file, cells) = (random.usize(..FILES), random.usize(1..MAX_CELLS));
        let mut files = lock(&state.files[writer]);
        let change = Change { state, folder, writer, file, before: files.get(&file).copied(), doing: Cell::default() };
        let done = match (random.u32(..10), change.before) {
            (0, Some(_)) => change.remove().map(|()| None),
            (1..=4, Some((cells, _))) => change.write_over(cells, version).map(|()| Some((cells, version))),
            _ => change.replace(cells, version).map(|()| Some((cells, version))),
        };
        match done {
            Ok(Some(now)) => drop(files.insert(file, now)),
            Ok(None) => drop(files.remove(&file)),
            Err(why) => {
                *lock(&state.failure) = Some(format!("writer {writer}, file {file}, version {version}: {why}"));
                return;
            }
        }
        state.turns[writer].fetch_add(1, SeqCst);
    }
}

/// A change of one file that is durable when it is done.
struct Change<'a> {
    state: &'a State,
    folder: &'a Path,
    writer: usize,
    file: usize,
    before: Option<(usize, u32)>,
    doing: Cell<&'static str>,
}

impl Change<'_> {
    fn path(&self) -> PathBuf {
        self.folder.join(self.file.to_string())
    }

    /// Notes what is done, and how long it took.
    fn timed<T>(&self, what: &'static str, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.doing.set(what);
        let begun = Instant::now();
        let done = work();
        let mut longest = lock(&self.state.longest_wait);
        *longest = begun.elapsed().max(*longest);
        done
    }

    /// Repeats what the end of a server or of a session made fail. The work learns how often it
    /// failed.
    fn insist(&self, work: impl Fn(usize) -> io::Result<()>) -> Result<(), String> {
        for failures in 0.. {
            match work(failures) {
                Ok(()) => break,
                Err(why) if failures < MAX_FAILURES && why.raw_os_error() == Some(EIO) => {}
                Err(why) => {
                    // Whether what was durable before is there.
                    let folder = fs::metadata(self.folder).map(|data| data.len());
                    let failed = format!("failed {failures} times before; the folder: {folder:?}");
                    return Err(format!("{}: {why} ({failed})", self.doing.get()));
                }
            }
        }
        Ok(())
    }

    fn sync_folder(&self) -> io::Result<()> {
        let folder = self.timed("open the folder", || File::open(self.folder))?;
        self.timed("sync the folder", || folder.sync_all())
    }

    /// Writes beside it, and renames.
    fn replace(&self, cells: usize, version: u32) -> Result<(), String> {
        let (new, content) = (self.folder.join("new"), bytes(id(self.writer, self.file), 0, cells, version));
        self.insist(|_| {
            let file = self.timed("create", || File::create(&new))?;
            self.timed("write", || file.write_all_at(&content, 0))?;
            self.timed("sync", || file.sync_all())?;
            self.timed("rename", || fs::rename(&new, self.path()))?;
            self.sync_folder()
        })
    }

    fn write_over(&self, cells: usize, version: u32) -> Result<(), String> {
        let content = bytes(id(self.writer, self.file), 0, cells, version);
        self.insist(|failures| {
            let file = self.timed("open", || OpenOptions::new().read(true).write(true).open(self.path()))?;
            let mut read = Vec::new();
            self.timed("read", || io::Read::read_to_end(&mut &file, &mut read))?;
            // A repetition may find what it wrote itself, or a part of it.
            if let Some((cells, version)) = self.before.filter(|_| failures == 0) {
                is_right(&read, self.writer, self.file, cells, version).map_err(io::Error::other)?;
            }
            self.timed("write", || file.write_all_at(&content, 0))?;
            self.timed("sync", || file.sync_data())
        })
    }

    fn remove(&self) -> Result<(), String> {
        self.insist(|failures| {
            match self.timed("remove", || fs::remove_file(self.path())) {
                // It was removed, and the sync failed.
                Err(why) if failures > 0 && why.kind() == ErrorKind::NotFound => Ok(()),
                removed => removed,
            }?;
            self.sync_folder()
        })
    }
}

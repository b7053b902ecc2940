//! What all clients have: what they know of the run and of one another, and how they work.

use crate::lock::lock;
use crate::torture::model::{Versions, versions};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// A takeover may fail a sync once, and a session that ends once more.
const MAX_FAILURES: usize = 20;
pub const EIO: i32 = rustix::io::Errno::IO.raw_os_error();

/// What a client does, again and again.
pub trait Work {
    fn turn(&mut self) -> Result<(), String>;

    /// After the last turn.
    fn end(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// What a file must be.
#[derive(Clone)]
pub struct Content {
    pub id: u64,
    pub versions: Versions,
}

impl Content {
    pub fn new(id: u64, cells: usize, version: u32) -> Self {
        Self { id, versions: vec![version; cells] }
    }

    pub fn is(&self, read: &[u8]) -> Result<(), String> {
        let found = versions(self.id, read)?;
        if found.len() != self.versions.len() {
            return Err(format!("{} cells instead of {}", found.len(), self.versions.len()));
        }
        match found.iter().zip(&self.versions).position(|(found, right)| found != right) {
            Some(at) => Err(format!("cell {at} has version {} instead of {}", found[at], self.versions[at])),
            None => Ok(()),
        }
    }
}

#[derive(Default)]
pub struct State {
    pub mounts: Vec<PathBuf>,
    /// How long each client rests after a turn.
    pub pace: Duration,
    /// How many files each mount keeps open all the time.
    pub kept: usize,
    /// Turns of each client that are done.
    pub turns: Vec<AtomicU64>,
    pub longest_wait: Mutex<Duration>,
    /// The number of the round, and whether not all have gone on in it.
    pub round: AtomicU64,
    pub in_round: AtomicBool,
    pub has_ended: AtomicBool,
    pub failure: Mutex<Option<String>>,
    /// What is durable, by the name in a mount.
    pub files: Mutex<BTreeMap<String, Content>>,
    /// Operations that said EIO and were repeated.
    pub failed: AtomicU64,
    /// Locks that another client had, and those under which unsynced data of another one was gone.
    pub refused: AtomicU64,
    pub older: AtomicU64,
}

impl State {
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(SeqCst)
    }

    pub fn round(&self) -> u64 {
        self.round.load(SeqCst)
    }

    /// The round, if all have gone on in it: what waits for the next one now keeps nobody waiting.
    pub fn between_rounds(&self) -> Option<u64> {
        let round = self.round();
        (!self.in_round.load(SeqCst)).then_some(round)
    }

    pub fn content(&self, name: &str) -> Option<Content> {
        lock(&self.files).get(name).cloned()
    }

    pub fn is_now(&self, name: String, content: Content) {
        lock(&self.files).insert(name, content);
    }

    pub fn is_no_more(&self, name: &str) {
        lock(&self.files).remove(name);
    }
}

/// A client of one mount.
pub struct Client<'a> {
    pub state: &'a State,
    pub number: usize,
    pub mount: PathBuf,
    /// Its own directory, and where that is.
    pub name: String,
    pub folder: PathBuf,
    pub doing: Cell<&'static str>,
}

impl<'a> Client<'a> {
    /// What it does gives it a name.
    pub fn new(state: &'a State, number: usize, kind: &str) -> Result<Self, String> {
        let mount = state.mounts[number % state.mounts.len()].clone();
        let name = format!("{kind}{number}");
        let folder = mount.join(&name);
        let created = fs::create_dir(&folder).and_then(|()| File::open(&mount)?.sync_all());
        created.map_err(|why| format!("{}: {why}", folder.display()))?;
        Ok(Self { state, number, mount, name, folder, doing: Cell::default() })
    }

    pub fn random(&self) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.number as u64)
    }

    /// Tells this client's files apart from all others.
    pub fn id(&self, file: usize) -> u64 {
        ((self.number as u64 + 1) << 32) | file as u64
    }

    /// The name of one of its files in a mount.
    pub fn name(&self, file: usize) -> String {
        format!("{}/{file}", self.name)
    }

    pub fn path(&self, file: usize) -> PathBuf {
        self.folder.join(file.to_string())
    }

    /// Notes what is done, and how long it took.
    pub fn timed<T>(&self, what: &'static str, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.doing.set(what);
        let begun = Instant::now();
        let done = work();
        let mut longest = lock(&self.state.longest_wait);
        *longest = begun.elapsed().max(*longest);
        done
    }

    /// Repeats what the end of a server or of a session made fail. The work learns how often it
    /// failed.
    pub fn insist<T>(&self, work: impl Fn(usize) -> io::Result<T>) -> Result<T, String> {
        let mut failures = 0;
        loop {
            match work(failures) {
                Ok(done) => return Ok(done),
                Err(why) if failures < MAX_FAILURES && why.raw_os_error() == Some(EIO) => {
                    self.state.failed.fetch_add(1, SeqCst);
                    failures += 1;
                }
                Err(why) => {
                    // Whether what was durable before is there.
                    let folder = fs::metadata(&self.folder).map(|data| data.len());
                    let failed = format!("failed {failures} times before; the folder: {folder:?}");
                    return Err(format!("{}: {why} ({failed})", self.doing.get()));
                }
            }
        }
    }

    pub fn sync_folder(&self) -> io::Result<()> {
        let folder = self.timed("open the folder", || File::open(&self.folder))?;
        self.timed("sync the folder", || folder.sync_all())
    }

    /// All of a file that is open.
    pub fn read(&self, file: &File) -> io::Result<Vec<u8>> {
        let mut read = vec![0; 4096];
        let mut length = 0;
        loop {
            match self.timed("read", || file.read_at(&mut read[length..], length as u64))? {
                0 => break,
                more => length += more,
            }
            if length == read.len() {
                read.resize(2 * length, 0);
            }
        }
        read.truncate(length);
        Ok(read)
    }
}

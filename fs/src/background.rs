//! Background threads: they write out full stripes and commit data that has been dirty for long
//! enough.

use crate::data::buffer::Taken;
use crate::data::file::File;
use crate::data::packer::Packer;
use crate::data::pauses::Pauses;
use crate::{Error, FileSystem, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use volume::lock;

/// Dirty data is committed after this time.
const COMMIT_AFTER: Duration = Duration::from_secs(5);
/// The interval at which the volume thread looks for dirty data and other work.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Stripes that may wait for a thread. With more, writers wait.
const MAX_QUEUED_STRIPES: usize = 8;
/// How many threads store stripes at most. Each has a stripe on its way.
const MAX_STORING_THREADS: usize = 16;

/// How long closing waits for helpers. Their work may be interrupted at any moment, and a helper
/// that waits for a hanging target takes long.
pub(crate) const HELPER_TIMEOUT: Duration = Duration::from_secs(1);

/// A stripe's worth of data of a file.
type Job = (Arc<File>, Vec<Taken>);

/// The threads and the queues to them. The threads end when this is dropped.
pub(crate) struct Background {
    jobs: Mutex<Option<SyncSender<Job>>>,
    hurry: Mutex<Option<SyncSender<()>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Threads whose work may be interrupted at any moment.
    helpers: Mutex<Vec<JoinHandle<()>>>,
    pauses: Arc<Pauses>,
}

impl Background {
    /// Creates the queues; `start` creates the threads.
    pub fn new() -> Self {
        Self {
            jobs: Mutex::default(),
            hurry: Mutex::default(),
            threads: Mutex::default(),
            helpers: Mutex::default(),
            pauses: Arc::default(),
        }
    }

    /// Starts the threads. A thread holds the file system only while it works for it.
    pub fn start(&self, fs: &Arc<FileSystem>) {
        let (jobs, queue) = sync_channel::<Job>(MAX_QUEUED_STRIPES);
        let (hurry, ticks) = sync_channel(1);
        let queue = Arc::new(Mutex::new(queue));
        let (mut threads, mut helpers) = (Vec::new(), Vec::new());
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        for _ in 0..cores.max(fs.store.stripes_wanted()).clamp(2, MAX_STORING_THREADS) {
            let (fs, queue) = (Arc::downgrade(fs), queue.clone());
            threads.push(std::thread::spawn(move || store_stripes(&fs, &queue)));
        }
        let weak = Arc::downgrade(fs);
        threads.push(std::thread::spawn(move || look_after(&weak, &ticks)));
        let start = |work: fn(&Weak<FileSystem>, &Pauses)| {
            let (weak, pauses) = (Arc::downgrade(fs), self.pauses.clone());
            std::thread::spawn(move || work(&weak, &pauses))
        };
        if !fs.volume.read_only {
            // Nobody waits for its end: it may wait for a target that hangs.
            start(crate::maintenance::probe::probe);
        }
        let mut help = |work| helpers.push(start(work));
        if !fs.is_shared() {
            help(crate::data::space::watch);
            help(crate::maintenance::collect::collect);
            if !fs.volume.read_only {
                help(crate::maintenance::orphan_chunks::watch);
                help(crate::maintenance::rebalance::watch);
            }
        }
        *lock(&self.jobs) = Some(jobs);
        *lock(&self.hurry) = Some(hurry);
        (*lock(&self.threads), *lock(&self.helpers)) = (threads, helpers);
    }

    /// Queues data to be put into a stripe. Waits while the queue is full. Gives the data back when
    /// the threads have ended.
    pub fn store(&self, file: Arc<File>, taken: Vec<Taken>) -> std::result::Result<(), Vec<Taken>> {
        let Some(jobs) = lock(&self.jobs).clone() else { return Err(taken) };
        jobs.send((file, taken)).map_err(|refused| refused.0.1)
    }

    /// Requests that all dirty data is written soon.
    pub fn hurry(&self) {
        if let Some(hurry) = &*lock(&self.hurry) {
            let _ = hurry.try_send(());
        }
    }

    /// Ends the threads after they have done what is queued. Mark the file system as closed before.
    pub fn stop(&self) {
        lock(&self.jobs).take();
        lock(&self.hurry).take();
        self.pauses.end();
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            // The last holder of a file system may be one of its own threads.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
        let helpers = std::mem::take(&mut *lock(&self.helpers));
        let (begun, own) = (Instant::now(), std::thread::current().id());
        let runs = |helper: &JoinHandle<()>| helper.thread().id() != own && !helper.is_finished();
        while helpers.iter().any(runs) && begun.elapsed() < HELPER_TIMEOUT {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn store_stripes(fs: &Weak<FileSystem>, queue: &Mutex<Receiver<Job>>) {
    loop {
        let job = lock(queue).recv();
        let Ok((file, taken)) = job else { return };
        let Some(fs) = fs.upgrade() else {
            // The file system is being dropped and commits the dirty data itself.
            taken.iter().for_each(|piece| file.state().buffer.written(piece, None));
            file.arrived();
            continue;
        };
        let file = fs.table.hold(file);
        let done = fs.beside("storing a stripe", || fs.store_pieces(&file, taken));
        let defect = || Err(Error::Invalid("a defect, see the log".into()));
        if let Err(error) = done.unwrap_or_else(defect) {
            file.state().failed = Some(error);
        }
    }
}

/// Runs once a second, and at once when `hurry` is called.
fn look_after(fs: &Weak<FileSystem>, ticks: &Receiver<()>) {
    loop {
        let tick = ticks.recv_timeout(CHECK_INTERVAL);
        let Some(fs) = fs.upgrade().filter(|_| tick != Err(RecvTimeoutError::Disconnected)) else { return };
        // A client rejoins targets with its heartbeat, the server of clients with its sessions.
        if !fs.is_shared() {
            fs.beside("looking for missing targets", || fs.rejoin_targets());
        }
        fs.tick(tick.is_ok());
    }
}

/// Runs background work. Returns None if it panics: `tell` gets a line about that, and the thread
/// continues.
pub fn caught<T>(what: &str, tell: impl FnOnce(&str), work: impl FnOnce() -> T) -> Option<T> {
    // A panic leaves the same state as an error does: locks stay usable, and the next run does the
    // work.
    let done = catch_unwind(AssertUnwindSafe(work)).ok();
    if done.is_none() {
        let line = format!("a defect in {what}, see the message about a panic; please report it");
        let _ = catch_unwind(AssertUnwindSafe(|| tell(&line)));
    }
    done
}

impl FileSystem {
    /// Runs background work. Returns None if it panics: that is logged and counted, and the thread
    /// continues.
    pub fn beside<T>(&self, what: &str, work: impl FnOnce() -> T) -> Option<T> {
        #[cfg(test)]
        let work = || {
            self.counts.begins(what);
            work()
        };
        caught(what, |line| self.note_defect(line), work)
    }

    /// As [`Self::beside`], for work that may wait for a target and does without the file system: a
    /// volume that is closed meanwhile does not stay open for it.
    pub(crate) fn beside_without<T>(fs: &Weak<Self>, what: &str, work: impl FnOnce() -> T) -> Option<T> {
        let tell = |line: &str| fs.upgrade().iter().for_each(|fs| fs.note_defect(line));
        caught(what, tell, work)
    }

    /// Logs and counts a panic of background work.
    fn note_defect(&self, line: &str) {
        self.counts.defects.fetch_add(1, Ordering::Relaxed);
        self.volume.warn(line);
    }

    fn store_pieces(&self, file: &Arc<File>, taken: Vec<Taken>) -> Result<()> {
        let mut packer = Packer::new(self);
        packer.add_all(file, taken)?;
        packer.finish_if_long()
    }

    /// One step of the periodic work. A step that fails or panics keeps no other from its turn.
    fn step(&self, what: &str, work: impl FnOnce() -> Result<()>) {
        self.beside(what, || {
            if let Err(error) = work() {
                self.volume.warn(&error.to_string());
            }
        });
    }

    /// The periodic work. What fails here is tried again at the next tick; a caller that syncs gets
    /// the error.
    fn tick(&self, hurry: bool) {
        if self.is_shared() {
            self.step("looking after the session", || self.tick_client());
        }
        if self.volume.read_only {
            return;
        }
        if hurry || self.memory.is_half_full() {
            self.step("writing data out", || {
                let held = self.table.all();
                let files: Vec<Arc<File>> = held.iter().map(|file| Arc::clone(file)).collect();
                self.memory.attempt(|| self.flush(&files, false))
            });
        }
        let since = Instant::now().checked_sub(COMMIT_AFTER);
        self.beside("forgetting removed files", || self.forget_removed(since));
        self.step("committing", || self.commit_all(since));
        self.step("queueing repairs", || self.store.queue_damaged());
        if self.is_shared() {
            return;
        }
        self.step("moving data out of the metadata", || self.move_inline());
        self.step("compacting", || self.compact_one().map(drop));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Lab, Way, make};
    use session::port::{Remote, Session};

    /// Each step of a tick panics in turn, at every attempt.
    #[test]
    fn a_step_that_panics_keeps_no_other_from_its_turn() {
        let lab = Lab::new("rs:2+1", 3);
        let own: &[&str] = &[
            "writing data out",
            "forgetting removed files",
            "committing",
            "queueing repairs",
            "moving data out of the metadata",
            "compacting",
        ];
        let clients: &[&str] = &[
            "looking after the session",
            "renewing chunk sets",
            "releasing chunk sets",
            "getting chunk sets",
            "telling what is clean",
            "syncing old changes",
            "writing data out",
            "forgetting removed files",
            "committing",
            "queueing repairs",
        ];
        for (fs, steps) in [(lab.open(), own), (Lab::new("rs:2+1", 3).client(), clients)] {
            for broken in steps {
                let before = fs.counts.defects();
                fs.counts.breaks(Some(broken));
                fs.tick(true);
                let begun = fs.counts.begun();
                let missing = |step: &&&str| !begun.contains(**step) && *broken != "looking after the session";
                assert_eq!(steps.iter().filter(missing).collect::<Vec<_>>(), [""; 0].iter().collect::<Vec<_>>());
                assert!(fs.counts.defects() > before, "{broken} does not count");
            }
            // The thread of the volume goes on, too: what no step needs is done.
            fs.counts.breaks(Some("writing data out"));
            let ino = make(&fs, "file");
            fs.write(ino, 0, &[7; 100_000]).unwrap();
            fs.background.hurry();
            let begun = Instant::now();
            while fs.dirty_bytes() > 0 {
                assert!(begun.elapsed() < Duration::from_secs(60), "nothing is committed");
                std::thread::sleep(Duration::from_millis(20));
            }
            fs.abandon();
        }
    }

    /// The same for a server of clients: a session that falls silent ends.
    #[test]
    fn a_step_of_a_server_that_panics_keeps_no_session_alive() {
        let lab = Lab::new("rs:2+1", 3);
        let server = lab.serve(Duration::from_millis(400));
        let steps = [
            "noting that the server runs",
            "ending the grace period",
            "letting removed files go",
            "looking for missing targets",
        ];
        for broken in steps {
            let counts = &server.volume().counts;
            let before = counts.defects();
            counts.breaks(Some(broken));
            Remote(Way(server.clone(), None)).begin(None, "silent".into(), Vec::new()).unwrap();
            let begun = Instant::now();
            while !server.clients().is_empty() {
                assert!(begun.elapsed() < Duration::from_secs(60), "without {broken}");
                server.tick();
                std::thread::sleep(Duration::from_millis(10));
            }
            assert!(counts.defects() > before, "{broken} does not count");
        }
    }
}

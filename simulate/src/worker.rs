//! A program on a client: it does one thing after the other and records the results.

use crate::client::Client;
use crate::history::{Act, Append, Found, Naming, Read, Section, Sync, Write};
use crate::lab::Lab;
use crate::work::{self, COUNTERS, CUT_LOG, DIRECTORIES, FILES, FIRST_COUNTER, LOG, NAMES, Places, RECORD};
use fs::{FileKind, FileLock, FileSystem, RenameMode, SetAttributes};
use meta::Error as M;
use plan::Ino;
use session::port::within_session;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;
use world::Dice;

/// A program.
pub struct Worker {
    pub lab: Arc<Lab>,
    pub client: Arc<Client>,
    pub places: Arc<Places>,
    /// Its number among all.
    pub number: usize,
    /// It comes to its end.
    pub stop: Arc<AtomicBool>,
    pub dice: Dice,
}

impl Worker {
    fn fs(&self) -> &FileSystem {
        &self.client.fs
    }

    /// Works until it is told to stop.
    pub fn run(mut self) {
        while !self.stop.load(Ordering::Relaxed) {
            match self.dice.below(20) {
                0..8 => self.name(),
                8..12 => self.write(),
                12..15 => self.read(),
                15..17 => self.count(),
                17 => self.append(),
                18 => self.sync_all(),
                _ => sleep(Duration::from_millis(self.dice.below(3000))),
            }
            sleep(Duration::from_millis(self.dice.below(200)));
        }
    }

    /// Writes an operation down that has failed, if it has.
    fn noted<T>(&self, what: &str, done: fs::Result<T>) -> Option<T> {
        match done {
            Ok(done) => Some(done),
            Err(why) => {
                world::note(format_args!("worker {}: {what}: {why}", self.number));
                self.lab.history.failed(self.client.number);
                None
            }
        }
    }

    /// Closes a file that was open for writing, as a mount does.
    fn close(&self, ino: Ino) {
        self.noted("closing", self.fs().commit_at_close(ino));
        self.noted("closing", self.fs().check_loss_at_close(ino));
        self.fs().close(ino);
    }

    /// Something with the names of a directory.
    fn name(&mut self) {
        let directory = self.dice.below(DIRECTORIES as u64) as usize;
        let (name, other) = (self.dice.below(NAMES.into()) as u8, self.dice.below(NAMES.into()) as u8);
        let act = match self.dice.below(10) {
            0..3 => Act::Make(name),
            3..5 => Act::Unlink(name),
            5 => Act::Rename(name, other),
            6 => match self.fs().lookup(self.places.directories[directory], &work::name(other)) {
                Ok(found) => Act::Link(found.ino, name),
                Err(_) => return,
            },
            7 | 8 => Act::Lookup(name),
            _ => Act::List,
        };
        let (history, client) = (&self.lab.history, self.client.number);
        let span = history.begin();
        let naming = Naming { directory, client, span, act: act.clone(), found: Found::Unknown };
        let at = history.with(|all| {
            all.namings.push(naming);
            all.namings.len() - 1
        });
        let found = self.act(self.places.directories[directory], &act);
        let span = history.end(&span);
        world::note(format_args!("worker {}: directory {directory}: {act:?}: {found:?}", self.number));
        history.with(|all| (all.namings[at].span, all.namings[at].found) = (span, found));
    }

    fn act(&self, directory: Ino, act: &Act) -> Found {
        let fs = self.fs();
        let done = |done: fs::Result<()>| done.map(|()| Found::Done);
        let result = match *act {
            Act::Make(name) => {
                fs.make(directory, &work::name(name), &work::new(FileKind::File)).map(|of| Found::File(of.ino))
            }
            Act::Unlink(name) => done(fs.unlink(directory, &work::name(name))),
            Act::Rename(from, to) => {
                done(fs.rename((directory, &work::name(from)), (directory, &work::name(to)), RenameMode::Replace))
            }
            Act::Link(ino, name) => done(fs.link(ino, directory, &work::name(name)).map(drop)),
            Act::Lookup(name) => fs.lookup(directory, &work::name(name)).map(|of| Found::File(of.ino)),
            Act::List => fs.list(directory, 0, 100).map(|all| {
                let mut all: Vec<(u8, Ino)> =
                    all.iter().map(|entry| (entry.name[0] - b'a', entry.attributes.ino)).collect();
                all.sort_unstable();
                Found::All(all)
            }),
        };
        match result {
            Ok(found) => found,
            Err(fs::Error::Meta(M::NotFound) | fs::Error::Stale) => Found::Missing,
            Err(fs::Error::Meta(M::Exists)) => Found::Exists,
            Err(why) => {
                self.noted::<()>("a name", Err(why));
                Found::Unknown
            }
        }
    }

    /// The next version of the own file: one more than all that it ever began.
    fn next_version(&self) -> u64 {
        let own = |all: &crate::history::All| all.writes.iter().filter(|write| write.file == self.number).count();
        self.lab.history.with(|all| own(all)) as u64 + 1
    }

    /// Writes the own file, and mostly syncs it.
    fn write(&mut self) {
        let (history, client, file) = (&self.lab.history, self.client.number, self.number);
        let (ino, version, syncs) = (self.places.files[file], self.next_version(), self.dice.below(3) > 0);
        if self.noted("opening", self.fs().open(ino, true)).is_none() {
            return;
        }
        let span = history.begin();
        let at = history.with(|all| {
            all.writes.push(Write { file, client, version, span, done: false });
            all.writes.len() - 1
        });
        let done = self.fs().write(ino, 0, &work::content(version, work::length(file)));
        let done = self.noted("writing", done).is_some();
        let span = history.end(&span);
        world::note(format_args!("worker {file}: writes version {version}: {done}"));
        history.with(|all| (all.writes[at].span, all.writes[at].done) = (span, done));
        if syncs {
            self.sync(Some(file));
        }
        self.close(ino);
    }

    /// Syncs a file, or all. Returns whether that succeeded.
    fn sync(&self, file: Option<usize>) -> bool {
        let (history, client) = (&self.lab.history, self.client.number);
        let span = history.begin();
        let done = match file {
            Some(file) => self.fs().sync(self.places.files[file]),
            None => self.fs().sync_all(),
        };
        let done = self.noted("syncing", done).is_some();
        let span = history.end(&span);
        world::note(format_args!("worker {}: syncs {file:?}: {done}", self.number));
        if done {
            history.with(|all| all.syncs.push(Sync { client, file, span }));
        }
        done
    }

    fn sync_all(&mut self) {
        self.sync(None);
    }

    /// Opens and reads a file.
    fn read(&mut self) {
        let file = self.dice.below(FILES as u64) as usize;
        let span = self.lab.history.begin();
        let Some(bytes) = self.content(file, true) else { return };
        let span = self.lab.history.end(&span);
        let Some(version) = work::version(&bytes) else {
            world::fail(&format!("file {file} is a mix: {}", mix(&bytes)))
        };
        world::note(format_args!("worker {}: reads version {version} of file {file}", self.number));
        self.lab.history.with(|all| all.reads.push(Read { file, span, version }));
    }

    /// The content of a file, opened again if `open`.
    fn content(&self, file: usize, open: bool) -> Option<Vec<u8>> {
        let (fs, ino) = (self.fs(), self.places.files[file]);
        if open {
            self.noted("opening", fs.open(ino, false))?;
        }
        let mut bytes = vec![0; work::length(file) + 10];
        let found = fs.read(ino, 0, &mut bytes);
        if open {
            fs.close(ino);
        }
        let found = self.noted("reading", found)?;
        bytes.truncate(found);
        Some(bytes)
    }

    /// Raises a counter under an exclusive lock.
    fn count(&mut self) {
        let counter = self.dice.below(COUNTERS as u64) as usize;
        let (file, ino) = (FIRST_COUNTER + counter, self.places.files[FIRST_COUNTER + counter]);
        let syncs = self.dice.one_in(2);
        if self.noted("opening", self.fs().open(ino, true)).is_none() {
            return;
        }
        let history = &self.lab.history;
        let span = history.begin();
        let wanted = FileLock {
            owner: self.number as u64 + 1,
            first: 0,
            last: u64::MAX,
            exclusive: true,
            process: self.number as u32,
        };
        // All in one session: in another one the lock is not held.
        let session = self.client.session();
        within_session(Some(session), || {
            let tries = std::cell::Cell::new(0);
            let goes_on = || {
                tries.set(tries.get() + 1);
                tries.get() < 10
            };
            if self.noted("locking", self.fs().lock(ino, &wanted, Some(&goes_on))) != Some(true) {
                return;
            }
            let held = history.begin();
            if let Some((read, written, synced)) = self.raise(file, syncs) {
                let held = history.end(&held);
                let released = self.noted("unlocking", self.fs().unlock(ino, wanted.owner, 0, u64::MAX)).is_some();
                let client = self.client.number;
                let is_lost = self.fs().has_lost_locks() || self.client.session() != session;
                let span = history.end(&span);
                let done =
                    written && released && !is_lost && history.with(|all| all.is_clean(client, span.begin, u64::MAX));
                world::note(format_args!("worker {}: counter {counter} was {read}: {done}, {synced}", self.number));
                let section = Section { counter, client, span, held, read, done, synced: synced && done };
                history.with(|all| all.sections.push(section));
            } else {
                self.noted("unlocking", self.fs().unlock(ino, wanted.owner, 0, u64::MAX));
            }
        });
        self.fs().take_lost_locks();
        self.close(ino);
    }

    /// What a counter was, whether it was written, and whether it was synced.
    fn raise(&self, file: usize, syncs: bool) -> Option<(u64, bool, bool)> {
        let bytes = self.content(file, false)?;
        let Some(read) = work::version(&bytes) else {
            world::fail(&format!("counter {file} is a mix: {}", mix(&bytes)))
        };
        let ino = self.places.files[file];
        let new = work::content(read + 1, work::length(file));
        let written = self.noted("writing", self.fs().write(ino, 0, &new)).is_some();
        let synced = syncs && self.sync(Some(file));
        Some((read, written, synced))
    }

    /// Appends a record to a log, and mostly syncs it, or truncates it.
    fn append(&mut self) {
        let log = if self.dice.one_in(2) { LOG } else { CUT_LOG };
        let (history, client, ino) = (&self.lab.history, self.client.number, self.places.files[log]);
        if log == CUT_LOG && self.dice.one_in(6) {
            return self.cut(ino);
        }
        if self.noted("opening", self.fs().open(ino, true)).is_none() {
            return;
        }
        let span = history.begin();
        let (at, record) = history.with(|all| {
            let record = all.appends.len() as u64 + 1;
            all.appends.push(Append { log, client, record, span, done: false });
            (all.appends.len() - 1, record)
        });
        let done = self.noted("appending", self.fs().append(ino, &work::content(record, RECORD))).is_some();
        let span = history.end(&span);
        world::note(format_args!("worker {}: appends {record} to log {log}: {done}", self.number));
        history.with(|all| (all.appends[at].span, all.appends[at].done) = (span, done));
        if self.dice.below(3) > 0 {
            self.sync(Some(log));
        }
        self.close(ino);
    }

    /// Empties a log.
    fn cut(&self, ino: Ino) {
        let history = &self.lab.history;
        let span = history.begin();
        let at = history.with(|all| {
            all.cuts.push(span);
            all.cuts.len() - 1
        });
        let change = SetAttributes { size: Some(0), ..SetAttributes::default() };
        let done = self.noted("truncating", self.fs().set_attributes(ino, change)).is_some();
        // One that failed may still be carried out.
        let end = if done { history.end(&span) } else { span };
        world::note(format_args!("worker {}: empties the log: {done}", self.number));
        history.with(|all| all.cuts[at] = end);
    }
}

/// The versions in a content that is a mix of several.
pub fn mix(bytes: &[u8]) -> String {
    let mut parts: Vec<(usize, u64)> = Vec::new();
    for (at, word) in bytes.chunks_exact(8).enumerate() {
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        if parts.last().is_none_or(|(_, last)| *last != word) {
            parts.push((at * 8, word));
        }
    }
    parts.truncate(20);
    format!("{} bytes, {parts:x?}", bytes.len())
}

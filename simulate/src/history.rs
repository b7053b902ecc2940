//! What the programs on the clients did: when each operation began and ended, and its result. And
//! what failed meanwhile. Times are nanoseconds of the world; no two are the same.

use plan::Ino;
use std::sync::Mutex;
use volume::lock;

/// When an operation ran. Without an end its result is not known, and it may still have an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub begin: u64,
    pub end: Option<u64>,
}

impl Span {
    /// Whether it ended before `other` began.
    pub fn is_before(&self, other: &Self) -> bool {
        self.end.is_some_and(|end| end < other.begin)
    }
}

/// An operation on the names of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    Make(u8),
    Unlink(u8),
    Rename(u8, u8),
    Link(Ino, u8),
    Lookup(u8),
    List,
}

/// Its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Done,
    File(Ino),
    Missing,
    Exists,
    /// Names and files, by name.
    All(Vec<(u8, Ino)>),
    /// An error that says nothing.
    Unknown,
}

/// An operation on names, with its result.
#[derive(Clone, Debug)]
pub struct Naming {
    pub directory: usize,
    pub client: usize,
    pub span: Span,
    pub act: Act,
    pub found: Found,
}

/// A write of a whole file, whose every word is the version.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    pub file: usize,
    pub client: usize,
    pub version: u64,
    pub span: Span,
    pub done: bool,
}

/// A file was opened and read.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    pub file: usize,
    pub span: Span,
    pub version: u64,
}

/// Everything that a client had done to a file, or to all, became durable.
#[derive(Clone, Copy, Debug)]
pub struct Sync {
    pub client: usize,
    /// None: all files.
    pub file: Option<usize>,
    pub span: Span,
}

/// A counter was read and raised by one under an exclusive lock.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    pub counter: usize,
    pub client: usize,
    /// From before the request for the lock until after its release.
    pub span: Span,
    /// When the lock was certainly held.
    pub held: Span,
    pub read: u64,
    /// It was raised and released without an error.
    pub done: bool,
    /// It was synced before the release.
    pub synced: bool,
}

/// A record was appended to a log.
#[derive(Clone, Copy, Debug)]
pub struct Append {
    pub log: usize,
    pub client: usize,
    pub record: u64,
    pub span: Span,
    pub done: bool,
}

/// Everything, each kind in the order of the beginnings.
#[derive(Debug, Default)]
pub struct All {
    pub namings: Vec<Naming>,
    pub writes: Vec<Write>,
    pub reads: Vec<Read>,
    pub syncs: Vec<Sync>,
    pub sections: Vec<Section>,
    pub appends: Vec<Append>,
    /// When the log that is truncated was, or may have been.
    pub cuts: Vec<Span>,
    /// When the metadata server died.
    pub deaths: Vec<u64>,
    /// When an operation of a client failed, and which client.
    pub errors: Vec<(usize, u64)>,
    /// From when until when something did not work, or may not have.
    pub disturbed: Vec<(u64, u64)>,
    /// The last time that was given out.
    pub last: u64,
}

impl All {
    /// Whether a client had no error in this time.
    pub fn is_clean(&self, client: usize, from: u64, to: u64) -> bool {
        !self.errors.iter().any(|(other, at)| *other == client && (from..=to).contains(at))
    }

    /// Whether all worked in this time.
    pub fn is_calm(&self, from: u64, to: u64) -> bool {
        !self.disturbed.iter().any(|(begin, end)| *begin <= to && from <= *end)
    }

    /// Whether the metadata server died in this time.
    pub fn died(&self, from: u64, to: u64) -> bool {
        self.deaths.iter().any(|at| (from..=to).contains(at))
    }

    /// Whether what a client did to a file became durable before a moment: in `span`, and synced
    /// after it, with no error from the beginning on.
    pub fn is_durable(&self, client: usize, file: usize, span: &Span, before: u64) -> bool {
        self.syncs.iter().any(|sync| {
            sync.client == client
                && sync.file.is_none_or(|other| other == file)
                && span.is_before(&sync.span)
                && sync.span.end.is_some_and(|end| end < before && self.is_clean(client, span.begin, end))
        })
    }
}

/// The history of a run.
#[derive(Debug, Default)]
pub struct History(Mutex<All>);

impl History {
    /// Looks at everything, or adds something.
    pub fn with<T>(&self, work: impl FnOnce(&mut All) -> T) -> T {
        world::atomically(|| work(&mut lock(&self.0)))
    }

    /// The time now; later than all before.
    pub fn now(&self) -> u64 {
        let now = world::now().as_nanos() as u64;
        self.with(|all| {
            all.last = now.max(all.last + 1);
            all.last
        })
    }

    /// An operation that begins now.
    pub fn begin(&self) -> Span {
        Span { begin: self.now(), end: None }
    }

    /// An operation that ends now.
    pub fn end(&self, span: &Span) -> Span {
        Span { end: Some(self.now()), ..*span }
    }

    /// The metadata server died now.
    pub fn server_died(&self) {
        let now = self.now();
        self.with(|all| all.deaths.push(now));
    }

    /// An operation of a client failed now.
    pub fn failed(&self, client: usize) {
        let now = self.now();
        self.with(|all| all.errors.push((client, now)));
    }
}

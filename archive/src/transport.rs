//! How the roles of a job reach each other, and the loop in which each of them lives.
//!
//! # For whoever writes another transport (MPI)
//! A rank is one role instance; [`Crew`] says which rank is what: 0 the manager, 1 the reporter, then the explorers, then the workers. A transport has two
//! operations: `send`, which may block only while the receiver has not taken what it was sent before, and `receive`, which waits without spinning.
//! Messages between two ranks arrive in the order in which they were sent; nothing is assumed about messages of different ranks.
//!
//! The protocol bounds what is under way, so that buffers need not: an explorer has one `Found` unanswered, a worker one task to do; a message is a few
//! hundred KiB at most (`message.rs`). Only `Problem`, `Worked` and `Tally` go out unasked, all to the reporter, which waits for nobody: letting `send`
//! block on it is safe.
//!
//! Each rank makes its role and calls [`live`]; the manager needs nothing but the numbers of others and the first walks, explorers and workers need the volume (an
//! [`fs::FileSystem`], in another process one that was opened through a server) and what [`crate::encode`] and [`crate::walk`] are made of.

use crate::message::Message;
use std::sync::mpsc::{Receiver, RecvError, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The number of a role instance.
pub type Rank = u32;
/// Who hands out the work.
pub const MANAGER: Rank = 0;
/// Who collects what was done.
pub const REPORTER: Rank = 1;

/// Which rank is what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crew {
    /// Explorers.
    pub explorers: u32,
    /// Workers.
    pub workers: u32,
}

impl Crew {
    /// Everybody.
    pub fn ranks(self) -> u32 {
        2 + self.explorers + self.workers
    }

    /// The rank of an explorer, counted from 0.
    pub fn explorer(self, number: u32) -> Rank {
        2 + number
    }

    /// The rank of a worker, counted from 0.
    pub fn worker(self, number: u32) -> Rank {
        2 + self.explorers + number
    }

    /// Which explorer a rank is.
    pub fn explorer_of(self, rank: Rank) -> Option<u32> {
        rank.checked_sub(2).filter(|&number| number < self.explorers)
    }

    /// Which worker a rank is.
    pub fn worker_of(self, rank: Rank) -> Option<u32> {
        rank.checked_sub(2 + self.explorers).filter(|&number| number < self.workers)
    }
}

/// Why a job cannot go on, in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken(pub String);

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Broken {}

impl From<fs::Error> for Broken {
    fn from(error: fs::Error) -> Self {
        Self(error.to_string())
    }
}

/// A rank's way to the others.
pub trait Transport {
    /// Sends a message.
    ///
    /// # Errors
    /// When it cannot arrive any more.
    fn send(&self, to: Rank, message: Message) -> Result<(), Broken>;

    /// The next message and who sent it. Waits for one, no longer than said; None when none came.
    ///
    /// # Errors
    /// When none can come any more.
    fn receive(&self, wait: Option<Duration>) -> Result<Option<(Rank, Message)>, Broken>;
}

/// Messages that a role wants to send.
pub type Outbox = Vec<(Rank, Message)>;

/// What a role does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It waits for a message.
    Wait,
    /// It waits so long for a message and then has something to do.
    WaitUntil(Instant),
    /// It has something to do.
    Work,
    /// It is done.
    End,
}

/// One of the four roles: a state machine that is told what arrived and says what to send. It knows no transport, and waits for nobody itself.
pub trait Role {
    /// Takes a message.
    ///
    /// # Errors
    /// When the job cannot go on.
    fn handle(&mut self, from: Rank, message: Message, out: &mut Outbox) -> Result<(), Broken>;

    /// Does a piece of what there is to do.
    ///
    /// # Errors
    /// When the job cannot go on.
    fn work(&mut self, out: &mut Outbox) -> Result<(), Broken>;

    /// What it does next.
    fn next(&self) -> Next;
}

/// What [`Transport::receive`] is where messages arrive in an inbox.
///
/// # Errors
/// When nobody can send to it any more.
pub fn receive_from(
    inbox: &Receiver<(Rank, Message)>,
    wait: Option<Duration>,
) -> Result<Option<(Rank, Message)>, RecvError> {
    match wait {
        None => inbox.recv().map(Some),
        Some(Duration::ZERO) => Ok(inbox.try_recv().ok()),
        Some(wait) => match inbox.recv_timeout(wait) {
            Ok(received) => Ok(Some(received)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(RecvError),
        },
    }
}

/// Lets a role live until it is done.
///
/// # Errors
/// When the job could not go on because of this role, or because others cannot be reached; the manager was told.
pub fn live(role: &mut dyn Role, me: Rank, transport: &dyn Transport) -> Result<(), Broken> {
    let done = live_on(role, transport);
    if let (Err(broken), true) = (&done, me > REPORTER) {
        let _ = transport.send(MANAGER, Message::Failed(broken.0.clone()));
        let _ = transport.send(REPORTER, Message::Bye);
    }
    done
}

fn live_on(role: &mut dyn Role, transport: &dyn Transport) -> Result<(), Broken> {
    let mut out = Outbox::new();
    loop {
        let wait = match role.next() {
            Next::End => return Ok(()),
            Next::Wait => None,
            Next::WaitUntil(when) => Some(when.saturating_duration_since(Instant::now())),
            Next::Work => Some(Duration::ZERO),
        };
        match transport.receive(wait)? {
            Some((from, message)) => role.handle(from, message, &mut out)?,
            None => role.work(&mut out)?,
        }
        for (to, message) in out.drain(..) {
            transport.send(to, message)?;
        }
    }
}

//! The interface through which the roles of a job communicate, and the loop that runs each of them.
//!
//! # How to write another transport (such as MPI)
//! A rank is one instance of a role; [`Crew`] says which rank has which role: 0 the manager, 1 the
//! reporter, then the explorers, then the workers. A transport has two operations: `send`, which
//! may block only while the receiver has not taken earlier messages, and `receive`, which waits
//! without spinning. Messages between two ranks arrive in the order in which they were sent; the
//! order of messages of different ranks is undefined.
//!
//! The protocol bounds the messages in flight, so that buffers need no bound of their own: an
//! explorer has one unanswered `Found`, a worker has one task; a message has a few hundred KiB at
//! most (`message.rs`). Only `Problem`, `Worked` and `Tally` are sent without a request. They all
//! go to the reporter, which waits for no other rank, so that `send` may block on it.
//!
//! Each rank creates its role and calls [`live`]. The manager needs only the numbers of the others
//! and the first walks. Explorers and workers need the volume (an [`fs::FileSystem`]; in another
//! process, one that was opened through a server) and what [`crate::encode`] and [`crate::walk`]
//! are built from.

use crate::message::Message;
use std::sync::mpsc::{Receiver, RecvError, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The number of a role instance.
pub type Rank = u32;
/// The rank that hands out the work.
pub const MANAGER: Rank = 0;
/// The rank that collects the results.
pub const REPORTER: Rank = 1;

/// Which rank has which role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crew {
    /// The number of explorers.
    pub explorers: u32,
    /// The number of workers.
    pub workers: u32,
}

impl Crew {
    /// The number of all ranks.
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

    /// The number of an explorer, by its rank.
    pub fn explorer_of(self, rank: Rank) -> Option<u32> {
        rank.checked_sub(2).filter(|&number| number < self.explorers)
    }

    /// The number of a worker, by its rank.
    pub fn worker_of(self, rank: Rank) -> Option<u32> {
        rank.checked_sub(2 + self.explorers).filter(|&number| number < self.workers)
    }
}

/// Why a job cannot continue, in one line.
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

/// A rank's connection to the others.
pub trait Transport {
    /// Sends a message.
    ///
    /// # Errors
    /// If the message cannot arrive any more.
    fn send(&self, to: Rank, message: Message) -> Result<(), Broken>;

    /// The next message and its sender. Waits for one for at most `wait`; None if none came.
    ///
    /// # Errors
    /// If no message can come any more.
    fn receive(&self, wait: Option<Duration>) -> Result<Option<(Rank, Message)>, Broken>;
}

/// Messages that a role wants to send.
pub type Outbox = Vec<(Rank, Message)>;

/// What a role does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Wait for a message.
    Wait,
    /// Wait for a message until then; after that it has work.
    WaitUntil(Instant),
    /// Work.
    Work,
    /// End: the role is done.
    End,
}

/// One of the four roles: a state machine that takes messages and returns those to send. It knows
/// no transport and never blocks on another role.
pub trait Role {
    /// Takes a message.
    ///
    /// # Errors
    /// If the job cannot continue.
    fn handle(&mut self, from: Rank, message: Message, out: &mut Outbox) -> Result<(), Broken>;

    /// Does a piece of the work.
    ///
    /// # Errors
    /// If the job cannot continue.
    fn work(&mut self, out: &mut Outbox) -> Result<(), Broken>;

    /// What to do next.
    fn next(&self) -> Next;
}

/// Implements [`Transport::receive`] for messages that arrive in an inbox.
///
/// # Errors
/// If no sender is left.
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

/// Runs a role until it is done.
///
/// # Errors
/// If this role fails or other ranks are out of reach; the manager is notified.
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

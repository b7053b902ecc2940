//! A metadata server: the sessions of a volume behind the replay of requests.

use crate::broken::Broken;
use crate::network::Host;
use bytes::Bytes;
use fs::{Sessions, Tenure};
use plan::{SessionId, TxId};
use session::caller::Caller;
use session::port;
use session::replay::{Replay, Seen};
use session::transport::{Answer, Recall, Request};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};
use volume::lock;
use world::Process;

/// How long a repeated request waits for the first one.
const REPEAT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long an answer waits for a late renewal of the server's lease, and how often it looks.
const TENURE_TIMEOUT: Duration = Duration::from_secs(10);
const TENURE_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// What accompanies a request.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    /// 0 for none.
    pub session: SessionId,
    /// The opening that the client knows: requests are for its server.
    pub opening: u64,
    pub request: u64,
    pub answered: u64,
    pub again: bool,
}

/// What a client hears.
#[derive(Clone, Debug)]
pub enum Reply {
    Done(Vec<u8>),
    NoSession,
    /// The request was carried out, and how that ended is not known.
    TooLate,
}

/// A metadata server that has the volume open.
pub struct Server {
    pub process: Process,
    pub host: Host,
    pub sessions: Arc<Sessions>,
    replays: Mutex<BTreeMap<SessionId, Arc<Replay>>>,
    broken: Broken,
}

impl Server {
    /// A server in a process, for these sessions.
    pub fn new(process: Process, host: Host, sessions: Arc<Sessions>, broken: Broken) -> Self {
        Self { process, host, sessions, replays: Mutex::default(), broken }
    }

    fn replay(&self, session: SessionId) -> Arc<Replay> {
        lock(&self.replays).entry(session).or_default().clone()
    }

    /// Whether no other server had the volume when an answer was made, as `cluster` asks. While
    /// that is not certain, the answer waits.
    pub fn may_answer(&self) -> bool {
        let begun = Instant::now();
        loop {
            match self.sessions.volume().tenure() {
                Tenure::Fresh => return true,
                Tenure::Over | Tenure::Failed => return false,
                Tenure::Stale if begun.elapsed() >= TENURE_TIMEOUT => return false,
                Tenure::Stale => sleep(TENURE_POLL_INTERVAL),
            }
        }
    }

    /// Carries out a request, as `cluster::MetaServer` does.
    pub fn carry_out(&self, ticket: Ticket, recall: &Recall, operation: u16, arguments: &[u8]) -> Reply {
        let (operation, arguments) = broken_sync(self.broken, operation, arguments);
        let arguments = &*arguments;
        let Ticket { session, opening, request: number, answered, again } = ticket;
        if session != SessionId::NONE && operation != port::ENTER && opening != self.sessions.opening().number {
            return Reply::NoSession;
        }
        let caller = Caller::trusted(session.given());
        let answer = |number, again| {
            let request = Request { number, answered, again };
            self.sessions.answer_request(&caller, recall, operation, arguments, request).0
        };
        if self.broken == Broken::Locks && operation == LOCK && session != SessionId::NONE {
            return granted();
        }
        if session == SessionId::NONE || port::only_reads(operation) {
            return reply(answer(number, again));
        }
        if self.broken == Broken::Once {
            return reply(answer(0, false));
        }
        let replay = self.replay(session);
        match replay.come(number, operation, answered, REPEAT_TIMEOUT) {
            Seen::New => {}
            Seen::Done(answer) => return Reply::Done(answer.to_vec()),
            Seen::Another | Seen::Forgotten | Seen::Busy => return Reply::TooLate,
        }
        let running = replay.running(number);
        match answer(number, again) {
            Answer::Done(answer) => {
                running.done(Some(Bytes::from(answer.clone())));
                Reply::Done(answer)
            }
            other => {
                running.done(None);
                reply(other)
            }
        }
    }
}

/// The numbers of operations that a broken rule changes.
const LOCK: u16 = 74;
const SYNC: u16 = 25;
const CHANGE: u16 = 19;
const CHANGE_DURABLY: u16 = 29;

/// The answer to a lock that is granted.
fn granted() -> Reply {
    let granted: meta::Result<bool> = Ok(true);
    Reply::Done(postcard::to_stdvec(&granted).expect("a value can be encoded"))
}

/// A sync of nothing, or a commit without a wait, if that rule is broken.
fn broken_sync(broken: Broken, operation: u16, arguments: &[u8]) -> (u16, Cow<'_, [u8]>) {
    match (broken, operation) {
        (Broken::Sync, SYNC) => {
            let nothing = postcard::to_stdvec(&TxId::default()).expect("a value can be encoded");
            (SYNC, nothing.into())
        }
        (Broken::Sync, CHANGE_DURABLY) => (CHANGE, arguments.into()),
        _ => (operation, arguments.into()),
    }
}

fn reply(answer: Answer) -> Reply {
    match answer {
        Answer::Done(answer) => Reply::Done(answer),
        Answer::NoSession => Reply::NoSession,
        Answer::Unknown => world::fail("the server does not know an operation"),
    }
}

//! A client's connection to the metadata server: it repeats each request until it is answered, as
//! `cluster` does over TCP. Messages are lost, late and repeated.

use crate::broken::Broken;
use crate::lab::Lab;
use crate::network::Host;
use crate::server::{Reply, Server, Ticket};
use fs::FileSystem;
use meta::Error;
use plan::SessionId;
use session::Question;
use session::port::{ENTER, Entered, HEARTBEAT, Remote, Session, answered_by, opening_of_work, session_of_work};
use session::transport::Call;
use session::transport::Recall;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread::sleep;
use std::time::{Duration, Instant};
use volume::lock;
use volume::unpoisoned;
use world::Process;

/// Deadline of one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a client waits for a server that does not answer.
const SERVER_TIMEOUT: Duration = Duration::from_secs(300);
/// Pause before a failed attempt is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// How long it takes to notice that the server's process is gone, or that the network is cut.
const NOTICE_DELAY: Duration = Duration::from_millis(300);
/// A connection on which nothing arrives for this long is given up.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(5);

/// A client's connection.
pub struct Connection {
    pub lab: Arc<Lab>,
    pub number: usize,
    pub process: Process,
    pub session: Arc<AtomicU64>,
    /// The opening whose server knows the session.
    opening: AtomicU64,
    pub volume: Mutex<Weak<FileSystem>>,
    requests: Mutex<(u64, BTreeSet<u64>)>,
}

/// Makes calls in the session.
pub struct Link {
    connection: Arc<Connection>,
    /// A link that reclaims the session makes only the calls for that.
    takes_up: bool,
}

/// What came of an attempt.
enum Attempt {
    Answered(Reply),
    /// No answer; the request may have been carried out if it was sent.
    Lost {
        sent: bool,
    },
}

impl Connection {
    pub fn new(lab: &Arc<Lab>, number: usize, process: Process) -> Arc<Self> {
        Arc::new(Self {
            lab: lab.clone(),
            number,
            process,
            session: Arc::default(),
            opening: AtomicU64::new(0),
            volume: Mutex::new(Weak::new()),
            requests: Mutex::new((1, BTreeSet::new())),
        })
    }

    /// Stores the session that the server gave to this client.
    pub fn have(&self, entered: &Entered) {
        let session = entered.welcome.session;
        self.opening.store(entered.opening.number, Ordering::SeqCst);
        if self.session.swap(session.0, Ordering::SeqCst) != session.0 {
            world::note(format_args!("has session {session}"));
        }
    }

    /// The server's way to this client: over the network, to a thread of the client.
    fn recall(self: &Arc<Self>, host: Host) -> Recall {
        let connection = Arc::downgrade(self);
        let (lab, process, number) = (self.lab.clone(), self.process, self.number);
        Arc::new(move |questions: &[Question]| {
            let (connection, lab, questions) = (connection.clone(), lab.clone(), questions.to_vec());
            std::thread::spawn(move || {
                if !lab.network.send(host, Host::Client(number)) {
                    return;
                }
                world::live();
                let lab = lab.clone();
                process.spawn(move || {
                    let Some(connection) = connection.upgrade() else { return };
                    if lab.broken == Broken::Recalls {
                        return connection.say_committed(&questions);
                    }
                    let volume = lock(&connection.volume).upgrade();
                    volume.inspect(|volume| volume.recall(&questions));
                });
            });
        })
    }

    /// Answers recalls without committing anything: a broken rule.
    fn say_committed(self: &Arc<Self>, questions: &[Question]) {
        for &(ino, question) in questions {
            _ = Remote(Link::new(self)).recalled(ino, 0, question);
        }
    }

    /// Has the server carry out a request, on a thread of the server; returns its answer, or None
    /// if the server dies or nothing arrives.
    fn at_server(
        self: &Arc<Self>,
        server: &Arc<Server>,
        ticket: Ticket,
        operation: u16,
        arguments: &[u8],
    ) -> Option<Reply> {
        let answer: Arc<(Mutex<Option<Reply>>, Condvar)> = Arc::default();
        let deliver = |late: Duration, tell: Option<Arc<(Mutex<Option<Reply>>, Condvar)>>| {
            let (server, recall, arguments) = (server.clone(), self.recall(server.host), arguments.to_vec());
            server.process.spawn(move || {
                sleep(late);
                let reply = server.carry_out(ticket, &recall, operation, &arguments);
                world::live();
                if let Some(tell) = tell.filter(|_| server.may_answer()) {
                    world::live();
                    *lock(&tell.0) = Some(reply);
                    tell.1.notify_all();
                }
            });
        };
        // Some requests arrive twice: over a connection that the client gave up, too.
        let repeated = world::roll(|dice| dice.one_in(25).then(|| Duration::from_millis(dice.below(3000))));
        if let Some(late) = repeated.filter(|_| operation != ENTER) {
            deliver(late, None);
        }
        deliver(Duration::ZERO, Some(answer.clone()));
        let begun = Instant::now();
        let mut reply = lock(&answer.0);
        loop {
            if reply.is_some() {
                return reply.clone();
            }
            let another = self.lab.serving().is_some_and(|now| !Arc::ptr_eq(&now, server));
            if server.process.is_dead() || another || begun.elapsed() >= ATTEMPT_TIMEOUT {
                return None;
            }
            reply = unpoisoned(answer.1.wait_timeout(reply, NOTICE_DELAY)).0;
        }
    }

    /// Sends a request once.
    fn ask(self: &Arc<Self>, ticket: Ticket, operation: u16, arguments: &[u8]) -> Attempt {
        let (network, own) = (&self.lab.network, Host::Client(self.number));
        world::live();
        let there = self.lab.serving().map_or_else(|| self.lab.host(), |server| server.host);
        if !network.send(own, there) {
            sleep(SILENCE_TIMEOUT);
            return Attempt::Lost { sent: true };
        }
        let Some(server) = self.lab.serving().filter(|server| server.host == there) else {
            sleep(NOTICE_DELAY);
            return Attempt::Lost { sent: false };
        };
        world::live();
        match self.at_server(&server, ticket, operation, arguments) {
            None => Attempt::Lost { sent: true },
            Some(reply) if network.send(there, own) => Attempt::Answered(reply),
            Some(_) => {
                sleep(SILENCE_TIMEOUT);
                Attempt::Lost { sent: true }
            }
        }
    }
}

fn unavailable<T>(why: &str) -> meta::Result<T> {
    Err(Error::Unavailable(why.into()))
}

impl Link {
    pub fn new(connection: &Arc<Connection>) -> Self {
        Self { connection: connection.clone(), takes_up: false }
    }

    /// Reclaims the session at a server that does not know it.
    fn reclaim(&self) -> meta::Result<()> {
        let volume = lock(&self.connection.volume).upgrade();
        let Some(volume) = volume else { return unavailable("the session ended") };
        let link = Self { connection: self.connection.clone(), takes_up: true };
        volume.reclaim(&Remote(link), &|entered| self.connection.have(entered))
    }

    fn insist(&self, operation: u16, request: u64, arguments: &[u8]) -> meta::Result<Vec<u8>> {
        let connection = &self.connection;
        let of_work = session_of_work().filter(|_| !self.takes_up);
        let only_for = opening_of_work().filter(|_| !self.takes_up);
        let (begun, mut again) = (Instant::now(), false);
        loop {
            let session = SessionId(connection.session.load(Ordering::SeqCst));
            if of_work.is_some_and(|other| other != session) {
                return unavailable("the session ended before this was done");
            }
            let opening = connection.opening.load(Ordering::SeqCst);
            if only_for.is_some_and(|other| other != opening) {
                return unavailable("another server has the volume now");
            }
            let answered = {
                let requests = lock(&connection.requests);
                requests.1.first().copied().unwrap_or(requests.0)
            };
            let attempt = connection.ask(Ticket { session, opening, request, answered, again }, operation, arguments);
            let failed = match attempt {
                Attempt::Answered(Reply::Done(answer)) => {
                    if !self.takes_up {
                        answered_by(opening);
                    }
                    return Ok(answer);
                }
                Attempt::Answered(Reply::TooLate) => return unavailable("how a request ended is not known"),
                Attempt::Answered(Reply::NoSession) if self.takes_up => {
                    return unavailable("it does not know this client");
                }
                // Without a volume there is nothing to reclaim.
                Attempt::Answered(Reply::NoSession) if lock(&connection.volume).strong_count() == 0 => {
                    return unavailable("it does not know this client");
                }
                Attempt::Answered(Reply::NoSession) => self.reclaim().err(),
                Attempt::Lost { sent } => {
                    again |= sent;
                    Some(Error::Unavailable("no answer".into()))
                }
            };
            if let Some(error) = failed {
                if begun.elapsed() >= SERVER_TIMEOUT {
                    return Err(error);
                }
                sleep(RETRY_PAUSE);
            }
        }
    }
}

impl Call for Link {
    fn call(&self, operation: u16, arguments: &[u8]) -> meta::Result<Vec<u8>> {
        let request = {
            let mut requests = lock(&self.connection.requests);
            let request = requests.0;
            requests.0 += 1;
            requests.1.insert(request);
            request
        };
        let done = self.insist(operation, request, arguments);
        lock(&self.connection.requests).1.remove(&request);
        if operation != HEARTBEAT {
            world::note(format_args!(
                "request {request}, operation {operation}: {}",
                if done.is_ok() { "answered" } else { "failed" }
            ));
        }
        done
    }
}

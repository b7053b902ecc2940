//! The metadata server: answers the requests of clients in their sessions.

use super::beside::DroppedBeside;
use super::commands::{CommandDesk, Commands, MAX_COMMANDS};
use super::grants::Signer;
use super::whereabouts::{Whereabouts, holds, not_holder};
use super::{ANSWER_IS_GONE, COMMAND, NO_SESSION, NOT_UNDERSTOOD, RECALL, Ticket, WHO};
use crate::capability::{ClusterKey, now_ms};
use crate::ranks::{RetiredServer, SessionAnswers};
use crate::shares::Shares;
use bytes::Bytes;
use fs::{FileSystem, Sessions};
use plan::SessionId;
use session::Question;
use session::port;
use session::replay::{Replay, Seen};
use session::transport::{self, Answer, Grant, Recall};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use volume::counts::Operation;
use volume::lock;
use volume::ranked::Ranked;
use wire::{Complaints, Peer, Reply, Request, Service};

/// How long a repeated request waits for the first one to end.
const REPEAT_TIMEOUT: Duration = Duration::from_secs(30);
/// A quick operation takes less time, although its thread may have to wait for a processor.
const QUICK_OPERATION: Duration = Duration::from_millis(100);

/// A metadata server: the sessions of a volume's clients.
pub struct MetaServer {
    /// With them ends the volume, if nobody else holds it.
    sessions: DroppedBeside<Arc<Sessions>>,
    pub(super) desk: Arc<CommandDesk>,
    replays: Ranked<HashMap<SessionId, Arc<Replay>>, SessionAnswers>,
    signer: Option<Signer>,
    counts: Arc<Counts>,
    complaints: Complaints,
    /// The servers of the volume, for clients.
    servers: Mutex<Vec<String>>,
    /// Set when this server does not have the volume any more.
    retired: Ranked<Option<Whereabouts>, RetiredServer>,
    /// Limits requests that may wait for clients. They take only a part of the threads: what these
    /// clients send needs threads, too.
    pub(super) waiting: Shares,
    /// Limits other requests that may wait for a disk, or for an earlier copy of themselves.
    pub(super) working: Shares,
}

/// Counters of requests, by the number of the operation.
struct Counts(Vec<(u16, &'static str, Operation)>);

impl Default for Counts {
    fn default() -> Self {
        let names =
            port::PORT_NAMES.iter().chain(port::SESSION_NAMES).copied().chain([(COMMAND, "command"), (0, "other")]);
        Self(names.map(|(number, name)| (number, name, Operation::default())).collect())
    }
}

impl Counts {
    fn of(&self, number: u16) -> Option<&Operation> {
        let found = self.0.iter().find(|(other, ..)| *other == number).or(self.0.last());
        found.map(|(.., operation)| operation)
    }

    /// Counts a request, and how long its answer takes.
    async fn counted(&self, method: u16, answer: impl Future<Output = Reply>) -> Reply {
        let begun = Instant::now();
        let reply = answer.await;
        if let Some(operation) = self.of(method) {
            operation.note(begun.elapsed(), (reply.status == 0).then_some(0));
        }
        reply
    }
}

impl MetaServer {
    /// A server for these sessions.
    pub fn new(sessions: Arc<Sessions>, commands: Commands) -> Self {
        sessions.keep_ticking();
        Self {
            sessions: DroppedBeside::new(sessions),
            desk: CommandDesk::new(commands, MAX_COMMANDS),
            replays: Ranked::default(),
            signer: None,
            counts: Arc::default(),
            complaints: Complaints::default(),
            servers: Mutex::default(),
            retired: Ranked::default(),
            waiting: Shares::new(crate::MAX_BLOCKING_OPERATIONS / 2),
            working: Shares::new(crate::MAX_BLOCKING_OPERATIONS / 8 * 3),
        }
    }

    /// Makes the server give clients capabilities signed with this key, which guarded stores
    /// demand.
    ///
    /// # Errors
    /// When the volume's label is damaged.
    pub fn signing(self, key: Arc<ClusterKey>) -> fs::Result<Self> {
        let signer = Signer::new(key, self.sessions.volume().id()?, self.sessions.lease());
        Ok(Self { signer: Some(signer), ..self })
    }

    /// The fence message for the stores; None without a key.
    pub fn living_sessions(&self) -> Option<Vec<u8>> {
        let (next, live) = self.sessions.living();
        Some(self.signer.as_ref()?.fence(next, live, now_ms()))
    }

    /// Sets the addresses of all servers of the volume, `host:port`: clients remember them.
    pub fn set_servers(&self, servers: Vec<String>) {
        *lock(&self.servers) = servers;
    }

    /// Another server has the volume, or is about to: from now on this one answers no request, and
    /// tells clients whom to ask. It ends no sessions.
    pub fn retire(&self, known: Whereabouts) {
        // First, as requests that wait are answered when it stops.
        *self.retired.lock() = Some(known);
        self.stop();
    }

    /// The volume of this server.
    pub fn volume(&self) -> &Arc<FileSystem> {
        self.sessions.volume()
    }

    /// The server begins to end: it answers the requests that it has, and ends no sessions.
    /// Commands that work on the volume end soon.
    pub fn stop(&self) {
        self.sessions.stop();
        self.desk.cancel();
    }

    /// Tells all clients to look for the next server now.
    pub fn send_away(&self) {
        self.sessions.send_away();
    }

    /// Closes the volume after the last request; clients continue with the next server. Returns how
    /// many targets of stores cannot be reached, if that keeps something on this machine until the
    /// next opening.
    ///
    /// # Errors
    /// When something could not be committed.
    pub fn close(&self) -> fs::Result<usize> {
        self.sessions.close()
    }

    /// Carries a command out, and holds nothing of the volume meanwhile. It may be the command that
    /// gives the volume away.
    pub(super) fn command(&self, request: Request) -> impl Future<Output = Reply> + use<> {
        let (desk, counts) = (self.desk.clone(), self.counts.clone());
        async move { counts.counted(COMMAND, desk.carry_out(request)).await }
    }

    /// Number of clients with a session.
    pub fn clients(&self) -> usize {
        self.sessions.clients().len()
    }

    /// The counters of requests, by the names of the operations.
    pub fn operations(&self) -> impl Iterator<Item = (&'static str, &Operation)> {
        self.counts.0.iter().map(|(_, name, operation)| (*name, operation))
    }

    /// The service that answers requests.
    pub fn service(self: &Arc<Self>) -> Arc<impl Service + use<>> {
        Arc::new(Shared(self.clone()))
    }

    fn replay(&self, session: SessionId) -> Arc<Replay> {
        let mut replays = self.replays.lock();
        if !replays.contains_key(&session) {
            // A new session is a good time to discard the state of ended ones.
            let alive = self.sessions.clients();
            replays.retain(|session, _| alive.iter().any(|(number, _)| number == session));
        }
        replays.entry(session).or_default().clone()
    }

    /// Whether an operation waits for no disk, no other client and no renewal of the lease, and is
    /// short. The messages of the journal and of the renewal need the threads that serve.
    fn is_quick(&self, operation: u16) -> bool {
        let recalls = matches!(operation, port::ATTRIBUTES | port::LOOKUP | port::LIST | port::LOOKUPS);
        // The first page of keys in order sorts all of them.
        port::only_reads(operation)
            && operation != port::LIST_BY_KEY
            && !(recalls && self.sessions.has_several())
            && self.volume().lease_lasts(QUICK_OPERATION)
    }

    /// The reply to a request that could not be carried out because this server gave the volume up
    /// meanwhile: the client repeats it at the next one. None for any other answer.
    fn failed_with_the_volume(&self, answer: &Answer) -> Option<Reply> {
        let Answer::Done(answer) = answer else { return None };
        let retired = self.retired.lock();
        let known = retired.as_ref()?;
        // Only the error matters, whatever the operation returns.
        let result: Result<(), meta::Error> = postcard::from_bytes(answer).ok()?;
        matches!(result, Err(meta::Error::Unavailable(_))).then(|| not_holder(known))
    }

    /// Executes a request, on a thread that may block.
    fn carry_out(&self, peer: &Arc<Peer>, operation: u16, ticket: Ticket, arguments: &[u8]) -> Reply {
        // Check the caller first: the answers kept for a session belong to its client, too.
        let Some(caller) = self.sessions.caller(ticket.session, &ticket.secret, peer.name.as_deref()) else {
            // A client that has not come back since the start shows the secret for the server
            // before.
            if self.sessions.awaits(ticket.session) {
                return Reply::error(NO_SESSION, Vec::new());
            }
            let who = peer.name.as_deref().unwrap_or("a client");
            self.complaints
                .complain(&peer.address, &format_args!("{who} names session {}, not its own", ticket.session));
            return Reply::error(NO_SESSION, Vec::new());
        };
        let recall = recall(peer);
        let Ticket { request: number, answered, again, .. } = ticket;
        let request = transport::Request { number, answered, again };
        let answer = || self.sessions.answer_request(&caller, &recall, operation, arguments, request);
        let signed = |session, grants: &[Grant]| {
            self.signer.as_ref().map_or_else(Vec::new, |signer| signer.sign(session, grants, now_ms()))
        };
        if ticket.session == SessionId::NONE || port::only_reads(operation) {
            let (answer, grants) = answer();
            return self
                .failed_with_the_volume(&answer)
                .unwrap_or_else(|| reply(answer, signed(ticket.session, &grants)));
        }
        let replay = self.replay(ticket.session);
        match replay.come(ticket.request, operation, ticket.answered, REPEAT_TIMEOUT) {
            Seen::New => {}
            Seen::Done(answer) => return Reply::default().with_payload(answer),
            Seen::Another => return Reply::error(NOT_UNDERSTOOD, Vec::new()),
            Seen::Forgotten | Seen::Busy => return Reply::error(ANSWER_IS_GONE, Vec::new()),
        }
        let running = replay.running(ticket.request);
        let (answer, grants) = answer();
        if let Some(reply) = self.failed_with_the_volume(&answer) {
            running.done(None);
            return reply;
        }
        match answer {
            Answer::Done(answer) => {
                let answer = Bytes::from(answer);
                running.done(Some(answer.clone()));
                // A client whose answer got lost gets its capabilities with the next heartbeat.
                Reply::ok(signed(ticket.session, &grants)).with_payload(answer)
            }
            other => {
                running.done(None);
                reply(other, Vec::new())
            }
        }
    }
}

fn reply(answer: Answer, tokens: Vec<u8>) -> Reply {
    match answer {
        Answer::Done(answer) => Reply::ok(tokens).with_payload(answer),
        Answer::NoSession => Reply::error(NO_SESSION, Vec::new()),
        Answer::Unknown => Reply::error(NOT_UNDERSTOOD, Vec::new()),
    }
}

/// Sends the client at the other end of a connection the files that other clients want to read.
fn recall(peer: &Arc<Peer>) -> Recall {
    let peer = Arc::downgrade(peer);
    Arc::new(move |questions: &[Question]| {
        let body = postcard::to_stdvec(questions).expect("numbers can be written down");
        if let Some(peer) = peer.upgrade() {
            crate::runtime().spawn(async move {
                // If the client is gone, the server waits no longer than the client's lease.
                let _ = peer.push(RECALL, &body, &[]).await;
            });
        }
    })
}

/// Shared by all requests, each of which outlives its future.
pub(super) struct Shared(pub Arc<MetaServer>);

impl Service for Shared {
    async fn call(&self, request: Request) -> Reply {
        let (counts, method) = (&self.0.counts, request.method);
        counts.counted(method, self.answer(request)).await
    }
}

impl Shared {
    async fn answer(&self, request: Request) -> Reply {
        if let Some(known) = &*self.0.retired.lock() {
            return not_holder(known);
        }
        if request.method == WHO {
            let servers = lock(&self.0.servers).clone();
            return holds(self.0.sessions.opening().number, servers);
        }
        if request.method == COMMAND {
            return self.0.desk.clone().carry_out(request).await;
        }
        let Ok((ticket, arguments)) = postcard::take_from_bytes::<Ticket>(&request.body) else {
            return Reply::error(NOT_UNDERSTOOD, Vec::new());
        };
        let Request { peer, method, payload, .. } = &request;
        let arguments: &[u8] = if payload.is_empty() { arguments } else { payload };
        let work = || self.0.carry_out(peer, *method, ticket, arguments);
        if self.0.is_quick(*method) {
            return work();
        }
        let places = if port::waits_for_clients(*method) { &self.0.waiting } else { &self.0.working };
        let _place = places.take(peer.name.as_deref()).await;
        crate::waiting(work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fs::OpenOptions;
    use fs::label::{Label, Member};
    use meta::kv::MemoryIndex;
    use plan::TargetId;
    use std::path::PathBuf;
    use volume::target::{Faults, Faulty, Memory, Target};

    /// A read waits for the renewal of a lease that is over. So it must not have a thread that
    /// serves: the renewal needs it.
    #[test]
    fn no_operation_is_quick_when_the_lease_is_about_to_end() {
        let member = |number: u16| Member::new(TargetId(number), PathBuf::new());
        let label = Label::new([7; 16], "films", "rs:2+1", 6 << 20, 2, (0..3).map(member).collect());
        let disks: Vec<Arc<Faulty>> = (0..3).map(|_| Arc::new(Faulty::new(Arc::new(Memory::default())))).collect();
        let place = |(number, disk): (usize, &Arc<Faulty>)| (TargetId(number as u16), disk.clone() as Arc<dyn Target>);
        let places = || disks.iter().enumerate().map(place).collect::<Vec<_>>();
        FileSystem::create_on(&label, places()).unwrap();
        let lease = Some(Duration::from_secs(3));
        let options = OpenOptions { serve: true, lease, ..OpenOptions::default() };
        let volume = FileSystem::open_on(label, places(), Box::new(MemoryIndex::default()), options).unwrap();
        let sessions = Sessions::new(volume.clone(), Duration::from_secs(600));
        let server = MetaServer::new(sessions, Commands::new(|_, _, _| Vec::new()));
        let becomes = |quick: bool| {
            let begun = Instant::now();
            while server.is_quick(port::ATTRIBUTES) != quick {
                assert!(begun.elapsed() < Duration::from_secs(300), "{quick}");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        becomes(true);
        assert!(!server.is_quick(port::LIST_BY_KEY));
        disks.iter().for_each(|disk| disk.set(Faults { away: true, ..Faults::default() }));
        becomes(false);
        disks.iter().for_each(|disk| disk.set(Faults::default()));
        becomes(true);
        volume.abandon();
    }
}

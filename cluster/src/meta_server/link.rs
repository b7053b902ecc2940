//! The client's connection to a metadata server. It repeats each request until the server answers,
//! and so waits for a server that is down.

use super::servers::{Make, Servers};
use super::whereabouts::Whereabouts;
use super::{ANSWER_IS_GONE, COMMAND, NO_SESSION, NOT_HOLDER, NOT_UNDERSTOOD, RECALL, Ticket};
use crate::address::VolumeAddress;
use crate::capability::CapabilityCache;
use crate::places::ClusterPlaces;
use crate::ranks::{LinkProof, LinkRequests, LinkServers, LinkVolume};
use bytes::Bytes;
use fs::{Ending, FileSystem, OpenOptions, Places, Server};
use meta::Error;
use plan::SessionId;
use session::Question;
use session::caller::{Secret, bound_secret};
use session::port::{
    BEGIN, CONTENT, ENTER, EXTENTS, Entered, Entry, HEARTBEAT, Opening, Port, Remote, Session, VERSION, answered_by,
    opening_of_work, session_of_work,
};
use session::transport::Call;
use std::collections::BTreeSet;
use std::io::IoSlice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::time::Instant;
use volume::ranked::Ranked;
use wire::{Client, ClientOptions, OnPush, Push};

/// Deadline of one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a client waits for a server that does not answer.
const SERVER_TIMEOUT: Duration = Duration::from_secs(300);
static CONFIGURED_TIMEOUT: OnceLock<Duration> = OnceLock::new();
/// How long it waits when the server has never answered.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Deadline of a command. Repairs take long.
const COMMAND_DEADLINE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// How long a command waits for a server that cannot be reached.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a renewal of tokens waits after a store refused an operation. This is less than the
/// time limit of an operation on a target.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause before a failed attempt is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// With several servers, the client asks a silent one for a sign of life, and gives it up after
/// this long. A server answers that at once, whatever it is doing.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
const PING_AFTER: Duration = Duration::from_secs(1);
/// How often the client asks the server for the list of servers.
const LIST_INTERVAL: Duration = Duration::from_secs(10);
/// Arguments longer than this many bytes travel as payload instead of in the body.
const MAX_BODY_BYTES: usize = 64 << 10;

/// The state of a client's session.
pub(super) struct LinkState {
    servers: Servers,
    pub(super) session: AtomicU64,
    /// What proves that the session is this client's, and the opening whose server knows it.
    proof: Ranked<Proof, LinkProof>,
    /// When the client last asked for the list of servers.
    listed: Ranked<Option<Instant>, LinkServers>,
    volume: Ranked<Weak<FileSystem>, LinkVolume>,
    capabilities: Arc<CapabilityCache>,
    requests: Ranked<Requests, LinkRequests>,
    ending: Arc<Ending>,
}

/// The secret of a session, and the opening in which it is used.
#[derive(Clone, Copy, Default)]
struct Proof {
    secret: Secret,
    opening: Opening,
}

impl Proof {
    /// What a request shows. One that enters a session is for any server; others are for the server
    /// of the opening.
    fn shown(&self, operation: u16) -> Secret {
        match operation {
            BEGIN | ENTER => self.secret,
            _ => bound_secret(&self.secret, &self.opening),
        }
    }
}

/// Sets how long this process waits for a metadata server that does not answer. Only the first call
/// has an effect.
pub fn set_server_timeout(server_timeout: Duration) {
    let _ = CONFIGURED_TIMEOUT.set(server_timeout);
}

/// Options of connections to a metadata server, for a volume with this name; empty for the only one
/// that it has.
pub(super) fn way(volume: &str) -> ClientOptions {
    ClientOptions {
        credentials: named(volume),
        channels: 2,
        fail_fast: true,
        backoff: Duration::from_millis(20)..=Duration::from_millis(500),
        ..ClientOptions::default()
    }
}

/// What a client shows when it connects: the name of its volume.
fn named(volume: &str) -> Bytes {
    let end = (0..=wire::TEXT_BYTES.min(volume.len())).rev().find(|&end| volume.is_char_boundary(end));
    Bytes::copy_from_slice(&volume.as_bytes()[..end.unwrap_or(0)])
}

/// The same where there are several servers.
fn way_to_one_of_several(volume: &str) -> ClientOptions {
    ClientOptions { ping_after: PING_AFTER, dead_after: PROBE_TIMEOUT, connect_timeout: PROBE_TIMEOUT, ..way(volume) }
}

impl LinkState {
    pub(super) fn new(servers: &[String], make: Make) -> Self {
        Self {
            servers: Servers::new(servers, make),
            session: AtomicU64::new(0),
            proof: Ranked::default(),
            listed: Ranked::default(),
            volume: Ranked::default(),
            capabilities: Arc::default(),
            requests: Ranked::new(Requests { next: 1, open: BTreeSet::new() }),
            ending: Arc::default(),
        }
    }

    /// Stores the session that the server gave to this client.
    pub(super) fn have(&self, entered: &Entered) {
        *self.proof.lock() = Proof { secret: entered.welcome.secret, opening: entered.opening };
        self.session.store(entered.welcome.session.0, Ordering::SeqCst);
    }

    /// Asks for the list of servers from time to time, beside other work.
    fn list_servers(self: &Arc<Self>) {
        {
            let mut listed = self.listed.lock();
            if listed.is_some_and(|when| when.elapsed() < LIST_INTERVAL) {
                return;
            }
            *listed = Some(Instant::now());
        }
        let state = self.clone();
        crate::runtime().spawn(async move { state.servers.refresh().await });
    }

    /// Returns the number of a new request, which stays open until `end`.
    pub(super) fn begin(&self) -> u64 {
        let mut requests = self.requests.lock();
        let request = requests.next;
        requests.next += 1;
        requests.open.insert(request);
        request
    }

    /// Closes a request that was answered or given up.
    pub(super) fn end(&self, request: u64) {
        self.requests.lock().open.remove(&request);
    }
}

/// The requests without an answer.
struct Requests {
    next: u64,
    open: BTreeSet<u64>,
}

/// Makes calls in the session. While the session is being reclaimed, a link of its own makes only
/// the calls for that.
pub(super) struct Link {
    state: Arc<LinkState>,
    takes_up: bool,
    /// Set for the renewal of tokens, which an operation on a store waits for.
    hurries: bool,
}

/// A request that is repeated until it is answered.
pub(super) struct Wish<'a> {
    operation: u16,
    request: u64,
    arguments: &'a [u8],
    begun: Instant,
    /// The server may have executed it already.
    again: bool,
    /// If set, the request is valid only in this session, or only for this opening.
    session: Option<SessionId>,
    only_for: Option<u64>,
    /// The opening whose server was asked last.
    opening: u64,
}

impl<'a> Wish<'a> {
    pub(super) fn new(operation: u16, request: u64, arguments: &'a [u8]) -> Self {
        Self {
            operation,
            request,
            arguments,
            begun: Instant::now(),
            again: false,
            session: None,
            only_for: None,
            opening: 0,
        }
    }
}

/// Why a request has no answer.
pub(super) enum Unanswered {
    /// The server does not know the session: the client must reclaim it first.
    NoSession,
    Failed(Error),
}

fn unavailable(why: &str) -> Error {
    Error::Unavailable(format!("the metadata server: {why}"))
}

impl Link {
    pub(super) fn new(state: &Arc<LinkState>) -> Self {
        Self { state: state.clone(), takes_up: false, hurries: false }
    }

    pub(super) fn taking_up(state: &Arc<LinkState>) -> Self {
        Self { takes_up: true, ..Self::new(state) }
    }

    /// Sends the request once.
    async fn ask(
        &self,
        client: &Client,
        operation: u16,
        ticket: Ticket,
        arguments: &[u8],
    ) -> Result<wire::Response, wire::Error> {
        let mut body = postcard::to_stdvec(&ticket).expect("numbers can be written down");
        let deadline = if self.hurries { RENEWAL_TIMEOUT } else { ATTEMPT_TIMEOUT };
        let deadline = match self.state.ending.silent_since() {
            // A client that is ending limits each attempt, so that its end does not wait for one
            // that began before.
            Some(silent) => deadline.min(self.server_timeout().saturating_sub(silent.elapsed()) + RETRY_PAUSE),
            None => deadline,
        };
        let beside = [IoSlice::new(arguments)];
        let parts = if arguments.len() > MAX_BODY_BYTES { &beside[..] } else { &[] };
        if parts.is_empty() {
            body.extend_from_slice(arguments);
        }
        // The server sends its recalls over the connection that last carried ENTER or HEARTBEAT.
        // These two therefore use the connection that receives pushed messages.
        match operation {
            ENTER | HEARTBEAT => client.call(operation, &body, parts, deadline).await,
            _ => client.call_in_place(operation, &body, parts, deadline).await,
        }
    }

    /// How long this link waits for a server that does not answer.
    fn server_timeout(&self) -> Duration {
        match self.state.session.load(Ordering::SeqCst) {
            0 => FIRST_ANSWER_TIMEOUT,
            _ if self.hurries => RENEWAL_TIMEOUT,
            _ => CONFIGURED_TIMEOUT.get().copied().unwrap_or(SERVER_TIMEOUT),
        }
    }

    /// How much longer to wait for an answer. When a client ends, all its waits share one limit.
    fn left(&self, begun: Instant) -> Duration {
        let server_timeout = self.server_timeout();
        let own = server_timeout.saturating_sub(begun.elapsed());
        match self.state.ending.silent_since() {
            Some(silent) => own.min(server_timeout.saturating_sub(silent.elapsed())),
            None => own,
        }
    }

    /// Whether there is no other server to ask.
    fn is_only(&self) -> bool {
        !self.state.servers.are_several()
    }

    /// Whether an ending client has waited for the server long enough. It then sends no more
    /// requests.
    fn is_given_up(&self) -> bool {
        self.state.ending.silent_since().is_some_and(|silent| silent.elapsed() >= self.server_timeout())
    }

    /// Repeats the request until the server answers, or reports that it does not know the session.
    pub(super) async fn ask_until_answered(&self, wish: &mut Wish<'_>) -> Result<Vec<u8>, Unanswered> {
        let failed = |why: &str| Err(Unanswered::Failed(unavailable(why)));
        let &mut Wish { operation, request, arguments, begun, .. } = wish;
        loop {
            if self.is_given_up() {
                return failed("it was waited for, and is gone");
            }
            let session = SessionId(self.state.session.load(Ordering::SeqCst));
            if wish.session.is_some_and(|other| other != session) {
                return failed("the session ended before this was done");
            }
            let answered = {
                let requests = self.state.requests.lock();
                requests.open.first().copied().unwrap_or(requests.next)
            };
            let proof = *self.state.proof.lock();
            wish.opening = proof.opening.number;
            if wish.only_for.is_some_and(|opening| opening != wish.opening) {
                return failed("another one has the volume now");
            }
            let ticket = Ticket { session, secret: proof.shown(operation), request, answered, again: wish.again };
            let (client, turn) = self.state.servers.current();
            match self.ask(&client, operation, ticket, arguments).await {
                Ok(answer) => {
                    self.state.ending.hear();
                    self.state.servers.succeeded();
                    let reads = matches!(operation, EXTENTS | CONTENT);
                    self.state.capabilities.put(&answer.body, reads.then_some(arguments));
                    return Ok(answer.payload.to_vec());
                }
                Err(wire::Error::Remote { status: NOT_HOLDER, body }) if !self.left(begun).is_zero() => {
                    // It may have carried the request out before it lost the volume.
                    wish.again = true;
                    let whereabouts = postcard::from_bytes::<Whereabouts>(&body).unwrap_or_default();
                    self.state.servers.is_not_holder(turn, &whereabouts);
                    self.state.servers.look(turn, proof.opening.number).await;
                }
                Err(wire::Error::Remote { status: NOT_HOLDER, .. }) => return failed("no server has the volume open"),
                // With several servers, another one may be the right one: this may be a server of
                // another cluster, at a port that was free for a moment.
                Err(wire::Error::Remote { .. })
                    if session == SessionId::NONE && !self.is_only() && !self.left(begun).is_zero() =>
                {
                    // The server that has the volume may be the one that answers so.
                    tokio::time::sleep(RETRY_PAUSE).await;
                    self.state.servers.look(turn, proof.opening.number).await;
                }
                Err(wire::Error::Remote { status, .. }) if session == SessionId::NONE => {
                    let nobody = if self.is_only() { "" } else { "no metadata server answers; " };
                    let address = self.state.servers.address();
                    let why = format!(
                        "{nobody}what listens on {address} is not a metadata server, or one of an older version \
                         (error {status}): update servers before clients"
                    );
                    return Err(Unanswered::Failed(Error::Unavailable(why)));
                }
                Err(wire::Error::Remote { status: NO_SESSION, .. }) if self.takes_up || self.hurries => {
                    return failed("it does not know this client any more");
                }
                Err(wire::Error::Remote { status: NO_SESSION, .. }) => return Err(Unanswered::NoSession),
                Err(wire::Error::Remote { status: ANSWER_IS_GONE, .. }) => {
                    return failed("it carried a request out, and how that ended is not known");
                }
                Err(wire::Error::Remote { status: NOT_UNDERSTOOD, .. }) => {
                    return failed("it does not know this request: if it is of an older version, update it first");
                }
                Err(wire::Error::Remote { status, .. }) => {
                    return failed(&format!("it refused a request (error {status})"));
                }
                // A server that never understood this client will not do so later.
                Err(wire::Error::Protocol(why)) if session == SessionId::NONE && self.is_only() => return failed(&why),
                // With a session it was the right server before: it was started with other volumes
                // meanwhile, or the client was sent to one that has others. It is waited for, as
                // one that is down.
                Err(wire::Error::Refused(why)) if session == SessionId::NONE && self.is_only() => return failed(&why),
                Err(error) if !self.left(begun).is_zero() => {
                    wish.again |= !matches!(error, wire::Error::Unavailable { sent: false, .. });
                    self.state.servers.look(turn, proof.opening.number).await;
                }
                Err(error) => return failed(&error.to_string()),
            }
        }
    }

    /// Repeats the request until the server answers, and reclaims the session if necessary.
    fn insist(&self, operation: u16, request: u64, arguments: &[u8]) -> meta::Result<Vec<u8>> {
        let mut wish = Wish::new(operation, request, arguments);
        // A reclaiming link works for all requests that wait for the session, in whichever session
        // the server has then.
        wish.session = session_of_work().filter(|_| !self.takes_up);
        wish.only_for = opening_of_work().filter(|_| !self.takes_up);
        loop {
            match crate::runtime().block_on(self.ask_until_answered(&mut wish)) {
                Ok(answer) => {
                    if !self.takes_up {
                        answered_by(wish.opening);
                    }
                    if matches!(operation, ENTER | HEARTBEAT) {
                        self.state.list_servers();
                    }
                    return Ok(answer);
                }
                Err(Unanswered::Failed(error)) => return Err(error),
                Err(Unanswered::NoSession) => match self.reclaim() {
                    // The server may have restarted again meanwhile.
                    Err(_) if !self.left(wish.begun).is_zero() && self.has_volume() => self.pause(),
                    reclaimed => reclaimed?,
                },
            }
        }
    }

    /// The session could not be reclaimed. It may be the wrong server.
    fn pause(&self) {
        std::thread::sleep(RETRY_PAUSE);
        let (_, turn) = self.state.servers.current();
        let least = self.state.proof.lock().opening.number;
        if !self.is_only() {
            crate::runtime().block_on(self.state.servers.look(turn, least));
        }
    }

    fn has_volume(&self) -> bool {
        self.state.volume.lock().strong_count() > 0
    }

    /// Reclaims the session at a server that does not know it because it restarted.
    fn reclaim(&self) -> meta::Result<()> {
        let volume = self.state.volume.lock().upgrade();
        let volume = volume.ok_or_else(|| Error::Unavailable("the session with the metadata server ended".into()))?;
        volume.reclaim(&Remote(Self::taking_up(&self.state)), &|entered| self.state.have(entered))
    }
}

impl Call for Link {
    fn call(&self, operation: u16, arguments: &[u8]) -> meta::Result<Vec<u8>> {
        let request = self.state.begin();
        let answer = self.insist(operation, request, arguments);
        self.state.end(request);
        answer
    }
}

/// Repeats the request whose answer contained the tokens; the new answer contains new ones. Without
/// arguments for extents it requests the label, which only serves to get an answer.
fn ask_again(state: &Arc<LinkState>, extents: Option<&[u8]>) {
    let link = Link { hurries: true, ..Link::new(state) };
    // Without an answer the store's refusal remains.
    match extents {
        Some(arguments) => _ = link.call(EXTENTS, arguments),
        None => _ = Remote(link).label(),
    }
}

/// Opens a volume whose metadata a server has. `name` is the client's name at the server.
///
/// # Errors
/// When the server cannot be reached, or has another volume.
pub fn connect(address: &VolumeAddress, name: &str, options: OpenOptions) -> fs::Result<Arc<FileSystem>> {
    let state = Arc::new_cyclic(|weak: &Weak<LinkState>| {
        let weak = weak.clone();
        let on_push = move |push: Push| {
            let Some(state) = weak.upgrade() else { return };
            let Ok(questions) = postcard::from_bytes::<Vec<Question>>(&push.body) else { return };
            if push.method == RECALL {
                // A recall commits and sends requests, and so it blocks. Without a thread for it,
                // the server waits for as long as it waits for any client.
                let _ = std::thread::Builder::new().spawn(move || {
                    let volume = state.volume.lock().upgrade();
                    volume.inspect(|volume| volume.recall(&questions));
                });
            }
        };
        let (tls, on_push) = (crate::identity::client_tls(), Arc::new(on_push) as OnPush);
        let volume = address.volume.clone();
        let make = move |address: &str, several: bool| {
            let way = if several { way_to_one_of_several(&volume) } else { way(&volume) };
            let options = ClientOptions { tls: tls.clone(), on_push: Some(on_push.clone()), ..way };
            Client::new(crate::runtime().handle().clone(), address, options)
        };
        LinkState::new(&address.servers, Box::new(make))
    });
    let weak = Arc::downgrade(&state);
    state
        .capabilities
        .on_refusal(Box::new(move |extents| weak.upgrade().into_iter().for_each(|state| ask_again(&state, extents))));
    let link = || Remote(Link::new(&state));
    let session: Arc<dyn Session> = Arc::new(link());
    let port: Arc<dyn Port> = Arc::new(link());
    let entered = session.enter(VERSION, &Entry { name: name.into(), ..Entry::default() })?;
    state.have(&entered);
    let found = fs::label::Label::from_json(&entered.welcome.label)?.name;
    if !address.volume.is_empty() && address.volume != found {
        let _ = session.end();
        return Err(fs::Error::NotFound(format!(
            "{} has the volume {found:?}, not {:?}",
            address.server_list(),
            address.volume
        )));
    }
    let places = ClusterPlaces::of_client(state.capabilities.clone());
    let find = Box::new(move |member: &fs::label::Member| places.open(&member.path));
    let volume =
        FileSystem::connect(Server { port, session, entered, find, ending: state.ending.clone() }, name, options)?;
    *state.volume.lock() = Arc::downgrade(&volume);
    Ok(volume)
}

/// Makes the metadata server that has the volume open execute an operator's command. The call
/// returns when the command ends.
///
/// # Errors
/// When no server answers; [`fs::Error::Invalid`] when it has another volume, or refuses this
/// client.
pub fn command(address: &VolumeAddress, command: &[u8]) -> fs::Result<Vec<u8>> {
    let volume = address.volume.clone();
    let make = move |address: &str, _: bool| {
        let options = ClientOptions {
            credentials: named(&volume),
            tls: crate::identity::client_tls(),
            direct: 0,
            fail_fast: true,
            ..ClientOptions::default()
        };
        Client::new(crate::runtime().handle().clone(), address, options)
    };
    let servers = Servers::new(&address.servers, Box::new(make));
    if servers.are_several() {
        // One that was stopped would keep the command and not answer.
        let (_, turn) = servers.current();
        crate::runtime().block_on(servers.look(turn, 0));
    }
    let begun = Instant::now();
    let answer = loop {
        let (client, turn) = servers.current();
        match client.call_blocking(COMMAND, command, &[], COMMAND_DEADLINE) {
            Err(wire::Error::Remote { status: NOT_HOLDER, body }) if begun.elapsed() < COMMAND_TIMEOUT => {
                servers.is_not_holder(turn, &postcard::from_bytes(&body).unwrap_or_default());
                crate::runtime().block_on(servers.look(turn, 0));
            }
            // A server of something else did nothing.
            Err(wire::Error::Remote { status: NO_SESSION | NOT_UNDERSTOOD, .. })
                if servers.are_several() && begun.elapsed() < COMMAND_TIMEOUT =>
            {
                std::thread::sleep(RETRY_PAUSE);
                crate::runtime().block_on(servers.look(turn, 0));
            }
            // The server may be about to start. Repeat only a command that was not sent: one that
            // was may have begun.
            Err(wire::Error::Unavailable { sent: false, .. }) if begun.elapsed() < COMMAND_TIMEOUT => {
                crate::runtime().block_on(servers.look(turn, 0));
            }
            answer => break answer,
        }
    };
    let failed = |error| match error {
        wire::Error::Refused(why) => fs::Error::Invalid(why),
        error => fs::Error::NotFound(format!("{}: {error}", servers.address())),
    };
    Ok(answer.map_err(failed)?.payload.to_vec())
}

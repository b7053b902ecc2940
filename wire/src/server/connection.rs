//! A connection of a client. The server reads its requests as long as they fit into the limits, and
//! answers each in a task of its own.

use super::request::{ItemSender, Reply, Request};
use super::space::{Share, Space, SpacePool};
use super::{Peer, Service, Shared, Stage};
use crate::error::Error;
use crate::frame::{FrameKind, Header};
use crate::handshake::read_hello;
use crate::hello::{Hello, TEXT_BYTES};
use crate::incoming::{Heard, Incoming};
use crate::lock;
use crate::outgoing::Outgoing;
use crate::stream::Halves;
use crate::{STATUS_PANICKED, STATUS_TOO_LONG};
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// How often the server sends a ping to a client that waits for space, so that the client does not
/// consider the server dead.
const WAIT_PING_INTERVAL: Duration = Duration::from_secs(2);
/// How often a waiting connection checks whether those that have space make progress.
const PROGRESS_CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// A message gets space only after this many of its bytes have arrived, or all.
const MIN_ARRIVED_BYTES: u64 = 4096;
/// Maximum credit of a stream, in items; more is ignored.
const MAX_CREDITS: usize = 1 << 24;

pub(super) struct Connection<S: Service> {
    shared: Arc<Shared<S>>,
    peer: Arc<Peer>,
    heard: Arc<Heard>,
    requests: Arc<Semaphore>,
    bytes: Share,
    reply_bytes: Share,
    running: Arc<Mutex<BTreeMap<u64, Running>>>,
    _place: Option<Member<S>>,
}

/// A connection's place among those of its member. A connection without a certificate has no name
/// here.
struct Member<S: Service> {
    shared: Arc<Shared<S>>,
    name: Option<String>,
}

impl<S: Service> Member<S> {
    /// None when the member already has half of all connections.
    fn join(shared: &Arc<Shared<S>>, name: Option<&str>) -> Option<Self> {
        if let Some(name) = name {
            let mut members = lock(&shared.members);
            let count = members.entry(name.to_owned()).or_default();
            if *count >= shared.options.connections.div_ceil(2) {
                return None;
            }
            *count += 1;
        }
        Some(Self { shared: shared.clone(), name: name.map(str::to_owned) })
    }
}

impl<S: Service> Drop for Member<S> {
    fn drop(&mut self) {
        let Some(name) = &self.name else { return };
        let mut members = lock(&self.shared.members);
        if let Some(count) = members.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                members.remove(name);
            }
        }
    }
}

/// A running request. Dropping this cancels it.
struct Running {
    _cancel: oneshot::Sender<()>,
    credits: Option<Arc<Semaphore>>,
}

impl<S: Service> Connection<S> {
    /// Exchanges the first messages.
    pub async fn open(
        shared: Arc<Shared<S>>,
        halves: Halves,
        address: &str,
        names: Option<Vec<String>>,
    ) -> Result<(Self, Incoming), Error> {
        let heard = Arc::new(Heard::new());
        let mut incoming = Incoming::new(halves.read, heard.clone());
        let outgoing = Arc::new(Outgoing::new(halves.write));
        let theirs = read_hello(&mut incoming).await?;
        let options = &shared.options;
        let mut ours = Hello {
            versions: (*options.versions.start(), *options.versions.end()),
            features: options.features,
            role: options.role,
            refused: false,
            limits: options.limits,
            client: 0,
            text: Vec::new(),
        };
        // The service may push as soon as it knows the peer, but nothing may precede the first
        // message.
        let mut writer = outgoing.hold().await;
        let agreed = match ours.agree(&theirs) {
            Ok(agreed) => agreed,
            Err(error) => {
                // The client finds the same result from the versions in the answer.
                let _ = writer.write_raw(&ours.encode()).await;
                return Err(error.into());
            }
        };
        let peer = Arc::new(Peer {
            id: shared.next_peer.fetch_add(1, Ordering::Relaxed),
            client: theirs.client,
            address: address.to_owned(),
            name: names.as_ref().and_then(|names| names.first()).cloned(),
            names,
            role: theirs.role,
            version: agreed.version,
            features: agreed.features,
            credentials: theirs.text.into(),
            limits: theirs.limits,
            outgoing: outgoing.clone(),
        });
        let place = Member::join(&shared, peer.name.as_deref());
        let joined = match &place {
            // A client without a name would have no share of the limits.
            _ if peer.names.as_ref().is_some_and(Vec::is_empty) => {
                Err("the certificate has no name of letters, digits, '-', '_' and '.': get another one".into())
            }
            Some(_) => shared.service.connected(&peer),
            None => Err("this member has too many connections".into()),
        };
        if let Err(why) = joined {
            ours.refused = true;
            ours.text = why.as_bytes()[..why.len().min(TEXT_BYTES)].to_vec();
            let _ = writer.write_raw(&ours.encode()).await;
            return Err(Error::Refused(why));
        }
        // From here on the service is notified of the connection's end, whatever happens.
        let connection = Self {
            heard,
            requests: Arc::new(Semaphore::new(options.requests_per_connection)),
            bytes: shared.bytes.share(peer.name.as_deref(), options.bytes_per_connection),
            reply_bytes: shared.reply_bytes.share(peer.name.as_deref(), options.reply_bytes_per_connection),
            running: Arc::default(),
            _place: place,
            peer,
            shared: shared.clone(),
        };
        writer.write_raw(&ours.encode()).await.map_err(|error| Error::from_io(&error, false))?;
        drop(writer);
        Ok((connection, incoming))
    }

    /// Answers requests until the connection ends.
    pub async fn drive(self, mut incoming: Incoming) -> Result<(), Error> {
        let outgoing = self.peer.outgoing.clone();
        let ended = tokio::select! {
            biased;
            ended = self.read(&mut incoming) => ended,
            error = self.watch() => Err(error),
            error = outgoing.flush_always() => Err(error),
            () = outgoing.closed() => Ok(()),
            () = self.over() => Ok(()),
        };
        drop(self);
        drop(incoming);
        outgoing.finish().await;
        ended
    }

    async fn read(&self, incoming: &mut Incoming) -> Result<(), Error> {
        let options = &self.shared.options;
        while let Some(header) = incoming.header(options.limits).await? {
            match header.kind {
                FrameKind::Request | FrameKind::Open | FrameKind::OneWay => {
                    let deadline = Instant::now() + Duration::from_millis(header.deadline_ms.into());
                    let late = |_| Error::Protocol("a message did not end in time".into());
                    // A message that is announced and does not arrive takes no space.
                    let comes = incoming.arrive(header.content_bytes().min(MIN_ARRIVED_BYTES) as usize);
                    timeout(options.frame_timeout, comes).await.map_err(late)??;
                    let mut space = self.space(header.content_bytes()).await;
                    let (bytes, outgoing) = (header.content_bytes(), &self.peer.outgoing);
                    let mover = self.shared.bytes.moves(bytes, &incoming.moved, outgoing);
                    let content = timeout(options.frame_timeout, incoming.content(&header)).await;
                    let (body, payload) = content.map_err(late)??;
                    drop(mover);
                    let request = Request {
                        peer: self.peer.clone(),
                        method: header.method,
                        body,
                        payload,
                        deadline,
                        one_way: header.kind == FrameKind::OneWay,
                        items: None,
                    };
                    let answer = self.shared.service.reply_bytes(&request);
                    space.extend(self.space_for_answer(answer).await);
                    self.start(&header, request, space)?;
                }
                FrameKind::Cancel => drop(lock(&self.running).remove(&header.id)),
                FrameKind::Credit => {
                    if let Some(Running { credits: Some(credits), .. }) = lock(&self.running).get(&header.id) {
                        let most = MAX_CREDITS.saturating_sub(credits.available_permits());
                        credits.add_permits((header.count as usize).min(most));
                    }
                }
                FrameKind::Ping => {
                    if !self.peer.outgoing.queue(Header::new(FrameKind::Pong, header.id), &[]) {
                        return Err(Error::Protocol("a client asks and does not listen".into()));
                    }
                }
                FrameKind::Pong | FrameKind::Goodbye => {}
                kind => return Err(Error::Protocol(format!("a client sent {kind:?}"))),
            }
        }
        Ok(())
    }

    /// Waits for space for a request. Nothing is read meanwhile, so the client's writes stop.
    async fn space(&self, bytes: u64) -> Space {
        let pool = &self.shared.bytes;
        let space = async {
            let requests = self.requests.clone().acquire_owned().await.expect("limits are never closed");
            let mut space = pool.take(&self.bytes, bytes).await;
            space.push(requests);
            space
        };
        self.held_back(space, pool).await
    }

    /// Waits for space for an answer. Answers and requests have separate space, so that requests
    /// waiting for an answer's space do not take it from themselves.
    async fn space_for_answer(&self, bytes: u64) -> Space {
        if bytes == 0 {
            return Space::new();
        }
        let pool = &self.shared.reply_bytes;
        self.held_back(pool.take(&self.reply_bytes, bytes), pool).await
    }

    /// Waits for space. Meanwhile the client gets pings, and connections that have space but make
    /// too little progress are ended.
    async fn held_back(&self, what: impl Future<Output = Space>, pool: &SpacePool) -> Space {
        let mut what = Box::pin(what);
        let mut last_ping = Instant::now();
        loop {
            tokio::select! {
                biased;
                what = &mut what => return what,
                () = sleep(PROGRESS_CHECK_INTERVAL) => {
                    let late = pool.press() as u64;
                    if late > 0 {
                        self.shared.refused.fetch_add(late, Ordering::Relaxed);
                        let what = format!("{late} connections are closed: they hold memory and move no data, or too \
                            slowly");
                        self.shared.complaints.complain("room", &what);
                    }
                    if last_ping.elapsed() >= WAIT_PING_INTERVAL {
                        last_ping = Instant::now();
                        self.heard.touch();
                        self.peer.outgoing.queue(Header::new(FrameKind::Ping, 0), &[]);
                    }
                }
            }
        }
    }

    fn start(&self, header: &Header, mut request: Request, space: Space) -> Result<(), Error> {
        let service = self.shared.service.clone();
        if request.one_way {
            tokio::spawn(async move {
                let _ = service.call(request).await;
                drop(space);
            });
            return Ok(());
        }
        let (sender, cancelled) = oneshot::channel();
        let credits = (header.kind == FrameKind::Open)
            .then(|| Arc::new(Semaphore::new((header.count as usize).min(MAX_CREDITS))));
        request.items = credits.clone().map(|credits| ItemSender { peer: self.peer.clone(), id: header.id, credits });
        if lock(&self.running).insert(header.id, Running { _cancel: sender, credits }).is_some() {
            return Err(Error::Protocol("a client uses an id twice".into()));
        }
        let kind = if header.kind == FrameKind::Open { FrameKind::End } else { FrameKind::Response };
        let mut answer =
            Answer { peer: self.peer.clone(), running: self.running.clone(), kind, id: header.id, owed: true };
        let pool = self.shared.reply_bytes.clone();
        tokio::spawn(async move {
            let deadline = request.deadline;
            let reply = tokio::select! {
                biased;
                reply = service.call(request) => Some(reply),
                _ = cancelled => None,
                () = sleep_until(deadline) => None,
            };
            match reply {
                Some(reply) => answer.give(reply, &pool).await,
                None => answer.forgive(),
            }
            drop(space);
        });
        Ok(())
    }

    /// Sends a ping to a silent client, and gives up the connection after a longer silence. Sends
    /// Goodbye when the server stops.
    async fn watch(&self) -> Error {
        let options = &self.shared.options;
        let tick = options.ping_after.min(options.dead_after) / 2;
        let mut stage = self.shared.stage.subscribe();
        let mut said_goodbye = false;
        loop {
            tokio::select! {
                biased;
                () = sleep(tick) => {}
                _ = stage.wait_for(|stage| *stage != Stage::Serving), if !said_goodbye => {
                    said_goodbye = true;
                    self.peer.outgoing.queue(Header::new(FrameKind::Goodbye, 0), &[]);
                }
            }
            let silence = self.heard.silence();
            if silence >= options.dead_after {
                return Error::lost(format!("nothing came from the client for {silence:.1?}"), true);
            }
            if silence >= options.ping_after {
                self.peer.outgoing.queue(Header::new(FrameKind::Ping, 0), &[]);
            }
        }
    }

    async fn over(&self) {
        let _ = self.shared.stage.subscribe().wait_for(|stage| *stage == Stage::Over).await;
    }
}

impl<S: Service> Drop for Connection<S> {
    fn drop(&mut self) {
        self.peer.outgoing.close();
        lock(&self.running).clear();
        self.shared.service.disconnected(&self.peer);
    }
}

/// The answer owed to a request. The client gets one even when the service panics.
struct Answer {
    peer: Arc<Peer>,
    running: Arc<Mutex<BTreeMap<u64, Running>>>,
    kind: FrameKind,
    id: u64,
    owed: bool,
}

impl Answer {
    /// The client no longer waits for the answer.
    fn forgive(&mut self) {
        self.owed = false;
    }

    async fn give(&mut self, reply: Reply, pool: &Arc<SpacePool>) {
        self.owed = false;
        lock(&self.running).remove(&self.id);
        let Reply { mut status, mut body, mut payload } = reply;
        let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        let lengths = (length(body.len()), length(payload.iter().map(|part| part.len()).sum()));
        if let Err(error) = self.peer.limits.check(lengths.0, lengths.1) {
            (status, body, payload) = (STATUS_TOO_LONG, error.to_string().into_bytes(), Vec::new());
        }
        let parts: Vec<_> = payload.iter().map(|part| IoSlice::new(part)).collect();
        let header = Header { status, ..Header::new(self.kind, self.id) }.with_content(&body, &parts);
        let outgoing = &self.peer.outgoing;
        let mover = (!parts.is_empty()).then(|| pool.moves(header.content_bytes(), &outgoing.moved, outgoing));
        // If this fails, the client is gone and the answer has no other receiver.
        let _ = outgoing.write(header, &body, &parts).await;
        drop(mover);
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if self.owed {
            let header = Header { status: STATUS_PANICKED, ..Header::new(self.kind, self.id) };
            self.peer.outgoing.queue(header, b"the server failed in this request");
        }
        lock(&self.running).remove(&self.id);
    }
}

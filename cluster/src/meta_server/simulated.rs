//! A simulation of a metadata server and a client. The server is the real one, on targets in
//! memory, and executes requests where they arrive. The client's requests take the same path as
//! those of a mount and are repeated in the same way. Each of several workers at the client has a
//! directory and knows what it must contain.
//!
//! The simulation checks, whatever fails: no request fails, none is executed twice, and none after
//! a later one. What was synced survives the death of the server. When nothing fails any more,
//! everything continues. The client pauses between attempts to reach a server that is down.
//!
//! With even seeds the server's machine loses power, and what was not synced is gone. With odd
//! seeds only its process dies, and nothing is lost.

use super::MetaServer;
use super::link::{Link, State, Unanswered, Wish, way};
use crate::simulation::{Faults, Hosts, Network, PORT, Record, Slow, for_seeds, serve, world};
use bytes::Bytes;
use fastrand::Rng;
use fs::label::{Label, Member};
use fs::{FileSystem, Kind, OpenOptions, ROOT, Sessions};
use meta::kv::MemoryIndex;
use meta::port::{BEGIN, Call, Port, Remote, Session};
use meta::{ContentEdit, Error, New, Rename, RenameMode, Resize, Seq, Time};
use plan::{Extent, Place, TargetId};
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::sleep;
use volume::target::{Memory, Target};
use wire::{Client, ClientOptions, Payload, Peer, Reply, Request, ServerOptions, Service};

const TARGETS: usize = 3;
const WORKERS: usize = 3;
/// Number of names in a worker's directory.
const NAMES: usize = 4;
/// The number of the operation that makes earlier changes durable.
const SYNC: u16 = 25;
/// The number of the operation that makes a file. The first one in a server's life makes the lease
/// of its file numbers durable.
const MAKE: u16 = 11;
/// Longer than a simulation takes, because leases use another clock.
const LEASE: Duration = Duration::from_secs(24 * 60 * 60);
/// Pause before a failed attempt is repeated.
const PAUSE: Duration = Duration::from_millis(50);

/// Faults happen until this time.
const FAILS: Duration = Duration::from_secs(60);
/// Everything works again by this time.
const WORKS: Duration = Duration::from_secs(95);
/// The simulation ends at this time.
const END: Duration = Duration::from_secs(105);
/// The client connects at most this often within this time.
const ATTEMPTS: (usize, Duration) = (100, Duration::from_secs(10));

type Disks = Vec<Arc<Memory>>;

fn copy(disks: &Disks) -> Disks {
    let copy = |disk: &Arc<Memory>| {
        let copy = Memory::default();
        for (file, length) in disk.list().unwrap() {
            let mut bytes = vec![0; length as usize];
            let found = disk.read(file, 0, &mut bytes).unwrap_or(0);
            copy.write(file, 0, &[IoSlice::new(&bytes[..found])]).unwrap();
        }
        Arc::new(copy)
    };
    disks.iter().map(copy).collect()
}

struct Lab {
    record: Record,
    network: Network,
    label: Label,
    /// The server's targets, and their durable content as of the last sync that it answered.
    disks: Mutex<Disks>,
    durable: Mutex<Disks>,
    open: Mutex<Option<Arc<FileSystem>>>,
    /// The server's machine loses power when the server dies.
    loses: bool,
    /// How often the server died.
    deaths: AtomicU64,
    done: AtomicUsize,
    after: AtomicUsize,
    /// Number of workers that came to their end.
    through: AtomicUsize,
}

fn now() -> Duration {
    turmoil::sim_elapsed().unwrap_or_default()
}

impl Lab {
    fn new(seed: u64) -> Arc<Self> {
        let record = Record::default();
        let member = |number: usize| Member::new(TargetId(number as u16), PathBuf::new());
        let label = Label::new([7; 16], "simulated", "rs:2+1", 6 << 20, 2, (0..TARGETS).map(member).collect());
        let disks: Disks = (0..TARGETS).map(|_| Arc::default()).collect();
        FileSystem::create_on(&label, places(&disks)).unwrap();
        Arc::new(Self {
            network: Network::new(seed, &record),
            durable: Mutex::new(copy(&disks)),
            disks: Mutex::new(disks),
            open: Mutex::default(),
            loses: seed.is_multiple_of(2),
            deaths: AtomicU64::new(0),
            done: AtomicUsize::new(0),
            after: AtomicUsize::new(0),
            through: AtomicUsize::new(0),
            record,
            label,
        })
    }

    /// Starts the server, which runs until it dies.
    async fn serve(self: Arc<Self>) -> turmoil::Result {
        let options = OpenOptions { serve: true, ..OpenOptions::default() };
        let places = places(&self.disks.lock().unwrap());
        let volume = FileSystem::open_on(self.label.clone(), places, Box::new(MemoryIndex::default()), options)?;
        *self.open.lock().unwrap() = Some(volume.clone());
        // Opening the volume is durable, and with it the key that verifies the sessions.
        let durable = copy(&self.disks.lock().unwrap());
        *self.durable.lock().unwrap() = durable;
        let server = Arc::new(MetaServer::new(Sessions::new(volume, LEASE, 0), |_, _, _| Vec::new()));
        let kept = Arc::new(Keeps { inner: server.service(), lab: self.clone(), numbers: AtomicBool::new(false) });
        let slow = Slow { inner: kept, network: self.network.clone(), spared: Some(BEGIN) };
        serve(self.network.clone(), Arc::new(slow), ServerOptions::default()).await
    }

    /// The server died.
    fn dies(&self) {
        let Some(volume) = self.open.lock().unwrap().take() else { return };
        self.deaths.fetch_add(1, Ordering::SeqCst);
        let mut disks = self.disks.lock().unwrap();
        if self.loses {
            *disks = copy(&self.durable.lock().unwrap());
        } else {
            volume.sync_all().unwrap();
            *disks = copy(&disks);
        }
        // Its threads may still write, but only to disks that nothing reads any more.
        std::thread::spawn(move || volume.abandon());
    }
}

fn places(disks: &Disks) -> Vec<(TargetId, Arc<dyn Target>)> {
    let place = |(number, disk): (usize, &Arc<Memory>)| (TargetId(number as u16), disk.clone() as Arc<dyn Target>);
    disks.iter().enumerate().map(place).collect()
}

/// Copies the durable state when the server answers a sync.
struct Keeps<S> {
    inner: Arc<S>,
    lab: Arc<Lab>,
    /// Whether the server has leased file numbers.
    numbers: AtomicBool,
}

impl<S: Service> Keeps<S> {
    /// Repeats a request from time to time, and late: over a connection that its client gave up
    /// long ago.
    fn repeat(&self, request: &Request) {
        let late = self.lab.network.dice(|dice| (dice.u32(..10) == 0).then(|| dice.u64(..20_000)));
        let Some(late) = late.filter(|_| request.payload.is_empty()) else { return };
        let copy = Request {
            peer: request.peer.clone(),
            method: request.method,
            body: request.body.clone(),
            payload: Payload::default(),
            deadline: request.deadline,
            one_way: request.one_way,
            items: None,
        };
        let inner = self.inner.clone();
        tokio::spawn(async move {
            sleep(Duration::from_millis(late)).await;
            inner.call(copy).await
        });
    }
}

impl<S: Service> Service for Keeps<S> {
    async fn call(&self, request: Request) -> Reply {
        let method = request.method;
        if method != BEGIN {
            self.repeat(&request);
        }
        let reply = self.inner.call(request).await;
        let does = reply.status == 0 && self.lab.loses;
        if does && (method == SYNC || method == MAKE && !self.numbers.swap(true, Ordering::Relaxed)) {
            let durable = copy(&self.lab.disks.lock().unwrap());
            *self.lab.durable.lock().unwrap() = durable;
        }
        reply
    }

    fn connected(&self, peer: &Arc<Peer>) -> Result<(), String> {
        self.inner.connected(peer)
    }
}

/// Records the request, or returns the given answer.
#[derive(Default)]
struct Tape {
    asked: Mutex<(u16, Vec<u8>)>,
    answer: Option<Vec<u8>>,
}

impl Call for Tape {
    fn call(&self, operation: u16, arguments: &[u8]) -> meta::Result<Vec<u8>> {
        *self.asked.lock().unwrap() = (operation, arguments.to_vec());
        self.answer.clone().ok_or(Error::Invalid("it was not asked yet".into()))
    }
}

/// A client with its session.
struct Mount {
    lab: Arc<Lab>,
    state: Arc<State>,
    taking_up: tokio::sync::Mutex<()>,
}

impl Mount {
    async fn begin(lab: Arc<Lab>) -> Arc<Self> {
        let options = ClientOptions { connect: lab.network.connect("client"), ..way() };
        let client = Client::new(Handle::current(), format!("meta:{PORT}"), options);
        let mount = Self { lab, state: Arc::new(State::new(client)), taking_up: tokio::sync::Mutex::default() };
        let welcome = mount.ask(|port| port.begin(None, "client".into(), Vec::new())).await.expect("a session");
        mount.state.have(&welcome);
        Arc::new(mount)
    }

    /// Sends a request as the real client does, but without a thread that waits.
    async fn ask<T>(&self, what: impl Fn(&Remote<Tape>) -> meta::Result<T>) -> meta::Result<T> {
        let link = Link::new(&self.state);
        let tape = Remote(Tape::default());
        let _ = what(&tape);
        let (operation, arguments) = tape.0.asked.into_inner().unwrap();
        let request = self.state.begin();
        let mut wish = Wish::new(operation, request, &arguments);
        let answer = loop {
            match link.ask_until_answered(&mut wish).await {
                Ok(answer) => break Ok(answer),
                Err(Unanswered::Failed(error)) => break Err(error),
                Err(Unanswered::NoSession) => {
                    if self.reclaim().await.is_err() {
                        sleep(PAUSE).await;
                    }
                }
            }
        };
        self.state.end(request);
        what(&Remote(Tape { answer: Some(answer?), ..Tape::default() }))
    }

    /// Reclaims the session at a server that restarted.
    async fn reclaim(&self) -> meta::Result<()> {
        let _one_at_a_time = self.taking_up.lock().await;
        let session = self.state.session.load(Ordering::SeqCst);
        let welcome = self.ask_once(|port| port.begin(Some(session), "client".into(), Vec::new())).await?;
        self.state.have(&welcome);
        if welcome.fresh {
            self.lab.record.note("the client takes its session up");
            self.ask_once(Session::reclaim_complete).await?;
        }
        Ok(())
    }

    /// As `ask`, but gives up when the server does not know the session.
    async fn ask_once<T>(&self, what: impl Fn(&Remote<Tape>) -> meta::Result<T>) -> meta::Result<T> {
        let tape = Remote(Tape::default());
        let _ = what(&tape);
        let (operation, arguments) = tape.0.asked.into_inner().unwrap();
        let request = self.state.begin();
        let mut wish = Wish::new(operation, request, &arguments);
        let answer = Link::taking_up(&self.state).ask_until_answered(&mut wish).await;
        self.state.end(request);
        match answer {
            Ok(answer) => what(&Remote(Tape { answer: Some(answer), ..Tape::default() })),
            Err(Unanswered::Failed(error)) => Err(error),
            Err(Unanswered::NoSession) => Err(Error::Unavailable("no session".into())),
        }
    }
}

/// The known state of a file. The content is None when it is in a stripe, which this simulation
/// does not read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct File {
    content: Option<Vec<u8>>,
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The state of a directory: names with their file numbers, and the files.
#[derive(Clone, Debug, Default)]
struct Model {
    names: BTreeMap<Vec<u8>, u64>,
    files: BTreeMap<u64, File>,
}

impl PartialEq for Model {
    fn eq(&self, other: &Self) -> bool {
        let same = |(a, b): (&File, &File)| {
            let content = a.content.is_none() || b.content.is_none() || a.content == b.content;
            content && a.attributes == b.attributes
        };
        self.names == other.names
            && self.files.keys().eq(other.files.keys())
            && self.files.values().zip(other.files.values()).all(same)
    }
}

/// An action of a worker in its directory.
#[derive(Clone, Debug)]
enum Action {
    Make(Vec<u8>),
    Unlink(Vec<u8>, u64),
    Rename(Vec<u8>, Vec<u8>, Option<u64>),
    Link(u64, Vec<u8>),
    Write(u64, Vec<u8>),
    NewAttribute(u64, Vec<u8>, Vec<u8>),
    RemoveAttribute(u64, Vec<u8>),
    Sync,
}

impl Model {
    /// The state after an action; `made` is the file that the action made, if any. None when the
    /// action is not possible.
    fn after(&self, action: &Action, made: Option<u64>) -> Option<Self> {
        let mut after = self.clone();
        match action {
            Action::Make(name) => {
                let content = Some(Vec::new());
                after.files.insert(made?, File { content, ..File::default() });
                after.names.insert(name.clone(), made?).is_none().then_some(())?;
            }
            Action::Unlink(name, ino) => (after.names.remove(name)? == *ino).then_some(())?,
            Action::Rename(from, to, _) => {
                let ino = after.names.remove(from)?;
                after.names.insert(to.clone(), ino);
            }
            Action::Link(ino, name) => {
                after.files.contains_key(ino).then_some(())?;
                after.names.insert(name.clone(), *ino).is_none().then_some(())?;
            }
            Action::Write(ino, bytes) => after.files.get_mut(ino)?.content = Some(bytes.clone()),
            Action::NewAttribute(ino, name, value) => {
                let attributes = &mut after.files.get_mut(ino)?.attributes;
                attributes.insert(name.clone(), value.clone()).is_none().then_some(())?;
            }
            Action::RemoveAttribute(ino, name) => _ = after.files.get_mut(ino)?.attributes.remove(name)?,
            Action::Sync => {}
        }
        let Self { names, files } = &mut after;
        files.retain(|ino, _| names.values().any(|named| named == ino));
        Some(after)
    }

    /// Chooses an action that is possible.
    fn choose(&self, dice: &mut Rng, next: &mut u32) -> Action {
        *next += 1;
        let new = format!("name{next}").into_bytes();
        let Some((name, &ino)) = dice.choice(&self.names.iter().collect::<Vec<_>>()).copied() else {
            return Action::Make(new);
        };
        let (name, file) = (name.clone(), &self.files[&ino]);
        match dice.u32(..10) {
            0 | 1 if self.names.len() < NAMES => Action::Make(new),
            2 if self.names.len() < NAMES => Action::Link(ino, new),
            0..=2 => Action::Unlink(name, ino),
            3 => Action::Rename(name, new, None),
            4 => {
                let other = self.names.iter().find(|(_, other)| **other != ino);
                let (to, replaced) = other.map_or((new, None), |(other, &replaced)| (other.clone(), Some(replaced)));
                Action::Rename(name, to, replaced)
            }
            5..=7 => {
                let mut bytes = vec![0; dice.usize(1..40)];
                dice.fill(&mut bytes);
                Action::Write(ino, bytes)
            }
            8 if file.attributes.is_empty() => Action::NewAttribute(ino, b"user.a".into(), new),
            8 => Action::RemoveAttribute(ino, b"user.a".into()),
            _ => Action::Sync,
        }
    }
}

/// One user of the mount.
struct Worker {
    mount: Arc<Mount>,
    number: usize,
    dice: Rng,
    directory: u64,
    model: Model,
    /// The states of the directory since the last one that is certainly durable.
    history: Vec<Model>,
    /// The deaths of the server that this worker knows of.
    deaths: u64,
    next: u32,
    clock: u32,
}

impl Worker {
    async fn begin(mount: Arc<Mount>, number: usize, seed: u64) -> Self {
        let name = format!("worker{number}");
        let new = New { kind: Kind::Directory, mode: 0o755, uid: 0, gid: 0, device: 0, link: Vec::new() };
        let time = Time { seconds: 1, nanoseconds: number as u32 };
        let deaths = || mount.lab.deaths.load(Ordering::SeqCst);
        let directory = loop {
            let before = deaths();
            let made = match mount.ask(|port| port.make(ROOT, name.as_bytes(), &new, time)).await {
                Err(Error::Exists) => mount.ask(|port| port.lookup(ROOT, name.as_bytes())).await.expect("it exists"),
                made => made.expect("a directory").0,
            };
            mount.ask(|port| Port::sync(port, Seq::MAX)).await.expect("it is durable");
            // A sync at the next server does not notice what the previous one lost.
            if deaths() == before || !mount.lab.loses {
                break made.ino;
            }
        };
        Self {
            deaths: deaths(),
            dice: Rng::with_seed(seed << 8 | number as u64),
            directory,
            model: Model::default(),
            history: vec![Model::default()],
            next: 0,
            clock: 0,
            mount,
            number,
        }
    }

    async fn run(mut self) {
        let lab = self.mount.lab.clone();
        while now() < END - Duration::from_secs(6) {
            let (action, begun) = (self.model.choose(&mut self.dice, &mut self.next), now());
            let done = self.act(&action).await;
            let told = done.as_ref().map(drop).map_err(ToString::to_string);
            lab.record.note(format_args!("worker {}: {action:?}: {told:?}", self.number));
            self.learn(&action, done).await;
            if self.dice.u32(..5) == 0 {
                self.look().await;
            }
            lab.done.fetch_add(1, Ordering::Relaxed);
            lab.after.fetch_add(usize::from(begun > WORKS), Ordering::Relaxed);
            sleep(Duration::from_millis(self.dice.u64(..150))).await;
        }
        self.look().await;
        lab.through.fetch_add(1, Ordering::Relaxed);
    }

    /// Performs an action; returns the file that it made, if any.
    async fn act(&mut self, action: &Action) -> meta::Result<Option<u64>> {
        self.clock += 1;
        let (mount, directory) = (&self.mount, self.directory);
        let time = Time { seconds: 1000 + i64::from(self.clock), nanoseconds: self.number as u32 };
        match action {
            Action::Make(name) => {
                let new = New { kind: Kind::File, mode: 0o644, uid: 0, gid: 0, device: 0, link: Vec::new() };
                Ok(Some(mount.ask(|port| port.make(directory, name, &new, time)).await?.0.ino))
            }
            Action::Unlink(name, ino) => {
                mount.ask(|port| port.unlink(directory, name, *ino, false, time)).await.map(|_| None)
            }
            Action::Rename(from, to, replaced) => {
                let (from, to) = ((directory, from.clone()), (directory, to.clone()));
                let rename = Rename { from, to, mode: RenameMode::Replace, replaced: *replaced, keep: false };
                mount.ask(|port| port.rename(&rename, time)).await.map(|_| None)
            }
            Action::Link(ino, name) => mount.ask(|port| port.link(*ino, directory, name, time)).await.map(|_| None),
            Action::Write(ino, bytes) => {
                let length = bytes.len() as u64;
                let extent = Extent { offset: 0, length, place: Place::Bytes(Bytes::from(bytes.clone())) };
                let edit = ContentEdit {
                    ranges: vec![(0..length, vec![extent])],
                    resize: Resize::To(length),
                    modified: Some(time),
                };
                mount.ask(|port| port.change_content(*ino, &edit)).await.map(|_| None)
            }
            Action::NewAttribute(ino, name, value) => {
                mount.ask(|port| port.set_attribute(*ino, name, value, Some(false), time)).await.map(|_| None)
            }
            Action::RemoveAttribute(ino, name) => {
                mount.ask(|port| port.remove_attribute(*ino, name, time)).await.map(|_| None)
            }
            Action::Sync => mount.ask(|port| Port::sync(port, Seq::MAX)).await.map(|()| None),
        }
    }

    /// Updates the model with the result of an action.
    async fn learn(&mut self, action: &Action, done: meta::Result<Option<u64>>) {
        let deaths = self.mount.lab.deaths.load(Ordering::SeqCst);
        let lost = self.mount.lab.loses && deaths != self.deaths;
        self.deaths = deaths;
        if !lost {
            match done.as_ref().ok().and_then(|made| self.model.after(action, *made)) {
                Some(model) => self.model = model,
                None => self.wrong(format_args!("{action:?}: {done:?}")),
            }
            if matches!(action, Action::Sync) {
                self.history.clear();
            }
            return self.history.push(self.model.clone());
        }
        // Everything that was not durable may be gone, and the last action, too.
        let made = done.ok().flatten();
        let seen = self.seen().await;
        let with = self.history.iter().filter_map(|model| model.after(action, made.or_else(|| seen.file_of(action))));
        if !with.chain(self.history.iter().cloned()).any(|model| model == seen) {
            self.wrong(format_args!(
                "after the server lost power there is {seen:?}, and never was; before {action:?}: {:?}",
                self.history
            ));
        }
        self.model = seen;
        self.history.push(self.model.clone());
    }

    /// Compares the actual state with the expected one.
    async fn look(&mut self) {
        let seen = self.seen().await;
        let deaths = self.mount.lab.deaths.load(Ordering::SeqCst);
        let lost = self.mount.lab.loses && deaths != self.deaths;
        if lost {
            return self.learn(&Action::Sync, Ok(None)).await;
        }
        if seen != self.model {
            self.wrong(format_args!("there is {seen:?} instead of {:?}", self.model));
        }
    }

    /// The actual state, all of it from one server.
    async fn seen(&self) -> Model {
        loop {
            let before = self.mount.lab.deaths.load(Ordering::SeqCst);
            let seen = self.try_to_see().await;
            if self.mount.lab.deaths.load(Ordering::SeqCst) == before || !self.mount.lab.loses {
                return seen.unwrap_or_else(|error| {
                    self.wrong(format_args!("looking: {error}"));
                    Model::default()
                });
            }
        }
    }

    async fn try_to_see(&self) -> meta::Result<Model> {
        let (mount, mut seen) = (&self.mount, Model::default());
        for listed in mount.ask(|port| port.list(self.directory, 0, 1000)).await? {
            let ino = listed.attributes.ino;
            seen.names.insert(listed.name, ino);
            if seen.files.contains_key(&ino) {
                continue;
            }
            let mut file = File { content: Some(vec![0; listed.attributes.size as usize]), ..File::default() };
            for extent in mount.ask(|port| port.extents(ino, 0..u64::MAX)).await? {
                match (&extent.place, &mut file.content) {
                    (Place::Bytes(bytes), Some(content)) => {
                        // The content is longer than the size when another server returned the
                        // size.
                        content.resize(content.len().max(extent.end() as usize), 0);
                        content[extent.offset as usize..extent.end() as usize].copy_from_slice(bytes);
                    }
                    _ => file.content = None,
                }
            }
            for name in mount.ask(|port| port.attribute_names(ino)).await? {
                let value = mount.ask(|port| port.attribute(ino, &name)).await?;
                file.attributes.insert(name, value);
            }
            seen.files.insert(ino, file);
        }
        Ok(seen)
    }

    fn wrong(&self, what: std::fmt::Arguments<'_>) {
        self.mount.lab.record.wrong(format_args!("worker {}: {what}", self.number));
    }
}

impl Model {
    /// The file that an action made, if any.
    fn file_of(&self, action: &Action) -> Option<u64> {
        let Action::Make(name) = action else { return None };
        self.names.get(name).copied()
    }
}

/// Runs the simulation; returns the hash of its record.
fn run(seed: u64) -> blake3::Hash {
    let lab = Lab::new(seed);
    let mut sim = world(seed);
    let hosts = Hosts { servers: vec!["meta".into()], clients: vec!["client".into()], dead: 1, clients_die: false };
    let server = lab.clone();
    sim.host("meta", move || server.clone().serve());
    let client = lab.clone();
    sim.host("client", move || {
        let lab = client.clone();
        async move {
            let mount = Mount::begin(lab).await;
            for number in 0..WORKERS {
                let mount = mount.clone();
                tokio::spawn(async move { Worker::begin(mount, number, seed).await.run().await });
            }
            std::future::pending().await
        }
    });
    let faults = Faults::new(seed, &hosts, FAILS);
    faults.run(&mut sim, &lab.network, &lab.record, END, |_| lab.dies()).unwrap();
    drop(sim);
    if let Some(volume) = lab.open.lock().unwrap().take() {
        std::thread::spawn(move || volume.abandon());
    }
    let (attempts, who) = lab.network.most_attempts("client", ATTEMPTS.1);
    if attempts > ATTEMPTS.0 {
        lab.record.wrong(format_args!("{who} connected {attempts} times in {:?}", ATTEMPTS.1));
    }
    let (done, after) = (lab.done.load(Ordering::Relaxed), lab.after.load(Ordering::Relaxed));
    lab.record.note(format_args!("{done} actions, {after} at the end; {attempts} connections at most in a while"));
    let through = lab.through.load(Ordering::Relaxed);
    if after < WORKERS || through < WORKERS {
        lab.record
            .wrong(format_args!("only {after} things were done when all worked again, and {through} workers ended"));
    }
    lab.record.finish()
}

#[test]
fn every_request_is_carried_out_once_whatever_fails() {
    for_seeds(24, |seed| _ = run(seed));
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in [3, 4] {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
    assert_ne!(run(3), run(5));
}

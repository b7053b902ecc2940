//! Fairness test: one member sends more requests than its share, to a real server with
//! certificates. The server still answers the other members.

use super::commands::{CommandDesk, Commands};
use super::link::way;
use super::{COMMAND, MetaServer, Ticket};
use crate::identity::{Identity, Members, make_identities};
use crate::shares::Shares;
use fs::label::{Label, Member};
use fs::{FileKind, FileSystem, OpenOptions, ROOT, Sessions};
use meta::kv::MemoryIndex;
use meta::{Error, New, Time};
use plan::{SessionId, TargetId};
use session::port::{Port, Remote, Session};
use session::transport::Call;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use volume::Control;
use volume::target::{Memory, Target};
use wire::{Client, ClientOptions, Role, Server, ServerOptions};

/// How many requests of a kind the server admits at a time, and how many the member sends.
const PLACES: usize = 8;
const FLOOD_REQUESTS: usize = 100;
/// Upper limit for every wait in this test. A request that waits for a silent client takes 20
/// seconds.
const WAIT_TIMEOUT: Duration = Duration::from_secs(600);

/// How many commands have begun, and whether the commands that are held may end.
static BEGUN: AtomicUsize = AtomicUsize::new(0);
static RELEASED: AtomicBool = AtomicBool::new(false);

fn command(what: &[u8], _: bool, _: &Arc<Control>) -> Vec<u8> {
    BEGUN.fetch_add(1, Ordering::SeqCst);
    while what == b"hold" && !RELEASED.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(1));
    }
    what.to_vec()
}

fn volume() -> Arc<FileSystem> {
    let member = |number: u16| Member::new(TargetId(number), PathBuf::new());
    let label = Label::new([7; 16], "crowded", "rs:2+1", 6 << 20, 2, (0..3).map(member).collect());
    let disks: Vec<Arc<Memory>> = (0..3).map(|_| Arc::default()).collect();
    let places = || {
        let place = |(number, disk): (usize, &Arc<Memory>)| (TargetId(number as u16), disk.clone() as Arc<dyn Target>);
        disks.iter().enumerate().map(place).collect::<Vec<_>>()
    };
    FileSystem::create_on(&label, places()).unwrap();
    let options = OpenOptions { serve: true, ..OpenOptions::default() };
    FileSystem::open_on(label, places(), Box::new(MemoryIndex::default()), options).unwrap()
}

/// A client of a member. It can send any request.
struct Raw {
    client: Client,
    session: AtomicU64,
    secret: Mutex<session::caller::Secret>,
    next: AtomicU64,
}

impl Raw {
    /// Connects and begins a session.
    fn begin(server: &str, place: &Path, member: &str) -> Arc<Self> {
        let tls = Some(Identity::at(&place.join(member)).client().unwrap());
        let options = ClientOptions { tls, channels: 4, ..way("") };
        let client = Client::new(crate::runtime().handle().clone(), server, options);
        let raw = Self { client, session: AtomicU64::new(0), secret: Mutex::default(), next: AtomicU64::new(1) };
        let raw = Arc::new(raw);
        let welcome = asks(&raw).begin(None, member.into(), Vec::new()).unwrap();
        *raw.secret.lock().unwrap() = welcome.secret;
        raw.session.store(welcome.session.0, Ordering::SeqCst);
        raw
    }

    async fn send(&self, operation: u16, arguments: &[u8]) -> Result<Vec<u8>, wire::Error> {
        let (session, secret) = (SessionId(self.session.load(Ordering::SeqCst)), *self.secret.lock().unwrap());
        let request = self.next.fetch_add(1, Ordering::SeqCst);
        let ticket = Ticket { session, secret, request, answered: 1, again: false };
        let mut body = postcard::to_stdvec(&ticket).unwrap();
        body.extend_from_slice(arguments);
        Ok(self.client.call(operation, &body, &[], WAIT_TIMEOUT).await?.payload.to_vec())
    }
}

/// Makes calls through a `Raw` client and waits for their answers.
struct Waits(Arc<Raw>);

impl Call for Waits {
    fn call(&self, operation: u16, arguments: &[u8]) -> meta::Result<Vec<u8>> {
        let sent = crate::runtime().block_on(self.0.send(operation, arguments));
        sent.map_err(|why| Error::Unavailable(why.to_string()))
    }
}

fn asks(raw: &Arc<Raw>) -> Remote<Waits> {
    Remote(Waits(raw.clone()))
}

/// Records the request instead of sending it.
#[derive(Default)]
struct Tape(Mutex<(u16, Vec<u8>)>);

impl Call for Tape {
    fn call(&self, operation: u16, arguments: &[u8]) -> meta::Result<Vec<u8>> {
        *self.0.lock().unwrap() = (operation, arguments.to_vec());
        Err(Error::NotFound)
    }
}

#[test]
fn one_member_keeps_nobody_else_from_being_answered() {
    let place = std::env::temp_dir().join(format!("weft-crowded-{}", std::process::id()));
    let member = |name: &str| (name.to_owned(), vec!["127.0.0.1".to_owned()]);
    let members = Members { members: ["meta", "a", "b"].map(member).to_vec(), operators: Vec::new() };
    make_identities(&place, &members).unwrap();
    let sessions = Sessions::new(volume(), Duration::from_secs(24 * 60 * 60));
    let mut meta = MetaServer::new(sessions, Commands::new(command));
    (meta.waiting, meta.desk) = (Shares::new(PLACES), CommandDesk::new(Commands::new(command), PLACES));
    let meta = Arc::new(meta);
    let tls = Some(Identity::at(&place.join("meta")).server().unwrap());
    let server = Server::new(meta.service(), ServerOptions { tls, role: Role::META, ..ServerOptions::default() });
    let runtime = crate::runtime();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serving = runtime.spawn(async move { server.serve(listener, std::future::pending()).await });

    // One session of the member reports that it writes to a file, and then falls silent. Another
    // session of the member opens that file again and again.
    let silent = Raw::begin(&address, &place, "a");
    let new = New { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, device: 0, link: Vec::new() };
    let (file, _) = asks(&silent).make(ROOT, b"x", &new, Time { seconds: 1, nanoseconds: 0 }).unwrap();
    asks(&silent).reclaim_open(file.ino, 1).unwrap();
    let opens = Raw::begin(&address, &place, "a");
    let tape = Remote(Tape::default());
    let _ = Session::open(&tape, file.ino, 0);
    let (operation, arguments) = tape.0.0.into_inner().unwrap();
    let mut flood = Vec::new();
    for _ in 0..FLOOD_REQUESTS {
        let (opens, arguments) = (opens.clone(), arguments.clone());
        flood.push(runtime.spawn(async move { opens.send(operation, &arguments).await }));
        let holds = silent.clone();
        flood
            .push(runtime.spawn(async move {
                holds.client.call(COMMAND, b"hold", &[], WAIT_TIMEOUT).await.map(|_| Vec::new())
            }));
    }
    let begun = Instant::now();
    while BEGUN.load(Ordering::SeqCst) < PLACES / 2 {
        assert!(begun.elapsed() < WAIT_TIMEOUT, "no command begins");
        std::thread::sleep(Duration::from_millis(1));
    }

    // With one queue for all members, each of these requests would wait for the requests of the
    // first member.
    let begun = Instant::now();
    let other = Raw::begin(&address, &place, "b");
    for _ in 0..10 {
        assert_eq!(asks(&other).lookup(ROOT, b"x").unwrap().ino, file.ino);
    }
    let answer = runtime.block_on(other.client.call(COMMAND, b"go", &[], WAIT_TIMEOUT)).unwrap();
    let took = begun.elapsed();
    assert!(answer.payload.to_vec() == b"go" && took < Duration::from_secs(60), "{took:?}");
    assert_eq!(BEGUN.load(Ordering::SeqCst), PLACES / 2 + 1, "commands that were begun");

    flood.iter().for_each(tokio::task::JoinHandle::abort);
    RELEASED.store(true, Ordering::SeqCst);
    asks(&silent).end().unwrap();
    serving.abort();
    std::fs::remove_dir_all(&place).unwrap();
}

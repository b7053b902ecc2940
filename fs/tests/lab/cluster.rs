//! A metadata server and its clients, without a network: requests go through the encoding of
//! messages, and data straight to the targets.

use super::Lab;
use fs::label::Label;
pub use fs::lock;
use fs::{FileSystem, OpenOptions, Server, Sessions};
use plan::{Ino, SessionId};
use session::Question;
use session::port::{Entered, Entry, Port, Remote, Session, VERSION, answered_by, opening_of_work, session_of_work};
use session::transport::Call;
use session::transport::{Answer, Recall};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// How long a silent client keeps its session.
pub const LEASE: Duration = Duration::from_secs(5);
/// Longer than a test should take.
pub const LONG_LEASE: Duration = Duration::from_secs(600);

/// A server that can die and restart, on the disks of a lab.
pub struct Cluster {
    pub lab: Mutex<Lab>,
    /// The lease of clients at servers that start from now on.
    pub session_lease: Mutex<Duration>,
    pub server: Mutex<Option<Arc<Sessions>>>,
    /// Targets that no client finds.
    pub hidden: Mutex<BTreeSet<u16>>,
}

/// A client's connection to the server.
pub struct Wire {
    pub cluster: Arc<Cluster>,
    /// No message gets through: the client's machine is stopped, or the network is cut.
    pub cut: AtomicBool,
    /// This operation fails; 0 for none.
    pub refused: AtomicU16,
    /// The answer to this operation gets lost; 0 for none.
    pub unanswered: AtomicU16,
    /// The server refuses this operation as one that no correct client sends; 0 for none.
    pub invalid: AtomicU16,
    /// The volume is full for this client: the server refuses changes of content.
    pub full: AtomicBool,
    /// This operation, 0 for none, gets no answer as long as it is named here; `waiting` counts the
    /// calls that wait.
    pub held: AtomicU16,
    pub waiting: AtomicU64,
    pub session: AtomicU64,
    client: Mutex<Weak<FileSystem>>,
    asked: Mutex<BTreeMap<u16, u32>>,
}

impl Wire {
    /// How often an operation was requested.
    pub fn asked(&self, operation: u16) -> u32 {
        lock(&self.asked).get(&operation).copied().unwrap_or(0)
    }
}

/// Sends requests in a session, without a client.
pub struct Raw {
    pub server: Arc<Sessions>,
    pub session: Option<SessionId>,
}

impl Call for Raw {
    fn call(&self, operation: u16, arguments: &[u8]) -> meta::Result<Vec<u8>> {
        let recall: Recall = Arc::new(|_: &[Question]| ());
        match self.server.answer(self.session, &recall, operation, arguments) {
            Answer::Done(answer) => Ok(answer),
            other => Err(meta::Error::Unavailable(format!("{other:?}"))),
        }
    }
}

struct Link {
    wire: Arc<Wire>,
    /// A reclaim is in progress: if the server restarts meanwhile, it starts again.
    takes_up: bool,
}

impl Link {
    fn new(wire: &Arc<Wire>) -> Self {
        Self { wire: wire.clone(), takes_up: false }
    }
}

impl Call for Link {
    fn call(&self, operation: u16, arguments: &[u8]) -> meta::Result<Vec<u8>> {
        *lock(&self.wire.asked).entry(operation).or_default() += 1;
        if self.wire.refused.load(Ordering::SeqCst) == operation {
            return Err(meta::Error::Unavailable("refused".into()));
        }
        if self.wire.invalid.load(Ordering::SeqCst) == operation {
            return Err(meta::Error::Invalid("refused".into()));
        }
        if self.wire.full.load(Ordering::SeqCst) && matches!(operation, 18 | 19 | 29) {
            return Err(meta::Error::NoSpace);
        }
        if self.wire.held.load(Ordering::SeqCst) == operation {
            self.wire.waiting.fetch_add(1, Ordering::SeqCst);
            while self.wire.held.load(Ordering::SeqCst) == operation {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.wire.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        loop {
            let server = lock(&self.wire.cluster.server).clone().filter(|_| !self.wire.cut.load(Ordering::SeqCst));
            let Some(server) = server else {
                // A client that dies while it is cut off does not wait for its own request.
                let is_cut = self.wire.cut.load(Ordering::SeqCst);
                if is_cut && lock(&self.wire.client).upgrade().is_none_or(|client| client.is_closed()) {
                    return Err(meta::Error::Unavailable("the client is dead".into()));
                }
                std::thread::sleep(Duration::from_millis(10));
                continue;
            };
            let wire = Arc::downgrade(&self.wire);
            let recall: Recall = Arc::new(move |questions: &[Question]| {
                let (questions, wire) = (questions.to_vec(), wire.clone());
                std::thread::spawn(move || {
                    let client = wire.upgrade().and_then(|wire| lock(&wire.client).upgrade());
                    client.inspect(|client| client.recall(&questions));
                });
            });
            let session = SessionId(self.wire.session.load(Ordering::SeqCst)).given();
            if !self.takes_up && session_of_work().is_some_and(|other| Some(other) != session) {
                return Err(meta::Error::Unavailable("the session ended before this was done".into()));
            }
            if opening_of_work().is_some_and(|opening| opening != server.opening().number) {
                return Err(meta::Error::Unavailable("another server has the volume".into()));
            }
            match server.answer(session, &recall, operation, arguments) {
                Answer::Done(_) if self.wire.unanswered.load(Ordering::SeqCst) == operation => {
                    return Err(meta::Error::Unavailable("the answer got lost".into()));
                }
                Answer::Done(answer) => {
                    answered_by(server.opening().number);
                    return Ok(answer);
                }
                Answer::Unknown => panic!("operation {operation} is not known"),
                Answer::NoSession => {
                    if self.takes_up {
                        return Err(meta::Error::Unavailable("the session is not known any more".into()));
                    }
                    let client = lock(&self.wire.client).upgrade().expect("only an open client has a session");
                    let have = |entered: &Entered| self.wire.session.store(entered.welcome.session.0, Ordering::SeqCst);
                    let _ = client.reclaim(&Remote(Self { takes_up: true, ..Self::new(&self.wire) }), &have);
                }
            }
        }
    }
}

impl Cluster {
    /// A server on new disks.
    pub fn new(code: &str, targets: usize) -> Arc<Self> {
        Self::with_lease(code, targets, LEASE)
    }

    /// The same with another lease. With a long one, who waits for its end waits for minutes.
    pub fn with_lease(code: &str, targets: usize, lease: Duration) -> Arc<Self> {
        let cluster = Arc::new(Self {
            lab: Mutex::new(Lab::new(code, targets)),
            session_lease: Mutex::new(lease),
            server: Mutex::default(),
            hidden: Mutex::default(),
        });
        cluster.start();
        cluster
    }

    /// Starts the server's process.
    pub fn start(&self) {
        let fs = lock(&self.lab).open_to_serve();
        let sessions = Sessions::new(fs, *lock(&self.session_lease));
        let weak = Arc::downgrade(&sessions);
        std::thread::spawn(move || {
            while let Some(sessions) = weak.upgrade() {
                sessions.tick();
                drop(sessions);
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        *lock(&self.server) = Some(sessions);
    }

    /// The server's process dies. What it knows of its clients is lost.
    pub fn kill(&self) {
        let sessions = lock(&self.server).take().expect("it runs");
        lock(&self.lab).kill(sessions.volume().clone());
    }

    /// The volume that the server has open.
    pub fn volume(&self) -> Arc<FileSystem> {
        lock(&self.server).as_ref().expect("it runs").volume().clone()
    }

    /// A way to send requests to the server that runs now.
    pub fn raw(&self, session: Option<SessionId>) -> Raw {
        Raw { server: lock(&self.server).clone().expect("it runs"), session }
    }

    /// Whether the server knows that a client has a file open.
    pub fn has_open(&self, ino: Ino) -> bool {
        lock(&self.server).as_ref().expect("it runs").has_open(ino)
    }

    /// A client.
    pub fn client(self: &Arc<Self>, name: &str) -> Arc<FileSystem> {
        self.wired_client(name).0
    }

    /// A client with its connection.
    pub fn wired_client(self: &Arc<Self>, name: &str) -> (Arc<FileSystem>, Arc<Wire>) {
        let wire = Arc::new(Wire {
            cluster: self.clone(),
            cut: AtomicBool::new(false),
            refused: AtomicU16::new(0),
            unanswered: AtomicU16::new(0),
            invalid: AtomicU16::new(0),
            full: AtomicBool::new(false),
            held: AtomicU16::new(0),
            waiting: AtomicU64::new(0),
            session: AtomicU64::new(0),
            client: Mutex::new(Weak::new()),
            asked: Mutex::default(),
        });
        let port: Arc<dyn Port> = Arc::new(Remote(Link::new(&wire)));
        let session: Arc<dyn Session> = Arc::new(Remote(Link::new(&wire)));
        let entered = session.enter(VERSION, &Entry { name: name.into(), ..Entry::default() }).unwrap();
        wire.session.store(entered.welcome.session.0, Ordering::SeqCst);
        let disks = lock(&self.lab).disks.clone();
        let cluster = self.clone();
        let find = Box::new(move |member: &fs::label::Member| {
            if lock(&cluster.hidden).contains(&member.id.0) {
                return Err(fs::Error::Unavailable("it is hidden".into()));
            }
            Ok(disks[usize::from(member.id.0)].clone() as Arc<dyn volume::target::Target>)
        });
        assert!(Label::from_json(&entered.welcome.label).is_ok());
        let fs = FileSystem::connect(
            Server { port, session, entered, find, ending: Arc::default() },
            name,
            OpenOptions::default(),
        )
        .unwrap();
        *lock(&wire.client) = Arc::downgrade(&fs);
        (fs, wire)
    }

    /// Waits until there are this many clients.
    pub fn until_clients(self: &Arc<Self>, count: usize) {
        let cluster = self.clone();
        super::within(300, move || {
            while lock(&cluster.server).as_ref().is_none_or(|server| server.clients().len() != count) {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
    }
}

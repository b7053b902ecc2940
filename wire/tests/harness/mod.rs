//! A service for tests, and servers and clients of it.
#![allow(dead_code)]

use std::future::pending;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot, watch};
use wire::frame::FrameLimits;
use wire::hello::{HELLO_BYTES, Hello};
use wire::{
    Address, Client, ClientOptions, Connect, Connecting, Halves, Peer, Reply, Request, Role, Server, ServerOptions,
    Service, TcpConnect,
};

/// Longer than any test takes.
pub const DEADLINE: Duration = Duration::from_secs(60);

pub struct Methods {
    pub echo: u16,
    pub wait: u16,
    pub fail: u16,
    pub panic: u16,
    pub push_back: u16,
    /// Returns as many items as the body says (u32), each with its number.
    pub count: u16,
    /// Returns the number of the connection.
    pub peer: u16,
}

pub const METHODS: Methods = Methods { echo: 0, wait: 1, fail: 2, panic: 3, push_back: 4, count: 5, peer: 6 };

pub struct Echo {
    pub peers: Mutex<Vec<Arc<Peer>>>,
    pub left: AtomicUsize,
    /// Calls of `wait` that are running, and permits for them to end.
    pub waiting: AtomicUsize,
    pub go: Semaphore,
    /// Number of items sent.
    pub sent: AtomicUsize,
    pub called: AtomicUsize,
}

impl Default for Echo {
    fn default() -> Self {
        Self {
            peers: Mutex::default(),
            left: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            go: Semaphore::new(0),
            sent: AtomicUsize::new(0),
            called: AtomicUsize::new(0),
        }
    }
}

struct Count<'a>(&'a AtomicUsize);

impl Drop for Count<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Service for Echo {
    async fn call(&self, request: Request) -> Reply {
        self.called.fetch_add(1, Ordering::SeqCst);
        match request.method {
            1 => {
                self.waiting.fetch_add(1, Ordering::SeqCst);
                let _count = Count(&self.waiting);
                self.go.acquire().await.unwrap().forget();
                Reply::ok(request.body.to_vec())
            }
            2 => Reply::error(5, request.body.to_vec()),
            3 => panic!("a test wants this"),
            4 => {
                request.peer.push(9, &request.body, &[IoSlice::new(&request.payload)]).await.unwrap();
                Reply::default()
            }
            5 => {
                let items = request.items.unwrap();
                let count = u32::from_le_bytes(request.body[..].try_into().unwrap());
                for number in 0..count {
                    if items.send(&number.to_le_bytes(), std::slice::from_ref(&request.body)).await.is_err() {
                        break;
                    }
                    self.sent.fetch_add(1, Ordering::SeqCst);
                }
                Reply::ok(b"end".to_vec())
            }
            6 => Reply::ok(request.peer.id.to_le_bytes().to_vec()),
            _ => Reply::ok(request.body.to_vec()).with_payload(request.payload),
        }
    }

    /// For `wait`, one mebibyte per byte of the request.
    fn reply_bytes(&self, request: &Request) -> u64 {
        if request.method == METHODS.wait { (request.body.len() as u64) << 20 } else { 0 }
    }

    fn connected(&self, peer: &Arc<Peer>) -> Result<(), String> {
        if peer.credentials == "wrong" {
            return Err("unknown credentials".into());
        }
        self.peers.lock().unwrap().push(peer.clone());
        Ok(())
    }

    fn disconnected(&self, _: &Arc<Peer>) {
        self.left.fetch_add(1, Ordering::SeqCst);
    }
}

/// A server on loopback, which runs until the test ends.
pub async fn serve(options: ServerOptions) -> (Address, Arc<Echo>, Server<Echo>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().into();
    let service = Arc::new(Echo::default());
    let server = Server::new(service.clone(), options);
    tokio::spawn({
        let server = server.clone();
        async move { server.serve(listener, pending()).await }
    });
    (address, service, server)
}

pub fn client(address: &Address, options: ClientOptions) -> Client {
    Client::new(Handle::current(), address.clone(), options)
}

pub fn client_of(address: &Address, times: (Duration, Duration)) -> Client {
    client(address, ClientOptions { ping_after: times.0, dead_after: times.1, ..Default::default() })
}

/// TCP connections over a link that loses all packets until it is repaired.
#[derive(Clone)]
pub struct Cut(Arc<watch::Sender<bool>>);

impl Default for Cut {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Cut {
    pub fn heal(&self) {
        self.0.send_replace(true);
    }
}

impl Connect for Cut {
    fn connect<'a>(&'a self, address: &'a Address) -> Connecting<'a> {
        Box::pin(async move {
            let _ = self.0.subscribe().wait_for(|healed| *healed).await;
            TcpConnect.connect(address).await
        })
    }
}

/// Connections in memory, with buffers too small for whole frames.
struct Memory(Server<Echo>);

impl Connect for Memory {
    fn connect<'a>(&'a self, _: &'a Address) -> Connecting<'a> {
        Box::pin(async move {
            let (near, far) = tokio::io::duplex(8192);
            let server = self.0.clone();
            tokio::spawn(async move { server.serve_stream(Halves::split(far), "memory".into()).await });
            Ok(Halves::split(near))
        })
    }
}

pub fn memory(server: ServerOptions, client: ClientOptions) -> (Client, Arc<Echo>, Server<Echo>) {
    let service = Arc::new(Echo::default());
    let server = Server::new(service.clone(), server);
    let options = ClientOptions { connect: Arc::new(Memory(server.clone())), ..client };
    (Client::new(Handle::current(), "memory", options), service, server)
}

pub fn parts<'a>(parts: &[&'a [u8]]) -> Vec<IoSlice<'a>> {
    parts.iter().map(|part| IoSlice::new(part)).collect()
}

pub async fn until(condition: impl Fn() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(std::time::Instant::now() < end, "it does not happen");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub fn hello(versions: (u16, u16)) -> Hello {
    Hello {
        versions,
        features: 0,
        role: Role::CLIENT,
        refused: false,
        limits: FrameLimits::default(),
        client: 1,
        text: Vec::new(),
    }
}

/// A connection after its first messages.
pub async fn raw(address: &Address) -> TcpStream {
    let mut stream = TcpStream::connect(address.as_str()).await.unwrap();
    stream.write_all(&hello((1, 1)).encode()).await.unwrap();
    let mut answer = [0; HELLO_BYTES];
    stream.read_exact(&mut answer).await.unwrap();
    Hello::decode(&answer).unwrap();
    stream
}

/// Everything that arrives until the connection ends, however it ends.
pub async fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut bytes)).await;
    let read: io::Result<usize> = read.expect("the connection is closed");
    drop(read);
    bytes
}

/// A server that exchanges the first messages and then reads nothing; reports when the client has
/// closed.
pub async fn slow_reader() -> (Address, oneshot::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().into();
    let (sender, dropped) = oneshot::channel();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut theirs = [0; HELLO_BYTES];
        stream.read_exact(&mut theirs).await.unwrap();
        stream.write_all(&hello((1, 1)).encode()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        rest(&mut stream).await;
        let _ = sender.send(());
    });
    (address, dropped)
}

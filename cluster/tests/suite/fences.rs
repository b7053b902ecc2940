//! A store that was restarted does not accept work of sessions that ended before.

use cluster::capability::{CLOCK_TOLERANCE, Capability, Fence, FenceMessage, Rights};
use cluster::{ClusterKey, Identity, Members, Store, make_identities};
use fs::Places;
use plan::{SessionId, SetId, TargetId};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use wire::{Client, ClientOptions, Error, Server, ServerOptions};

const WRITE: u16 = 1;
const FENCE: u16 = 33;
const REFUSED: u16 = 3;
const VOLUME: [u8; 16] = [9; 16];
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A store as a process would run it.
struct Running {
    client: Client,
    key: Arc<ClusterKey>,
    stop: oneshot::Sender<()>,
}

impl Running {
    fn start(disk: &Path, identity: &Identity) -> Self {
        let begun = Instant::now();
        let store = loop {
            // The store before it may not have let go of the disk yet.
            match Store::open(&[PathBuf::from(disk)]) {
                Ok(store) => break store,
                Err(why) => assert!(begun.elapsed() < TEST_TIMEOUT, "{why}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let key = identity.cluster_key().unwrap();
        let store = store.guarded_by(key.clone(), CLOCK_TOLERANCE);
        let options = ServerOptions { tls: Some(identity.server().unwrap()), ..ServerOptions::default() };
        let server = Server::new(Arc::new(store), options);
        let listener = cluster::runtime().block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (stop, stopped) = oneshot::channel();
        cluster::runtime().spawn(async move {
            server.serve(listener, async { _ = stopped.await }).await;
        });
        let options = ClientOptions { tls: Some(identity.client().unwrap()), ..ClientOptions::default() };
        let client = Client::new(cluster::runtime().handle().clone(), address.as_str(), options);
        Self { client, key, stop }
    }

    /// Writes in a session at an offset.
    fn write(&self, session: u64, offset: u64, timeout: Duration) -> Result<(), Error> {
        let session = SessionId(session);
        let capability =
            Capability { volume: VOLUME, set: SetId(3), rights: Rights::Write, session, expires_ms: u64::MAX };
        let token = self.key.sign(&capability);
        // As a client encodes it: target, file (chunk 0 of set 3), another name, offset, length,
        // another range, token.
        let no_range = None::<(u64, u64)>;
        let body = ("disk", (2u32, 3u64, 0u16), 0u32, offset, 0u64, no_range, token.as_bytes());
        let body = postcard::to_stdvec(&body).unwrap();
        self.client.call_blocking(WRITE, &body, &[std::io::IoSlice::new(b"data")], timeout).map(drop)
    }

    /// Tells the store which sessions below 10 live.
    fn tell(&self, live: &[u64]) {
        let all = Capability {
            volume: VOLUME,
            set: SetId(0),
            rights: Rights::Everything,
            session: SessionId::NONE,
            expires_ms: u64::MAX,
        };
        let live = live.iter().copied().map(SessionId).collect();
        let fence = Fence { volume: VOLUME, next: SessionId(10), live };
        let message = FenceMessage::encode(&self.key.sign(&all), fence);
        self.client.call_blocking(FENCE, &message, &[], TEST_TIMEOUT).unwrap();
    }
}

fn is_refused(result: &Result<(), Error>) -> bool {
    matches!(result, Err(Error::Remote { status: REFUSED, .. }))
}

#[test]
fn an_ended_session_stays_ended_when_its_store_is_restarted() {
    let path = std::env::temp_dir().join(format!("weft-fences-{}", std::process::id()));
    let (ids, disk) = (path.join("ids"), path.join("disk"));
    let members = vec![("member".to_string(), vec!["127.0.0.1".to_string()])];
    make_identities(&ids, &Members { members, operators: Vec::new() }).unwrap();
    let identity = Identity::at(&ids.join("member"));
    std::fs::create_dir_all(&disk).unwrap();
    let label = fs::label::Label::new(VOLUME, "v", "rs:4+2", 64 << 20, 5, Vec::new());
    label.write(&*fs::Directories.format(&disk).unwrap(), TargetId(0)).unwrap();
    let store = Running::start(&disk, &identity);
    store.tell(&[1, 2]);
    store.write(1, 0, TEST_TIMEOUT).unwrap();
    store.write(2, 4, TEST_TIMEOUT).unwrap();
    store.tell(&[2]);
    assert!(is_refused(&store.write(1, 8, TEST_TIMEOUT)));
    let Running { client, stop, .. } = store;
    stop.send(()).unwrap();
    drop(client);
    // The new store does not know that the session ended. Both have to wait.
    let store = Running::start(&disk, &identity);
    let soon = Duration::from_millis(300);
    for session in [1, 2] {
        assert_eq!(store.write(session, 8, soon), Err(Error::Deadline), "{session}");
    }
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| store.write(2, 8, TEST_TIMEOUT));
        store.tell(&[2]);
        waiting.join().unwrap().unwrap();
    });
    assert!(is_refused(&store.write(1, 12, TEST_TIMEOUT)));
    // A session that begins later is not known to any fence yet.
    store.write(10, 12, TEST_TIMEOUT).unwrap();
    std::fs::remove_dir_all(&path).unwrap();
}

//! Clients of several metadata servers, of which one has the volume open, over real connections.

use super::{Commands, MetaServer, Standby, Whereabouts};
use crate::{VolumeAddress, connect};
use fs::label::{Label, Member};
use fs::{FileKind, FileSystem, New, OpenOptions, ROOT, Sessions};
use meta::kv::MemoryIndex;
use plan::{Ino, TargetId};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use volume::target::{Memory, Target};
use wire::{Peer, Reply, Request, Role, Server, ServerOptions, Service};

struct Lab {
    label: Label,
    disks: Vec<Arc<Memory>>,
}

impl Lab {
    fn new() -> Self {
        let member = |number: u16| Member::new(TargetId(number), PathBuf::new());
        let label = Label::new([7; 16], "films", "rs:2+1", 6 << 20, 2, (0..3).map(member).collect());
        let lab = Self { label, disks: (0..3).map(|_| Arc::default()).collect() };
        FileSystem::create_on(&lab.label, lab.places()).unwrap();
        lab
    }

    fn places(&self) -> Vec<(TargetId, Arc<dyn Target>)> {
        let place = |(number, disk): (usize, &Arc<Memory>)| (TargetId(number as u16), disk.clone() as Arc<dyn Target>);
        self.disks.iter().enumerate().map(place).collect()
    }

    fn open(&self) -> Arc<MetaServer> {
        let options = OpenOptions { serve: true, ..OpenOptions::default() };
        let index = Box::new(MemoryIndex::default());
        let volume = FileSystem::open_on(self.label.clone(), self.places(), index, options).unwrap();
        Arc::new(MetaServer::new(
            Sessions::new(volume, Duration::from_secs(600)),
            Commands::new(|_, _, _| b"done".to_vec()),
        ))
    }
}

/// Serves at a port of its own; returns the address.
pub(super) fn serve<S: Service>(service: Arc<S>) -> String {
    let listener = crate::runtime().block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = Server::new(service, ServerOptions { role: Role::META, ..ServerOptions::default() });
    crate::runtime().spawn(async move { server.serve(listener, std::future::pending()).await });
    address
}

/// An address where nothing listens.
fn nowhere() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

fn make(fs: &FileSystem, name: &str) -> fs::Result<Ino> {
    let new = New { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, device: 0, link: Vec::new() };
    Ok(fs.make(ROOT, name.as_bytes(), &new)?.ino)
}

/// The client knows a server that is down and a standby. It finds the one that has the volume, and
/// goes on with the next one, while it makes files. Each is there once.
#[test]
fn a_client_finds_the_server_that_has_the_volume_and_follows_it() {
    let lab = Lab::new();
    let second_standby = Standby::new(Whereabouts::default());
    let second = serve(second_standby.service());
    let holder = lab.open();
    let first = serve(holder.service());
    let servers = vec![first.clone(), second.clone()];
    holder.set_servers(servers.clone());
    second_standby.set(Whereabouts { holder: Some(first), servers: servers.clone() });
    let address = VolumeAddress { servers: vec![nowhere(), second.clone()], volume: "films".into() };
    let client = connect(&address, "client", OpenOptions::default()).unwrap();
    assert_eq!(crate::command(&address, b"do").unwrap(), b"done");
    let (stop, made) = (AtomicBool::new(false), AtomicU32::new(0));
    let until = |count: u32| {
        while made.load(Ordering::SeqCst) < count {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let next = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                let number = made.load(Ordering::SeqCst);
                make(&client, &format!("file{number}")).unwrap();
                made.store(number + 1, Ordering::SeqCst);
            }
        });
        until(20);
        // It hands the volume over. For a while, no server knows the holder.
        let unknown = Whereabouts { holder: None, servers };
        holder.retire(unknown.clone());
        second_standby.set(unknown.clone());
        holder.close().unwrap();
        let next = lab.open();
        let standby = Standby::new(unknown.clone());
        let third = serve(standby.service());
        standby.hold(Some(next.clone()));
        second_standby.set(Whereabouts { holder: Some(third), ..unknown });
        until(made.load(Ordering::SeqCst) + 20);
        stop.store(true, Ordering::SeqCst);
        next
    });
    let listed = next.volume().list(ROOT, 0, 10_000).unwrap();
    let made = made.load(Ordering::SeqCst) as usize;
    assert_eq!(listed.iter().filter(|entry| entry.name.starts_with(b"file")).count(), made);
    client.sync_all().unwrap();
    client.close_volume().unwrap();
}

/// A server that has other volumes. It counts the clients that it refuses.
#[derive(Default)]
struct Other(AtomicU32);

impl Service for Other {
    async fn call(&self, _request: Request) -> Reply {
        Reply::default()
    }

    fn connected(&self, _peer: &Arc<Peer>) -> Result<(), String> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Err("it has the volume mails, not \"films\"".into())
    }
}

/// One of the servers that a client knows has other volumes. While the right one has not the volume
/// for a moment, the client asks that one, too; that is no error to anybody.
#[test]
fn a_client_waits_also_where_a_server_has_other_volumes() {
    let lab = Lab::new();
    let (standby, other) = (Standby::new(Whereabouts::default()), Arc::new(Other::default()));
    let servers = vec![serve(standby.service()), serve(other.clone())];
    let holder = lab.open();
    standby.hold(Some(holder.clone()));
    let address = VolumeAddress { servers: servers.clone(), volume: "films".into() };
    let client = connect(&address, "client", OpenOptions::default()).unwrap();
    make(&client, "before").unwrap();
    client.sync_all().unwrap();
    let refused = other.0.load(Ordering::SeqCst);
    let next = std::thread::scope(|scope| {
        holder.retire(Whereabouts::default());
        standby.hold(None);
        let made = scope.spawn(|| make(&client, "meanwhile").and_then(|_| client.sync_all()));
        while other.0.load(Ordering::SeqCst) < refused + 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        holder.close().unwrap();
        let next = lab.open();
        standby.hold(Some(next.clone()));
        made.join().unwrap().unwrap();
        next
    });
    assert_eq!(next.volume().list(ROOT, 0, 100).unwrap().iter().filter(|it| it.name.starts_with(b"mean")).count(), 1);
    client.close_volume().unwrap();
}

/// A server that understands none of these requests.
struct Stranger(u16);

impl Service for Stranger {
    async fn call(&self, _request: Request) -> Reply {
        Reply::error(self.0, Vec::new())
    }
}

/// Another program got the port of a server that is down. With several servers, that is no error.
#[test]
fn a_client_passes_over_servers_that_do_not_understand_it() {
    let lab = Lab::new();
    let holder = lab.open();
    let right = serve(holder.service());
    for status in [super::NO_SESSION, super::NOT_UNDERSTOOD, wire::STATUS_PANICKED] {
        let servers = vec![serve(Arc::new(Stranger(status))), right.clone()];
        let address = VolumeAddress { servers, volume: "films".into() };
        let client = connect(&address, "client", OpenOptions::default()).unwrap();
        make(&client, &format!("file{status}")).unwrap();
        assert_eq!(crate::command(&address, b"do").unwrap(), b"done");
        client.close_volume().unwrap();
    }
    let only = VolumeAddress { servers: vec![serve(Arc::new(Stranger(9)))], volume: "films".into() };
    let error = connect(&only, "client", OpenOptions::default()).err().unwrap().to_string();
    assert!(error.contains("is not a metadata server") && error.contains("(error 9)"), "{error}");
}

/// Two servers that each believe the other one to have the volume, and none that has it.
#[test]
fn a_client_that_is_sent_round_in_circles_says_so() {
    let standbys = [Standby::new(Whereabouts::default()), Standby::new(Whereabouts::default())];
    let servers: Vec<String> = standbys.iter().map(|standby| serve(standby.service())).collect();
    for (standby, other) in standbys.iter().zip(servers.iter().rev()) {
        standby.set(Whereabouts { holder: Some(other.clone()), servers: servers.clone() });
    }
    let address = VolumeAddress { servers, volume: "films".into() };
    let error = connect(&address, "client", OpenOptions::default()).err().unwrap().to_string();
    assert!(error.contains("no server has the volume open"), "{error}");
}

/// What a server tells is not believed without bounds.
#[test]
fn addresses_that_a_server_tells_are_bounded_and_valid() {
    let make = |address: &str, _: bool| {
        wire::Client::new(crate::runtime().handle().clone(), address, wire::ClientOptions::default())
    };
    let servers = super::servers::Servers::new(&["a:1".into()], Box::new(make));
    servers.learn(&["a:1".into(), "no address at all".into(), String::new(), "b".into(), "b:7600".into()]);
    assert_eq!(servers.count(), 2);
    servers.learn(&(0..1000).map(|port| format!("c:{port}")).collect::<Vec<_>>());
    servers.learn(&(1000..2000).map(|port| format!("c:{port}")).collect::<Vec<_>>());
    assert!(servers.count() <= crate::address::MAX_SERVERS);
}

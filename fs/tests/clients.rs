//! Several clients of one volume, without a network: what they ask goes through the encoding of messages, and their data straight to the targets.

mod lab;

use fs::label::Label;
use fs::{Answer, FileSystem, OpenOptions, ROOT, Recall, Server, Sessions};
use lab::{Lab, content, make, pattern};
use meta::port::{Call, Port, Remote, Session};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(5);

/// A server that can die and come back, on the disks of a lab.
struct Cluster {
    lab: Mutex<Lab>,
    server: Mutex<Option<Arc<Sessions>>>,
}

/// A client's way to the server.
struct Wire {
    cluster: Arc<Cluster>,
    session: AtomicU64,
    client: Mutex<Weak<FileSystem>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Link(Arc<Wire>);

impl Call for Link {
    fn call(&self, operation: u16, arguments: &[u8]) -> meta::Result<Vec<u8>> {
        loop {
            let Some(server) = lock(&self.0.cluster.server).clone() else {
                std::thread::sleep(Duration::from_millis(10));
                continue;
            };
            let wire = Arc::downgrade(&self.0);
            let recall: Recall = Arc::new(move |inos: &[u64]| {
                let (inos, wire) = (inos.to_vec(), wire.clone());
                std::thread::spawn(move || {
                    let client = wire.upgrade().and_then(|wire| lock(&wire.client).upgrade());
                    client.inspect(|client| client.recall(&inos));
                });
            });
            let session = Some(self.0.session.load(Ordering::SeqCst)).filter(|&session| session != 0);
            match server.answer(session, &recall, operation, arguments) {
                Answer::Done(answer) => return Ok(answer),
                Answer::Unknown => panic!("operation {operation} is not known"),
                Answer::NoSession => {
                    let client = lock(&self.0.client).upgrade().expect("only an open client has a session");
                    client.take_up(&Remote(Link(self.0.clone())))?;
                }
            }
        }
    }
}

impl Cluster {
    fn new(code: &str, targets: usize) -> Arc<Self> {
        let cluster = Arc::new(Self { lab: Mutex::new(Lab::new(code, targets)), server: Mutex::default() });
        cluster.start();
        cluster
    }

    fn start(&self) {
        let fs = lock(&self.lab).open_to_serve();
        let sessions = Sessions::new(fs, LEASE);
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

    /// The server's process dies. What it knows of its clients is gone.
    fn kill(&self) {
        let sessions = lock(&self.server).take().expect("it runs");
        lock(&self.lab).kill(sessions.volume().clone());
    }

    fn volume(&self) -> Arc<FileSystem> {
        lock(&self.server).as_ref().expect("it runs").volume().clone()
    }

    fn client(self: &Arc<Self>, name: &str) -> Arc<FileSystem> {
        let wire =
            Arc::new(Wire { cluster: self.clone(), session: AtomicU64::new(0), client: Mutex::new(Weak::new()) });
        let port: Arc<dyn Port> = Arc::new(Remote(Link(wire.clone())));
        let session: Arc<dyn Session> = Arc::new(Remote(Link(wire.clone())));
        let welcome = session.begin(None, name.into(), Vec::new()).unwrap();
        wire.session.store(welcome.session, Ordering::SeqCst);
        let disks = lock(&self.lab).disks.clone();
        let find = Box::new(move |member: &fs::label::Member| {
            Ok(disks[usize::from(member.id.0)].clone() as Arc<dyn volume::target::Target>)
        });
        assert!(Label::from_json(&welcome.label).is_ok());
        let fs = FileSystem::connect(Server { port, session, welcome, find }, name, OpenOptions::default()).unwrap();
        *lock(&wire.client) = Arc::downgrade(&fs);
        fs
    }
}

#[test]
fn who_opens_a_file_sees_what_another_client_wrote_before() {
    let cluster = Cluster::new("rs:4+2", 6);
    let (a, b) = (cluster.client("a"), cluster.client("b"));
    let ino = make(&a, "file");
    for length in [10, 3000, 100_000, 9_000_000] {
        a.open(ino, true).unwrap();
        let bytes = pattern(length, length as usize);
        a.write(ino, 0, &bytes).unwrap();
        // Still open at the first one, and not synced.
        b.open(ino, false).unwrap();
        assert!(content(&b, ino).unwrap() == bytes, "{length}");
        b.close(ino);
        a.close(ino);
        assert_eq!(b.lookup(ROOT, b"file").unwrap().size, length);
    }
    b.unlink(ROOT, b"file").unwrap();
    assert!(a.lookup(ROOT, b"file").is_err());
    a.close_volume().unwrap();
    b.close_volume().unwrap();
    lab::assert_sound(&cluster.volume());
}

#[test]
fn appends_of_many_clients_lose_nothing() {
    let cluster = Cluster::new("rs:2+1", 4);
    let clients: Vec<_> = (0..4).map(|n| cluster.client(&format!("c{n}"))).collect();
    let ino = make(&clients[0], "log");
    std::thread::scope(|scope| {
        for (n, client) in clients.iter().enumerate() {
            scope.spawn(move || {
                client.open(ino, true).unwrap();
                for record in 0..50u8 {
                    client.append(ino, &[n as u8, record, 7]).unwrap();
                }
                client.close(ino);
            });
        }
    });
    clients[0].open(ino, false).unwrap();
    let log = content(&clients[0], ino).unwrap();
    let mut seen: Vec<[u8; 3]> = log.chunks(3).map(|record| record.try_into().unwrap()).collect();
    assert_eq!(seen.len(), 200);
    for n in 0..4 {
        let of: Vec<u8> = seen.iter().filter(|record| record[0] == n).map(|record| record[1]).collect();
        assert_eq!(of, (0..50).collect::<Vec<u8>>(), "the records of one client are in order");
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 200);
}

#[test]
fn clients_write_their_parts_of_one_file_at_the_same_time() {
    const PART: usize = 700_001;
    let cluster = Cluster::new("rs:4+2", 7);
    let clients: Vec<_> = (0..3).map(|n| cluster.client(&format!("c{n}"))).collect();
    let ino = make(&clients[0], "checkpoint");
    std::thread::scope(|scope| {
        for (n, client) in clients.iter().enumerate() {
            scope.spawn(move || {
                client.open(ino, true).unwrap();
                for (at, piece) in pattern(n as u64, PART).chunks(50_000).enumerate() {
                    client.write(ino, (n * PART + at * 50_000) as u64, piece).unwrap();
                }
                client.sync(ino).unwrap();
                client.close(ino);
            });
        }
    });
    clients[1].open(ino, false).unwrap();
    let all: Vec<u8> = (0..3).flat_map(|n| pattern(n, PART)).collect();
    assert!(content(&clients[1], ino).unwrap() == all);
    clients.iter().for_each(|client| client.close_volume().unwrap());
    lab::assert_sound(&cluster.volume());
}

#[test]
fn a_file_that_is_removed_stays_for_those_who_have_it_open_anywhere() {
    let cluster = Cluster::new("rs:2+1", 4);
    let (a, b) = (cluster.client("a"), cluster.client("b"));
    let ino = make(&a, "gone");
    a.open(ino, true).unwrap();
    let bytes = pattern(1, 200_000);
    a.write(ino, 0, &bytes).unwrap();
    a.sync(ino).unwrap();
    b.unlink(ROOT, b"gone").unwrap();
    assert!(content(&a, ino).unwrap() == bytes);
    a.write(ino, 0, b"more").unwrap();
    a.sync(ino).unwrap();
    assert_eq!(&content(&a, ino).unwrap()[..4], b"more");
    a.close(ino);
    lab::within(20, move || {
        while cluster.volume().attributes(ino).is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
}

#[test]
fn clients_wait_for_a_server_that_comes_back_and_go_on() {
    let cluster = Cluster::new("rs:4+2", 6);
    let client = cluster.client("a");
    let ino = make(&client, "file");
    client.open(ino, true).unwrap();
    let bytes = pattern(5, 12_000_000);
    // Stripes have left for the targets, and no transaction names them.
    client.write(ino, 0, &bytes).unwrap();
    client.sync_all().unwrap();
    client.write(ino, 0, &bytes[6_000_000..]).unwrap();
    cluster.kill();
    let sync = std::thread::spawn({
        let client = client.clone();
        move || client.sync(ino)
    });
    std::thread::sleep(Duration::from_millis(200));
    cluster.start();
    sync.join().unwrap().unwrap();
    // Past the time in which sessions may be taken up: what nobody has is taken away.
    std::thread::sleep(LEASE + Duration::from_secs(1));
    let expected = [&bytes[6_000_000..], &bytes[6_000_000..]].concat();
    assert!(content(&client, ino).unwrap() == expected);
    client.write(ino, 3, b"more").unwrap();
    client.close(ino);
    client.close_volume().unwrap();
    let again = cluster.client("b");
    assert_eq!(&content(&again, ino).unwrap()[3..7], b"more");
    again.close_volume().unwrap();
    lab::assert_sound(&cluster.volume());
}

#[test]
fn the_room_that_a_dead_client_wrote_to_is_given_back() {
    let cluster = Cluster::new("rs:2+1", 4);
    let client = cluster.client("a");
    let ino = make(&client, "file");
    client.open(ino, true).unwrap();
    client.write(ino, 0, &pattern(1, 100_000)).unwrap();
    client.sync(ino).unwrap();
    let other = make(&client, "unlinked");
    client.open(other, true).unwrap();
    client.unlink(ROOT, b"unlinked").unwrap();
    client.write(ino, 0, &pattern(2, 9_000_000)).unwrap();
    client.abandon();
    lab::within(30, {
        let cluster = cluster.clone();
        move || {
            while !lock(&cluster.server).as_ref().unwrap().clients().is_empty()
                || cluster.volume().attributes(other).is_ok()
            {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    });
    let again = cluster.client("b");
    assert!(content(&again, ino).unwrap() == pattern(1, 100_000));
    again.close_volume().unwrap();
    lab::assert_sound(&cluster.volume());
    let chunks = lock(&cluster.lab).chunks();
    assert!(chunks.len() <= 3, "only the set with what was synced is left: {chunks:?}");
}

//! Clients of a metadata server that is killed and comes back, without a network.

use crate::lab;
use crate::lab::cluster::{Cluster, LONG_LEASE, Wire, lock};
use crate::lab::{content, make, pattern};
use fs::{FileKind, FileSystem, ROOT, SetAttributes};
use meta::{AttributeChange, ContentEdit, Rename, RenameMode, Resize, Time};
use plan::SessionId;
use session::port::{ENTER, Port, Remote};
use session::transport::Call;
use session::transport::{Answer, Recall, Request};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use volume::target::Faults;

/// The operation `seal_set` of `session::port`.
const SEAL_SET: u16 = 22;

/// Clients that commit the same file when the server restarts reclaim their sessions without
/// waiting for each other.
#[test]
fn clients_that_take_their_sessions_up_in_a_commit_do_not_wait_for_each_other() {
    let cluster = Cluster::with_lease("rs:2+1", 4, LONG_LEASE);
    let clients = [cluster.client("a"), cluster.client("b")];
    let ino = make(&clients[0], "file");
    let stop = AtomicBool::new(false);
    // Commits of each client.
    let done = [const { AtomicU64::new(0) }; 2];
    let both_go_on = || {
        let before = done.each_ref().map(|done| done.load(Ordering::SeqCst));
        // The first one may have been answered before.
        while done.iter().zip(before).any(|(done, before)| done.load(Ordering::SeqCst) < before + 2) {
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let longest = std::thread::scope(|scope| {
        let writers: Vec<_> = (0u64..)
            .zip(&clients)
            .map(|(n, client)| {
                scope.spawn({
                    let (stop, done) = (&stop, &done[n as usize]);
                    move || {
                        client.open(ino, true).unwrap();
                        let (mut longest, mut round) = (Duration::ZERO, 0);
                        while !stop.load(Ordering::Relaxed) {
                            let begun = Instant::now();
                            // A server that dies here answers requests in progress with disk
                            // errors.
                            let commit = |client: &FileSystem| {
                                client.write(ino, (2 * round + n) * 50_000, &[n as u8 + 1; 50_000])?;
                                client.sync(ino)
                            };
                            while commit(client).is_err() {}
                            done.fetch_add(1, Ordering::SeqCst);
                            (longest, round) = (longest.max(begun.elapsed()), (round + 1) % 20);
                        }
                        client.close(ino);
                        longest
                    }
                })
            })
            .collect();
        for _ in 0..3 {
            both_go_on();
            cluster.kill();
            cluster.start();
        }
        both_go_on();
        // Until both have written all of their places.
        while done.iter().any(|done| done.load(Ordering::SeqCst) < 20) {
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).max().unwrap()
    });
    assert!(longest < LONG_LEASE / 2, "{longest:?}");
    clients[0].open(ino, false).unwrap();
    let found = content(&clients[0], ino).unwrap();
    assert!(found.chunks(50_000).zip([1, 2].into_iter().cycle()).all(|(part, n)| part.iter().all(|&byte| byte == n)));
}

#[test]
fn clients_wait_for_a_server_that_comes_back_and_go_on() {
    let cluster = Cluster::with_lease("rs:4+2", 6, LONG_LEASE);
    let client = cluster.client("a");
    let ino = make(&client, "file");
    client.open(ino, true).unwrap();
    let bytes = pattern(5, 12_000_000);
    // Stripes are on the targets, and no transaction names them.
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
    // All earlier clients have reconnected, so the grace period is over.
    let other = make(&client, "other");
    let begun = Instant::now();
    client.append(other, b"more").unwrap();
    assert!(begun.elapsed() < LONG_LEASE / 2, "{:?}", begun.elapsed());
    // After the grace period: what no session holds is freed.
    std::thread::sleep(Duration::from_secs(6));
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

/// The end of earlier append reservations no longer counts for a file that was truncated since.
#[test]
fn a_restarted_server_has_appends_go_behind_a_file_that_was_cut_off() {
    let cluster = Cluster::new("rs:4+2", 6);
    let (client, other) = (cluster.client("a"), cluster.client("b"));
    let (own, foreign) = (make(&client, "own"), make(&client, "foreign"));
    for ino in [own, foreign] {
        client.open(ino, true).unwrap();
        client.append(ino, &pattern(1, 1_000_000)).unwrap();
        client.sync(ino).unwrap();
    }
    client.set_attributes(own, SetAttributes { size: Some(10), ..SetAttributes::default() }).unwrap();
    other.open(foreign, true).unwrap();
    other.set_attributes(foreign, SetAttributes { size: Some(10), ..SetAttributes::default() }).unwrap();
    client.sync(own).unwrap();
    other.sync(foreign).unwrap();
    cluster.kill();
    cluster.start();
    for ino in [own, foreign] {
        client.append(ino, b"behind").unwrap();
        client.sync(ino).unwrap();
        other.open(ino, false).unwrap();
        let bytes = content(&other, ino).unwrap();
        assert!(bytes.len() == 16 && bytes.ends_with(b"behind"), "{} bytes", bytes.len());
    }
    client.close_volume().unwrap();
    other.close_volume().unwrap();
}

/// A set that was given up does not belong to its old session again after a restart of the server.
#[test]
fn a_session_that_ended_before_a_restart_of_the_server_has_no_sets() {
    assert!((0..20).any(|_| had_given_up_sets()), "each time, nothing was in a set");
}

/// Does it once. On a slow machine nothing may be in a set yet: the client has it all and commits
/// it, and the result is false.
fn had_given_up_sets() -> bool {
    let cluster = Cluster::new("rs:4+2", 6);
    let (keeper, keepers_wire) = cluster.wired_client("keeps the server waiting for sessions of before");
    let (client, wire, ino) = loop {
        let (client, wire) = cluster.wired_client("a");
        let ino = make(&client, &format!("file {:?}", std::time::Instant::now()));
        client.open(ino, true).unwrap();
        client.write(ino, 0, &pattern(1, 9_000_000)).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        wire.cut.store(true, Ordering::SeqCst);
        cluster.until_clients(1);
        if client.uncommitted().1 > 0 {
            break (client, wire, ino);
        }
        // The machine is so slow that a commit in the background came first.
        wire.cut.store(false, Ordering::SeqCst);
        client.close(ino);
        client.close_volume().unwrap();
    };
    keepers_wire.cut.store(true, Ordering::SeqCst);
    cluster.kill();
    cluster.start();
    wire.cut.store(false, Ordering::SeqCst);
    let synced = client.sync(ino).is_ok();
    keepers_wire.cut.store(false, Ordering::SeqCst);
    assert!(!synced || content(&keeper, ino).unwrap() == pattern(1, 9_000_000));
    client.write(ino, 0, &pattern(2, 9_000_000)).unwrap();
    client.sync(ino).unwrap();
    assert!(content(&client, ino).unwrap() == pattern(2, 9_000_000));
    client.close(ino);
    assert_eq!(client.close_volume().is_ok(), synced);
    keeper.close_volume().unwrap();
    lab::assert_sound(&cluster.volume());
    !synced
}

/// Sends a request in a client's session, always as the same request.
struct Asked<'a> {
    wire: &'a Wire,
    request: Request,
}

impl Call for Asked<'_> {
    fn call(&self, operation: u16, arguments: &[u8]) -> meta::Result<Vec<u8>> {
        let server = lock(&self.wire.cluster.server).clone().expect("it runs");
        let session = Some(SessionId(self.wire.session.load(Ordering::SeqCst)));
        let recall: Recall = Arc::new(|_: &[session::Question]| ());
        loop {
            match server
                .answer_request(&session::caller::Caller::trusted(session), &recall, operation, arguments, self.request)
                .0
            {
                Answer::Done(answer) => return Ok(answer),
                // The session is being reclaimed.
                Answer::NoSession => std::thread::sleep(Duration::from_millis(20)),
                Answer::Unknown => panic!("operation {operation} is not known"),
            }
        }
    }
}

/// The server is killed before its answer arrives, and the request is repeated when it is back:
/// what others did meanwhile stays, and the answer is that of the first time.
#[test]
fn a_change_of_content_that_is_asked_for_again_happens_once() {
    let cluster = Cluster::new("rs:4+2", 6);
    let ((a, wire), b) = (cluster.wired_client("a"), cluster.client("b"));
    let ino = make(&a, "file");
    a.open(ino, true).unwrap();
    a.write(ino, 0, &pattern(1, 100)).unwrap();
    a.sync(ino).unwrap();
    a.close(ino);
    let cut = ContentEdit { ranges: Vec::new(), resize: Resize::To(10), modified: None };
    let ask = |number: u64, again: bool| {
        let request = Request { number, answered: 0, again };
        Remote(Asked { wire: &wire, request }).change_content(ino, &cut).unwrap().0.size
    };
    assert_eq!(ask(1 << 40, false), 10);
    b.open(ino, true).unwrap();
    b.append(ino, &pattern(2, 50)).unwrap();
    b.sync(ino).unwrap();
    b.close(ino);
    cluster.kill();
    cluster.start();
    cluster.until_clients(2);
    assert_eq!(ask(1 << 40, true), 10);
    let expected = [&pattern(1, 100)[..10], &pattern(2, 50)].concat();
    assert!(content(&b, ino).unwrap() == expected);
    // A request that was sent and did not arrive.
    assert_eq!(ask((1 << 40) + 1, true), 10);
    a.close_volume().unwrap();
    b.close_volume().unwrap();
}

/// A repeated request gets its first answer, whatever others did since, and at another server, too.
#[test]
fn what_is_asked_for_again_at_the_next_server_has_the_answer_of_the_first() {
    let cluster = Cluster::new("rs:2+1", 4);
    let ((a, wire), b) = (cluster.wired_client("a"), cluster.client("b"));
    let now = Time { seconds: 7, nanoseconds: 0 };
    let all = |again: bool| {
        let number = Cell::new(1 << 40);
        let ask = || {
            number.set(number.get() + 1);
            Remote(Asked { wire: &wire, request: Request { number: number.get(), answered: 0, again } })
        };
        let file = ask().make(ROOT, b"made", &lab::new(FileKind::File), now).unwrap().0;
        let directory = ask().make(ROOT, b"directory", &lab::new(FileKind::Directory), now).unwrap().0;
        let linked = ask().link(file.ino, ROOT, b"link", now).unwrap().0;
        let mode = AttributeChange { mode: Some(0o600), ..AttributeChange::default() };
        let changed = ask().set_attributes(file.ino, mode, now).unwrap().0;
        ask().set_attribute(file.ino, b"user.a", b"1", Some(false), now).unwrap();
        ask().remove_attribute(file.ino, b"user.a", now).unwrap();
        let (from, to) = ((ROOT, b"made".to_vec()), (ROOT, b"moved".to_vec()));
        let rename = Rename { from, to, mode: RenameMode::Replace, replaced: None, keep: false };
        assert_eq!(ask().rename(&rename, now).unwrap().0, None);
        let unlinked = ask().unlink(ROOT, b"link", file.ino, false, now).unwrap();
        let removed = ask().remove_directory(ROOT, b"directory", directory.ino, false, now).unwrap();
        let gone = [unlinked, removed].map(|removed| (removed.ino, removed.last));
        (file, directory, linked, changed, gone)
    };
    let first = all(false);
    a.sync_all().unwrap();
    // Others use the names, and change the file.
    let others = [make(&b, "made"), make(&b, "link"), make(&b, "directory")];
    b.set_attributes(first.0.ino, SetAttributes { mode: Some(0o640), ..SetAttributes::default() }).unwrap();
    b.sync_all().unwrap();
    for _ in 0..2 {
        cluster.kill();
        cluster.start();
        assert_eq!(all(true), first);
        assert_eq!(["made", "link", "directory"].map(|name| b.lookup(ROOT, name.as_bytes()).unwrap().ino), others);
        assert_eq!(b.attributes(first.0.ino).unwrap().mode & 0o777, 0o640);
        assert_eq!(b.lookup(ROOT, b"moved").unwrap().ino, first.0.ino);
    }
    a.close_volume().unwrap();
    b.close_volume().unwrap();
}

/// After a restart, too few targets may renew the server's claim in time, and it can read nothing
/// for a moment. A client that comes back then does not take its chunk sets for lost, and what it
/// wrote to them.
#[test]
fn a_server_that_can_read_nothing_takes_no_chunk_sets_away() {
    let cluster = Cluster::new("rs:2+1", 4);
    let (client, wire) = cluster.wired_client("a");
    let ino = make(&client, "file");
    client.sync(ino).unwrap();
    client.open(ino, true).unwrap();
    let data = pattern(1, 3_000_000);
    client.write(ino, 0, &data).unwrap();
    let until = |what: &str, reached: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !reached() {
            assert!(begun.elapsed() < Duration::from_secs(120), "{what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    until("the data is in a chunk set", &|| lock(&cluster.lab).chunks().iter().any(|(_, _, bytes)| *bytes > 100_000));
    cluster.kill();
    lock(&cluster.lab).lease = Some(Duration::from_millis(300));
    *lock(&cluster.session_lease) = Duration::from_secs(600);
    // Nothing enters before the targets are silent.
    wire.cut.store(true, Ordering::SeqCst);
    cluster.start();
    lock(&cluster.lab).fault_all(lab::dead);
    let server = cluster.volume();
    until("the claim has run out", &|| server.attributes(ino).is_err());
    let before = wire.asked(ENTER);
    wire.cut.store(false, Ordering::SeqCst);
    std::thread::scope(|scope| {
        // Targets that fail are an error, too. What is lost is told once, and is not there.
        scope.spawn(|| until("all is durable", &|| client.sync(ino).is_ok()));
        until("the client tries to come back", &|| wire.asked(ENTER) > before + 1);
        lock(&cluster.lab).fault_all(Faults::default);
    });
    assert!(content(&client, ino).unwrap() == data);
    client.close(ino);
    client.close_volume().unwrap();
}

/// A client has filled chunk sets and not committed all that is in them when the server restarts.
#[test]
fn full_chunk_sets_are_reclaimed_with_what_is_not_committed() {
    let cluster = Cluster::new("rs:2+1", 4);
    let (client, wire) = cluster.wired_client("a");
    let ino = make(&client, "file");
    client.open(ino, true).unwrap();
    client.sync(ino).unwrap();
    // A set has space for 6 MiB.
    let data = pattern(1, 30_000_000);
    // Nothing is committed.
    wire.full.store(true, Ordering::SeqCst);
    client.write(ino, 0, &data).unwrap();
    let begun = Instant::now();
    while wire.asked(SEAL_SET) < 2 {
        assert!(begun.elapsed() < Duration::from_secs(120), "no set is full: {:?}", lock(&cluster.lab).chunks());
        std::thread::sleep(Duration::from_millis(5));
    }
    // Only that the sets are full is durable.
    cluster.volume().sync_all().unwrap();
    cluster.kill();
    cluster.start();
    wire.full.store(false, Ordering::SeqCst);
    client.sync(ino).unwrap();
    assert!(content(&client, ino).unwrap() == data);
    client.close(ino);
    client.close_volume().unwrap();
}

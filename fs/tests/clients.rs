//! Several clients of one volume, without a network: requests go through the encoding of messages,
//! and data straight to the targets.

mod lab;

use fs::{Allocate, Answer, FileSystem, ROOT, Recall, Request, SetAttributes};
use lab::cluster::{Cluster, LEASE, Wire, lock};
use lab::{content, make, pattern};
use meta::port::{Call, Port, Remote};
use meta::{ContentEdit, Resize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use volume::Control;
use volume::target::Faults;

#[test]
fn who_opens_a_file_sees_what_another_client_wrote_before() {
    let cluster = Cluster::new("rs:4+2", 6);
    let (a, b) = (cluster.client("a"), cluster.client("b"));
    let ino = make(&a, "file");
    for length in [10, 3000, 100_000, 9_000_000] {
        a.open(ino, true).unwrap();
        let bytes = pattern(length, length as usize);
        a.write(ino, 0, &bytes).unwrap();
        // The first client still has it open and did not sync it.
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

/// An open file like a log that another client writes: its size includes the writes of both, even
/// uncommitted ones of this client.
#[test]
fn who_has_a_file_open_sees_it_grow_and_shrink_by_others() {
    let cluster = Cluster::new("rs:2+1", 4);
    let (a, b) = (cluster.client("a"), cluster.client("b"));
    let ino = make(&a, "log");
    let appended = |client: &FileSystem, bytes: &[u8]| {
        client.open(ino, true).unwrap();
        client.append(ino, bytes).unwrap();
        client.close(ino);
    };
    let size = |client: &FileSystem| {
        let size = client.attributes(ino).unwrap().size;
        assert_eq!(client.lookup(ROOT, b"log").unwrap().size, size);
        size
    };
    a.open(ino, true).unwrap();
    assert_eq!(size(&a), 0);
    appended(&b, &[1; 5000]);
    assert_eq!(size(&a), 5000);
    assert!(content(&a, ino).unwrap() == [1; 5000]);
    // Not committed.
    a.append(ino, &[2; 5000]).unwrap();
    appended(&b, &[3; 5000]);
    assert_eq!(size(&a), 15_000);
    assert!(content(&a, ino).unwrap()[5000..] == [[2; 5000], [3; 5000]].concat());
    a.sync(ino).unwrap();
    b.set_attributes(ino, SetAttributes { size: Some(700), ..Default::default() }).unwrap();
    assert_eq!((size(&b), size(&a)), (700, 700));
    assert!(content(&a, ino).unwrap() == [1; 700]);
    a.close(ino);
}

/// A write to a file that another client truncated meanwhile does not restore its old length.
#[test]
fn a_file_that_was_cut_off_stays_so() {
    let cluster = Cluster::new("rs:2+1", 4);
    let (a, b) = (cluster.client("a"), cluster.client("b"));
    let ino = make(&a, "file");
    a.open(ino, true).unwrap();
    for (length, punched) in [(100, false), (100_000, false), (100_000, true)] {
        a.write(ino, 0, &pattern(1, length)).unwrap();
        a.sync(ino).unwrap();
        b.set_attributes(ino, SetAttributes { size: Some(0), ..Default::default() }).unwrap();
        a.write(ino, 3, b"new").unwrap();
        if punched {
            a.allocate(ino, Allocate::PunchHole, 0, 4).unwrap();
        }
        a.sync(ino).unwrap();
        let expected: &[u8] = if punched { b"\0\0\0\0ew" } else { b"\0\0\0new" };
        for client in [&a, &b] {
            assert_eq!(client.attributes(ino).unwrap().size, 6, "{length} {punched}");
            assert_eq!(content(client, ino).unwrap(), expected);
        }
    }
    a.close(ino);
}

/// Clients with uncommitted writes to the same file that get recalls at the same time do not wait
/// for each other.
#[test]
fn clients_that_commit_for_each_other_do_not_wait_for_each_other() {
    let cluster = Cluster::new("rs:2+1", 4);
    let clients = [cluster.client("a"), cluster.client("b")];
    let slowest = (0..10).map(|round| {
        let ino = make(&clients[0], &format!("log{round}"));
        // More than goes into the metadata itself.
        let both = |work: &(dyn Fn(&FileSystem) + Sync)| {
            let begun = Instant::now();
            std::thread::scope(|scope| {
                clients.iter().for_each(|client| _ = scope.spawn(|| work(client)));
            });
            begun.elapsed()
        };
        both(&|client| {
            client.open(ino, true).unwrap();
            (0..6).for_each(|_| client.append(ino, &[7; 10_000]).unwrap());
            client.close(ino);
        });
        let looked = both(&|client| {
            assert_eq!(client.lookup(ROOT, format!("log{round}").as_bytes()).unwrap().size, 120_000);
        });
        both(&|client| {
            client.open(ino, true).unwrap();
            (0..6).for_each(|_| client.append(ino, &[8; 10_000]).unwrap());
            client.close(ino);
        });
        let changed = both(&|client| {
            let time = Some(meta::SetTime::Now);
            client.set_attributes(ino, SetAttributes { modified: time, ..Default::default() }).unwrap();
            let _ = client.attributes(ino).unwrap();
            client.set_attributes(ino, SetAttributes { size: Some(50_000), ..Default::default() }).unwrap();
        });
        let [a, b] = clients.each_ref().map(|client| {
            client.open(ino, false).unwrap();
            let found = content(client, ino).unwrap();
            client.close(ino);
            found
        });
        assert!(a == b && a == [7; 50_000], "{} and {} bytes", a.len(), b.len());
        looked.max(changed)
    });
    let slowest = slowest.max().unwrap();
    assert!(slowest < LEASE / 2, "{slowest:?}");
}

/// Clients that commit the same file when the server restarts reclaim their sessions without
/// waiting for each other.
#[test]
fn clients_that_take_their_sessions_up_in_a_commit_do_not_wait_for_each_other() {
    let cluster = Cluster::new("rs:2+1", 4);
    let clients = [cluster.client("a"), cluster.client("b")];
    let ino = make(&clients[0], "file");
    let stop = AtomicBool::new(false);
    let longest = std::thread::scope(|scope| {
        let writers: Vec<_> = (0u64..)
            .zip(&clients)
            .map(|(n, client)| {
                scope.spawn({
                    let stop = &stop;
                    move || {
                        client.open(ino, true).unwrap();
                        let (mut longest, mut round) = (Duration::ZERO, 0);
                        while !stop.load(Ordering::Relaxed) {
                            let begun = Instant::now();
                            // A server that dies here answers requests in progress with disk
                            // errors.
                            let done = |client: &FileSystem| {
                                client.write(ino, (2 * round + n) * 50_000, &[n as u8 + 1; 50_000])?;
                                client.sync(ino)
                            };
                            while done(client).is_err() {}
                            (longest, round) = (longest.max(begun.elapsed()), (round + 1) % 20);
                        }
                        client.close(ino);
                        longest
                    }
                })
            })
            .collect();
        for _ in 0..3 {
            // Longer than a restarted server delays joining clients because an earlier client may
            // have the exclusive lease.
            std::thread::sleep(Duration::from_millis(2500));
            cluster.kill();
            cluster.start();
        }
        std::thread::sleep(Duration::from_millis(2500));
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).max().unwrap()
    });
    assert!(longest < LEASE - Duration::from_secs(1), "{longest:?}");
    clients[0].open(ino, false).unwrap();
    let found = content(&clients[0], ino).unwrap();
    assert!(found.chunks(50_000).zip([1, 2].into_iter().cycle()).all(|(part, n)| part.iter().all(|&byte| byte == n)));
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
    assert!(begun.elapsed() < LEASE, "{:?}", begun.elapsed());
    // After the grace period: what no session holds is freed.
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
    lab::within(30, move || {
        // Only the set with synced data is left.
        while lock(&cluster.lab).chunks().len() > 3 {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
}

/// A client whose machine was stopped for longer than its lease loses what it wrote and did not
/// sync. It reports this once for each file, and continues.
#[test]
fn a_client_that_was_silent_for_too_long_goes_on_without_what_it_lost() {
    let cluster = Cluster::new("rs:4+2", 6);
    let (client, wire) = cluster.wired_client("a");
    let (file, other, small) = (make(&client, "file"), make(&client, "other"), make(&client, "small"));
    [file, other, small].iter().for_each(|&ino| client.open(ino, true).unwrap());
    let old = pattern(1, 300_000);
    client.write(file, 0, &old).unwrap();
    client.sync(file).unwrap();
    // More than a stripe: the data goes to the targets.
    client.write(file, 300_000, &pattern(2, 9_000_000)).unwrap();
    client.write(other, 0, &pattern(3, 9_000_000)).unwrap();
    // This data is in memory only.
    client.write(small, 0, &pattern(4, 1_000)).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    wire.cut.store(true, Ordering::SeqCst);
    cluster.until_clients(0);
    wire.cut.store(false, Ordering::SeqCst);
    let told = client.sync(file).unwrap_err().to_string();
    assert!(told.contains("is lost"), "{told}");
    client.sync(file).unwrap();
    client.sync(small).unwrap_err();
    client.sync(small).unwrap();
    client.told_at_close(other).unwrap_err();
    client.told_at_close(other).unwrap();
    client.sync(other).unwrap();
    // The client continues to work.
    let new = pattern(5, 9_000_000);
    client.write(file, 300_000, &new).unwrap();
    client.sync(file).unwrap();
    client.write(other, 0, &new).unwrap();
    let reader = cluster.client("b");
    for (ino, expected) in [(file, [&old[..], &new[..]].concat()), (other, new), (small, Vec::new())] {
        reader.open(ino, false).unwrap();
        assert!(content(&reader, ino).unwrap() == expected);
        reader.close(ino);
    }
    // A sync of everything reports it, too.
    client.sync_all().unwrap_err();
    client.sync_all().unwrap();
    [file, other, small].iter().for_each(|&ino| client.close(ino));
    client.close_volume().unwrap();
    reader.close_volume().unwrap();
    lab::assert_sound(&cluster.volume());
}

/// A set that was begun while a disk was away is repaired when the disk is back, however long its
/// client would continue to write to it.
#[test]
fn a_set_that_lacks_a_disk_is_let_go_when_the_disk_is_back() {
    let cluster = Cluster::new("rs:4+2", 6);
    let client = cluster.client("a");
    lock(&cluster.lab).fault(2, lab::dead());
    let ino = make(&client, "file");
    client.open(ino, true).unwrap();
    for part in 0..4 {
        client.write(ino, part * 300_000, &pattern(part, 300_000)).unwrap();
        client.sync(ino).unwrap();
    }
    assert!(cluster.volume().status().unwrap().to_repair > 0);
    lock(&cluster.lab).fault(2, Faults::default());
    lab::within(60, {
        let cluster = cluster.clone();
        move || {
            for part in 4.. {
                client.write(ino, part * 300_000, &pattern(part, 300_000)).unwrap();
                client.sync(ino).unwrap();
                let volume = cluster.volume();
                volume.repair(&Control::default()).unwrap();
                if volume.status().unwrap().to_repair == 0 {
                    break;
                }
                std::thread::sleep(Duration::from_millis(200));
            }
            client.close_volume().unwrap();
        }
    });
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
    let cluster = Cluster::new("rs:4+2", 6);
    let (client, wire) = cluster.wired_client("a");
    let (keeper, keepers_wire) = cluster.wired_client("keeps the server waiting for sessions of before");
    let ino = make(&client, "file");
    client.open(ino, true).unwrap();
    client.write(ino, 0, &pattern(1, 9_000_000)).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    wire.cut.store(true, Ordering::SeqCst);
    cluster.until_clients(1);
    keepers_wire.cut.store(true, Ordering::SeqCst);
    cluster.kill();
    cluster.start();
    wire.cut.store(false, Ordering::SeqCst);
    client.sync(ino).unwrap_err();
    keepers_wire.cut.store(false, Ordering::SeqCst);
    client.write(ino, 0, &pattern(2, 9_000_000)).unwrap();
    client.sync(ino).unwrap();
    assert!(content(&client, ino).unwrap() == pattern(2, 9_000_000));
    client.close(ino);
    client.close_volume().unwrap_err();
    keeper.close_volume().unwrap();
    lab::assert_sound(&cluster.volume());
}

/// Sends a request in a client's session, always as the same request.
struct Asked<'a> {
    wire: &'a Wire,
    request: Request,
}

impl Call for Asked<'_> {
    fn call(&self, operation: u16, arguments: &[u8]) -> meta::Result<Vec<u8>> {
        let server = lock(&self.wire.cluster.server).clone().expect("it runs");
        let session = Some(self.wire.session.load(Ordering::SeqCst));
        let recall: Recall = Arc::new(|_: &[fs::Question]| ());
        loop {
            match server.answer_request(&fs::Caller::trusted(session), &recall, operation, arguments, self.request).0 {
                Answer::Done(answer) => return Ok(answer),
                // The session is being reclaimed.
                Answer::NoSession => std::thread::sleep(Duration::from_millis(20)),
                Answer::Unknown => panic!("operation {operation} is not known"),
            }
        }
    }
}

/// The server is killed before its answer arrives, and the request is repeated when it is back:
/// what others did meanwhile stays.
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
    assert_eq!(ask(1 << 40, true), 60);
    let expected = [&pattern(1, 100)[..10], &pattern(2, 50)].concat();
    assert!(content(&b, ino).unwrap() == expected);
    // A request that was sent and did not arrive.
    assert_eq!(ask((1 << 40) + 1, true), 10);
    a.close_volume().unwrap();
    b.close_volume().unwrap();
}

/// What was not synced may be lost with the server's machine, but not with its process: a later
/// sync reports it, once.
#[test]
fn what_may_be_lost_with_the_servers_machine_is_told() {
    let cluster = Cluster::new("rs:2+1", 4);
    let client = cluster.client("a");
    let [synced, changed, written] = ["synced", "changed", "written"].map(|name| make(&client, name));
    for ino in [synced, changed, written] {
        client.open(ino, true).unwrap();
        client.write(ino, 0, &pattern(3, 200_000)).unwrap();
        client.sync(ino).unwrap();
    }
    let change = |ino, mode| client.set_attributes(ino, SetAttributes { mode: Some(mode), ..SetAttributes::default() });
    for machine_too in [false, true] {
        change(changed, 0o600).unwrap();
        let new = make(&client, if machine_too { "second" } else { "first" });
        // This data is still in this client and is not lost.
        client.write(written, 0, b"dirty").unwrap();
        if machine_too {
            cluster.restart_machine();
        }
        cluster.kill();
        cluster.start();
        assert!(client.sync(synced).is_ok() && client.sync(written).is_ok());
        for ino in [changed, new, ROOT] {
            // A close reports it, too, and a later sync reports it again.
            assert_eq!(client.told_at_close(ino).is_err(), machine_too, "{ino}");
            client.told_at_close(ino).unwrap();
            assert_eq!(client.sync(ino).is_err(), machine_too, "{ino}");
            client.sync(ino).unwrap();
            client.told_at_close(ino).unwrap();
        }
        assert_eq!(client.sync_all().is_err(), machine_too);
        client.sync_all().unwrap();
    }
    // Unsynced changes are durable after a while.
    change(changed, 0o640).unwrap();
    std::thread::sleep(Duration::from_secs(8));
    cluster.restart_machine();
    cluster.kill();
    cluster.start();
    assert!([synced, changed, ROOT].iter().all(|&ino| client.sync(ino).is_ok() && client.told_at_close(ino).is_ok()));
    assert!(client.sync_all().is_ok());
    [synced, changed, written].iter().for_each(|&ino| client.close(ino));
    client.close_volume().unwrap();
    lab::assert_sound(&cluster.volume());
}

/// Targets that do not report their space, as under much load, do not count as full.
#[test]
fn what_is_not_known_of_the_room_is_not_taken_for_none() {
    let cluster = Cluster::new("rs:4+2", 6);
    let client = cluster.client("a");
    let ino = make(&client, "file");
    client.open(ino, true).unwrap();
    let set = |count: usize, dead: bool| {
        let lab = lock(&cluster.lab);
        (0..count).for_each(|number| lab.fault(number, Faults { dead, ..Faults::default() }));
    };
    let before = client.usage().unwrap();
    assert!(before.total > 0 && before.free > 0);
    set(3, true);
    let begun = Instant::now();
    while begun.elapsed() < LEASE {
        let error = client.write(ino, 0, &pattern(1, 3000)).err();
        let no_space = |error| {
            matches!(error, &fs::Error::Volume(volume::Error::NoSpace(_)) | &fs::Error::Meta(meta::Error::NoSpace))
        };
        assert!(!error.as_ref().is_some_and(no_space), "{error:?}");
        assert_eq!(client.usage().unwrap().total, before.total);
        std::thread::sleep(Duration::from_millis(50));
    }
    set(6, false);
    let begun = Instant::now();
    while client.write(ino, 0, &pattern(2, 300_000)).and_then(|()| client.sync(ino)).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(content(&client, ino).unwrap() == pattern(2, 300_000));
}

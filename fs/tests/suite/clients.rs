//! Several clients of one volume, without a network: requests go through the encoding of messages,
//! and data straight to the targets.

use crate::lab;
use crate::lab::cluster::{Cluster, LEASE, LONG_LEASE, lock};
use crate::lab::{content, make, pattern};
use fs::{Allocate, FileSystem, ROOT, SetAttributes};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use volume::Control;
use volume::target::Faults;

/// The answer to a recall; see the table of operations.
const RECALLED: u16 = 79;

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

/// A client looks by itself for a target that it did not find when it began.
#[test]
fn a_target_that_a_client_did_not_find_is_used_when_it_is_there() {
    let cluster = Cluster::new("rs:2+1", 3);
    lock(&cluster.hidden).insert(1);
    let client = cluster.client("a");
    assert_eq!(client.absent_targets(), [plan::TargetId(1)]);
    let ino = make(&client, "file");
    client.open(ino, true).unwrap();
    client.write(ino, 0, &pattern(1, 300_000)).unwrap();
    client.sync(ino).unwrap();
    lock(&cluster.hidden).clear();
    let until = |what: &str, reached: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !reached() {
            assert!(begun.elapsed() < Duration::from_secs(300), "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    until("it is found", &|| client.absent_targets().is_empty());
    let written = || client.known_health().iter().find(|target| target.id.0 == 1).map_or(0, |t| t.written_bytes);
    until("it is written to", &|| {
        client.write(ino, 300_000, &pattern(2, 300_000)).unwrap();
        client.sync(ino).unwrap();
        written() > 0
    });
    client.close(ino);
    client.close_volume().unwrap();
    cluster.volume().repair(&Control::default()).unwrap();
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

/// What one client appended before another one truncated the file is cut off with the rest. It does
/// not get over what is appended afterwards.
#[test]
fn a_truncation_cuts_off_what_others_appended_and_not_what_comes_after() {
    let cluster = Cluster::new("rs:2+1", 4);
    let (a, wire) = cluster.wired_client("a");
    let (b, c) = (cluster.client("b"), cluster.client("c"));
    let ino = make(&a, "log");
    [&a, &b, &c].iter().for_each(|client| client.open(ino, true).unwrap());
    let empty = || b.set_attributes(ino, SetAttributes { size: Some(0), ..Default::default() }).unwrap();
    a.append(ino, &[1; 5000]).unwrap();
    a.sync(ino).unwrap();
    a.append(ino, &[1; 5000]).unwrap();
    empty();
    c.append(ino, &[2; 10_000]).unwrap();
    c.sync(ino).unwrap();
    a.sync(ino).unwrap();
    let found = content(&b, ino).unwrap();
    assert!(found == [2; 10_000], "{} bytes", found.len());
    // A client that does not commit in time does so later, where nobody else has appended.
    a.append(ino, &[3; 5000]).unwrap();
    wire.refused.store(RECALLED, Ordering::SeqCst);
    wire.full.store(true, Ordering::SeqCst);
    empty();
    c.append(ino, &[4; 30_000]).unwrap();
    c.sync(ino).unwrap();
    wire.full.store(false, Ordering::SeqCst);
    a.sync(ino).unwrap();
    let expected = [&[0; 10_000][..], &[3; 5000], &[4; 30_000]].concat();
    let found = content(&b, ino).unwrap();
    assert!(found == expected, "{} bytes", found.len());
    [&a, &b, &c].iter().for_each(|client| client.close(ino));
}

/// Appends and truncations of one client on a file that others append to.
#[test]
fn an_append_beside_a_truncation_of_the_same_client_is_there_or_cut_off() {
    let cluster = Cluster::new("rs:2+1", 4);
    let (a, b) = (cluster.client("a"), cluster.client("b"));
    let ino = make(&a, "log");
    [&a, &b].iter().for_each(|client| client.open(ino, true).unwrap());
    std::thread::scope(|scope| {
        for (client, number) in [(&a, 1), (&a, 2), (&b, 3)] {
            scope.spawn(move || (0..60).for_each(|_| client.append(ino, &[number; 100]).unwrap()));
        }
        scope.spawn(|| {
            for _ in 0..30 {
                a.set_attributes(ino, SetAttributes { size: Some(0), ..Default::default() }).unwrap();
            }
        });
    });
    std::thread::scope(|scope| {
        for (client, number) in [(&a, 4), (&b, 5)] {
            scope.spawn(move || (0..20).for_each(|_| client.append(ino, &[number; 100]).unwrap()));
        }
    });
    [&a, &b].iter().for_each(|client| client.sync(ino).unwrap());
    let found = content(&b, ino).unwrap();
    assert_eq!(found.len() % 100, 0);
    // A record is there as a whole, or what was cut off is a hole.
    assert!(found.chunks(100).all(|record| record.iter().all(|byte| *byte == record[0])));
    let count = |number| found.chunks(100).filter(|record| record[0] == number).count();
    assert_eq!((count(4), count(5)), (20, 20));
    [&a, &b].iter().for_each(|client| client.close(ino));
}

/// Clients with uncommitted writes to the same file that get recalls at the same time do not wait
/// for each other.
#[test]
fn clients_that_commit_for_each_other_do_not_wait_for_each_other() {
    let cluster = Cluster::with_lease("rs:2+1", 4, LONG_LEASE);
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
    assert!(slowest < LONG_LEASE / 2, "{slowest:?}");
}

#[test]
fn clients_write_their_parts_of_one_file_at_the_same_time() {
    const PART_BYTES: usize = 700_001;
    let cluster = Cluster::new("rs:4+2", 7);
    let clients: Vec<_> = (0..3).map(|n| cluster.client(&format!("c{n}"))).collect();
    let ino = make(&clients[0], "checkpoint");
    std::thread::scope(|scope| {
        for (n, client) in clients.iter().enumerate() {
            scope.spawn(move || {
                client.open(ino, true).unwrap();
                for (at, piece) in pattern(n as u64, PART_BYTES).chunks(50_000).enumerate() {
                    client.write(ino, (n * PART_BYTES + at * 50_000) as u64, piece).unwrap();
                }
                client.sync(ino).unwrap();
                client.close(ino);
            });
        }
    });
    clients[1].open(ino, false).unwrap();
    let all: Vec<u8> = (0..3).flat_map(|n| pattern(n, PART_BYTES)).collect();
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
    lab::within(300, move || {
        while cluster.volume().attributes(ino).is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
}

#[test]
fn the_space_that_a_dead_client_wrote_to_is_given_back() {
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
    lab::within(300, {
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
    lab::within(300, move || {
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
    client.check_loss_at_close(other).unwrap_err();
    client.check_loss_at_close(other).unwrap();
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
    lab::within(300, {
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

/// The target counts as repaired after that, so nothing else looks at the set again.
#[test]
fn a_set_that_a_repair_skips_as_a_client_holds_it_stays_queued() {
    let cluster = Cluster::new("rs:4+2", 6);
    let client = cluster.client("a");
    let ino = make(&client, "file");
    client.open(ino, true).unwrap();
    client.write(ino, 0, &pattern(1, 300_000)).unwrap();
    client.sync(ino).unwrap();
    let volume = cluster.volume();
    assert_eq!(volume.status().unwrap().to_repair, 0);
    lock(&cluster.lab).fault(2, lab::dead());
    let volume = lab::within(300, move || {
        while volume.status().unwrap().to_repair == 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        volume
    });
    let done = volume.repair(&Control::default()).unwrap();
    assert!(done.chunks == 0 && done.failed.is_empty(), "{done:?}");
    lock(&cluster.lab).fault(2, Faults::default());
    client.close(ino);
    client.close_volume().unwrap();
    lab::within(300, move || {
        while volume.count_queued().unwrap() == 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        while volume.status().unwrap().to_repair > 0 {
            volume.repair_queued(&Control::default()).unwrap();
        }
    });
    lab::assert_sound(&cluster.volume());
}

/// Targets that do not report their space, as under much load, do not count as full.
#[test]
fn what_is_not_known_of_the_space_is_not_taken_for_none() {
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
        assert!(begun.elapsed() < Duration::from_secs(300));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(content(&client, ino).unwrap() == pattern(2, 300_000));
}

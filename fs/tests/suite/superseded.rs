//! A client could not commit what it wrote, and another one went on without it: that must not
//! overwrite later what the other one wrote.

use crate::lab;
use crate::lab::cluster::{Cluster, Wire};
use crate::lab::{content, make, pattern};
use fs::{FileLock, FileSystem, SetAttributes};
use plan::Ino;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// See the table of operations.
const CHANGE_CONTENTS: u16 = 19;
const RECALLED: u16 = 40;

fn whole(owner: u64, exclusive: bool) -> FileLock {
    FileLock { owner, first: 0, last: u64::MAX, exclusive, process: 1 }
}

/// A client writes to a file with a lock, and cannot commit that when it unlocks. Returns it, its
/// connection, another client, and the file.
fn failed_unlock(cluster: &Arc<Cluster>) -> (Arc<FileSystem>, Arc<Wire>, Arc<FileSystem>, Ino) {
    let (a, wire) = cluster.wired_client("a");
    let b = cluster.client("b");
    let ino = make(&a, "file");
    [&a, &b].iter().for_each(|client| client.open(ino, true).unwrap());
    a.write(ino, 0, &pattern(1, 5000)).unwrap();
    a.sync(ino).unwrap();
    assert!(a.lock(ino, &whole(1, true), None).unwrap());
    a.write(ino, 0, &pattern(2, 9000)).unwrap();
    wire.full.store(true, Ordering::SeqCst);
    assert_eq!(a.unlock(ino, 1, 0, u64::MAX).unwrap_err().errno(), 28);
    (a, wire, b, ino)
}

/// The other client takes the lock, finds what was there before, and writes.
fn go_on(b: &FileSystem, ino: Ino) {
    assert!(b.lock(ino, &whole(1, true), None).unwrap());
    assert!(content(b, ino).unwrap() == pattern(1, 5000));
    b.write(ino, 0, &pattern(3, 6000)).unwrap();
    b.sync(ino).unwrap();
    b.unlock(ino, 1, 0, u64::MAX).unwrap();
}

fn end(cluster: &Cluster, clients: [&Arc<FileSystem>; 2], ino: Ino) {
    for client in clients {
        client.close(ino);
        // It may report that it has lost something.
        let _ = client.close_volume();
    }
    lab::assert_sound(&cluster.volume());
}

/// The client learns of it in its own time, or after the server was restarted.
#[test]
fn what_an_unlock_could_not_commit_overwrites_nobody() {
    for restarts in [false, true] {
        let cluster = Cluster::new("rs:2+1", 4);
        let (a, wire, b, ino) = failed_unlock(&cluster);
        // It has other files, and nobody asks for those.
        let other = make(&a, "other");
        a.open(other, true).unwrap();
        a.write(other, 0, &pattern(4, 700)).unwrap();
        let before = a.losses(ino);
        go_on(&b, ino);
        if restarts {
            cluster.kill();
            cluster.start();
        }
        wire.full.store(false, Ordering::SeqCst);
        assert_eq!(a.sync_all().unwrap_err().errno(), 5, "restarted: {restarts}");
        a.sync_all().unwrap();
        assert_eq!(a.sync(ino).unwrap_err().errno(), 5);
        a.sync(ino).unwrap();
        assert_eq!(a.losses(ino), before + 1, "each opening can find out");
        a.sync(other).unwrap();
        for client in [&a, &b] {
            assert!(content(client, ino).unwrap() == pattern(3, 6000), "restarted: {restarts}");
            assert!(content(client, other).unwrap() == pattern(4, 700));
        }
        // What it writes from now on is new.
        assert!(a.lock(ino, &whole(1, true), None).unwrap());
        a.write(ino, 0, &pattern(5, 7000)).unwrap();
        a.unlock(ino, 1, 0, u64::MAX).unwrap();
        assert!(content(&b, ino).unwrap() == pattern(5, 7000));
        a.close(other);
        end(&cluster, [&a, &b], ino);
    }
}

/// A lock, a truncation and an unlock find out as a sync does.
#[test]
fn whatever_a_client_does_next_it_goes_on_with_what_the_other_wrote() {
    for next in ["lock", "cut", "empty", "append"] {
        let cluster = Cluster::new("rs:2+1", 4);
        let (a, wire, b, ino) = failed_unlock(&cluster);
        go_on(&b, ino);
        wire.full.store(false, Ordering::SeqCst);
        let cut = |size| a.set_attributes(ino, SetAttributes { size: Some(size), ..SetAttributes::default() });
        let mut expected = pattern(3, 6000);
        match next {
            "lock" => assert!(a.lock(ino, &whole(1, true), None).unwrap()),
            "cut" => {
                cut(100).unwrap();
                expected.truncate(100);
            }
            "empty" => {
                cut(0).unwrap();
                expected.clear();
            }
            // It does not know yet, and this is lost with the rest.
            _ => a.append(ino, b"appended").unwrap(),
        }
        assert_eq!(a.sync(ino).unwrap_err().errno(), 5, "{next}");
        a.sync(ino).unwrap();
        for client in [&a, &b] {
            let found = content(client, ino).unwrap();
            assert!(found == expected, "{next}: {} bytes", found.len());
        }
        end(&cluster, [&a, &b], ino);
    }
}

#[test]
fn what_an_unlock_could_not_commit_is_committed_later_if_nobody_asked() {
    let cluster = Cluster::new("rs:2+1", 4);
    let (a, wire, b, ino) = failed_unlock(&cluster);
    wire.full.store(false, Ordering::SeqCst);
    // The other client gets it.
    assert!(b.lock(ino, &whole(1, true), None).unwrap());
    assert!(content(&b, ino).unwrap() == pattern(2, 9000));
    b.unlock(ino, 1, 0, u64::MAX).unwrap();
    // Nothing is owed any more.
    a.write(ino, 0, &pattern(6, 9000)).unwrap();
    wire.full.store(true, Ordering::SeqCst);
    assert!(b.lock(ino, &whole(1, true), None).unwrap());
    b.unlock(ino, 1, 0, u64::MAX).unwrap();
    wire.full.store(false, Ordering::SeqCst);
    a.sync(ino).unwrap();
    assert_eq!(a.losses(ino), 0);
    assert!(content(&b, ino).unwrap() == pattern(6, 9000));
    end(&cluster, [&a, &b], ino);
}

/// A writer that has the file open owes nothing yet. One that closed it does, to others that change
/// the file: who only reads overwrites nothing.
#[test]
fn who_only_opens_a_file_takes_nothing_from_its_writer() {
    let cluster = Cluster::new("rs:2+1", 4);
    let (a, wire) = cluster.wired_client("a");
    let b = cluster.client("b");
    let ino = make(&a, "file");
    a.open(ino, true).unwrap();
    a.write(ino, 0, &pattern(1, 9000)).unwrap();
    wire.full.store(true, Ordering::SeqCst);
    b.open(ino, true).unwrap();
    b.close(ino);
    a.close(ino);
    b.open(ino, false).unwrap();
    assert_eq!(content(&b, ino).unwrap(), b"");
    wire.full.store(false, Ordering::SeqCst);
    a.sync_all().unwrap();
    assert!(content(&b, ino).unwrap() == pattern(1, 9000));
    b.close(ino);
    a.close_volume().unwrap();
    b.close_volume().unwrap();
    lab::assert_sound(&cluster.volume());
}

/// A mount answers a close by a writer only then. So who closed a file, and was told nothing, loses
/// nothing to one that goes on with it.
#[test]
fn a_close_beside_another_client_commits_or_fails() {
    let cluster = Cluster::new("rs:2+1", 4);
    let b = cluster.client("b");
    let (a, wire) = cluster.wired_client("a");
    assert!(a.alone().is_none());
    let (ino, nameless) = (make(&a, "file"), make(&a, "nameless"));
    for ino in [ino, nameless] {
        a.open(ino, true).unwrap();
        a.write(ino, 0, &pattern(1, 300_000)).unwrap();
    }
    a.unlink(fs::ROOT, b"nameless").unwrap();
    wire.full.store(true, Ordering::SeqCst);
    a.commit_at_close(nameless).unwrap();
    assert_eq!(a.commit_at_close(ino).unwrap_err().errno(), 28);
    wire.full.store(false, Ordering::SeqCst);
    a.commit_at_close(ino).unwrap();
    // It can commit nothing more.
    wire.full.store(true, Ordering::SeqCst);
    [ino, nameless].iter().for_each(|ino| a.close(*ino));
    b.open(ino, true).unwrap();
    assert!(content(&b, ino).unwrap() == pattern(1, 300_000));
    wire.full.store(false, Ordering::SeqCst);
    a.sync_all().unwrap();
    assert_eq!(a.losses(ino), 0);
    end(&cluster, [&a, &b], ino);
}

/// The answer to a question, from before the file was opened, written and closed once more. All the
/// data of the question is committed, and the rest was written while the other one went on.
#[test]
fn what_is_closed_after_the_question_is_no_debt() {
    let cluster = Cluster::new("rs:2+1", 4);
    let (a, wire) = cluster.wired_client("a");
    let b = cluster.client("b");
    let ino = make(&a, "file");
    let writes = |offset: u64| {
        a.open(ino, true).unwrap();
        a.write(ino, offset, &pattern(offset + 1, 5000)).unwrap();
        a.close(ino);
    };
    writes(0);
    wire.held.store(RECALLED, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let opens = scope.spawn(|| b.open(ino, true).unwrap());
        while wire.waiting.load(Ordering::SeqCst) == 0 && !opens.is_finished() {
            std::thread::yield_now();
        }
        writes(5000);
        wire.held.store(0, Ordering::SeqCst);
        opens.join().unwrap();
    });
    a.sync_all().unwrap();
    assert_eq!(a.losses(ino), 0);
    for client in [&a, &b] {
        assert!(content(client, ino).unwrap() == [pattern(1, 5000), pattern(5001, 5000)].concat());
    }
    b.close(ino);
    end(&cluster, [&a, &b], ino);
}

/// The commit is under way, and the server waits for it no longer than a lease.
#[test]
fn a_commit_that_comes_too_late_after_a_close_overwrites_nobody() {
    let cluster = Cluster::new("rs:2+1", 4);
    let (a, wire) = cluster.wired_client("a");
    let b = cluster.client("b");
    let ino = make(&a, "file");
    a.open(ino, true).unwrap();
    // In stripes.
    a.write(ino, 0, &pattern(1, 300_000)).unwrap();
    wire.held.store(CHANGE_CONTENTS, Ordering::SeqCst);
    a.close(ino);
    b.open(ino, true).unwrap();
    b.write(ino, 0, &pattern(2, 1000)).unwrap();
    b.sync(ino).unwrap();
    wire.held.store(0, Ordering::SeqCst);
    a.open(ino, true).unwrap();
    assert_eq!(a.sync(ino).unwrap_err().errno(), 5);
    a.sync(ino).unwrap();
    for client in [&a, &b] {
        assert!(content(client, ino).unwrap() == pattern(2, 1000));
    }
    end(&cluster, [&a, &b], ino);
}

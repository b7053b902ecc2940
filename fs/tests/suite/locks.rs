//! Locks of several clients of one volume, and what their holders see.

use crate::lab;
use crate::lab::cluster::Cluster;
use crate::lab::{Lab, make};
use fs::{FileLock, FileSystem, ROOT, Sessions};
use plan::{Ino, SessionId};
use session::Question;
use session::port::{Entry, Held, Remote, Session, VERSION};
use session::transport::Call;
use session::transport::{Answer, Recall};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// See the table of operations.
const LOCK: u16 = 74;
const UNLOCK: u16 = 75;

fn whole(owner: u64, exclusive: bool) -> FileLock {
    FileLock { owner, first: 0, last: u64::MAX, exclusive, process: 1 }
}

fn range(owner: u64, first: u64, last: u64) -> FileLock {
    FileLock { owner, first, last, exclusive: true, process: 1 }
}

/// The number in a file.
fn number(client: &FileSystem, ino: Ino) -> u64 {
    let mut bytes = [0; 8];
    client.read(ino, 0, &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

/// No client syncs, and all have the file open all the time: only the locks order their accesses.
#[test]
fn a_counter_behind_a_lock_counts_everything() {
    const CHANGES_PER_WRITER: u64 = 100;
    let cluster = Cluster::new("rs:2+1", 4);
    let clients = [cluster.client("a"), cluster.client("b"), cluster.client("c")];
    let (counter, log) = (make(&clients[0], "counter"), make(&clients[0], "log"));
    std::thread::scope(|scope| {
        for (owner, client) in (1..).zip(&clients) {
            scope.spawn(move || {
                [counter, log].iter().for_each(|&ino| client.open(ino, true).unwrap());
                for _ in 0..CHANGES_PER_WRITER {
                    assert!(client.lock(counter, &whole(owner, true), Some(&|| true)).unwrap());
                    let now = number(client, counter);
                    client.write(counter, 0, &(now + 1).to_le_bytes()).unwrap();
                    client.unlock(counter, owner, 0, u64::MAX).unwrap();
                    // A file that grows: its holder appends at the end that it finds.
                    assert!(client.lock(log, &whole(owner, true), Some(&|| true)).unwrap());
                    let mut old = vec![0; 1 << 16];
                    let end = client.read(log, 0, &mut old).unwrap();
                    assert!(old[..end].iter().all(|&byte| byte != 0), "a hole before {end}");
                    client.write(log, end as u64, &[owner as u8; 7]).unwrap();
                    client.unlock(log, owner, 0, u64::MAX).unwrap();
                }
                [counter, log].iter().for_each(|&ino| client.close(ino));
            });
        }
    });
    let reader = cluster.client("reader");
    reader.open(counter, false).unwrap();
    assert_eq!(number(&reader, counter), 3 * CHANGES_PER_WRITER);
    assert_eq!(reader.attributes(log).unwrap().size, 3 * CHANGES_PER_WRITER * 7);
}

/// A client that turns its exclusive lock into a shared one lets the others see what it wrote.
#[test]
fn who_shares_its_lock_shows_what_it_wrote() {
    let cluster = Cluster::new("rs:2+1", 4);
    let (a, b) = (cluster.client("a"), cluster.client("b"));
    let ino = make(&a, "file");
    [&a, &b].iter().for_each(|client| client.open(ino, true).unwrap());
    for round in 1..5 {
        assert!(a.lock(ino, &whole(1, true), None).unwrap());
        a.write(ino, 0, &u64::to_le_bytes(round)).unwrap();
        assert!(!b.lock(ino, &whole(1, false), None).unwrap());
        assert!(a.lock(ino, &whole(1, false), None).unwrap());
        assert!(b.lock(ino, &whole(1, false), None).unwrap());
        assert_eq!(number(&b, ino), round);
        b.unlock(ino, 1, 0, u64::MAX).unwrap();
        a.unlock(ino, 1, 0, u64::MAX).unwrap();
    }
}

/// An unlocked part stays free after a restart of the server, and the rest of the lock stays
/// locked.
#[test]
fn a_restarted_server_has_the_locks_that_are_held_and_no_others() {
    let cluster = Cluster::new("rs:2+1", 4);
    let (a, b) = (cluster.client("a"), cluster.client("b"));
    let ino = make(&a, "file");
    [&a, &b].iter().for_each(|client| client.open(ino, true).unwrap());
    assert!(a.lock(ino, &range(1, 0, 99), None).unwrap());
    a.unlock(ino, 1, 20, 39).unwrap();
    // It is shared from now on.
    assert!(a.lock(ino, &FileLock { exclusive: false, ..range(1, 60, 79) }, None).unwrap());
    let (free, held) = ([(20, 39), (100, u64::MAX)], [(0, 0), (19, 20), (39, 40), (59, 59), (60, 60), (99, 99)]);
    for restarted in [false, true] {
        if restarted {
            cluster.kill();
            cluster.start();
        }
        for (first, last) in free {
            assert!(b.lock(ino, &range(2, first, last), None).unwrap(), "{first}..={last}, restarted: {restarted}");
            b.unlock(ino, 2, first, last).unwrap();
        }
        for (first, last) in held {
            assert!(!b.lock(ino, &range(2, first, last), None).unwrap(), "{first}..={last}, restarted: {restarted}");
        }
        let shared = FileLock { exclusive: false, ..range(2, 60, 79) };
        assert!(b.lock(ino, &shared, None).unwrap(), "restarted: {restarted}");
        b.unlock(ino, 2, 60, 79).unwrap();
    }
    a.unlock(ino, 1, 0, u64::MAX).unwrap();
    assert!(b.lock(ino, &whole(2, true), None).unwrap());
}

/// A server that ends hears no clients while it commits, however long that takes. Their sessions
/// stay, and with them their locks.
#[test]
fn a_server_that_ends_slowly_ends_no_session() {
    let lease = Duration::from_millis(200);
    let volume = Lab::new("rs:2+1", 4).open_to_serve();
    let sessions = Sessions::new(volume, lease);
    let recall: Recall = Arc::new(|_: &[Question]| ());
    let begin = || Remote(Begins(sessions.clone(), recall.clone())).begin(None, "client".into(), Vec::new()).unwrap();
    let tick = || {
        sessions.tick();
        std::thread::sleep(Duration::from_millis(5));
    };
    begin();
    while !sessions.clients().is_empty() {
        tick();
    }
    begin();
    sessions.stop();
    let begun = Instant::now();
    while begun.elapsed() < 5 * lease {
        tick();
    }
    assert_eq!(sessions.clients().len(), 1);
}

/// Begins sessions.
struct Begins(Arc<Sessions>, Recall);

impl Call for Begins {
    fn call(&self, operation: u16, arguments: &[u8]) -> meta::Result<Vec<u8>> {
        match self.0.answer(None, &self.1, operation, arguments) {
            Answer::Done(answer) => Ok(answer),
            other => panic!("{other:?}"),
        }
    }
}

/// Asks in a session.
struct Asks(Arc<Sessions>, SessionId, Recall);

impl Call for Asks {
    fn call(&self, operation: u16, arguments: &[u8]) -> meta::Result<Vec<u8>> {
        match self.0.answer(Some(self.1), &self.2, operation, arguments) {
            Answer::Done(answer) => Ok(answer),
            other => panic!("{other:?}"),
        }
    }
}

/// After a takeover, a lock waits for the clients from before, and for nothing else: the sessions
/// are not looked at here.
#[test]
fn the_grace_period_ends_when_the_last_client_is_back() {
    let (mut lab, lease) = (Lab::new("rs:2+1", 4), Duration::from_secs(3600));
    let recall: Recall = Arc::new(|_: &[Question]| ());
    let begin = |sessions: &Arc<Sessions>, name: &str| {
        let begun = Remote(Begins(sessions.clone(), recall.clone())).begin(None, name.into(), Vec::new());
        begun.unwrap().session
    };
    let first = Sessions::new(lab.open_to_serve(), lease);
    let before = begin(&first, "a");
    first.close().unwrap();
    drop(first);
    let second = Sessions::new(lab.open_to_serve(), lease);
    let ask = |session| Remote(Asks(second.clone(), session, recall.clone()));
    let entry = Entry { session: Some(before), name: "a".into(), ..Entry::default() };
    assert_eq!(ask(before).enter(VERSION, &entry).unwrap().welcome.session, before);
    let other = ask(begin(&second, "b"));
    let (got, gets) = std::sync::mpsc::channel();
    std::thread::spawn(move || got.send(other.lock(ROOT, whole(1, true), false)));
    ask(before).reclaim(0, true, &Held::default()).unwrap();
    let has = gets.recv_timeout(Duration::from_secs(60)).expect("the grace period goes on");
    assert_eq!(has, Ok(true));
}

/// A lock whose answer got lost does not stay at the server until its client ends, though its owner
/// never asks again.
#[test]
fn a_lock_or_an_unlock_whose_answer_got_lost_does_not_stay() {
    let cluster = Cluster::new("rs:2+1", 4);
    let (a, wire) = cluster.wired_client("a");
    let b = cluster.client("b");
    let ino = make(&a, "file");
    for client in [&a, &b] {
        client.open(ino, true).unwrap();
    }
    for operation in [LOCK, UNLOCK] {
        if operation == UNLOCK {
            assert!(a.lock(ino, &whole(1, true), None).unwrap());
        }
        if operation == LOCK {
            wire.unanswered.store(LOCK, Ordering::SeqCst);
            a.lock(ino, &whole(1, true), None).unwrap_err();
            wire.unanswered.store(0, Ordering::SeqCst);
        } else {
            wire.refused.store(UNLOCK, Ordering::SeqCst);
            a.unlock(ino, 1, 0, u64::MAX).unwrap_err();
            wire.refused.store(0, Ordering::SeqCst);
        }
        lab::within(60, {
            let b = b.clone();
            move || while !b.lock(ino, &whole(2, true), Some(&|| true)).unwrap() {}
        });
        b.unlock(ino, 2, 0, u64::MAX).unwrap();
    }
}

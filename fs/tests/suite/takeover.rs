//! What clients of a metadata server have when another one takes over, without a network.

use crate::lab;
use crate::lab::cluster::{Cluster, Raw, lock};
use crate::lab::{Lab, content, make, pattern};
use fs::{FileLock, FileSystem, ROOT, RenameMode, Sessions, SetAttributes};
use plan::{Ino, SessionId};
use session::Question;
use session::port::{Entry, Held, Remote, Session, VERSION};
use session::transport::{Answer, Call, Recall};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use volume::target::Faults;

/// See the table of operations.
const END: u16 = 66;
const CLOSE: u16 = 70;
const RECLAIM_OPEN: u16 = 80;
const RECLAIM: u16 = 83;

/// Nothing gets to the targets for a while, so that the server loses it when it dies.
fn hold_up(cluster: &Cluster) {
    lock(&cluster.lab).fault_all(|| Faults { delay: Duration::from_secs(5), ..Faults::default() });
}

fn take_over(cluster: &Cluster) {
    cluster.kill();
    cluster.start();
}

fn set_mode(client: &FileSystem, ino: Ino, mode: u32) {
    client.set_attributes(ino, SetAttributes { mode: Some(mode), ..SetAttributes::default() }).unwrap();
}

/// Unsynced data may be lost with a server. A later sync of each such file reports it, once; other
/// files are not concerned.
#[test]
fn what_is_lost_with_a_server_is_told_and_nothing_else() {
    let cluster = Cluster::new("rs:2+1", 4);
    let client = cluster.client("a");
    let [synced, changed, written] = ["synced", "changed", "written"].map(|name| make(&client, name));
    for ino in [synced, changed, written] {
        client.open(ino, true).unwrap();
        client.write(ino, 0, &pattern(3, 200_000)).unwrap();
        client.sync(ino).unwrap();
    }
    let mut losses = 0;
    for round in 0..4 {
        // The server has file numbers to give.
        make(&client, &format!("ahead{round}"));
        client.sync_all().unwrap();
        let loses = round % 2 == 1;
        if loses {
            hold_up(&cluster);
        }
        let mode = 0o600 + round;
        set_mode(&client, changed, mode);
        let new = make(&client, &format!("new{round}"));
        // This data is still in this client and is not lost.
        client.write(written, 0, b"dirty").unwrap();
        if !loses {
            // The next server has it, and the client does not know that.
            cluster.volume().sync_all().unwrap();
        }
        take_over(&cluster);
        assert!(client.sync(synced).is_ok() && client.sync(written).is_ok());
        let volume = cluster.volume();
        let is_lost = volume.attributes(changed).unwrap().mode & 0o777 != mode;
        let new_is_lost = volume.attributes(new).is_err();
        assert!(loses || !is_lost && !new_is_lost);
        losses += u32::from(is_lost);
        for (ino, is_lost) in [(changed, is_lost), (new, new_is_lost), (ROOT, new_is_lost)] {
            // A close reports it, too, and a later sync reports it again.
            assert_eq!(client.check_loss_at_close(ino).is_err(), is_lost, "{ino}");
            client.check_loss_at_close(ino).unwrap();
            assert_eq!(client.sync(ino).is_err(), is_lost, "{ino}");
            if ino != new {
                client.sync(ino).unwrap();
            }
            client.check_loss_at_close(ino).unwrap();
        }
        assert_eq!(client.sync_all().is_err(), is_lost || new_is_lost);
        client.sync_all().unwrap();
        assert_eq!(&content(&client, written).unwrap()[..5], b"dirty");
    }
    assert!(losses > 0, "nothing was lost");
    [synced, changed, written].iter().for_each(|&ino| client.close(ino));
    client.close_volume().unwrap();
    lab::assert_sound(&cluster.volume());
}

/// A file that lost a change does not replace another one unnoticed.
#[test]
fn a_file_that_lost_something_with_its_server_replaces_none_unnoticed() {
    let cluster = Cluster::new("rs:2+1", 4);
    let client = cluster.client("a");
    let [good, lacking] = ["good", "lacking"].map(|name| make(&client, name));
    client.sync_all().unwrap();
    hold_up(&cluster);
    set_mode(&client, lacking, 0o600);
    take_over(&cluster);
    let is_lost = cluster.volume().attributes(lacking).unwrap().mode & 0o777 != 0o600;
    client.sync(good).unwrap();
    let replace = || client.rename((ROOT, b"lacking"), (ROOT, b"good"), RenameMode::Replace);
    if is_lost {
        assert_eq!(replace().unwrap_err().errno(), 5);
    }
    replace().unwrap();
    assert_eq!(client.lookup(ROOT, b"good").unwrap().ino, lacking);
    assert_eq!(client.sync_all().is_err(), is_lost);
    client.sync_all().unwrap();
    client.close_volume().unwrap();
}

/// The client made a file and wrote to it, and then the server that made it is lost with it.
#[test]
fn a_file_that_is_lost_with_its_server_is_an_error_and_no_hang() {
    let cluster = Cluster::new("rs:2+1", 4);
    let client = cluster.client("a");
    make(&client, "ahead");
    client.sync_all().unwrap();
    hold_up(&cluster);
    let (opened, closed) = (make(&client, "opened"), make(&client, "closed"));
    client.open(opened, true).unwrap();
    client.write(opened, 0, &pattern(1, 100_000)).unwrap();
    take_over(&cluster);
    let there = |ino| cluster.volume().attributes(ino).is_ok();
    let ended = lab::within(300, {
        let client = client.clone();
        move || {
            let opens = client.open(closed, true).is_ok();
            let syncs = client.sync(opened).is_ok();
            let _ = client.write(opened, 0, b"more");
            client.close(opened);
            let again = make(&client, "again");
            client.open(again, true).unwrap();
            client.write(again, 0, b"it goes on").unwrap();
            client.sync(again).unwrap();
            client.close(again);
            let _ = client.close_volume();
            (opens, syncs)
        }
    });
    assert_eq!(ended, (there(closed), there(opened)));
}

/// Two write, and one of them closes: writers are counted until the last opener closes.
#[test]
fn a_file_with_more_writers_than_openers_is_reclaimed() {
    let cluster = Cluster::new("rs:2+1", 4);
    let (client, other) = (cluster.client("a"), cluster.client("b"));
    let ino = make(&client, "file");
    (0..3).for_each(|_| client.open(ino, true).unwrap());
    (0..2).for_each(|_| client.close(ino));
    client.write(ino, 0, b"first").unwrap();
    client.sync(ino).unwrap();
    client.write(ino, 0, b"uncommitted").unwrap();
    take_over(&cluster);
    lab::within(300, move || {
        other.open(ino, false).unwrap();
        assert_eq!(content(&other, ino).unwrap(), b"uncommitted");
        client.close(ino);
        client.close_volume().unwrap();
        other.close(ino);
        other.close_volume().unwrap();
    });
    assert!(!cluster.has_open(ino));
}

/// Of two openers, one closes while the server is replaced. The next server learns of the other
/// opener, and does not count the late close again.
#[test]
fn a_close_that_is_under_way_at_a_takeover_counts_once() {
    let cluster = Cluster::new("rs:2+1", 4);
    let (client, wire) = cluster.wired_client("a");
    let ino = make(&client, "file");
    client.sync_all().unwrap();
    (0..2).for_each(|_| client.open(ino, true).unwrap());
    wire.held.store(CLOSE, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| client.close(ino));
        while wire.waiting.load(Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        take_over(&cluster);
        while wire.asked(RECLAIM) == 0 || !cluster.has_open(ino) {
            std::thread::sleep(Duration::from_millis(1));
        }
        wire.held.store(0, Ordering::SeqCst);
        closing.join().unwrap();
    });
    assert!(cluster.has_open(ino));
    client.close(ino);
    assert!(!cluster.has_open(ino));
    client.close_volume().unwrap();
}

/// A server may refuse what a client tells it, or the whole client. That ends the session, not the
/// mount.
#[test]
fn a_client_whose_reclaim_is_refused_goes_on_in_another_session() {
    let cluster = Cluster::new("rs:2+1", 4);
    let (client, wire) = cluster.wired_client("a");
    let ino = make(&client, "file");
    client.sync_all().unwrap();
    client.open(ino, true).unwrap();
    client.write(ino, 0, b"lost").unwrap();
    let session = wire.session.load(Ordering::SeqCst);
    wire.invalid.store(RECLAIM, Ordering::SeqCst);
    cluster.kill();
    cluster.start();
    while wire.asked(END) < 1 {
        std::thread::sleep(Duration::from_millis(1));
    }
    wire.invalid.store(0, Ordering::SeqCst);
    lab::within(300, move || {
        client.sync(ino).unwrap_err();
        client.write(ino, 0, b"written").unwrap();
        client.sync(ino).unwrap();
        assert_ne!(wire.session.load(Ordering::SeqCst), session);
        client.close(ino);
        let _ = client.close_volume();
    });
}

/// All of it goes in one message, and the locks are exactly those that are held.
#[test]
fn a_session_is_reclaimed_in_one_message() {
    let cluster = Cluster::new("rs:2+1", 4);
    let ((client, wire), other) = (cluster.wired_client("a"), cluster.client("b"));
    let files: Vec<Ino> = (0..50).map(|number| make(&client, &format!("file{number}"))).collect();
    for &ino in &files {
        client.open(ino, true).unwrap();
        client.append(ino, b"reserved").unwrap();
    }
    client.sync_all().unwrap();
    let range = |first, last| FileLock { owner: 1, first, last, exclusive: true, process: 1 };
    assert!(client.lock(files[0], &range(0, 99), None).unwrap());
    client.unlock(files[0], 1, 20, 39).unwrap();
    take_over(&cluster);
    cluster.until_clients(2);
    let held = |first, last| !other.lock(files[0], &FileLock { owner: 2, ..range(first, last) }, None).unwrap();
    assert!(held(0, 0) && held(19, 20) && held(39, 40) && held(99, 99) && !held(20, 39) && !held(100, u64::MAX));
    assert_eq!((wire.asked(RECLAIM), wire.asked(RECLAIM_OPEN)), (1, 0));
    for &ino in &files {
        other.open(ino, true).unwrap();
        other.append(ino, b"behind").unwrap();
        other.sync(ino).unwrap();
        assert_eq!(content(&other, ino).unwrap(), b"reservedbehind");
    }
}

/// Begins sessions, and counts what the server tells them.
struct Told(Arc<Sessions>, Arc<AtomicU32>);

impl Call for Told {
    fn call(&self, operation: u16, arguments: &[u8]) -> meta::Result<Vec<u8>> {
        let told = self.1.clone();
        let recall: Recall = Arc::new(move |questions: &[Question]| {
            assert!(questions.is_empty(), "nothing is recalled: {questions:?}");
            told.fetch_add(1, Ordering::SeqCst);
        });
        match self.0.answer(None, &recall, operation, arguments) {
            Answer::Done(answer) => Ok(answer),
            other => panic!("{other:?}"),
        }
    }
}

/// A client that does nothing would look for the next server with its next heartbeat, and keep
/// others waiting until then.
#[test]
fn clients_are_told_when_a_server_gives_the_volume_away() {
    let server = Sessions::new(Lab::new("rs:2+1", 4).open_to_serve(), Duration::from_secs(600));
    let told: [Arc<AtomicU32>; 2] = Default::default();
    let begin = |told: &Arc<AtomicU32>| {
        Remote(Told(server.clone(), told.clone())).begin(None, "idle".into(), Vec::new()).unwrap();
    };
    told.iter().for_each(begin);
    let counts = || told.each_ref().map(|told| told.load(Ordering::SeqCst));
    let before = counts();
    server.stop();
    server.send_away();
    assert_eq!(counts(), before.map(|count| count + 1));
}

/// The index of a server that gave the volume away is open while any request waits there: it could
/// not stand by. Its grace period does not end any more.
#[test]
fn no_request_waits_for_the_grace_period_of_a_server_that_gave_the_volume_away() {
    let mut lab = Lab::new("rs:2+1", 4);
    let mut serve = || Sessions::new(lab.open_to_serve(), Duration::from_secs(3600));
    let server = serve();
    let begin = |server: &Arc<Sessions>| Remote(Raw { server: server.clone(), session: None });
    begin(&server).begin(None, "away".into(), Vec::new()).unwrap();
    server.close().unwrap();
    let server = serve();
    let session = begin(&server).begin(None, "waits".into(), Vec::new()).unwrap().session;
    let (sender, ended) = mpsc::channel();
    for which in 0..2 {
        let (sender, raw) = (sender.clone(), Raw { server: server.clone(), session: Some(session) });
        let all = FileLock { owner: 1, first: 0, last: u64::MAX, exclusive: true, process: 1 };
        std::thread::spawn(move || {
            let done = match which {
                0 => Remote(raw).lock(ROOT, all, true).map(drop),
                _ => Remote(raw).reserve_append(ROOT, 1).map(drop),
            };
            let _ = sender.send(done);
        });
    }
    assert!(ended.recv_timeout(Duration::from_millis(300)).is_err(), "they wait for a client that is away");
    server.stop();
    for _ in 0..2 {
        let done = ended.recv_timeout(Duration::from_secs(60)).expect("it waits for ever");
        assert!(matches!(done, Err(meta::Error::Unavailable(_))), "{done:?}");
    }
}

/// The same for what another client has not committed: it commits that at the next server.
#[test]
fn no_request_waits_for_a_client_at_a_server_that_gave_the_volume_away() {
    let server = Sessions::new(Lab::new("rs:2+1", 4).open_to_serve(), Duration::from_secs(3600));
    let at = |session| Remote(Raw { server: server.clone(), session });
    let begin = |name: &str| at(None).begin(None, name.into(), Vec::new()).unwrap().session;
    let (silent, asks) = (begin("silent"), begin("asks"));
    let file = {
        let volume = server.volume();
        make(volume, "file")
    };
    at(Some(silent)).open(file, 1).unwrap();
    let (sender, ended) = mpsc::channel();
    let remote = at(Some(asks));
    std::thread::spawn(move || sender.send(remote.open(file, 1)));
    assert!(ended.recv_timeout(Duration::from_millis(300)).is_err(), "it waits for the one that is silent");
    server.stop();
    // After 20 seconds it would go on without the silent one, and succeed.
    let done = ended.recv_timeout(Duration::from_secs(60)).expect("it waits");
    assert!(matches!(done, Err(meta::Error::Unavailable(_))), "{done:?}");
}

/// 64 clients with 10,000 open files each are back in one message each, while another one that is
/// slow has begun to come back, and has not told what it has.
#[test]
fn many_clients_with_many_files_come_back_while_one_is_slow() {
    const CLIENTS: u64 = 64;
    const FILES: u64 = 10_000;
    let mut lab = Lab::new("rs:2+1", 4);
    let mut serve = || Sessions::new(lab.open_to_serve(), Duration::from_secs(3600));
    let enter = |session| Entry { session, name: "many".into(), ..Entry::default() };
    let server = serve();
    let begin = |_| Remote(Raw { server: server.clone(), session: None }).enter(VERSION, &enter(None)).unwrap();
    let sessions: Vec<SessionId> = (0..=CLIENTS).map(begin).map(|entered| entered.welcome.session).collect();
    server.close().unwrap();
    let server = serve();
    let at = |session| Remote(Raw { server: server.clone(), session: Some(session) });
    let begun = Instant::now();
    let (&slow, others) = sessions.split_first().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| at(slow).enter(VERSION, &enter(Some(slow))).unwrap());
        for &session in others {
            let (at, entry) = (at(session), enter(Some(session)));
            scope.spawn(move || {
                assert!(at.enter(VERSION, &entry).unwrap().welcome.fresh);
                let held = Held {
                    open: (0..FILES).map(|file| (Ino(session.0 * FILES + file), 1, 1)).collect(),
                    dirty: (0..FILES).map(|file| (Ino(session.0 * FILES + file), 1)).collect(),
                    ..Held::default()
                };
                assert_eq!(at.reclaim(0, true, &held).unwrap(), []);
                at.heartbeat().unwrap();
            });
        }
    });
    eprintln!("{CLIENTS} clients with {FILES} open files each are back after {:?}", begun.elapsed());
    assert!(others.iter().all(|session| server.has_open(Ino(session.0 * FILES + FILES - 1))));
    // The slow one tells its part at last.
    assert!(at(slow).heartbeat().is_err());
    assert_eq!(at(slow).reclaim(0, true, &Held::default()).unwrap(), []);
    at(slow).heartbeat().unwrap();
}

/// A client of version 1 reclaims its session by many messages. One of a later version than the
/// server's gets one line that says so.
#[test]
fn the_version_before_is_spoken_and_later_ones_are_refused() {
    let cluster = Cluster::new("rs:2+1", 4);
    let old = Remote(cluster.raw(None)).begin(None, "old".into(), Vec::new()).unwrap();
    cluster.volume().sync_all().unwrap();
    take_over(&cluster);
    let at = Remote(cluster.raw(Some(old.session)));
    let welcome = at.begin(Some(old.session), "old".into(), Vec::new()).unwrap();
    assert!(welcome.fresh && !welcome.lapsed && welcome.start != old.start);
    at.reclaim_open(Ino(9), 1).unwrap();
    at.reclaim_append(Ino(9), 100).unwrap();
    at.reclaim_complete().unwrap();
    at.heartbeat().unwrap();
    assert!(cluster.has_open(Ino(9)));
    let refused = Remote(cluster.raw(None)).enter(VERSION + 1, &Entry::default()).unwrap_err().to_string();
    assert!(refused.contains("update the older one"), "{refused}");
}

/// A file is open when its server is lost, and another client removes it before the one that has it
/// open is back.
#[test]
fn an_open_file_is_kept_for_a_client_that_comes_back_later() {
    let cluster = Cluster::new("rs:2+1", 4);
    let ((client, wire), other) = (cluster.wired_client("a"), cluster.client("b"));
    let ino = make(&client, "file");
    client.open(ino, true).unwrap();
    client.write(ino, 0, &pattern(4, 10_000)).unwrap();
    client.sync(ino).unwrap();
    wire.cut.store(true, Ordering::SeqCst);
    take_over(&cluster);
    other.unlink(ROOT, b"file").unwrap();
    wire.cut.store(false, Ordering::SeqCst);
    cluster.until_clients(2);
    assert!(content(&client, ino).unwrap() == pattern(4, 10_000));
    client.write(ino, 0, b"still").unwrap();
    client.sync(ino).unwrap();
    client.close(ino);
}

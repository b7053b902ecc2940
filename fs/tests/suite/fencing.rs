//! A client that is silent for longer than its lease, but lives.

use crate::lab;
use crate::lab::cluster::{Cluster, Wire};
use crate::lab::{content, make, new, pattern};
use fs::{Allocate, FileKind, FileLock, FileSystem, ROOT, RenameMode, SetAttributes};
use plan::Ino;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// See the table of operations.
const ATTRIBUTES: u16 = 1;
/// What names and attributes are changed with, and what is asked before.
const NAMES_AND_ATTRIBUTES: [u16; 7] = [2, 5, 9, 10, 11, 12, 32];
const CHANGE_CONTENTS_DURABLY: u16 = 29;
const OPEN: u16 = 69;
const CLOSE: u16 = 70;
const RESERVE: u16 = 72;

fn whole(owner: u64) -> FileLock {
    FileLock { owner, first: 0, last: u64::MAX, exclusive: true, process: 1 }
}

/// Two clients that have a file open, and the connection of the first.
fn two(cluster: &Arc<Cluster>) -> (Arc<FileSystem>, Arc<Wire>, Arc<FileSystem>, Ino) {
    let (a, wire) = cluster.wired_client("a");
    let b = cluster.client("b");
    let ino = make(&a, "file");
    a.open(ino, true).unwrap();
    b.open(ino, true).unwrap();
    a.write(ino, 0, &pattern(1, 30_000)).unwrap();
    a.sync(ino).unwrap();
    (a, wire, b, ino)
}

/// The first client's machine stops until its session has ended.
fn stop(cluster: &Arc<Cluster>, wire: &Wire) {
    wire.cut.store(true, Ordering::SeqCst);
    cluster.until_clients(1);
}

/// Waits until a request of the first client is held back.
fn until_waiting(wire: &Arc<Wire>) {
    let wire = wire.clone();
    lab::within(300, move || {
        while wire.waiting.load(Ordering::SeqCst) == 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    });
}

#[test]
fn what_was_written_before_the_lease_ran_out_is_dropped_and_told() {
    let cluster = Cluster::new("rs:2+1", 4);
    let (a, wire, b, ino) = two(&cluster);
    assert!(a.lock(ino, &whole(7), None).unwrap());
    let before = a.losses(ino);
    a.write(ino, 0, b"this is in memory").unwrap();
    stop(&cluster, &wire);
    assert!(b.lock(ino, &whole(7), None).unwrap());
    b.write(ino, 0, &pattern(2, 30_000)).unwrap();
    b.sync(ino).unwrap();
    // It does not know yet.
    a.write(ino, 500, b"and this too").unwrap();
    assert!(!a.has_lost_locks());
    wire.cut.store(false, Ordering::SeqCst);
    let told = a.sync(ino).unwrap_err().to_string();
    assert!(told.contains("lost"), "{told}");
    assert!(a.has_lost_locks());
    assert_eq!((a.take_lost_locks(), a.has_lost_locks()), (vec![(ino, 7)], false));
    // Every opener can find out.
    assert_eq!(a.losses(ino), before + 1);
    a.sync(ino).unwrap();
    for client in [&a, &b] {
        assert!(content(client, ino).unwrap() == pattern(2, 30_000));
    }
    // It is a client like any other.
    assert!(!a.lock(ino, &whole(7), None).unwrap());
    b.unlock(ino, 7, 0, u64::MAX).unwrap();
    assert!(a.lock(ino, &whole(7), None).unwrap());
    a.write(ino, 0, &pattern(3, 30_000)).unwrap();
    a.unlock(ino, 7, 0, u64::MAX).unwrap();
    assert!(content(&b, ino).unwrap() == pattern(3, 30_000));
    [&a, &b].iter().for_each(|client| client.close(ino));
    a.close_volume().unwrap_err();
    b.close_volume().unwrap();
    lab::assert_sound(&cluster.volume());
}

/// A request that was on its way to the server when the client was stopped arrives too late,
/// whatever session the client has by then.
#[test]
fn no_transaction_of_the_old_session_is_accepted_in_the_new_one() {
    let cluster = Cluster::new("rs:2+1", 4);
    let (a, wire, b, ino) = two(&cluster);
    // In memory, and in a stripe that no transaction names.
    for length in [1000, 300_000] {
        let new = pattern(4, length);
        a.write(ino, 0, &pattern(5, length)).unwrap();
        let operation = if length == 1000 { CHANGE_CONTENTS_DURABLY } else { 19 };
        wire.held.store(operation, Ordering::SeqCst);
        let late = std::thread::spawn({
            let a = a.clone();
            move || a.sync(ino)
        });
        until_waiting(&wire);
        stop(&cluster, &wire);
        b.write(ino, 0, &new).unwrap();
        b.sync(ino).unwrap();
        wire.cut.store(false, Ordering::SeqCst);
        cluster.until_clients(2);
        wire.held.store(0, Ordering::SeqCst);
        late.join().unwrap().unwrap_err();
        // It was reported once.
        a.sync(ino).unwrap();
        for client in [&a, &b] {
            assert!(content(client, ino).unwrap()[..length] == new[..], "{length}");
        }
    }
    [&a, &b].iter().for_each(|client| client.close(ino));
    a.close_volume().unwrap_err();
    b.close_volume().unwrap();
    lab::assert_sound(&cluster.volume());
}

/// A write that waited for the server while its program lost the lock must not overwrite what the
/// next holder wrote.
#[test]
fn a_write_that_began_in_the_old_session_fails() {
    let cluster = Cluster::new("rs:2+1", 4);
    let (a, wire, b, ino) = two(&cluster);
    // With the lock, the client drops the size of the file, so that the next write asks the server.
    assert!(a.lock(ino, &whole(7), None).unwrap());
    wire.held.store(ATTRIBUTES, Ordering::SeqCst);
    let late = std::thread::spawn({
        let a = a.clone();
        move || a.write(ino, 0, b"too late")
    });
    until_waiting(&wire);
    stop(&cluster, &wire);
    assert!(b.lock(ino, &whole(7), None).unwrap());
    b.write(ino, 0, &pattern(2, 30_000)).unwrap();
    b.unlock(ino, 7, 0, u64::MAX).unwrap();
    wire.cut.store(false, Ordering::SeqCst);
    cluster.until_clients(2);
    wire.held.store(0, Ordering::SeqCst);
    let told = late.join().unwrap();
    // Nothing was in memory, so only the lock is lost.
    a.sync(ino).unwrap();
    assert!(a.has_lost_locks());
    for client in [&a, &b] {
        assert!(content(client, ino).unwrap() == pattern(2, 30_000));
    }
    assert!(told.is_err());
    [&a, &b].iter().for_each(|client| client.close(ino));
    [a, b].iter().for_each(|client| client.close_volume().unwrap());
    lab::assert_sound(&cluster.volume());
}

/// As a mount does: it checks whether a program has its locks, and everything that follows belongs
/// to the session of that moment.
#[test]
fn nothing_of_work_that_began_in_the_old_session_is_done_in_the_new_one() {
    let cluster = Cluster::new("rs:2+1", 4);
    let (a, wire, b, ino) = two(&cluster);
    assert!(a.lock(ino, &whole(7), None).unwrap());
    a.in_this_session(|| {
        assert!(!a.has_lost_locks());
        // Another client is another process; here, it is a thread.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                stop(&cluster, &wire);
                assert!(b.lock(ino, &whole(7), None).unwrap());
                b.write(ino, 0, &pattern(2, 30_000)).unwrap();
                b.unlock(ino, 7, 0, u64::MAX).unwrap();
                wire.cut.store(false, Ordering::SeqCst);
            });
        });
        lab::within(300, {
            let a = a.clone();
            move || {
                while !a.has_lost_locks() {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            }
        });
        a.write(ino, 0, b"too late").unwrap_err();
        a.append(ino, b"too late").unwrap_err();
        a.set_attributes(ino, SetAttributes { size: Some(5), ..SetAttributes::default() }).unwrap_err();
        for how in [Allocate::Grow, Allocate::PunchHole, Allocate::Zero] {
            a.allocate(ino, how, 0, 40_000).unwrap_err();
        }
        a.copy_range((ino, 0), (ino, 20_000), 5).unwrap_err();
    });
    // The current session accepts nothing either until everything was dropped.
    lab::within(300, {
        let a = a.clone();
        move || {
            while a.write(ino, 30_000, b"in time").is_err() {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
    });
    a.sync(ino).unwrap();
    for client in [&a, &b] {
        assert!(content(client, ino).unwrap() == [&pattern(2, 30_000)[..], b"in time"].concat());
    }
}

/// A reservation of the old session belongs to another client in the new one.
#[test]
fn an_append_that_reserved_its_place_too_early_fails() {
    let cluster = Cluster::new("rs:2+1", 4);
    let (a, wire, b, ino) = two(&cluster);
    a.append(ino, &[7; 1000]).unwrap();
    wire.held.store(RESERVE, Ordering::SeqCst);
    let late = std::thread::spawn({
        let a = a.clone();
        move || a.append(ino, &[8; 1000])
    });
    stop(&cluster, &wire);
    b.append(ino, &[9; 500]).unwrap();
    b.sync(ino).unwrap();
    wire.cut.store(false, Ordering::SeqCst);
    cluster.until_clients(2);
    wire.held.store(0, Ordering::SeqCst);
    late.join().unwrap().unwrap_err();
    a.append(ino, &[6; 10]).unwrap();
    a.sync(ino).unwrap_err();
    a.sync(ino).unwrap();
    // Dropped data leaves gaps, because others may have reservations behind it.
    let found = content(&b, ino).unwrap();
    let written: Vec<u8> = found[30_000..].iter().copied().filter(|&byte| byte != 0).collect();
    assert!(found.starts_with(&pattern(1, 30_000)) && written == [&[9; 500][..], &[6; 10]].concat());
}

/// A file that is open twice, or about to be, while the session ends: the next session knows how
/// often it is open, so that others ask its client for what it writes.
#[test]
fn an_open_or_a_close_that_is_under_way_when_the_session_ends_is_counted_once() {
    let cluster = Cluster::new("rs:2+1", 4);
    let (a, wire, b, ino) = two(&cluster);
    for operation in [CLOSE, OPEN] {
        // Now and after the operation, it is open.
        if operation == CLOSE {
            a.open(ino, true).unwrap();
        } else {
            a.close(ino);
        }
        wire.held.store(operation, Ordering::SeqCst);
        let late = std::thread::spawn({
            let a = a.clone();
            move || if operation == CLOSE { a.close(ino) } else { a.open(ino, true).unwrap() }
        });
        until_waiting(&wire);
        stop(&cluster, &wire);
        wire.cut.store(false, Ordering::SeqCst);
        cluster.until_clients(2);
        wire.held.store(0, Ordering::SeqCst);
        late.join().unwrap();
        for round in 0..3 {
            let new = pattern(3 + 3 * u64::from(operation) + round, 30_000);
            a.write(ino, 0, &new).unwrap();
            b.open(ino, false).unwrap();
            assert!(content(&b, ino).unwrap() == new, "{operation}, {round}");
            b.close(ino);
        }
    }
    [&a, &b].iter().for_each(|client| client.close(ino));
    assert!(!cluster.has_open(ino));
    [a, b].iter().for_each(|client| client.close_volume().unwrap());
    lab::assert_sound(&cluster.volume());
}

/// Waits until the first client has dropped what belonged to its old session.
fn until_fenced(a: &Arc<FileSystem>) {
    let a = a.clone();
    lab::within(300, move || {
        while a.fences() == 0 || a.attributes(ROOT).is_err() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    });
}

/// What a bulk load still sends when its session has ended is refused. The next one is like any
/// other.
#[test]
fn a_bulk_load_ends_with_its_session() {
    let cluster = Cluster::new("rs:2+1", 4);
    let (a, wire, b, ino) = two(&cluster);
    let first = a.new_inos(3).unwrap();
    let begin = |load: &mut fs::BulkLoad<'_>, number: u64, name: &str, data: &[u8]| {
        let (size, now) = (data.len() as u64, fs::Time::default());
        let about = fs::manifest::File { path: name.into(), size, mode: 0o600, uid: 1, gid: 2, modified: now };
        load.begin(first.plus(number), about);
        if !data.is_empty() {
            let put = |into: &mut [u8]| {
                into.copy_from_slice(data);
                Ok::<usize, fs::Error>(data.len())
            };
            load.add(0, data.len(), put).unwrap();
        }
        load.finish(fs::BulkFile {
            ino: first.plus(number),
            parent: ROOT,
            name: name.into(),
            new: new(FileKind::File),
            size,
            accessed: now,
            modified: now,
            changed: now,
            extents: Vec::new(),
            attributes: Vec::new(),
        });
    };
    let (mut with, mut without) = (a.bulk_load().unwrap(), a.bulk_load().unwrap());
    begin(&mut with, 0, "with", &pattern(2, 5000));
    begin(&mut without, 1, "without", b"");
    stop(&cluster, &wire);
    wire.cut.store(false, Ordering::SeqCst);
    until_fenced(&a);
    for load in [&mut with, &mut without] {
        load.commit().unwrap_err();
        assert!(load.is_empty() && load.bytes() == 0);
    }
    assert!(["with", "without"].iter().all(|name| b.lookup(ROOT, name.as_bytes()).is_err()));
    begin(&mut with, 2, "new", &pattern(3, 5000));
    with.commit().unwrap();
    let new = b.lookup(ROOT, b"new").unwrap().ino;
    assert!(content(&b, new).unwrap() == pattern(3, 5000));
    drop((with, without));
    [&a, &b].iter().for_each(|client| client.close(ino));
    [a, b].iter().for_each(|client| client.close_volume().unwrap());
    lab::assert_sound(&cluster.volume());
}

/// Many programs replace a file by a new one and do not look at what `close` says.
#[test]
fn a_file_that_lost_content_does_not_replace_another_one_unnoticed() {
    let cluster = Cluster::new("rs:2+1", 4);
    let (a, wire, b, file) = two(&cluster);
    let [renamed, synced, rewritten] = ["renamed", "synced", "rewritten"].map(|name| {
        let ino = make(&a, name);
        a.open(ino, true).unwrap();
        a.write(ino, 0, &pattern(2, 500)).unwrap();
        ino
    });
    stop(&cluster, &wire);
    wire.cut.store(false, Ordering::SeqCst);
    lab::within(300, {
        let a = a.clone();
        move || {
            while a.losses(rewritten) == 0 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
    });
    until_fenced(&a);
    for ino in [renamed, rewritten] {
        a.check_loss_at_close(ino).unwrap_err();
    }
    let replace = |name: &str| a.rename((ROOT, name.as_bytes()), (ROOT, b"file"), RenameMode::Replace);
    replace("renamed").unwrap_err();
    assert_eq!(b.lookup(ROOT, b"file").unwrap().ino, file);
    assert!(content(&b, file).unwrap() == pattern(1, 30_000));
    // The loss was reported. A file whose loss a sync reported, or that was rewritten, may replace
    // others.
    replace("renamed").unwrap();
    a.sync(synced).unwrap_err();
    replace("synced").unwrap();
    a.set_attributes(rewritten, SetAttributes { size: Some(0), ..SetAttributes::default() }).unwrap();
    a.write(rewritten, 0, &pattern(3, 700)).unwrap();
    replace("rewritten").unwrap();
    assert_eq!(b.lookup(ROOT, b"file").unwrap().ino, rewritten);
    assert!(content(&b, rewritten).unwrap() == pattern(3, 700));
    [renamed, synced, rewritten, file].iter().for_each(|&ino| a.close(ino));
    b.close(file);
    a.close_volume().unwrap_err();
    b.close_volume().unwrap();
}

/// Changes of names and attributes that waited for the server while the session ended.
#[test]
fn no_change_of_names_that_began_in_the_old_session_is_made_in_the_new_one() {
    type Work = fn(&FileSystem, Ino) -> fs::Result<()>;
    const MODE: SetAttributes = SetAttributes {
        mode: Some(0o4711),
        uid: None,
        gid: None,
        size: None,
        just_opened: false,
        accessed: None,
        modified: None,
        changed: None,
        created: None,
    };
    let works: [(&str, Work); 9] = [
        ("make", |a, _| a.make(ROOT, b"made", &new(FileKind::File)).map(drop)),
        ("link", |a, ino| a.link(ino, ROOT, b"linked").map(drop)),
        ("unlink", |a, _| a.unlink(ROOT, b"doomed")),
        ("remove a directory", |a, _| a.remove_directory(ROOT, b"directory")),
        ("rename", |a, _| a.rename((ROOT, b"old"), (ROOT, b"new"), RenameMode::Replace)),
        ("set attributes", |a, ino| a.set_attributes(ino, SetAttributes { mode: Some(0o600), ..MODE }).map(drop)),
        ("take privileges", |a, ino| a.take_privileges(ino).map(drop)),
        ("set an attribute", |a, ino| a.set_attribute(ino, b"user.new", b"1", None)),
        ("remove an attribute", |a, ino| a.remove_attribute(ino, b"user.old")),
    ];
    let cluster = Cluster::new("rs:2+1", 4);
    let (a, wire, b, ino) = two(&cluster);
    ["doomed", "old", "new"].iter().for_each(|name| _ = make(&a, name));
    a.make(ROOT, b"directory", &new(FileKind::Directory)).unwrap();
    a.set_attribute(ino, b"user.old", b"1", None).unwrap();
    a.set_attributes(ino, MODE).unwrap();
    let seen = |by: &FileSystem| (by.list(ROOT, 0, 100).unwrap(), by.attribute_names(ino).unwrap());
    let before = seen(&b);
    let asked = |wire: &Wire| NAMES_AND_ATTRIBUTES.iter().map(|&operation| wire.asked(operation)).sum::<u32>();
    let first = asked(&wire);
    wire.cut.store(true, Ordering::SeqCst);
    let late = works.map(|(what, work)| {
        let a = a.clone();
        (what, std::thread::spawn(move || work(&a, ino)))
    });
    lab::within(300, {
        let wire = wire.clone();
        move || {
            while asked(&wire) < first + works.len() as u32 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
    });
    stop(&cluster, &wire);
    wire.cut.store(false, Ordering::SeqCst);
    for (what, done) in late {
        assert!(done.join().unwrap().is_err(), "{what}");
    }
    assert_eq!(seen(&b), before);
    // The new session is one like any other.
    cluster.until_clients(2);
    a.rename((ROOT, b"old"), (ROOT, b"new"), RenameMode::Replace).unwrap();
    assert_eq!(seen(&a), seen(&b));
    [&a, &b].iter().for_each(|client| client.close(ino));
    [a, b].iter().for_each(|client| client.close_volume().unwrap());
    lab::assert_sound(&cluster.volume());
}

//! The exclusive lease: the only client of a volume caches what it reads, and drops it when other
//! clients join.

use crate::lab;
use crate::lab::cluster::{Cluster, lock};
use crate::lab::{content, make, new, pattern};
use fs::{FileKind, FileSystem, ROOT, RenameMode, SetAttributes};
use plan::Ino;
use session::port::{ATTRIBUTES, EXTENTS, LOOKUP};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Waits until a client gets or loses the exclusive lease.
fn until_alone(client: &FileSystem, alone: bool) {
    let begun = Instant::now();
    while client.valid_for().is_zero() == alone {
        assert!(begun.elapsed() < Duration::from_secs(300), "within five minutes");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("file-{number}")).collect()
}

#[test]
fn a_client_that_is_alone_asks_once_and_sees_its_own_changes() {
    let cluster = Cluster::new("rs:4+2", 6);
    let names = names(500);
    let inos: Vec<Ino> = {
        let first = cluster.client("first");
        let inos = names.iter().map(|name| make(&first, name)).collect();
        first.close_volume().unwrap();
        inos
    };
    let (client, wire) = cluster.wired_client("a");
    until_alone(&client, true);
    for name in &names {
        client.lookup(ROOT, name.as_bytes()).unwrap();
    }
    assert!(wire.asked(LOOKUP) < 100, "{} questions for 500 names: the directory is read", wire.asked(LOOKUP));
    let before = wire.asked(LOOKUP) + wire.asked(ATTRIBUTES);
    for (name, ino) in names.iter().zip(&inos) {
        assert_eq!(client.lookup(ROOT, name.as_bytes()).unwrap().ino, *ino);
        assert_eq!(client.attributes(*ino).unwrap().ino, *ino);
    }
    // A pause of the machine may have emptied the cache.
    assert!(wire.asked(LOOKUP) + wire.asked(ATTRIBUTES) - before < 300, "known names are not asked for");

    // A client sees its own changes.
    let bytes = pattern(1, 3_000_000);
    client.open(inos[0], true).unwrap();
    client.write(inos[0], 0, &bytes).unwrap();
    client.sync(inos[0]).unwrap();
    assert_eq!(client.attributes(inos[0]).unwrap().size, bytes.len() as u64);
    assert!(content(&client, inos[0]).unwrap() == bytes);
    client.unlink(ROOT, names[1].as_bytes()).unwrap();
    assert!(client.lookup(ROOT, names[1].as_bytes()).is_err());
    assert_eq!(make(&client, &names[1]), client.lookup(ROOT, names[1].as_bytes()).unwrap().ino);
    assert!(client.lookup(ROOT, b"linked").is_err());
    client.link(inos[2], ROOT, b"linked").unwrap();
    assert_eq!(client.lookup(ROOT, b"linked").unwrap().links, 2);
    assert_eq!(client.lookup(ROOT, names[2].as_bytes()).unwrap().links, 2);
    client.rename((ROOT, names[3].as_bytes()), (ROOT, names[4].as_bytes()), RenameMode::Replace).unwrap();
    assert_eq!(client.lookup(ROOT, names[4].as_bytes()).unwrap().ino, inos[3]);
    assert!(client.lookup(ROOT, names[3].as_bytes()).is_err());

    // Random reads request extents for whole windows. Reads return what was written in between.
    let before = wire.asked(EXTENTS);
    let mut expected = bytes;
    for at in 0..400 {
        let offset = at * 7_000 % 2_900_000;
        if at % 50 == 20 {
            expected[offset..offset + 100].copy_from_slice(&pattern(at as u64, 100));
            client.write(inos[0], offset as u64, &expected[offset..offset + 100]).unwrap();
            client.sync(inos[0]).unwrap();
        }
        let mut read = [0; 4096];
        assert_eq!(client.read(inos[0], offset as u64, &mut read).unwrap(), read.len());
        assert!(read[..] == expected[offset..offset + 4096], "at {offset}");
    }
    assert!(wire.asked(EXTENTS) - before < 300, "{} questions for 400 reads", wire.asked(EXTENTS) - before);
    client.close(inos[0]);
    client.close_volume().unwrap();
    lab::assert_sound(&cluster.volume());
}

/// Another client changes what this one has cached.
fn change(other: &Arc<FileSystem>) {
    other.unlink(ROOT, b"file-0").unwrap();
    make(other, "new");
    let ino = other.lookup(ROOT, b"file-1").unwrap().ino;
    other.open(ino, true).unwrap();
    other.write(ino, 0, &pattern(2, 1000)).unwrap();
    other.sync(ino).unwrap();
    other.close(ino);
}

fn assert_changed(client: &FileSystem) {
    assert!(client.lookup(ROOT, b"file-0").is_err(), "it was removed");
    client.lookup(ROOT, b"new").expect("it was made");
    let changed = client.lookup(ROOT, b"file-1").unwrap();
    assert_eq!(changed.size, 1000);
    assert_eq!(client.attributes(changed.ino).unwrap().size, 1000);
    client.open(changed.ino, false).unwrap();
    assert!(content(client, changed.ino).unwrap() == pattern(2, 1000));
    client.close(changed.ino);
}

/// Caches a few files, and the absence of one.
fn learn(client: &FileSystem) {
    until_alone(client, true);
    for name in names(5) {
        let known = client.lookup(ROOT, name.as_bytes()).unwrap();
        client.attributes(known.ino).unwrap();
    }
    assert!(client.lookup(ROOT, b"new").is_err());
}

#[test]
fn who_was_alone_sees_what_one_that_joins_changes() {
    let cluster = Cluster::new("rs:2+1", 4);
    let first = cluster.client("first");
    names(5).iter().for_each(|name| _ = make(&first, name));
    learn(&first);
    let second = cluster.client("second");
    change(&second);
    assert_changed(&first);
    // The only client again: it caches again.
    second.close_volume().unwrap();
    drop(second);
    until_alone(&first, true);
    assert_changed(&first);
    first.close_volume().unwrap();
    lab::assert_sound(&cluster.volume());
}

/// The client does not learn that others join: a joining client waits until the lease is over.
#[test]
fn who_is_cut_off_believes_nothing_by_the_time_that_others_change_it() {
    let cluster = Cluster::new("rs:2+1", 4);
    let (first, wire) = cluster.wired_client("first");
    names(5).iter().for_each(|name| _ = make(&first, name));
    learn(&first);
    wire.cut.store(true, Ordering::SeqCst);
    let second = cluster.client("second");
    change(&second);
    assert!(first.valid_for().is_zero(), "it does not believe to be alone");
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| assert_changed(&first));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!looks.is_finished(), "it asks");
        wire.cut.store(false, Ordering::SeqCst);
        looks.join().unwrap();
    });
    first.close_volume().unwrap();
    second.close_volume().unwrap();
}

/// A restarted server does not know who has the exclusive lease: the first client after a restart
/// waits for clients that may have it.
#[test]
fn who_comes_after_a_restart_of_the_server_waits_for_those_who_believe_to_be_alone() {
    let cluster = Cluster::new("rs:2+1", 4);
    let (first, wire) = cluster.wired_client("first");
    names(5).iter().for_each(|name| _ = make(&first, name));
    let root = first.attributes(ROOT).unwrap().ino;
    first.sync_all().unwrap();
    assert_eq!(root, ROOT);
    learn(&first);
    wire.cut.store(true, Ordering::SeqCst);
    cluster.kill();
    cluster.start();
    let second = cluster.client("second");
    change(&second);
    assert!(first.valid_for().is_zero(), "it does not believe to be alone");
    wire.cut.store(false, Ordering::SeqCst);
    assert_changed(&first);
    first.close_volume().unwrap();
    second.close_volume().unwrap();
    assert!(lock(&cluster.server).is_some());
}

/// Whatever the client does, it sees what the server has.
#[test]
fn what_a_client_keeps_in_mind_is_what_the_server_has() {
    let cluster = Cluster::new("rs:2+1", 4);
    let (client, server) = (cluster.client("a"), cluster.volume());
    until_alone(&client, true);
    let seed = std::env::var("WEFT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("WEFT_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let directories = [ROOT, client.make(ROOT, b"one", &new(FileKind::Directory)).unwrap().ino];
    let name = |random: &mut fastrand::Rng| (directories[random.usize(..2)], format!("n{}", random.u8(..14)));
    for step in 0..1500 {
        let ((parent, from), (to_parent, to)) = (name(&mut random), name(&mut random));
        let found = client.lookup(parent, from.as_bytes());
        // An operation may fail, but then the server has refused it.
        match (random.u8(..9), found) {
            (0 | 1, Err(_)) => _ = client.make(parent, from.as_bytes(), &new(FileKind::File)).unwrap(),
            (2, Err(_)) => _ = client.make(parent, from.as_bytes(), &new(FileKind::Directory)).unwrap(),
            (3, Ok(file)) if file.kind == FileKind::File => client.unlink(parent, from.as_bytes()).unwrap(),
            (3, Ok(_)) => _ = client.remove_directory(parent, from.as_bytes()),
            (4, Ok(_)) => {
                let modes = [RenameMode::Replace, RenameMode::Exchange, RenameMode::NoReplace];
                let mode = modes[random.usize(..3)];
                let _ = client.rename((parent, from.as_bytes()), (to_parent, to.as_bytes()), mode);
            }
            (5, Ok(file)) => _ = client.link(file.ino, to_parent, to.as_bytes()),
            (6, Ok(file)) if file.kind == FileKind::File => {
                client.open(file.ino, true).unwrap();
                client.write(file.ino, random.u64(..100_000), &pattern(seed, random.usize(1..5000))).unwrap();
                client.sync(file.ino).unwrap();
                client.close(file.ino);
            }
            (7, Ok(file)) => {
                let size = (file.kind == FileKind::File).then(|| random.u64(..50_000));
                let set = SetAttributes { mode: Some(random.u32(..0o777)), size, ..SetAttributes::default() };
                client.set_attributes(file.ino, set).unwrap();
                client.sync_all().unwrap();
            }
            (8, Ok(file)) => client.set_attribute(file.ino, b"user.x", &[step as u8], None).unwrap(),
            (_, found) => {
                let listed = client.list(parent, 0, 100).unwrap();
                let listed = listed.iter().find(|entry| entry.name == from.as_bytes());
                assert_eq!(listed.map(|entry| entry.attributes), found.ok(), "step {step}");
            }
        }
        let (parent, looked_up) = name(&mut random);
        for (parent, name) in [(parent, &looked_up), (parent, &from), (to_parent, &to)] {
            let (seen, there) = (client.lookup(parent, name.as_bytes()), server.lookup(parent, name.as_bytes()));
            assert_eq!(seen.as_ref().ok(), there.as_ref().ok(), "step {step}: {name} in {parent}");
            let Ok(file) = seen else { continue };
            assert_eq!(client.attributes(file.ino).unwrap(), server.attributes(file.ino).unwrap(), "step {step}");
        }
        assert_eq!(client.attributes(parent).unwrap(), server.attributes(parent).unwrap(), "step {step}: {parent}");
    }
    client.close_volume().unwrap();
    lab::assert_sound(&cluster.volume());
}

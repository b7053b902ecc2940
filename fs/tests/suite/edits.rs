//! Changes of content that other clients see at once, and changes that fail.

use crate::lab;
use crate::lab::cluster::Cluster;
use crate::lab::{content, make, pattern};
use fs::{Allocate, FileSystem, ROOT, SetAttributes};
use plan::Ino;
use session::port::CHANGE_CONTENT;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// See the table of operations.
const NEW_SETS: u16 = 67;

fn truncate(client: &FileSystem, ino: Ino, size: u64) -> fs::Result<()> {
    client.set_attributes(ino, SetAttributes { size: Some(size), ..SetAttributes::default() }).map(drop)
}

/// The write of the data succeeded, so a change that fails must not lose it.
#[test]
fn what_was_written_stays_when_a_change_of_the_file_fails() {
    type AttributeChange = fn(&FileSystem, Ino, Ino) -> fs::Result<()>;
    let changes: [(&str, AttributeChange); 6] = [
        ("truncate", |client, ino, _| truncate(client, ino, 1000)),
        ("truncate to nothing", |client, ino, _| truncate(client, ino, 0)),
        ("extend", |client, ino, _| truncate(client, ino, 1_000_000)),
        ("punch", |client, ino, _| client.allocate(ino, Allocate::PunchHole, 1000, 50_000)),
        ("zero", |client, ino, _| client.allocate(ino, Allocate::Zero, 1000, 500_000)),
        ("copy", |client, ino, source| client.copy_range((source, 0), (ino, 1000), 50_000).map(drop)),
    ];
    let cluster = Cluster::new("rs:4+2", 6);
    let (client, wire) = cluster.wired_client("a");
    let source = make(&client, "source");
    client.write(source, 0, &pattern(9, 50_000)).unwrap();
    client.sync(source).unwrap();
    for (number, (name, change)) in (1..).zip(changes) {
        let ino = make(&client, name);
        client.open(ino, true).unwrap();
        let bytes = pattern(number, 200_000);
        client.write(ino, 0, &bytes).unwrap();
        wire.refused.store(CHANGE_CONTENT, Ordering::SeqCst);
        change(&client, ino, source).unwrap_err();
        wire.refused.store(0, Ordering::SeqCst);
        assert_eq!(client.attributes(ino).unwrap().size, 200_000, "{name}");
        assert!(content(&client, ino).unwrap() == bytes, "{name}");
        client.sync(ino).unwrap();
        let other = cluster.client("b");
        assert!(content(&other, ino).unwrap() == bytes, "{name}");
        other.close_volume().unwrap();
        // The change can be repeated.
        change(&client, ino, source).unwrap();
        client.close(ino);
    }
    client.close_volume().unwrap();
    lab::assert_sound(&cluster.volume());
}

/// One client rewrites a file again and again, like an editor that truncates it, while another one
/// reads it. No client ever writes a zero.
#[test]
fn a_file_that_is_made_anew_shows_no_zeroes_to_readers() {
    let cluster = Cluster::new("rs:2+1", 4);
    let (writer, reader) = (cluster.client("a"), cluster.client("b"));
    let ino = make(&writer, "file");
    let bytes = vec![7; 300_000];
    writer.open(ino, true).unwrap();
    writer.write(ino, 0, &bytes).unwrap();
    writer.sync(ino).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let begun = Instant::now();
            for round in 0.. {
                truncate(&writer, ino, if round % 3 == 0 { 1234 } else { 0 }).unwrap();
                for (at, part) in bytes.chunks(30_000).enumerate() {
                    writer.write(ino, at as u64 * 30_000, part).unwrap();
                }
                if round % 2 == 0 {
                    writer.sync(ino).unwrap();
                }
                if begun.elapsed() > Duration::from_secs(3) {
                    break;
                }
            }
            stop.store(true, Ordering::SeqCst);
        });
        let mut into = vec![0; 400_000];
        while !stop.load(Ordering::SeqCst) {
            reader.open(ino, false).unwrap();
            for _ in 0..3 {
                let size = reader.attributes(ino).unwrap().size;
                for at in [0, 100_000] {
                    let read = reader.read(ino, at, &mut into).unwrap();
                    let zero = into[..read].iter().position(|&byte| byte != 7);
                    assert_eq!(zero, None, "of {read} bytes read at {at}, the file was {size} long");
                }
            }
            reader.close(ino);
        }
    });
    writer.close(ino);
}

/// A request that waits for the server delays no other operation that needs no request, or another
/// one, not even on the same file.
#[test]
fn who_waits_for_the_server_holds_nobody_up() {
    type AttributeChange = fn(&FileSystem, Ino) -> fs::Result<()>;
    // The operation that gets no answer, and the call that sends it.
    let changes: [(u16, AttributeChange); 5] = [
        (13, |client, _| client.unlink(ROOT, b"file")),
        (15, |client, _| client.rename((ROOT, b"new"), (ROOT, b"file"), fs::RenameMode::Replace)),
        (12, |client, ino| client.link(ino, ROOT, b"link").map(drop)),
        (CHANGE_CONTENT, |client, ino| truncate(client, ino, 150_000)),
        // Data goes to a new chunk set, because the one before is full.
        (NEW_SETS, |client, ino| {
            for _ in 0..10 {
                client.write(ino, 0, &pattern(5, 9_000_000))?;
                client.sync(ino)?;
            }
            Ok(())
        }),
    ];
    for (operation, change) in changes {
        let cluster = Cluster::new("rs:2+1", 4);
        let (client, wire) = cluster.wired_client("a");
        let [file, other, new] = ["file", "other", "new"].map(|name| make(&client, name));
        for ino in [file, other, new] {
            client.open(ino, true).unwrap();
            client.write(ino, 0, &pattern(ino.0, 200_000)).unwrap();
            client.sync(ino).unwrap();
        }
        wire.held.store(operation, Ordering::SeqCst);
        let waits = std::thread::spawn({
            let client = client.clone();
            move || change(&client, file)
        });
        lab::within(300, {
            let (client, wire) = (client.clone(), wire.clone());
            move || {
                while wire.waiting.load(Ordering::SeqCst) == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                assert!(content(&client, other).unwrap() == pattern(other.0, 200_000));
                client.attributes(file).unwrap();
                client.read(file, 0, &mut [0; 100]).unwrap();
                // Little enough for the metadata itself.
                client.write(other, 0, b"more").unwrap();
                client.sync(other).unwrap();
                client.open(other, false).unwrap();
                client.close(other);
            }
        });
        wire.held.store(0, Ordering::SeqCst);
        waits.join().unwrap().unwrap();
        [file, other, new].iter().for_each(|&ino| client.close(ino));
        client.close_volume().unwrap();
        lab::assert_sound(&cluster.volume());
    }
}

//! The metadata server killed and started again, clients killed, and several clients at the same
//! files.

use crate::lab::{Cluster, WAIT_TIMEOUT, free_port, possible};
use crate::scratch::{noise, run, weft};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Makes new files until `stop`, each of which no other thread makes; returns how many, and how
/// long one took at most.
fn make_new(point: &Path, stop: &AtomicBool) -> (usize, Duration) {
    let mut longest = Duration::ZERO;
    for number in 0.. {
        if stop.load(Ordering::SeqCst) {
            return (number, longest);
        }
        let begun = Instant::now();
        let made = OpenOptions::new().write(true).create_new(true).open(point.join(format!("new{number}")));
        made.unwrap_or_else(|why| panic!("new{number}: {why}"));
        longest = longest.max(begun.elapsed());
    }
    unreachable!()
}

/// Gives a file one name after the other until `stop`; returns the last.
fn rename_on(point: &Path, stop: &AtomicBool) -> usize {
    fs::write(point.join("chain0"), "chain").unwrap();
    for number in 0.. {
        if stop.load(Ordering::SeqCst) {
            return number;
        }
        let (from, to) = (point.join(format!("chain{number}")), point.join(format!("chain{}", number + 1)));
        fs::rename(from, to).unwrap_or_else(|why| panic!("chain{number}: {why}"));
    }
    unreachable!()
}

/// Makes and removes a file until `stop`.
fn come_and_go(point: &Path, stop: &AtomicBool) {
    let (file, directory, link) = (point.join("comes"), point.join("directory"), point.join("link"));
    fs::write(&file, "x").unwrap();
    while !stop.load(Ordering::SeqCst) {
        fs::hard_link(&file, &link).unwrap_or_else(|why| panic!("link: {why}"));
        fs::create_dir(&directory).unwrap_or_else(|why| panic!("mkdir: {why}"));
        fs::remove_file(&link).unwrap_or_else(|why| panic!("unlink: {why}"));
        fs::remove_dir(&directory).unwrap_or_else(|why| panic!("rmdir: {why}"));
    }
}

/// Appends numbered records, each synced, until `stop`; returns how many.
fn append_records(path: &Path, who: u8, stop: &AtomicBool) -> u32 {
    let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
    for number in 0.. {
        if stop.load(Ordering::SeqCst) {
            return number;
        }
        file.write_all(&record(who, number)).unwrap_or_else(|why| panic!("record {number} of {who}: {why}"));
        file.sync_all().unwrap_or_else(|why| panic!("sync of record {number} of {who}: {why}"));
    }
    unreachable!()
}

/// A record of 100 to 1000 bytes: a line that says who wrote it, and its length.
pub fn record(who: u8, number: u32) -> Vec<u8> {
    let length = 100 + (number as usize * 37 + usize::from(who)) % 900;
    let mut record = format!("{who} {number} {length} ").into_bytes();
    record.resize(length - 1, b'a' + who);
    record.push(b'\n');
    record
}

/// All records are there, whole, in the order of each writer, once.
#[track_caller]
pub fn are_whole(log: &[u8], written: &[(u8, u32)]) {
    let mut next = vec![0; written.len()];
    for line in log.split_inclusive(|&byte| byte == b'\n') {
        let text = String::from_utf8_lossy(line);
        let numbers: Vec<u32> = text.split(' ').take(2).filter_map(|word| word.parse().ok()).collect();
        let at = numbers.first().and_then(|&who| written.iter().position(|&(writer, _)| u32::from(writer) == who));
        let shown: String = text.escape_debug().take(60).collect();
        let at = at.unwrap_or_else(|| panic!("no record: {} bytes, {shown}", line.len()));
        assert_eq!(numbers[1], next[at], "of writer {}: {shown}", written[at].0);
        assert!(line == record(written[at].0, numbers[1]), "{shown}");
        next[at] += 1;
    }
    let expected: Vec<u32> = written.iter().map(|&(_, count)| count).collect();
    assert_eq!(next, expected, "records of each writer");
}

#[test]
fn the_metadata_server_is_killed_and_clients_go_on() {
    if !possible("the_metadata_server_is_killed_and_clients_go_on") {
        return;
    }
    let cluster = Cluster::new("rs:4+2", 6);
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    for name in ["new", "chain", "comes"] {
        fs::create_dir(a.at(name)).unwrap();
    }
    let stop = AtomicBool::new(false);
    let (made, named, appended, longest) = std::thread::scope(|scope| {
        let new = scope.spawn(|| make_new(&a.at("new"), &stop));
        let chain = scope.spawn(|| rename_on(&b.at("chain"), &stop));
        let comes = scope.spawn(|| come_and_go(&b.at("comes"), &stop));
        let log = scope.spawn(|| append_records(&a.at("log"), 1, &stop));
        for pause in [700, 3000, 0] {
            sleep(Duration::from_millis(1200));
            cluster.meta.kill();
            sleep(Duration::from_millis(pause));
            cluster.meta.start();
        }
        sleep(Duration::from_millis(1500));
        stop.store(true, Ordering::SeqCst);
        let all = (new.join(), chain.join(), log.join(), comes.join());
        let (made, longest) = all.0.unwrap();
        all.3.unwrap();
        (made, all.1.unwrap(), all.2.unwrap(), longest)
    });
    eprintln!("{made} files made, at most {longest:.2?} each; {named} names, {appended} records");
    assert!(longest < Duration::from_secs(120), "{longest:?}");
    for mount in [&a, &b, &cluster.mount("fresh")] {
        let mut names: Vec<String> = list(&mount.at("new"));
        names.sort_by_key(|name| name[3..].parse::<usize>().unwrap());
        let expected: Vec<String> = (0..made).map(|number| format!("new{number}")).collect();
        let lost: Vec<&String> = expected.iter().filter(|name| !names.contains(name)).collect();
        assert!(lost.is_empty(), "{} of {made} files are lost: {:?}", lost.len(), &lost[..lost.len().min(10)]);
        assert_eq!(list(&mount.at("chain")), [format!("chain{named}")]);
        are_whole(&fs::read(mount.at("log")).unwrap(), &[(1, appended)]);
    }
    a.unmount();
    b.unmount();
    cluster.heal();
}

fn list(directory: &Path) -> Vec<String> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_client_is_killed_and_what_it_had_is_taken_back() {
    if !possible("a_client_is_killed_and_what_it_had_is_taken_back") {
        return;
    }
    let cluster = Cluster::with("rs:4+2", 6, &["--lease", "10"]);
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    fs::write(a.at("synced"), noise(5_000_000)).unwrap();
    File::open(a.at("synced")).unwrap().sync_all().unwrap();
    // Open without a name, and data that nothing names.
    let mut orphan = File::create(a.at("orphan")).unwrap();
    orphan.write_all(&noise(40_000_000)).unwrap();
    orphan.sync_all().unwrap();
    fs::remove_file(a.at("orphan")).unwrap();
    let mut lost = File::create(a.at("lost")).unwrap();
    lost.write_all(&noise(20_000_000)).unwrap();
    let used = || cluster.stores.iter().enumerate().map(|(n, _)| disk_bytes(&cluster, n)).sum::<u64>();
    let before = used();
    a.kill();
    let begun = Instant::now();
    // The other one goes on, also at the same file.
    fs::write(b.at("other"), noise(3_000_000)).unwrap();
    let _ = fs::read(b.at("lost")).unwrap();
    let waited = begun.elapsed();
    fs::write(b.at("lost"), noise(100)).unwrap();
    assert!(fs::read(b.at("lost")).unwrap() == noise(100));
    assert!(fs::read(b.at("synced")).unwrap() == noise(5_000_000));
    while used() + 55_000_000 > before {
        let left = begun.elapsed();
        assert!(left < WAIT_TIMEOUT, "{} bytes of {before} are left after {left:?}", used());
        sleep(Duration::from_millis(100));
    }
    eprintln!("the other client waited {waited:.2?}; the room is free after {:.2?}", begun.elapsed());
    assert!(waited < Duration::from_secs(60), "{waited:?}");
    assert!(cluster.meta.log().contains("is gone: its session ends"), "{}", cluster.meta.log());
    drop(a);
    let again = cluster.mount("a");
    assert!(fs::read(again.at("synced")).unwrap() == noise(5_000_000));
    assert_eq!(list(&again.point).into_iter().collect::<BTreeSet<_>>().len(), 3);
    again.unmount();
    b.unmount();
    cluster.heal();
    cluster.is_healthy();
}

/// What is allocated on the disk of a store for chunks.
fn disk_bytes(cluster: &Cluster, store: usize) -> u64 {
    fn below(path: &Path) -> u64 {
        let Ok(entries) = fs::read_dir(path) else { return 0 };
        let size = |entry: fs::DirEntry| match entry.metadata() {
            Ok(found) if found.is_dir() => below(&entry.path()),
            Ok(found) => found.blocks() * 512,
            Err(_) => 0,
        };
        entries.flatten().map(size).sum()
    }
    below(&cluster.scratch.path.join(format!("disk{store}/chunks")))
}

#[test]
fn appends_of_two_mounts_do_not_meet() {
    if !possible("appends_of_two_mounts_do_not_meet") {
        return;
    }
    let cluster = Cluster::new("rs:4+2", 6);
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    let append = |path: &Path, who: u8| {
        let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
        for number in 0..300 {
            file.write_all(&record(who, number)).unwrap();
        }
    };
    std::thread::scope(|scope| {
        for (who, mount) in [(1, &a), (2, &b), (3, &a)] {
            scope.spawn(move || append(&mount.at("log"), who));
        }
    });
    let begun = Instant::now();
    for mount in [&a, &b] {
        are_whole(&fs::read(mount.at("log")).unwrap(), &[(1, 300), (2, 300), (3, 300)]);
    }
    // Each has something that the other one asks for, and neither waits for the other before it
    // answers.
    assert!(begun.elapsed() < Duration::from_secs(120), "{:?}", begun.elapsed());
    assert!(!cluster.meta.log().contains("did not commit"), "{}", cluster.meta.log());
    // Names.
    fs::write(a.at("one"), "1").unwrap();
    assert_eq!(fs::read(b.at("one")).unwrap(), b"1");
    fs::rename(a.at("one"), a.at("two")).unwrap();
    assert!(!b.at("one").exists());
    assert_eq!(fs::read(b.at("two")).unwrap(), b"1");
    fs::remove_file(b.at("two")).unwrap();
    assert!(!a.at("two").exists() && fs::read(a.at("two")).is_err());
    fs::create_dir(b.at("below")).unwrap();
    fs::write(b.at("below/f"), "2").unwrap();
    assert_eq!(list(&a.at("below")), ["f"]);
    fs::rename(b.at("below"), b.at("elsewhere")).unwrap();
    assert!(fs::read(a.at("below/f")).is_err());
    assert_eq!(fs::read(a.at("elsewhere/f")).unwrap(), b"2");
    // A removed file stays for a program that has it open.
    let held = OpenOptions::new().read(true).write(true).open(a.at("elsewhere/f")).unwrap();
    fs::remove_file(b.at("elsewhere/f")).unwrap();
    held.write_all_at(b"34", 1).unwrap();
    held.sync_all().unwrap();
    let mut back = [0; 3];
    held.read_exact_at(&mut back, 0).unwrap();
    assert_eq!(&back, b"234");
    drop(held);
    // Truncation, seen by the other.
    fs::write(a.at("long"), noise(1_000_000)).unwrap();
    assert_eq!(fs::read(b.at("long")).unwrap().len(), 1_000_000);
    OpenOptions::new().write(true).open(b.at("long")).unwrap().set_len(10).unwrap();
    assert!(fs::read(a.at("long")).unwrap() == noise(1_000_000)[..10]);
    // Commands beside mounts.
    let file = cluster.scratch.file("source", 700_000);
    run(weft().arg("cp").arg(&file).arg(cluster.at("copied"))).good();
    assert!(fs::read(a.at("copied")).unwrap() == noise(700_000));
    assert!(run(weft().arg("cat").arg(cluster.at("long"))).good() == noise(1_000_000)[..10]);
    run(weft().arg("rm").arg(cluster.at("copied"))).good();
    assert!(!b.at("copied").exists());
    a.unmount();
    b.unmount();
    cluster.is_healthy();
}

/// A volume may be given with several addresses, of which one answers: to commands, and to a mount.
#[test]
fn of_several_addresses_one_that_answers_is_enough() {
    let cluster = Cluster::with("rs:2+1", 3, &[]);
    let servers = format!("weft://127.0.0.1:{},[::1]:{},", free_port(), free_port());
    let several = cluster.url().replace("weft://", &servers);
    fs::write(cluster.scratch.path.join("file"), "one is enough").unwrap();
    run(weft().arg("cp").arg(cluster.scratch.path.join("file")).arg(format!("{several}:/"))).good();
    assert_eq!(run(weft().arg("cat").arg(format!("{several}:/file"))).good(), b"one is enough");
    cluster.heal();
    run(weft().arg("status").arg(&several)).good();
    cluster.meta.kill();
    cluster.meta.start();
    assert_eq!(run(weft().arg("cat").arg(format!("{several}:/file"))).good(), b"one is enough");
    cluster.is_healthy();
}

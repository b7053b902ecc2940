//! All servers of a cluster ended together, as at the shutdown of their machines, and all stores
//! away from a metadata server that stays.

use crate::lab::{Cluster, Process, WAIT_TIMEOUT, possible};
use crate::scratch::noise;
use crate::stores::{all_there, write_synced};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The servers are asked to end in this order, without a pause; `stores_first` has the metadata
/// server find none.
fn end_all(cluster: &Cluster, stores_first: bool) -> Duration {
    let begun = Instant::now();
    let end = |process: &Process| assert!(process.ended(WAIT_TIMEOUT), "{}", process.log());
    cluster.stores.iter().for_each(|store| store.signal(Signal::TERM));
    if stores_first {
        cluster.stores.iter().for_each(end);
    }
    cluster.meta.signal(Signal::TERM);
    end(&cluster.meta);
    cluster.stores.iter().for_each(end);
    begun.elapsed()
}

#[test]
fn all_servers_are_ended_at_once_and_end_well() {
    if !possible("all_servers_are_ended_at_once_and_end_well") {
        return;
    }
    let cluster = Cluster::new("rs:4+2", 6);
    let mount = cluster.mount("a");
    let warnings = || cluster.meta.log().matches("cannot be reached: what is not there yet stays in").count();
    let (mut written, mut told, mut round) = (Vec::new(), 0, 0);
    while round < 6 || (told == 0 && round < 30) {
        let (synced, _) = write_synced(&mount.point, &format!("synced{round}-"), &AtomicBool::new(true));
        written.extend(synced);
        // Committed, and on no target yet.
        for number in 0..20 {
            let (name, length) = (format!("closed{round}-{number}"), 10 + 97 * number);
            fs::write(mount.at(&name), noise(length)).unwrap();
            written.push((name, length));
        }
        let (stores_first, before) = (round % 2 == 0, warnings());
        let took = end_all(&cluster, stores_first);
        let more = warnings() - before;
        eprintln!("ended after {took:.2?}, with {more} warnings");
        // It says so once, and only if there is something: on a busy machine all may be on the
        // targets by then.
        assert!(more <= 1, "{}", cluster.meta.log());
        told += usize::from(stores_first && more == 1);
        cluster.stores.iter().for_each(Process::start);
        cluster.meta.start();
        // For up to a second the client does not ask stores again that refused it.
        let begun = Instant::now();
        while written.iter().any(|(name, _)| fs::read(mount.at(name)).is_err()) {
            assert!(begun.elapsed() < WAIT_TIMEOUT, "reads do not go on: {}", mount.log());
            sleep(Duration::from_millis(50));
        }
        all_there(&mount.point, &written);
        round += 1;
    }
    assert!(told > 0, "it never says what is not on the stores that ended before it");
    all_there(&cluster.mount("fresh").point, &written);
    mount.unmount();
    cluster.heal();
    cluster.is_healthy();
}

fn write_file(path: &Path, length: usize) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&noise(length))?;
    file.sync_all()
}

#[test]
fn all_stores_are_killed_and_the_metadata_server_goes_on_when_they_are_back() {
    if possible("all_stores_are_killed_and_the_metadata_server_goes_on_when_they_are_back") {
        kill_all_stores("client");
    }
}

#[test]
fn all_stores_are_killed_and_what_they_coded_is_synced_when_they_are_back() {
    if possible("all_stores_are_killed_and_what_they_coded_is_synced_when_they_are_back") {
        kill_all_stores("server");
    }
}

fn kill_all_stores(coding: &str) {
    let cluster = Cluster::new("rs:4+2", 6);
    let mount = cluster.mount_with("a", &["--coding", coding]);
    let (mut written, _) = write_synced(&mount.point, "old", &AtomicBool::new(true));
    for round in 0..2 {
        // In stripes, and not synced: what the stores have of it survives them.
        let (name, length) = (format!("unsynced{round}"), 20_000_000);
        let mut unsynced = File::create(mount.at(&name)).unwrap();
        unsynced.write_all(&noise(length)).unwrap();
        cluster.stores.iter().for_each(Process::kill);
        assert_eq!(unsynced.sync_all().unwrap_err().raw_os_error(), Some(5));
        // Short, and so a matter of the metadata alone.
        let failed = write_file(&mount.at(format!("lost{round}")), 3000);
        assert_eq!(failed.unwrap_err().raw_os_error(), Some(5));
        sleep(Duration::from_secs(2));
        cluster.stores.iter().for_each(Process::start);
        let begun = Instant::now();
        for (name, length) in [(format!("short{round}"), 3000), (format!("long{round}"), 3_000_000)] {
            while let Err(why) = write_file(&mount.at(&name), length) {
                assert!(begun.elapsed() < WAIT_TIMEOUT, "{name}: {why}: {}", cluster.meta.log());
                sleep(Duration::from_millis(50));
            }
            written.push((name, length));
        }
        while let Err(why) = unsynced.sync_all() {
            assert!(begun.elapsed() < WAIT_TIMEOUT, "{name}: {why}: {}", cluster.meta.log());
            sleep(Duration::from_millis(50));
        }
        written.push((name, length));
        eprintln!("it went on after {:.2?}", begun.elapsed());
    }
    all_there(&mount.point, &written);
    cluster.heal();
    // The new mirrors alone have everything.
    assert!(cluster.meta.end(), "{}", cluster.meta.log());
    cluster.meta.start();
    all_there(&cluster.mount("fresh").point, &written);
    mount.unmount();
    cluster.heal();
    cluster.is_healthy();
}

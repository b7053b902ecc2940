//! Parts of a cluster cut off from each other: packets vanish without an error.

use crate::lab::{Cluster, Mount, WAIT_TIMEOUT};
use crate::network::Network;
use crate::scratch::{noise, run, weft};
use crate::stores::{Load, MAX_WAIT, all_there, drop_caches, under_load, write_synced};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Writes a file and returns when it is durable.
fn write_file(path: &Path, length: usize) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&noise(length))?;
    file.sync_all()
}

/// Does something until it succeeds; returns how long that took.
#[track_caller]
fn until_done<T>(mut attempt: impl FnMut() -> io::Result<T>) -> Duration {
    let begun = Instant::now();
    while let Err(why) = attempt() {
        assert!(begun.elapsed() < WAIT_TIMEOUT, "it does not go on: {why}");
        sleep(Duration::from_millis(50));
    }
    begun.elapsed()
}

/// What a mount knows of itself.
fn status(cluster: &Cluster, mount: &Mount) -> serde_json::Value {
    let mut status = weft();
    run(status.args(["status", "--json"]).arg(&mount.point).env("TMPDIR", &cluster.scratch.path)).json()
}

#[test]
fn two_stores_are_cut_off_during_writes_and_reads_and_nothing_fails() {
    if !Network::possible("two_stores_are_cut_off_during_writes_and_reads_and_nothing_fails") {
        return;
    }
    let cluster = Cluster::networked("rs:4+2", 7, &[]);
    let away = [cluster.machine(1), cluster.machine(4)];
    let files = under_load(&cluster, |load| {
        load.goes_on();
        away.iter().for_each(|&machine| cluster.network().cut(machine));
        load.goes_on();
        // Now everybody knows.
        load.goes_on();
        away.iter().for_each(|&machine| cluster.network().heal(machine));
        load.goes_on();
    });
    cluster.heal();
    cluster.is_healthy();
    // What was cut off is whole again, so that others may be.
    [0, 2].into_iter().for_each(|store| cluster.network().cut(cluster.machine(store)));
    all_there(&cluster.mount("fresh").point, &files);
}

#[test]
fn three_stores_are_cut_off_and_it_goes_on_when_the_links_are_back() {
    if !Network::possible("three_stores_are_cut_off_and_it_goes_on_when_the_links_are_back") {
        return;
    }
    let cluster = Cluster::networked("rs:4+2", 6, &[]);
    let mount = cluster.mount("a");
    let (old, _) = write_synced(&mount.point, "old", &AtomicBool::new(true));
    write_file(&mount.at("big"), 30_000_000).unwrap();
    let away = [0, 2, 5].map(|store| cluster.machine(store));
    away.iter().for_each(|&machine| cluster.network().cut(machine));
    drop_caches();
    let begun = Instant::now();
    let read = fs::read(mount.at("big"));
    let read_after = begun.elapsed();
    let written = write_file(&mount.at("new"), 3_000_000);
    let all_after = begun.elapsed();
    eprintln!("read failed after {read_after:.2?}, write {:.2?} later", all_after - read_after);
    assert_eq!(read.unwrap_err().raw_os_error(), Some(5));
    assert_eq!(written.unwrap_err().raw_os_error(), Some(5));
    assert!(all_after < Duration::from_secs(120), "{all_after:?}");
    away.iter().for_each(|&machine| cluster.network().heal(machine));
    let read = until_done(|| fs::read(mount.at("big")));
    let written = until_done(|| write_file(&mount.at("more"), 3_000_000));
    eprintln!("reads went on after {read:.2?}, writes {written:.2?} later");
    all_there(&mount.point, &old);
    assert!(fs::read(mount.at("big")).unwrap() == noise(30_000_000));
    assert!(fs::read(mount.at("more")).unwrap() == noise(3_000_000));
    mount.unmount();
    cluster.heal();
    all_there(&cluster.mount("fresh").point, &old);
}

#[test]
fn a_client_and_the_metadata_server_are_parted_and_the_client_waits() {
    if !Network::possible("a_client_and_the_metadata_server_are_parted_and_the_client_waits") {
        return;
    }
    let cluster = Cluster::networked("rs:4+2", 6, &[]);
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    let (own, theirs) = (Load::default(), Load::default());
    let (files, others) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| own.write(&a.point, "a"));
        let other = scope.spawn(|| theirs.write(&b.point, "b"));
        let happened = catch_unwind(AssertUnwindSafe(|| {
            own.writes_go_on();
            cluster.network().part(0, a.machine());
            // The other one goes on.
            theirs.writes_go_on();
            theirs.writes_go_on();
            cluster.network().rejoin(0, a.machine());
            own.writes_go_on();
            // And all of it from everybody: stores, too.
            cluster.network().cut(0);
            sleep(Duration::from_secs(2));
            cluster.network().heal(0);
            own.writes_go_on();
            theirs.writes_go_on();
        }));
        own.end();
        theirs.end();
        let done = (writer.join(), other.join());
        happened.unwrap();
        (done.0.unwrap(), done.1.unwrap())
    });
    eprintln!("{} and {} files; one took {:.2?} and {:.2?}", files.0.len(), others.0.len(), files.1, others.1);
    assert!(files.1 < MAX_WAIT && others.1 < MAX_WAIT, "{:?} {:?}", files.1, others.1);
    for mount in [&a, &b] {
        all_there(&mount.point, &files.0);
        all_there(&mount.point, &others.0);
    }
    a.unmount();
    b.unmount();
    cluster.heal();
    cluster.is_healthy();
}

#[test]
fn the_metadata_server_is_cut_off_for_longer_than_it_waits_for_stores() {
    if !Network::possible("the_metadata_server_is_cut_off_for_longer_than_it_waits_for_stores") {
        return;
    }
    let cluster = Cluster::networked("rs:4+2", 6, &[]);
    let mount = cluster.mount("a");
    let (mut files, _) = write_synced(&mount.point, "old", &AtomicBool::new(true));
    // It has something to write there.
    fs::write(mount.at("closed"), noise(100)).unwrap();
    cluster.network().cut(0);
    // Requests to stores fail after 14 seconds, and operations of targets after 15.
    sleep(Duration::from_secs(17));
    cluster.network().heal(0);
    let took = until_done(|| write_file(&mount.at("new"), 3_000_000));
    eprintln!("it went on after {took:.2?}");
    files.extend([("closed".into(), 100), ("new".into(), 3_000_000)]);
    all_there(&mount.point, &files);
    mount.unmount();
    cluster.heal();
    cluster.is_healthy();
    all_there(&cluster.mount("fresh").point, &files);
}

#[test]
fn a_client_is_cut_off_for_longer_than_its_lease() {
    if !Network::possible("a_client_is_cut_off_for_longer_than_its_lease") {
        return;
    }
    let cluster = Cluster::networked("rs:4+2", 6, &["--lease", "10"]);
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    write_file(&a.at("synced"), 5_000_000).unwrap();
    fs::write(a.at("locked"), "x").unwrap();
    let open = |mount: &Mount| OpenOptions::new().read(true).write(true).open(mount.at("locked")).unwrap();
    let (ours, theirs) = (open(&a), open(&b));
    fcntl_lock(&ours, FlockOperation::NonBlockingLockExclusive).unwrap();
    let taken = || fcntl_lock(&theirs, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(taken(), Err(Errno::AGAIN));
    let mut lost = File::create(a.at("lost")).unwrap();
    lost.write_all(&noise(40_000_000)).unwrap();
    cluster.network().cut(a.machine());
    let freed = until_done(|| Ok(taken()?));
    eprintln!("the lock was free after {freed:.2?}");
    // Files that it wrote are not in the way of others, either.
    fs::write(b.at("synced"), noise(100)).unwrap();
    cluster.network().heal(a.machine());
    let begun = Instant::now();
    // Once.
    assert_eq!(lost.sync_all().unwrap_err().raw_os_error(), Some(5));
    eprintln!("the client heard of it after {:.2?}", begun.elapsed());
    // And the mount goes on.
    lost.sync_all().unwrap();
    lost.set_len(0).unwrap();
    lost.write_all(&noise(100)).unwrap();
    lost.sync_all().unwrap();
    write_file(&a.at("more"), 9_000_000).unwrap();
    assert!(fs::read(b.at("more")).unwrap() == noise(9_000_000));
    assert!(fs::read(a.at("synced")).unwrap() == noise(100));
    // The program that had the lock learns that it is lost.
    assert_eq!(fcntl_lock(&ours, FlockOperation::NonBlockingLockExclusive), Err(Errno::IO));
    assert_eq!(fcntl_lock(&ours, FlockOperation::NonBlockingLockExclusive), Err(Errno::AGAIN));
    fcntl_lock(&theirs, FlockOperation::Unlock).unwrap();
    fcntl_lock(&ours, FlockOperation::NonBlockingLockExclusive).unwrap();
    assert_eq!(taken(), Err(Errno::AGAIN));
    drop((ours, theirs, lost));
    a.unmount();
    b.unmount();
    cluster.heal();
    cluster.is_healthy();
}

#[test]
fn nobody_waits_for_stores_behind_slow_links() {
    if !Network::possible("nobody_waits_for_stores_behind_slow_links") {
        return;
    }
    let cluster = Cluster::networked("rs:4+2", 7, &[]);
    let slow = [cluster.machine(2), cluster.machine(3)];
    let files = under_load(&cluster, |load| {
        load.goes_on();
        slow.iter().for_each(|&machine| cluster.network().limit(machine, Some(4000)));
        load.goes_on();
        slow.iter().for_each(|&machine| cluster.network().limit(machine, None));
        load.goes_on();
    });
    cluster.heal();
    // With the same links, clients that know of nothing yet: a block of a stripe takes two seconds.
    // Of these six stores at least three have data of the file.
    let (mut hedged, mut quickest) = (0, Duration::MAX);
    for pair in [[0, 1], [2, 3], [4, 5]] {
        let slow = pair.map(|store| cluster.machine(store));
        slow.iter().for_each(|&machine| cluster.network().limit(machine, Some(4000)));
        let mount = cluster.mount(&format!("fresh{}", pair[0]));
        let begun = Instant::now();
        assert!(fs::read(mount.at("big")).unwrap() == noise(20_000_000));
        let (took, reads) = (begun.elapsed(), status(&cluster, &mount)["reads_hedged"].as_u64().unwrap());
        eprintln!("without {pair:?}, reading took {took:.2?} with {reads} hedged reads");
        assert!(took < MAX_WAIT, "{took:?}");
        (hedged, quickest) = (hedged + reads, quickest.min(took));
        slow.iter().for_each(|&machine| cluster.network().limit(machine, None));
        all_there(&mount.point, &files);
        mount.unmount();
    }
    assert!(hedged > 0 && quickest < Duration::from_secs(8), "{quickest:?}");
    cluster.is_healthy();
}

#[test]
fn a_client_behind_a_narrow_link_leaves_coding_to_the_stores() {
    if !Network::possible("a_client_behind_a_narrow_link_leaves_coding_to_the_stores") {
        return;
    }
    let cluster = Cluster::networked("rs:4+2", 6, &[]);
    let mount = cluster.mount_with("a", &["--coding", "auto"]);
    // How many stripes this client coded, and how many the stores, of a file.
    let coded = |name: &str, length: usize| {
        let count = |who: &str| status(&cluster, &mount)["stripes_coded"][who].as_u64().unwrap();
        let before = (count("client"), count("masters"));
        let begun = Instant::now();
        write_file(&mount.at(name), length).unwrap();
        let coded = (count("client") - before.0, count("masters") - before.1);
        eprintln!("{name}: {coded:?} stripes by the client and by the stores, in {:.2?}", begun.elapsed());
        coded
    };
    coded("wide", 60_000_000);
    cluster.network().limit(mount.machine(), Some(100_000));
    // It takes some stripes to notice.
    coded("narrower", 60_000_000);
    let (here, masters) = coded("narrow", 60_000_000);
    assert!(masters > 2 * here, "{here} by the client, {masters} by the stores");
    cluster.network().limit(mount.machine(), None);
    // On a machine that has time, the client codes again.
    coded("wide again", 60_000_000);
    coded("wide for long", 60_000_000);
    for name in ["wide", "narrow", "wide for long"] {
        assert!(fs::read(mount.at(name)).unwrap() == noise(60_000_000), "{name}");
    }
    mount.unmount();
    cluster.is_healthy();
}

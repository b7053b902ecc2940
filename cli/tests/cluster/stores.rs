//! Stores that are killed, stopped and started again.

use crate::lab::{Cluster, WAIT_TIMEOUT, possible};
use crate::scratch::noise;
use std::fs::{self, File};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Nobody waits longer for stores that do not answer.
pub const MAX_WAIT: Duration = Duration::from_secs(60);

#[test]
fn what_one_mount_wrote_another_reads_also_after_a_restart() {
    if !possible("what_one_mount_wrote_another_reads_also_after_a_restart") {
        return;
    }
    let cluster = Cluster::new("rs:4+2", 6);
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    for (round, length) in [10, 5_000, 300_000, 9_000_000].into_iter().enumerate() {
        // Rewritten, so that the caches of the other one are of no use.
        fs::write(a.at("f"), noise(length)).unwrap();
        assert!(fs::read(b.at("f")).unwrap() == noise(length), "round {round}");
        fs::write(b.at("g"), noise(length + 1)).unwrap();
        assert!(fs::read(a.at("g")).unwrap() == noise(length + 1), "round {round}");
    }
    cluster.is_healthy();
    a.unmount();
    let mut held = File::create(b.at("held")).unwrap();
    held.write_all(&noise(100_000)).unwrap();
    assert!(cluster.meta.end(), "{}", cluster.meta.log());
    cluster.meta.start();
    held.write_all(&noise(1000)).unwrap();
    drop(held);
    assert!(fs::read(b.at("f")).unwrap() == noise(9_000_000));
    let a = cluster.mount("a");
    assert!(fs::read(a.at("g")).unwrap() == noise(9_000_001));
    assert!(fs::read(a.at("held")).unwrap() == [noise(100_000), noise(1000)].concat());
    a.unmount();
    b.unmount();
    cluster.is_healthy();
}

/// What a writer and a reader have done, so that a test waits until they have gone on.
#[derive(Default)]
pub struct Load {
    stop: AtomicBool,
    /// Files written and synced.
    written: AtomicUsize,
    /// How often the reader has read all files.
    read: AtomicUsize,
}

impl Load {
    /// Waits until files of all sizes were written that were begun after the call.
    #[track_caller]
    pub fn writes_go_on(&self) {
        more(&self.written, 4);
    }

    /// Waits for the same, and until all files were read from the beginning.
    #[track_caller]
    pub fn goes_on(&self) {
        let read = self.read.load(Ordering::SeqCst);
        self.writes_go_on();
        more(&self.read, (read + 2).saturating_sub(self.read.load(Ordering::SeqCst)));
    }

    /// Ends it.
    pub fn end(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// Writes until the end, as `write_synced` does.
    pub fn write(&self, point: &Path, prefix: &str) -> (Vec<(String, usize)>, Duration) {
        write_counted(point, prefix, &self.stop, &self.written)
    }
}

/// Waits until a number has grown by `steps`.
#[track_caller]
fn more(count: &AtomicUsize, steps: usize) {
    let (begun, until) = (Instant::now(), count.load(Ordering::SeqCst) + steps);
    while count.load(Ordering::SeqCst) < until {
        assert!(begun.elapsed() < WAIT_TIMEOUT, "it does not go on");
        sleep(Duration::from_millis(10));
    }
}

/// Writes files of a few sizes and syncs each, until `stop`; returns their names and lengths, and
/// the longest time that one took.
pub fn write_synced(point: &Path, prefix: &str, stop: &AtomicBool) -> (Vec<(String, usize)>, Duration) {
    write_counted(point, prefix, stop, &AtomicUsize::new(0))
}

fn write_counted(
    point: &Path,
    prefix: &str,
    stop: &AtomicBool,
    count: &AtomicUsize,
) -> (Vec<(String, usize)>, Duration) {
    let (mut written, mut longest) = (Vec::new(), Duration::ZERO);
    for number in 0.. {
        let begun = Instant::now();
        let (name, length) = (format!("{prefix}{number}"), [3_000_000, 17, 40_000][number % 3] + number);
        let mut file = File::create(point.join(&name)).unwrap();
        file.write_all(&noise(length)).unwrap();
        file.sync_all().unwrap();
        longest = longest.max(begun.elapsed());
        written.push((name, length));
        count.fetch_add(1, Ordering::SeqCst);
        if stop.load(Ordering::SeqCst) {
            break;
        }
    }
    (written, longest)
}

/// Reads files until `stop`; returns the longest time that one took.
fn read_again(point: &Path, files: &[(String, usize)], load: &Load) -> Duration {
    let mut longest = Duration::ZERO;
    while !load.stop.load(Ordering::SeqCst) {
        for (name, length) in files {
            let begun = Instant::now();
            assert!(fs::read(point.join(name)).unwrap() == noise(*length), "{name}");
            longest = longest.max(begun.elapsed());
        }
        load.read.fetch_add(1, Ordering::SeqCst);
    }
    longest
}

#[track_caller]
pub fn all_there(point: &Path, files: &[(String, usize)]) {
    for (name, length) in files {
        let read = fs::read(point.join(name)).unwrap_or_else(|why| panic!("{name}: {why}"));
        assert!(read == noise(*length), "{name}");
    }
}

/// Writes and reads while something happens to stores.
pub fn under_load(cluster: &Cluster, happens: impl FnOnce(&Load)) -> Vec<(String, usize)> {
    let (a, b) = (cluster.mount("writer"), cluster.mount("reader"));
    let (mut files, _) = write_synced(&a.point, "old", &AtomicBool::new(true));
    files.push(("big".into(), 20_000_000));
    fs::write(a.at("big"), noise(20_000_000)).unwrap();
    let load = Load::default();
    let (new, wrote, read) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| load.write(&a.point, "new"));
        let reader = scope.spawn(|| read_again(&b.point, &files, &load));
        let happened = catch_unwind(AssertUnwindSafe(|| happens(&load)));
        load.end();
        let (written, read) = (writer.join(), reader.join());
        happened.unwrap();
        let (new, wrote) = written.unwrap();
        (new, wrote, read.unwrap())
    });
    eprintln!("{} files written; a write took {wrote:.2?} at most, a read {read:.2?}", new.len());
    files.extend(new);
    assert!(wrote < MAX_WAIT && read < MAX_WAIT, "a write took {wrote:?}, a read {read:?}");
    // One that saw them fail, and one that did not.
    all_there(&a.point, &files);
    all_there(&b.point, &files);
    a.unmount();
    b.unmount();
    files
}

#[test]
fn two_stores_are_killed_during_writes_and_nothing_fails() {
    if !possible("two_stores_are_killed_during_writes_and_nothing_fails") {
        return;
    }
    let cluster = Cluster::new("rs:4+2", 6);
    let files = under_load(&cluster, |load| {
        load.goes_on();
        cluster.stores[1].kill();
        sleep(Duration::from_millis(500));
        cluster.stores[4].kill();
        load.goes_on();
    });
    let status = cluster.on(&["status", "--json"]);
    assert_eq!((status.status, &status.json()["healthy"]), (1, &false.into()));
    assert_eq!(cluster.on(&["status", "--at-risk"]).status, 1);
    let fresh = cluster.mount("fresh");
    all_there(&fresh.point, &files);
    cluster.stores[1].start();
    cluster.stores[4].start();
    cluster.heal();
    cluster.is_healthy();
    cluster.stores[0].kill();
    cluster.stores[3].kill();
    all_there(&fresh.point, &files);
    all_there(&cluster.mount("fresher").point, &files);
}

#[test]
fn two_stores_are_stopped_and_nobody_waits_for_long() {
    if !possible("two_stores_are_stopped_and_nobody_waits_for_long") {
        return;
    }
    let cluster = Cluster::new("rs:4+2", 7);
    let files = under_load(&cluster, |load| {
        load.goes_on();
        cluster.stores[2].stop();
        cluster.stores[5].stop();
        load.goes_on();
        // Now everybody knows.
        load.goes_on();
        cluster.stores[2].go_on();
        cluster.stores[5].go_on();
        load.goes_on();
    });
    cluster.heal();
    cluster.is_healthy();
    all_there(&cluster.mount("fresh").point, &files);
}

#[test]
fn three_stores_are_killed_and_it_goes_on_when_they_are_back() {
    if !possible("three_stores_are_killed_and_it_goes_on_when_they_are_back") {
        return;
    }
    let cluster = Cluster::new("rs:4+2", 6);
    let mount = cluster.mount("a");
    let (old, _) = write_synced(&mount.point, "old", &AtomicBool::new(true));
    fs::write(mount.at("big"), noise(30_000_000)).unwrap();
    File::open(mount.at("big")).unwrap().sync_all().unwrap();
    let mut held = File::create(mount.at("held")).unwrap();
    held.write_all(&noise(100_000)).unwrap();
    held.sync_all().unwrap();
    let gone = [0, 2, 5].map(|store: usize| &cluster.stores[store]);
    gone.iter().for_each(|store| store.kill());
    let begun = Instant::now();
    drop_caches();
    let read = fs::read(mount.at("big"));
    let read_after = begun.elapsed();
    let written = held.write_all(&noise(3_000_000)).and_then(|()| held.sync_all());
    let all_after = begun.elapsed();
    eprintln!("read failed after {read_after:.2?}, write {:.2?} later", all_after - read_after);
    assert_eq!(read.unwrap_err().raw_os_error(), Some(5));
    assert_eq!(written.unwrap_err().raw_os_error(), Some(5));
    assert!(all_after < Duration::from_secs(120), "{all_after:?}");
    gone.iter().for_each(|store| store.start());
    let begun = Instant::now();
    while fs::read(mount.at("big")).is_err() {
        assert!(begun.elapsed() < WAIT_TIMEOUT, "reads do not go on");
        sleep(Duration::from_millis(50));
    }
    let read_after = begun.elapsed();
    loop {
        let (more, length) = (mount.at("more"), 3_000_000);
        let written = File::create(&more).and_then(|mut file| {
            file.write_all(&noise(length))?;
            file.sync_all()
        });
        match written {
            Ok(()) => break,
            Err(why) => assert!(begun.elapsed() < WAIT_TIMEOUT, "writes do not go on: {why}"),
        }
        sleep(Duration::from_millis(50));
    }
    eprintln!("reads went on after {read_after:.2?}, writes after {:.2?}", begun.elapsed());
    all_there(&mount.point, &old);
    assert!(fs::read(mount.at("held")).unwrap().starts_with(&noise(100_000)));
    assert!(fs::read(mount.at("more")).unwrap() == noise(3_000_000));
    drop(held);
    mount.unmount();
    cluster.heal();
    all_there(&cluster.mount("fresh").point, &old);
}

pub fn drop_caches() {
    let _ = fs::write("/proc/sys/vm/drop_caches", "1");
}

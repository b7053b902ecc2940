//! Locks of files across mounts: `flock`, whose owner is what was opened. (`fcntl` locks are tested where clients are cut off.)

use crate::lab::{Cluster, Mount, possible};
use crate::starter;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

fn open(mount: &Mount) -> File {
    OpenOptions::new().read(true).write(true).open(mount.at("locked")).unwrap()
}

fn exclusive(file: &File) -> Result<(), Errno> {
    flock(file, FlockOperation::NonBlockingLockExclusive)
}

fn shared(file: &File) -> Result<(), Errno> {
    flock(file, FlockOperation::NonBlockingLockShared)
}

/// Waits until a lock can be had; returns how long that took.
#[track_caller]
fn until_free(file: &File, patience: Duration) -> Duration {
    let begun = Instant::now();
    while let Err(why) = exclusive(file) {
        assert_eq!(why, Errno::WOULDBLOCK);
        assert!(begun.elapsed() < patience, "locked after {patience:?}");
        sleep(Duration::from_millis(10));
    }
    begun.elapsed()
}

/// A process that has a file locked until it is killed; returns when it has.
fn holder(cluster: &Cluster, path: &Path) -> Child {
    let mut command = Command::new("flock");
    command.arg("--no-fork").arg(path).args(["sh", "-c", "echo locked; exec sleep 1000"]);
    let output = cluster.scratch.path.join("holder");
    let child = starter::start(command, &output, &cluster.scratch.path.join("holder.log")).unwrap();
    let begun = Instant::now();
    while fs::read(&output).unwrap().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it does not get the lock");
        sleep(Duration::from_millis(5));
    }
    child
}

#[test]
fn flock_holds_across_mounts_until_whoever_has_it_is_gone() {
    if !possible("flock_holds_across_mounts_until_whoever_has_it_is_gone") {
        return;
    }
    let cluster = Cluster::with("rs:2+1", 3, &["--lease", "3"]);
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    fs::write(a.at("locked"), "x").unwrap();
    let (ours, more, theirs) = (open(&a), open(&a), open(&b));
    // One that writes keeps all others out, also at the same mount; those who read share.
    exclusive(&ours).unwrap();
    assert_eq!((exclusive(&more), shared(&theirs)), (Err(Errno::WOULDBLOCK), Err(Errno::WOULDBLOCK)));
    shared(&ours).unwrap();
    shared(&theirs).unwrap();
    assert_eq!((exclusive(&ours), exclusive(&more)), (Err(Errno::WOULDBLOCK), Err(Errno::WOULDBLOCK)));
    flock(&theirs, FlockOperation::Unlock).unwrap();
    exclusive(&ours).unwrap();
    // Who waits gets it once it is free.
    let waited = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let begun = Instant::now();
            flock(&theirs, FlockOperation::LockExclusive).unwrap();
            begun.elapsed()
        });
        sleep(Duration::from_millis(300));
        flock(&ours, FlockOperation::Unlock).unwrap();
        waiter.join().unwrap()
    });
    assert!((Duration::from_millis(250)..Duration::from_secs(10)).contains(&waited), "{waited:?}");
    assert_eq!(exclusive(&ours), Err(Errno::WOULDBLOCK));
    // A copy of a descriptor has the same lock; it goes with the last one.
    let copy = theirs.try_clone().unwrap();
    drop(theirs);
    assert_eq!(exclusive(&ours), Err(Errno::WOULDBLOCK));
    drop(copy);
    until_free(&ours, Duration::from_secs(10));
    flock(&ours, FlockOperation::Unlock).unwrap();
    // Who has it is killed.
    let mut killed = holder(&cluster, &b.at("locked"));
    assert_eq!(exclusive(&ours), Err(Errno::WOULDBLOCK));
    killed.kill().unwrap();
    killed.wait().unwrap();
    let freed = until_free(&ours, Duration::from_secs(10));
    flock(&ours, FlockOperation::Unlock).unwrap();
    // The metadata server is killed: who had a lock has it still.
    let mut lives = holder(&cluster, &b.at("locked"));
    cluster.meta.kill();
    cluster.meta.start();
    let refused = exclusive(&ours);
    assert_eq!(refused, Err(Errno::WOULDBLOCK));
    // The mount in which it is held is killed: its session ends.
    b.kill();
    let ended = until_free(&ours, Duration::from_secs(20));
    eprintln!("free {freed:.2?} after its process was killed, {ended:.2?} after its mount was");
    lives.kill().unwrap();
    lives.wait().unwrap();
    drop((ours, more, b));
    a.unmount();
}

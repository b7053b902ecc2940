//! Locks of files across mounts: `flock`, whose owner is what was opened, those of an opening
//! (`F_OFD_SETLK`), and waiting for locks. (Other `fcntl` locks are tested where clients are cut
//! off.)

use crate::lab::{Cluster, Mount, WAIT_TIMEOUT, possible};
use crate::starter;
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
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
fn until_free(file: &File) -> Duration {
    let begun = Instant::now();
    while let Err(why) = exclusive(file) {
        assert_eq!(why, Errno::WOULDBLOCK);
        assert!(begun.elapsed() < WAIT_TIMEOUT, "it stays locked");
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
        assert!(begun.elapsed() < WAIT_TIMEOUT, "it does not get the lock");
        sleep(Duration::from_millis(5));
    }
    child
}

#[test]
fn flock_holds_across_mounts_until_whoever_has_it_is_gone() {
    if !possible("flock_holds_across_mounts_until_whoever_has_it_is_gone") {
        return;
    }
    let cluster = Cluster::with("rs:2+1", 3, &["--lease", "10"]);
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
    // A process that waits gets the lock once it is free.
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| flock(&theirs, FlockOperation::LockExclusive).unwrap());
        sleep(Duration::from_millis(300));
        assert!(!waiter.is_finished(), "it does not wait");
        flock(&ours, FlockOperation::Unlock).unwrap();
        waiter.join().unwrap();
    });
    assert_eq!(exclusive(&ours), Err(Errno::WOULDBLOCK));
    // A copy of a descriptor has the same lock; it goes with the last one.
    let copy = theirs.try_clone().unwrap();
    drop(theirs);
    assert_eq!(exclusive(&ours), Err(Errno::WOULDBLOCK));
    drop(copy);
    until_free(&ours);
    flock(&ours, FlockOperation::Unlock).unwrap();
    // The holder of the lock is killed.
    let mut killed = holder(&cluster, &b.at("locked"));
    assert_eq!(exclusive(&ours), Err(Errno::WOULDBLOCK));
    killed.kill().unwrap();
    killed.wait().unwrap();
    let freed = until_free(&ours);
    flock(&ours, FlockOperation::Unlock).unwrap();
    // The metadata server is killed: a process that had a lock still has it.
    let mut lives = holder(&cluster, &b.at("locked"));
    cluster.meta.kill();
    cluster.meta.start();
    let refused = exclusive(&ours);
    assert_eq!(refused, Err(Errno::WOULDBLOCK));
    // The mount in which it is held is killed: its session ends.
    b.kill();
    let ended = until_free(&ours);
    eprintln!("free {freed:.2?} after its process was killed, {ended:.2?} after its mount was");
    lives.kill().unwrap();
    lives.wait().unwrap();
    drop((ours, more, b));
    a.unmount();
}

/// A counter in a file that stays open, with nothing but a lock around each increment: no sync, no
/// opening.
#[test]
fn the_next_holder_of_a_lock_sees_what_the_one_before_wrote() {
    const CHANGES_PER_WRITER: u64 = 150;
    if !possible("the_next_holder_of_a_lock_sees_what_the_one_before_wrote") {
        return;
    }
    type Lock = fn(&File, FlockOperation) -> Result<(), Errno>;
    let locks: [(&str, Lock); 2] =
        [("flock", |file, how| flock(file, how)), ("fcntl", |file, how| fcntl_lock(file, how))];
    let cluster = Cluster::with("rs:2+1", 3, &[]);
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    for (kind, lock) in locks {
        fs::write(a.at("locked"), [0; 8]).unwrap();
        let count = |mount: &Mount| {
            let file = open(mount);
            for _ in 0..CHANGES_PER_WRITER {
                lock(&file, FlockOperation::LockExclusive).unwrap();
                let mut number = [0; 8];
                file.read_exact_at(&mut number, 0).unwrap();
                let next = u64::from_le_bytes(number) + 1;
                file.write_all_at(&next.to_le_bytes(), 0).unwrap();
                lock(&file, FlockOperation::Unlock).unwrap();
            }
        };
        std::thread::scope(|scope| [&a, &b].iter().for_each(|mount| _ = scope.spawn(|| count(mount))));
        let counted = u64::from_le_bytes(fs::read(b.at("locked")).unwrap().try_into().unwrap());
        assert_eq!(counted, 2 * CHANGES_PER_WRITER, "{kind}");
    }
    b.unmount();
    a.unmount();
}

/// The mount of a lock's holder is stopped for longer than its lease, and wakes up when another one
/// has the lock.
#[test]
fn who_lost_its_lock_with_its_lease_overwrites_nothing() {
    if !possible("who_lost_its_lock_with_its_lease_overwrites_nothing") {
        return;
    }
    let cluster = Cluster::with("rs:2+1", 3, &["--lease", "10"]);
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    fs::write(a.at("locked"), "0 nobody's").unwrap();
    let (ours, more, theirs) = (open(&a), open(&a), open(&b));
    exclusive(&ours).unwrap();
    // Not synced.
    ours.write_all_at(b"1", 0).unwrap();
    a.signal(Signal::STOP);
    until_free(&theirs);
    theirs.write_all_at(b"2 is theirs", 0).unwrap();
    theirs.sync_all().unwrap();
    a.signal(Signal::CONT);
    // It may take a moment to hear that its session is over.
    let refused = |done: io::Result<()>| {
        done.err().is_some_and(|why| {
            assert_eq!(why.raw_os_error(), Some(Errno::IO.raw_os_error()));
            true
        })
    };
    let begun = Instant::now();
    let cut = ours.set_len(1);
    let written = ours.write_all_at(b"3", 0);
    let synced = ours.sync_all();
    assert!(refused(written) | refused(synced), "it was told nothing");
    assert!(refused(cut), "it cuts a file that another one has locked");
    while !refused(ours.write_all_at(b"4", 0)) {
        assert!(begun.elapsed() < WAIT_TIMEOUT, "it does not hear that its lock is lost");
        sleep(Duration::from_millis(10));
    }
    assert!(refused(ours.read_exact_at(&mut [0], 0)));
    assert!(refused(ours.set_len(1)), "it cuts a file that another one has locked");
    // Nobody writes through it as long as it does not know that it has no lock.
    assert_eq!(fs::read(b.at("locked")).unwrap(), b"2 is theirs");
    // The other opening had no lock. It hears, once, that something that was written is lost.
    assert!(refused(more.sync_all()));
    more.sync_all().unwrap();
    assert_eq!(fs::read(a.at("locked")).unwrap(), b"2 is theirs");
    flock(&ours, FlockOperation::Unlock).unwrap();
    assert_eq!(exclusive(&ours), Err(Errno::WOULDBLOCK));
    flock(&theirs, FlockOperation::Unlock).unwrap();
    until_free(&ours);
    ours.write_all_at(b"5", 0).unwrap();
    flock(&ours, FlockOperation::Unlock).unwrap();
    assert_eq!(fs::read(b.at("locked")).unwrap(), b"5 is theirs");
    drop((ours, more, theirs));
    b.unmount();
    // The unmount reports that something was lost.
    drop(a);
}

/// Waits until a process ends.
#[track_caller]
fn until_ended(child: &mut Child, what: &str) {
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < WAIT_TIMEOUT, "{what}");
        sleep(Duration::from_millis(10));
    }
}

#[test]
fn who_waits_for_a_lock_can_be_interrupted_and_killed() {
    if !possible("who_waits_for_a_lock_can_be_interrupted_and_killed") {
        return;
    }
    let cluster = Cluster::with("rs:2+1", 3, &[]);
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    fs::write(a.at("locked"), "x").unwrap();
    let ours = open(&a);
    exclusive(&ours).unwrap();
    for signal in [Signal::TERM, Signal::KILL] {
        let mut command = Command::new("flock");
        command.arg(b.at("locked")).arg("true");
        let log = cluster.scratch.path.join("waiter.log");
        let mut waiter = starter::start(command, &log, &log).unwrap();
        // Longer than the server waits at a time.
        sleep(Duration::from_millis(1200));
        assert!(waiter.try_wait().unwrap().is_none(), "it waits");
        kill_process(Pid::from_child(&waiter), signal).unwrap();
        until_ended(&mut waiter, "it can be ended");
    }
    // The interrupted process does not have it.
    flock(&ours, FlockOperation::Unlock).unwrap();
    let theirs = open(&b);
    exclusive(&theirs).unwrap();
    drop(theirs);
    until_free(&ours);
    drop(ours);
    b.unmount();
    a.unmount();
}

/// Two mounts, and a file in both.
const OPENINGS: &str = r#"
import errno, fcntl, os, struct, sys, time
a, b = sys.argv[1:]
lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
def held(file):
    try:
        fcntl.fcntl(file, 37, lock)
        return False
    except OSError as why:
        assert why.errno == errno.EAGAIN, why
        return True
ours, theirs = open(a, "r+"), open(b, "r+")
assert not held(ours)
assert held(theirs), "both have it"
copy = os.dup(ours.fileno())
ours.close()
assert held(theirs), "it ended with one of two descriptors"
os.close(copy)
end = time.time() + 10
while held(theirs):
    assert time.time() < end, "it does not end with its opening"
    time.sleep(0.02)
"#;

#[test]
fn a_lock_of_an_opening_ends_with_it() {
    let test = "a_lock_of_an_opening_ends_with_it";
    if !possible(test) {
        return;
    }
    if Command::new("python3").arg("--version").output().is_err() {
        return eprintln!("{test} is skipped: there is no program python3");
    }
    let cluster = Cluster::with("rs:2+1", 3, &[]);
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    fs::write(a.at("locked"), "x").unwrap();
    starter::run(Command::new("python3").args(["-c", OPENINGS]).args([a.at("locked"), b.at("locked")])).good();
    b.unmount();
    a.unmount();
}

//! Tests of claims that need more than one opening of a target.

use super::claim_conformance::claim;
use super::{
    Claim, ClaimRequest, ClaimState, Clock, Crash, Disk, Epoch, Lease, Memory, Refusal, Shadow, Target, TargetFile,
};
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const LABEL: TargetFile = TargetFile::Label;

fn take(target: &dyn Target, claim: &Claim) -> std::io::Result<ClaimState> {
    target.claim(&ClaimRequest::Take { claim: claim.clone(), lease: Duration::from_secs(10) })
}

fn read(target: &dyn Target) -> ClaimState {
    target.claim(&ClaimRequest::Read).unwrap()
}

fn release(target: &dyn Target, claim: &Claim) {
    target.claim(&ClaimRequest::Release(claim.epoch)).unwrap();
}

fn write(target: &dyn Target) -> std::io::Result<()> {
    target.write(LABEL, 0, &[IoSlice::new(b"label")])
}

/// A clock that a test sets, in seconds.
fn clock() -> (Arc<AtomicU64>, Clock) {
    let seconds = Arc::new(AtomicU64::new(100));
    let shown = seconds.clone();
    (seconds, Clock::new(move || Duration::from_secs(shown.load(Ordering::Relaxed))))
}

/// A directory that is removed at the end.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("weft-claim-{:016x}", fastrand::u64(..)));
        drop(Disk::format(&path).unwrap());
        Self(path)
    }

    fn open(&self) -> Disk {
        Disk::open(&self.0).unwrap()
    }

    fn file(&self) -> PathBuf {
        self.0.join(super::claim_file::NAME)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A later opening fences an earlier one, whatever the earlier one does.
#[test]
fn a_later_opening_fences_the_earlier_one() {
    let (seconds, clock) = clock();
    let first = Memory::with_clock(clock);
    let second = first.open_again();
    write(&first).unwrap();
    let (old, new) = (claim(1, 1, 1), claim(2, 2, 2));
    take(&first, &old).unwrap();
    write(&first).unwrap();
    assert!(Refusal::fenced(&write(&second).unwrap_err()).is_some(), "it has no claim");
    // The lease runs by the clock of the target, from the last renewal on.
    seconds.fetch_add(6, Ordering::Relaxed);
    take(&first, &old).unwrap();
    seconds.fetch_add(6, Ordering::Relaxed);
    let held = take(&second, &new).unwrap_err();
    let expected = Refusal::Held { claim: Some(Box::new(old.clone())), remaining: Some(Duration::from_secs(4)) };
    assert_eq!(Refusal::of(&held), Some(&expected));
    assert_eq!(read(&second).lease, Lease::Runs(Duration::from_secs(4)));
    seconds.fetch_add(4, Ordering::Relaxed);
    assert_eq!(read(&second).lease, Lease::Over);
    // Nobody wants it, so the holder goes on.
    write(&first).unwrap();
    take(&second, &new).unwrap();
    for refused in [write(&first).unwrap_err(), take(&first, &old).unwrap_err()] {
        assert_eq!(Refusal::fenced(&refused), Some(&new));
    }
    let refused = first.claim(&ClaimRequest::Release(old.epoch)).unwrap_err();
    assert_eq!(Refusal::fenced(&refused).unwrap().epoch, Epoch { number: 2, id: 2 });
    write(&second).unwrap();
}

/// Two openings that chose the same number are different histories.
#[test]
fn one_number_is_given_once() {
    let first = Memory::default();
    let second = first.open_again();
    take(&first, &claim(5, 1, 1)).unwrap();
    let refused = take(&second, &claim(5, 2, 1)).unwrap_err();
    assert_eq!(Refusal::fenced(&refused), Some(&claim(5, 1, 1)));
    assert!(Refusal::fenced(&write(&second).unwrap_err()).is_some());
    write(&first).unwrap();
}

#[test]
fn a_shadow_is_claimed_in_memory() {
    let below = Arc::new(Memory::default());
    let shadow = Shadow::new(below.clone());
    take(&below.open_again(), &claim(4, 4, 4)).unwrap();
    assert_eq!(read(&shadow).claim, Some(claim(4, 4, 4)));
    take(&shadow, &claim(5, 5, 5)).unwrap();
    write(&shadow).unwrap();
    assert_eq!((read(&shadow).claim, read(&*below).claim), (Some(claim(5, 5, 5)), Some(claim(4, 4, 4))));
}

#[test]
fn a_crash_loses_no_claim() {
    for seed in 0..20 {
        let crash = Crash::new(Arc::new(Memory::default()));
        take(&crash, &claim(1, 1, 1)).unwrap();
        crash.crash(seed).unwrap();
        assert_eq!(read(&crash).claim, Some(claim(1, 1, 1)));
    }
}

/// The end of the process is the end of its lease; a new process does not wait.
#[test]
fn a_directory_is_free_when_its_holder_is_gone() {
    let place = Place::new();
    let first = place.open();
    take(&first, &claim(1, 1, 1)).unwrap();
    let second = place.open();
    assert_eq!(read(&second), ClaimState { claim: Some(claim(1, 1, 1)), lease: Lease::Locked });
    assert_eq!(read(&first).lease, Lease::Locked);
    for holder in [1, 2] {
        let held = take(&second, &claim(2, 2, holder)).unwrap_err();
        let expected = Refusal::Held { claim: Some(Box::new(claim(1, 1, 1))), remaining: None };
        assert_eq!(Refusal::of(&held), Some(&expected));
    }
    assert!(Refusal::fenced(&write(&second).unwrap_err()).is_some());
    write(&first).unwrap();
    drop(first);
    assert_eq!(read(&second).lease, Lease::Over);
    take(&second, &claim(2, 2, 2)).unwrap();
    write(&second).unwrap();
    release(&second, &claim(2, 2, 2));
    assert_eq!(read(&second).lease, Lease::Released);
    // The epoch stays remembered.
    let third = place.open();
    assert!(Refusal::fenced(&take(&third, &claim(2, 3, 3)).unwrap_err()).is_some());
    take(&third, &claim(3, 3, 3)).unwrap();
    assert!(Refusal::is_held(&take(&second, &claim(4, 4, 4)).unwrap_err()));
}

/// The lock goes with the value, although a child that is being started may have a copy of the
/// handle.
#[test]
fn a_copy_of_the_handle_does_not_keep_the_lock() {
    let place = Place::new();
    let first = place.open();
    take(&first, &claim(1, 1, 1)).unwrap();
    let is_it = |path: &Path| std::fs::read_link(path).is_ok_and(|to| to == place.file());
    let handles = std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
    let handle = handles.into_iter().find(|path| is_it(path)).unwrap();
    let number = handle.file_name().and_then(|name| name.to_str()).unwrap().parse().unwrap();
    let mut child = std::process::Command::new("sleep").arg("1000").stdin(duplicate(number)).spawn().unwrap();
    drop(first);
    let taken = take(&place.open(), &claim(2, 2, 2));
    child.kill().unwrap();
    child.wait().unwrap();
    taken.unwrap();
}

/// A second handle of the same open file.
fn duplicate(number: i32) -> std::process::Stdio {
    // Opening it through /proc would make another open file, with other locks.
    let all = rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty()).unwrap();
    rustix::process::pidfd_getfd(all, number, rustix::process::PidfdGetfdFlags::empty()).unwrap().into()
}

/// A claim file that was replaced or removed is noticed.
#[test]
fn a_claim_that_is_replaced_or_removed_ends() {
    let place = Place::new();
    let first = place.open();
    take(&first, &claim(1, 1, 1)).unwrap();
    write(&first).unwrap();
    std::fs::copy(place.file(), place.0.join("copy")).unwrap();
    std::fs::rename(place.0.join("copy"), place.file()).unwrap();
    assert!(write(&first).is_err());
    std::fs::remove_file(place.file()).unwrap();
    assert!(write(&first).is_err());
}

#[test]
fn a_directory_without_a_claim_file_gets_one() {
    let place = Place::new();
    std::fs::remove_file(place.file()).unwrap();
    let disk = place.open();
    write(&disk).unwrap();
    assert_eq!(read(&disk), ClaimState::default());
    assert!(!place.file().exists(), "reading makes nothing");
    take(&disk, &claim(1, 1, 1)).unwrap();
    write(&disk).unwrap();
    assert_eq!(place.file().metadata().unwrap().len(), 8192);
}

#[test]
fn a_damaged_claim_is_no_free_target() {
    let place = Place::new();
    take(&place.open(), &claim(1, 1, 1)).unwrap();
    let mut bytes = std::fs::read(place.file()).unwrap();
    // Both records have the same claim, so that one bad sector loses nothing.
    bytes[100] ^= 1;
    std::fs::write(place.file(), &bytes).unwrap();
    assert_eq!(read(&place.open()).claim, Some(claim(1, 1, 1)));
    bytes[5000] ^= 1;
    std::fs::write(place.file(), &bytes).unwrap();
    let disk = place.open();
    // A store has other targets, and this one has chunks.
    disk.serve().unwrap();
    let error = disk.claim(&ClaimRequest::Read).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData, "{error}");
    assert!(take(&disk, &claim(2, 2, 2)).is_err() && write(&place.open()).is_err());
}

/// A store may be away for less than the lease that it promised.
#[test]
fn leases_survive_the_store_that_promised_them() {
    let place = Place::new();
    let (seconds, clock) = clock();
    let serve = || {
        let disk = place.open();
        disk.set_clock(clock.clone());
        disk.serve().unwrap();
        disk
    };
    let store = serve();
    assert!(Refusal::is_held(&take(&place.open(), &claim(1, 1, 1)).unwrap_err()), "the store has the directory");
    take(&store, &claim(1, 1, 1)).unwrap();
    seconds.fetch_add(9, Ordering::Relaxed);
    drop(store);
    // It is not known how long the target was away, so the lease starts again.
    let store = serve();
    assert_eq!(read(&store).lease, Lease::Runs(Duration::from_secs(10)));
    assert!(Refusal::is_held(&take(&store, &claim(2, 2, 2)).unwrap_err()));
    take(&store, &claim(1, 1, 1)).unwrap();
    take(&store, &claim(3, 3, 1)).unwrap();
    drop(store);
    // A process that opens the directory itself must wait for it, too.
    let direct = place.open();
    direct.set_clock(clock.clone());
    assert!(Refusal::is_held(&take(&direct, &claim(4, 4, 4)).unwrap_err()));
    let store = serve();
    release(&store, &claim(3, 3, 1));
    drop(store);
    take(&serve(), &claim(5, 5, 5)).unwrap();
    assert!(Refusal::is_held(&take(&direct, &claim(6, 6, 6)).unwrap_err()));
    seconds.fetch_add(10, Ordering::Relaxed);
    take(&direct, &claim(6, 6, 6)).unwrap();
}

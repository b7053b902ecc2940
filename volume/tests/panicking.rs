//! Targets whose operations panic: the caller gets an error, and no thread is lost.

use plan::TargetId;
use std::io::{self, IoSlice};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use volume::Targets;
use volume::target::{
    Allocation, ClaimRequest, ClaimState, Durable, Owner, Presence, ReadPart, Space, Target, TargetFile, Wait,
    look_by_reading,
};

const ID: TargetId = TargetId(0);
/// The deadline of the targets. No test waits for it.
const DEADLINE: Duration = Duration::from_secs(20);

/// A target with a defect in every operation.
#[derive(Debug)]
struct Panicking;

impl Target for Panicking {
    fn write(&self, _: TargetFile, _: u64, _: &[IoSlice<'_>], _: Durable) -> io::Result<Duration> {
        panic!("a defect")
    }

    fn read(&self, _: TargetFile, _: &mut [ReadPart<'_>], _: Wait) -> io::Result<()> {
        panic!("a defect")
    }

    fn sync(&self, _: TargetFile) -> io::Result<Duration> {
        panic!("a defect")
    }

    fn allocate(&self, _: TargetFile, _: Allocation) -> io::Result<()> {
        panic!("a defect")
    }

    fn seal(&self, _: TargetFile) -> io::Result<()> {
        panic!("a defect")
    }

    fn rename(&self, _: TargetFile, _: TargetFile) -> io::Result<()> {
        panic!("a defect")
    }

    fn remove(&self, _: TargetFile) -> io::Result<()> {
        panic!("a defect")
    }

    fn list(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        panic!("a defect")
    }

    fn list_metadata(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        panic!("a defect")
    }

    fn claim(&self, _: &ClaimRequest) -> io::Result<ClaimState> {
        panic!("a defect")
    }

    fn space(&self) -> io::Result<Space> {
        panic!("a defect")
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn owner(&self) -> Option<Owner<'_>> {
        None
    }

    fn look(&self, files: &[TargetFile]) -> io::Result<Vec<Presence>> {
        look_by_reading(self, files)
    }
}

fn targets(deadline: Duration) -> Targets {
    let targets = Targets::with_deadline(deadline);
    targets.add(ID, Arc::new(Panicking));
    targets
}

fn until(mut reached: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !reached() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it hangs");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_operation_that_panics_fails_and_its_thread_goes_on() {
    let targets = targets(DEADLINE);
    // More than a target has threads.
    for _ in 0..4 {
        let done = targets.each([(0, ID)], |_, target| target.list());
        assert_eq!(done[0].2.as_ref().unwrap_err().kind(), io::ErrorKind::Other);
    }
    assert!(targets.error(ID).unwrap().contains("panicked"));
    assert_eq!(targets.space(ID).unwrap_err().kind(), io::ErrorKind::Other);
    until(|| targets.known_health()[0].queued == 0);
    assert!(!targets.hangs(ID));
    let done = targets.each([(0, ID), (1, ID)], |_, _| Ok(()));
    assert!(done.iter().all(|(.., result)| result.is_ok()), "{done:?}");
}

#[test]
fn an_operation_that_panics_after_it_was_given_up_does_not_hang_any_more() {
    let targets = targets(Duration::from_millis(50));
    let (release, held) = channel::<()>();
    let held = Mutex::new(held);
    let done = targets.each([(0, ID)], move |_, target| {
        held.lock().unwrap().recv().unwrap();
        target.list()
    });
    assert_eq!(done[0].2.as_ref().unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert!(targets.hangs(ID));
    release.send(()).unwrap();
    until(|| !targets.hangs(ID) && targets.known_health()[0].queued == 0);
}

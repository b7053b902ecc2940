//! Targets that do not answer: no caller waits for them beyond the deadline, and what they do too
//! late does no harm.

use plan::{Position, SetId, Span, StripeSeq, TargetId};
use std::sync::Arc;
use std::time::{Duration, Instant};
use volume::format::VolumeId;
use volume::target::{Allocation, Faults, Faulty, Memory, TargetFile};
use volume::{Appended, BlockState, BufferPool, Control, SetLayout, SetWriter, Targets, rebuild, verify_stripe};

const DEADLINE: Duration = Duration::from_millis(200);
const HANG_TIME: Duration = Duration::from_millis(1500);

fn hanging() -> Faults {
    Faults { delay: HANG_TIME, ..Faults::default() }
}

fn until(mut reached: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !reached() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it hangs");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Four disks, and a stripe of 50,000 sevens on the first three of them.
struct Lab {
    targets: Arc<Targets>,
    disks: Vec<Arc<Faulty>>,
    layout: SetLayout,
    stripe: Appended,
    _writer: SetWriter,
}

fn lab(deadline: Duration) -> Lab {
    let code = ec::parse("rs:2+1").unwrap();
    let places = (0..3).map(|number| Some(TargetId(number))).collect();
    let layout = SetLayout { volume: VolumeId([9; 16]), set: SetId(3), code, places };
    let targets = Arc::new(Targets::with_deadline(deadline));
    let disks: Vec<Arc<Faulty>> = (0..4).map(|_| Arc::new(Faulty::new(Arc::new(Memory::default())))).collect();
    disks.iter().enumerate().for_each(|(number, disk)| targets.add(TargetId(number as u16), disk.clone()));
    let pool = Arc::new(BufferPool::new(&*layout.code, 96 << 10, 4));
    let writer = SetWriter::create(targets.clone(), pool.clone(), layout.clone(), 1 << 20, 1);
    let mut buffer = pool.take();
    buffer.extend_from_slice(&[7; 50_000]);
    let stripe = writer.append(buffer, StripeSeq(1), b"manifest").unwrap();
    Lab { targets, disks, layout, stripe, _writer: writer }
}

#[test]
fn what_was_not_begun_in_time_does_not_happen() {
    let targets = Targets::with_deadline(DEADLINE);
    let (id, disk) = (TargetId(0), Arc::new(Faulty::new(Arc::new(Memory::default()))));
    targets.add(id, disk.clone());
    let file = |key| TargetFile::Chunk { set: SetId(key as u64), position: Position(0) };
    disk.set(hanging());
    // More than a target has threads.
    let begun = Instant::now();
    let done = targets
        .each((0..8).map(|key| (key, id)), move |key, target| target.allocate(file(key), Allocation::Reserve(10)));
    assert!(done.iter().all(|(.., result)| result.is_err()) && begun.elapsed() < HANG_TIME);
    assert!(targets.hangs(id));
    // Though it is forgiven, nothing is created on it while it may still carry out an abandoned
    // operation.
    targets.forgive(id);
    assert!(!targets.is_healthy(id));
    disk.set(Faults::default());
    until(|| !targets.hangs(id));
    assert!(targets.is_healthy(id));
    std::thread::sleep(HANG_TIME);
    assert!(!targets.hangs(id));
}

#[test]
fn a_rebuild_gives_a_target_up_that_hangs() {
    let Lab { targets, disks, layout, stripe, .. } = lab(DEADLINE);
    disks[1].inner().remove(layout.file(Position(1))).unwrap();

    let (stripes, position) = ([(stripe.record, stripe.block)], Position(1));
    let again = |id| rebuild(&targets, &layout, &stripes, &[(position, TargetId(id))], &Control::default());
    disks[3].set(hanging());
    let begun = Instant::now();
    let error = again(3).unwrap_err();
    assert!(begun.elapsed() < HANG_TIME, "after {:?}: {error}", begun.elapsed());
    assert_eq!(disks[3].inner().list().unwrap(), []);
    // Another target takes it meanwhile, and what comes too late is a chunk without a name at most.
    again(1).unwrap();
    disks[3].set(Faults::default());
    until(|| !targets.hangs(TargetId(3)));
    let unnamed = |(file, _): &(TargetFile, u64)| matches!(file, TargetFile::NewChunk { .. });
    assert!(disks[3].inner().list().unwrap().iter().all(unnamed));
    targets.forgive(TargetId(3));
    again(3).unwrap();
    assert_eq!(disks[3].inner().list().unwrap().len(), 1);
}

/// Of a set with many stripes, only the first ones wait for a target that hangs: one for each of
/// its threads.
#[test]
fn who_reads_many_stripes_does_not_wait_for_each_where_a_target_hangs() {
    const STRIPES: u64 = 12;
    // For a machine that is busy.
    let deadline = DEADLINE * 8;
    let Lab { targets, disks, layout, stripe, _writer: writer } = lab(deadline);
    let mut stripes = vec![(stripe.record, stripe.block)];
    for number in 1..STRIPES {
        let mut buffer = BufferPool::new(&*layout.code, 96 << 10, 1).take();
        buffer.extend_from_slice(&[number as u8; 50_000]);
        let done = writer.append(buffer, StripeSeq(number + 1), b"manifest").map_err(|(why, _)| why).unwrap();
        stripes.push((done.record, done.block));
    }
    let is_quick = |what: &str, work: &dyn Fn()| {
        targets.forgive(TargetId(1));
        let begun = Instant::now();
        work();
        assert!(begun.elapsed() < deadline * 6, "{what}: {:?}", begun.elapsed());
    };
    // Until the end of the test.
    disks[1].set(Faults { delay: deadline * 100, ..Faults::default() });
    is_quick("verification", &|| {
        for &(record, block) in &stripes {
            let report = verify_stripe(&targets, &layout, record, block);
            let is_read = matches!(report.blocks[1], BlockState::Sound | BlockState::Corrupt(_) | BlockState::Missing);
            assert!(report.recoverable && !is_read, "{report:?}");
        }
    });
    is_quick("manifests", &|| {
        for &(record, block) in &stripes {
            assert_eq!(volume::read_manifest(&targets, &layout, record, block).unwrap(), b"manifest");
        }
    });
    is_quick("a move", &|| {
        let done = rebuild(&targets, &layout, &stripes, &[(Position(1), TargetId(3))], &Control::default()).unwrap();
        assert_eq!(done.unwitnessed, STRIPES, "the only witness is the chunk that does not answer");
    });
    let chunk = layout.file(Position(1));
    let length = |disk: &Faulty| disk.inner().list().unwrap().iter().find(|(file, _)| *file == chunk).unwrap().1;
    assert_eq!(length(&disks[3]), length(&disks[1]));
}

#[test]
fn what_is_slow_everywhere_is_not_late_for_long() {
    let Lab { targets, disks, layout, stripe, .. } = lab(HANG_TIME * 10);
    disks.iter().for_each(|disk| disk.set(Faults { delay: DEADLINE, ..Faults::default() }));
    let span = Span { set: SetId(3), record: stripe.record, block: stripe.block, start: 0 };
    let degraded = |out: &mut [u8]| {
        let before = targets.reads().degraded();
        volume::read(&targets, &layout, span, out).unwrap();
        targets.reads().degraded() - before
    };
    let mut out = vec![0; 50_000];
    assert!(degraded(&mut out) > 0, "the first is late by what was usual before");
    assert_eq!(out, [7; 50_000]);
    until(|| degraded(&mut out) == 0);
    assert_eq!(degraded(&mut out), 0);
    assert_eq!(out, [7; 50_000]);
}

#[test]
fn a_read_waits_for_several_that_hang_no_longer_than_for_one() {
    let deadline = DEADLINE * 15;
    let Lab { targets, disks, layout, stripe, .. } = lab(deadline);
    // The second is read instead of the first, and hangs, too.
    disks[..2].iter().for_each(|disk| disk.set(Faults { delay: deadline * 4, ..Faults::default() }));
    let span = Span { set: SetId(3), record: stripe.record, block: stripe.block, start: 0 };
    let begun = Instant::now();
    let error = volume::read(&targets, &layout, span, &mut [0; 100]).unwrap_err();
    assert!(matches!(error, volume::Error::TooDegraded { .. }), "{error}");
    let took = begun.elapsed();
    assert!(deadline < took && took < deadline * 9 / 5, "{took:?}");
}

#[test]
fn a_read_does_not_wait_for_one_that_hangs_when_a_slow_one_has_it() {
    let deadline = DEADLINE * 50;
    let Lab { targets, disks, layout, stripe, .. } = lab(deadline);
    disks[0].set(Faults { delay: DEADLINE * 2, ..Faults::default() });
    disks[1].set(Faults { delay: deadline * 4, ..Faults::default() });
    let span = Span { set: SetId(3), record: stripe.record, block: stripe.block, start: 0 };
    let (begun, mut out) = (Instant::now(), [0; 100]);
    volume::read(&targets, &layout, span, &mut out).unwrap();
    assert_eq!(out, [7; 100]);
    let took = begun.elapsed();
    assert!(took < deadline * 3 / 5, "{took:?}");
}

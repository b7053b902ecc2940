//! Targets that are slow or hang: no caller waits for them longer than necessary.

use crate::Lab;
use plan::{Position, SetId, Span, TargetId};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use volume::target::{
    Allocation, Durable, Faults, Memory, Owner, Presence, ReadPart, Target, TargetFile, Wait, look_by_reading,
};
use volume::{BlockState, Error, Health, read, scan, verify_stripe};

#[test]
fn a_disk_that_hangs_is_an_erasure() {
    let lab = Lab::on("rs:4+2", Duration::from_millis(200), || Arc::new(Memory::default()));
    let warnings = Arc::new(std::sync::Mutex::new(Vec::new()));
    let heard = warnings.clone();
    lab.targets.on_warning(Box::new(move |what| heard.lock().unwrap().push(what.to_string())));
    let (stripe, _) = lab.append(90_000, 1).unwrap();
    lab.disks[1].set(Faults { delay: Duration::from_secs(3), ..Faults::default() });
    let begun = Instant::now();
    assert_eq!(lab.read(&stripe, 0, 90_000).unwrap(), stripe.data);
    assert_eq!(lab.append(90_000, 2).unwrap().1, [Position(1)]);
    // That is known now.
    assert_eq!(lab.append(90_000, 3).unwrap().1, []);
    lab.writer.sync().unwrap();
    assert!(!lab.targets.is_usable(TargetId(1)));
    assert!(!lab.targets.is_usable(TargetId(1)));
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(warnings.lock().unwrap().len(), 1, "{warnings:?}");
}

/// Long before the deadline, a hedged read rebuilds the blocks of a slow disk from the others, and
/// the disk is left alone until it answers. That does not count as a failure of it.
#[test]
fn a_slow_disk_is_read_around() {
    let lab = Lab::new("rs:4+2");
    let (written, _) = lab.append(80_000, 1).unwrap();
    let read_all = || {
        let mut bytes = vec![0; written.data.len()];
        let span = Span { set: SetId(3), record: written.record, block: written.block, start: 0 };
        let begun = Instant::now();
        let report = read(&lab.targets, lab.layout(), span, &mut bytes).unwrap();
        assert!(bytes == written.data);
        assert_eq!(report.bad, [], "it is neither damaged nor lost");
        begun.elapsed()
    };
    for slow in [[0, 3], [1, 4]] {
        slow.iter()
            .for_each(|&number| lab.disks[number].set(Faults { delay: Duration::from_secs(6), ..Faults::default() }));
        assert!(read_all() < Duration::from_secs(5));
        // Nobody waits for it a second time.
        assert!(read_all() < Duration::from_secs(5));
        slow.iter().for_each(|&number| lab.disks[number].set(Faults::default()));
    }
    assert!(lab.targets.health().iter().all(|target| target.health == Health::Healthy));
}

/// A disk that is always late, but not as late as that a read is hedged, is left out by most reads
/// once that is known, and used again when it is as fast as the others.
#[test]
fn an_overloaded_disk_is_left_out_until_it_is_fast_again() {
    let lab = Lab::new("rs:4+2");
    let (written, _) = lab.append(80_000, 1).unwrap();
    let span = Span { set: SetId(3), record: written.record, block: written.block, start: 0 };
    let degraded = || lab.targets.reads().degraded();
    let read_once = || {
        let (before, mut bytes) = (degraded(), vec![0; written.data.len()]);
        assert_eq!(read(&lab.targets, lab.layout(), span, &mut bytes).unwrap().bad, []);
        assert!(bytes == written.data);
        degraded() > before
    };
    // Reads until that many of the last ones were as expected.
    let read_until = |expected: bool, in_a_row: usize| {
        let mut row = 0;
        for _ in 0..5000 {
            row = if read_once() == expected { row + 1 } else { 0 };
            if row == in_a_row {
                return;
            }
        }
        panic!("reads are still {} degraded", if expected { "not" } else { "" });
    };
    // What is in memory is read without asking the disk. These are not, but all are equally fast.
    lab.disks.iter().for_each(|disk| disk.set(Faults { delay: Duration::from_millis(1), ..Faults::default() }));
    assert_eq!((0..40).filter(|_| read_once()).count(), 0, "no disk is overloaded");
    lab.disks[1].set(Faults { delay: Duration::from_millis(70), ..Faults::default() });
    read_until(true, 10);
    lab.disks[1].set(Faults { delay: Duration::from_millis(1), ..Faults::default() });
    read_until(false, 40);
    // With no others to spare, it is read all the same.
    lab.disks[1].set(Faults { delay: Duration::from_millis(70), ..Faults::default() });
    read_until(true, 10);
    [4, 5].into_iter().for_each(|number| lab.disks[number].inner().remove(lab.file(number)).unwrap());
    read_once();
}

/// With too few other disks, a read waits for a slow one.
#[test]
fn slow_disks_are_waited_for_when_there_are_no_others() {
    let lab = Lab::new("rs:4+2");
    let (written, _) = lab.append(80_000, 1).unwrap();
    for disk in &lab.disks[1..4] {
        disk.set(Faults { delay: Duration::from_secs(1), ..Faults::default() });
    }
    let mut bytes = vec![0; written.data.len()];
    let span = Span { set: SetId(3), record: written.record, block: written.block, start: 0 };
    read(&lab.targets, lab.layout(), span, &mut bytes).unwrap();
    assert!(bytes == written.data);
}

#[test]
fn a_disk_that_hangs_keeps_small_stripes_from_nobody_else() {
    let lab = Lab::on("rs:4+2", Duration::from_millis(200), || Arc::new(Memory::default()));
    let append = |sequences: Range<u64>| {
        let begun = Instant::now();
        for sequence in sequences {
            assert_eq!(lab.append(1000, sequence).unwrap().1, []);
        }
        begun.elapsed()
    };
    // What as many take while nothing hangs: long on a busy machine, or with a sanitizer.
    let usual = append(1..48);
    lab.disks[2].set(Faults { delay: Duration::from_secs(3), ..Faults::default() });
    let begun = Instant::now();
    let (stripe, missing) = lab.append(1000, 48).unwrap();
    assert_eq!(missing, [Position(2)]);
    // Now it is known, and nothing waits for it.
    let known = append(49..96);
    assert!(known < Duration::from_millis(150) + 2 * usual, "{known:?}, {usual:?} when nothing hangs");
    assert_eq!(lab.read(&stripe, 0, 1000).unwrap(), stripe.data);
    assert!(begun.elapsed() < Duration::from_secs(1) + 4 * usual, "{:?}", begun.elapsed());
    for position in [0, 1, 3, 4, 5] {
        assert_eq!(scan(&**lab.disks[position].inner(), lab.file(position)).unwrap().records.len(), 95);
    }
}

/// Long before the deadline, a stripe is written without the disks that are late. What arrives too
/// late is what it should be.
#[test]
fn writes_and_syncs_do_without_disks_that_are_late() {
    for length in [1_000, 90_000] {
        let lab = Lab::on("rs:4+2", Duration::from_secs(600), || Arc::new(Remote(Memory::default())));
        // They hang until they get other faults: whatever waits for them waits for the deadline.
        let hang =
            |number: usize| lab.disks[number].set(Faults { delay: Duration::from_secs(900), ..Faults::default() });
        let begun = Instant::now();
        let mut stripes = vec![lab.append(length, 1).unwrap().0];
        hang(1);
        let (stripe, missing) = lab.append(length, 2).unwrap();
        assert_eq!(missing, [Position(1)]);
        stripes.push(stripe);
        // Nothing waits for it any more.
        let (stripe, missing) = lab.append(length, 3).unwrap();
        assert_eq!(missing, []);
        stripes.push(stripe);
        hang(4);
        assert_eq!(lab.writer.sync().unwrap(), [Position(4)]);
        assert!(begun.elapsed() < Duration::from_secs(100), "{:?}", begun.elapsed());
        // Too few targets have the next one, so it goes elsewhere.
        assert!(matches!(lab.append(length, 4).unwrap_err(), Error::TooDegraded { .. }));
        for id in [1, 4].map(TargetId) {
            assert!(lab.targets.error(id).is_some() && !lab.targets.is_healthy(id));
        }
        [1, 4].into_iter().for_each(|number| lab.disks[number].set(Faults::default()));
        let begun = Instant::now();
        while [1, 4].into_iter().any(|id| lab.targets.hangs(TargetId(id))) {
            assert!(begun.elapsed() < Duration::from_secs(20), "it hangs");
            std::thread::sleep(Duration::from_millis(20));
        }
        let records = |position: usize| scan(&**lab.disks[position].inner(), lab.file(position)).unwrap().records.len();
        assert_eq!([0, 1, 2, 3, 4, 5].map(records), [4, 2, 4, 4, 3, 4]);
        // The second one has arrived by now.
        for (stripe, lacking) in stripes.iter().zip([None, None, Some(1)]) {
            assert_eq!(lab.read(stripe, 0, length).unwrap(), stripe.data);
            let report = verify_stripe(&lab.targets, lab.layout(), stripe.record, stripe.block);
            let mut others = report.blocks.iter().enumerate().filter(|(position, _)| Some(*position) != lacking);
            assert!(others.all(|(_, state)| *state == BlockState::Sound), "{report:?}");
        }
    }
}

/// Memory that counts as another machine's.
#[derive(Debug)]
struct Remote(Memory);

impl Target for Remote {
    fn is_remote(&self) -> bool {
        true
    }

    fn write(
        &self,
        file: TargetFile,
        offset: u64,
        parts: &[io::IoSlice<'_>],
        durable: Durable,
    ) -> io::Result<Duration> {
        self.0.write(file, offset, parts, durable)
    }

    fn read(&self, file: TargetFile, parts: &mut [ReadPart<'_>], wait: Wait) -> io::Result<()> {
        self.0.read(file, parts, wait)
    }

    fn sync(&self, file: TargetFile) -> io::Result<Duration> {
        self.0.sync(file)
    }

    fn allocate(&self, file: TargetFile, change: Allocation) -> io::Result<()> {
        self.0.allocate(file, change)
    }

    fn seal(&self, file: TargetFile) -> io::Result<()> {
        self.0.seal(file)
    }

    fn rename(&self, from: TargetFile, to: TargetFile) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, file: TargetFile) -> io::Result<()> {
        self.0.remove(file)
    }

    fn list(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        self.0.list()
    }

    fn list_metadata(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        self.0.list_metadata()
    }

    fn claim(&self, ask: &volume::target::ClaimRequest) -> io::Result<volume::target::ClaimState> {
        self.0.claim(ask)
    }

    fn space(&self) -> io::Result<volume::target::Space> {
        self.0.space()
    }

    fn owner(&self) -> Option<Owner<'_>> {
        None
    }

    fn look(&self, files: &[TargetFile]) -> io::Result<Vec<Presence>> {
        look_by_reading(self, files)
    }
}

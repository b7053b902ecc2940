//! Chunk sets are read from the targets that have their blocks.

use crate::Lab;
use plan::TargetId;
use std::sync::Arc;
use std::time::Duration;
use volume::format::StripeHeader;
use volume::target::{Durable, Faults, Faulty, Memory, Traced};
use volume::{BlockState, Health, verify_stripe};

#[test]
fn a_block_of_an_older_stripe_is_not_taken_for_one_of_this() {
    // As after a set number was given twice: sound in itself, and at the same place.
    for code in ["rs:4+2", "gluster:4+2", "crs:4+2"] {
        let (old, mut lab) = (Lab::new(code), Lab::new(code));
        old.append(60_000, 1).unwrap();
        let (stripe, _) = lab.append(60_000, 2).unwrap();
        for position in [1, 4] {
            let bytes = old.chunk(position);
            lab.disks[position]
                .inner()
                .write(lab.file(position), 0, &[std::io::IoSlice::new(&bytes)], Durable::Later)
                .unwrap();
        }
        lab.forget();
        assert_eq!(lab.read(&stripe, 0, 60_000).unwrap(), stripe.data, "{code}");
        let report = verify_stripe(&lab.targets, lab.layout(), stripe.record, stripe.block);
        assert!(
            matches!(report.blocks[1], BlockState::Corrupt(_)) && matches!(report.blocks[4], BlockState::Corrupt(_))
        );
        assert!(report.recoverable);
    }
}

#[test]
fn a_small_read_costs_one_small_read() {
    let traced: std::sync::Mutex<Vec<Arc<Traced>>> = std::sync::Mutex::default();
    let lab = Lab::on("rs:4+2", Duration::from_secs(15), || {
        let target = Arc::new(Traced::new(Arc::new(Memory::default())));
        traced.lock().unwrap().push(target.clone());
        target
    });
    let (stripe, _) = lab.append(80_000, 1).unwrap();
    let bytes = || traced.lock().unwrap().iter().map(|t| t.trace().read.bytes).sum::<u64>();
    let operations = || traced.lock().unwrap().iter().map(|t| t.trace().read.operations).sum::<u64>();
    lab.read(&stripe, 100, 200).unwrap();
    assert!(bytes() <= 4096 + 192 && operations() <= 2, "{} bytes", bytes());
    let before = bytes();
    lab.read(&stripe, 5000, 5100).unwrap();
    assert_eq!(bytes() - before, 4096);
}

#[test]
fn granules_that_a_range_cuts_are_verified_whole() {
    let mut lab = Lab::new("rs:4+2");
    let (stripe, _) = lab.append(90_000, 1).unwrap();
    let (file, block) = (lab.file(0), u64::from(stripe.block));
    let begin = u64::from(stripe.record.0) + StripeHeader::encoded_bytes(stripe.block as usize) as u64;
    // The range has only the second of these bytes. Its first and last granule have the others.
    for at in [10, 12_000, block - 10] {
        lab.disks[0].set(Faults { flipped: vec![(file, begin + at..begin + at + 1)], ..Faults::default() });
        lab.forget();
        let (from, until) = (100, stripe.block as usize - 100);
        assert_eq!(lab.read(&stripe, from, until).unwrap(), stripe.data[from..until], "byte {at}");
        let reads = lab.targets.reads();
        assert_eq!((reads.degraded(), reads.refused()), (1, 1), "byte {at}");
    }
    lab.disks[0].set(Faults::default());
    lab.forget();
    assert_eq!(lab.read(&stripe, 100, 90_000).unwrap(), stripe.data[100..]);
    assert_eq!(lab.targets.reads().degraded(), 0);
}

#[test]
fn directories_may_go_and_come() {
    let place = std::env::temp_dir().join(format!("weft-sets-{:016x}", fastrand::u64(..)));
    let number = std::sync::atomic::AtomicUsize::new(0);
    let mut lab = Lab::on("crs:4+2", Duration::from_secs(15), || {
        let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Arc::new(volume::target::Disk::format(&place.join(number.to_string())).unwrap())
    });
    let (stripe, _) = lab.append(90_000, 1).unwrap();
    let (small, _) = lab.append(100, 2).unwrap();
    lab.writer.sync().unwrap();
    let all = |lab: &Lab| {
        assert_eq!(lab.read(&stripe, 0, 90_000).unwrap(), stripe.data);
        assert_eq!(lab.read(&stripe, 30_001, 30_002).unwrap(), stripe.data[30_001..30_002]);
        assert_eq!(lab.read(&small, 0, 100).unwrap(), small.data);
    };
    all(&lab);
    for gone in ["0", "3"] {
        std::fs::rename(place.join(gone), place.join(format!("{gone}.gone"))).unwrap();
    }
    assert!(!lab.targets.is_usable(TargetId(0)) && lab.targets.is_usable(TargetId(1)));
    assert!(matches!(lab.targets.health()[3].health, Health::Gone(_)));
    // What is open can still be read; from now on nothing is.
    all(&lab);
    for number in 0..6u16 {
        let disk = volume::target::Disk::open(&place.join(number.to_string()));
        match disk {
            Ok(disk) => lab.disks[usize::from(number)] = Arc::new(Faulty::new(Arc::new(disk))),
            Err(_) => lab.disks[usize::from(number)].set(Faults { dead: true, ..Faults::default() }),
        }
    }
    lab.forget();
    all(&lab);
    std::fs::remove_dir_all(&place).unwrap();
}

#[test]
fn reads_that_are_not_simple_are_counted() {
    let mut lab = Lab::new("rs:4+2");
    let (stripe, _) = lab.append(90_000, 1).unwrap();
    let counts = |lab: &Lab| {
        let reads = lab.targets.reads();
        (reads.degraded(), reads.hedged(), reads.refused())
    };
    lab.read(&stripe, 0, 90_000).unwrap();
    assert_eq!(counts(&lab), (0, 0, 0));
    lab.disks[0].set(Faults { flipped: vec![(lab.file(0), 10_000..10_001)], ..Faults::default() });
    lab.read(&stripe, 0, 90_000).unwrap();
    assert_eq!(counts(&lab), (1, 0, 1));
    lab.disks[0].set(Faults { delay: Duration::from_secs(1), ..Faults::default() });
    lab.forget();
    lab.read(&stripe, 0, 90_000).unwrap();
    assert_eq!(counts(&lab), (1, 1, 0));
}

//! Lost chunks are rebuilt, or nothing is left behind.

use crate::Lab;
use plan::{Position, RecordOffset, TargetId};
use std::sync::Arc;
use std::time::{Duration, Instant};
use volume::format::StripeHeader;
use volume::target::{Durable, Faults, Faulty, Memory, ReadAt};
use volume::{Control, Error, Limit, rebuild, verify_stripe};

#[test]
fn what_contradicts_a_survivor_is_not_repaired() {
    let lab = Lab::new("rs:4+2");
    let (stripe, _) = lab.append(60_000, 1).unwrap();
    // A block with a checksum of its own, as only a bug would write it.
    let range = volume::record_range(stripe.record, stripe.block);
    let mut record = lab.chunk(2)[range.start as usize..range.end as usize].to_vec();
    let mut header = StripeHeader::decode(&record).unwrap();
    let begin = StripeHeader::encoded_bytes(stripe.block as usize);
    record[begin] ^= 1;
    header.checksums = record[begin..begin + stripe.block as usize].chunks(4096).map(gf::checksum::crc64).collect();
    record[..begin].copy_from_slice(&header.encode());
    lab.disks[2].inner().write(lab.file(2), range.start, &[std::io::IoSlice::new(&record)], Durable::Later).unwrap();
    assert_eq!(verify_stripe(&lab.targets, lab.layout(), stripe.record, stripe.block).parity_fits, Some(false));
    lab.disks[0].inner().remove(lab.file(0)).unwrap();
    lab.targets.add(TargetId(50), Arc::new(Memory::default()));
    let stripes = [(stripe.record, stripe.block)];
    let error =
        rebuild(&lab.targets, lab.layout(), &stripes, &[(Position(0), TargetId(50))], &Control::default()).unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    assert_eq!(lab.targets.get(TargetId(50)).unwrap().list().unwrap(), [], "nothing is left behind");
}

#[test]
fn a_rebuild_without_space_leaves_nothing_behind() {
    let lab = Lab::new("rs:4+2");
    let (stripe, _) = lab.append(60_000, 1).unwrap();
    let place = Arc::new(Faulty::new(Arc::new(Memory::default())));
    place.set(Faults { full: true, ..Faults::default() });
    lab.targets.add(TargetId(50), place.clone());
    let stripes = [(stripe.record, stripe.block)];
    let error =
        rebuild(&lab.targets, lab.layout(), &stripes, &[(Position(0), TargetId(50))], &Control::default()).unwrap_err();
    assert!(matches!(error, Error::NoSpace(_)), "{error}");
    assert_eq!(place.inner().list().unwrap(), []);
    place.set(Faults::default());
    let control = Control::default();
    control.cancel();
    let error = rebuild(&lab.targets, lab.layout(), &stripes, &[(Position(0), TargetId(50))], &control).unwrap_err();
    assert!(matches!(error, Error::Interrupted));
    assert_eq!(place.inner().list().unwrap(), []);
}

#[test]
fn a_rebuild_keeps_to_its_limit_and_can_be_stopped_while_it_waits() {
    let lab = Lab::new("rs:4+2");
    let stripes: Vec<(RecordOffset, u32)> =
        (1..=8).map(|n| lab.append(90_000, n).unwrap().0).map(|s| (s.record, s.block)).collect();
    let block = u64::from(stripes[0].1);
    let control = Control::default();
    // Eight blocks at twenty a second: the first two are a burst.
    control.limit(Arc::new(Limit::new(20 * block)));
    let begun = Instant::now();
    let report = rebuild(&lab.targets, lab.layout(), &stripes, &[(Position(1), TargetId(1))], &control).unwrap();
    assert_eq!((report.bytes, control.done_bytes()), (8 * block, 8 * block));
    assert!(begun.elapsed() >= Duration::from_millis(290), "{:?}", begun.elapsed());
    let control = Arc::new(Control::default());
    control.limit(Arc::new(Limit::new(1)));
    let stopped = control.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        stopped.cancel();
    });
    let error = rebuild(&lab.targets, lab.layout(), &stripes, &[(Position(1), TargetId(1))], &control).unwrap_err();
    assert!(matches!(error, Error::Interrupted), "{error}");
}

/// Zeroes in the place of parity come from no block, and nothing comes from them.
#[test]
fn zeroes_are_rebuilt_and_data_is_not() {
    let lab = Lab::new("none:4+2,unsafe=1");
    let (stripe, _) = lab.append(60_000, 1).unwrap();
    let before = lab.chunk(5);
    let stripes = [(stripe.record, stripe.block)];
    for position in [5, 0] {
        lab.disks[position].inner().remove(lab.file(position)).unwrap();
        lab.targets.add(TargetId(50), Arc::new(Memory::default()));
        let wanted = [(Position::at(position), TargetId(50))];
        let done = rebuild(&lab.targets, lab.layout(), &stripes, &wanted, &Control::default());
        if position == 0 {
            assert!(matches!(done, Err(Error::TooDegraded { .. })), "{done:?}");
            continue;
        }
        assert_eq!(done.unwrap().unwitnessed, 1);
        let mut bytes = vec![0; before.len()];
        lab.targets.get(TargetId(50)).unwrap().read_at(lab.file(5), 0, &mut bytes).unwrap();
        assert!(bytes == before);
    }
}

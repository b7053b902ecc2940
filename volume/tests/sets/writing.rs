//! Chunk sets are written, without targets that fail, and synced.

use crate::{CHUNK, Lab, STRIPE};
use plan::{Position, RecordOffset, SetId, StripeSeq, TargetId};
use std::sync::Arc;
use std::time::{Duration, Instant};
use volume::format::{ChunkHeader, StripeHeader};
use volume::target::{Faults, Memory};
use volume::{BufferPool, Error, Health, SetWriter, WriteStep, scan};

#[test]
fn chunks_say_what_they_are() {
    let lab = Lab::new("rs:4+2");
    let (stripe, missing) = lab.append(10_000, 77).unwrap();
    assert_eq!((stripe.record, stripe.block, missing), (RecordOffset(4096), 2503, Vec::new()));
    for position in 0..6 {
        let bytes = lab.chunk(position);
        assert_eq!(bytes.len() as u64, volume::record_range(RecordOffset(4096), 2503).end);
        let header = ChunkHeader::decode(&bytes).unwrap();
        assert_eq!(
            (header.set, header.position, header.shape, &header.code[..]),
            (SetId(3), Position::at(position), (4, 2), "rs:4+2")
        );
        let record = StripeHeader::decode(&bytes[4096..]).unwrap();
        assert_eq!(
            (record.sequence, record.data_bytes, record.manifest_bytes),
            (StripeSeq(77), 10_000, stripe.manifest.len() as u32)
        );
    }
}

#[test]
fn a_set_is_written_without_those_that_fail_as_long_as_enough_are_left() {
    let lab = Lab::new("rs:4+2");
    lab.append(1000, 1).unwrap();
    lab.disks[5].set(Faults { dead: true, ..Faults::default() });
    let (stripe, missing) = lab.append(50_000, 2).unwrap();
    assert_eq!(missing, [Position(5)]);
    assert_eq!(lab.read(&stripe, 0, 50_000).unwrap(), stripe.data);
    assert!(matches!(lab.targets.health()[5].health, Health::Gone(_)));
    assert_eq!(lab.writer.sync().unwrap(), [], "it is known already");
    lab.disks[0].set(Faults { dead: true, ..Faults::default() });
    let error = lab.append(50_000, 3).unwrap_err();
    assert!(matches!(&error, Error::TooDegraded { why, .. } if (why.have, why.need) == (4, 5)), "{error}");
    // What was written before is still there.
    assert_eq!(lab.read(&stripe, 0, 50_000).unwrap(), stripe.data);
}

#[test]
fn full_targets_are_no_failing_ones() {
    let lab = Lab::new("rs:4+2");
    lab.disks[1].set(Faults { full: true, ..Faults::default() });
    assert_eq!(lab.append(9999, 1).unwrap().1, [Position(1)]);
    assert!(lab.targets.is_healthy(TargetId(1)));
    lab.disks[2].set(Faults { full: true, ..Faults::default() });
    assert!(matches!(lab.append(9999, 2), Err(Error::NoSpace(_))));
}

#[test]
fn a_sync_that_fails_is_told() {
    let lab = Lab::new("rs:4+2");
    lab.append(1000, 1).unwrap();
    lab.disks[3].set(Faults { unsynced: true, ..Faults::default() });
    assert!(lab.writer.has_unsynced());
    assert_eq!(lab.writer.sync().unwrap(), [Position(3)]);
    assert_eq!(lab.writer.sync().unwrap(), []);
    lab.append(1000, 2).unwrap();
    lab.disks[4].set(Faults { unsynced: true, ..Faults::default() });
    assert_eq!(lab.writer.sync().unwrap(), [Position(4)], "any k give the data back");
    let error = lab.append(1000, 3).unwrap_err();
    assert!(matches!(&error, Error::TooDegraded { why, .. } if (why.have, why.need) == (4, 5)), "{error}");
}

/// The header of a chunk comes with the first stripe.
#[test]
fn a_chunk_whose_first_stripe_was_refused_while_another_one_arrived_gets_its_header_with_a_sync() {
    for is_refused_again in [false, true] {
        let lab = Lab::on("rs:4+2", Duration::from_secs(600), || Arc::new(Memory::default()));
        for (position, disk) in lab.disks.iter().enumerate().skip(3) {
            disk.set(Faults { refused: vec![(lab.file(position), 0..1)], ..Faults::default() });
        }
        // The first stripe waits for it, the other one does without.
        lab.disks[0].set(Faults { delay: Duration::from_secs(600), ..Faults::default() });
        let stripe = std::thread::scope(|scope| {
            let first = scope.spawn(|| lab.append(STRIPE - 100, 1).unwrap_err());
            while lab.writer.next_record() == RecordOffset(4096) {
                std::thread::yield_now();
            }
            let (stripe, missing) = lab.append(STRIPE - 100, 2).unwrap();
            assert_eq!(missing, [Position(0)]);
            lab.disks[0].set(Faults::default());
            let error = first.join().unwrap();
            assert!(matches!(error, Error::TooDegraded { .. }), "{error}");
            stripe
        });
        let header = |position: usize| scan(&**lab.disks[position].inner(), lab.file(position)).unwrap().header;
        assert!((1..6).all(|position| header(position).is_some() == (position < 3)));
        if !is_refused_again {
            lab.disks.iter().for_each(|disk| disk.set(Faults::default()));
        }
        // The blocks are there with a header and without.
        assert_eq!(lab.writer.sync().unwrap(), []);
        assert_eq!(lab.writer.lacking(), [Position(0)]);
        assert_eq!(lab.read(&stripe, 0, stripe.data.len()).unwrap(), stripe.data);
        let wanted = header(1).map(|header| ChunkHeader { position: Position(5), ..header });
        assert_eq!(header(5), wanted.filter(|_| !is_refused_again));
    }
}

#[test]
fn a_sync_that_leaves_too_little_is_an_error() {
    let lab = Lab::new("rs:4+2");
    lab.append(1000, 1).unwrap();
    for disk in &lab.disks[3..] {
        disk.set(Faults { unsynced: true, ..Faults::default() });
    }
    assert!(matches!(lab.writer.sync(), Err(Error::TooDegraded { .. })));
    assert!(lab.writer.has_unsynced());
}

#[test]
fn many_threads_append_to_one_set() {
    let lab = Lab::new("rs:4+2");
    let stripes = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (lab, stripes) = (&lab, &stripes);
            scope.spawn(move || {
                for number in 0..20 {
                    let (stripe, missing) = lab.append(500 + 300 * number as usize, thread * 100 + number).unwrap();
                    assert!(missing.is_empty());
                    stripes.lock().unwrap().push(stripe);
                }
                lab.writer.sync().unwrap();
            });
        }
    });
    let mut stripes = stripes.into_inner().unwrap();
    stripes.sort_by_key(|stripe| stripe.record);
    for stripe in &stripes {
        assert_eq!(lab.read(stripe, 0, stripe.data.len()).unwrap(), stripe.data);
    }
    let scanned = scan(&*lab.disks[0], lab.file(0)).unwrap();
    assert_eq!(scanned.records.len(), 80);
    assert!(scanned.records.iter().zip(&stripes).all(|(header, stripe)| header.record == stripe.record));
}

/// A page that cannot be read hides the record that begins there, and no other.
#[test]
fn a_scan_goes_on_behind_what_cannot_be_read() {
    let lab = Lab::new("rs:4+2");
    let stripes: Vec<_> = (0..40).map(|sequence| lab.append(STRIPE - 100, sequence).unwrap().0).collect();
    lab.writer.sync().unwrap();
    let (disk, file) = (&lab.disks[0], lab.file(0));
    let found = || -> Vec<_> { scan(&**disk, file).unwrap().records.iter().map(|header| header.record).collect() };
    assert_eq!(found().len(), 40);
    // The file header, the beginning of one record, and the middle of another one.
    let begin = |number: usize| u64::from(stripes[number].record.0);
    let block = begin(30) + u64::from(stripes[30].block) / 2;
    let bad = [0..512, begin(7)..begin(7) + 512, block..block + 512];
    let unreadable = bad.into_iter().map(|range| (file, range)).collect();
    disk.set(Faults { unreadable, ..Faults::default() });
    let wanted: Vec<_> = stripes.iter().map(|stripe| stripe.record).filter(|it| *it != stripes[7].record).collect();
    assert_eq!(found(), wanted);
    assert_eq!(scan(&**disk, file).unwrap().header, None);
    // Of a dead target nothing is known: that is no chunk without records.
    disk.set(Faults { dead: true, ..Faults::default() });
    assert!(scan(&**disk, file).is_err());
}

#[test]
fn a_full_set_says_so_and_a_set_is_resumed() {
    let lab = Lab::new("rs:4+2");
    let mut last = 0;
    for sequence in 0.. {
        if lab.writer.full() {
            break;
        }
        last = lab.append(STRIPE - 100, sequence).unwrap().0.record.0;
    }
    assert!(last > CHUNK / 2 && lab.writer.next_record().0 <= CHUNK);
    let (code, next) = (lab.layout().code.clone(), lab.writer.next_record());
    let pool = Arc::new(BufferPool::new(&*code, STRIPE, 1));
    let writer = SetWriter::resume(lab.targets.clone(), pool.clone(), lab.layout().clone(), 2 * CHUNK, 1, next);
    let mut buffer = pool.take();
    buffer.extend_from_slice(b"more");
    let done = writer.append(buffer, StripeSeq(1000), b"").map_err(|(error, _)| error).unwrap();
    assert_eq!(done.record, next);
    let scanned = scan(&*lab.disks[5], lab.file(5)).unwrap();
    assert_eq!(scanned.records.last().unwrap().sequence, StripeSeq(1000));
    assert!(scanned.header.is_some());
}

#[test]
fn every_stripe_says_what_it_cost() {
    let lab = Lab::new("rs:4+2");
    let slow = Duration::from_millis(20);
    lab.disks[3].set(Faults { delay: slow, ..Faults::default() });
    let begun = Instant::now();
    lab.append(90_000, 1).unwrap();
    let took = begun.elapsed();
    let totals = lab.targets.steps().totals();
    for step in [WriteStep::Master, WriteStep::Parity, WriteStep::Distribution, WriteStep::Slave] {
        assert_eq!(totals.of(step).count, 1, "{step:?}");
    }
    assert!(totals.of(WriteStep::Parity).time > Duration::ZERO);
    assert!(totals.of(WriteStep::Slave).time >= slow, "the slowest one counts");
    assert!(totals.total() <= took, "nothing is counted twice: {totals:?} of {took:?}");
    lab.writer.sync().unwrap();
    let synced = lab.targets.steps().totals();
    assert_eq!((synced.of(WriteStep::Slave).count, synced.of(WriteStep::Master).count), (2, 1));
    assert!(synced.of(WriteStep::Slave).time >= 2 * slow);
    // Of short blocks the targets take one after the other.
    lab.disks[4].set(Faults { delay: slow, ..Faults::default() });
    lab.append(1000, 2).unwrap();
    assert!(lab.targets.steps().totals().of(WriteStep::Slave).time >= 4 * slow);
    // A failed write leaves no stripe.
    lab.disks.iter().for_each(|disk| disk.set(Faults { dead: true, ..Faults::default() }));
    lab.append(1000, 3).unwrap_err();
    assert_eq!(lab.targets.steps().totals().of(WriteStep::Master).count, 2);
}

//! Chunk sets on targets that fail: whatever is lost, what is read is what was written, or an error says that too little is left.

use plan::{Span, TargetId};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::{Duration, Instant};
use volume::format::{CHUNK_HEADER_BYTES, ChunkHeader, StripeHeader, VolumeId};
use volume::target::{Crash, Faults, Faulty, Memory, Target, TargetFile, Traced};
use volume::{BlockState, BufferPool, Control, Error, Health, Limit, SetLayout, SetWriter, Step, Targets};
use volume::{read, read_manifest, rebuild, scan, verify_stripe};

const STRIPE: usize = 96 << 10;
const CHUNK: u32 = 1 << 20;
const CODES: &[&str] = &[
    "rs:4+2",
    "rs:2+1",
    "gluster:4+2",
    "crs:4+2",
    "lrc:4+2+2",
    "none:4",
    "rs:10+4",
    "replica:1+2",
    "liberation:5+2",
    "cauchy-good:4+2",
    "raid6:4+2",
    "xor:3+1",
];

/// A chunk set on targets that can be made to fail.
struct Lab {
    targets: Arc<Targets>,
    disks: Vec<Arc<Faulty>>,
    writer: SetWriter,
}

/// A stripe that was written.
#[derive(Clone, Debug)]
struct Written {
    record: u32,
    block: u32,
    data: Vec<u8>,
    manifest: Vec<u8>,
}

fn layout(code: &str, set: u64) -> SetLayout {
    let code = ec::parse(code).unwrap();
    let places = (0..code.shape().blocks()).map(|number| Some(TargetId(number as u16))).collect();
    SetLayout { volume: VolumeId([9; 16]), set, code, places }
}

impl Lab {
    fn new(code: &str) -> Self {
        Self::on(code, Duration::from_secs(15), || Arc::new(Memory::default()))
    }

    fn on(code: &str, deadline: Duration, target: impl Fn() -> Arc<dyn Target>) -> Self {
        let layout = layout(code, 3);
        let targets = Arc::new(Targets::with_deadline(deadline));
        let disks: Vec<Arc<Faulty>> = layout.places.iter().map(|_| Arc::new(Faulty::new(target()))).collect();
        for (number, disk) in disks.iter().enumerate() {
            targets.add(TargetId(number as u16), disk.clone());
        }
        let pool = Arc::new(BufferPool::new(&*layout.code, STRIPE, 4));
        let spare = usize::from(layout.code.shape().m > 0);
        let writer = SetWriter::create(targets.clone(), pool, layout, CHUNK, spare);
        Self { targets, disks, writer }
    }

    fn layout(&self) -> &SetLayout {
        self.writer.layout()
    }

    fn append(&self, length: usize, sequence: u64) -> std::result::Result<(Written, Vec<usize>), Error> {
        let data: Vec<u8> = (0..length).map(|at| (at as u64 * 31 + sequence * 7 + (at as u64 >> 8)) as u8).collect();
        let manifest = format!("stripe {sequence}").into_bytes();
        let pool = BufferPool::new(&*self.layout().code, STRIPE, 1);
        let mut buffer = pool.take();
        buffer.extend_from_slice(&data);
        let done = self.writer.append(buffer, sequence, &manifest).map_err(|(error, back)| {
            assert_eq!(back.len(), length, "the data comes back");
            error
        })?;
        Ok((Written { record: done.record, block: done.block, data, manifest }, done.missing))
    }

    fn file(&self, position: usize) -> TargetFile {
        self.layout().file(position)
    }

    /// Everything in the chunk of a position.
    fn chunk(&self, position: usize) -> Vec<u8> {
        let mut bytes = vec![0; 2 * CHUNK as usize];
        let length = self.disks[position].inner().read(self.file(position), 0, &mut bytes).unwrap();
        bytes.truncate(length);
        bytes
    }

    /// Damages a chunk in one of the ways in which chunks are damaged.
    fn damage(&self, position: usize, how: u8, stripe: &Written) {
        let (disk, file) = (&self.disks[position], self.file(position));
        let record = u64::from(stripe.record);
        let header = StripeHeader::encoded_bytes(stripe.block as usize) as u64;
        match how % 6 {
            0 => disk.set(Faults { dead: true, ..Faults::default() }),
            1 => disk.inner().remove(file).unwrap(),
            2 => disk.set(Faults { flipped: vec![(file, record + 20..record + 21)], ..Faults::default() }),
            // All granules, so that it counts wherever is read.
            3 => {
                let block = record + header..record + header + u64::from(stripe.block);
                disk.set(Faults { flipped: vec![(file, block)], ..Faults::default() });
            }
            4 => {
                let mut bytes = self.chunk(position);
                bytes.truncate((record + header) as usize);
                disk.inner().remove(file).unwrap();
                disk.inner().write(file, 0, &[std::io::IoSlice::new(&bytes)]).unwrap();
            }
            _ => disk.inner().punch(file, record..record + header + u64::from(stripe.block)).unwrap(),
        }
    }

    fn read(&self, stripe: &Written, from: usize, until: usize) -> Result<Vec<u8>, Error> {
        let mut out = vec![0xaa; until - from];
        let span = Span { set: 3, record: stripe.record, block: stripe.block, start: from as u32 };
        read(&self.targets, self.layout(), span, &mut out).map(|_| out)
    }

    /// The same targets with nothing remembered.
    fn forget(&mut self) {
        let targets = Targets::new();
        for (number, disk) in self.disks.iter().enumerate() {
            targets.add(TargetId(number as u16), disk.clone());
        }
        self.targets = Arc::new(targets);
    }
}

/// Different positions, as many as wanted.
fn some_positions(seed: u64, count: usize, of: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (0..of).collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut all);
    all.truncate(count);
    all
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn what_is_read_is_what_was_written(
        code in 0..CODES.len(), lengths in prop::collection::vec(1usize..STRIPE - 100, 1..4), seed: u64, lost in 0usize..5,
        how in prop::collection::vec(any::<u8>(), 5), cuts in prop::collection::vec((any::<u32>(), any::<u32>()), 4), cold: bool,
    ) {
        let mut lab = Lab::new(CODES[code]);
        let short = lengths.iter().map(|length| if seed % 3 == 0 { length % 600 + 1 } else { *length });
        let stripes: Vec<Written> = short.enumerate().map(|(n, length)| lab.append(length, n as u64).unwrap().0).collect();
        prop_assert_eq!(lab.writer.sync().unwrap(), Vec::<usize>::new());
        let code = lab.layout().code.clone();
        let bad = some_positions(seed, lost.min(code.tolerates()), code.shape().blocks());
        if !cold {
            // With the headers in memory.
            lab.read(&stripes[0], 0, stripes[0].data.len()).unwrap();
        }
        for (&position, &how) in bad.iter().zip(&how) {
            lab.damage(position, how, &stripes[0]);
        }
        if cold {
            lab.forget();
        }
        for (a, b) in cuts {
            for stripe in &stripes {
                let (a, b) = (a as usize % (stripe.data.len() + 1), b as usize % (stripe.data.len() + 1));
                let (a, b) = (a.min(b), a.max(b));
                prop_assert_eq!(&lab.read(stripe, a, b).unwrap()[..], &stripe.data[a..b]);
            }
        }
        let stripe = &stripes[0];
        prop_assert_eq!(&read_manifest(&lab.targets, lab.layout(), stripe.record, stripe.block).unwrap(), &stripe.manifest);
        let report = verify_stripe(&lab.targets, lab.layout(), stripe.record, stripe.block);
        for (position, state) in report.blocks.iter().enumerate() {
            prop_assert_eq!(*state != BlockState::Sound, bad.contains(&position), "position {}: {}", position, state);
        }
        prop_assert!(report.recoverable);
        prop_assert_ne!(report.parity_fits, Some(false));
    }

    #[test]
    fn too_many_losses_are_an_error_and_never_wrong_bytes(
        code in 0..CODES.len(), length in 1usize..STRIPE - 100, seed: u64, how in prop::collection::vec(any::<u8>(), 20), more in 0usize..3,
    ) {
        let mut lab = Lab::new(CODES[code]);
        let (stripe, _) = lab.append(length, 5).unwrap();
        let code = lab.layout().code.clone();
        let count = (code.shape().m + 1 + more).min(code.shape().blocks());
        for (position, how) in some_positions(seed, count, code.shape().blocks()).into_iter().zip(how) {
            lab.damage(position, how, &stripe);
        }
        lab.forget();
        // What is left may still have the bytes of a short stripe.
        match lab.read(&stripe, 0, length) {
            Ok(bytes) => prop_assert_eq!(bytes, stripe.data),
            Err(Error::TooDegraded { why, what }) => {
                prop_assert!(why.have < why.need || !why.blocks.is_empty());
                prop_assert!(what.contains("chunk set 3"));
            }
            Err(other) => prop_assert!(false, "{}", other),
        }
        let report = verify_stripe(&lab.targets, lab.layout(), stripe.record, stripe.block);
        prop_assert!(!report.recoverable);
    }

    #[test]
    fn what_was_rebuilt_is_what_was_lost(
        code in 0..CODES.len(), lengths in prop::collection::vec(1usize..STRIPE - 100, 1..6), seed: u64, lost in 1usize..3,
    ) {
        let lab = Lab::new(CODES[code]);
        let code = lab.layout().code.clone();
        prop_assume!(code.shape().m > 0);
        let stripes: Vec<Written> =
            lengths.iter().enumerate().map(|(n, length)| lab.append(*length, n as u64).unwrap().0).collect();
        // One is dead, so that it must stay a hole.
        let live: Vec<(u32, u32)> = stripes.iter().skip(usize::from(stripes.len() > 2)).map(|s| (s.record, s.block)).collect();
        let bad = some_positions(seed, lost.min(code.tolerates()), code.shape().blocks());
        let before: Vec<Vec<u8>> = bad.iter().map(|&position| lab.chunk(position)).collect();
        for &position in &bad {
            lab.disks[position].inner().remove(lab.file(position)).unwrap();
        }
        let mut wanted = Vec::new();
        for (number, &position) in bad.iter().enumerate() {
            let id = TargetId(100 + number as u16);
            lab.targets.add(id, Arc::new(Memory::default()));
            wanted.push((position, id));
        }
        let report = rebuild(&lab.targets, lab.layout(), &live, &wanted, &Control::default()).unwrap();
        let blocks = (live.len() * bad.len()) as u64;
        prop_assert_eq!(report.witnessed + report.unwitnessed, blocks);
        if bad.len() < code.shape().m && !code.spec().to_string().starts_with("lrc") {
            prop_assert_eq!(report.unwitnessed, 0);
        }
        for ((&position, before), (_, id)) in bad.iter().zip(&before).zip(&wanted) {
            let mut bytes = vec![0; before.len() + 1];
            let target = lab.targets.get(*id).unwrap();
            prop_assert_eq!(target.read(lab.file(position), 0, &mut bytes).unwrap(), before.len());
            prop_assert_eq!(&bytes[..CHUNK_HEADER_BYTES], &before[..CHUNK_HEADER_BYTES]);
            for &(record, block) in &live {
                let range = volume::record_range(record, block);
                prop_assert!(bytes[range.start as usize..range.end as usize] == before[range.start as usize..range.end as usize]);
            }
            if live.len() < stripes.len() {
                prop_assert!(bytes[CHUNK_HEADER_BYTES..live[0].0 as usize].iter().all(|&byte| byte == 0));
            }
            let scanned = scan(&*target, lab.file(position)).unwrap();
            let records: Vec<(u32, u32)> = scanned.records.iter().map(|header| (header.record, header.block_bytes)).collect();
            prop_assert_eq!(&records, &live);
            prop_assert_eq!(scanned.header.unwrap().position, position as u16);
        }
    }

    #[test]
    fn a_crash_takes_nothing_that_was_synced(
        code in 0..CODES.len(), synced in prop::collection::vec(1usize..STRIPE - 100, 1..4),
        unsynced in prop::collection::vec(1usize..STRIPE - 100, 0..4), seed: u64,
    ) {
        let crashes: std::sync::Mutex<Vec<Arc<Crash>>> = std::sync::Mutex::default();
        let mut lab = Lab::on(CODES[code], Duration::from_secs(15), || {
            let crash = Arc::new(Crash::new(Arc::new(Memory::default())));
            crashes.lock().unwrap().push(crash.clone());
            crash
        });
        let stripes: Vec<Written> = synced.iter().enumerate().map(|(n, length)| lab.append(*length, n as u64).unwrap().0).collect();
        lab.writer.sync().unwrap();
        prop_assert!(!lab.writer.has_unsynced());
        let later: Vec<Written> = unsynced.iter().enumerate().map(|(n, length)| lab.append(*length, 100 + n as u64).unwrap().0).collect();
        for (number, crash) in crashes.lock().unwrap().iter().enumerate() {
            crash.crash(seed.wrapping_add(number as u64)).unwrap();
        }
        lab.forget();
        for stripe in &stripes {
            prop_assert_eq!(&lab.read(stripe, 0, stripe.data.len()).unwrap(), &stripe.data);
            let report = verify_stripe(&lab.targets, lab.layout(), stripe.record, stripe.block);
            prop_assert!(report.blocks.iter().all(|state| *state == BlockState::Sound));
        }
        // What was not synced is there or not, and never something else.
        for stripe in &later {
            if let Ok(bytes) = lab.read(stripe, 0, stripe.data.len()) {
                prop_assert_eq!(&bytes, &stripe.data);
            }
        }
        for disk in &lab.disks {
            let files: Vec<TargetFile> = disk.list().unwrap().into_iter().map(|(file, _)| file).collect();
            for file in files {
                let found = scan(&**disk, file).unwrap().records;
                prop_assert!(stripes.iter().all(|stripe| found.iter().any(|header| header.record == stripe.record)));
            }
        }
    }
}

#[test]
fn chunks_say_what_they_are() {
    let lab = Lab::new("rs:4+2");
    let (stripe, missing) = lab.append(10_000, 77).unwrap();
    assert_eq!((stripe.record, stripe.block, missing), (4096, 2503, Vec::new()));
    for position in 0..6 {
        let bytes = lab.chunk(position);
        assert_eq!(bytes.len() as u64, volume::record_range(4096, 2503).end);
        let header = ChunkHeader::decode(&bytes).unwrap();
        assert_eq!(
            (header.set, header.position, header.shape, &header.code[..]),
            (3, position as u16, (4, 2), "rs:4+2")
        );
        let record = StripeHeader::decode(&bytes[4096..]).unwrap();
        assert_eq!(
            (record.sequence, record.data_bytes, record.manifest_bytes),
            (77, 10_000, stripe.manifest.len() as u32)
        );
    }
}

#[test]
fn a_set_is_written_without_those_that_fail_as_long_as_enough_are_left() {
    let lab = Lab::new("rs:4+2");
    lab.append(1000, 1).unwrap();
    lab.disks[5].set(Faults { dead: true, ..Faults::default() });
    let (stripe, missing) = lab.append(50_000, 2).unwrap();
    assert_eq!(missing, [5]);
    assert_eq!(lab.read(&stripe, 0, 50_000).unwrap(), stripe.data);
    assert!(matches!(lab.targets.health()[5].health, Health::Gone(_)));
    assert_eq!(lab.writer.sync().unwrap(), Vec::<usize>::new(), "it is known already");
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
    assert_eq!(lab.append(9999, 1).unwrap().1, [1]);
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
    assert_eq!(lab.writer.sync().unwrap(), [3]);
    assert_eq!(lab.writer.sync().unwrap(), Vec::<usize>::new());
    lab.append(1000, 2).unwrap();
    lab.disks[4].set(Faults { unsynced: true, ..Faults::default() });
    assert_eq!(lab.writer.sync().unwrap(), [4], "any k give the data back");
    let error = lab.append(1000, 3).unwrap_err();
    assert!(matches!(&error, Error::TooDegraded { why, .. } if (why.have, why.need) == (4, 5)), "{error}");
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
fn a_disk_that_hangs_is_an_erasure() {
    let lab = Lab::on("rs:4+2", Duration::from_millis(200), || Arc::new(Memory::default()));
    let warnings = Arc::new(std::sync::Mutex::new(Vec::new()));
    let heard = warnings.clone();
    lab.targets.on_warning(Box::new(move |what| heard.lock().unwrap().push(what.to_string())));
    let (stripe, _) = lab.append(90_000, 1).unwrap();
    lab.disks[1].set(Faults { delay: Duration::from_secs(3), ..Faults::default() });
    let begun = Instant::now();
    assert_eq!(lab.read(&stripe, 0, 90_000).unwrap(), stripe.data);
    assert_eq!(lab.append(90_000, 2).unwrap().1, [1]);
    // That is known now.
    assert_eq!(lab.append(90_000, 3).unwrap().1, []);
    lab.writer.sync().unwrap();
    assert!(!lab.targets.is_usable(TargetId(1)));
    assert!(!lab.targets.is_usable(TargetId(1)));
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(warnings.lock().unwrap().len(), 1, "{warnings:?}");
}

/// Long before the deadline, what a slow disk has is made from the others, and it is left alone until it answers. That is no failure of it.
#[test]
fn a_slow_disk_is_read_around() {
    let lab = Lab::new("rs:4+2");
    let (written, _) = lab.append(80_000, 1).unwrap();
    let read_all = || {
        let mut bytes = vec![0; written.data.len()];
        let span = Span { set: 3, record: written.record, block: written.block, start: 0 };
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

/// With too few others a slow disk is waited for.
#[test]
fn slow_disks_are_waited_for_when_there_are_no_others() {
    let lab = Lab::new("rs:4+2");
    let (written, _) = lab.append(80_000, 1).unwrap();
    for disk in &lab.disks[1..4] {
        disk.set(Faults { delay: Duration::from_secs(1), ..Faults::default() });
    }
    let mut bytes = vec![0; written.data.len()];
    let span = Span { set: 3, record: written.record, block: written.block, start: 0 };
    read(&lab.targets, lab.layout(), span, &mut bytes).unwrap();
    assert!(bytes == written.data);
}

#[test]
fn a_block_of_an_older_stripe_is_not_taken_for_one_of_this() {
    // As after a set number was given twice: sound in itself, and at the same place.
    for code in ["rs:4+2", "gluster:4+2", "crs:4+2"] {
        let (old, mut lab) = (Lab::new(code), Lab::new(code));
        old.append(60_000, 1).unwrap();
        let (stripe, _) = lab.append(60_000, 2).unwrap();
        for position in [1, 4] {
            let bytes = old.chunk(position);
            lab.disks[position].inner().write(lab.file(position), 0, &[std::io::IoSlice::new(&bytes)]).unwrap();
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
    lab.disks[2].inner().write(lab.file(2), range.start, &[std::io::IoSlice::new(&record)]).unwrap();
    assert_eq!(verify_stripe(&lab.targets, lab.layout(), stripe.record, stripe.block).parity_fits, Some(false));
    lab.disks[0].inner().remove(lab.file(0)).unwrap();
    lab.targets.add(TargetId(50), Arc::new(Memory::default()));
    let stripes = [(stripe.record, stripe.block)];
    let error = rebuild(&lab.targets, lab.layout(), &stripes, &[(0, TargetId(50))], &Control::default()).unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    assert_eq!(lab.targets.get(TargetId(50)).unwrap().list().unwrap(), [], "nothing is left behind");
}

#[test]
fn a_rebuild_without_room_leaves_nothing_behind() {
    let lab = Lab::new("rs:4+2");
    let (stripe, _) = lab.append(60_000, 1).unwrap();
    let place = Arc::new(Faulty::new(Arc::new(Memory::default())));
    place.set(Faults { full: true, ..Faults::default() });
    lab.targets.add(TargetId(50), place.clone());
    let stripes = [(stripe.record, stripe.block)];
    let error = rebuild(&lab.targets, lab.layout(), &stripes, &[(0, TargetId(50))], &Control::default()).unwrap_err();
    assert!(matches!(error, Error::NoSpace(_)), "{error}");
    assert_eq!(place.inner().list().unwrap(), []);
    place.set(Faults::default());
    let control = Control::default();
    control.cancel();
    let error = rebuild(&lab.targets, lab.layout(), &stripes, &[(0, TargetId(50))], &control).unwrap_err();
    assert!(matches!(error, Error::Interrupted));
    assert_eq!(place.inner().list().unwrap(), []);
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

#[test]
fn a_full_set_says_so_and_a_set_is_resumed() {
    let lab = Lab::new("rs:4+2");
    let mut last = 0;
    for sequence in 0.. {
        if lab.writer.full() {
            break;
        }
        last = lab.append(STRIPE - 100, sequence).unwrap().0.record;
    }
    assert!(last > CHUNK / 2 && lab.writer.next_record() <= CHUNK);
    let (code, next) = (lab.layout().code.clone(), lab.writer.next_record());
    let pool = Arc::new(BufferPool::new(&*code, STRIPE, 1));
    let writer = SetWriter::resume(lab.targets.clone(), pool.clone(), lab.layout().clone(), 2 * CHUNK, 1, next);
    let mut buffer = pool.take();
    buffer.extend_from_slice(b"more");
    let done = writer.append(buffer, 1000, b"").map_err(|(error, _)| error).unwrap();
    assert_eq!(done.record, next);
    let scanned = scan(&*lab.disks[5], lab.file(5)).unwrap();
    assert_eq!(scanned.records.last().unwrap().sequence, 1000);
    assert!(scanned.header.is_some());
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
fn a_disk_that_hangs_keeps_small_stripes_from_nobody_else() {
    let lab = Lab::on("rs:4+2", Duration::from_millis(200), || Arc::new(Memory::default()));
    lab.append(1000, 1).unwrap();
    lab.disks[2].set(Faults { delay: Duration::from_secs(3), ..Faults::default() });
    let begun = Instant::now();
    let (stripe, missing) = lab.append(1000, 2).unwrap();
    assert_eq!(missing, [2]);
    // Now it is known, and nothing waits for it.
    let known = Instant::now();
    for sequence in 3..50 {
        assert_eq!(lab.append(1000, sequence).unwrap().1, []);
    }
    assert!(known.elapsed() < Duration::from_millis(150), "{:?}", known.elapsed());
    assert_eq!(lab.read(&stripe, 0, 1000).unwrap(), stripe.data);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    for position in [0, 1, 3, 4, 5] {
        assert_eq!(scan(&**lab.disks[position].inner(), lab.file(position)).unwrap().records.len(), 49);
    }
}

/// Long before the deadline, a stripe is written without the disks that are late. What arrives too late is what it should be.
#[test]
fn writes_and_syncs_do_without_disks_that_are_late() {
    for length in [1_000, 90_000] {
        let lab = Lab::on("rs:4+2", Duration::from_secs(60), || Arc::new(Remote(Memory::default())));
        let hang = |number: usize| lab.disks[number].set(Faults { delay: Duration::from_secs(9), ..Faults::default() });
        let mut stripes = vec![lab.append(length, 1).unwrap().0];
        hang(1);
        let begun = Instant::now();
        let (stripe, missing) = lab.append(length, 2).unwrap();
        assert_eq!(missing, [1]);
        stripes.push(stripe);
        // Nobody waits for it any more.
        let (stripe, missing) = lab.append(length, 3).unwrap();
        assert_eq!(missing, []);
        stripes.push(stripe);
        hang(4);
        assert_eq!(lab.writer.sync().unwrap(), [4]);
        assert!(begun.elapsed() < Duration::from_secs(7), "{:?}", begun.elapsed());
        // Fewer than asked for have the next one, so that it goes elsewhere.
        assert!(matches!(lab.append(length, 4).unwrap_err(), Error::TooDegraded { .. }));
        for id in [1, 4].map(TargetId) {
            assert!(lab.targets.error(id).is_some() && !lab.targets.is_healthy(id));
        }
        let begun = Instant::now();
        while [1, 4].into_iter().any(|id| lab.targets.hangs(TargetId(id))) {
            assert!(begun.elapsed() < Duration::from_secs(20), "it hangs");
            std::thread::sleep(Duration::from_millis(20));
        }
        let records = |position: usize| scan(&**lab.disks[position].inner(), lab.file(position)).unwrap().records.len();
        assert_eq!([0, 1, 2, 3, 4, 5].map(records), [4, 2, 4, 4, 3, 4]);
        [1, 4].into_iter().for_each(|number| lab.disks[number].set(Faults::default()));
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

    fn write(&self, file: TargetFile, offset: u64, parts: &[std::io::IoSlice<'_>]) -> std::io::Result<()> {
        self.0.write(file, offset, parts)
    }

    fn read(&self, file: TargetFile, offset: u64, into: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(file, offset, into)
    }

    fn sync(&self, file: TargetFile) -> std::io::Result<()> {
        self.0.sync(file)
    }

    fn reserve(&self, file: TargetFile, bytes: u64) -> std::io::Result<()> {
        self.0.reserve(file, bytes)
    }

    fn punch(&self, file: TargetFile, range: std::ops::Range<u64>) -> std::io::Result<()> {
        self.0.punch(file, range)
    }

    fn rename(&self, from: TargetFile, to: TargetFile) -> std::io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, file: TargetFile) -> std::io::Result<()> {
        self.0.remove(file)
    }

    fn list(&self) -> std::io::Result<Vec<(TargetFile, u64)>> {
        self.0.list()
    }

    fn space(&self) -> std::io::Result<volume::target::Space> {
        self.0.space()
    }
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
fn every_stripe_says_what_it_cost() {
    let lab = Lab::new("rs:4+2");
    let slow = Duration::from_millis(20);
    lab.disks[3].set(Faults { delay: slow, ..Faults::default() });
    let begun = Instant::now();
    lab.append(90_000, 1).unwrap();
    let took = begun.elapsed();
    let totals = lab.targets.steps().totals();
    for step in [Step::Master, Step::Parity, Step::Distribution, Step::Slave] {
        assert_eq!(totals.of(step).count, 1, "{step:?}");
    }
    assert!(totals.of(Step::Parity).time > Duration::ZERO);
    assert!(totals.of(Step::Slave).time >= slow, "the slowest one counts");
    assert!(totals.total() <= took, "nothing is counted twice: {totals:?} of {took:?}");
    lab.writer.sync().unwrap();
    let synced = lab.targets.steps().totals();
    assert_eq!((synced.of(Step::Slave).count, synced.of(Step::Master).count), (2, 1));
    assert!(synced.of(Step::Slave).time >= 2 * slow);
    // Of short blocks the targets take one after the other.
    lab.disks[4].set(Faults { delay: slow, ..Faults::default() });
    lab.append(1000, 2).unwrap();
    assert!(lab.targets.steps().totals().of(Step::Slave).time >= 4 * slow);
    // What fails is no stripe.
    lab.disks.iter().for_each(|disk| disk.set(Faults { dead: true, ..Faults::default() }));
    lab.append(1000, 3).unwrap_err();
    assert_eq!(lab.targets.steps().totals().of(Step::Master).count, 2);
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

#[test]
fn a_rebuild_keeps_to_its_limit_and_can_be_stopped_while_it_waits() {
    let lab = Lab::new("rs:4+2");
    let stripes: Vec<(u32, u32)> =
        (1..=8).map(|n| lab.append(90_000, n).unwrap().0).map(|s| (s.record, s.block)).collect();
    let block = u64::from(stripes[0].1);
    let control = Control::default();
    // Eight blocks at twenty a second: the first two are a burst.
    control.limit(Arc::new(Limit::new(20 * block)));
    let begun = Instant::now();
    let report = rebuild(&lab.targets, lab.layout(), &stripes, &[(1, TargetId(1))], &control).unwrap();
    assert_eq!((report.bytes, control.done_bytes()), (8 * block, 8 * block));
    assert!(begun.elapsed() >= Duration::from_millis(290), "{:?}", begun.elapsed());
    let control = Arc::new(Control::default());
    control.limit(Arc::new(Limit::new(1)));
    let stopped = control.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        stopped.cancel();
    });
    let error = rebuild(&lab.targets, lab.layout(), &stripes, &[(1, TargetId(1))], &control).unwrap_err();
    assert!(matches!(error, Error::Interrupted), "{error}");
}

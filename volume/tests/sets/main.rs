//! Chunk sets on targets that fail: whatever is lost, a read returns what was written, or an error
//! says that too little is left.

mod late;
mod reading;
mod rebuilding;
mod writing;

use plan::{Position, RecordOffset, SetId, Span, StripeSeq, TargetId};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;
use volume::format::{CHUNK_HEADER_BYTES, StripeHeader, VolumeId};
use volume::target::{Allocation, Crash, Durable, Faults, Faulty, Memory, ReadAt, Target, TargetFile};
use volume::{BlockState, BufferPool, Control, Error, SetLayout, SetWriter, Targets};
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
    "none:4+2,unsafe=1",
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
    record: RecordOffset,
    block: u32,
    data: Vec<u8>,
    manifest: Vec<u8>,
}

fn layout(code: &str, set: SetId) -> SetLayout {
    let code = ec::parse(code).unwrap();
    let places = (0..code.shape().blocks()).map(|number| Some(TargetId(number as u16))).collect();
    SetLayout { volume: VolumeId([9; 16]), set, code, places }
}

impl Lab {
    fn new(code: &str) -> Self {
        Self::on(code, Duration::from_secs(15), || Arc::new(Memory::default()))
    }

    fn on(code: &str, deadline: Duration, target: impl Fn() -> Arc<dyn Target>) -> Self {
        let layout = layout(code, SetId(3));
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

    fn append(&self, length: usize, sequence: u64) -> std::result::Result<(Written, Vec<Position>), Error> {
        let data: Vec<u8> = (0..length).map(|at| (at as u64 * 31 + sequence * 7 + (at as u64 >> 8)) as u8).collect();
        let manifest = format!("stripe {sequence}").into_bytes();
        let pool = BufferPool::new(&*self.layout().code, STRIPE, 1);
        let mut buffer = pool.take();
        buffer.extend_from_slice(&data);
        let done = self.writer.append(buffer, StripeSeq(sequence), &manifest).map_err(|(error, back)| {
            assert_eq!(back.len(), length, "the data comes back");
            error
        })?;
        Ok((Written { record: done.record, block: done.block, data, manifest }, done.missing))
    }

    fn file(&self, position: usize) -> TargetFile {
        self.layout().file(Position::at(position))
    }

    /// Everything in the chunk of a position.
    fn chunk(&self, position: usize) -> Vec<u8> {
        let mut bytes = vec![0; 2 * CHUNK as usize];
        let length = self.disks[position].inner().read_at(self.file(position), 0, &mut bytes).unwrap();
        bytes.truncate(length);
        bytes
    }

    /// Damages a chunk in one of the ways in which chunks are damaged.
    fn damage(&self, position: usize, how: u8, stripe: &Written) {
        let (disk, file) = (&self.disks[position], self.file(position));
        let record = u64::from(stripe.record.0);
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
                disk.inner().write(file, 0, &[std::io::IoSlice::new(&bytes)], Durable::Later).unwrap();
            }
            _ => disk
                .inner()
                .allocate(file, Allocation::Punch(record..record + header + u64::from(stripe.block)))
                .unwrap(),
        }
    }

    fn read(&self, stripe: &Written, from: usize, until: usize) -> Result<Vec<u8>, Error> {
        let mut out = vec![0xaa; until - from];
        let span = Span { set: SetId(3), record: stripe.record, block: stripe.block, start: from as u32 };
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
        code in 0..CODES.len(), lengths in prop::collection::vec(1usize..STRIPE - 100, 1..4), seed: u64,
        lost in 0usize..5,
        how in prop::collection::vec(any::<u8>(), 5), cuts in prop::collection::vec((any::<u32>(), any::<u32>()), 4),
        cold: bool,
    ) {
        let mut lab = Lab::new(CODES[code]);
        let short = lengths.iter().map(|length| if seed % 3 == 0 { length % 600 + 1 } else { *length });
        let stripes: Vec<Written> =
            short.enumerate().map(|(n, length)| lab.append(length, n as u64).unwrap().0).collect();
        prop_assert_eq!(lab.writer.sync().unwrap(), []);
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
        prop_assert_eq!(
            &read_manifest(&lab.targets, lab.layout(), stripe.record, stripe.block).unwrap(),
            &stripe.manifest
        );
        let report = verify_stripe(&lab.targets, lab.layout(), stripe.record, stripe.block);
        for (position, state) in report.blocks.iter().enumerate() {
            prop_assert_eq!(*state != BlockState::Sound, bad.contains(&position), "position {}: {}", position, state);
        }
        prop_assert!(report.recoverable);
        prop_assert_ne!(report.parity_fits, Some(false));
    }

    #[test]
    fn too_many_losses_are_an_error_and_never_wrong_bytes(
        code in 0..CODES.len(), length in 1usize..STRIPE - 100, seed: u64,
        how in prop::collection::vec(any::<u8>(), 20), more in 0usize..3,
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
        code in 0..CODES.len(), lengths in prop::collection::vec(1usize..STRIPE - 100, 1..6), seed: u64,
        lost in 1usize..3,
    ) {
        let lab = Lab::new(CODES[code]);
        let code = lab.layout().code.clone();
        prop_assume!(code.tolerates() > 0);
        let stripes: Vec<Written> =
            lengths.iter().enumerate().map(|(n, length)| lab.append(*length, n as u64).unwrap().0).collect();
        // One is dead, so that it must stay a hole.
        let live: Vec<(RecordOffset, u32)> =
            stripes.iter().skip(usize::from(stripes.len() > 2)).map(|s| (s.record, s.block)).collect();
        let bad = some_positions(seed, lost.min(code.tolerates()), code.shape().blocks());
        let before: Vec<Vec<u8>> = bad.iter().map(|&position| lab.chunk(position)).collect();
        for &position in &bad {
            lab.disks[position].inner().remove(lab.file(position)).unwrap();
        }
        let mut wanted = Vec::new();
        for (number, &position) in bad.iter().enumerate() {
            let id = TargetId(100 + number as u16);
            lab.targets.add(id, Arc::new(Memory::default()));
            wanted.push((Position::at(position), id));
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
            prop_assert_eq!(target.read_at(lab.file(position), 0, &mut bytes).unwrap(), before.len());
            prop_assert_eq!(&bytes[..CHUNK_HEADER_BYTES], &before[..CHUNK_HEADER_BYTES]);
            for &(record, block) in &live {
                let range = volume::record_range(record, block);
                prop_assert!(
                    bytes[range.start as usize..range.end as usize] == before[range.start as usize..range.end as usize]
                );
            }
            if live.len() < stripes.len() {
                prop_assert!(bytes[CHUNK_HEADER_BYTES..live[0].0.0 as usize].iter().all(|&byte| byte == 0));
            }
            let scanned = scan(&*target, lab.file(position)).unwrap();
            let records: Vec<(RecordOffset, u32)> =
                scanned.records.iter().map(|header| (header.record, header.block_bytes)).collect();
            prop_assert_eq!(&records, &live);
            prop_assert_eq!(scanned.header.unwrap().position, Position::at(position));
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
        let stripes: Vec<Written> =
            synced.iter().enumerate().map(|(n, length)| lab.append(*length, n as u64).unwrap().0).collect();
        lab.writer.sync().unwrap();
        prop_assert!(!lab.writer.has_unsynced());
        let later: Vec<Written> =
            unsynced.iter().enumerate().map(|(n, length)| lab.append(*length, 100 + n as u64).unwrap().0).collect();
        for (number, crash) in crashes.lock().unwrap().iter().enumerate() {
            crash.crash(seed.wrapping_add(number as u64)).unwrap();
        }
        lab.forget();
        for stripe in &stripes {
            prop_assert_eq!(&lab.read(stripe, 0, stripe.data.len()).unwrap(), &stripe.data);
            let report = verify_stripe(&lab.targets, lab.layout(), stripe.record, stripe.block);
            prop_assert!(report.blocks.iter().all(|state| *state == BlockState::Sound));
        }
        // An unsynced stripe is there or not; it never has other content.
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

//! Stripes that a Master codes have the same bytes as the client's. Nothing is lost, whatever
//! happens to the Master.

use plan::coding::Coder;
use plan::{Position, RecordOffset, SetId, StripeSeq, TargetId};
use proptest::prelude::*;
use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use volume::format::{CHUNK_HEADER_BYTES, ChunkHeader, Timestamp, VolumeId};
use volume::target::{
    Allocation, ClaimRequest, ClaimState, Durable, Faults, Faulty, Memory, Owner, Presence, ReadAt, ReadPart, Space,
    Target, TargetFile, Wait, look_by_reading,
};
use volume::{
    Appended, BufferPool, Control, Distributed, Master, NoMaster, Order, RebuildOrder, RebuildReport, SetLayout,
    SetWriter, Targets, read, rebuild, scan,
};

const STRIPE: usize = 96 << 10;
const CHUNK: u32 = 1 << 20;
const CODES: &[&str] = &["rs:4+2", "gluster:4+2", "crs:4+2", "lrc:4+2+2", "none:4", "rs:10+4", "liberation:5+2"];

/// How a Master behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Works,
    /// Writes everything, and its answer gets lost.
    Mute,
    /// Does nothing, and does not answer for this long.
    Hangs(Duration),
    Refuses,
    /// Works, and does not tell the boot numbers, as Masters did before.
    TellsNothing,
}

/// What all Masters of a test share: their way to the disks, which is not the client's.
struct Staff {
    targets: Arc<Targets>,
    disks: Vec<Arc<Faulty>>,
    pool: Arc<BufferPool>,
    manner: Mutex<Manner>,
    /// The boot numbers of the machines of the disks.
    boots: Vec<AtomicU64>,
    orders: Vec<AtomicUsize>,
    rebuilds: Vec<AtomicUsize>,
}

impl Staff {
    /// How a Master behaves that does what it is asked; of others, how it does not.
    fn begin(&self) -> Result<Manner, NoMaster> {
        let manner = *self.manner.lock().unwrap();
        match manner {
            Manner::Works | Manner::Mute | Manner::TellsNothing => Ok(manner),
            Manner::Hangs(time) => {
                std::thread::sleep(time);
                Err(NoMaster::Silent(io::ErrorKind::TimedOut.into()))
            }
            Manner::Refuses => Err(NoMaster::Unwilling("it does not want to".into())),
        }
    }
}

/// A disk whose store can be a Master.
struct Served {
    disk: Arc<Faulty>,
    number: usize,
    staff: Arc<Staff>,
    /// The boot at which a file that is not synced was written by a Master.
    wrote: Mutex<HashMap<TargetFile, u64>>,
}

impl Served {
    fn boot(&self) -> u64 {
        self.staff.boots[self.number].load(Ordering::SeqCst)
    }
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Served({})", self.number)
    }
}

impl Target for Served {
    fn write(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>], durable: Durable) -> io::Result<Duration> {
        self.disk.write(file, offset, parts, durable)
    }

    fn read(&self, file: TargetFile, parts: &mut [ReadPart<'_>], wait: Wait) -> io::Result<()> {
        self.disk.read(file, parts, wait)
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn sync(&self, file: TargetFile) -> io::Result<Duration> {
        let took = self.disk.sync(file)?;
        match self.wrote.lock().unwrap().get(&file) {
            Some(&boot) if boot != self.boot() => Err(io::Error::other("its machine was started again")),
            _ => Ok(took),
        }
    }

    fn allocate(&self, file: TargetFile, change: Allocation) -> io::Result<()> {
        self.disk.allocate(file, change)
    }

    fn seal(&self, file: TargetFile) -> io::Result<()> {
        self.disk.seal(file)
    }

    fn rename(&self, from: TargetFile, to: TargetFile) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, file: TargetFile) -> io::Result<()> {
        self.disk.remove(file)
    }

    fn list(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        self.disk.list()
    }

    fn list_metadata(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        self.disk.list_metadata()
    }

    fn claim(&self, ask: &ClaimRequest) -> io::Result<ClaimState> {
        self.disk.claim(ask)
    }

    fn space(&self) -> io::Result<Space> {
        self.disk.space()
    }

    fn owner(&self) -> Option<Owner<'_>> {
        Some(Owner { address: &self.number, master: self })
    }

    fn look(&self, files: &[TargetFile]) -> io::Result<Vec<Presence>> {
        look_by_reading(self, files)
    }
}

impl Master for Served {
    fn distribute(
        &self,
        order: &Order<'_>,
        addresses: &[Option<String>],
        _timeout: Duration,
    ) -> Result<Distributed, NoMaster> {
        self.staff.orders[self.number].fetch_add(1, Ordering::SeqCst);
        let manner = self.staff.begin()?;
        // As over a network: by addresses.
        let id = |address: &Option<String>| address.as_ref().map(|address| TargetId(address.parse().unwrap()));
        let layout = SetLayout { places: addresses.iter().map(id).collect(), ..order.layout.clone() };
        let order = Order { layout: &layout, ..*order };
        let (missing, cost) = order.carry_out(&self.staff.targets, &self.staff.pool).unwrap();
        if manner == Manner::Mute {
            return Err(NoMaster::Silent(io::ErrorKind::NotConnected.into()));
        }
        let mut boots: Vec<(Position, u64)> = Position::all(layout.places.len())
            .zip(&self.staff.boots)
            .filter(|(position, _)| !missing.contains(position))
            .map(|(position, boot)| (position, boot.load(Ordering::SeqCst)))
            .collect();
        if manner == Manner::TellsNothing {
            boots.clear();
        }
        let failed = missing.into_iter().map(|position| (position, io::Error::other("it fails")));
        Ok(Distributed { failed: failed.collect(), boots, cost })
    }

    fn wrote(&self, file: TargetFile, boot: u64) -> io::Result<()> {
        self.wrote.lock().unwrap().insert(file, boot);
        Ok(())
    }

    fn rebuild(
        &self,
        order: &RebuildOrder<'_>,
        sources: &[Option<String>],
        destinations: &[String],
    ) -> Result<RebuildReport, NoMaster> {
        self.staff.rebuilds[self.number].fetch_add(1, Ordering::SeqCst);
        let manner = self.staff.begin()?;
        let id = |address: &String| TargetId(address.parse().unwrap());
        let layout =
            SetLayout { places: sources.iter().map(|place| place.as_ref().map(id)).collect(), ..order.layout.clone() };
        let wanted: Vec<(Position, TargetId)> =
            order.wanted.iter().map(|wanted| wanted.0).zip(destinations.iter().map(id)).collect();
        let order = RebuildOrder { layout: &layout, stripes: order.stripes, wanted: &wanted };
        let done = order.carry_out(&self.staff.targets, || Ok(()));
        if manner == Manner::Mute {
            return Err(NoMaster::Silent(io::ErrorKind::NotConnected.into()));
        }
        done.map_err(|why| NoMaster::Unwilling(why.to_string()))
    }
}

struct Lab {
    staff: Arc<Staff>,
    targets: Arc<Targets>,
    disks: Vec<Arc<Faulty>>,
    pool: Arc<BufferPool>,
    writer: SetWriter,
}

fn layout(code: &str) -> SetLayout {
    let code = ec::parse(code).unwrap();
    let places = (0..code.shape().blocks()).map(|number| Some(TargetId(number as u16))).collect();
    SetLayout { volume: VolumeId([9; 16]), set: SetId(3), code, places }
}

impl Lab {
    fn new(code: &str) -> Self {
        let layout = layout(code);
        let memory: Vec<Arc<dyn Target>> =
            layout.places.iter().map(|_| Arc::new(Memory::default()) as Arc<dyn Target>).collect();
        let faulty = || memory.iter().map(|disk| Arc::new(Faulty::new(disk.clone()))).collect::<Vec<_>>();
        let pool = Arc::new(BufferPool::new(&*layout.code, STRIPE, 2));
        let (theirs, targets, disks) = (Arc::new(Targets::new()), Arc::new(Targets::new()), faulty());
        let staff = Arc::new(Staff {
            targets: theirs.clone(),
            disks: faulty(),
            pool: pool.clone(),
            manner: Mutex::new(Manner::Works),
            boots: memory.iter().map(|_| AtomicU64::new(1)).collect(),
            orders: memory.iter().map(|_| AtomicUsize::new(0)).collect(),
            rebuilds: memory.iter().map(|_| AtomicUsize::new(0)).collect(),
        });
        for (number, disk) in disks.iter().enumerate() {
            theirs.add(TargetId(number as u16), staff.disks[number].clone());
            let wrote = Mutex::default();
            let served = Served { disk: disk.clone(), number, staff: staff.clone(), wrote };
            targets.add(TargetId(number as u16), Arc::new(served));
        }
        let spare = usize::from(layout.code.shape().m > 0);
        let writer = SetWriter::create(targets.clone(), pool.clone(), layout, CHUNK, spare);
        Self { staff, targets, disks, pool, writer }
    }

    fn behave(&self, manner: Manner) {
        *self.staff.manner.lock().unwrap() = manner;
    }

    fn append(&self, by: Coder, length: usize, sequence: u64) -> Appended {
        let mut buffer = self.pool.take();
        buffer.extend_from_slice(&pattern(length, sequence));
        self.writer.append_by(by, buffer, StripeSeq(sequence), b"a manifest").map_err(|(error, _)| error).unwrap()
    }

    /// Everything in the chunk of a position; the header without the time when the set was begun.
    fn chunk(&self, position: usize) -> (Option<ChunkHeader>, Vec<u8>) {
        let mut bytes = vec![0; 2 * CHUNK as usize];
        let file = self.writer.layout().file(Position::at(position));
        let length = self.disks[position].inner().read_at(file, 0, &mut bytes).unwrap_or(0);
        bytes.truncate(length);
        let records = bytes.split_off(CHUNK_HEADER_BYTES.min(length));
        let created = Timestamp { seconds: 0, nanoseconds: 0 };
        (ChunkHeader::decode(&bytes).ok().map(|header| ChunkHeader { created, ..header }), records)
    }

    #[track_caller]
    fn same_as(&self, other: &Self) {
        for position in 0..self.disks.len() {
            let (own, others) = (self.chunk(position), other.chunk(position));
            assert!(own.0.is_some() && own == others, "position {position}");
        }
    }

    #[track_caller]
    fn has(&self, stripe: &Appended, length: usize, sequence: u64) {
        let mut out = vec![0; length];
        let span = plan::Span { set: SetId(3), record: stripe.record, block: stripe.block, start: 0 };
        read(&self.targets, self.writer.layout(), span, &mut out).unwrap();
        assert!(out == pattern(length, sequence));
    }

    fn orders(&self) -> Vec<usize> {
        self.staff.orders.iter().map(|orders| orders.load(Ordering::SeqCst)).collect()
    }

    /// The position whose target was asked first.
    fn master(&self) -> usize {
        plan::coding::master(SetId(3), &self.writer.layout().places).unwrap().index()
    }
}

fn pattern(length: usize, sequence: u64) -> Vec<u8> {
    (0..length).map(|at| (at as u64 * 31 + sequence * 7 + (at as u64 >> 8)) as u8).collect()
}

fn dead() -> Faults {
    Faults { dead: true, ..Faults::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn the_bytes_are_the_same_whoever_codes(
        code in 0..CODES.len(), lengths in prop::collection::vec((1usize..STRIPE - 100, any::<u8>()), 1..5),
    ) {
        let [here, master, both] = [(); 3].map(|()| Lab::new(CODES[code]));
        for (number, &(length, coin)) in lengths.iter().enumerate() {
            let (length, number) = (if coin % 3 == 0 { length % 600 + 1 } else { length }, number as u64);
            let a = here.append(Coder::Here, length, number);
            let b = master.append(Coder::Master, length, number);
            both.append(if coin % 2 == 0 { Coder::Here } else { Coder::Master }, length, number);
            prop_assert_eq!((a.record, a.block, a.by), (b.record, b.block, Coder::Here));
            prop_assert_eq!((b.by, &b.missing), (Coder::Master, &a.missing));
            master.has(&b, length, number);
        }
        master.same_as(&here);
        both.same_as(&here);
    }

    #[test]
    fn no_order_to_rebuild_does_harm(
        stripes in prop::collection::vec((any::<u32>(), any::<u32>(), any::<bool>()), 0..4),
        places in 0usize..9, wanted in prop::collection::vec(0u16..9, 0..4),
    ) {
        let lab = Lab::new("rs:4+2");
        let mut layout = layout("rs:4+2");
        layout.places.resize(places, Some(TargetId(1)));
        let likely = |(record, block, likely): (u32, u32, bool)| {
            let (record, block) =
                if likely { (record % (1 << 20) / 4096 * 4096, block % STRIPE as u32) } else { (record, block) };
            (RecordOffset(record), block)
        };
        let stripes: Vec<(RecordOffset, u32)> = stripes.into_iter().map(likely).collect();
        let wanted: Vec<(Position, TargetId)> = wanted.into_iter().map(|at| (Position(at), TargetId(2))).collect();
        let order = RebuildOrder { layout: &layout, stripes: &stripes, wanted: &wanted };
        // There is nothing that any block could be made of.
        let done = order.carry_out(&lab.staff.targets, || Ok(()));
        prop_assert!(done.is_err() || done.unwrap() == RebuildReport::default());
        prop_assert!(lab.disks.iter().all(|disk| disk.inner().list().unwrap().is_empty()));
    }

    #[test]
    fn no_order_does_harm(
        record: u32, aligned: bool, length in 0usize..STRIPE + 9, manifest_bytes: usize, few in 0usize..20,
        checksum: u64,
    ) {
        let lab = Lab::new("rs:4+2");
        let (mut layout, data) = (layout("rs:4+2"), vec![7; length]);
        layout.places.resize(few % 9, Some(TargetId(1)));
        let record = RecordOffset(if aligned { record / 4096 * 4096 } else { record });
        let manifest_bytes = if few % 2 == 0 { manifest_bytes } else { manifest_bytes % (length + 1) };
        let checksum = if few % 3 == 0 { checksum } else { gf::checksum::crc64(&data) };
        let created = Timestamp { seconds: -1, nanoseconds: u32::MAX };
        let sequence = StripeSeq(1);
        let order =
            Order { layout: &layout, created, record, sequence, data: &data, manifest_bytes, checksum, spare: few };
        if order.carry_out(&lab.staff.targets, &lab.pool).is_err() {
            prop_assert!(lab.disks.iter().all(|disk| disk.inner().list().unwrap().is_empty()));
        }
    }
}

#[test]
fn a_stripe_whose_data_changed_on_the_way_is_not_coded() {
    let lab = Lab::new("rs:4+2");
    let mut data = pattern(50_000, 1);
    let checksum = gf::checksum::crc64(&data);
    data[49_999] ^= 1;
    let layout = lab.writer.layout();
    let created = Timestamp::now();
    let order = Order {
        layout,
        created,
        record: RecordOffset(4096),
        sequence: StripeSeq(1),
        data: &data,
        manifest_bytes: 9,
        checksum,
        spare: 1,
    };
    let error = order.carry_out(&lab.staff.targets, &lab.pool).unwrap_err().to_string();
    assert!(error.contains("changed on the way"), "{error}");
    assert!(lab.disks.iter().all(|disk| disk.inner().list().unwrap().is_empty()));
}

#[test]
fn a_stripe_that_was_coded_twice_is_there_once() {
    let (here, lab) = (Lab::new("rs:4+2"), Lab::new("rs:4+2"));
    lab.behave(Manner::Mute);
    for sequence in 0..3 {
        here.append(Coder::Here, 70_000, sequence);
        let done = lab.append(Coder::Master, 70_000, sequence);
        assert_eq!((done.by, done.missing), (Coder::Here, vec![]));
    }
    assert_eq!(lab.orders().iter().sum::<usize>(), 3);
    lab.same_as(&here);
    assert_eq!(scan(&*lab.disks[0], lab.writer.layout().file(Position(0))).unwrap().records.len(), 3);
}

#[test]
fn a_master_that_hangs_is_waited_for_once_and_its_block_is_missing() {
    let lab = Lab::new("rs:4+2");
    let before = lab.append(Coder::Master, 50_000, 0);
    lab.behave(Manner::Hangs(Duration::from_millis(1100)));
    let orders = lab.orders();
    let done = lab.append(Coder::Master, 50_000, 1);
    let asked: Vec<usize> = (0..6).filter(|&number| lab.orders()[number] > orders[number]).collect();
    let &[first] = &asked[..] else { panic!("one is asked, not {asked:?}") };
    assert_eq!((done.by, &done.missing), (Coder::Here, &vec![Position::at(first)]));
    lab.behave(Manner::Works);
    let after = lab.append(Coder::Master, 50_000, 2);
    assert_eq!((after.by, &after.missing), (Coder::Master, &vec![]), "the next one goes to another Master");
    assert_eq!((lab.orders()[first], lab.orders().iter().sum::<usize>()), (1, 3));
    assert_eq!(lab.writer.missing(), [Position::at(first)]);
    for (sequence, stripe) in [before, done, after].iter().enumerate() {
        lab.has(stripe, 50_000, sequence as u64);
    }
}

/// All files of a client fill the same set: its stores take turns.
#[test]
fn stripes_of_one_set_are_coded_by_all_its_stores() {
    let lab = Lab::new("rs:4+2");
    for sequence in 0..60 {
        assert_eq!(lab.append(Coder::Master, 5_000, sequence).by, Coder::Master);
    }
    let orders = lab.orders();
    assert!(orders.iter().sum::<usize>() == 60 && orders.iter().all(|&orders| orders >= 2), "{orders:?}");
    let most = *orders.iter().max().unwrap();
    assert!(most <= 30, "{orders:?}");
}

#[test]
fn a_master_that_refuses_is_no_failure() {
    let lab = Lab::new("rs:4+2");
    lab.behave(Manner::Refuses);
    let done = lab.append(Coder::Master, 50_000, 0);
    assert_eq!((done.by, done.missing), (Coder::Here, vec![]));
    assert!(lab.targets.ids().into_iter().all(|id| lab.targets.error(id).is_none()));
}

#[test]
fn what_a_master_could_not_write_is_missing() {
    let lab = Lab::new("rs:4+2");
    let slave = (lab.master() + 1) % 6;
    lab.staff.disks[slave].set(dead());
    let done = lab.append(Coder::Master, 50_000, 0);
    assert_eq!((done.by, &done.missing), (Coder::Master, &vec![Position::at(slave)]));
    assert!(lab.targets.error(TargetId(slave as u16)).is_some());
    lab.has(&done, 50_000, 0);
    assert_eq!(lab.writer.sync().unwrap(), []);
}

#[test]
fn a_master_that_reaches_too_few_others_says_nothing_of_them() {
    let (here, lab) = (Lab::new("rs:4+2"), Lab::new("rs:4+2"));
    let master = lab.master();
    (0..6).filter(|number| *number != master).for_each(|number| lab.staff.disks[number].set(dead()));
    here.append(Coder::Here, 50_000, 0);
    let done = lab.append(Coder::Master, 50_000, 0);
    assert_eq!((done.by, done.missing), (Coder::Here, vec![]));
    lab.same_as(&here);
    // No target can be reached: too few remain, and the data comes back.
    lab.disks.iter().for_each(|disk| disk.set(dead()));
    let mut buffer = lab.pool.take();
    buffer.extend_from_slice(&pattern(1000, 1));
    let (_, back) = lab.writer.append_by(Coder::Master, buffer, StripeSeq(1), b"").unwrap_err();
    assert_eq!(back.len(), 1000);
}

/// More targets than the code survives are away while a client writes and syncs.
#[test]
fn what_masters_wrote_outlasts_an_outage_if_they_tell_of_boots() {
    let hangs = Manner::Hangs(Duration::from_millis(1100));
    for (manner, then, outlasts) in [
        (Manner::Works, Manner::Refuses, true),
        (Manner::Works, hangs, true),
        (Manner::TellsNothing, Manner::Refuses, false),
    ] {
        let lab = Lab::new("rs:4+2");
        lab.behave(manner);
        let stripe = lab.append(Coder::Master, 50_000, 0);
        assert_eq!((stripe.by, &stripe.missing), (Coder::Master, &vec![]));
        lab.behave(then);
        lab.disks[1..].iter().for_each(|disk| disk.set(Faults { away: true, ..Faults::default() }));
        lab.writer.sync().unwrap_err();
        for sequence in 1..4 {
            let mut buffer = lab.pool.take();
            buffer.extend_from_slice(&pattern(1000, sequence));
            lab.writer.append_by(Coder::Master, buffer, StripeSeq(sequence), b"").unwrap_err();
        }
        assert_eq!(lab.writer.has_lost(), !outlasts, "{manner:?} {then:?}");
        lab.disks.iter().for_each(|disk| disk.set(Faults::default()));
        if outlasts {
            assert_eq!((lab.writer.sync().unwrap(), lab.writer.lacking()), (vec![], vec![]));
        } else {
            lab.writer.sync().unwrap_err();
        }
    }
}

#[test]
fn a_restart_after_a_master_wrote_is_noticed_by_the_sync() {
    let lab = Lab::new("rs:4+2");
    lab.append(Coder::Master, 50_000, 0);
    lab.append(Coder::Here, 50_000, 1);
    lab.staff.boots[4].store(2, Ordering::SeqCst);
    assert_eq!(lab.writer.sync().unwrap(), [Position(4)]);
}

#[test]
fn without_a_master_it_is_coded_here() {
    let lab = Lab::new("rs:4+2");
    // A target that only this process reaches.
    lab.targets.add(TargetId(2), lab.disks[2].clone());
    let done = lab.append(Coder::Master, 50_000, 0);
    assert_eq!((done.by, done.missing), (Coder::Here, vec![]));
    assert_eq!(lab.orders().iter().sum::<usize>(), 0);
}

#[test]
fn what_was_lost_is_the_same_again_whoever_makes_it() {
    let ways = [Manner::Works, Manner::Mute, Manner::Refuses, Manner::Hangs(Duration::from_millis(10))];
    for code in CODES.iter().filter(|code| **code != "none:4") {
        for manner in ways {
            let lab = Lab::new(code);
            let stripes: Vec<(RecordOffset, u32)> = [70_000, 1, 50_000, 900]
                .iter()
                .enumerate()
                .map(|(n, &length)| lab.append(Coder::Here, length, n as u64))
                .map(|stripe| (stripe.record, stripe.block))
                .collect();
            let layout = lab.writer.layout();
            let lost = [1, layout.code.shape().blocks() - 1];
            let before = lost.map(|position| lab.chunk(position));
            lost.iter()
                .for_each(|&position| lab.disks[position].inner().remove(layout.file(Position::at(position))).unwrap());
            lab.behave(manner);
            let wanted = lost.map(|position| (Position::at(position), TargetId(position as u16)));
            let report = rebuild(&lab.targets, layout, &stripes, &wanted, &Control::default()).unwrap();
            assert!(before == lost.map(|position| lab.chunk(position)), "{code}, {manner:?}");
            assert_eq!(report.witnessed + report.unwitnessed, 2 * stripes.len() as u64);
            // Only the target that gets the first chunk is asked.
            let asked = lab.staff.rebuilds.iter().map(|rebuilds| rebuilds.load(Ordering::SeqCst));
            assert!(asked.enumerate().all(|(number, times)| times == usize::from(number == 1)));
            // A Master that works does all reads and writes; this process does none.
            let own = lab.targets.health().iter().map(|health| health.read_bytes).sum::<u64>();
            assert_eq!(own == 0, manner == Manner::Works, "{code}, {manner:?}");
        }
    }
}

#[test]
fn an_order_that_nobody_waits_for_writes_nothing() {
    let lab = Lab::new("rs:4+2");
    let stripes: Vec<(RecordOffset, u32)> = (0..3u64)
        .map(|sequence| lab.append(Coder::Here, 50_000, sequence))
        .map(|stripe| (stripe.record, stripe.block))
        .collect();
    let order = RebuildOrder { layout: lab.writer.layout(), stripes: &stripes, wanted: &[(Position(0), TargetId(0))] };
    // The new chunk has its name already, or was removed.
    let error = order.carry_out(&lab.staff.targets, || Ok(())).unwrap_err();
    assert!(matches!(error, volume::Error::Io { .. }), "{error}");
    let new = TargetFile::NewChunk { set: SetId(3), position: Position(0) };
    assert!(lab.disks[0].inner().list().unwrap().iter().all(|(file, _)| *file != new));
    // It takes too long: the rest is left.
    let mut header = vec![0; CHUNK_HEADER_BYTES];
    lab.disks[0].inner().read_at(order.layout.file(Position(0)), 0, &mut header).unwrap();
    lab.disks[0].inner().write(new, 0, &[IoSlice::new(&header)], Durable::Later).unwrap();
    let asked = AtomicUsize::new(0);
    let go_on = || if asked.fetch_add(1, Ordering::SeqCst) == 1 { Err(volume::Error::Interrupted) } else { Ok(()) };
    assert!(matches!(order.carry_out(&lab.staff.targets, go_on), Err(volume::Error::Interrupted)));
    let length = lab.disks[0].inner().list().unwrap().into_iter().find(|(file, _)| *file == new).unwrap().1;
    assert_eq!(length, u64::from(stripes[1].0.0), "the first one, and no more");
}

#[test]
fn who_cannot_make_it_leaves_it_to_whoever_repairs() {
    let lab = Lab::new("rs:4+2");
    let stripe = lab.append(Coder::Here, 90_000, 0);
    let (layout, before) = (lab.writer.layout(), lab.chunk(0));
    lab.disks[0].inner().remove(layout.file(Position(0))).unwrap();
    // First the Master reaches too few others; then this process does, too.
    (1..4).for_each(|number| lab.staff.disks[number].set(dead()));
    let (stripes, wanted) = ([(stripe.record, stripe.block)], [(Position(0), TargetId(0))]);
    rebuild(&lab.targets, layout, &stripes, &wanted, &Control::default()).unwrap();
    assert!(before == lab.chunk(0));
    lab.disks[0].inner().remove(layout.file(Position(0))).unwrap();
    (1..4).for_each(|number| lab.disks[number].set(dead()));
    let error = rebuild(&lab.targets, layout, &stripes, &wanted, &Control::default()).unwrap_err();
    assert!(matches!(error, volume::Error::TooDegraded { .. }), "{error}");
    assert!(lab.disks[0].inner().list().unwrap().is_empty(), "nothing is left behind");
}

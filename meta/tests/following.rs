//! A standby follows the journal of another opening: it reads only, and its index is a prefix of
//! what is durable.
#![allow(missing_docs)]

mod common;

use common::{VOLUME, memory, of_places, small};
use meta::journal::{FollowOptions, Follower, Hint, JournalLimits, Journaled, MirrorTarget, Options, Shelf};
use meta::kv::{Batch, Edit, Index, IndexState, Kv, KvError, MemoryIndex, Order, View, Visit};
use plan::{TargetId, TxId};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use volume::target::{
    Allocation, ClaimRequest, ClaimState, Durable, Faults, Faulty, Holder, Memory, Owner, Presence, ReadAt, ReadPart,
    Space, Target, TargetFile, Wait, look_by_reading,
};

/// How long a test waits for something.
const WAIT_TIMEOUT: Duration = Duration::from_secs(100);

/// A disk as a follower may use it.
#[derive(Debug)]
struct OnlyRead(Memory);

fn refused<T>() -> io::Result<T> {
    panic!("a follower changes nothing")
}

impl Target for OnlyRead {
    fn write(&self, _: TargetFile, _: u64, _: &[IoSlice<'_>], _: Durable) -> io::Result<Duration> {
        refused()
    }

    fn read(&self, file: TargetFile, parts: &mut [ReadPart<'_>], wait: Wait) -> io::Result<()> {
        self.0.read(file, parts, wait)
    }

    fn sync(&self, _: TargetFile) -> io::Result<Duration> {
        refused()
    }

    fn allocate(&self, _: TargetFile, _: Allocation) -> io::Result<()> {
        refused()
    }

    fn seal(&self, _: TargetFile) -> io::Result<()> {
        refused()
    }

    fn rename(&self, _: TargetFile, _: TargetFile) -> io::Result<()> {
        refused()
    }

    fn remove(&self, _: TargetFile) -> io::Result<()> {
        refused()
    }

    fn list(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        self.0.list()
    }

    fn list_metadata(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        self.0.list_metadata()
    }

    fn claim(&self, _: &ClaimRequest) -> io::Result<ClaimState> {
        refused()
    }

    fn space(&self) -> io::Result<Space> {
        self.0.space()
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

/// An index that stays when its user is gone, and counts how many times it was cleared.
#[derive(Clone, Default)]
struct Kept(Arc<(MemoryIndex, AtomicU32)>);

impl Kept {
    fn cleared(&self) -> u32 {
        self.0.1.load(Ordering::Relaxed)
    }

    fn numbers(&self) -> BTreeSet<u64> {
        let mut all = BTreeSet::new();
        self.visit(Bound::Unbounded, Bound::Unbounded, Order::Ascending, &mut |key, _| {
            all.extend(key.try_into().map(u64::from_be_bytes));
            Ok(true)
        })
        .unwrap();
        all
    }
}

impl View for Kept {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.0.0.get(key)
    }

    fn visit(&self, low: Bound<&[u8]>, high: Bound<&[u8]>, order: Order, visit: Visit<'_>) -> Result<(), KvError> {
        self.0.0.visit(low, high, order, visit)
    }
}

impl Index for Kept {
    fn state(&self) -> Result<IndexState, KvError> {
        self.0.0.state()
    }

    fn apply<'a>(
        &self,
        edits: &mut dyn Iterator<Item = Edit<'a>>,
        state: IndexState,
        durable: bool,
    ) -> Result<(), KvError> {
        self.0.0.apply(edits, state, durable)
    }

    fn clear(&self) -> Result<(), KvError> {
        self.0.1.fetch_add(1, Ordering::Relaxed);
        self.0.0.clear()
    }

    fn view(&self) -> Result<Box<dyn View + Send>, KvError> {
        self.0.0.view()
    }
}

/// Disks in memory. Each opening has its own view of them, which can be cut off.
struct Disks(Vec<Memory>);

impl Disks {
    fn new(count: usize) -> Self {
        Self((0..count).map(|_| Memory::default()).collect())
    }

    fn see(&self) -> Vec<Arc<Faulty>> {
        self.0.iter().map(|disk| Arc::new(Faulty::new(Arc::new(disk.open_again())))).collect()
    }

    /// Other disks with the same files and claims.
    fn copy(&self) -> Self {
        let copy = Self::new(self.0.len());
        for (from, to) in self.0.iter().zip(&copy.0) {
            content(from)
                .iter()
                .for_each(|(file, bytes)| _ = to.write(*file, 0, &[IoSlice::new(bytes)], Durable::Later).unwrap());
            let claim = from.open_again().claim(&ClaimRequest::Read).unwrap().claim.unwrap();
            to.claim(&ClaimRequest::Take { claim, lease: Duration::ZERO, blank: 0 }).unwrap();
        }
        copy
    }

    /// The disks as a follower sees them, in this order.
    fn read(&self, order: impl IntoIterator<Item = usize>) -> Vec<MirrorTarget> {
        let place = |number: usize| {
            (TargetId(number as u16), Arc::new(OnlyRead(self.0[number].open_again())) as Arc<dyn Target>)
        };
        order.into_iter().map(place).collect()
    }

    fn all(&self) -> Vec<MirrorTarget> {
        self.read(0..self.0.len())
    }

    /// The highest epoch that a claim names.
    fn epoch(&self) -> Option<(u64, u128)> {
        let claims = self.0.iter().filter_map(|disk| disk.open_again().claim(&ClaimRequest::Read).ok()?.claim);
        claims.map(|claim| (claim.epoch.number, claim.epoch.id)).max()
    }
}

/// The files of a disk, with their bytes.
type Files = Vec<(TargetFile, Vec<u8>)>;

/// The files of a disk.
fn content(disk: &Memory) -> Files {
    let file = |(file, bytes): (TargetFile, u64)| {
        let mut content = vec![0; bytes as usize];
        disk.read_at(file, 0, &mut content).unwrap();
        (file, content)
    };
    disk.list().unwrap().into_iter().map(file).collect()
}

fn options(name: &str, seen: &[Arc<Faulty>], index: Box<dyn Index>) -> Options {
    let id = name.bytes().fold(1, |id, byte| id * 251 + u128::from(byte));
    let holder = Holder { id, name: name.into(), address: String::new() };
    // Snapshots are made when a test asks for them.
    let limits = JournalLimits { retry: Duration::from_millis(20), snapshot_bytes: 1 << 20, ..small() };
    let place = |(id, disk): (usize, &Arc<Faulty>)| (TargetId(id as u16), disk.clone() as Arc<dyn Target>);
    Options { holder, ..of_places(seen.iter().enumerate().map(place).collect(), 2, index, limits) }
}

fn create(disks: &Disks) -> (Vec<Arc<Faulty>>, Journaled) {
    let seen = disks.see();
    let kv = Journaled::create(options("first", &seen, memory())).unwrap();
    (seen, kv)
}

fn add(kv: &Journaled, number: u64) -> Result<TxId, KvError> {
    let mut batch = Batch::default();
    batch.put(number.to_be_bytes(), vec![7; 50]);
    let seq = kv.commit(batch)?.seq;
    kv.sync(seq).map(|()| seq)
}

fn add_all(kv: &Journaled, numbers: Range<u64>) -> TxId {
    numbers.map(|number| add(kv, number).unwrap()).last().unwrap()
}

fn numbers(kv: &Journaled) -> BTreeSet<u64> {
    let mut all = BTreeSet::new();
    kv.snapshot(&mut |key, _| {
        all.extend(key.try_into().map(u64::from_be_bytes));
        Ok(true)
    })
    .unwrap();
    all
}

/// A follower, and the index that it fills.
fn follower(index: &Kept) -> Follower {
    let options = FollowOptions {
        volume: VOLUME,
        losses: 1,
        batch_bytes: 1000,
        delay: Duration::ZERO,
        pause: Duration::ZERO,
        deadline: WAIT_TIMEOUT,
    };
    Follower::new(options, Arc::new(Shelf::new(Box::new(index.clone())))).unwrap()
}

/// Steps until the follower has read that transaction.
#[track_caller]
fn follow(follower: &mut Follower, disks: &Disks, places: &[MirrorTarget], last: TxId) {
    let begun = Instant::now();
    let mut error = None;
    while follower.position() != Some(last) {
        let hint = Hint { epoch: disks.epoch(), last };
        error = follower.step(places, &hint).err().or(error);
        assert!(begun.elapsed() < WAIT_TIMEOUT, "{:?} and not {last}: {error:?}", follower.position());
    }
}

#[test]
fn a_follower_reads_on_over_segments_and_snapshots() {
    let disks = Disks::new(4);
    let (_seen, kv) = create(&disks);
    let index = Kept::default();
    let mut standby = follower(&index);
    for round in 0..40 {
        let last = add_all(&kv, round * 20..round * 20 + 20);
        follow(&mut standby, &disks, &disks.all(), last);
        let applied = index.state().unwrap().applied;
        assert_eq!(index.numbers(), (0..applied.0).collect());
        assert!(applied.next() >= last, "only the last one is not known to be durable: {applied} of {last}");
        if round % 10 == 9 {
            kv.checkpoint().unwrap();
        }
    }
    assert_eq!(index.cleared(), 1, "it loads no snapshot but the first");
}

#[test]
fn a_follower_that_is_far_behind_begins_with_a_snapshot() {
    let disks = Disks::new(4);
    let (_seen, kv) = create(&disks);
    let index = Kept::default();
    let mut standby = follower(&index);
    let mut last = add_all(&kv, 0..10);
    follow(&mut standby, &disks, &disks.all(), last);
    for round in 1..4 {
        last = add_all(&kv, round * 300..round * 300 + 300);
        kv.checkpoint().unwrap();
    }
    let first =
        |(file, _): (TargetFile, u64)| if let TargetFile::Journal { first } = file { Some(first) } else { None };
    assert!(
        disks.0.iter().all(|disk| disk.list().unwrap().into_iter().filter_map(first).all(|first| first > TxId(11)))
    );
    follow(&mut standby, &disks, &disks.all(), last);
    assert_eq!(index.cleared(), 2);
    // A new one, too.
    let other = Kept::default();
    follow(&mut follower(&other), &disks, &disks.all(), last);
    let last = add_all(&kv, 2000..2002);
    for (standby, index) in [(standby, index), (follower(&other), other)] {
        let mut standby = standby;
        follow(&mut standby, &disks, &disks.all(), last);
        let missing: Vec<u64> = numbers(&kv).difference(&index.numbers()).copied().collect();
        assert_eq!(missing, [2001]);
    }
}

#[test]
fn a_follower_goes_on_with_the_next_opening_and_is_a_start_for_one() {
    let disks = Disks::new(4);
    let (_seen, mut kv) = create(&disks);
    let index = Kept::default();
    let mut standby = follower(&index);
    for round in 0..6 {
        let last = add_all(&kv, round * 20..round * 20 + 20);
        follow(&mut standby, &disks, &disks.all(), last);
        if round % 2 == 0 {
            kv.close().unwrap();
        }
        // The one before is fenced.
        kv = Journaled::open(options(&format!("s{round}"), &disks.see(), memory())).unwrap();
    }
    let last = add_all(&kv, 500..510);
    follow(&mut standby, &disks, &disks.all(), last);
    assert_eq!(index.cleared(), 1);
    drop((standby, kv));
    let kv = Journaled::open(options("standby", &disks.see(), Box::new(index.clone()))).unwrap();
    assert_eq!(index.cleared(), 1, "the opening uses the index");
    assert_eq!(numbers(&kv), (0..120).chain(500..510).collect());
}

/// Random changes, openings that end with and without a word, snapshots, and standbys that are
/// started again: an opening with the index of a standby has what one without has.
#[test]
fn an_opening_with_a_followed_index_has_the_same_as_one_without() {
    for seed in 0..8 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let disks = Disks::new(4);
        let (_seen, mut kv) = create(&disks);
        let index = Kept::default();
        let mut standby = follower(&index);
        for round in 0..60 {
            let mut batch = Batch::default();
            for _ in 0..rng.usize(1..6) {
                let key = vec![b'k', rng.u8(..60)];
                match rng.u8(..3) {
                    0 => _ = batch.delete(key),
                    1 => _ = batch.merge(b"sum".to_vec(), 1i64.to_le_bytes()),
                    _ => _ = batch.put(key, vec![rng.u8(..); rng.usize(..200)]),
                }
            }
            let last = kv.commit(batch).unwrap().seq;
            if rng.u8(..4) > 0 {
                kv.sync(last).unwrap();
            }
            match rng.u8(..20) {
                0 => kv.checkpoint().unwrap(),
                1 => kv = Journaled::open(options(&format!("s{round}"), &disks.see(), memory())).unwrap(),
                2 => {
                    kv.close().unwrap();
                    kv = Journaled::open(options(&format!("s{round}"), &disks.see(), memory())).unwrap();
                }
                3 => standby = follower(&index),
                4..10 => {
                    let _ = standby.step(&disks.all(), &Hint { epoch: disks.epoch(), last });
                }
                10 => {
                    kv.sync(last).unwrap();
                    follow(&mut standby, &disks, &disks.all(), last);
                }
                _ => {}
            }
        }
        kv.close().unwrap();
        drop((kv, standby));
        let everything = |index: Box<dyn Index>| {
            let kv = Journaled::open(options("end", &disks.see(), index)).unwrap();
            let all = kv.scan(&[]..&[u8::MAX; 8], usize::MAX).unwrap();
            kv.close().unwrap();
            all
        };
        let (with, without) = (everything(Box::new(index.clone())), everything(memory()));
        assert!(with == without, "seed {seed}");
    }
}

#[test]
fn what_is_not_durable_never_reaches_the_index() {
    let disks = Disks::new(5);
    let (seen, kv) = create(&disks);
    add_all(&kv, 0..20);
    let index = Kept::default();
    let mut standby = follower(&index);
    // Only one disk gets the last transaction.
    let mirror = usize::from(kv.status().mirrors[0].0);
    let cut = |dead: bool| Faults { dead, ..Faults::default() };
    (0..5).filter(|&number| number != mirror).for_each(|number| seen[number].set(cut(true)));
    assert!(add(&kv, 20).is_err());
    let order = || std::iter::once(mirror).chain((0..5).filter(|&number| number != mirror));
    follow(&mut standby, &disks, &disks.read(order()), TxId(21));
    assert_eq!(index.numbers(), (0..20).collect());
    seen.iter().for_each(|disk| disk.set(cut(true)));
    drop(kv);
    // The next opening knows nothing of that disk.
    let seen = disks.see();
    seen[mirror].set(cut(true));
    let kv = Journaled::open(options("second", &seen, memory())).unwrap();
    let last = add_all(&kv, 21..40);
    follow(&mut standby, &disks, &disks.read(order()), last);
    assert_eq!(index.numbers(), (0..20).chain(21..39).collect());
    assert_eq!(index.cleared(), 1);
    kv.close().unwrap();
    drop((standby, kv));
    let kv = Journaled::open(options("third", &disks.see(), Box::new(index.clone()))).unwrap();
    assert_eq!(numbers(&kv), (0..20).chain(21..40).collect());
    assert_eq!(index.cleared(), 1);
}

/// An opening that died before its barrier was on m+1 targets may be ignored by the next one: what
/// it adopted, and its snapshot, need not be durable.
#[test]
fn a_snapshot_of_an_opening_that_few_targets_know_is_not_loaded() {
    let disks = Disks::new(4);
    let (_seen, kv) = create(&disks);
    add_all(&kv, 0..20);
    kv.close().unwrap();
    let (before, later) = (disks.copy(), disks.copy());
    let kv = Journaled::open(options("second", &later.see(), memory())).unwrap();
    let last = add_all(&kv, 20..30);
    kv.checkpoint().unwrap();
    let snapshot = TargetFile::Snapshot { last };
    let has = |disk: &&Memory| disk.list().unwrap().iter().any(|(file, _)| *file == snapshot);
    let from: Vec<&Memory> = later.0.iter().filter(has).collect();
    for (number, disk) in from.into_iter().take(2).enumerate() {
        let (_, bytes) = content(disk).into_iter().find(|(file, _)| *file == snapshot).unwrap();
        before.0[number].write(snapshot, 0, &[IoSlice::new(&bytes)], Durable::Later).unwrap();
        let index = Kept::default();
        let mut standby = follower(&index);
        for _ in 0..50 {
            // It may find that there is nothing after the snapshot.
            standby.step(&before.all(), &Hint { epoch: None, last }).unwrap();
        }
        let applied = index.state().unwrap().applied;
        assert_eq!(index.numbers(), (0..applied.0).collect());
        assert_eq!(applied == last, number == 1, "{applied} with {} targets", number + 1);
    }
}

#[test]
fn an_index_of_another_history_is_thrown_away() {
    let (disks, others) = (Disks::new(4), Disks::new(4));
    let (_seen, kv) = create(&others);
    let last = add_all(&kv, 1000..1050);
    let index = Kept::default();
    follow(&mut follower(&index), &others, &others.all(), last);
    let (_seen, kv) = create(&disks);
    add_all(&kv, 0..10);
    drop(kv);
    let kv = Journaled::open(options("second", &disks.see(), memory())).unwrap();
    let last = add_all(&kv, 10..20);
    follow(&mut follower(&index), &disks, &disks.all(), last);
    assert!(index.numbers().iter().all(|&number| number < 20), "{:?}", index.numbers());
}

#[test]
fn what_the_index_has_and_the_targets_lack_is_kept_for_the_opening() {
    let (disks, others) = (Disks::new(4), Disks::new(4));
    let (_seen, kv) = create(&others);
    let last = add_all(&kv, 0..50);
    let index = Kept::default();
    follow(&mut follower(&index), &others, &others.all(), last);
    let (_seen, kv) = create(&disks);
    add_all(&kv, 0..50);
    let before = index.numbers();
    let done = follower(&index).step(&disks.all(), &Hint::default());
    assert!(matches!(done, Err(KvError::Corrupt(_))), "{done:?}");
    assert_eq!((index.numbers(), index.cleared()), (before, 1));
}

#[test]
fn a_closed_index_ends_the_follower() {
    let disks = Disks::new(3);
    let (_seen, kv) = create(&disks);
    let last = add_all(&kv, 0..20);
    let (index, other) = (Kept::default(), Kept::default());
    follow(&mut follower(&other), &disks, &disks.all(), last);
    let shelf = Arc::new(Shelf::new(Box::new(index.clone())));
    let options = FollowOptions {
        volume: VOLUME,
        losses: 1,
        batch_bytes: 1000,
        delay: Duration::ZERO,
        pause: Duration::ZERO,
        deadline: WAIT_TIMEOUT,
    };
    let mut standby = Follower::new(options, shelf.clone()).unwrap();
    follow(&mut standby, &disks, &disks.all(), last);
    shelf.close();
    let before = index.numbers();
    add_all(&kv, 20..40);
    let begun = Instant::now();
    while standby.step(&disks.all(), &Hint::default()).is_ok() {
        assert!(begun.elapsed() < WAIT_TIMEOUT);
    }
    assert_eq!(index.numbers(), before);
    assert!(Follower::new(options, shelf).is_err());
}

/// The files of a volume with 60 transactions, snapshots and three openings, as they are on disks.
fn files() -> Vec<Files> {
    let disks = Disks::new(3);
    let (_seen, mut kv) = create(&disks);
    for round in 0..3 {
        add_all(&kv, round * 20..round * 20 + 20);
        kv.close().unwrap();
        kv = Journaled::open(options("next", &disks.see(), memory())).unwrap();
    }
    add_all(&kv, 60..70);
    kv.close().unwrap();
    disks.0.iter().map(content).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Damage on all disks: nothing panics, and the index has a prefix. With m+1 sound disks,
    /// it has everything that is known to be durable.
    #[test]
    fn damaged_bytes_mislead_no_follower(
        damage in prop::collection::vec(any::<(prop::sample::Index, prop::sample::Index, u8)>(), 1..40),
        sound: bool,
        cut in any::<prop::sample::Index>(),
    ) {
        static FILES: std::sync::OnceLock<Vec<Files>> = std::sync::OnceLock::new();
        let mut files = FILES.get_or_init(files).clone();
        let mut all: Vec<&mut Vec<u8>> =
            files.iter_mut().skip(if sound { 2 } else { 0 }).flatten().map(|(_, bytes)| bytes).collect();
        for (file, at, byte) in &damage {
            let number = file.index(all.len());
            let bytes = &mut *all[number];
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] ^= *byte;
            }
        }
        let number = cut.index(all.len());
        let length = cut.index(all[number].len() + 1);
        all[number].truncate(length);
        let disks = Disks::new(3);
        for (disk, files) in disks.0.iter().zip(&files) {
            for (file, bytes) in files {
                disk.write(*file, 0, &[IoSlice::new(bytes)], Durable::Later).unwrap();
            }
        }
        let index = Kept::default();
        let mut standby = follower(&index);
        for _ in 0..100 {
            let _ = standby.step(&disks.all(), &Hint { epoch: None, last: TxId(70) });
        }
        let state = index.state().unwrap();
        if state.owner == VOLUME {
            prop_assert_eq!(index.numbers(), (0..state.applied.0).collect());
        }
        if sound {
            prop_assert!(state.applied >= TxId(60), "{state:?}");
        }
    }
}

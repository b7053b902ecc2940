//! One history: metadata that cannot fork, roll back, or be away without a word. See
//! `docs/design/008-one-history.md`.
#![allow(missing_docs)]

mod blank;
#[path = "../common/mod.rs"]
mod common;
mod index;
mod slow;
mod unreadable;

use common::{memory, of_places, small};
use meta::journal::{Access, JournalLimits, Journaled, MirrorTarget, Options};
use meta::kv::{Batch, Kv, KvError};
use plan::{TargetId, TxId};
use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use volume::target::{
    Allocation, ClaimRequest, ClaimState, Clock, Durable, Faults, Faulty, Holder, Memory, Owner, Presence, ReadPart,
    Space, Target, TargetFile, Wait, look_by_reading,
};

/// Disks in memory. Each opening has its own view of them, which can be cut off.
struct Disks(Vec<Memory>);

/// What one opening sees of the disks.
struct Seen(Vec<Arc<Faulty>>);

impl Disks {
    fn new(count: usize) -> Self {
        Self((0..count).map(|_| Memory::default()).collect())
    }

    fn see(&self) -> Seen {
        Seen(self.0.iter().map(|disk| Arc::new(Faulty::new(Arc::new(disk.open_again())))).collect())
    }
}

impl Seen {
    fn places(&self) -> Vec<MirrorTarget> {
        let place = |(id, disk): (usize, &Arc<Faulty>)| (TargetId(id as u16), disk.clone() as Arc<dyn Target>);
        self.0.iter().enumerate().map(place).collect()
    }

    fn cut(&self, number: usize, away: bool) {
        self.0[number].set(Faults { dead: away, ..Faults::default() });
    }

    fn cut_all(&self) {
        (0..self.0.len()).for_each(|number| self.cut(number, true));
    }
}

/// No disk hangs here, so that only a busy machine needs the deadline.
fn limits() -> JournalLimits {
    JournalLimits { retry: Duration::from_millis(20), deadline: Duration::from_secs(10), ..small() }
}

/// Options of an opener with a name; `losses` targets may be lost.
fn named(name: &str, seen: &Seen, losses: usize) -> Options {
    let id = name.bytes().fold(1, |id, byte| id * 251 + u128::from(byte));
    let holder = Holder { id, name: name.into(), address: String::new() };
    Options { holder, ..of_places(seen.places(), losses + 1, memory(), limits()) }
}

/// A transaction with a number: its key, and the count of all.
fn add(kv: &Journaled, number: u64) -> Result<TxId, KvError> {
    let mut batch = Batch::default();
    batch.put(number.to_be_bytes(), vec![7; 50]);
    batch.merge("sum", 1i64.to_le_bytes());
    Ok(kv.commit(batch)?.seq)
}

fn add_durably(kv: &Journaled, number: u64) -> Result<(), KvError> {
    kv.sync(add(kv, number)?)
}

/// The numbers of all transactions.
fn numbers(kv: &Journaled) -> BTreeSet<u64> {
    let (mut all, mut sum) = (BTreeSet::new(), 0);
    kv.snapshot(&mut |key, value| {
        match key.try_into() {
            Ok(number) => _ = all.insert(u64::from_be_bytes(number)),
            Err(_) => sum = u64::from_le_bytes(value.try_into().unwrap()),
        }
        Ok(true)
    })
    .unwrap();
    assert_eq!(all.len() as u64, sum, "transactions are whole");
    all
}

#[test]
fn of_two_openings_at_once_only_the_later_one_goes_on() {
    let disks = Disks::new(6);
    let (one, other) = (disks.see(), disks.see());
    let first = Journaled::create(named("first", &one, 2)).unwrap();
    (0..20).for_each(|n| add_durably(&first, n).unwrap());
    let second = Journaled::open(named("second", &other, 2)).unwrap();
    (100..120).for_each(|n| add_durably(&second, n).unwrap());
    // The first one wakes up.
    let refused = add_durably(&first, 50).unwrap_err();
    assert!(matches!(&refused, KvError::Fenced(whose) if whose.contains("second")), "{refused:?}");
    for _ in 0..2 {
        assert!(matches!(add_durably(&first, 51), Err(KvError::Fenced(_))), "it has ended for ever");
        assert!(matches!(first.get(b"sum"), Err(KvError::Fenced(_))), "and is not read");
        assert!(matches!(first.checkpoint(), Err(KvError::Fenced(_))));
        assert!(matches!(first.close(), Err(KvError::Fenced(_))));
    }
    assert!(first.status().trouble.is_some_and(|why| why.contains("second")));
    drop(first);
    (120..140).for_each(|n| add_durably(&second, n).unwrap());
    second.close().unwrap();
    drop(second);
    let kv = Journaled::open(named("third", &disks.see(), 2)).unwrap();
    assert_eq!(numbers(&kv), (0..20).chain(100..140).collect());
}

#[test]
fn without_the_mirrors_nothing_older_is_opened() {
    let disks = Disks::new(8);
    let seen = disks.see();
    let kv = Journaled::create(named("a", &seen, 2)).unwrap();
    (0..20).for_each(|n| add_durably(&kv, n).unwrap());
    // Mirrors change: what is left of the old ones has an older journal.
    (0..2).for_each(|number| seen.cut(number, true));
    (20..40).for_each(|n| add_durably(&kv, n).unwrap());
    kv.close().unwrap();
    let mirrors = kv.status().mirrors;
    drop(kv);
    let seen = disks.see();
    let away: Vec<usize> = mirrors.iter().take(3).map(|id| usize::from(id.0)).collect();
    away.iter().for_each(|&number| seen.cut(number, true));
    for access in [Access::Write, Access::Read, Access::ReadFiles] {
        let opened = Journaled::open(Options { access, ..named("b", &seen, 2) });
        let Err(KvError::TooFew(why)) = &opened else { panic!("{access:?}: {opened:?}") };
        assert!(away.iter().all(|number| why.contains(&format!("target {number}: "))), "{why}");
    }
    let kv = Journaled::open(named("c", &disks.see(), 2)).unwrap();
    assert_eq!(numbers(&kv), (0..40).collect());
}

#[test]
fn what_few_mirrors_have_is_not_durable() {
    let disks = Disks::new(6);
    let seen = disks.see();
    let kv = Journaled::create(named("a", &seen, 2)).unwrap();
    (0..20).for_each(|n| add_durably(&kv, n).unwrap());
    (0..5).for_each(|number| seen.cut(number, true));
    let refused = add_durably(&kv, 20);
    assert!(matches!(refused, Err(KvError::Unavailable(_))), "{refused:?}");
    seen.cut_all();
    drop(kv);
    // The only disk that had it is lost, and the others come back.
    let seen = disks.see();
    seen.cut(5, true);
    let kv = Journaled::open(named("b", &seen, 2)).unwrap();
    assert_eq!(numbers(&kv), (0..20).collect());
    add_durably(&kv, 21).unwrap();
    kv.close().unwrap();
    drop(kv);
    // That disk was not lost after all.
    let kv = Journaled::open(named("c", &disks.see(), 2)).unwrap();
    assert_eq!(numbers(&kv), (0..20).chain([21]).collect());
}

#[test]
fn what_was_answered_before_a_takeover_is_there_after_it() {
    for round in 0..5 {
        let disks = Disks::new(5);
        let seen = disks.see();
        let kv = Journaled::create(named("a", &seen, 2)).unwrap();
        let answered = Mutex::new(BTreeSet::new());
        let taken = std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let (kv, answered) = (&kv, &answered);
                scope.spawn(move || {
                    for n in 0..100_000 {
                        let number = thread * 1_000_000 + n;
                        if add_durably(kv, number).is_err() {
                            break;
                        }
                        answered.lock().unwrap().insert(number);
                    }
                });
            }
            while answered.lock().unwrap().len() < 20 * (round + 1) {
                std::thread::yield_now();
            }
            Journaled::open(named("b", &disks.see(), 2)).unwrap()
        });
        let there = numbers(&taken);
        let lost: Vec<u64> = answered.into_inner().unwrap().into_iter().filter(|n| !there.contains(n)).collect();
        assert!(lost.is_empty(), "{lost:?}");
    }
}

#[test]
fn a_lease_keeps_others_away_until_it_is_over_or_given_back() {
    let (disks, time) = leased(4);
    let lease = LEASE;
    let open = |name: &str, seen: &Seen| Journaled::open(Options { lease, ..named(name, seen, 1) });
    let seen = disks.see();
    let kv = Journaled::create(Options { lease, ..named("a", &seen, 1) }).unwrap();
    add_durably(&kv, 1).unwrap();
    let refused = open("b", &disks.see());
    assert!(matches!(&refused, Err(KvError::Held(whose)) if whose.contains('a')), "{refused:?}");
    // That was no fence.
    add_durably(&kv, 2).unwrap();
    assert_eq!(numbers(&kv), [1, 2].into());
    kv.close().unwrap();
    drop(kv);
    let seen = disks.see();
    let kv = open("b", &seen).unwrap();
    add_durably(&kv, 3).unwrap();
    // It dies, and another opening waits for its lease.
    seen.cut_all();
    drop(kv);
    assert!(matches!(open("c", &disks.see()), Err(KvError::Held(_))));
    *time.lock().unwrap() += Duration::from_secs(31);
    let kv = open("c", &disks.see()).unwrap();
    assert_eq!(numbers(&kv), [1, 2, 3].into());
}

#[test]
fn who_cannot_renew_the_lease_is_not_read() {
    let disks = Disks::new(4);
    let seen = disks.see();
    let lease = Some(Duration::from_millis(200));
    let kv = Journaled::create(Options { lease, ..named("a", &seen, 1) }).unwrap();
    add_durably(&kv, 1).unwrap();
    assert_eq!(numbers(&kv), [1].into());
    (0..3).for_each(|number| seen.cut(number, true));
    while kv.check_fresh().is_ok() {
        std::thread::yield_now();
    }
    assert!(matches!(kv.get(b"sum"), Err(KvError::Unavailable(why)) if why.contains("lease")));
    (0..3).for_each(|number| seen.cut(number, false));
    while kv.check_fresh().is_err() {
        std::thread::yield_now();
    }
    assert_eq!(numbers(&kv), [1].into());
}

#[test]
fn a_loss_is_accepted_only_by_who_says_so() {
    let mut disks = Disks::new(6);
    let seen = disks.see();
    let kv = Journaled::create(named("a", &seen, 2)).unwrap();
    (0..20).for_each(|n| add_durably(&kv, n).unwrap());
    kv.close().unwrap();
    drop(kv);
    (0..3).for_each(|number| disks.0[number] = Memory::default());
    let opened = Journaled::open(named("b", &disks.see(), 2));
    assert!(matches!(opened, Err(KvError::TooFew(_))), "{opened:?}");
    let opened = Journaled::open(named("b", &disks.see(), 2));
    assert!(matches!(opened, Err(KvError::TooFew(_))), "trying again does not help: {opened:?}");
    let kv = Journaled::open(Options { accept_loss: true, ..named("b", &disks.see(), 2) }).unwrap();
    assert!(kv.status().lossy);
    assert_eq!(numbers(&kv), (0..20).collect());
    add_durably(&kv, 20).unwrap();
    kv.close().unwrap();
    drop(kv);
    let kv = Journaled::open(named("c", &disks.see(), 2)).unwrap();
    assert!(!kv.status().lossy);
    assert_eq!(numbers(&kv), (0..21).collect());
}

/// A disk whose claim was read some time ago, the first time.
#[derive(Debug)]
struct ReadEarlier(Arc<Faulty>, Mutex<Option<ClaimState>>);

impl Target for ReadEarlier {
    fn claim(&self, ask: &ClaimRequest) -> io::Result<ClaimState> {
        let answer = self.0.claim(ask)?;
        let earlier = if matches!(ask, ClaimRequest::Read) { self.1.lock().unwrap().take() } else { None };
        Ok(earlier.unwrap_or(answer))
    }

    fn write(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>], durable: Durable) -> io::Result<Duration> {
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

/// An opening reads claims and sleeps. Meanwhile the holder makes another disk a mirror, answers a
/// transaction that is durable there, and dies. `cargo xtask model --broken claim-read` found it.
#[test]
fn a_disk_that_became_a_mirror_after_its_claim_was_read_counts() {
    let disks = Disks::new(3);
    drop(Journaled::create(named("creator", &disks.see(), 1)).unwrap());
    let seen = disks.see();
    seen.cut(2, true);
    let holder = Journaled::open(named("a", &seen, 1)).unwrap();
    add_durably(&holder, 1).unwrap();
    let late = disks.see();
    let read = |disk: &Arc<Faulty>| Mutex::new(Some(disk.claim(&ClaimRequest::Read).unwrap()));
    let earlier = |disk: &Arc<Faulty>| Arc::new(ReadEarlier(disk.clone(), read(disk)));
    let sleeping: Vec<Arc<ReadEarlier>> = late.0.iter().map(earlier).collect();
    seen.cut(2, false);
    while holder.status().mirrors.len() < 3 || holder.status().whole < 3 {
        std::thread::yield_now();
    }
    seen.cut(1, true);
    add_durably(&holder, 2).unwrap();
    seen.cut_all();
    drop(holder);
    late.cut(0, true);
    let place = |(id, disk): (usize, &Arc<ReadEarlier>)| (TargetId(id as u16), disk.clone() as Arc<dyn Target>);
    let targets = sleeping.iter().enumerate().map(place).collect();
    let opened = Journaled::open(Options { targets, ..named("b", &late, 1) }).unwrap();
    assert_eq!(numbers(&opened), [1, 2].into());
}

/// Disks with leases by a clock that somebody sets.
fn leased(count: usize) -> (Disks, Arc<Mutex<Duration>>) {
    let time = Arc::new(Mutex::new(Duration::ZERO));
    let clock = {
        let time = time.clone();
        Clock::new(move || *time.lock().unwrap())
    };
    (Disks((0..count).map(|_| Memory::with_clock(clock.clone())).collect()), time)
}

/// The claim of a disk.
fn claim_of(disk: &Memory) -> ClaimState {
    disk.claim(&ClaimRequest::Read).unwrap()
}

const LEASE: Option<Duration> = Some(Duration::from_secs(30));

/// How often a fenced opening tries, which must not succeed.
const PATIENCE: usize = 40;

/// An opening in a random history.
struct Opening {
    kv: Journaled,
    seen: Seen,
    /// What it committed, in order.
    committed: Vec<u64>,
}

/// Writes for as long as it takes to make a disk a mirror. Returns what is answered as durable.
fn insist(opening: &mut Opening, number: u64) -> Vec<u64> {
    let Ok(seq) = add(&opening.kv, number) else { return Vec::new() };
    opening.committed.push(number);
    for _ in 0..PATIENCE {
        match opening.kv.sync(seq) {
            Ok(()) => return opening.committed.clone(),
            Err(KvError::Fenced(_)) => break,
            Err(_) => opening.kv.retry(),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Vec::new()
}

/// Openings, crashes, disks away and back, disks that lose everything, and openings that sleep and
/// wake up later. At any time at most `losses` disks are away for everybody, or blank. Openings
/// that miss some of the others have only those and one more in common with earlier ones; it is the
/// one that is lost most often.
fn random_history(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (count, losses) = [(3, 1), (4, 1), (5, 2), (6, 2), (4, 2)][random.usize(..5)];
    let writable = losses.min(count - losses - 1);
    let lease = (seed % 2 == 1).then_some(Duration::from_millis(40));
    let time = Arc::new(Mutex::new(Duration::ZERO));
    let clock = {
        let time = time.clone();
        Clock::new(move || *time.lock().unwrap())
    };
    let mut disks = Disks((0..count).map(|_| Memory::with_clock(clock.clone())).collect());
    let mut away = vec![false; count];
    let blank = |disks: &Disks| disks.0.iter().filter(|disk| claim_of(disk).proof().is_none()).count();
    let mut answered: BTreeSet<u64> = BTreeSet::new();
    let mut next = 0;
    let seen = disks.see();
    let kv = Journaled::create(Options { lease, ..named("creator", &seen, losses) }).unwrap();
    let mut openings = vec![Opening { kv, seen, committed: Vec::new() }];
    let mut dead: Vec<Vec<u64>> = Vec::new();
    for step in 0..60 {
        match random.u32(..100) {
            // Somebody writes: most often the newest one, and sometimes one that slept.
            0..60 if !openings.is_empty() => {
                let number = if random.u8(..4) == 0 { random.usize(..openings.len()) } else { openings.len() - 1 };
                let opening = &mut openings[number];
                for _ in 0..random.usize(1..6) {
                    next += 1;
                    let Ok(seq) = add(&opening.kv, next) else { break };
                    opening.committed.push(next);
                    if random.bool() && opening.kv.sync(seq).is_ok() {
                        answered.extend(&opening.committed);
                    }
                }
                // A snapshot waits for transactions that are not durable.
                if random.u8(..8) == 0 && opening.kv.sync(TxId::MAX).is_ok() {
                    let _ = opening.kv.checkpoint();
                }
            }
            60..72 => {
                // A disk goes away for everybody, or comes back.
                let number = random.usize(..count);
                if away[number] || away.iter().filter(|away| **away).count() + blank(&disks) < losses {
                    away[number] = !away[number];
                    openings.iter().for_each(|opening| opening.seen.cut(number, away[number]));
                }
            }
            72..78 if !openings.is_empty() => {
                // One of the openings loses or regains a disk.
                let (opening, number) = (random.usize(..openings.len()), random.usize(..count));
                openings[opening].seen.cut(number, away[number] || random.bool());
            }
            78..82 if !openings.is_empty() => {
                let opening = openings.swap_remove(random.usize(..openings.len()));
                if random.bool() {
                    let _ = opening.kv.close();
                } else {
                    opening.seen.cut_all();
                }
                dead.push(opening.committed);
            }
            82..88 if away.iter().filter(|away| **away).count() + blank(&disks) < losses => {
                let number = random.usize(..count);
                match away[number] {
                    true => {}
                    false if random.bool() => disks.0[number].lose(),
                    // What writes to it now writes to what was lost.
                    false => disks.0[number] = Memory::with_clock(clock.clone()),
                }
            }
            88..100 => {
                let seen = disks.see();
                let mut order: Vec<usize> = (0..count).collect();
                random.shuffle(&mut order);
                let missed = random.usize(..=losses);
                let mut cut = away.clone();
                order[..missed].iter().for_each(|&number| cut[number] = true);
                cut.iter().enumerate().for_each(|(number, &cut)| seen.cut(number, cut));
                for opening in &openings {
                    if lease.is_some() || random.bool() {
                        // It has one disk more than those that are not fenced.
                        let sees = |number: usize| order[..=missed].contains(&number) && !away[number];
                        (0..count).for_each(|number| opening.seen.cut(number, !sees(number)));
                    }
                }
                *time.lock().unwrap() += Duration::from_secs(1);
                let lost = |(disk, cut): (&Memory, &bool)| *cut || claim_of(disk).proof().is_none();
                let gone = disks.0.iter().zip(&cut).filter(|disk| lost(*disk)).count();
                match Journaled::open(Options { lease, ..named(&format!("step{step}"), &seen, losses) }) {
                    // An earlier one still reaches some disks, and renews its claim.
                    Err(KvError::Held(_)) if lease.is_some() && !openings.is_empty() => {}
                    Ok(kv) => {
                        let there = numbers(&kv);
                        let gone: Vec<u64> = answered.iter().copied().filter(|n| !there.contains(n)).collect();
                        assert!(gone.is_empty(), "seed {seed} step {step}: {gone:?} were answered as durable");
                        for committed in openings.iter().map(|opening| &opening.committed).chain(&dead) {
                            let has = committed.iter().map(|n| there.contains(n));
                            let parts = has.collect::<Vec<_>>();
                            assert!(
                                parts.is_sorted_by(|one, other| one >= other),
                                "seed {seed} step {step}: no prefix"
                            );
                        }
                        openings.push(Opening { kv, seen, committed: Vec::new() });
                        if random.bool() && away.iter().filter(|away| **away).count() + blank(&disks) < losses {
                            disks.0[order[missed]].lose();
                            // The fence of the earlier one is lost with it.
                            let earlier = openings.len().checked_sub(2).map(|earlier| &mut openings[earlier]);
                            earlier.into_iter().for_each(|earlier| {
                                next += 1;
                                answered.extend(insist(earlier, next));
                            });
                        }
                        if openings.len() > 3 {
                            dead.push(openings.remove(0).committed);
                        }
                    }
                    Err(why) => assert!(gone > writable, "seed {seed} step {step}: {gone} are gone: {why}"),
                }
            }
            _ => {}
        }
    }
}

#[test]
fn no_history_loses_what_was_answered() {
    let count = std::env::var("WEFT_HISTORIES").ok().and_then(|text| text.parse().ok()).unwrap_or(40);
    (0..count).for_each(random_history);
}

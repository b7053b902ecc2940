//! Dishonest clients: the server does not trust well-formed requests.

use crate::lab::cluster::{Cluster, lock};
use crate::lab::{content, make, pattern};
use bytes::Bytes;
use fastrand::Rng;
use fs::{ROOT, Sessions};
use meta::{AttributeChange, BulkFile, ContentEdit, FileKind, New, Rename, RenameMode, Resize, SetTime, Time};
use plan::{Extent, ExtentPlace, Ino, Position, RecordOffset, SessionId, SetId, Span, TargetId, TxId};
use session::caller::{Caller, Secret};
use session::port::{Entry, FileLock, Held, Opening, Port, Remote, Session, VERSION, Welcome};
use session::transport::Call;
use session::transport::{Answer, Recall, Request};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A client that sends any request.
struct Member {
    server: Arc<Sessions>,
    caller: Caller,
}

impl Call for Member {
    fn call(&self, operation: u16, arguments: &[u8]) -> meta::Result<Vec<u8>> {
        let recall: Recall = Arc::new(|_: &[session::Question]| ());
        let ask = || self.server.answer_request(&self.caller, &recall, operation, arguments, Request::default()).0;
        let answer = catch_unwind(AssertUnwindSafe(ask));
        match answer.unwrap_or_else(|_| panic!("operation {operation} with {arguments:?} panics")) {
            Answer::Done(answer) => Ok(answer),
            other => Err(meta::Error::Unavailable(format!("{other:?}"))),
        }
    }
}

fn member(cluster: &Cluster, session: Option<SessionId>) -> Remote<Member> {
    Remote(Member { server: lock(&cluster.server).clone().expect("it runs"), caller: Caller::trusted(session) })
}

fn join(cluster: &Cluster) -> (Remote<Member>, Welcome) {
    let welcome = member(cluster, None).begin(None, "mallory".into(), Vec::new()).unwrap();
    (member(cluster, Some(welcome.session)), welcome)
}

#[test]
fn a_session_is_its_clients_alone() {
    let cluster = Cluster::new("rs:2+1", 3);
    let (a, b) = (join(&cluster).1, join(&cluster).1);
    let own = |welcome: &Welcome, secret: &Secret, peer: Option<&str>| {
        lock(&cluster.server).as_ref().unwrap().caller(welcome.session, secret, peer).is_some()
    };
    let all = |when: &str| {
        assert!(own(&a, &a.secret, None) && own(&b, &b.secret, None), "{when}");
        assert!(!own(&a, &b.secret, None) && !own(&a, &Secret::default(), None), "{when}");
        assert!(!own(&a, &a.secret, Some("laptop")), "{when}");
    };
    all("at first");
    cluster.kill();
    cluster.start();
    all("after a restart");
    // In its own session, a client can begin neither the session of another client nor one that
    // never existed.
    for other in [a.session.0, b.session.0 + 1, u64::MAX - 1, u64::MAX, 0].map(SessionId) {
        assert!(member(&cluster, Some(b.session)).begin(Some(other), "mallory".into(), Vec::new()).is_err(), "{other}");
        assert!(member(&cluster, None).begin(Some(other), "mallory".into(), Vec::new()).is_err(), "{other}");
    }
    let next = join(&cluster).1.session;
    assert!(next > b.session && next < SessionId(u64::MAX / 2), "the counter goes on: {next}");
}

/// The server's memory for locks is limited, and a session at the limit can still unlock.
#[test]
fn a_session_has_so_many_locks_and_no_more() {
    let cluster = Cluster::new("rs:2+1", 3);
    let (mine, _) = join(&cluster);
    let at = |first, last| FileLock { owner: 1, first, last, exclusive: true, process: 1 };
    let mut count = 0u64;
    while mine.lock(Ino(1), at(count * 4, count * 4 + 2), false).unwrap_or(false) {
        count += 1;
        assert!(count <= 1 << 16);
    }
    assert!(count >= 1000, "{count}");
    assert_eq!(mine.lock(Ino(2), at(0, 9), false), Err(meta::Error::TooManyLocks));
    // This would leave one more lock, by splitting the first.
    assert_eq!(mine.unlock(Ino(1), 1, 1, 1), Err(meta::Error::TooManyLocks));
    mine.unlock(Ino(1), 1, 0, 2).unwrap();
    assert!(mine.lock(Ino(2), at(0, 9), false).unwrap());
    mine.unlock(Ino(1), 1, 0, u64::MAX).unwrap();
    assert!(mine.lock(Ino(1), at(0, 9), false).unwrap());
    // Other sessions have their own limit.
    assert!(join(&cluster).0.lock(Ino(3), at(0, 9), false).unwrap());
}

/// A lock that replaces others, or parts of them, counts as what it leaves.
#[test]
fn at_the_limit_a_session_may_change_the_locks_that_it_has() {
    const MAX_MEMBER_FILES: u64 = 1 << 14;
    let cluster = Cluster::new("rs:2+1", 3);
    let (mine, _) = join(&cluster);
    let at = |first, last, exclusive| FileLock { owner: 1, first, last, exclusive, process: 1 };
    // One less than the limit; on many files, so that each has a short list.
    for number in 1..MAX_MEMBER_FILES {
        assert!(mine.lock(Ino(number / 64), at(number * 4, number * 4 + 2, true), false).unwrap());
    }
    // In the middle of another lock it would leave three, which are two more.
    assert_eq!(mine.lock(Ino(1), at(257, 257, false), false), Err(meta::Error::TooManyLocks));
    assert!(mine.lock(Ino(1), at(256, 256, false), false).unwrap());
    assert_eq!(mine.lock(Ino(1), at(0, 0, true), false), Err(meta::Error::TooManyLocks));
    // A lock that the session has already, as in a reclaim; and one that replaces several.
    assert!(mine.lock(Ino(1), at(256, 256, true), false).unwrap());
    assert!(mine.lock(Ino(1), at(256, 262, true), false).unwrap());
    assert!(mine.lock(Ino(1), at(0, 0, true), false).unwrap());
}

/// While a file is truncated, no append gets a place that another one got behind the new end.
#[test]
fn appends_beside_a_truncation_never_get_the_same_place() {
    const OLD_SIZE: u64 = 1 << 30;
    let cluster = Cluster::new("rs:2+1", 3);
    let client = join(&cluster).0;
    let ino = make(&cluster.volume(), "file");
    client.open(ino, 1).unwrap();
    let resize = |size| {
        let edit = ContentEdit { ranges: Vec::new(), resize: Resize::To(size), modified: None };
        client.change_content(ino, &edit).unwrap();
    };
    let begun = std::time::Instant::now();
    let mut round = 0;
    while begun.elapsed() < std::time::Duration::from_secs(3) {
        // No place is reserved yet, and all reservations from now on are behind these bytes until
        // they are truncated.
        [0, OLD_SIZE].into_iter().for_each(resize);
        let (barrier, is_cut) = (std::sync::Barrier::new(3), AtomicBool::new(false));
        let append = || {
            let mut places = Vec::new();
            barrier.wait();
            while !is_cut.load(Ordering::SeqCst) {
                places.push(client.reserve_append(ino, 10).unwrap());
            }
            let after = [(); 3].map(|()| client.reserve_append(ino, 10).unwrap());
            assert!(after.iter().all(|&place| place < OLD_SIZE), "behind what was cut off: {after:?}");
            places.extend(after);
            places
        };
        let places = std::thread::scope(|scope| {
            let appending = [(); 2].map(|()| scope.spawn(append));
            barrier.wait();
            resize(0);
            is_cut.store(true, Ordering::SeqCst);
            appending.map(|thread| thread.join().unwrap()).concat()
        });
        // Places from before are behind the truncated bytes. The others follow each other.
        let mut after: Vec<u64> = places.into_iter().filter(|&place| place < OLD_SIZE).collect();
        after.sort_unstable();
        let expected: Vec<u64> = (0..after.len() as u64).map(|number| number * 10).collect();
        assert_eq!(after, expected, "round {round}");
        round += 1;
    }
}

/// After a restart, the server learns from its clients which sets they have.
#[test]
fn nobody_takes_up_the_sets_of_another() {
    let cluster = Cluster::new("rs:2+1", 3);
    let (mallory, welcome) = join(&cluster);
    let (victim, wire) = cluster.wired_client("victim");
    let own: Vec<SetId> = mallory.new_sets(1, &[], &[]).unwrap().iter().map(|(set, _)| *set).collect();
    let ino = make(&victim, "file");
    victim.open(ino, true).unwrap();
    victim.write(ino, 0, &pattern(1, 300_000)).unwrap();
    victim.sync(ino).unwrap();
    let sets = |extents: Vec<plan::Extent>| {
        let place = |extent: plan::Extent| match extent.place {
            plan::ExtentPlace::Stripe(span) => Some(span.set),
            _ => None,
        };
        extents.into_iter().filter_map(place).collect::<Vec<_>>()
    };
    let theirs = sets(mallory.extents(ino, 0..u64::MAX).unwrap());
    assert!(!theirs.is_empty());
    wire.cut.store(true, Ordering::SeqCst);
    drop(mallory);
    cluster.kill();
    cluster.start();
    let all = [own.clone(), theirs.clone()].concat();
    let kept =
        member(&cluster, Some(welcome.session)).begin(Some(welcome.session), "mallory".into(), all).unwrap().kept;
    assert_eq!(kept, own);
    let sealed = member(&cluster, Some(welcome.session)).seal_set(theirs[0], 0);
    assert!(sealed.is_err(), "{sealed:?}");
    wire.cut.store(false, Ordering::SeqCst);
    // The victim still has them.
    victim.write(ino, 300_000, &pattern(2, 300_000)).unwrap();
    victim.sync(ino).unwrap();
    assert!(content(&victim, ino).unwrap() == [pattern(1, 300_000), pattern(2, 300_000)].concat());
    victim.close(ino);
    victim.close_volume().unwrap();
}

/// Arguments that are well-formed, but that no honest client would send.
struct Hostile(Rng);

impl Hostile {
    fn number(&mut self) -> u64 {
        const ODD: [u64; 20] = [
            0,
            1,
            2,
            5,
            16,
            17,
            18,
            255,
            4096,
            65_535,
            1 << 20,
            3 << 20,
            u32::MAX as u64,
            1 << 32,
            1 << 62,
            i64::MAX as u64,
            1 << 63,
            u64::MAX - 4096,
            u64::MAX - 1,
            u64::MAX,
        ];
        match self.0.u32(..4) {
            0 => self.0.u64(..),
            1 => self.0.u64(..64),
            _ => ODD[self.0.usize(..ODD.len())],
        }
    }

    fn short(&mut self) -> u32 {
        self.number() as u32
    }

    /// The number of a file, mostly of an existing one.
    fn ino(&mut self) -> Ino {
        if self.0.u32(..3) > 0 { Ino(*self.0.choice(&[1, 16, 17, 18, 19, 20]).unwrap()) } else { Ino(self.number()) }
    }

    /// The number of a chunk set, mostly of an existing one.
    fn set(&mut self) -> SetId {
        SetId(if self.0.u32(..3) > 0 { self.0.u64(..6) } else { self.number() })
    }

    fn name(&mut self) -> Vec<u8> {
        let names: [&[u8]; 10] = [b"", b".", b"..", b"a", b"b", b"honest", b"a/b", &[0], &[255; 255], &[7; 300]];
        names[self.0.usize(..names.len())].to_vec()
    }

    fn many<T>(&mut self, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.0.u32(..4)).map(|_| one(self)).collect()
    }

    fn maybe<T>(&mut self, one: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.0.bool().then(|| one(self))
    }

    fn range(&mut self) -> Range<u64> {
        let (a, b) = (self.number(), self.number());
        if self.0.u32(..4) > 0 { a.min(b)..a.max(b) } else { a..b }
    }

    fn time(&mut self) -> Time {
        Time { seconds: self.number() as i64, nanoseconds: self.short() }
    }

    fn extent(&mut self) -> Extent {
        let bytes = Bytes::from(vec![1; self.0.usize(..3000)]);
        let (set, record) =
            (SetId(1 + self.0.u64(..6)), RecordOffset(*self.0.choice(&[0, 4096, 8192, 1 << 20, u32::MAX]).unwrap()));
        let span = Span { set, record, block: self.short(), start: self.short() };
        let (place, length) = match self.0.u32(..4) {
            0 => (ExtentPlace::Bytes(bytes.clone()), bytes.len() as u64),
            1 => (ExtentPlace::Bytes(bytes), self.number()),
            2 => (ExtentPlace::Stripe(span), self.number()),
            _ => (ExtentPlace::Zero, self.number()),
        };
        Extent { offset: self.number(), length, place }
    }

    fn edit(&mut self) -> ContentEdit {
        let resize = *self.0.choice(&[Resize::Keep, Resize::AtLeast(1), Resize::To(1)]).unwrap();
        let resize = match resize {
            Resize::Keep => resize,
            Resize::AtLeast(_) => Resize::AtLeast(self.number()),
            Resize::To(_) => Resize::To(self.number()),
        };
        let ranges = self.many(|own| match own.0.bool() {
            true => (own.range(), own.many(Self::extent)),
            false => {
                let extent = own.extent();
                (extent.offset..extent.offset.saturating_add(extent.length), vec![extent])
            }
        });
        ContentEdit { ranges, resize, modified: self.maybe(Self::time) }
    }

    fn new_file(&mut self) -> New {
        let kind = *self.0.choice(&[FileKind::File, FileKind::File, FileKind::Directory, FileKind::Symlink]).unwrap();
        New { kind, mode: self.short(), uid: self.short(), gid: 0, device: self.short(), link: self.name() }
    }

    fn whole(&mut self) -> BulkFile {
        BulkFile {
            ino: self.ino(),
            parent: self.ino(),
            name: self.name(),
            new: self.new_file(),
            size: self.number(),
            accessed: self.time(),
            modified: self.time(),
            changed: self.time(),
            extents: self.many(Self::extent),
            attributes: self.many(|own| (own.name(), own.name())),
        }
    }

    fn lock(&mut self) -> FileLock {
        let Range { start, end } = self.range();
        FileLock { owner: self.0.u64(..3), first: start, last: end, exclusive: self.0.bool(), process: 1 }
    }

    /// Sends a request.
    fn ask(&mut self, at: &Remote<Member>) -> meta::Result<()> {
        let now = Time { seconds: 1, nanoseconds: 0 };
        match self.0.u32(..54) {
            0 => at.attributes(self.ino()).map(drop),
            1 => at.lookup(self.ino(), &self.name()).map(drop),
            2 => at.parent(self.ino()).map(drop),
            3 => at.describe(self.ino()).map(drop),
            4 => {
                let change = AttributeChange {
                    mode: self.maybe(Self::short),
                    accessed: self.maybe(|own| SetTime::To(own.time())),
                    changed: self.maybe(Self::time),
                    ..AttributeChange::default()
                };
                at.set_attributes(self.ino(), change, self.time()).map(drop)
            }
            5 => at.read_link(self.ino()).map(drop),
            6 => at.attribute(self.ino(), &self.name()).map(drop),
            7 => at.attribute_names(self.ino()).map(drop),
            8 => {
                at.set_attribute(self.ino(), &self.name(), &self.name(), self.maybe(|own| own.0.bool()), now).map(drop)
            }
            9 => at.remove_attribute(self.ino(), &self.name(), now).map(drop),
            10 | 11 => at.make(self.ino(), &self.name(), &self.new_file(), now).map(drop),
            12 => at.link(self.ino(), self.ino(), &self.name(), now).map(drop),
            13 => at.unlink(self.ino(), &self.name(), self.ino(), self.0.bool(), now).map(drop),
            14 => at.remove_directory(self.ino(), &self.name(), self.ino(), self.0.bool(), now).map(drop),
            15 => {
                let mode = *self.0.choice(&[RenameMode::Replace, RenameMode::Exchange]).unwrap();
                let (from, to) = ((self.ino(), self.name()), (self.ino(), self.name()));
                let rename = Rename { from, to, mode, replaced: self.maybe(Self::ino), keep: self.0.bool() };
                at.rename(&rename, now).map(drop)
            }
            16 if self.0.bool() => {
                at.list_by_key(self.ino(), &self.name(), self.number() as usize, b"user.a").map(drop)
            }
            16 => at.list(self.ino(), self.number(), self.number() as usize).map(drop),
            17 => at.extents(self.ino(), self.range()).map(drop),
            18..=21 => at.change_content(self.ino(), &self.edit()).map(drop),
            22 => at.change_contents(&self.many(|own| (own.ino(), own.edit()))).map(drop),
            23 => at.share(&self.many(|own| (own.set(), RecordOffset(own.short()))), self.ino()).map(drop),
            24 => at.set(self.set()).map(drop),
            25 => at.seal_set(self.set(), self.short()).map(drop),
            26 => at.queue_repair(self.set(), &self.many(|own| Position(own.short() as u16))).map(drop),
            27 => at.totals().map(drop),
            28 => at.new_inos(self.short()).map(drop),
            29 => at.put_files(&self.many(Self::whole)).map(drop),
            30 => at.lookups(&self.many(|own| (own.ino(), own.name()))).map(drop),
            31 => at.new_sets(self.short().min(3), &self.many(|own| TargetId(own.short() as u16)), &[]).map(drop),
            32 => at.release_sets(&self.many(Self::set)),
            33 => Session::open(at, self.ino(), self.number()).map(drop),
            34 => Session::close(at, self.ino(), self.number()),
            35 => at.clean(&self.many(|own| (own.ino(), own.number()))),
            36 => at.reserve_append(self.ino(), self.number()).map(drop),
            37 => at.lock(self.ino(), self.lock(), self.0.u32(..50) == 0).map(drop),
            38 => match self.0.u8(..3) {
                0 => at.dropped(&self.many(Self::ino)),
                1 => at.unlock_owing(self.ino(), self.0.u64(..3), self.number(), self.number(), self.number()),
                _ => at.unlock(self.ino(), self.0.u64(..3), self.number(), self.number()),
            },
            39 => at.conflicting_lock(self.ino(), self.lock()).map(drop),
            40 => at
                .recalled(self.ino(), self.number(), self.number())
                .and_then(|()| at.reclaim_open(self.ino(), self.number())),
            41 => at.reclaim_append(self.ino(), self.number()),
            42 => at.heartbeat().map(drop),
            43 => at.sync(TxId(self.number())),
            44 | 45 => at.change_contents_durably(&self.many(|own| (own.ino(), own.edit()))).map(drop),
            46 => at.content(self.ino(), self.range()).map(drop),
            47 => at.has_privileges(self.ino()).map(drop),
            48 => at.removed(self.number(), &self.many(Self::ino), &self.many(Self::ino)).map(drop),
            49 => {
                let entry = Entry {
                    session: self.maybe(|own| SessionId(if own.0.bool() { own.0.u64(..8) } else { own.number() })),
                    name: String::from_utf8_lossy(&self.name()).into_owned(),
                    sets: self.many(Self::set),
                    opening: Opening { number: self.number(), id: [self.0.u8(..); 16] },
                    alone: self.0.bool(),
                };
                at.enter(*self.0.choice(&[VERSION, 0, 1, 3, u16::MAX]).unwrap(), &entry).map(drop)
            }
            50 => at.reclaim_complete(),
            _ => {
                let held = Held {
                    open: self.many(|own| (own.ino(), own.short(), own.short())),
                    dirty: self.many(|own| (own.ino(), own.number())),
                    owed: self.many(|own| (own.ino(), own.number())),
                    kept: self.many(Self::ino),
                    reserved: self.many(|own| (own.ino(), own.number())),
                    locks: self.many(|own| (own.ino(), own.lock())),
                };
                at.reclaim(self.0.u32(..3), self.0.bool(), &held).map(drop)
            }
        }
    }
}

/// Whatever a client requests, the server answers it, and other clients.
#[test]
fn no_well_formed_request_makes_the_server_panic() {
    let seed = std::env::var("WEFT_HOSTILE_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in seed.map_or(1..4, |seed: u64| seed..seed + 1) {
        let cluster = Cluster::new("rs:2+1", 3);
        let honest = cluster.client("honest");
        let ino = make(&honest, "honest");
        honest.open(ino, true).unwrap();
        honest.write(ino, 0, &pattern(1, 100_000)).unwrap();
        honest.sync(ino).unwrap();
        honest.close(ino);
        let (mallory, _) = join(&cluster);
        let mut hostile = Hostile(Rng::with_seed(seed));
        let mut done = 0;
        for _ in 0..2000 {
            done += u32::from(hostile.ask(&mallory).is_ok());
        }
        assert!(done > 100, "seed {seed}: only {done} requests were carried out");
        mallory.end().unwrap();
        // Background work continues, too.
        let ino = make(&honest, "after");
        honest.open(ino, true).unwrap();
        honest.write(ino, 0, &pattern(2, 300_000)).unwrap();
        honest.sync(ino).unwrap();
        assert!(content(&honest, ino).unwrap() == pattern(2, 300_000), "seed {seed}");
        honest.close(ino);
        assert!(honest.lookup(ROOT, b"after").is_ok());
        let server = cluster.volume();
        assert_eq!(server.counts().defects(), 0, "seed {seed}");
        honest.close_volume().unwrap();
    }
}

/// Background work continues after a panic, which is counted.
#[test]
fn a_panic_in_the_background_is_counted() {
    let cluster = Cluster::new("rs:2+1", 3);
    let volume = cluster.volume();
    assert_eq!(volume.beside("a test", || 5), Some(5));
    assert_eq!(volume.beside("a test", || -> i32 { panic!("a test wants this") }), None);
    assert_eq!(volume.counts().defects(), 1);
    let client = cluster.client("client");
    let ino = make(&client, "file");
    client.open(ino, true).unwrap();
    client.write(ino, 0, b"it goes on").unwrap();
    client.sync(ino).unwrap();
    client.close(ino);
    client.close_volume().unwrap();
}

//! Files with very many extents: a change of all of them goes piece by piece, in transactions of
//! bounded size, and a listing goes page by page.
#![allow(missing_docs)]

use meta::kv::{Batch, Committed, Kv, KvError, Memory, Pair, Visit};
use meta::{ContentEdit, FileKind, MAX_EXTENTS, Meta, New, ROOT, Resize, Time};
use plan::{Extent, ExtentPlace, Ino, RecordOffset, SetId, Span, TxId};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Extents of the file, one in every `EXTENT_DISTANCE` bytes.
const EXTENT_COUNT: u64 = 40_000;
const EXTENT_DISTANCE: u64 = 8;
const EXTENT_BYTES: u64 = 4;
/// Extents that refer to one stripe.
const IN_STRIPE: u64 = 1000;
/// The changes of one transaction: extents that go, and some more keys.
const MAX_CHANGES: usize = 8192 + 300;

/// An engine that counts commits, and fails after some number of them.
struct Watched {
    inner: Memory,
    longest: AtomicUsize,
    left: AtomicU64,
    /// Pairs that were read.
    read: AtomicUsize,
}

impl Watched {
    fn count(&self, found: Vec<Pair>) -> Vec<Pair> {
        self.read.fetch_add(found.len(), Ordering::SeqCst);
        found
    }
}

impl Kv for Watched {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.inner.get(key)
    }
    fn scan(&self, range: Range<&[u8]>, limit: usize) -> Result<Vec<Pair>, KvError> {
        let found = self.inner.scan(range, limit)?;
        assert!(found.len() <= MAX_EXTENTS, "{} at once", found.len());
        Ok(self.count(found))
    }
    fn scan_back(&self, range: Range<&[u8]>, limit: usize) -> Result<Vec<Pair>, KvError> {
        Ok(self.count(self.inner.scan_back(range, limit)?))
    }
    fn scan_with_previous(&self, floor: &[u8], range: Range<&[u8]>, limit: usize) -> Result<Vec<Pair>, KvError> {
        Ok(self.count(self.inner.scan_with_previous(floor, range, limit)?))
    }
    fn snapshot(&self, visit: Visit<'_>) -> Result<TxId, KvError> {
        self.inner.snapshot(visit)
    }
    fn commit(&self, batch: Batch) -> Result<Committed, KvError> {
        self.longest.fetch_max(batch.changes.len(), Ordering::SeqCst);
        match self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) {
            Ok(_) => self.inner.commit(batch),
            Err(_) => Err(KvError::Unavailable("it ends here".into())),
        }
    }
    fn sync(&self, seq: TxId) -> Result<(), KvError> {
        self.inner.sync(seq)
    }
}

fn now() -> Time {
    Time { seconds: 77, nanoseconds: 0 }
}

fn extent(number: u64) -> Extent {
    let span = Span {
        set: SetId(1),
        record: RecordOffset((number / IN_STRIPE) as u32),
        block: 4096,
        start: (number % IN_STRIPE * EXTENT_BYTES) as u32,
    };
    Extent { offset: number * EXTENT_DISTANCE, length: EXTENT_BYTES, place: ExtentPlace::Stripe(span) }
}

/// A file with many extents.
fn file() -> (Arc<Watched>, Meta, Ino) {
    file_of(EXTENT_COUNT)
}

/// A file of `many` extents.
fn file_of(many: u64) -> (Arc<Watched>, Meta, Ino) {
    let inner = Memory::new(meta::MERGE);
    let kv = Arc::new(Watched {
        inner,
        longest: AtomicUsize::new(0),
        left: AtomicU64::new(u64::MAX),
        read: AtomicUsize::new(0),
    });
    let meta = Meta::open(kv.clone(), (0, 0), Time::default()).unwrap();
    let new = New { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, device: 0, link: Vec::new() };
    let ino = meta.make(ROOT, b"file", &new, Time::default()).unwrap().0.ino;
    for first in (0..many).step_by(4000) {
        let extents: Vec<Extent> = (first..first + 4000).map(extent).collect();
        let range = first * EXTENT_DISTANCE..(first + 4000) * EXTENT_DISTANCE;
        let edit = ContentEdit { resize: Resize::AtLeast(range.end), ranges: vec![(range, extents)], modified: None };
        meta.change_content(ino, &edit).unwrap();
    }
    kv.longest.store(0, Ordering::SeqCst);
    (kv, meta, ino)
}

/// All extents, page by page.
fn all(meta: &Meta, ino: Ino) -> Vec<Extent> {
    let (mut found, mut from) = (Vec::new(), 0);
    loop {
        let page = meta.extents(ino, from..u64::MAX).unwrap();
        assert!(page.len() <= MAX_EXTENTS);
        let is_last = page.len() < MAX_EXTENTS;
        found.extend(page);
        if is_last {
            return found;
        }
        from = found.last().unwrap().end();
    }
}

fn allocated(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| extent.length).sum()
}

#[track_caller]
fn is_consistent(kv: &Watched, meta: &Meta, ino: Ino) {
    assert_eq!(meta.attributes(ino).unwrap().allocated, allocated(&all(meta, ino)));
    let longest = kv.longest.load(Ordering::SeqCst);
    assert!(longest <= MAX_CHANGES, "a transaction of {longest} changes");
}

#[test]
fn a_file_of_many_extents_is_cut_off_piece_by_piece() {
    let (kv, meta, ino) = file();
    assert_eq!(all(&meta, ino).len() as u64, EXTENT_COUNT);
    assert_eq!(meta.sets_of(ino).unwrap().into_iter().collect::<Vec<_>>(), [SetId(1)]);
    let size = 5 * EXTENT_DISTANCE + 2;
    let edit = ContentEdit { resize: Resize::To(size), modified: Some(now()), ..ContentEdit::default() };
    let (attributes, dead, _) = meta.change_content(ino, &edit).unwrap();
    assert_eq!((attributes.size, attributes.modified), (size, now()));
    assert_eq!(dead.len() as u64, EXTENT_COUNT / IN_STRIPE - 1, "each stripe but the first, and once");
    let left = all(&meta, ino);
    assert_eq!((left.len(), allocated(&left)), (6, 5 * EXTENT_BYTES + 2));
    is_consistent(&kv, &meta, ino);
}

/// A file that is being cut off is at every moment as it was, as far as it goes.
#[test]
fn what_is_left_of_a_truncation_that_failed_is_a_part_of_the_file() {
    let (kv, meta, ino) = file();
    let before = all(&meta, ino);
    kv.left.store(2, Ordering::SeqCst);
    let edit = ContentEdit { resize: Resize::To(0), modified: Some(now()), ..ContentEdit::default() };
    assert!(meta.change_content(ino, &edit).is_err());
    kv.left.store(u64::MAX, Ordering::SeqCst);
    let (left, size) = (all(&meta, ino), meta.attributes(ino).unwrap().size);
    assert!((1..EXTENT_COUNT as usize).contains(&left.len()));
    assert_eq!(left, before[..left.len()]);
    assert!((left.last().unwrap().end()..=left.len() as u64 * EXTENT_DISTANCE).contains(&size));
    is_consistent(&kv, &meta, ino);
    assert_eq!(meta.change_content(ino, &edit).unwrap().0.size, 0);
    assert!(all(&meta, ino).is_empty());
    is_consistent(&kv, &meta, ino);
}

#[test]
fn ranges_of_many_extents_are_replaced_piece_by_piece() {
    let size = EXTENT_COUNT * EXTENT_DISTANCE;
    let range = 3 * EXTENT_DISTANCE + 1..size - EXTENT_DISTANCE;
    // A hole, zeroes, and data that is one extent or many.
    let zeroes = vec![Extent { offset: range.start, length: range.end - range.start, place: ExtentPlace::Zero }];
    let span = Span { set: SetId(2), record: RecordOffset(0), block: 1 << 20, start: 0 };
    let one = vec![Extent { place: ExtentPlace::Stripe(span), ..zeroes[0].clone() }];
    let other = |number| Extent { offset: extent(number).offset + 2, length: 1, place: ExtentPlace::Zero };
    let many: Vec<Extent> = (4..4 + MAX_EXTENTS as u64).map(other).collect();
    for new in [Vec::new(), zeroes, one, many] {
        let (kv, meta, ino) = file();
        let edit =
            ContentEdit { ranges: vec![(range.clone(), new.clone())], resize: Resize::Keep, modified: Some(now()) };
        let (dead, _) = meta.change_contents(&[(ino, edit), (ino.plus(100), ContentEdit::default())]).unwrap();
        assert_eq!(dead.len() as u64, EXTENT_COUNT / IN_STRIPE - 2, "all but the first and the last");
        let left = all(&meta, ino);
        let expected: Vec<Extent> = (0..3)
            .map(extent)
            .chain(extent(3).clip(&(3 * EXTENT_DISTANCE..range.start)))
            .chain(new)
            .chain([extent(EXTENT_COUNT - 1)])
            .collect();
        assert_eq!(left, expected);
        assert_eq!(meta.attributes(ino).unwrap().modified, now());
        assert_eq!(
            (meta.attributes(ino).unwrap().size, allocated(&left)),
            (size, meta.attributes(ino).unwrap().allocated)
        );
        assert!(kv.longest.load(Ordering::SeqCst) <= 3 * MAX_CHANGES);
    }
}

/// Space that was set aside behind the end goes, too, and the file does not become longer by that.
#[test]
fn what_is_behind_the_end_is_cut_off_piece_by_piece() {
    let (kv, meta, ino) = file();
    let behind = |number| Extent { place: ExtentPlace::Zero, ..extent(EXTENT_COUNT + number) };
    let range = EXTENT_COUNT * EXTENT_DISTANCE..(EXTENT_COUNT + 20_000) * EXTENT_DISTANCE;
    let edit = ContentEdit { ranges: vec![(range, (0..20_000).map(behind).collect())], ..ContentEdit::default() };
    meta.change_content(ino, &edit).unwrap();
    kv.longest.store(0, Ordering::SeqCst);
    for size in [EXTENT_COUNT * EXTENT_DISTANCE + 50, EXTENT_COUNT * EXTENT_DISTANCE] {
        let edit = ContentEdit { resize: Resize::To(size), modified: Some(now()), ..ContentEdit::default() };
        assert_eq!(meta.change_content(ino, &edit).unwrap().0.size, size);
        assert_eq!(all(&meta, ino).len() as u64, size.div_ceil(EXTENT_DISTANCE));
        is_consistent(&kv, &meta, ino);
    }
}

/// Many small extents that become parts of a large one, and many that are written here and there.
#[test]
fn an_edit_of_many_ranges_reads_each_extent_once() {
    const RANGES: u64 = 8000;
    let within = |number: u64, start: u64, length: u64| Extent {
        offset: number * EXTENT_DISTANCE + start,
        length,
        place: ExtentPlace::Stripe(Span {
            set: SetId(9),
            record: RecordOffset(0),
            block: 1 << 20,
            start: (number * EXTENT_DISTANCE + start) as u32,
        }),
    };
    for (start, length, left) in [(0, EXTENT_DISTANCE, 1), (2, 3, 2 * RANGES as usize)] {
        let (kv, meta, ino) = file();
        let new = (0..RANGES).map(|number| within(number, start, length));
        let ranges = new.map(|extent| (extent.range(), vec![extent])).collect();
        kv.read.store(0, Ordering::SeqCst);
        meta.change_content(ino, &ContentEdit { ranges, ..ContentEdit::default() }).unwrap();
        let read = kv.read.load(Ordering::SeqCst);
        assert!(read <= 3 * RANGES as usize, "{read} pairs were read");
        assert_eq!(meta.extents(ino, 0..RANGES * EXTENT_DISTANCE).unwrap().len(), left);
    }
}

/// Each range alone is small enough; all of them together are not.
#[test]
fn many_ranges_of_many_extents_are_replaced_piece_by_piece() {
    const RANGES: u64 = 4000;
    const EXTENTS_PER_FILE: u64 = 200;
    let (kv, meta, ino) = file_of(RANGES * EXTENTS_PER_FILE);
    let range = |number: u64| {
        number * EXTENTS_PER_FILE * EXTENT_DISTANCE..(number + 1) * EXTENTS_PER_FILE * EXTENT_DISTANCE - 1
    };
    let new = |number: u64| {
        let Range { start, end } = range(number);
        let span = Span { set: SetId(2), record: RecordOffset(number as u32), block: 4096, start: 0 };
        Extent { offset: start, length: end - start, place: ExtentPlace::Stripe(span) }
    };
    let edit = |numbers: Range<u64>, resize| {
        let ranges = numbers.map(|number| (range(number), vec![new(number)])).collect();
        ContentEdit { ranges, resize, modified: Some(now()) }
    };
    // The other file has few extents. The third does not exist any more.
    let other = New { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, device: 0, link: Vec::new() };
    let other = meta.make(ROOT, b"other", &other, Time::default()).unwrap().0.ino;
    let all_ranges = edit(0..RANGES, Resize::AtLeast(RANGES * EXTENTS_PER_FILE * EXTENT_DISTANCE + 7));
    let edits = [(ino, all_ranges), (other, edit(0..3, Resize::To(5))), (ino.plus(100), edit(0..3, Resize::Keep))];
    let (dead, _) = meta.change_contents(&edits).unwrap();
    assert_eq!(dead.iter().filter(|dead| dead.set == SetId(1)).count() as u64, RANGES * EXTENTS_PER_FILE / IN_STRIPE);
    assert_eq!(all(&meta, ino), (0..RANGES).map(new).collect::<Vec<_>>());
    assert_eq!(
        (meta.attributes(ino).unwrap().size, allocated(&all(&meta, other))),
        (RANGES * EXTENTS_PER_FILE * EXTENT_DISTANCE + 7, 5)
    );
    // The ranges of a piece, their stripes, and those that are free of charge.
    let longest = kv.longest.load(Ordering::SeqCst);
    assert!(longest <= 2 * MAX_CHANGES, "a transaction of {longest} changes");
    assert_eq!(meta.attributes(ino).unwrap().allocated, allocated(&all(&meta, ino)));
}

/// Truncations of several files share what one transaction may remove.
#[test]
fn truncations_of_several_files_are_bounded_together() {
    let (kv, meta, first) = file_of(8000);
    let new = New { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, device: 0, link: Vec::new() };
    let more = [b"second", b"third!"].map(|name| {
        let ino = meta.make(ROOT, name, &new, Time::default()).unwrap().0.ino;
        let extents: Vec<Extent> = (0..8000).map(extent).collect();
        let edit = ContentEdit { ranges: vec![(0..8000 * EXTENT_DISTANCE, extents)], ..ContentEdit::default() };
        meta.change_content(ino, &edit).unwrap();
        ino
    });
    kv.longest.store(0, Ordering::SeqCst);
    let edit = ContentEdit { resize: Resize::To(0), modified: Some(now()), ..ContentEdit::default() };
    meta.change_contents(&[first, more[0], more[1]].map(|ino| (ino, edit.clone()))).unwrap();
    for ino in [first, more[0], more[1]] {
        assert_eq!((all(&meta, ino).len(), meta.attributes(ino).unwrap().size), (0, 0));
        is_consistent(&kv, &meta, ino);
    }
}

/// A reader sees extents that are being joined as they were or as they are.
#[test]
fn extents_are_those_of_one_moment() {
    const PART_COUNT: u64 = 8;
    let kv = Arc::new(Memory::new(meta::MERGE));
    let meta = Meta::open(kv, (0, 0), Time::default()).unwrap();
    let new = New { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, device: 0, link: Vec::new() };
    let ino = meta.make(ROOT, b"file", &new, Time::default()).unwrap().0.ino;
    let whole = 0..PART_COUNT * 512;
    let stripe = |record: u32, offset: u64, length: u64| Extent {
        offset,
        length,
        place: ExtentPlace::Stripe(Span {
            set: SetId(1),
            record: RecordOffset(record),
            block: 4096,
            start: offset as u32,
        }),
    };
    let one = vec![stripe(0, 0, whole.end)];
    let several: Vec<Extent> = (0..PART_COUNT).map(|part| stripe(part as u32 + 1, part * 512, 512)).collect();
    let change = |extents: &[Extent]| {
        let edit = ContentEdit { ranges: vec![(whole.clone(), extents.to_vec())], ..ContentEdit::default() };
        meta.change_content(ino, &edit).unwrap();
    };
    change(&several);
    let ended = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (0..3000).for_each(|_| [&one, &several].iter().for_each(|extents| change(extents)));
            ended.store(1, Ordering::SeqCst);
        });
        while ended.load(Ordering::SeqCst) == 0 {
            let found = meta.extents(ino, 512..1024).unwrap();
            let bytes: u64 = found.iter().map(|extent| extent.length).sum();
            if bytes != 512 {
                ended.store(1, Ordering::SeqCst);
                panic!("{found:?}");
            }
        }
    });
}

/// The attributes of a file and the files that share a stripe have no limit either. Neither keeps
/// them from being removed.
#[test]
fn many_attributes_and_sharers_are_removed_piece_by_piece() {
    const MANY: u64 = 20_000;
    let (kv, meta, ino) = file_of(4000);
    let new = New { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, device: 0, link: Vec::new() };
    let small = meta.make(ROOT, b"small", &new, Time::default()).unwrap().0.ino;
    let directory = meta.make(ROOT, b"directory", &New { kind: FileKind::Directory, ..new }, Time::default()).unwrap();
    let directory = directory.0.ino;
    let stripe = (SetId(1), RecordOffset(0));
    for number in 0..MANY {
        for file in [ino, small, directory] {
            meta.set_attribute(file, format!("user.{number}").as_bytes(), b"", None, now()).unwrap();
        }
        meta.share(&[stripe], ino.plus(1000 + number)).unwrap();
    }
    let files = meta.totals().unwrap().files;
    for (name, file) in [("file", ino), ("small", small)] {
        assert!(meta.unlink(ROOT, name.as_bytes(), file, false, now()).unwrap().orphan);
    }
    assert!(meta.remove_directory(ROOT, b"directory", directory, false, now()).unwrap().orphan);
    let all = [ino, small, directory];
    let (left, mut dead, _) = meta.drop_small_orphans(&all).unwrap();
    assert_eq!(left, all);
    for file in left {
        meta.drop_orphan(file, |freed, _| dead.extend(freed)).unwrap();
        assert!(meta.attribute_names(file).unwrap().is_empty() && meta.attributes(file).is_err());
    }
    assert!(meta.orphans().unwrap().is_empty());
    assert_eq!(meta.totals().unwrap().files, files - 3);
    assert_eq!(dead.len(), 4);
    for stripe in dead {
        assert!(meta.forget_stripe(stripe).unwrap().0);
    }
    assert!(
        meta.stripe(stripe.0, stripe.1).unwrap().is_none() && meta.shared_by(stripe.0, stripe.1).unwrap().is_empty()
    );
    let longest = kv.longest.load(Ordering::SeqCst);
    assert!(longest <= MAX_CHANGES, "a transaction of {longest} changes");
}

//! What is kept of directories, and when it goes.

use super::reading::NAME_BYTES;
use super::*;
use crate::kv::Memory;
use crate::{Meta, New, ROOT, Time};

/// A volume with two directories of a hundred files each.
fn volume() -> (Arc<Memory>, Meta, [Ino; 2]) {
    let kv = Arc::new(Memory::new(crate::MERGE));
    let meta = Meta::open(kv.clone(), (0, 0), Time::default()).unwrap();
    let new = |kind| New { kind, mode: 0o755, uid: 0, gid: 0, device: 0, link: Vec::new() };
    let directories = [&b"a"[..], b"b"].map(|name| {
        let made = meta.make(ROOT, name, &new(FileKind::Directory), Time::default()).unwrap().0.ino;
        for number in 0..100 {
            let name = format!("{number:03}");
            meta.make(made, name.as_bytes(), &new(FileKind::File), Time::default()).unwrap();
        }
        made
    });
    (kv, meta, directories)
}

fn orders(memory: usize) -> Orders {
    Orders { memory, ..Orders::default() }
}

const NAMES: usize = 100 * (3 + NAME_BYTES);

#[test]
fn what_does_not_fit_is_kept_as_names_or_not_at_all() {
    let (kv, _meta, [directory, _]) = volume();
    for (memory, is_kept, has_records) in
        [(4 * NAMES, true, true), (NAMES + 100, true, false), (NAMES - 1, false, false)]
    {
        let orders = orders(memory);
        let page = orders.page(&*kv, directory, b"01", 20, b"user.x").unwrap();
        assert_eq!(page.is_some(), is_kept, "{memory}");
        assert_eq!(orders.is_used(), is_kept, "{memory}");
        let Some(page) = page else { continue };
        assert_eq!((page.texts[0].0.as_slice(), page.next.as_deref()), (&b"010"[..], Some(&b"030"[..])));
        assert!(page.texts.iter().all(|(_, kept)| kept.is_some() == has_records), "{memory}");
        // Another attribute is not the one that is kept.
        let other = orders.kept(directory, b"", 20, b"user.y").unwrap();
        assert!(other.texts.iter().all(|(_, kept)| kept.is_none()));
    }
}

#[test]
fn the_directory_that_was_not_listed_for_the_longest_time_goes() {
    let (kv, _meta, [a, b]) = volume();
    let orders = orders(NAMES * 5 / 2);
    let is_kept = |directory| orders.kept(directory, b"", 1, b"").is_some();
    for (listed, gone) in [(a, b), (b, a), (a, b)] {
        assert!(orders.page(&*kv, listed, b"", 1, b"").unwrap().is_some());
        assert!(is_kept(listed) && !is_kept(gone));
    }
}

#[test]
fn a_transaction_that_told_nothing_undoes_what_was_read_since() {
    let (kv, meta, [directory, _]) = volume();
    let page = meta.orders.page(&*kv, directory, b"", 1, b"").unwrap().unwrap();
    assert_eq!(page.texts[0].0, b"000");
    // Past the one who watches.
    let mut batch = Batch::default();
    batch.delete(keys::entry(directory, b"000"));
    kv.commit(batch).unwrap();
    meta.orders.written_since();
    let page = meta.orders.page(&*kv, directory, b"", 1, b"").unwrap().unwrap();
    assert_eq!(page.texts[0].0, b"001");
}

/// An engine at whose scans something else happens. It counts them from 1.
struct Meddled<F> {
    kv: Arc<Memory>,
    scans: AtomicUsize,
    at_scan: F,
}

impl<F: Fn(usize) + Send + Sync> Meddled<F> {
    fn new(kv: &Arc<Memory>, at_scan: F) -> Self {
        Self { kv: kv.clone(), scans: AtomicUsize::new(0), at_scan }
    }

    /// How many scans there were since this was asked.
    fn scans(&self) -> usize {
        self.scans.swap(0, Ordering::SeqCst)
    }
}

impl<F: Fn(usize) + Send + Sync> Kv for Meddled<F> {
    fn get(&self, key: &[u8]) -> KvResult<Option<Vec<u8>>> {
        self.kv.get(key)
    }

    fn scan(&self, range: Range<&[u8]>, limit: usize) -> KvResult<Vec<Pair>> {
        (self.at_scan)(self.scans.fetch_add(1, Ordering::SeqCst) + 1);
        self.kv.scan(range, limit)
    }

    fn scan_back(&self, range: Range<&[u8]>, limit: usize) -> KvResult<Vec<Pair>> {
        self.kv.scan_back(range, limit)
    }

    fn scan_with_previous(&self, floor: &[u8], range: Range<&[u8]>, limit: usize) -> KvResult<Vec<Pair>> {
        self.kv.scan_with_previous(floor, range, limit)
    }

    fn snapshot(&self, visit: Visit<'_>) -> KvResult<TxId> {
        self.kv.snapshot(visit)
    }

    fn commit(&self, batch: Batch) -> KvResult<Committed> {
        self.kv.commit(batch)
    }

    fn sync(&self, seq: TxId) -> KvResult<()> {
        self.kv.sync(seq)
    }
}

/// As `orders`; a directory of a hundred entries is read in ten steps, and one that finds the end.
fn in_steps(memory: usize) -> Arc<Orders> {
    Arc::new(Orders { step: 10, ..orders(memory) })
}

const SCANS: usize = 11;

#[test]
fn a_reading_that_is_undone_begins_anew_at_once_and_is_watched() {
    let (kv, _meta, [directory, _]) = volume();
    let orders = in_steps(4 * NAMES);
    // Five transactions that began before end one after the other.
    let undone = 5;
    let meddled = Meddled::new(&kv, |scan| {
        assert!(orders.is_used(), "transactions that begin now tell what they write");
        if scan <= undone {
            orders.written_since();
            assert!(orders.is_used());
        }
    });
    let page = orders.page(&meddled, directory, b"", 1, b"").unwrap();
    assert!(page.is_some());
    assert_eq!(meddled.scans(), undone + SCANS);
}

#[test]
fn others_go_while_a_directory_is_read() {
    let (kv, _meta, [a, b]) = volume();
    let orders = in_steps(NAMES * 5 / 2);
    assert!(orders.page(&*kv, a, b"", 1, b"").unwrap().is_some());
    let meddled = Meddled::new(&kv, |scan| {
        if scan == 1 || scan == SCANS {
            assert_eq!(orders.kept(a, b"", 1, b"").is_some(), scan == 1, "{scan}");
        }
    });
    assert!(orders.page(&meddled, b, b"", 1, b"").unwrap().is_some());
    assert_eq!(meddled.scans(), SCANS);
}

#[test]
fn what_does_not_fit_besides_names_goes_while_they_are_read() {
    let (kv, _meta, [directory, _]) = volume();
    let orders = in_steps(NAMES + 100);
    let meddled = Meddled::new(&kv, |_| {});
    assert!(orders.page(&meddled, directory, b"", 1, b"user.x").unwrap().is_some());
    assert_eq!(meddled.scans(), SCANS, "no extended attribute was read");
}

#[test]
fn a_directory_that_outgrows_the_memory_keeps_its_names() {
    let (kv, _meta, [directory, _]) = volume();
    let orders = in_steps(4 * NAMES);
    assert!(orders.page(&*kv, directory, b"", 1, b"").unwrap().is_some());
    let mut all = orders.all.lock();
    let before = all.bytes;
    assert!(before > NAMES);
    // As if another one had come that is used now.
    all.bytes += 4 * NAMES - before + 1;
    assert!(orders.make_space(&mut all, directory));
    assert!(all.directories[&directory].only_names && all.directories[&directory].bytes == NAMES);
}

#[test]
fn a_directory_that_is_too_large_is_not_read_for_each_page() {
    let (kv, meta, [directory, _]) = volume();
    let orders = in_steps(NAMES - 1);
    let meddled = Meddled::new(&kv, |_| {});
    assert_eq!(orders.page(&meddled, directory, b"", 1, b"").unwrap(), None);
    assert!(meddled.scans() > 0);
    assert_eq!(orders.page(&meddled, directory, b"5", 1, b"").unwrap(), None);
    assert_eq!(meddled.scans(), 0);
    // It fits when it has become smaller.
    for number in 0..20 {
        let name = format!("{number:03}");
        let ino = meta.lookup(directory, name.as_bytes()).unwrap().ino;
        meta.unlink(directory, name.as_bytes(), ino, false, Time::default()).unwrap();
    }
    let page = orders.page(&meddled, directory, b"", 1, b"").unwrap().unwrap();
    assert_eq!(page.texts[0].0, b"020");
}

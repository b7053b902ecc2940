//! Pages of keys, also of directories whose names are kept in order, while they change.

use super::*;
use crate::reading::question;
use fs::{BulkFile, RenameMode};
use objects::listing::{Listings, Page};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Empty objects of these names in the bucket `b`, 1000 in a transaction.
fn fill(gateway: &Gateway, names: impl Iterator<Item = String>) {
    let fs = &gateway.objects.fs;
    let parent = gateway.objects.bucket("b").unwrap().ino;
    let at = objects::now();
    let mut names = names.peekable();
    while names.peek().is_some() {
        let first = fs.new_inos(1000).unwrap();
        let files: Vec<BulkFile> = names
            .by_ref()
            .take(1000)
            .enumerate()
            .map(|(index, name)| {
                let about = objects::about::About { etag: format!("{:032x}", index), ..Default::default() };
                objects::whole(fs::Ino(first.0 + index as u64), parent, name.into_bytes(), about, 0, at)
            })
            .collect();
        assert!(fs.put_files(&files).unwrap().is_empty());
    }
}

fn page(gateway: &Gateway, after: &str, limit: usize) -> Page {
    gateway.listings.page(&gateway.objects, &question("b", None, None, after.into()), limit).unwrap()
}

fn all(gateway: &Gateway, prefix: &str, delimiter: Option<&str>, limit: usize) -> (Vec<String>, Vec<String>) {
    let (prefix, delimiter) = (prefix.to_owned(), delimiter.map(str::to_owned));
    pages(gateway, &gateway.listings, question("b", Some(&prefix), delimiter.as_ref(), String::new()), limit)
}

#[test]
fn a_large_directory_is_listed_in_order_and_follows_its_changes() {
    let mut lab = Lab::new("ordered");
    let gateway = lab.gateway();
    let fs = lab.fs().clone();
    lab.run(bucket(&gateway));
    let mut there: BTreeSet<String> =
        (0..3000).map(|n| format!("{}{n}", if n % 3 == 0 { "a-" } else { "k" })).collect();
    fill(&gateway, there.iter().cloned());
    let list = || all(&gateway, "", None, 700).0;
    assert!(list().iter().eq(&there));
    // Changes of each kind are on the next page that is asked for.
    let parent = gateway.objects.bucket("b").unwrap().ino;
    let file = objects::home::new(FileKind::File, 0o644);
    let made = fs.make(parent, b"made", &file).unwrap();
    fs.link(made.ino, parent, b"linked").unwrap();
    fs.rename((parent, b"k1"), (parent, b"renamed"), RenameMode::NoReplace).unwrap();
    fs.rename((parent, b"k2"), (parent, b"k4"), RenameMode::Replace).unwrap();
    fs.unlink(parent, b"k5").unwrap();
    fill(&gateway, ["bulk".to_owned()].into_iter());
    // Neither of them has a key.
    fs.make(parent, b"directory", &objects::home::new(FileKind::Directory, 0o755)).unwrap();
    fs.make(parent, b"link", &fs::New { link: b"x".to_vec(), ..objects::home::new(FileKind::Symlink, 0o777) }).unwrap();
    for gone in ["k1", "k2", "k5"] {
        assert!(there.remove(gone));
    }
    there.extend(["made", "linked", "renamed", "bulk"].map(String::from));
    assert!(list().iter().eq(&there));
    // A directory and a file change places.
    let inside = fs.lookup(parent, b"directory").unwrap().ino;
    fs.make(inside, b"inside", &file).unwrap();
    fs.rename((parent, b"directory"), (parent, b"k7"), RenameMode::Exchange).unwrap();
    there.extend(["directory", "k7/inside"].map(String::from));
    assert!(there.remove("k7"));
    assert!(list().iter().eq(&there));
    fs.unlink(inside, b"inside").unwrap();
    fs.remove_directory(parent, b"k7").unwrap();
    there.remove("k7/inside");
    assert!(list().iter().eq(&there));
    // The same by the way of directories that do not fit in memory.
    let by_hash = Listings::by_hash(256 << 10);
    assert!(pages(&gateway, &by_hash, question("b", None, None, String::new()), 1000).0.iter().eq(&there));
    // What changed in place is on the page, too.
    fs.write(made.ino, 0, b"bytes").unwrap();
    let shown = page(&gateway, "linked", 1);
    assert_eq!((shown.keys[0].key.as_str(), shown.keys[0].file.size), ("made", 5));
    // After a new opening, a directory is read when its first page is asked for.
    drop((gateway, fs));
    lab.fs.take().unwrap().close_volume().unwrap();
    lab.open();
    let gateway = lab.gateway();
    assert!(all(&gateway, "", None, 700).0.iter().eq(&there));
}

#[test]
fn common_prefixes_of_a_large_directory_are_told_once() {
    let lab = Lab::new("common");
    let gateway = lab.gateway();
    lab.run(bucket(&gateway));
    fill(&gateway, (0..4000).map(|n| format!("{}-{n}", n % 4)));
    lab.run(async {
        for key in ["1-0/x", "1-0/y", "2/z"] {
            put(&gateway, key, b"").await.unwrap();
        }
    });
    for limit in [1, 3, 1000] {
        let prefixes = ["0-", "1-", "2-", "3-"].map(String::from).to_vec();
        assert_eq!(all(&gateway, "", Some("-"), limit), (vec!["2/z".into()], prefixes));
        assert_eq!(all(&gateway, "1-0", Some("/"), limit), (Vec::new(), vec!["1-0/".into()]));
    }
    assert_eq!(all(&gateway, "1-0/", None, 1).0, ["1-0/x", "1-0/y"]);
    assert_eq!(all(&gateway, "3-39", None, 10).0.len(), 29);
    assert!(all(&gateway, "4", None, 10).0.is_empty());
}

#[test]
fn no_key_that_stays_is_missed_or_told_twice() {
    let lab = Lab::new("staying");
    let gateway = lab.gateway();
    lab.run(bucket(&gateway));
    fill(&gateway, (0..6000).map(|n| format!("{n:05}")));
    let stay: Vec<String> = (0..6000).filter(|n| n % 3 != 0).map(|n| format!("{n:05}")).collect();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Two others rename, remove and create names all the time, also while the first page is
        // asked for.
        for of in 0..2 {
            let (gateway, ended) = (&gateway, &ended);
            scope.spawn(move || {
                let (fs, parent) = (&gateway.objects.fs, gateway.objects.bucket("b").unwrap().ino);
                let mut random = fastrand::Rng::with_seed(of);
                while !ended.load(Ordering::Relaxed) {
                    let name = format!("{:05}", 3 * random.u32(..2000));
                    let other = format!("{:05}x{}", random.u32(..6000), random.u32(..4));
                    let _ = match random.u8(..3) {
                        0 => fs.unlink(parent, name.as_bytes()),
                        1 => fs.make(parent, name.as_bytes(), &objects::home::new(FileKind::File, 0o644)).map(drop),
                        _ => fs.rename((parent, name.as_bytes()), (parent, other.as_bytes()), RenameMode::Replace),
                    };
                }
            });
        }
        let listed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for limit in [1000, 77, 333] {
                let (keys, _) = all(&gateway, "", None, limit);
                assert!(keys.is_sorted() && keys.windows(2).all(|pair| pair[0] != pair[1]));
                let kept: Vec<&String> = keys.iter().filter(|key| stay.binary_search(key).is_ok()).collect();
                assert!(kept.into_iter().eq(&stay), "{limit}");
            }
        }));
        ended.store(true, Ordering::Relaxed);
        listed.unwrap();
    });
    // When all is quiet, what is kept in order is what is there.
    let by_hash = pages(&gateway, &Listings::by_hash(16 << 20), question("b", None, None, String::new()), 1000);
    assert!(all(&gateway, "", None, 1000) == by_hash);
}

/// How long pages of a million keys take: `WEFT_S3_KEYS=1000000 cargo test --release -p s3 -- \
/// --ignored --nocapture pages_of_a_million_keys`.
#[test]
#[ignore = "it measures"]
fn pages_of_a_million_keys() {
    let count: u32 = std::env::var("WEFT_S3_KEYS").map_or(1_000_000, |count| count.parse().unwrap());
    let lab = Lab::new("million");
    let gateway = lab.gateway();
    lab.run(bucket(&gateway));
    let begun = Instant::now();
    // They come in another order than that of the keys.
    let mixed = |n: u32| n.wrapping_mul(2_654_435_761) % count.next_power_of_two();
    fill(&gateway, (0..count).map(|n| format!("{:08}.json", mixed(n))));
    println!("{count} keys made in {:.1} s", begun.elapsed().as_secs_f64());
    for _ in 0..2 {
        let (mut times, mut after, mut seen) = (Vec::new(), None, 0);
        let begun = Instant::now();
        loop {
            let at = Instant::now();
            let (page, next) = lab.run(keys(&gateway, 1000, after));
            times.push(at.elapsed().as_secs_f64() * 1000.0);
            seen += page.len();
            after = next;
            if after.is_none() {
                break;
            }
        }
        let total = begun.elapsed().as_secs_f64();
        assert_eq!(seen, count as usize);
        let first = times[0];
        times.sort_by(f64::total_cmp);
        let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
        println!(
            "{total:.2} s; first page {first:.1} ms, median {:.1}, 99 % {:.1}, worst {:.1}",
            at(0.5),
            at(0.99),
            at(1.0)
        );
    }
    if std::env::var_os("WEFT_S3_KEEP").is_some() {
        println!("kept: {}", lab.place.join("volume").display());
        drop(gateway);
        let mut lab = lab;
        lab.fs.take().unwrap().close_volume().unwrap();
        std::mem::forget(lab);
    }
}

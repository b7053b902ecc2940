use crate::data::write::Allocate;
use crate::testing::{Lab, make};
use crate::{FileSystem, SetAttributes};
use plan::Ino;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Reads a range both ways, and returns whether it was at hand.
fn read(fs: &FileSystem, ino: Ino, offset: u64, length: usize, expected: &[u8]) -> bool {
    let from = (offset as usize).min(expected.len());
    let expected = &expected[from..(from + length).min(expected.len())];
    let (mut found, mut at_hand) = (vec![1; length], vec![2; length]);
    let read_at_hand = fs.read_at_hand(ino, offset, &mut at_hand);
    if let Some(count) = read_at_hand {
        assert!(at_hand[..count] == *expected, "{length} bytes at {offset} at hand");
    }
    let count = fs.read(ino, offset, &mut found).unwrap();
    assert!(found[..count] == *expected, "{length} bytes at {offset}");
    read_at_hand.is_some()
}

/// What is at hand is what the file is, whatever was done to it before.
#[test]
fn what_is_at_hand_is_true() {
    let lab = Lab::new("rs:2+1", 3);
    let fs = lab.open();
    let (ino, other) = (make(&fs, "file"), make(&fs, "other"));
    fs.open(ino, true).unwrap();
    let mut dice = fastrand::Rng::with_seed(11);
    let (mut model, mut at_hand): (Vec<u8>, u32) = (Vec::new(), 0);
    for round in 0..400_u32 {
        // So long that it goes into stripes: a file with much in the metadata has nothing at hand.
        let (at, length) = (dice.usize(..2_000_000), dice.usize(40_000..200_000));
        match dice.u8(..8) {
            0..=2 => {
                let bytes: Vec<u8> = (0..length).map(|n| (n as u32 * round) as u8).collect();
                fs.write(ino, at as u64, &bytes).unwrap();
                model.resize(model.len().max(at + length), 0);
                model[at..at + length].copy_from_slice(&bytes);
            }
            3 => {
                fs.set_attributes(ino, SetAttributes { size: Some(at as u64), ..SetAttributes::default() }).unwrap();
                model.resize(at, 0);
            }
            4 => {
                fs.allocate(ino, Allocate::PunchHole, at as u64, length as u64).unwrap();
                let end = (at + length).min(model.len());
                model[at.min(end)..end].fill(0);
            }
            5 => {
                fs.write(other, 0, &vec![round as u8; length]).unwrap();
                let copied = fs.copy_range((other, 0), (ino, at as u64), length as u64).unwrap() as usize;
                model.resize(model.len().max(at + copied), 0);
                model[at..at + copied].fill(round as u8);
            }
            6 => fs.restripe(ino, |_| true).unwrap(),
            _ => fs.collect(true).map(drop).unwrap(),
        }
        if dice.bool() {
            fs.sync(ino).unwrap();
            // What went into the metadata goes into stripes.
            fs.restripe(ino, |extent| matches!(extent.place, plan::ExtentPlace::Bytes(_))).unwrap();
        }
        for _ in 0..20 {
            let (at, length) = (dice.u64(..2_100_000), dice.usize(..9000));
            at_hand += u32::from(read(&fs, ino, at, length, &model));
        }
    }
    assert!(at_hand > 1000, "{at_hand} reads");
    fs.close(ino);
}

/// A write that has returned is in what is at hand, while commits and maintenance go on.
#[test]
fn what_is_at_hand_is_not_old() {
    // Each goes into a stripe: a file with much in the metadata has nothing at hand.
    const BLOCK: u64 = 40_960;
    const BLOCKS: u64 = 16;
    const PATIENCE: Duration = Duration::from_secs(120);
    let lab = Lab::new("rs:2+1", 3);
    let fs = lab.open();
    let ino = make(&fs, "file");
    fs.open(ino, true).unwrap();
    fs.write(ino, 0, &vec![0; (BLOCKS * BLOCK) as usize]).unwrap();
    let least: Vec<AtomicU64> = (0..BLOCKS).map(|_| AtomicU64::new(0)).collect();
    let (done, at_hand) = (AtomicBool::new(false), AtomicU64::new(0));
    let write = || {
        let mut dice = fastrand::Rng::with_seed(1);
        for number in 1..400_u64 {
            let block = dice.u64(..BLOCKS);
            fs.write(ino, block * BLOCK, &number.to_le_bytes().repeat((BLOCK / 8) as usize)).unwrap();
            least[block as usize].store(number, Ordering::SeqCst);
            match dice.u8(..4) {
                0 => fs.restripe(ino, |_| true).unwrap(),
                1 => fs.collect(true).map(drop).unwrap(),
                _ => {}
            }
            if number.is_multiple_of(4) {
                fs.sync(ino).unwrap();
                // Readers have it at hand now, before the next write.
                let (seen, begun) = (at_hand.load(Ordering::SeqCst), Instant::now());
                while at_hand.load(Ordering::SeqCst) == seen {
                    assert!(begun.elapsed() < PATIENCE, "nothing is at hand after write {number}");
                    std::thread::sleep(Duration::from_micros(100));
                }
            }
        }
    };
    let read = |seed| {
        let mut dice = fastrand::Rng::with_seed(seed);
        let mut found = [0; 8];
        while !done.load(Ordering::SeqCst) {
            let block = dice.u64(..BLOCKS);
            let offset = block * BLOCK + dice.u64(..BLOCK / 8) * 8;
            let low = least[block as usize].load(Ordering::SeqCst);
            match fs.read_at_hand(ino, offset, &mut found) {
                Some(_) => _ = at_hand.fetch_add(1, Ordering::SeqCst),
                None => assert_eq!(fs.read(ino, offset, &mut found).unwrap(), 8),
            }
            let number = u64::from_le_bytes(found);
            assert!(number >= low, "block {block}: {number}, and {low} was written before");
        }
    };
    std::thread::scope(|scope| {
        let writer = scope.spawn(write);
        let read = &read;
        let readers = [2, 3].map(|seed| scope.spawn(move || read(seed)));
        let written = writer.join();
        done.store(true, Ordering::SeqCst);
        written.unwrap();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    fs.close(ino);
}

/// A client has nothing at hand: others change files.
#[test]
fn where_others_change_files_nothing_is_at_hand() {
    let lab = Lab::new("rs:2+1", 3);
    let fs = lab.client();
    let ino = make(&fs, "file");
    fs.open(ino, true).unwrap();
    fs.write(ino, 0, &[7; 100_000]).unwrap();
    fs.sync(ino).unwrap();
    for _ in 0..30 {
        assert!(!read(&fs, ino, 0, 4096, &[7; 100_000]));
    }
    fs.close(ino);
}

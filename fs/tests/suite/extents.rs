//! Files with more extents than one operation reads or changes: reading, seeking, copying, punching
//! and truncating them works as for others.

use crate::lab::cluster::Cluster;
use crate::lab::{Lab, assert_sound, content, make};
use fs::{Allocate, FileSystem, ROOT, Seek, SetAttributes};
use plan::Ino;
use std::ops::Range;

/// The number of extents, and the distance between them.
const EXTENT_COUNT: usize = 20_000;
const EXTENT_DISTANCE: usize = 10;
const EXTENT_BYTES: usize = 3;

/// A file of many extents, and its content.
fn file(fs: &FileSystem) -> (Ino, Vec<u8>) {
    let ino = make(fs, "many");
    let mut bytes = vec![0; EXTENT_COUNT * EXTENT_DISTANCE];
    for number in 0..EXTENT_COUNT {
        let at = number * EXTENT_DISTANCE;
        bytes[at..at + EXTENT_BYTES].copy_from_slice(&[1 + (number % 255) as u8; EXTENT_BYTES]);
        fs.write(ino, at as u64, &bytes[at..at + EXTENT_BYTES]).unwrap();
    }
    let size = SetAttributes { size: Some(bytes.len() as u64), ..SetAttributes::default() };
    fs.sync(ino).unwrap();
    fs.set_attributes(ino, size).unwrap();
    (ino, bytes)
}

fn within(range: &Range<usize>) -> (u64, u64) {
    (range.start as u64, (range.end - range.start) as u64)
}

fn check(fs: &FileSystem) {
    let (ino, mut bytes) = file(fs);
    let is_as_expected = |bytes: &[u8]| assert!(content(fs, ino).unwrap() == bytes);
    is_as_expected(&bytes);
    // Copied with as many calls as it takes.
    let (copy, mut at) = (make(fs, "copy"), 0);
    while at < bytes.len() as u64 {
        let copied = fs.copy_range((ino, at), (copy, at), u64::MAX / 4).unwrap();
        assert!(copied > 0);
        at += copied;
    }
    assert!(content(fs, copy).unwrap() == bytes);
    let some = 101 * EXTENT_DISTANCE..(EXTENT_COUNT - 50) * EXTENT_DISTANCE;
    let (offset, length) = within(&some);
    // In the copy: space for all holes, then zeroes instead of everything.
    fs.allocate(copy, Allocate::KeepSize, 0, bytes.len() as u64).unwrap();
    assert!(content(fs, copy).unwrap() == bytes);
    assert_eq!(fs.attributes(copy).unwrap().allocated, bytes.len() as u64);
    fs.allocate(copy, Allocate::Zero, offset, length).unwrap();
    bytes[some.clone()].fill(0);
    assert!(content(fs, copy).unwrap() == bytes);
    // A hole, found from both sides.
    fs.allocate(ino, Allocate::PunchHole, offset, length).unwrap();
    is_as_expected(&bytes);
    assert_eq!(fs.seek(ino, offset, Seek::Data).unwrap(), some.end as u64);
    assert_eq!(
        fs.seek(ino, offset - EXTENT_DISTANCE as u64, Seek::Hole).unwrap(),
        offset - (EXTENT_DISTANCE - EXTENT_BYTES) as u64
    );
    // Data and a hole behind more extents than one lookup returns.
    let zeroes = 16_500 * EXTENT_DISTANCE..EXTENT_COUNT * EXTENT_DISTANCE - 5;
    fs.write(ino, 0, &vec![7; some.end]).unwrap();
    fs.sync(ino).unwrap();
    bytes[..some.end].fill(7);
    fs.allocate(ino, Allocate::PunchHole, zeroes.start as u64, (zeroes.end - zeroes.start) as u64).unwrap();
    bytes[zeroes.clone()].fill(0);
    is_as_expected(&bytes);
    assert_eq!(fs.seek(ino, 0, Seek::Hole).unwrap(), zeroes.start as u64);
    assert!(fs.seek(ino, zeroes.start as u64, Seek::Data).is_err());
    // Truncated.
    for (file, size) in [(copy, 55), (copy, 0), (ino, 3)] {
        let size = SetAttributes { size: Some(size), ..SetAttributes::default() };
        assert_eq!(fs.set_attributes(file, size).unwrap().size, size.size.unwrap());
    }
    assert_eq!(content(fs, ino).unwrap(), [7; 3]);
    fs.unlink(ROOT, b"many").unwrap();
    fs.unlink(ROOT, b"copy").unwrap();
}

#[test]
fn a_file_of_many_extents_is_as_others() {
    let mut lab = Lab::new("rs:2+1", 3);
    let fs = lab.open();
    check(&fs);
    // As it was written, extent by extent.
    let (ino, bytes) = file(&fs);
    assert_eq!(fs.seek(ino, 3, Seek::Data).unwrap(), EXTENT_DISTANCE as u64);
    let size = SetAttributes { size: Some(7), ..SetAttributes::default() };
    fs.set_attributes(ino, size).unwrap();
    assert!(content(&fs, ino).unwrap() == bytes[..7]);
    assert_sound(&fs);
    fs.close_volume().unwrap();
}

#[test]
fn a_file_of_many_extents_is_as_others_for_clients() {
    let cluster = Cluster::new("rs:2+1", 3);
    let a = cluster.client("a");
    check(&a);
    let b = cluster.client("b");
    check(&b);
    a.close_volume().unwrap();
    b.close_volume().unwrap();
    assert_sound(&cluster.volume());
}

//! A volume that a build with format 1 of the metadata journal made: it can be read, and opening it
//! for writing upgrades it.

mod lab;

use fs::{Create, FileSystem, Kind, OpenOptions, ROOT};
use lab::{content, make, new, pattern};
use std::path::PathBuf;

/// How the golden volume was made, for the record. It was run with the last build of format 1, in
/// a directory that the paths in the labels name `/golden`.
#[test]
#[ignore = "its result is kept in golden_volume"]
fn make_the_golden_volume() {
    let place = PathBuf::from(std::env::var_os("WEFT_GOLDEN").expect("a directory to make it in"));
    let create = Create {
        name: "golden".into(),
        code: "rs:2+1".into(),
        chunk_bytes: 8 << 20,
        durability: None,
        coding: fs::Coding::Client,
        targets: (0..4).map(|number| place.join(format!("disk{number}"))).collect(),
        domains: Vec::new(),
        placement: plan::placement::Placement::default(),
        places: std::sync::Arc::new(fs::Directories),
    };
    let volume = place.join("volume");
    create.run(&volume).unwrap();
    let open = || FileSystem::open_volume(&volume, OpenOptions::default()).unwrap();
    let fs = open();
    fs.write(make(&fs, "short"), 0, b"kept with the name").unwrap();
    fs.write(make(&fs, "long"), 0, &pattern(7, 30_000)).unwrap();
    let directory = fs.make(ROOT, b"directory", &new(Kind::Directory)).unwrap().ino;
    fs.make(directory, b"within", &new(Kind::File)).unwrap();
    assert_eq!(content(&fs, fs.lookup(ROOT, b"long").unwrap().ino).unwrap(), pattern(7, 30_000));
    fs.close_volume().unwrap();
    drop(fs);
    // A second opening, whose journal has transactions that no snapshot has.
    let fs = open();
    fs.unlink(ROOT, b"short").unwrap();
    fs.write(make(&fs, "later"), 0, b"from the second opening").unwrap();
    fs.close_volume().unwrap();
}

//! A volume that a build with format 1 of the metadata journal made: it can be read, and opening it
//! for writing upgrades it.

use crate::lab;
use crate::lab::place::in_directories;
use crate::lab::{content, make, new, pattern};
use fs::{Create, FileKind, FileSystem, OpenOptions, ROOT};
use std::path::{Path, PathBuf};

/// How the golden volume was made, for the record. It was run with the last build of format 1, in
/// a directory that the paths in the labels name `/golden`.
#[test]
#[ignore = "its result is kept in golden_volume"]
fn make_the_golden_volume() {
    let place = PathBuf::from(std::env::var_os("WEFT_GOLDEN").expect("a directory to make it in"));
    let targets = (0..4).map(|number| place.join(format!("disk{number}"))).collect();
    let create = Create { name: "golden".into(), ..in_directories("rs:2+1", targets) };
    let volume = place.join("volume");
    create.run(&volume).unwrap();
    let open = || FileSystem::open_volume(&volume, OpenOptions::default()).unwrap();
    let fs = open();
    fs.write(make(&fs, "short"), 0, b"kept with the name").unwrap();
    fs.write(make(&fs, "long"), 0, &pattern(7, 30_000)).unwrap();
    let directory = fs.make(ROOT, b"directory", &new(FileKind::Directory)).unwrap().ino;
    fs.make(directory, b"within", &new(FileKind::File)).unwrap();
    assert_eq!(content(&fs, fs.lookup(ROOT, b"long").unwrap().ino).unwrap(), pattern(7, 30_000));
    fs.close_volume().unwrap();
    drop(fs);
    // A second opening, whose journal has transactions that no snapshot has.
    let fs = open();
    fs.unlink(ROOT, b"short").unwrap();
    fs.write(make(&fs, "later"), 0, b"from the second opening").unwrap();
    fs.close_volume().unwrap();
}

/// A copy of the golden volume, whose labels name the place where it is.
struct Copy(PathBuf);

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn copy(from: &Path, to: &Path, place: &str) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (name, path) = entry.map(|entry| (entry.file_name(), entry.path())).unwrap();
        let bytes = match path.is_dir() {
            true => {
                copy(&path, &to.join(name), place);
                continue;
            }
            false => std::fs::read(&path).unwrap(),
        };
        let bytes = match String::from_utf8(bytes) {
            Ok(text) => text.replace("/golden/", &format!("{place}/")).into_bytes(),
            Err(error) => error.into_bytes(),
        };
        std::fs::write(to.join(name), bytes).unwrap();
    }
}

impl Copy {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weft-golden-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden_volume");
        copy(&golden, &path, path.to_str().unwrap());
        // Version control keeps no empty directories.
        for disk in 0..4 {
            let disk = path.join(format!("disk{disk}"));
            for below in ["journal", "snapshots"] {
                std::fs::create_dir_all(disk.join(below)).unwrap();
            }
            (0..=u8::MAX).for_each(|n| std::fs::create_dir_all(disk.join(format!("chunks/{n:02x}"))).unwrap());
        }
        Self(path)
    }

    fn open(&self, read_only: bool) -> fs::Result<std::sync::Arc<FileSystem>> {
        FileSystem::open_volume(&self.0.join("volume"), OpenOptions { read_only, ..OpenOptions::default() })
    }

    fn format(&self) -> u64 {
        let text = std::fs::read_to_string(self.0.join("disk2/weft.label")).unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["format"].as_u64().unwrap()
    }
}

fn assert_as_it_was(fs: &FileSystem) {
    let ino = |parent, name: &[u8]| fs.lookup(parent, name).map(|found| found.ino);
    assert_eq!(content(fs, ino(ROOT, b"long").unwrap()).unwrap(), pattern(7, 30_000));
    assert_eq!(content(fs, ino(ROOT, b"later").unwrap()).unwrap(), b"from the second opening");
    assert!(ino(ROOT, b"short").is_err());
    assert!(ino(ino(ROOT, b"directory").unwrap(), b"within").is_ok());
}

#[test]
fn a_volume_of_format_1_is_read_and_then_upgraded() {
    let place = Copy::new("upgrade");
    let fs = place.open(true).unwrap();
    assert_as_it_was(&fs);
    drop(fs);
    assert_eq!(place.format(), 1, "reading changes nothing");
    let fs = place.open(false).unwrap();
    assert_as_it_was(&fs);
    fs.write(make(&fs, "new"), 0, b"of format 2").unwrap();
    lab::assert_sound(&fs);
    fs.close_volume().unwrap();
    drop(fs);
    assert_eq!(place.format(), 2);
    // With one disk missing, as many as the code may lose.
    std::fs::remove_dir_all(place.0.join("disk0")).unwrap();
    let fs = place.open(false).unwrap();
    assert_as_it_was(&fs);
    assert_eq!(content(&fs, fs.lookup(ROOT, b"new").unwrap().ino).unwrap(), b"of format 2");
    fs.close_volume().unwrap();
}

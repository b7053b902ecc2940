//! Volumes with stripes shorter than usual.

use crate::lab::place::in_directories;
use crate::lab::{assert_sound, content, make, pattern};
use fs::{Create, Error, FileKind, FileSystem, New, OpenOptions, ROOT, Time};
use std::path::Path;
use volume::WriteStep;

fn create(place: &Path, stripe_bytes: Option<usize>) -> fs::Result<()> {
    let targets = (0..6).map(|number| place.join(format!("disk{number}"))).collect();
    let create = Create { stripe_bytes, ..in_directories("rs:4+2", targets) };
    create.run(&place.join("volume"))
}

/// Large files and small ones: stripes of one file are no longer than was asked for, and those of
/// several have data in the page of the manifest, too.
#[test]
fn stripes_are_as_long_as_the_volume_says() {
    let place = std::env::temp_dir().join(format!("weft-stripes-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir_all(&place).unwrap();
    for wrong in [100, 4 << 20, 1 << 30] {
        assert!(matches!(create(&place, Some(wrong)), Err(Error::Invalid(why)) if why.contains("a stripe has")));
    }
    create(&place, Some(6 << 10)).unwrap();
    let fs = FileSystem::open_volume(&place.join("volume"), OpenOptions::default()).unwrap();
    let large = make(&fs, "large");
    fs.write(large, 0, &pattern(1, 1_000_000)).unwrap();
    let small: Vec<_> = (0..40).map(|number| (make(&fs, &format!("small{number}")), number)).collect();
    for (file, number) in &small {
        fs.write(*file, 0, &pattern(*number, 40_000)).unwrap();
    }
    fs.sync_all().unwrap();
    let stripes = fs.write_cost().of(WriteStep::Parity).count;
    assert!(stripes >= 1_000_000 / (6 << 10) + 1_600_000 / (10 << 10), "{stripes}");
    assert!(content(&fs, large).unwrap() == pattern(1, 1_000_000));
    assert!(small.iter().all(|(file, number)| content(&fs, *file).unwrap() == pattern(*number, 40_000)));
    assert_sound(&fs);
    fs.close_volume().unwrap();
    drop(fs);
    std::fs::remove_dir_all(&place).unwrap();
}

/// The description of a file in the manifest would leave no space for its data.
#[test]
fn files_with_long_paths_fit_into_short_stripes() {
    let place = std::env::temp_dir().join(format!("weft-long-paths-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir_all(&place).unwrap();
    create(&place, Some(4 << 10)).unwrap();
    let fs = FileSystem::open_volume(&place.join("volume"), OpenOptions::default()).unwrap();
    let new = |kind| New { kind, mode: 0o755, uid: 1, gid: 2, device: 0, link: Vec::new() };
    let mut directory = ROOT;
    for _ in 0..40 {
        let file = fs.make(directory, b"file", &new(FileKind::File)).unwrap().ino;
        fs.write(file, 0, &pattern(1, 50_000)).unwrap();
        fs.sync(file).unwrap();
        assert!(content(&fs, file).unwrap() == pattern(1, 50_000));
        directory = fs.make(directory, &[b'd'; 200], &new(FileKind::Directory)).unwrap().ino;
    }
    let (mut load, file) = (fs.bulk_load().unwrap(), fs.new_inos(1).unwrap());
    let path = vec![b'p'; 9000];
    load.begin(file, fs::manifest::File { path, size: 0, mode: 0, uid: 0, gid: 0, modified: Time::default() });
    let added = load.add(0, 10_000, |into| {
        into.fill(1);
        Ok::<_, Error>(into.len())
    });
    assert!(!added.unwrap().is_empty());
    drop(load);
    fs.close_volume().unwrap();
    drop(fs);
    std::fs::remove_dir_all(&place).unwrap();
}

#[test]
fn blocks_make_a_stripe() {
    assert_eq!(fs::stripe_of_blocks(4, 1 << 20).unwrap(), (4 << 20) - 4096);
    assert_eq!(fs::stripe_of_blocks(1, 4096).unwrap(), 4096);
    for wrong in [0, 1000, 6000, (1 << 20) + 4096, 32 << 20] {
        assert!(fs::stripe_of_blocks(4, wrong).is_err(), "{wrong}");
    }
    assert!(fs::stripe_of_blocks(8, 1 << 20).is_err(), "stripes of a wide code have shorter blocks");
}

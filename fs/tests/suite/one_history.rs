//! One history on directories: nothing older is opened without a word, and nothing is lost.

use crate::lab::place::in_directories;
use crate::lab::{assert_sound, content, make, pattern};
use fs::{Error, FileSystem, OpenOptions, ROOT};
use std::path::{Path, PathBuf};
use std::time::Duration;

struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Place {
    fn new(name: &str, code: &str, targets: usize) -> Self {
        let path = std::env::temp_dir().join(format!("weft-history-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        let place = Self(path);
        let create = in_directories(code, (0..targets).map(|number| place.target(number)).collect());
        create.run(&place.0.join("volume")).unwrap();
        place
    }

    fn target(&self, number: usize) -> PathBuf {
        self.0.join(format!("disk{number}"))
    }

    fn open(&self, options: OpenOptions) -> fs::Result<std::sync::Arc<FileSystem>> {
        FileSystem::open_volume(&self.0.join("volume"), options)
    }

    /// The targets that have a journal.
    fn mirrors(&self, targets: usize) -> Vec<usize> {
        let has = |path: &Path| std::fs::read_dir(path.join("journal")).unwrap().next().is_some();
        (0..targets).filter(|&number| has(&self.target(number))).collect()
    }
}

fn read_only() -> OpenOptions {
    OpenOptions { read_only: true, ..OpenOptions::default() }
}

#[test]
fn an_older_journal_is_refused_and_the_newest_is_there_again() {
    let place = Place::new("older", "rs:4+2", 8);
    let fs = place.open(OpenOptions::default()).unwrap();
    fs.write(make(&fs, "first"), 0, b"first").unwrap();
    fs.close_volume().unwrap();
    drop(fs);
    let fs = place.open(OpenOptions::default()).unwrap();
    fs.write(make(&fs, "second"), 0, &pattern(1, 2_000_000)).unwrap();
    fs.close_volume().unwrap();
    drop(fs);
    let away: Vec<usize> = place.mirrors(8).into_iter().take(3).collect();
    assert_eq!(away.len(), 3);
    let moved = |number: usize| place.0.join(format!("away{number}"));
    away.iter().for_each(|&number| std::fs::rename(place.target(number), moved(number)).unwrap());
    for options in [OpenOptions::default(), read_only(), OpenOptions { files_only: true, ..read_only() }] {
        let error = place.open(options).err().expect("it is refused");
        let Error::TooFew(why) = &error else { panic!("{error:?}") };
        assert!(away.iter().all(|number| why.contains(&format!("target {number}: "))), "{why}");
    }
    // With `possibly_old`, the opening sees what there is.
    let fs = place.open(OpenOptions { possibly_old: true, ..read_only() }).unwrap();
    assert!(fs.lookup(ROOT, b"first").is_ok());
    drop(fs);
    away.iter().for_each(|&number| std::fs::rename(moved(number), place.target(number)).unwrap());
    let fs = place.open(OpenOptions::default()).unwrap();
    assert_eq!(content(&fs, fs.lookup(ROOT, b"second").unwrap().ino).unwrap(), pattern(1, 2_000_000));
    assert!(fs.accepted_losses().unwrap().is_empty());
    assert_sound(&fs);
    fs.close_volume().unwrap();
}

/// A metadata server with a full disk must not keep the volume from those that could serve it.
#[test]
fn an_opening_that_cannot_write_its_own_directory_gives_the_claims_back() {
    let place = Place::new("local", "rs:4+2", 6);
    let other = place.0.join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::copy(place.0.join("volume/volume.json"), other.join("volume.json")).unwrap();
    // Something else has the name of the local WAL.
    std::fs::write(place.0.join("volume/tail"), b"no directory").unwrap();
    let served = || OpenOptions { serve: true, lease: Some(Duration::from_secs(600)), ..OpenOptions::default() };
    for _ in 0..2 {
        let error = place.open(served()).err().expect("it cannot be opened");
        assert!(matches!(&error, Error::Invalid(why) if why.contains("tail")), "{error:?}");
    }
    let fs = FileSystem::open_volume(&other, served()).unwrap();
    make(&fs, "film");
    fs.close_volume().unwrap();
}

#[test]
fn a_loss_is_refused_unless_accepted_and_then_recorded() {
    let place = Place::new("loss", "rs:4+2", 6);
    let fs = place.open(OpenOptions::default()).unwrap();
    fs.write(make(&fs, "short"), 0, b"kept with the name").unwrap();
    fs.close_volume().unwrap();
    drop(fs);
    (0..3).for_each(|number| std::fs::remove_dir_all(place.target(number)).unwrap());
    let error = place.open(OpenOptions::default()).err().expect("it is refused");
    assert!(matches!(error, Error::TooFew(_)), "{error:?}");
    let lossy = || OpenOptions { accept_loss: true, ..OpenOptions::default() };
    for openings in 1..3 {
        let fs = place.open(lossy()).unwrap();
        assert_eq!(fs.accepted_losses().unwrap().len(), openings);
        assert_eq!(content(&fs, fs.lookup(ROOT, b"short").unwrap().ino).unwrap(), b"kept with the name");
        fs.close_volume().unwrap();
    }
}

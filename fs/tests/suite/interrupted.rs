//! A change of the targets whose process died between the first and the last write of the new
//! label, and openings that see it and do not see it.

use crate::lab::place::in_directories;
use crate::lab::{content, dead, make};
use fs::label::{Label, Role};
use fs::{Error, FileSystem, OpenOptions, Places, ROOT};
use plan::TargetId;
use std::fs as files;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use volume::target::{Faulty, Target};

const TARGETS: usize = 4;

struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = files::remove_dir_all(&self.0);
    }
}

/// Directories, of which the last one fails when it is told to.
#[derive(Debug, Default)]
struct Failing(Mutex<Option<Arc<Faulty>>>);

impl Places for Failing {
    fn format(&self, place: &Path) -> fs::Result<Arc<dyn Target>> {
        fs::Directories.format(place)
    }

    fn open(&self, place: &Path) -> fs::Result<Arc<dyn Target>> {
        let target = fs::Directories.open(place)?;
        if !place.ends_with("disk3") {
            return Ok(target);
        }
        let faulty = Arc::new(Faulty::new(target));
        *self.0.lock().unwrap() = Some(faulty.clone());
        Ok(faulty)
    }

    fn full(&self, place: &Path) -> fs::Result<PathBuf> {
        fs::Directories.full(place)
    }
}

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weft-interrupted-{}-{name}", std::process::id()));
        let _ = files::remove_dir_all(&path);
        files::create_dir_all(&path).unwrap();
        let place = Self(path);
        let create = in_directories("rs:2+1", (0..TARGETS).map(|number| place.target(number)).collect());
        create.run(&place.0.join("volume")).unwrap();
        // The mirrors of the journal are the other three from now on.
        place.leave(1);
        let fs = place.open().unwrap();
        make(&fs, "first");
        fs.close_volume().unwrap();
        place.return_of(1);
        place
    }

    fn target(&self, number: usize) -> PathBuf {
        self.0.join(format!("disk{number}"))
    }

    fn aside(&self, number: usize) -> PathBuf {
        self.0.join(format!("aside{number}"))
    }

    fn leave(&self, number: usize) {
        files::rename(self.target(number), self.aside(number)).unwrap();
    }

    fn return_of(&self, number: usize) {
        files::rename(self.aside(number), self.target(number)).unwrap();
    }

    fn open(&self) -> fs::Result<Arc<FileSystem>> {
        FileSystem::open_volume(&self.0.join("volume"), OpenOptions::default())
    }

    fn label(&self, number: usize) -> Label {
        Label::from_json(&files::read_to_string(self.target(number).join("weft.label")).unwrap()).unwrap()
    }

    /// Target 2 was being removed when the process died: of all, target 1 alone has the new label.
    fn begin_removal(&self, change: impl FnOnce(&mut Label)) {
        let mut label = self.label(1);
        label.generation += 1;
        label.targets[2].role = Role::Removed;
        change(&mut label);
        files::write(self.target(1).join("weft.label"), label.to_json()).unwrap();
    }

    /// An opening that does not see target 1 answers what targets 0 and 2 have: target 3 has
    /// granted the claim, and fails. Then its machine is lost.
    fn answer_without_1(&self) {
        self.leave(1);
        let places = Arc::new(Failing::default());
        let options = OpenOptions { places: places.clone(), ..OpenOptions::default() };
        let fs = FileSystem::open_volume(&self.0.join("volume"), options).unwrap();
        places.0.lock().unwrap().as_ref().unwrap().set(dead());
        fs.write(make(&fs, "answered"), 0, b"what was answered").unwrap();
        fs.sync_all().unwrap();
        fs.abandon();
        drop(fs);
        files::remove_file(self.0.join("volume/index.redb")).unwrap();
        self.return_of(1);
    }

    fn assert_answered(&self) {
        let fs = self.open().unwrap();
        let found = fs.lookup(ROOT, b"answered").expect("what was answered is there");
        assert_eq!(content(&fs, found.ino).unwrap(), b"what was answered");
        fs.close_volume().unwrap();
    }
}

/// The way of 20 steps that the model found (docs/design/011-model.md): targets 1 and 3 are enough
/// of the new voters, and do not know what was answered.
fn what_was_answered_is_there(name: &str, change: impl FnOnce(&mut Label)) {
    let place = Place::new(name);
    place.begin_removal(change);
    place.answer_without_1();
    place.leave(0);
    place.assert_answered();
    // Now the change is settled for all that come later.
    place.return_of(0);
    for away in 0..TARGETS {
        place.leave(away);
        place.assert_answered();
        place.return_of(away);
    }
}

#[test]
fn an_opening_that_sees_half_a_removal_knows_what_was_answered_without_it() {
    what_was_answered_is_there("half", |label| label.before = (0..4).map(TargetId).collect());
}

#[test]
fn so_it_does_if_a_version_before_began_it() {
    what_was_answered_is_there("old", |_| ());
}

#[test]
fn with_too_few_of_both_it_is_refused() {
    let place = Place::new("few");
    place.begin_removal(|label| label.before = (0..4).map(TargetId).collect());
    place.answer_without_1();
    place.leave(0);
    place.leave(2);
    let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
    for options in [OpenOptions::default(), read_only] {
        let opened = FileSystem::open_volume(&place.0.join("volume"), options);
        let error = opened.err().expect("it is refused");
        let Error::TooFew(why) = &error else { panic!("{error:?}") };
        assert!(["target 0: ", "target 2: "].iter().all(|name| why.contains(name)), "{why}");
    }
    place.return_of(0);
    place.return_of(2);
    place.assert_answered();
}

/// A change that is complete needs no more of the voters before it, and names them no more.
#[test]
fn who_has_left_is_not_needed() {
    let place = Place::new("left");
    let fs = place.open().unwrap();
    fs.add_target(&place.target(4), None).unwrap();
    assert!((0..5).all(|number| place.label(number).before.is_empty()));
    fs.drain_target(&place.target(2), &volume::Control::default()).unwrap();
    make(&fs, "later");
    fs.close_volume().unwrap();
    drop(fs);
    let label = place.label(1);
    assert_eq!((label.before, label.targets[2].role), (Vec::new(), Role::Removed));
    place.leave(2);
    place.leave(0);
    let fs = place.open().unwrap();
    assert!(fs.lookup(ROOT, b"later").is_ok());
    fs.close_volume().unwrap();
}

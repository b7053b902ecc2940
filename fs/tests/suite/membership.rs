//! Changes of a volume's targets that reach some of them only.

use crate::lab::place::in_directories;
use crate::lab::{assert_sound, content, make, pattern};
use fs::{Error, FileSystem, OpenOptions, ROOT};
use plan::placement::{Placement, PolicyName};
use session::server::Volume as _;
use std::fs as files;
use std::path::PathBuf;
use std::sync::Arc;

const CODE: &str = "rs:4+2";
const TARGETS: usize = 6;

struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = files::remove_dir_all(&self.0);
    }
}

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weft-membership-{}-{name}", std::process::id()));
        let _ = files::remove_dir_all(&path);
        files::create_dir_all(&path).unwrap();
        let place = Self(path);
        let create = in_directories(CODE, (0..TARGETS).map(|number| place.target(number)).collect());
        create.run(&place.0.join("volume")).unwrap();
        place
    }

    fn target(&self, number: usize) -> PathBuf {
        self.0.join(format!("disk{number}"))
    }

    fn open(&self) -> fs::Result<Arc<FileSystem>> {
        FileSystem::open_volume(&self.0.join("volume"), OpenOptions::default())
    }

    /// Targets that cannot write a label until `unblock`: something else has the name.
    fn block(&self, numbers: impl IntoIterator<Item = usize>) {
        numbers.into_iter().for_each(|number| files::create_dir(self.target(number).join("weft.label.new")).unwrap());
    }

    fn unblock(&self) {
        (0..TARGETS).for_each(|number| drop(files::remove_dir(self.target(number).join("weft.label.new"))));
    }

    /// The label of each target, and the pointer.
    fn labels(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let targets = (0..TARGETS).map(|number| self.target(number).join("weft.label"));
        let paths = targets.chain([self.0.join("volume/volume.json")]);
        paths.map(|path| (path.clone(), files::read(path).unwrap())).collect()
    }

    fn generations(&self) -> Vec<u64> {
        let generation = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes).into_owned();
            let (_, rest) = text.split_once("\"generation\":").expect("it is a label");
            rest.trim_start().split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
        };
        self.labels().iter().map(|(_, bytes)| generation(bytes)).collect()
    }
}

fn members(fs: &FileSystem) -> usize {
    fs.label().matches("\"path\":").count()
}

/// Two of the targets, and the new one, are not enough: an opening that misses these two would know
/// nothing of the new target, and nothing of what only it and they have.
#[test]
fn a_target_is_added_when_enough_of_the_others_know_it() {
    let place = Place::new("added");
    let fs = place.open().unwrap();
    place.block(0..4);
    let error = fs.add_target(&place.target(6), None).unwrap_err();
    assert!(
        matches!(&error, Error::Unavailable(why) if why.contains("too few targets have the new label")),
        "{error:?}"
    );
    assert_eq!(members(&fs), TARGETS);
    fs.write(make(&fs, "film"), 0, &pattern(1, 2_000_000)).unwrap();
    fs.close_volume().unwrap();
    drop(fs);
    // Nobody completes it later.
    for moved in [[4, 5], [0, 1]] {
        let aside = |number: usize| place.0.join(format!("aside{number}"));
        moved.iter().for_each(|&number| files::rename(place.target(number), aside(number)).unwrap());
        let fs = place.open().unwrap();
        assert_eq!(members(&fs), TARGETS);
        assert_eq!(content(&fs, fs.lookup(ROOT, b"film").unwrap().ino).unwrap(), pattern(1, 2_000_000));
        fs.close_volume().unwrap();
        drop(fs);
        moved.iter().for_each(|&number| files::rename(aside(number), place.target(number)).unwrap());
    }
    place.unblock();
    files::remove_dir_all(place.target(6)).unwrap();
    let fs = place.open().unwrap();
    fs.add_target(&place.target(6), None).unwrap();
    assert_eq!(members(&fs), TARGETS + 1);
    assert_sound(&fs);
    fs.close_volume().unwrap();
}

/// The process that changed it died when one target had the new label.
#[test]
fn an_opening_completes_a_change_that_it_finds() {
    let place = Place::new("completed");
    let before = place.labels();
    let fs = place.open().unwrap();
    fs.set_placement(Placement { policy: PolicyName::RoundRobin, ..Placement::default() }).unwrap();
    let (changed, generation) = (fs.label(), fs.generation());
    fs.close_volume().unwrap();
    drop(fs);
    let restore = |keep: usize| {
        let others = before.iter().enumerate().filter(|(number, _)| *number != keep);
        others.for_each(|(_, (path, bytes))| files::write(path, bytes).unwrap());
    };
    restore(3);
    // As long as it reaches too few, it refuses.
    place.block([0, 1, 2, 5]);
    let error = place.open().err().expect("it is refused");
    assert!(
        matches!(&error, Error::Unavailable(why) if why.contains("too few targets have the new label")),
        "{error:?}"
    );
    place.unblock();
    restore(3);
    let fs = place.open().unwrap();
    assert_eq!(fs.label(), changed);
    fs.close_volume().unwrap();
    drop(fs);
    assert_eq!(place.generations(), [generation; TARGETS + 1]);
    files::remove_dir_all(place.target(3)).unwrap();
    let fs = place.open().unwrap();
    assert_eq!(fs.label(), changed);
    fs.close_volume().unwrap();
}

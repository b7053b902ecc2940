//! Volumes with fewer targets than their code has blocks: what they survive, and how they get rid
//! of that.

use crate::lab::place::Place;
use crate::lab::{assert_sound, content, make, pattern, settled, until};
use fs::{Create, Error, FileSystem, ROOT, Status};
use std::fs as files;
use std::sync::Arc;
use volume::Control;

impl Place {
    fn try_create(&self, code: &str, targets: usize, allow_sharing: bool) -> fs::Result<()> {
        Create { allow_sharing, ..self.planned(code, targets) }.run(&self.volume())
    }

    /// Runs something while a target is not there.
    fn without<T>(&self, number: usize, run: impl FnOnce() -> T) -> T {
        let aside = self.0.join("aside");
        files::rename(self.target(number), &aside).unwrap();
        let done = run();
        files::rename(&aside, self.target(number)).unwrap();
        done
    }

    /// Removes all chunks from a target, as if it were new.
    fn empty(&self, number: usize) {
        for folder in files::read_dir(self.target(number).join("chunks")).unwrap() {
            let chunks = files::read_dir(folder.unwrap().path()).unwrap();
            chunks.for_each(|chunk| files::remove_file(chunk.unwrap().path()).unwrap());
        }
    }
}

const BYTES: usize = 20_000_000;

fn write(fs: &FileSystem, name: &str, seed: u64) {
    let ino = make(fs, name);
    fs.write(ino, 0, &pattern(seed, BYTES)).unwrap();
    fs.sync(ino).unwrap();
}

fn assert_content(fs: &FileSystem, name: &str, seed: u64) {
    assert!(content(fs, fs.lookup(ROOT, name.as_bytes()).unwrap().ino).unwrap() == pattern(seed, BYTES), "{name}");
}

fn close(fs: Arc<FileSystem>) {
    fs.close_volume().unwrap();
}

fn refused(result: fs::Result<()>) -> String {
    match result {
        Err(Error::Invalid(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn sharing_is_asked_for_and_the_metadata_is_not_shared() {
    let place = Place::new("refused");
    let said = refused(place.try_create("rs:4+2", 3, false));
    assert!(said.contains("needs 6 directories") && said.contains("--allow-sharing"), "{said}");
    let said = refused(place.try_create("rs:4+2", 3, true));
    assert!(said.contains("needs 4 directories: its metadata is on 3 of them"), "{said}");
    assert!(!place.target(0).join("weft.label").exists(), "nothing was begun");
    place.try_create("rs:4+2", 4, true).unwrap();
}

/// Sets by the targets that they can lose, and what the loss of each target would lose.
fn survival(status: &Status) -> (Vec<usize>, Vec<usize>) {
    (status.survive.clone(), status.targets.iter().map(|target| target.would_lose).collect())
}

#[test]
fn as_many_targets_are_survived_as_the_status_says() {
    let place = Place::new("survives");
    place.try_create("rs:4+2", 4, true).unwrap();
    let fs = place.open().unwrap();
    write(&fs, "film", 1);
    let status = settled(&fs);
    assert!(status.sets > 0 && !status.is_healthy(), "{status:?}");
    assert_eq!(survival(&status), (vec![0, status.sets, 0], vec![0; 4]));
    assert_eq!((status.shared, status.most_on_one, status.new_blocks), (status.sets, 2, (6, 6)));
    assert!(status.usage.free > 0 && status.usage.total > status.usage.free);
    assert_sound(&fs);
    close(fs);
    for lost in 0..4 {
        place.without(lost, || {
            let fs = place.open().unwrap();
            assert_content(&fs, "film", 1);
            // A target that answers late counts as away for that moment.
            let stands = |status: Status| (status.lost, status.to_repair) == (0, status.sets);
            until("the others answer", || stands(fs.status().unwrap()));
            close(fs);
        });
    }
    // What a target has lost is rebuilt onto it.
    place.empty(1);
    let fs = place.open().unwrap();
    let done = fs.repair(&Control::default()).unwrap();
    assert!(done.failed.is_empty() && done.chunks >= status.sets, "{done:?}");
    assert_content(&fs, "film", 1);
    assert_eq!(survival(&settled(&fs)), (vec![0, status.sets, 0], vec![0; 4]));
    assert_sound(&fs);
    // A target that is lost for good is replaced by another one.
    files::remove_dir_all(place.target(2)).unwrap();
    fs.replace_target(&place.target(2), &place.target(7), None, &Control::default()).unwrap();
    assert_eq!(survival(&settled(&fs)), (vec![0, status.sets, 0], vec![0; 4]));
    assert_content(&fs, "film", 1);
    assert_sound(&fs);
    close(fs);
}

/// The code survives the loss of two blocks, and two of the four targets have three.
#[test]
fn a_target_whose_loss_is_not_survived_is_named() {
    let place = Place::new("named");
    place.try_create("rs:8+2", 4, true).unwrap();
    let fs = place.open().unwrap();
    write(&fs, "film", 2);
    let status = settled(&fs);
    let (survive, would_lose) = survival(&status);
    assert_eq!((survive, would_lose.iter().sum::<usize>()), (vec![status.sets, 0, 0], 2 * status.sets));
    assert_content(&fs, "film", 2);
    close(fs);
}

/// One of four is away, and the others have two blocks of each stripe: any one of them can be lost
/// right after the write.
#[test]
fn what_is_written_without_a_target_survives_the_loss_of_another() {
    let place = Place::new("without");
    place.try_create("rs:4+2", 4, true).unwrap();
    place.without(3, || {
        let fs = place.open().unwrap();
        write(&fs, "film", 3);
        close(fs);
    });
    for lost in 0..3 {
        place.without(lost, || {
            let fs = place.open().unwrap();
            assert_content(&fs, "film", 3);
            close(fs);
        });
    }
}

/// Two targets more: new data uses all six, and a rebalancing spreads the old.
#[test]
fn more_targets_end_it() {
    let place = Place::new("ends");
    place.try_create("rs:4+2", 4, true).unwrap();
    let fs = place.open().unwrap();
    write(&fs, "old", 4);
    for (number, survives) in [(4, 1), (5, 2)] {
        fs.add_target(&place.target(number), None).unwrap();
        let done = fs.rebalance(&Arc::new(Control::default())).unwrap();
        assert_eq!((done.failed.0, done.stuck), (0, 0), "{done:?}");
        let status = settled(&fs);
        assert_eq!(status.survive[survives], status.sets, "{number}: {status:?}");
        assert_eq!(status.shared == 0, number == 5);
        assert_sound(&fs);
    }
    write(&fs, "new", 5);
    let status = settled(&fs);
    assert!(status.is_healthy() && status.shared == 0 && status.most_on_one == 1, "{status:?}");
    close(fs);
    for (one, other) in [(0, 1), (2, 5), (3, 4)] {
        place.without(one, || {
            let aside = place.0.join("other");
            files::rename(place.target(other), &aside).unwrap();
            let fs = place.open().unwrap();
            assert_content(&fs, "old", 4);
            assert_content(&fs, "new", 5);
            close(fs);
            files::rename(&aside, place.target(other)).unwrap();
        });
    }
}

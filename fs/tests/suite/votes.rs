//! Machines with more disks than the code can lose: any one of them may be away, and the metadata
//! are there.

use crate::lab::place::{Place, in_directories};
use crate::lab::{assert_sound, content, make, pattern, until};
use fs::label::{Label, Role};
use fs::{Error, FileSystem, OpenOptions, ROOT};
use plan::Domain;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use volume::Control;

const CODE: &str = "rs:2+1";
const MACHINES: usize = 3;
const DISKS: usize = 4;

/// Three machines with four disks each.
struct Machines(Place);

impl Machines {
    fn new(name: &str) -> Self {
        let place = Self(Place::new(&format!("votes-{name}")));
        (0..MACHINES).for_each(|machine| std::fs::create_dir_all(place.machine(machine)).unwrap());
        place
    }

    /// A volume on all disks.
    fn create(&self) {
        self.create_on(CODE, self.disks());
    }

    /// A volume that knows of which machines the disks are.
    fn create_on(&self, code: &str, disks: Vec<PathBuf>) {
        let mut create = in_directories(code, disks);
        create.domains = create.targets.iter().map(|disk| (disk.clone(), domain(disk))).collect();
        create.run(&self.0.volume()).unwrap();
    }

    fn machine(&self, machine: usize) -> PathBuf {
        self.0.0.join(format!("machine{machine}"))
    }

    fn disk(&self, machine: usize, disk: usize) -> PathBuf {
        self.machine(machine).join(format!("disk{disk}"))
    }

    fn disks(&self) -> Vec<PathBuf> {
        (0..MACHINES).flat_map(|machine| (0..DISKS).map(move |disk| self.disk(machine, disk))).collect()
    }

    fn open(&self) -> fs::Result<Arc<FileSystem>> {
        FileSystem::open_volume(&self.0.volume(), OpenOptions::default())
    }

    fn without<T>(&self, machine: usize, work: impl FnOnce() -> T) -> T {
        let (here, away) = (self.machine(machine), self.0.0.join("away"));
        std::fs::rename(&here, &away).unwrap();
        let done = work();
        std::fs::rename(&away, &here).unwrap();
        done
    }

    /// Each machine is away once: the volume can be read and written, and nothing is missing.
    fn check_each_machine(&self) {
        let fs = self.open().unwrap();
        let film = fs.lookup(ROOT, b"film").map_or_else(|_| make(&fs, "film"), |film| film.ino);
        fs.write(film, 0, &pattern(9, 2_000_000)).unwrap();
        fs.close_volume().unwrap();
        drop(fs);
        for machine in 0..MACHINES {
            self.without(machine, || {
                let fs = self.open().unwrap();
                let name = |machine: usize| format!("without{machine}");
                let _ = fs.unlink(ROOT, name(machine).as_bytes());
                make(&fs, &name(machine));
                assert!((0..=machine).all(|earlier| fs.lookup(ROOT, name(earlier).as_bytes()).is_ok()));
                assert_eq!(content(&fs, film).unwrap(), pattern(9, 2_000_000));
                fs.close_volume().unwrap();
            });
        }
    }
}

/// The domain of a disk: its machine.
fn domain(disk: &Path) -> Domain {
    disk.parent().unwrap().file_name().unwrap().to_str().unwrap().parse().unwrap()
}

/// The disks that vote, of each domain.
fn voters(fs: &FileSystem) -> BTreeMap<String, Vec<PathBuf>> {
    let label = Label::from_json(&session::server::Volume::label(fs)).unwrap();
    let mut voters = BTreeMap::<String, Vec<PathBuf>>::new();
    for member in label.members().filter(|member| member.votes) {
        voters.entry(member.domain().unwrap().to_string()).or_default().push(member.path.clone());
    }
    voters
}

fn count(fs: &FileSystem) -> Vec<usize> {
    voters(fs).into_values().map(|voters| voters.len()).collect()
}

#[test]
fn any_machine_may_be_away() {
    let place = Machines::new("away");
    place.create();
    place.check_each_machine();
    let fs = place.open().unwrap();
    assert_eq!(count(&fs), [1; MACHINES]);
    assert!(fs.status().unwrap().domains.iter().all(|domain| (domain.targets, domain.voters) == (DISKS, 1)));
    assert_sound(&fs);
    fs.close_volume().unwrap();
    drop(fs);
    // Disks that do not vote may be away in any number.
    let gone: Vec<PathBuf> = (0..MACHINES)
        .flat_map(|machine| (1..DISKS).map(move |disk| (machine, disk)))
        .map(|(machine, disk)| place.disk(machine, disk))
        .collect();
    gone.iter().for_each(|disk| std::fs::rename(disk, disk.with_extension("away")).unwrap());
    let fs = place.open().unwrap();
    assert!(fs.lookup(ROOT, b"without0").is_ok());
    drop(fs);
    // Two that vote may not.
    gone.iter().for_each(|disk| std::fs::rename(disk.with_extension("away"), disk).unwrap());
    [0, 1].into_iter().for_each(|n| std::fs::rename(place.disk(n, 0), place.disk(n, 9)).unwrap());
    let error = place.open().err().expect("it may have a newer state");
    let Error::TooFew(why) = &error else { panic!("{error:?}") };
    assert!(why.contains("1 of 3 voters"), "{why}");
}

/// A volume that was made before the machines were known, or by an earlier version.
#[test]
fn votes_move_when_the_machines_are_known() {
    let place = Machines::new("known");
    in_directories(CODE, place.disks()).run(&place.0.volume()).unwrap();
    let fs = place.open().unwrap();
    fs.write(make(&fs, "film"), 0, &pattern(9, 2_000_000)).unwrap();
    for disk in place.disks() {
        fs.set_domain(&disk, Some(domain(&disk))).unwrap();
    }
    until("the votes move", || count(&fs) == [1; MACHINES]);
    assert_sound(&fs);
    fs.close_volume().unwrap();
    drop(fs);
    place.check_each_machine();
    let fs = place.open().unwrap();
    assert_eq!(content(&fs, fs.lookup(ROOT, b"film").unwrap().ino).unwrap(), pattern(9, 2_000_000));
    // What was on disks that do not vote any more is gone.
    let journals = place
        .disks()
        .into_iter()
        .filter(|disk| std::fs::read_dir(disk.join("journal")).is_ok_and(|mut files| files.next().is_some()));
    let voting: Vec<PathBuf> = voters(&fs).into_values().flatten().collect();
    assert!(journals.clone().all(|disk| voting.contains(&disk)), "{:?} {voting:?}", journals.collect::<Vec<_>>());
    fs.close_volume().unwrap();
}

#[test]
fn a_vote_goes_to_another_disk_of_the_machine() {
    let place = Machines::new("moves");
    place.create();
    let fs = place.open().unwrap();
    fs.write(make(&fs, "film"), 0, &pattern(9, 2_000_000)).unwrap();
    let first = place.disk(1, 0);
    assert_eq!(voters(&fs)["machine1"], std::slice::from_ref(&first));
    fs.drain_target(&first, &Control::default()).unwrap();
    until("the vote moves", || count(&fs) == [1; MACHINES] && voters(&fs)["machine1"] != [first.clone()]);
    // A dead one is replaced.
    let second = voters(&fs)["machine1"][0].clone();
    fs.replace_target(&second, &place.disk(1, 7), Some(domain(&second)), &Control::default()).unwrap();
    until("the vote moves", || count(&fs) == [1; MACHINES] && voters(&fs)["machine1"] != [second.clone()]);
    assert_sound(&fs);
    fs.close_volume().unwrap();
    drop(fs);
    [&first, &second].into_iter().for_each(|disk| std::fs::remove_dir_all(disk).unwrap());
    place.check_each_machine();
    // A fourth machine has a voter, too, and one more disk there does not.
    std::fs::create_dir(place.machine(3)).unwrap();
    let fs = place.open().unwrap();
    for disk in [0, 1] {
        fs.add_target(&place.disk(3, disk), Some("machine3".parse().unwrap())).unwrap();
        until("the votes are as they should be", || count(&fs) == [1; MACHINES + 1]);
    }
    fs.close_volume().unwrap();
    drop(fs);
    place.without(3, || drop(place.open().unwrap()));
    place.check_each_machine();
    // A whole machine leaves.
    let fs = place.open().unwrap();
    let leaving = [place.disk(3, 0), place.disk(3, 1)];
    fs.drain_targets(&leaving, &Control::default()).unwrap();
    until("they leave", || count(&fs) == [1; MACHINES]);
    let label = Label::from_json(&session::server::Volume::label(&*fs)).unwrap();
    assert!(label.targets.iter().filter(|member| leaving.contains(&member.path)).all(|it| it.role == Role::Removed));
    assert_sound(&fs);
    fs.close_volume().unwrap();
}

/// Who votes is in the format, also where the first disk without a vote is added.
#[test]
fn an_earlier_version_refuses_a_volume_with_disks_that_do_not_vote() {
    let place = Machines::new("format");
    place.create_on(CODE, (0..MACHINES).map(|machine| place.disk(machine, 0)).collect());
    let format = || Label::read_pointer(&place.0.volume()).unwrap().format;
    assert_eq!(format(), 2);
    let fs = place.open().unwrap();
    fs.add_target(&place.disk(0, 1), Some("machine0".parse().unwrap())).unwrap();
    assert_eq!((format(), count(&fs)), (3, vec![1; MACHINES]));
    // Clients of an earlier version read it all the same.
    assert!(session::server::Volume::label(&*fs).contains("\"format\": 2"));
    fs.close_volume().unwrap();
}

/// A disk that was away while its vote moved has a label in which it votes.
#[test]
fn an_old_label_on_a_disk_that_does_not_vote_keeps_nobody_away() {
    let place = Machines::new("stale");
    place.create();
    let fs = place.open().unwrap();
    make(&fs, "film");
    let (first, aside) = (place.disk(1, 0), place.0.0.join("aside"));
    std::fs::create_dir(&aside).unwrap();
    std::fs::copy(first.join("weft.label"), aside.join("weft.label")).unwrap();
    std::fs::copy(place.0.volume().join("volume.json"), aside.join("volume.json")).unwrap();
    fs.drain_target(&first, &Control::default()).unwrap_or_default();
    until("the vote moves", || voters(&fs).get("machine1").is_some_and(|it| *it != [first.clone()]));
    let second = voters(&fs)["machine1"][0].clone();
    fs.close_volume().unwrap();
    drop(fs);
    // Another disk gets the old label in its place, and the pointer is old, too.
    let third = place.disk(1, 3);
    assert_ne!(third, second);
    let old = Label::read_pointer(&aside).unwrap();
    let id = old.targets.iter().find(|member| member.path == third).unwrap().id;
    let text = std::fs::read_to_string(aside.join("weft.label")).unwrap();
    let target = text.lines().find(|line| line.trim_start().starts_with("\"target\":")).unwrap().to_owned();
    std::fs::write(third.join("weft.label"), text.replace(&target, &format!("  \"target\": {},", id.0))).unwrap();
    std::fs::copy(aside.join("volume.json"), place.0.volume().join("volume.json")).unwrap();
    let metadata = third.join("journal/0000000000000001.journal");
    std::fs::write(&metadata, b"of an earlier time").unwrap();
    place.without(0, || {
        let fs = place.open().unwrap();
        assert!(fs.lookup(ROOT, b"film").is_ok());
        assert_eq!(voters(&fs)["machine1"], std::slice::from_ref(&second));
        // It gets the newest label, and loses the metadata that it had.
        let label = || std::fs::read_to_string(third.join("weft.label")).unwrap();
        until("it is brought up to date", || label().contains("\"votes\": false") && !metadata.exists());
        fs.close_volume().unwrap();
    });
}

/// The disks with the metadata are gone for ever: it is rebuilt from the chunks on the others.
#[test]
fn the_metadata_is_rebuilt_where_no_disk_that_votes_is_left() {
    let place = Machines::new("rebuilt");
    place.create();
    let fs = place.open().unwrap();
    let films: Vec<(String, Vec<u8>)> = (0..8).map(|n| (format!("film{n}"), pattern(n, 700_000))).collect();
    for (name, bytes) in &films {
        fs.write(make(&fs, name), 0, bytes).unwrap();
    }
    fs.close_volume().unwrap();
    drop(fs);
    (0..MACHINES).for_each(|machine| std::fs::remove_dir_all(place.disk(machine, 0)).unwrap());
    assert!(place.open().is_err());
    fs::rebuild(&place.0.volume(), Arc::new(fs::Directories)).unwrap();
    let fs = place.open().unwrap();
    until("votes are given again", || count(&fs) == [1; MACHINES]);
    make(&fs, "new");
    let names = |fs: &FileSystem| fs.status().unwrap().usage.files;
    assert!(names(&fs) > 1, "nothing was found");
    fs.close_volume().unwrap();
}

/// Two machines are too few: one of two that vote could not be replaced if it died.
#[test]
fn all_vote_where_too_few_would_be_left() {
    let place = Machines::new("two");
    let disks = (0..2).flat_map(|machine| (0..DISKS).map(move |disk| (machine, disk)));
    place.create_on("rs:1+1", disks.map(|(machine, disk)| place.disk(machine, disk)).collect());
    let fs = place.open().unwrap();
    make(&fs, "film");
    fs.close_volume().unwrap();
    drop(fs);
    std::fs::remove_dir_all(place.disk(0, 0)).unwrap();
    let fs = place.open().unwrap();
    assert_eq!(count(&fs), [DISKS; 2]);
    // It says that a machine would take the metadata along.
    let status = fs.status().unwrap();
    assert!(status.domains.iter().all(|domain| domain.voters > status.voters.readable_without()));
    fs.replace_target(&place.disk(0, 0), &place.disk(0, 7), None, &Control::default()).unwrap();
    fs.close_volume().unwrap();
}

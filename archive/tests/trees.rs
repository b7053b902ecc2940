//! Whole jobs, in threads: a tree goes into a volume and comes back the same, whatever happens on
//! the way.

mod tree;

use archive::job::{Job, Options, Source};
use archive::message::Problem;
use archive::report::{Ending, Facts};
use archive::restore::{self, restore};
use archive::roles::Show;
use archive::transport::Crew;
use archive::walk::Filter;
use fs::{Create, FileSystem, OpenOptions};
use plan::schedule::Policy;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tree::{Scratch, described};
use volume::Control;

/// Problems, and a hook for each look at the progress.
#[derive(Clone, Default)]
struct Watch {
    problems: Arc<Mutex<Vec<String>>>,
}

impl Show for Watch {
    fn problem(&mut self, problem: &Problem) {
        self.problems.lock().unwrap().push(archive::roles::line(problem));
    }

    fn progress(&mut self, _: &Facts) {}
}

struct Lab {
    scratch: Scratch,
}

impl Lab {
    fn new(code: &str) -> Self {
        let scratch = Scratch::new();
        let blocks = ec::parse(code).unwrap().shape().blocks();
        let targets = (0..blocks).map(|n| scratch.path.join(format!("d{n}"))).collect();
        let create = Create { chunk_bytes: 16 << 20, ..Create::new("test", code, targets) };
        create.run(&scratch.path.join("volume")).unwrap();
        Self { scratch }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path.join(name)
    }

    fn open(&self) -> Arc<FileSystem> {
        FileSystem::open_volume(&self.path("volume"), OpenOptions::default()).unwrap()
    }
}

fn options(workers: u32) -> Options {
    Options {
        crew: Crew { explorers: 2, workers },
        policy: Policy::Demand,
        part_bytes: Some(1 << 20),
        memory: 1 << 28,
        update: false,
        limit: None,
        filter: Filter::default(),
        one_file_system: false,
        list: None,
    }
}

/// Archives a tree; returns the facts and the problems.
fn archive(volume: &Arc<FileSystem>, from: &Path, to: &str, options: Options) -> (Facts, Vec<String>) {
    archive_all(volume, &[from], to, options)
}

fn archive_all(volume: &Arc<FileSystem>, from: &[&Path], to: &str, options: Options) -> (Facts, Vec<String>) {
    let watch = Watch::default();
    let source = |from: &&Path| Source::parse([from.as_os_str().as_bytes(), b"/"].concat().as_slice()).unwrap();
    let sources: Vec<Source> = from.iter().map(source).collect();
    let control = Arc::new(Control::default());
    let job = Job::begin(volume, &sources, to.as_bytes(), options, &control).unwrap();
    let (facts, broken) = job.run(Facts::default(), watch.clone()).unwrap();
    assert_eq!(broken, None);
    let problems = watch.problems.lock().unwrap().clone();
    (facts, problems)
}

fn bring_back(volume: &Arc<FileSystem>, from: &str, to: &Path, force: bool) -> (Facts, Vec<String>) {
    bring_back_until(volume, from, to, (force, None), &Arc::default())
}

/// The same, at most so many bytes a second, or until it is stopped.
fn bring_back_until(
    volume: &Arc<FileSystem>,
    from: &str,
    to: &Path,
    (force, limit): (bool, Option<u64>),
    control: &Arc<Control>,
) -> (Facts, Vec<String>) {
    let watch = Watch::default();
    let options = restore::Options {
        crew: Crew { explorers: 1, workers: 3 },
        policy: Policy::Demand,
        memory: 1 << 28,
        force,
        limit,
        filter: Filter::default(),
    };
    let to = to.as_os_str().as_bytes();
    let (facts, broken) =
        restore(volume, from.as_bytes(), to, options, Facts::default(), watch.clone(), control).unwrap();
    assert_eq!(broken, None);
    let problems = watch.problems.lock().unwrap().clone();
    (facts, problems)
}

#[test]
fn a_tree_comes_back_the_same_with_targets_missing() {
    let lab = Lab::new("rs:4+2");
    let from = lab.path("from");
    tree::grow(&from);
    let wanted = described(&from);
    let volume = lab.open();
    let (facts, problems) = archive(&volume, &from, "a/b", options(3));
    assert_eq!(problems, [] as [String; 0]);
    assert_eq!(facts.ending, Ending::Finished);
    assert!(facts.files > 300 && facts.unchanged_files == 0, "{facts:?}");
    // Half as much again as there is data, and little of a sparse file.
    assert!((13 << 20..20 << 20).contains(&facts.written.bytes), "{}", facts.written.bytes);
    volume.close_volume().unwrap();
    drop(volume);

    for disk in ["d1", "d4"] {
        std::fs::rename(lab.path(disk), lab.path(&format!("{disk}-gone"))).unwrap();
    }
    let volume = lab.open();
    let to = lab.path("to");
    let (back, problems) = bring_back(&volume, "a/b", &to, false);
    assert_eq!(problems, [] as [String; 0]);
    assert_eq!((back.files, back.bytes), (facts.files, facts.bytes));
    let found = described(&to);
    for (path, what) in &wanted {
        assert_eq!(found.get(path), Some(what), "{path:?}");
    }
    assert_eq!(found.len(), wanted.len());

    // Once more: everything is there, and nothing is written.
    let (again, problems) = bring_back(&volume, "a/b", &to, false);
    assert_eq!((problems.len(), again.files, again.unchanged_files > 300), (0, 0, true));
    assert_eq!(described(&to), wanted);
    // What differs stays, unless that is wanted otherwise.
    std::fs::write(to.join("many/file7"), b"my own").unwrap();
    let (_, problems) = bring_back(&volume, "a/b", &to, false);
    assert!(
        problems.len() == 1 && problems[0].contains("file7") && problems[0].contains("is not replaced"),
        "{problems:?}"
    );
    assert_eq!(std::fs::read(to.join("many/file7")).unwrap(), b"my own");
    let (_, problems) = bring_back(&volume, "a/b", &to, true);
    assert_eq!(problems, [] as [String; 0]);
    assert_eq!(described(&to), wanted);
}

#[test]
fn a_job_that_was_stopped_goes_on_where_it_was() {
    let lab = Lab::new("rs:2+1");
    let from = lab.path("from");
    tree::grow(&from);
    let mut coded = 0;
    let mut all = 0;
    for round in 0..40u32 {
        let volume = lab.open();
        let control = Arc::new(Control::default());
        let source = Source::parse([from.as_os_str().as_bytes(), b"/"].concat().as_slice()).unwrap();
        let job = Job::begin(&volume, &[source], b"a", options(1 + round % 4), &control).unwrap();
        // It is stopped a little later each time.
        let stopper = control.clone();
        std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(u64::from(round) * 10));
            stopper.cancel();
        });
        let watch = Watch::default();
        let (facts, broken) = job.run(Facts::default(), watch.clone()).unwrap();
        assert_eq!((broken, watch.problems.lock().unwrap().len()), (None, 0));
        coded += facts.files;
        // As if the process had been killed.
        volume.abandon();
        all = facts.files + facts.unchanged_files;
        if facts.ending == Ending::Finished {
            break;
        }
    }
    // What was committed was never coded again.
    assert_eq!(coded, tree::regular_files(&from), "{all} in the last round");
    let volume = lab.open();
    let to = lab.path("to");
    assert_eq!(bring_back(&volume, "a", &to, false).1, [] as [String; 0]);
    assert_eq!(described(&to), described(&from));
    assert!(volume.verify(&Control::default()).unwrap().is_sound());
}

#[test]
fn changes_are_named_and_taken_over_when_that_is_wanted() {
    let lab = Lab::new("rs:2+1");
    let from = lab.path("from");
    tree::grow(&from);
    let volume = lab.open();
    assert_eq!(archive(&volume, &from, "a", options(2)).1, [] as [String; 0]);
    std::fs::write(from.join("many/file3"), b"changed").unwrap();
    std::fs::write(from.join("many/new"), b"new").unwrap();
    let large = std::fs::read(from.join("large")).unwrap();
    std::fs::write(from.join("large"), &large[1..]).unwrap();
    std::os::unix::fs::symlink("elsewhere", from.join("link2")).unwrap();
    std::fs::remove_file(from.join("link")).unwrap();
    std::os::unix::fs::symlink("changed", from.join("link")).unwrap();
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(from.join("many/file4"), permissions).unwrap();

    let (facts, mut problems) = archive(&volume, &from, "a", options(2));
    problems.sort();
    let named = ["from/large: ", "/link: ", "/many/file3: ", "/many/file4: ", "/names/large: "];
    assert_eq!(problems.len(), named.len(), "{problems:?}");
    assert!(named.iter().zip(&problems).all(|(path, line)| line.contains(path)), "{problems:?}");
    assert_eq!((facts.files, facts.errors.count()), (1, 5), "only the new file is coded");
    let (facts, problems) = archive(&volume, &from, "a", Options { update: true, ..options(2) });
    assert_eq!(problems, [] as [String; 0]);
    assert_eq!(facts.files, 2, "what changed is coded, once for all its names, and nothing else");
    let to = lab.path("to");
    assert_eq!(bring_back(&volume, "a", &to, false).1, [] as [String; 0]);
    assert_eq!(described(&to), described(&from));
}

#[test]
fn problems_with_single_files_keep_nobody_from_the_others() {
    let lab = Lab::new("rs:2+1");
    let from = lab.path("from");
    std::fs::create_dir_all(from.join("below")).unwrap();
    for name in ["a", "b", "below/c"] {
        std::fs::write(from.join(name), name).unwrap();
    }
    let volume = lab.open();
    // A directory of the archive has a name that a file has at the source, and the other way round.
    assert_eq!(archive(&volume, &from, "x/b", options(1)).1.len(), 0);
    std::fs::create_dir_all(lab.path("other")).unwrap();
    std::fs::write(lab.path("other/below"), b"a file").unwrap();
    assert_eq!(archive(&volume, &lab.path("other"), "x", options(1)).1.len(), 0);
    let (facts, mut problems) = archive(&volume, &from, "x", options(2));
    problems.sort();
    assert!(problems.len() == 2 && problems[0].contains("/b: ") && problems[1].contains("/below: "), "{problems:?}");
    assert_eq!(facts.files, 1);
    // The archive's own directory is gone, so that a listing shows the archive alone.
    let x = volume.lookup(fs::ROOT, b"x").unwrap().ino;
    let names: Vec<Vec<u8>> = volume.list(x, 0, 10).unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names.len(), 3, "{names:?}");
}

/// Large files are coded in parts and small ones in batches, so that either may be first.
#[test]
fn files_of_two_sources_with_the_same_name_do_not_replace_each_other() {
    let lab = Lab::new("rs:2+1");
    let (x, y) = (lab.path("x"), lab.path("y"));
    for (at, from) in [&x, &y].into_iter().enumerate() {
        std::fs::create_dir_all(from).unwrap();
        let bytes = |length: usize| vec![at as u8 + 1; length];
        std::fs::write(from.join("both are large"), bytes((4 << 20) + at)).unwrap();
        std::fs::write(from.join("one is large"), bytes([5 << 20, 1000][at])).unwrap();
        std::fs::write(from.join("linked"), bytes(2000 + at)).unwrap();
        std::fs::hard_link(from.join("linked"), from.join(format!("other name {at}"))).unwrap();
    }
    for round in 0..6 {
        let volume = lab.open();
        let name = format!("z{round}");
        let (facts, problems) = archive_all(&volume, &[&x, &y], &name, options(1 + round % 3));
        assert_eq!(problems.len(), 3, "{problems:?}");
        for file in ["/both are large: ", "/linked: ", "/one is large: "] {
            assert!(problems.iter().any(|line| line.contains(file)), "{problems:?}");
        }
        assert_eq!(facts.ending, Ending::Finished);
        let to = lab.path(&name);
        assert_eq!(bring_back(&volume, &name, &to, false).1, [] as [String; 0]);
        for file in ["both are large", "one is large", "linked"] {
            let found = std::fs::read(to.join(file)).unwrap();
            assert!([&x, &y].iter().any(|from| std::fs::read(from.join(file)).unwrap() == found), "{file}");
        }
        volume.close_volume().unwrap();
    }
}

#[test]
fn a_restore_names_files_with_another_mode_and_mends_them_by_force() {
    let lab = Lab::new("rs:2+1");
    let (from, to) = (lab.path("from"), lab.path("to"));
    tree::grow(&from);
    let volume = lab.open();
    assert_eq!(archive(&volume, &from, "a", options(2)).1, [] as [String; 0]);
    assert_eq!(bring_back(&volume, "a", &to, false).1, [] as [String; 0]);
    for file in ["many/file4", "large"] {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o604);
        std::fs::set_permissions(to.join(file), permissions).unwrap();
    }
    let (_, problems) = bring_back(&volume, "a", &to, false);
    // A file with two names is named once for each.
    assert_eq!(problems.len(), 3, "{problems:?}");
    assert!(problems.iter().all(|line| line.contains("another owner or mode")), "{problems:?}");
    assert_eq!(bring_back(&volume, "a", &to, true).1, [] as [String; 0]);
    assert_eq!(described(&to), described(&from));
    assert_eq!(bring_back(&volume, "a", &to, false).1, [] as [String; 0]);
}

/// A restore was stopped, and the file with what it had is gone, but not its notes.
#[test]
fn notes_of_parts_say_nothing_of_a_file_that_is_gone() {
    use std::os::unix::fs::FileExt;
    const PART: u64 = 64 << 20;
    let lab = Lab::new("rs:2+1");
    let (from, to) = (lab.path("from"), lab.path("to"));
    std::fs::create_dir_all(&from).unwrap();
    let file = std::fs::File::create(from.join("large")).unwrap();
    (0..6u8).for_each(|part| file.write_all_at(&vec![part + 1; 1 << 20], u64::from(part) * PART).unwrap());
    file.set_len(6 * PART).unwrap();
    let volume = lab.open();
    assert_eq!(archive(&volume, &from, "a", Options { part_bytes: None, ..options(2) }).1, [] as [String; 0]);
    let hidden = to.join(".weft-restore");
    let notes = || {
        let names = std::fs::read_dir(&hidden).into_iter().flatten().flatten();
        let names: Vec<String> = names.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.into_iter().partition::<Vec<String>, _>(|name| name.matches('-').count() == 2)
    };
    let control = Arc::new(Control::default());
    let stopped = std::thread::scope(|scope| {
        let job = scope.spawn(|| bring_back_until(&volume, "a", &to, (false, Some(1 << 20)), &control).0.ending);
        while notes().0.is_empty() && !job.is_finished() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        control.cancel();
        job.join().unwrap()
    });
    let (notes, files) = notes();
    assert!(stopped == Ending::Interrupted && !notes.is_empty() && files.len() == 1, "{stopped:?} {notes:?} {files:?}");
    std::fs::remove_file(hidden.join(&files[0])).unwrap();
    assert_eq!(bring_back(&volume, "a", &to, false).1, [] as [String; 0]);
    assert_eq!(described(&to), described(&from));
    assert!(!hidden.exists());
}

#[test]
fn a_second_restore_into_the_same_directory_is_refused() {
    use rustix::fs::{FlockOperation, flock};
    let lab = Lab::new("rs:2+1");
    let (from, to) = (lab.path("from"), lab.path("to"));
    std::fs::create_dir_all(&from).unwrap();
    std::fs::write(from.join("file"), b"content").unwrap();
    let volume = lab.open();
    assert_eq!(archive(&volume, &from, "a", options(2)).1, [] as [String; 0]);
    // As another restore holds it.
    std::fs::create_dir_all(to.join(".weft-restore")).unwrap();
    let held = std::fs::File::open(to.join(".weft-restore")).unwrap();
    flock(&held, FlockOperation::LockExclusive).unwrap();
    let options = restore::Options {
        crew: Crew { explorers: 1, workers: 1 },
        policy: Policy::Demand,
        memory: 1 << 28,
        force: false,
        limit: None,
        filter: Filter::default(),
    };
    let place = to.as_os_str().as_bytes();
    let refused = restore::Restore::begin(&volume, b"a", place, &options, &Arc::default()).err().unwrap();
    assert!(refused.0.contains("another restore into this directory"), "{refused}");
    assert!(!to.join("file").exists());
    drop(held);
    assert_eq!(bring_back(&volume, "a", &to, false).1, [] as [String; 0]);
    assert_eq!(described(&to), described(&from));
}

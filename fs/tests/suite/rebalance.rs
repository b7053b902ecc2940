//! Targets that come, go and fill up: chunks move, and nothing is lost on the way.

use crate::lab::cluster::Cluster;
use crate::lab::{CHUNK, Lab, assert_sound, content, dead, make, pattern, until};
use fs::label::{Label, Role};
use fs::{Doing, Error, FileSystem, Placement, PolicyName};
use plan::{Ino, TargetId};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use volume::Control;
use volume::target::{Crash, Faults, Memory, Target, TargetFile};

/// A volume on disks of these sizes in MiB; the last `new` get no data before they are used.
fn lab(code: &str, sizes: &[u64], new: usize) -> Lab {
    let mut lab = Lab::new(code, sizes.len());
    lab.disks = sizes.iter().map(|size| Arc::new(Crash::new(Arc::new(Memory::with_capacity(size << 20))))).collect();
    for (number, member) in lab.label.targets.iter_mut().enumerate() {
        member.path = disk(number);
        member.role = if number + new >= sizes.len() { Role::Draining } else { Role::Active };
    }
    let all = lab.disks.iter().enumerate().map(|(n, disk)| (TargetId(n as u16), disk.clone() as Arc<dyn Target>));
    FileSystem::create_on(&lab.label, all.collect()).unwrap();
    lab
}

fn disk(number: usize) -> PathBuf {
    PathBuf::from(format!("disk{number}"))
}

/// What a file should have.
type Files = Vec<(Ino, Vec<u8>)>;

/// Files that fill many chunk sets.
fn write(fs: &FileSystem, count: u64, bytes: usize) -> Files {
    let files = (0..count).map(|number| {
        let (ino, bytes) = (make(fs, &format!("file{number}")), pattern(number, bytes));
        for (part, at) in bytes.chunks(1 << 20).zip((0..).step_by(1 << 20)) {
            fs.write(ino, at, part).unwrap();
        }
        fs.sync(ino).unwrap();
        (ino, bytes)
    });
    files.collect()
}

/// The volume with so many files in sealed sets, when its last target is used.
fn grown(lab: &mut Lab, files: u64) -> (Arc<FileSystem>, Files) {
    let fs = lab.open();
    let files = write(&fs, files, 6 << 20);
    fs.close_volume().unwrap();
    let fs = lab.open();
    use_new(lab, &fs, 1);
    (fs, files)
}

#[track_caller]
fn all_there(fs: &FileSystem, files: &Files) {
    for (ino, bytes) in files {
        assert!(content(fs, *ino).unwrap() == *bytes, "{ino:?}");
    }
    assert_sound(fs);
}

/// Named chunks on each disk.
fn chunks(lab: &Lab) -> Vec<usize> {
    let mut counts = vec![0; lab.disks.len()];
    for (disk, file, _) in lab.chunks() {
        assert!(matches!(file, TargetFile::Chunk { .. }), "{file:?} is left on disk {disk}");
        counts[disk] += 1;
    }
    counts
}

/// Equal disks have the same within a chunk of the mean, and what they have of the metadata.
#[track_caller]
fn assert_even(lab: &Lab) {
    chunks(lab);
    let used: Vec<u64> = lab.disks.iter().map(|disk| disk.space().unwrap()).map(|it| it.total - it.free).collect();
    let mean = used.iter().sum::<u64>() / used.len() as u64;
    assert!(used.iter().all(|used| used.abs_diff(mean) <= 2 * u64::from(CHUNK)), "{used:?}");
}

/// The new disks are used from now on.
fn use_new(lab: &mut Lab, fs: &FileSystem, new: usize) {
    let first = lab.disks.len() - new;
    let paths: Vec<PathBuf> = (first..lab.disks.len()).map(disk).collect();
    fs.undrain_targets(&paths).unwrap();
    // Later openings begin with what is on the disks.
    lab.label = Label::read(&*lab.disks[0], "disk0").unwrap().unwrap();
}

fn rebalance(fs: &FileSystem) -> fs::Rebalanced {
    fs.rebalance(&Arc::default()).unwrap()
}

#[test]
fn a_new_target_is_filled_and_a_second_look_moves_nothing() {
    let mut lab = lab("rs:2+1", &[400; 5], 1);
    let fs = lab.open();
    let files = write(&fs, 12, 6 << 20);
    fs.close_volume().unwrap();
    let fs = lab.open();
    let before = chunks(&lab);
    assert!(before[4] == 0 && before.iter().sum::<usize>() >= 36, "{before:?}");
    rebalance(&fs);
    assert_eq!(chunks(&lab)[4], 0, "what is emptied gets nothing");
    use_new(&mut lab, &fs, 1);
    let forecast = fs.forecast_rebalance().unwrap();
    assert!(forecast.chunks > 0 && forecast.bytes > 0 && forecast.targets.len() == 5, "{forecast:?}");
    let (_, total, used, then) = &forecast.targets[4];
    assert!(*total == 400 << 20 && then > used, "{forecast:?}");
    let done = rebalance(&fs);
    assert_eq!((done.chunks, done.failed.0), (forecast.chunks, 0), "{done:?} {forecast:?}");
    let after = chunks(&lab);
    assert_eq!(after.iter().sum::<usize>(), before.iter().sum::<usize>());
    assert_even(&lab);
    // The others were not quite even before.
    assert!(after[4] > 4 && done.chunks as usize <= 2 * after[4], "{done:?} {before:?} {after:?}");
    assert_eq!(rebalance(&fs), fs::Rebalanced::default());
    assert_eq!(fs.rebalance_status().unwrap().doing, Doing::Nothing);
    all_there(&fs, &files);
    fs.close_volume().unwrap();
    all_there(&lab.open(), &files);
}

/// Sets that were placed before there were domains, on disks of two sizes.
#[test]
fn mixed_sizes_fill_by_ratio_and_domains_are_obeyed() {
    let mut lab = lab("rs:2+2", &[200, 200, 200, 200, 400, 400, 400, 400], 2);
    lab.label.placement = Placement { policy: PolicyName::RoundRobin, domain_level: Some(1), ..Placement::default() };
    let fs = lab.open();
    let files = write(&fs, 20, 6 << 20);
    fs.close_volume().unwrap();
    let fs = lab.open();
    use_new(&mut lab, &fs, 2);
    for number in 0..8 {
        fs.set_domain(&disk(number), Some(format!("rack{}/host{number}", number / 3).parse().unwrap())).unwrap();
    }
    let broken = |fs: &FileSystem| fs.status().unwrap().domains.iter().map(|domain| domain.would_lose).sum::<usize>();
    assert!(broken(&fs) > 0);
    let done = rebalance(&fs);
    assert_eq!((done.failed.0, done.stuck), (0, 0), "{done:?}");
    assert_eq!(broken(&fs), 0);
    let ratio = |number: usize| {
        let space = lab.disks[number].space().unwrap();
        (space.total - space.free) as f64 / space.total as f64
    };
    let ratios: Vec<f64> = (0..8).map(ratio).collect();
    let mean = ratios.iter().sum::<f64>() / 8.0;
    assert!(ratios.iter().all(|ratio| (ratio - mean).abs() < 0.06), "{ratios:?}");
    assert_eq!(rebalance(&fs).chunks, 0);
    all_there(&fs, &files);
}

/// Power is lost while chunks move, at many moments.
#[test]
fn a_crash_amid_moves_loses_nothing() {
    for seed in 0..12 {
        let mut lab = lab("rs:2+1", &[400; 5], 1);
        let (fs, files) = grown(&mut lab, 8);
        fs.set_rebalance(|setting| setting.limit = Some(8 << 20)).unwrap();
        let mover = fs.clone();
        let moving = std::thread::spawn(move || mover.rebalance(&Arc::default()));
        let wanted = (seed + 1) * (700 << 10);
        until("something is moved", || {
            fs.rebalance_status().is_ok_and(|status| status.bytes.0 >= wanted) || moving.is_finished()
        });
        lab.lose_power(fs, seed);
        // On a busy machine it may end before the power is lost.
        let ended = moving.join().unwrap().is_ok();
        let fs = lab.open();
        all_there(&fs, &files);
        let setting = fs.rebalance_setting().unwrap();
        assert!((ended || setting.begun) && setting.limit == Some(8 << 20), "{setting:?}");
        fs.set_rebalance(|setting| setting.limit = None).unwrap();
        rebalance(&fs);
        assert!(!fs.rebalance_setting().unwrap().begun);
        fs.repair(&Control::default()).unwrap();
        assert_even(&lab);
        all_there(&fs, &files);
    }
}

/// The new target dies, or one that gives chunks does.
#[test]
fn a_target_that_dies_amid_moves_costs_nothing() {
    for victim in [0, 4] {
        let mut lab = lab("rs:2+1", &[400; 5], 1);
        let (fs, files) = grown(&mut lab, 8);
        fs.set_rebalance(|setting| setting.limit = Some(8 << 20)).unwrap();
        let done = std::thread::scope(|scope| {
            let moving = scope.spawn(|| fs.rebalance(&Arc::default()));
            until("a MiB is moved", || fs.rebalance_status().unwrap().bytes.0 >= 1 << 20 || moving.is_finished());
            lab.fault(victim, dead());
            moving.join().unwrap()
        });
        assert!(done.is_ok(), "{victim}: {done:?}");
        files.iter().for_each(|(ino, bytes)| assert!(content(&fs, *ino).unwrap() == *bytes));
        lab.fault(victim, Faults::default());
        fs.repair(&Control::default()).unwrap();
        fs.set_rebalance(|setting| setting.limit = None).unwrap();
        rebalance(&fs);
        assert_even(&lab);
        all_there(&fs, &files);
    }
}

#[test]
fn it_pauses_and_goes_on_where_it_is_told_to() {
    let mut lab = lab("rs:2+1", &[400; 5], 1);
    let (fs, files) = grown(&mut lab, 8);
    fs.set_rebalance(|setting| setting.limit = Some(256 << 10)).unwrap();
    let paused = std::thread::scope(|scope| {
        let moving = scope.spawn(|| fs.rebalance(&Arc::default()));
        until("it moves", || fs.rebalance_status().unwrap().doing == Doing::Moving);
        let second = fs.rebalance(&Arc::default()).unwrap_err().to_string();
        assert!(second.contains("already"), "{second}");
        fs.set_rebalance(|setting| setting.paused = true).unwrap();
        moving.join().unwrap()
    });
    assert!(matches!(paused, Err(Error::Volume(volume::Error::Interrupted))), "{paused:?}");
    assert!(fs.rebalance(&Arc::default()).unwrap_err().to_string().contains("paused"));
    fs.close_volume().unwrap();
    // The next process goes on when it is told to.
    let fs = lab.open();
    assert!(fs.rebalance_setting().unwrap().paused);
    let before = chunks(&lab);
    fs.rebalance_by_itself();
    fs.set_rebalance(|setting| (setting.paused, setting.limit) = (false, None)).unwrap();
    until("it ends", || !fs.rebalance_setting().unwrap().begun);
    let after = chunks(&lab);
    assert!(after[4] > before[4], "{before:?} {after:?}");
    assert!(fs.rebalance_status().unwrap().last.is_some_and(|(_, how)| how.is_ok()));
    all_there(&fs, &files);
}

/// Each of two that change different things has its own, no matter which is stored first.
#[test]
fn changes_of_the_setting_beside_each_other_all_count() {
    let mut lab = lab("rs:2+1", &[400; 4], 0);
    let fs = lab.open();
    for limit in 1..=200 {
        std::thread::scope(|scope| {
            scope.spawn(|| fs.set_rebalance(|setting| setting.by_hand = !setting.by_hand).unwrap());
            scope.spawn(|| fs.set_rebalance(|setting| setting.limit = Some(limit)).unwrap());
        });
        let setting = fs.rebalance_setting().unwrap();
        assert_eq!((setting.by_hand, setting.limit), (limit % 2 == 1, Some(limit)));
    }
}

/// The only target that may take chunks is late when it is asked for its space.
#[test]
fn a_target_that_is_late_is_filled_when_it_answers() {
    let mut lab = lab("rs:2+1", &[400; 5], 1);
    let (fs, files) = grown(&mut lab, 8);
    lab.fault(4, Faults { delay: Duration::from_secs(3600), ..Faults::default() });
    let done = std::thread::scope(|scope| {
        let moving = scope.spawn(|| rebalance(&fs));
        let waits = || matches!(fs.rebalance_status().unwrap().doing, Doing::Waiting(_));
        until("it waits for the target", || waits() || moving.is_finished());
        lab.fault(4, Faults::default());
        moving.join().unwrap()
    });
    assert!(done.chunks > 0, "{done:?} {:?}", chunks(&lab));
    assert_even(&lab);
    all_there(&fs, &files);
}

/// It begins by itself when a target is emptier than it should be.
#[test]
fn an_empty_target_is_noticed() {
    let mut lab = lab("rs:2+1", &[100; 5], 1);
    let (fs, files) = grown(&mut lab, 12);
    fs.rebalance_by_itself();
    until("it has ended", || fs.rebalance_status().unwrap().last.is_some());
    assert!(chunks(&lab)[4] >= 4, "{:?}", chunks(&lab));
    all_there(&fs, &files);
}

#[test]
fn several_targets_are_emptied_as_one_job() {
    let mut lab = lab("rs:2+1", &[400; 7], 0);
    for number in 0..7 {
        lab.label.targets[number].domain = Some(format!("rack{}/h{number}", number % 4).parse().unwrap());
    }
    lab.label.placement.domain_level = Some(1);
    let fs = lab.open();
    let files = write(&fs, 10, 6 << 20);
    let control = Control::default();
    let all: Vec<PathBuf> = (0..5).map(disk).collect();
    let refused = |paths: &[PathBuf]| fs.drain_targets(paths, &control).unwrap_err().to_string();
    assert!(refused(&all).contains("too few targets would be left without disk0, disk1"), "{}", refused(&all));
    // Two racks are left for three chunks, of which one may be lost.
    let said = refused(&[0, 4, 1, 5].map(disk));
    assert!(said.contains("a domain would have 2 chunks of a set, and rs:2+1 survives the loss of 1"), "{said}");
    assert!(fs.targets_in_domain("rack").unwrap_err().to_string().contains("it has rack0/h0"));
    let rack = fs.targets_in_domain("rack1").unwrap();
    assert_eq!(rack, [1, 5].map(disk));
    fs.drain_targets(&rack, &control).unwrap();
    let counts = chunks(&lab);
    assert_eq!((counts[1], counts[5]), (0, 0), "{counts:?}");
    assert_eq!(fs.status().unwrap().targets.len(), 5);
    all_there(&fs, &files);
}

#[test]
fn what_does_not_fit_is_not_begun() {
    let mut lab = lab("rs:2+1", &[400, 400, 400, 100, 400], 0);
    let fs = lab.open();
    // Nearly all of what the others have.
    let _files = write(&fs, 30, 20 << 20);
    let said = fs.drain_targets(&[disk(0), disk(1)], &Control::default()).unwrap_err().to_string();
    assert!(said.contains("what is on disk0, disk1 does not fit"), "{said}");
    let status = fs.status().unwrap();
    assert!(status.targets.iter().all(|target| target.role == Role::Active));
}

/// This process goes on writing, and moves on to other targets.
#[test]
fn a_writer_of_this_process_moves_on() {
    let mut lab = lab("rs:2+1", &[2000; 4], 0);
    let fs = lab.open();
    let (stop, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    let written = std::thread::scope(|scope| {
        let writing = scope.spawn(|| writes(&fs, &stop, &rounds));
        until("the rounds", || rounds.load(Ordering::SeqCst) > 20);
        let drained = fs.drain_target(Path::new("disk1"), &Control::default());
        stop.store(true, Ordering::SeqCst);
        let written = writing.join().unwrap();
        drained.unwrap();
        written
    });
    assert_eq!(chunks(&lab)[1], 0);
    all_there(&fs, &written);
}

/// Writes until it is told to stop, and syncs now and then.
fn writes(fs: &FileSystem, stop: &AtomicBool, rounds: &AtomicUsize) -> Files {
    let mut files = Files::new();
    while !stop.load(Ordering::SeqCst) && files.len() < 200 {
        let number = files.len() as u64;
        let (ino, bytes) = (make(fs, &format!("w{number}")), pattern(number, 1 << 20));
        fs.write(ino, 0, &bytes).unwrap();
        if number.is_multiple_of(7) {
            fs.sync(ino).unwrap();
        }
        files.push((ino, bytes));
        rounds.fetch_add(1, Ordering::SeqCst);
    }
    fs.sync_all().unwrap();
    files
}

/// A client that writes, and one that only has sets, give them back when they hear of the drain.
#[test]
fn clients_move_on() {
    let cluster = Cluster::new("rs:2+1", 5);
    fs::lock(&cluster.lab).label.targets.iter_mut().enumerate().for_each(|(n, member)| member.path = disk(n));
    cluster.kill();
    cluster.start();
    let (writer, idle) = (cluster.client("writer"), cluster.client("idle"));
    let (stop, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    let written = std::thread::scope(|scope| {
        let writing = scope.spawn(|| writes(&writer, &stop, &rounds));
        until("the rounds", || rounds.load(Ordering::SeqCst) > 5);
        let drained = cluster.volume().drain_target(Path::new("disk1"), &Control::default());
        stop.store(true, Ordering::SeqCst);
        let written = writing.join().unwrap();
        drained.unwrap();
        written
    });
    assert_eq!(chunks(&fs::lock(&cluster.lab))[1], 0);
    for (ino, bytes) in &written {
        assert!(content(&idle, *ino).unwrap() == *bytes);
    }
}

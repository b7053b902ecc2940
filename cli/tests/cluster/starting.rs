//! A metadata server that is started before its stores, as when all machines of a cluster are
//! switched on together.

use crate::lab::{Cluster, Process, WAIT_TIMEOUT, free_port};
use crate::scratch::{Scratch, noise, run, weft};
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What the server says while it waits.
const WAIT_MESSAGE: &str = "waits for the stores";

#[track_caller]
fn says(process: &Process, what: &str, times: usize) {
    let begun = Instant::now();
    while process.log().matches(what).count() < times {
        assert!(begun.elapsed() < WAIT_TIMEOUT, "it does not say {what:?}: {}", process.log());
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_metadata_server_is_started_before_its_stores_and_waits_for_them() {
    let cluster = Cluster::new("rs:4+2", 6);
    let file = cluster.scratch.file("f", 300_000);
    run(weft().arg("cp").arg(&file).arg(cluster.at("f"))).good();
    let end_all = || {
        assert!(cluster.meta.end(), "{}", cluster.meta.log());
        cluster.stores.iter().for_each(Process::kill);
    };
    end_all();
    std::thread::scope(|scope| {
        let starts = scope.spawn(|| cluster.meta.try_start());
        says(&cluster.meta, WAIT_MESSAGE, 1);
        assert!(!starts.is_finished(), "{}", cluster.meta.log());
        cluster.stores.iter().for_each(Process::start);
        starts.join().unwrap().unwrap();
    });
    assert!(run(weft().arg("cat").arg(cluster.at("f"))).good() == noise(300_000));
    cluster.is_healthy();
    end_all();
    // A signal ends the wait at once, and well.
    std::thread::scope(|scope| {
        let starts = scope.spawn(|| cluster.meta.try_start());
        says(&cluster.meta, WAIT_MESSAGE, 2);
        let begun = Instant::now();
        cluster.meta.signal(rustix::process::Signal::TERM);
        let why = starts.join().unwrap().unwrap_err();
        assert!(why.contains("it ended: exit status: 0"), "{why}");
        assert!(begun.elapsed() < WAIT_TIMEOUT, "{:?}", begun.elapsed());
    });
    // Nor does it wait for ever, or for what does not come by waiting.
    let listen = format!("127.0.0.1:{}", free_port());
    let serve = || {
        let mut command = weft();
        command.args(["serve", "meta", "--listen", &listen]);
        command
    };
    let volume = cluster.scratch.path.join("vol");
    let said = run(serve().args(["--patience", "1"]).arg(&volume)).failed(1);
    assert!(
        said.contains("no target of the volume vol can be opened") && said.contains("it was waited for 1 second"),
        "{said}"
    );
    let label = fs::read_to_string(volume.join("volume.json")).unwrap();
    let newer = label.replacen("\"format\": 2", "\"format\": 1000", 1);
    assert_ne!(label, newer);
    fs::write(volume.join("volume.json"), newer).unwrap();
    let ended = run(serve().arg(&volume));
    assert!(!ended.errors.contains(WAIT_MESSAGE) && ended.failed(1).contains("format 1000"));
}

/// Targets that answer with errors may work soon, as stores that do not answer.
#[test]
fn a_metadata_server_waits_while_too_few_targets_work() {
    let scratch = Scratch::new(6);
    let volume = scratch.path.join("vol");
    run(weft().args(["volume", "create"]).arg(&volume).args(["--code", "rs:4+2"]).args(&scratch.disks)).good();
    let away = |disk: &Path| disk.with_extension("away");
    for disk in &scratch.disks[..3] {
        fs::rename(disk, away(disk)).unwrap();
        fs::write(disk, "no directory").unwrap();
    }
    let serve = |patience: &str| {
        let mut command = weft();
        command.args(["serve", "meta", "--listen", "127.0.0.1:0", "--patience", patience]).arg(&volume);
        command
    };
    let said = run(&mut serve("1")).failed(3);
    assert!(said.contains("3 of 6 targets can be used") && said.contains("it was waited for 1 second"), "{said}");
    let arguments = serve("600").get_args().map(OsString::from).collect();
    let meta = Process::new("meta".into(), arguments, &scratch.path);
    std::thread::scope(|scope| {
        let starts = scope.spawn(|| meta.try_start());
        says(&meta, WAIT_MESSAGE, 1);
        assert!(!starts.is_finished(), "{}", meta.log());
        for disk in &scratch.disks[..3] {
            fs::remove_file(disk).unwrap();
            fs::rename(away(disk), disk).unwrap();
        }
        starts.join().unwrap().unwrap();
    });
    assert!(meta.end(), "{}", meta.log());
}

/// A volume has one holder: what a living server has is not opened beside it, and the server does
/// not notice.
#[test]
fn a_volume_is_not_opened_beside_its_living_server() {
    let cluster = Cluster::new("rs:4+2", 6);
    let small = cluster.scratch.file("small", 100);
    run(weft().arg("cp").arg(&small).arg(cluster.at("before"))).good();
    let beside = cluster.scratch.path.join("beside");
    let targets: Vec<String> =
        cluster.ports.iter().enumerate().map(|(n, port)| format!("store://127.0.0.1:{port}/disk{n}")).collect();
    let said = run(weft().args(["volume", "open"]).arg(&beside).args(&targets)).failed(1);
    assert!(said.contains("has the volume") || said.contains("is held by"), "{said}");
    // Nor by a command with a copy of the volume directory.
    let copy = cluster.scratch.path.join("copy");
    fs::create_dir_all(&copy).unwrap();
    fs::copy(cluster.scratch.path.join("vol/volume.json"), copy.join("volume.json")).unwrap();
    let said = run(weft().arg("mkdir").arg(format!("{}:/new", copy.display()))).failed(1);
    assert!(said.contains("has the volume") || said.contains("is held by"), "{said}");
    run(weft().arg("cp").arg(&small).arg(cluster.at("after"))).good();
    assert_eq!(String::from_utf8(run(weft().arg("ls").arg(cluster.at(""))).good()).unwrap(), "after\nbefore\n");
    cluster.on(&["fsck"]).good();
    cluster.on(&["verify"]).good();
}

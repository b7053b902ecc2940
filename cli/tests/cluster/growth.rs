//! A cluster grows and shrinks while it is used.

use crate::coding::chunks;
use crate::lab::{Cluster, possible};
use crate::scratch::{Scratch, noise, run, weft};
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

impl Cluster {
    fn rebalance(&self, more: &[&str]) -> crate::scratch::Ended {
        run(weft().args(["rebalance", &self.url()]).args(more))
    }

    fn rebalance_status(&self) -> Value {
        self.rebalance(&["status", "--json"]).json()
    }
}

#[test]
fn a_store_that_joins_gets_its_part_and_a_domain_that_goes_is_emptied() {
    let cluster = Cluster::new("rs:2+1", 5);
    let store = |number: usize| format!("store://127.0.0.1:{}/disk{number}", cluster.ports[number]);
    let target = |command: &str, more: &[&str]| run(weft().args(["target", command, &cluster.url()]).args(more));
    let on_disk = |number: usize| chunks(cluster.scratch.path.join(format!("disk{number}"))).len();
    // The last store is not in the volume yet.
    target("drain", &["--store", &format!("127.0.0.1:{}", cluster.ports[4])]).good();
    for number in 0..8 {
        let file = cluster.scratch.file(format!("f{number}"), 1_500_000);
        run(weft().arg("cp").arg(file).arg(cluster.at(&format!("f{number}")))).good();
    }
    target("add", &[&store(4)]).good();
    let plan = cluster.rebalance(&["--dry-run", "--json"]).json();
    assert!(plan["chunks"].as_u64().unwrap() > 0 && on_disk(4) == 0, "{plan}");
    let text = String::from_utf8(cluster.rebalance(&["--dry-run"]).good()).unwrap();
    assert!(text.contains("would move") && text.contains(&store(4)), "{text}");
    // Nothing happens while it is paused.
    let paused = cluster.rebalance(&["pause", "--json"]).json();
    assert_eq!(paused["state"], "paused");
    let said = cluster.rebalance(&[]).failed(1);
    assert!(said.contains("is paused") && said.contains("resume"), "{said}");
    cluster.rebalance(&["resume", "--limit", "20M"]).good();
    assert_eq!((cluster.rebalance_status()["limit"].clone(), on_disk(4)), ((20u64 << 20).into(), 0));
    cluster.rebalance(&[]).good();
    let mut now = cluster.rebalance_status();
    while now["last"].is_null() || now["state"] != "idle" {
        std::thread::sleep(std::time::Duration::from_millis(100));
        now = cluster.rebalance_status();
    }
    // Eight sets of three chunks are on five targets.
    let moved = now["last"]["chunks"].as_u64().unwrap() as usize;
    assert!((4..=moved).contains(&on_disk(4)) && now["last"]["failed"] == 0, "{now} {}", on_disk(4));
    assert_eq!(cluster.rebalance(&["--dry-run", "--json"]).json()["chunks"], 0);
    let text = String::from_utf8(cluster.rebalance(&["status"]).good()).unwrap();
    assert!(text.contains("idle") && text.contains(" moved"), "{text}");
    cluster.is_healthy();
    // A domain goes, and one that is needed does not.
    for (number, rack) in [(0, "a/0"), (1, "a/1"), (2, "b/2"), (3, "c/3"), (4, "d/4")] {
        target("domain", &[&store(number), rack]).good();
    }
    let said = target("drain", &["--domain", "nowhere"]).failed(1);
    assert!(said.contains("it has a/0"), "{said}");
    let said = target("drain", &["--store", "127.0.0.1:1"]).failed(1);
    assert!(said.contains("no target of this volume is on 127.0.0.1:1; its stores: 127.0.0.1:"), "{said}");
    let said = target("drain", &[&store(0), &store(1), &store(2)]).failed(1);
    assert!(said.contains("too few targets would be left"), "{said}");
    target("drain", &["--domain", "a"]).good();
    assert_eq!((on_disk(0), on_disk(1)), (0, 0));
    for number in 0..8 {
        assert!(run(weft().arg("cat").arg(cluster.at(&format!("f{number}")))).good() == noise(1_500_000));
    }
    cluster.heal();
    cluster.is_healthy();
}

/// One mount writes all the time, another one has a file open and does nothing.
#[test]
fn mounts_move_on_from_a_target_that_is_drained() {
    if !possible("mounts_move_on_from_a_target_that_is_drained") {
        return;
    }
    let cluster = Cluster::new("rs:2+1", 4);
    let (busy, idle) = (cluster.mount("busy"), cluster.mount("idle"));
    let mut quiet = File::create(idle.at("quiet")).unwrap();
    quiet.write_all(&noise(700_000)).unwrap();
    let (stop, written) = (AtomicBool::new(false), AtomicUsize::new(0));
    let drained = std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let mut file = File::create(busy.at("film")).unwrap();
            // No sync, ever, and no more than the disk of the test should take.
            while !stop.load(Ordering::SeqCst) {
                if written.load(Ordering::SeqCst) < 400 {
                    file.write_all(&noise(1 << 20)).unwrap();
                    written.fetch_add(1, Ordering::SeqCst);
                }
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        });
        while written.load(Ordering::SeqCst) < 20 {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let store = format!("127.0.0.1:{}", cluster.ports[1]);
        let drained = run(weft().args(["target", "drain", &cluster.url(), "--store", &store]));
        stop.store(true, Ordering::SeqCst);
        writing.join().unwrap();
        drained
    });
    drained.good();
    let left = chunks(cluster.scratch.path.join("disk1"));
    assert!(left.is_empty(), "{left:?}");
    quiet.write_all(&noise(300_000)).unwrap();
    drop(quiet);
    let (film, count) = (busy.at("film"), written.load(Ordering::SeqCst));
    let bytes = std::fs::read(film).unwrap();
    assert!(bytes.len() == count << 20 && bytes.chunks(1 << 20).all(|part| part == noise(1 << 20)));
    assert!(std::fs::read(idle.at("quiet")).unwrap()[..700_000] == noise(700_000));
    busy.unmount();
    idle.unmount();
    cluster.heal();
    cluster.is_healthy();
}

/// Its session ends, and its chunk sets are moved as all others.
#[test]
fn a_mount_that_is_stopped_holds_no_drain_up() {
    if !possible("a_mount_that_is_stopped_holds_no_drain_up") {
        return;
    }
    let cluster = Cluster::with("rs:2+1", 4, &["--lease", "10"]);
    let stuck = cluster.mount("stuck");
    let mut file = File::create(stuck.at("file")).unwrap();
    file.write_all(&noise(900_000)).unwrap();
    file.sync_all().unwrap();
    stuck.stop();
    let store = format!("127.0.0.1:{}", cluster.ports[1]);
    let drained = run(weft().args(["target", "drain", &cluster.url(), "--store", &store]));
    stuck.go_on();
    drained.good();
    let left = chunks(cluster.scratch.path.join("disk1"));
    assert!(left.is_empty(), "{left:?}");
    assert!(run(weft().arg("cat").arg(cluster.at("file"))).good() == noise(900_000));
    drop(file);
    stuck.unmount();
    cluster.heal();
    cluster.is_healthy();
}

/// Without a mount or a server, the command does it.
#[test]
fn directories_are_evened_out_by_the_command() {
    let scratch = Scratch::new(4);
    let volume = scratch.path.join("vol");
    run(weft().arg("create").arg(&volume).args(["--code", "rs:2+1"]).args(&scratch.disks[..3])).good();
    for number in 0..6 {
        let file = scratch.file(format!("f{number}"), 600_000);
        run(weft().arg("cp").arg(&file).arg(format!("{}:/f{number}", volume.display()))).good();
    }
    let on = |command: &[&str]| run(weft().arg("rebalance").arg(&volume).args(command));
    let even = String::from_utf8(on(&["--limit", "100M"]).good()).unwrap();
    assert!(even.contains("nothing to move"), "{even}");
    run(weft().args(["target", "add"]).arg(&volume).arg(&scratch.disks[3])).good();
    let set = on(&["--auto", "off", "--json"]).json();
    assert_eq!((&set["auto"], &set["limit"], &set["state"]), (&false.into(), &(100 << 20).into(), &"idle".into()));
    on(&["pause"]).good();
    assert!(on(&[]).failed(1).contains("is paused"));
    on(&["resume"]).good();
    let done = on(&["--json"]).json();
    assert!(done["chunks"].as_u64().unwrap() >= 3 && done["failed"] == 0, "{done}");
    assert!(chunks(scratch.disks[3].clone()).len() >= 3);
    assert_eq!(on(&["--json"]).json()["chunks"], 0);
    run(weft().args(["volume", "verify"]).arg(&volume)).good();
    let said = on(&["now"]);
    assert!(said.status == 2 && said.errors.contains("[possible values: status, pause, resume]"), "{}", said.errors);
}

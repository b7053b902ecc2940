//! Where chunks go, which targets are there, and what the loss of a whole domain does.

use crate::coding::chunks;
use crate::lab::{Cluster, WAIT_TIMEOUT, possible};
use crate::scratch::{Scratch, noise, run, weft};
use crate::stores::{all_there, write_synced};
use plan::SetId;
use serde_json::Value;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

impl Cluster {
    fn status(&self) -> Value {
        self.on(&["status", "--json"]).json()
    }

    /// How its targets are, once all of them are as expected.
    #[track_caller]
    fn becomes(&self, expected: &[&str]) {
        let begun = Instant::now();
        loop {
            let status = self.status();
            let targets = status["targets"].as_array().unwrap();
            let states: Vec<&str> = targets.iter().map(|target| target["state"].as_str().unwrap()).collect();
            if states == expected {
                assert!(targets.iter().all(|target| target["state_seconds"].is_u64()));
                return;
            }
            assert!(begun.elapsed() < WAIT_TIMEOUT, "{states:?}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    pub fn store(&self, number: usize) -> String {
        format!("store://127.0.0.1:{}/disk{number}", self.ports[number])
    }

    pub fn target(&self, command: &str, more: &[&str]) -> String {
        let done = run(weft().args(["target", command, &self.url()]).args(more));
        String::from_utf8(done.good()).unwrap()
    }
}

#[test]
fn a_target_is_replaced_while_a_client_writes() {
    if !possible("a_target_is_replaced_while_a_client_writes") {
        return;
    }
    let cluster = Cluster::new("rs:2+1", 5);
    // The last store is not in the volume yet.
    cluster.target("drain", &[&cluster.store(4)]);
    let mount = cluster.mount("a");
    let stop = AtomicBool::new(false);
    let files = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_synced(&mount.point, "f", &stop));
        std::thread::sleep(Duration::from_millis(500));
        let replaced = catch_unwind(AssertUnwindSafe(|| {
            let begun = Instant::now();
            cluster.target("replace", &[&cluster.store(1), &cluster.store(4)]);
            eprintln!("replaced after {:.2?}", begun.elapsed());
        }));
        stop.store(true, Ordering::SeqCst);
        let files = writer.join().unwrap().0;
        replaced.unwrap();
        files
    });
    let left = chunks(cluster.scratch.path.join("disk1"));
    assert!(left.is_empty(), "{left:?}");
    all_there(&mount.point, &files);
    cluster.stores[1].kill();
    mount.unmount();
    // A stripe may have been under way to the old one.
    cluster.heal();
    cluster.is_healthy();
    all_there(&cluster.mount("fresh").point, &files);
}

/// Each machine has more disks than the code can lose, and may take the metadata server along.
#[test]
fn a_metadata_server_begins_without_any_one_machine() {
    let cluster = Cluster::new("rs:2+1", 6);
    for number in 0..6 {
        cluster.target("domain", &[&cluster.store(number), &format!("machine{}", number / 2)]);
    }
    let film = cluster.scratch.file("film", 2_000_000);
    run(weft().arg("cp").arg(&film).arg(cluster.at("film"))).good();
    cluster.is_healthy();
    let has_one = |domain: &Value| (&domain["targets"], &domain["voters"]) == (&2.into(), &1.into());
    let begun = Instant::now();
    while !cluster.status()["domains"].as_array().unwrap().iter().all(has_one) {
        assert!(begun.elapsed() < WAIT_TIMEOUT, "{}", cluster.status()["domains"]);
        std::thread::sleep(Duration::from_millis(200));
    }
    for machine in 0..3 {
        let disks = [2 * machine, 2 * machine + 1];
        disks.iter().for_each(|&number| cluster.stores[number].kill());
        cluster.meta.kill();
        cluster.meta.start();
        let name = format!("without{machine}");
        run(weft().arg("mkdir").arg(cluster.at(&name))).good();
        assert!(run(weft().arg("cat").arg(cluster.at("film"))).good() == noise(2_000_000));
        disks.iter().for_each(|&number| cluster.stores[number].start());
        // A repair before that would rebuild their chunks beside others of a set.
        cluster.becomes(&["up"; 6]);
    }
    let listed = String::from_utf8(run(weft().arg("ls").arg(cluster.at(""))).good()).unwrap();
    assert!((0..3).all(|machine| listed.contains(&format!("without{machine}"))), "{listed}");
    cluster.is_healthy();
}

/// Two stores in each of three racks, and two chunks that may be lost: a whole rack may be.
#[test]
fn a_whole_rack_is_lost_and_nothing_with_it() {
    let cluster = Cluster::with("rs:2+2", 6, &["--down-out", "4"]);
    let copy = |name: &str, length: usize| {
        let file = cluster.scratch.file(name, length);
        run(weft().arg("cp").arg(file).arg(cluster.at(name))).good();
    };
    copy("before", 2_000_000);
    for number in 0..6 {
        let rack = format!("rack{}/host{number}", number / 2);
        let said = cluster.target("domain", &[&cluster.store(number), &rack]);
        assert!(said.contains(&rack), "{said}");
    }
    cluster.target("placement", &["round-robin", "--domain-level", "1"]);
    (0..4).for_each(|n| copy(&format!("file{n}"), 1_500_000));
    cluster.heal();
    let status = cluster.status();
    assert_eq!((&status["placement"], &status["domain_level"]), (&"round-robin".into(), &1.into()));
    assert_eq!(status["targets"][3]["domain"], "rack1/host3");
    let domains = status["domains"].as_array().unwrap();
    assert_eq!(
        domains.iter().map(|domain| domain["domain"].as_str().unwrap()).collect::<Vec<_>>(),
        ["rack0", "rack1", "rack2"]
    );
    assert!(
        domains.iter().all(|domain| domain["targets"] == 2 && domain["chunk_sets_lost_with_it"] == 0),
        "{domains:?}"
    );
    let text = String::from_utf8(cluster.on(&["status"]).good()).unwrap();
    assert!(text.contains("the loss of any one of 3 domains would lose nothing"), "{text}");
    let text = String::from_utf8(cluster.on(&["status", "-v"]).good()).unwrap();
    assert!(text.contains("in rack1/host3  up for "), "{text}");

    cluster.becomes(&["up"; 6]);
    [2, 3].iter().for_each(|&n| cluster.stores[n].kill());
    let all_there = || {
        for n in 0..4 {
            assert!(run(weft().arg("cat").arg(cluster.at(&format!("file{n}")))).good() == noise(1_500_000));
        }
        assert!(run(weft().arg("cat").arg(cluster.at("before"))).good() == noise(2_000_000));
    };
    all_there();
    cluster.becomes(&["up", "up", "out", "out", "up", "up"]);
    // Their chunks are rebuilt in the other racks.
    let begun = Instant::now();
    while cluster.status()["chunk_sets_to_repair"] != 0 {
        assert!(begun.elapsed() < WAIT_TIMEOUT, "{}", cluster.meta.log());
        std::thread::sleep(Duration::from_millis(200));
    }
    let domains = cluster.status()["domains"].clone();
    assert!(domains.as_array().unwrap().iter().all(|domain| domain["chunk_sets_lost_with_it"] == 0), "{domains}");
    [2, 3].iter().for_each(|&n| cluster.stores[n].start());
    cluster.becomes(&["up"; 6]);
    all_there();
    let log = cluster.meta.log();
    for line in [" is down", " is away for too long", " is there again"] {
        let told = log.lines().find(|told| told.contains(line));
        assert!(told.is_some_and(|told| told.contains("target store://")), "{log}");
    }
    cluster.heal();
}

/// Stores that have them open can still read them.
#[test]
fn chunks_that_are_deleted_under_running_stores_are_told_and_created_again() {
    let cluster = Cluster::new("rs:2+1", 3);
    let file = cluster.scratch.file("file", 3_000_000);
    run(weft().arg("cp").arg(file).arg(cluster.at("file"))).good();
    cluster.heal();
    let disk = cluster.scratch.path.join("disk1");
    let before = chunks(disk.clone());
    assert!(!before.is_empty());
    before.iter().for_each(|(_, _, path)| std::fs::remove_file(path).unwrap());
    let text = |command: &str| {
        let ended = cluster.on(&[command]);
        assert_eq!(ended.status, 1, "{command}: {}", ended.errors);
        String::from_utf8(ended.output).unwrap()
    };
    let status = cluster.status();
    assert_eq!((&status["healthy"], &status["chunks_missing"]), (&false.into(), &before.len().into()), "{status}");
    let said = text("status");
    assert!(said.contains("needs attention") && said.contains("to repair"), "{said}");
    let said = text("verify");
    assert!(said.contains(": its chunk "), "{said}");
    let said = text("status");
    assert!(said.contains("ago: ") && said.contains("problem") && !said.contains("repaired since"), "{said}");
    cluster.heal();
    let said = String::from_utf8(cluster.on(&["status"]).good()).unwrap();
    assert!(said.contains("repaired since"), "{said}");
    let names = |chunks: Vec<(SetId, usize, std::path::PathBuf)>| chunks.into_iter().map(|chunk| chunk.0).collect();
    let (before, after): (BTreeSet<SetId>, BTreeSet<SetId>) = (names(before), names(chunks(disk)));
    assert_eq!(after, before);
    cluster.is_healthy();
    assert!(run(weft().arg("cat").arg(cluster.at("file"))).good() == noise(3_000_000));
}

/// A store that is stopped most of the time: new chunk sets avoid it, and do not leave it out for
/// good.
#[test]
fn new_sets_avoid_a_slow_store() {
    const SLOW: usize = 2;
    let cluster = Cluster::new("rs:2+1", 6);
    let said = cluster.target("placement", &["adaptive", "--coefficients", "0.5,0.5,0.5,0.5", "--tau", "auto"]);
    assert!(said.contains("adaptive, coefficients 0.5,0.5,0.5,0.5, tau auto"), "{said}");
    assert!(cluster.target("placement", &[]).contains("adaptive"));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                cluster.stores[SLOW].stop();
                std::thread::sleep(Duration::from_millis(150));
                cluster.stores[SLOW].go_on();
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let checked = catch_unwind(AssertUnwindSafe(|| sets_avoid(&cluster, SLOW)));
        stop.store(true, Ordering::SeqCst);
        checked.unwrap();
    });
    cluster.heal();
    cluster.is_healthy();
}

fn sets_avoid(cluster: &Cluster, slow: usize) {
    // The metadata server hears of it by the reports.
    let begun = Instant::now();
    let numbers = |status: &Value, what: &str| -> Vec<f64> {
        let targets = status["targets"].as_array().unwrap();
        targets.iter().map(|target| target[what].as_f64().unwrap_or(0.0)).collect()
    };
    let of_others = |numbers: &[f64]| -> Vec<f64> {
        numbers.iter().enumerate().filter(|(number, _)| *number != slow).map(|(_, value)| *value).collect()
    };
    loop {
        let status = cluster.status();
        let scores = numbers(&status, "score");
        if of_others(&scores).iter().all(|other| scores[slow] > 0.0 && scores[slow] < 0.8 * other) {
            assert!(status["targets"][slow]["load"]["delay"].as_f64().unwrap() > 0.0, "{status}");
            break;
        }
        assert!(begun.elapsed() < WAIT_TIMEOUT, "{scores:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
    // Each copy is a client, and gets chunk sets of its own.
    let file = cluster.scratch.file("file", 200_000);
    let chunks = (0..80).find_map(|copy| {
        run(weft().arg("cp").arg(&file).arg(cluster.at(&format!("f{copy}")))).good();
        let chunks = numbers(&cluster.status(), "chunks");
        let mean = of_others(&chunks).iter().sum::<f64>() / 5.0;
        (mean >= 10.0 && chunks[slow] > 0.0 && chunks[slow] < 0.7 * mean).then_some(chunks)
    });
    let chunks = chunks.expect("the slow one gets less than the others, and not nothing");
    eprintln!("chunks by store, of which {slow} is slow: {chunks:?}");
    // Why, in words and for programs.
    let next = run(weft().args(["target", "placement", &cluster.url(), "--explain", "next", "--json"])).json();
    assert!(next["is_there"].is_null() && next["would_be"].as_array().unwrap().len() == 3, "{next}");
    let targets = next["targets"].as_array().unwrap();
    assert!(targets.len() == 6 && targets.iter().all(|target| target["score"]["score"].is_f64()), "{next}");
    // The last sets may have been given back by a client that ended.
    let said = (0..next["chunk_set"].as_u64().unwrap()).rev().find_map(|set| {
        let said = cluster.target("placement", &["--explain", &set.to_string()]);
        said.contains("is on:").then_some(said)
    });
    let said = said.expect("some set is there");
    assert!(said.contains("what its choice saw is not kept"), "{said}");
    assert!(said.lines().any(|line| line.contains("disk2") && line.contains("score 0.")), "{said}");
    let verbose = String::from_utf8(cluster.on(&["status", "-v"]).output).unwrap();
    assert!(verbose.contains(" waiting, ") && verbose.contains(", score 0."), "{verbose}");
}

/// What a policy does not look at cannot be set, and numbers that mean nothing are refused.
#[test]
fn coefficients_are_kept_with_the_volume() {
    let scratch = Scratch::new(3);
    let volume = scratch.path.join("vol");
    run(weft().arg("create").arg(&volume).args(["--code", "rs:2+1"]).args(&scratch.disks)).good();
    let placement = |more: &[&str]| run(weft().args(["target", "placement"]).arg(&volume).args(more));
    let label = || std::fs::read_to_string(volume.join("volume.json")).unwrap();
    assert!(!label().contains("scoring"), "{}", label());
    assert_eq!(String::from_utf8(placement(&[]).good()).unwrap(), "new data is placed by random\n");
    for bad in [
        &["random", "--tau", "0.5"][..],
        &["adaptive", "--coefficients", "1,2,3"],
        &["adaptive", "--tau", "1.5"],
        &["adaptive", "--evenness=-1"],
        &["--explain", "0"],
        &["random", "--explain", "next"],
        &["--tau", "0.5"],
    ] {
        assert_eq!(placement(bad).status, 2, "{bad:?}");
    }
    placement(&["adaptive", "--coefficients", "0.5,1,0,2", "--tau", "0.8", "--evenness", "0"]).good();
    let said = placement(&["--json"]).json();
    let scoring = serde_json::json!({
        "coefficients": { "a": 0.5, "b": 1.0, "c": 0.0, "d": 2.0 }, "tau": 0.8, "evenness": 0.0
    });
    assert_eq!((&said["placement"], &said["scoring"]), (&"adaptive".into(), &scoring));
    let said = String::from_utf8(placement(&["--explain", "next"]).good()).unwrap();
    assert!(said.contains("is not placed yet") && said.contains("score 0."), "{said}");
    // Another policy, and nothing is said of scores any more.
    placement(&["round-robin"]).good();
    assert!(!label().contains("scoring"), "{}", label());
}

/// A warning names domains whose loss would lose data, however they came to be.
#[test]
fn too_few_domains_are_told_of() {
    let cluster = Cluster::new("rs:2+1", 4);
    for number in 0..4 {
        cluster.target("domain", &[&cluster.store(number), if number < 3 { "left" } else { "right" }]);
    }
    let file = cluster.scratch.file("f", 1_000_000);
    run(weft().arg("cp").arg(file).arg(cluster.at("f"))).good();
    cluster.heal();
    let status = String::from_utf8(cluster.on(&["status"]).good()).unwrap();
    assert!(status.contains("the loss of left (3 targets) would lose "), "{status}");
    assert!(!status.contains("the loss of right"), "{status}");
    for (command, says) in
        [(["domain", &cluster.store(0), "a//b"].as_slice(), "rack1/host3"), (&["placement", "best"], "round-robin")]
    {
        let ended = run(weft().args(["target", command[0], &cluster.url()]).args(&command[1..]));
        assert!(ended.status == 2 && ended.errors.contains(says), "{}", ended.errors);
    }
}

/// Directories of this machine get the domains that are given, and a domain for something else is
/// refused.
#[test]
fn a_volume_on_directories_has_the_domains_that_are_given() {
    let scratch = Scratch::new(4);
    let volume = scratch.path.join("vol");
    let create = |more: &[&str]| {
        let mut create = weft();
        create
            .arg("create")
            .arg(&volume)
            .args(["--code", "rs:2+1", "--placement", "round-robin"])
            .args(more)
            .args(&scratch.disks);
        run(&mut create)
    };
    let of = |disk: usize, domain: &str| format!("{}={domain}", scratch.disks[disk].display());
    let said = create(&["--domain", "/elsewhere=a"]).failed(1);
    assert!(said.contains("/elsewhere") && !volume.join("volume.json").exists(), "{said}");
    let two: Vec<String> = (0..4).map(|disk| of(disk, if disk < 3 { "left" } else { "right" })).collect();
    let two: Vec<&str> = two.iter().flat_map(|domain| ["--domain", domain]).collect();
    let said = create(&two).failed(1);
    assert!(said.contains("2 domains, which can take 2 of the 3 blocks of rs:2+1, 1 each"), "{said}");
    assert!(said.contains("--allow-few-domains") && !volume.exists(), "{said}");
    create(&["--domain", &of(0, "shelf1/a"), "--domain", &of(1, "shelf1/b"), "--domain-level", "1"]).good();
    let status = run(weft().args(["status", "--json"]).arg(&volume)).json();
    let domains: Vec<Option<&str>> =
        status["targets"].as_array().unwrap().iter().map(|t| t["domain"].as_str()).collect();
    assert_eq!(domains, [Some("shelf1/a"), Some("shelf1/b"), None, None]);
    assert_eq!((&status["placement"], &status["targets"][0]["state"]), (&"round-robin".into(), &Value::Null));
    // A file in it can lose the whole shelf: three of four targets have one of two of the shelf.
    let file = scratch.file("f", 300_000);
    run(weft().arg("cp").arg(&file).arg(format!("{}:/f", volume.display()))).good();
    let domains = run(weft().args(["status", "--json"]).arg(&volume)).json()["domains"].clone();
    assert_eq!(
        domains,
        serde_json::json!([{ "domain": "shelf1", "targets": 2, "chunk_sets_lost_with_it": 0, "voters": 1 }])
    );
}

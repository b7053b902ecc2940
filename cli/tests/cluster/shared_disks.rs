//! Several volumes of different codes on the same disks of the same stores.

use crate::lab::{Process, WAIT_TIMEOUT, free_port, heal};
use crate::metrics::get;
use crate::scratch::{Ended, Scratch, noise, run, weft};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Starts a server on a free port.
fn server(name: &str, what: &str, of: &[&Path], more: &[&str], scratch: &Path) -> (Process, String) {
    loop {
        let listen = format!("127.0.0.1:{}", free_port());
        let arguments = ["--json", "serve", what, "--listen", &listen];
        let arguments = arguments.iter().chain(more).map(OsString::from).chain(of.iter().map(OsString::from)).collect();
        let server = Process::new(name.into(), arguments, scratch);
        match server.try_start() {
            Ok(()) => return (server, listen),
            // Another test was faster.
            Err(why) => assert!(why.contains("cannot listen"), "{why}"),
        }
    }
}

/// Four stores with one disk each; and their targets.
fn stores(place: &Path) -> (Vec<(Process, String)>, Vec<String>) {
    let start = |number| {
        let disk = place.join(format!("disk{number}"));
        std::fs::create_dir(&disk).unwrap();
        server(&format!("disk{number}"), "store", &[&disk], &[], place)
    };
    let stores: Vec<_> = (0..4).map(start).collect();
    let target = |(number, (_, listen)): (usize, &(_, String))| format!("store://{listen}/disk{number}");
    let targets = stores.iter().enumerate().map(target).collect();
    (stores, targets)
}

#[test]
fn two_volumes_share_four_disks() {
    let scratch = Scratch::new(0);
    let place = scratch.path.as_path();
    let (stores, targets) = stores(place);
    let volumes = [("films", "rs:2+1", noise(3_000_000)), ("mails", "rs:2+2", noise(2_000_001))];
    for (name, code, _) in &volumes {
        run(weft().args(["volume", "create"]).arg(place.join(name)).args(["--shared", "--code", code]).args(&targets))
            .good();
    }
    // The same name again, and a volume that wants the disks for itself, change nothing.
    let again = |name: &str, more: &[&str]| {
        run(weft().args(["volume", "create"]).arg(place.join(name)).args(more).args(&targets)).failed(1)
    };
    let why = again("other", &["--shared", "--name", "films", "--code", "rs:2+1"]);
    assert!(why.contains("exists"), "{why}");
    let why = again("whole", &["--code", "rs:2+1"]);
    assert!(why.contains("not empty"), "{why}");
    let metas = volumes.each_ref().map(|(name, ..)| server(name, "meta", &[&place.join(name)], &[], place));
    let url = |volume: usize| format!("weft://{}/{}", metas[volume].1, volumes[volume].0);
    for (number, (name, _, content)) in volumes.iter().enumerate() {
        let file = place.join(format!("{name}.bytes"));
        std::fs::write(&file, content).unwrap();
        run(weft().arg("cp").arg(&file).arg(format!("{}:/a", url(number)))).good();
    }
    // One disk, which is a target of each: a store that starts finds both.
    stores[0].0.kill();
    stores[0].0.start();
    stores[1].0.kill();
    for (number, (.., content)) in volumes.iter().enumerate() {
        assert_eq!(run(weft().arg("cat").arg(format!("{}:/a", url(number)))).good(), *content);
    }
    stores[1].0.start();
    for (number, (name, ..)) in volumes.iter().enumerate() {
        // The metadata server finds out by itself that the store is back.
        heal(|words| run(weft().args(words).arg(url(number))), || metas[number].0.log());
        run(weft().arg("verify").arg(url(number))).good();
        let status = run(weft().args(["status", "--json"]).arg(url(number))).json();
        let targets = status["targets"].as_array().unwrap();
        assert!(targets.iter().all(|target| target["path"].as_str().unwrap().ends_with(name)), "{status}");
    }
    for number in 0..4 {
        let disk = place.join(format!("disk{number}"));
        let mut names: Vec<OsString> =
            std::fs::read_dir(disk.join("volumes")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["films", "mails"]);
    }
}

/// One metadata server has two volumes, another one stands by for both, and each goes its own way.
#[test]
fn one_metadata_server_has_two_volumes() {
    let scratch = Scratch::new(0);
    let place = scratch.path.as_path();
    let (_stores, targets) = stores(place);
    let names = ["films", "mails"];
    for (name, code) in names.into_iter().zip(["rs:2+1", "rs:2+2"]) {
        let create = ["--shared", "--code", code];
        run(weft().args(["volume", "create"]).arg(place.join(name)).args(create).args(&targets)).good();
    }
    let port = free_port().to_string();
    let directories = names.map(|name| place.join(name));
    let [films, mails] = directories.each_ref().map(PathBuf::as_path);
    let (first, at_first) = server("a", "meta", &[films, mails], &["--name", "a", "--metrics", &port], place);
    let url = |at: &str, name: &str| format!("weft://{at}/{name}");
    let on = |words: &[&str], url: &str, more: &[&str]| -> Ended { run(weft().args(words).arg(url).args(more)) };
    let content = |name: &str| noise(1_000_000 + name.bytes().map(usize::from).sum::<usize>());
    for name in names {
        let file = place.join(format!("{name}.bytes"));
        std::fs::write(&file, content(name)).unwrap();
        run(weft().arg("cp").arg(&file).arg(format!("{}:/a", url(&at_first, name)))).good();
    }
    let is_there = |at: &str| {
        for name in names {
            assert_eq!(run(weft().arg("cat").arg(format!("{}:/a", url(at, name)))).good(), content(name), "{name}");
        }
    };
    is_there(&at_first);
    let holds = |at: &str, name: &str| -> String {
        let status = on(&["status", "--json"], &url(at, name), &[]).json();
        let targets = status["targets"].as_array().unwrap();
        assert!(targets.iter().all(|target| target["path"].as_str().unwrap().ends_with(name)), "{status}");
        let servers = status["servers"].as_array().unwrap();
        let holder = servers.iter().find(|server| server["holder"] == true);
        holder.unwrap_or_else(|| panic!("{status}"))["name"].as_str().unwrap().to_owned()
    };
    assert_eq!(names.map(|name| holds(&at_first, name)), ["a", "a"]);
    // A name that it does not have, and none.
    for (words, path) in [("status", ""), ("ls", ":/"), ("verify", ""), ("repair", "")] {
        let said = on(&[words], &(url(&at_first, "music") + path), &[]).failed(1);
        assert!(said.contains("it has the volumes films, mails, not \"music\""), "{words}: {said}");
        let said = on(&[words], &format!("weft://{at_first}{path}"), &[]).failed(1);
        assert!(said.contains("it has the volumes films, mails, give weft://HOST:PORT/NAME"), "{words}: {said}");
    }
    let metrics = get(port.parse().unwrap(), "/metrics").1;
    for line in ["weft_meta_holder{volume=\"films\"} 1", "weft_meta_holder{volume=\"mails\"} 1"] {
        assert!(metrics.lines().any(|other| other == line), "{metrics}");
    }
    assert_eq!(metrics.matches("# TYPE weft_meta_holder ").count(), 1);
    assert_eq!(get(port.parse().unwrap(), "/ready").0, 200);
    // Another one stands by for both, and gets one of them.
    let others = names.map(|name| place.join(format!("{name}.b")));
    let joins = names.map(|name| url(&at_first, name));
    let more = ["--name", "b", "--join", &joins[0], "--join", &joins[1]];
    let (second, at_second) = server("b", "meta", &others.each_ref().map(PathBuf::as_path), &more, place);
    let begun = Instant::now();
    while on(&["meta", "handover"], &url(&at_first, "mails"), &["b"]).status != 0 {
        assert!(begun.elapsed() < WAIT_TIMEOUT, "{}", first.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    for at in [&at_first, &at_second] {
        is_there(at);
        assert_eq!(names.map(|name| holds(at, name)), ["a", "b"]);
    }
    // What dies with one server goes on with the other.
    first.kill();
    is_there(&at_second);
    assert_eq!(names.map(|name| holds(&at_second, name)), ["b", "b"]);
    second.kill();
    first.start();
    is_there(&at_first);
    for name in names {
        heal(|words| on(words, &url(&at_first, name), &[]), || first.log());
        on(&["verify"], &url(&at_first, name), &[]).good();
    }
    assert!(first.end(), "{}", first.log());
}

#[test]
fn what_is_wrong_with_several_volumes_is_said_first() {
    let scratch = Scratch::new(0);
    let place = scratch.path.as_path();
    let serve = |more: &[&str]| run(weft().args(["serve", "meta", "--listen", "127.0.0.1:0"]).args(more));
    for (directory, disk) in [("one", "x"), ("two", "y")] {
        std::fs::create_dir(place.join(disk)).unwrap();
        let create = ["volume", "create", "--name", "films", "--code", "none:1"];
        run(weft().args(create).arg(place.join(directory)).arg(place.join(disk))).good();
    }
    let [one, two] = ["one", "two"].map(|name| place.join(name).to_str().unwrap().to_owned());
    let said = serve(&[&one, &two]).failed(2);
    assert!(said.contains("have the same name, films"), "{said}");
    let said = serve(&[&one, &one]).failed(2);
    assert!(said.contains("one is given twice"), "{said}");
    let said = serve(&[&one, &two, "--join", "weft://127.0.0.1:1/films"]).failed(2);
    assert!(said.contains("2 volumes, but 1 --join"), "{said}");
    let said = serve(&[&one, place.join("three").to_str().unwrap()]).failed(1);
    assert!(said.contains("three"), "{said}");
}

//! Several volumes of different codes on the same disks of the same stores.

use crate::lab::{Process, free_port, heal};
use crate::scratch::{Scratch, noise, run, weft};
use std::ffi::OsString;
use std::path::Path;

/// Starts a server on a free port.
fn server(name: &str, what: &str, of: &Path, scratch: &Path) -> (Process, String) {
    loop {
        let listen = format!("127.0.0.1:{}", free_port());
        let arguments = ["--json", "serve", what, "--listen", &listen].map(OsString::from);
        let arguments = arguments.into_iter().chain([of.into()]).collect();
        let server = Process::new(name.into(), arguments, scratch);
        match server.try_start() {
            Ok(()) => return (server, listen),
            // Another test was faster.
            Err(why) => assert!(why.contains("cannot listen"), "{why}"),
        }
    }
}

#[test]
fn two_volumes_share_four_disks() {
    let scratch = Scratch::new(0);
    let place = scratch.path.as_path();
    let disks = [0, 1, 2, 3].map(|number| place.join(format!("disk{number}")));
    let stores = disks.each_ref().map(|disk| {
        std::fs::create_dir(disk).unwrap();
        server(disk.file_name().unwrap().to_str().unwrap(), "store", disk, place)
    });
    let targets: Vec<String> =
        stores.iter().enumerate().map(|(number, (_, listen))| format!("store://{listen}/disk{number}")).collect();
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
    let metas = volumes.each_ref().map(|(name, ..)| server(name, "meta", &place.join(name), place));
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
    for disk in disks {
        let mut names: Vec<OsString> =
            std::fs::read_dir(disk.join("volumes")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["films", "mails"]);
    }
}

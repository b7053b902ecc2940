//! Volumes that lost more targets than they may: old state is not taken for new, and the loss is
//! reported.

use crate::scratch::{Ended, run, weft};
use crate::volumes::Volume;
use std::fs;
use std::path::{Path, PathBuf};

/// What a command printed.
#[track_caller]
fn text(ended: Ended) -> String {
    String::from_utf8(ended.good()).unwrap()
}

/// Half of the disks, those with the journal first, and the other half.
fn mirrors(volume: &Volume) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let has_journal = |disk: &PathBuf| fs::read_dir(disk.join("journal")).unwrap().next().is_some();
    let mut disks = volume.scratch.disks.clone();
    disks.sort_by_key(|disk| !has_journal(disk));
    let others = disks.split_off(disks.len() / 2);
    (disks, others)
}

fn away(disk: &Path) -> PathBuf {
    disk.with_extension("away")
}

#[test]
fn a_new_volume_tells_how_many_targets_may_be_away() {
    let volume = Volume::new("rs:4+2", 6);
    let status = text(volume.on(&["status"]));
    assert!(status.contains("readable with 2 targets away, writable with 2\n"), "{status}");
    let path = volume.scratch.path.join("small");
    let disks: Vec<PathBuf> = (0..4).map(|number| volume.scratch.path.join(format!("small {number}"))).collect();
    let created = text(run(weft().arg("create").arg(&path).args(["--code", "rs:2+2"]).args(&disks)));
    assert!(created.contains("writable with 1; with 1 more target that is 2"), "{created}");
    let status = run(weft().args(["status", "--json"]).arg(&path)).json();
    let expected = serde_json::json!({ "readable_without": 2, "writable_without": 1, "more_targets": 1, "voters": 4 });
    assert_eq!(status["metadata"], expected);
}

#[test]
fn old_metadata_is_shown_only_on_demand() {
    let volume = Volume::new("rs:4+2", 6);
    volume.put(volume.scratch.file("f", 100), "").good();
    let (_, others) = mirrors(&volume);
    others.iter().for_each(|disk| fs::rename(disk, away(disk)).unwrap());
    let root = volume.at("");
    let commands: [(&[&str], &std::ffi::OsStr); 4] = [
        (&["ls"], &root),
        (&["stat"], &root),
        (&["status"], volume.path.as_os_str()),
        (&["fsck"], volume.path.as_os_str()),
    ];
    for (command, of) in commands {
        let said = run(weft().args(command).arg(of)).failed(3);
        let line = "3 of 6 targets of the volume a volume are there and 4 are needed to know its newest state";
        assert!(said.contains(line) && said.contains("--possibly-old"), "{said}");
        assert!(others.iter().all(|disk| said.contains(disk.to_str().unwrap())), "{said}");
    }
    let listed = run(weft().args(["ls", "--possibly-old"]).arg(&root));
    assert!(listed.errors.contains("POSSIBLY OLD"), "{}", listed.errors);
    assert_eq!(text(listed), "f\n");
    others[1..].iter().for_each(|disk| fs::rename(away(disk), disk).unwrap());
    assert_eq!(text(run(weft().arg("ls").arg(&root))), "f\n");
}

#[test]
fn a_loss_is_accepted_by_name_and_remembered() {
    let volume = Volume::new("rs:4+2", 6);
    volume.put(volume.scratch.file("f", 100), "").good();
    let (left, others) = mirrors(&volume);
    fs::remove_dir_all(&volume.path).unwrap();
    let open = |more: &[&str]| run(weft().args(["volume", "open"]).arg(&volume.path).args(&left).args(more));
    assert!(open(&[]).failed(3).contains("--accept-loss"));
    let enough =
        weft().args(["volume", "open"]).arg(&volume.path).args(&volume.scratch.disks).arg("--accept-loss").output();
    assert_eq!(enough.unwrap().status.code(), Some(2), "nothing need be lost");
    let asked = open(&["--accept-loss"]);
    let listed = String::from_utf8_lossy(&asked.output).into_owned();
    assert!(others.iter().all(|disk| listed.contains(disk.to_str().unwrap())), "{listed}");
    assert!(asked.failed(2).contains("--yes-lose"));
    assert!(open(&["--accept-loss", "--yes-lose", "another"]).failed(2).contains("is called a volume"));
    assert!(!volume.path.join("volume.json").exists(), "nothing was changed");
    open(&["--accept-loss", "--yes-lose", "a volume"]).good();
    assert_eq!(text(run(weft().arg("ls").arg(volume.at("")))), "f\n");
    let status = volume.on(&["status"]);
    let shown = String::from_utf8_lossy(&status.output).into_owned();
    assert!(shown.contains("LOSS ACCEPTED: 3 of 6 targets were given up"), "{shown}");
    // A target that comes back no longer counts.
    let status = volume.on(&["status", "--json"]).json();
    assert_eq!((status["targets"].as_array().unwrap().len(), status["losses"][0]["of"].as_u64()), (3, Some(6)));
}

/// What few targets have is not durable: it is refused, and the loss of one of them takes nothing
/// with it that anybody was told.
#[test]
fn a_change_that_one_target_of_six_would_have_is_refused() {
    let volume = Volume::new("rs:4+2", 6);
    volume.put(volume.scratch.file("f", 100), "").good();
    let (mirrors, others) = mirrors(&volume);
    let one = mirrors[0].clone();
    let rest: Vec<PathBuf> = mirrors[1..].iter().chain(&others).cloned().collect();
    rest.iter().for_each(|disk| fs::rename(disk, away(disk)).unwrap());
    let said = run(weft().arg("rm").arg(volume.at("f"))).failed(3);
    assert!(said.contains("1 of 6 targets can be used and 4 are needed"), "{said}");
    // The one is lost, and the five come back.
    fs::remove_dir_all(&one).unwrap();
    rest.iter().for_each(|disk| fs::rename(away(disk), disk).unwrap());
    assert_eq!(text(run(weft().arg("ls").arg(volume.at("")))), "f\n");
    run(weft().arg("rm").arg(volume.at("f"))).good();
    volume.put(volume.scratch.file("g", 100), "").good();
    assert_eq!(text(run(weft().arg("ls").arg(volume.at("")))), "g\n");
    let new = volume.scratch.path.join("new");
    volume.target("replace", &[&one, &new]).good();
    volume.on(&["repair"]).good();
    volume.is_healthy();
}

/// Damages the first record of the newest segment on these disks. Returns its transaction, and the
/// highest one that a later record of the segment says was durable.
fn damage(disks: &[PathBuf]) -> (u64, u64) {
    let mut said = (0, 0);
    for disk in disks {
        let names = fs::read_dir(disk.join("journal")).unwrap().map(|entry| entry.unwrap().path());
        let segment = names.filter(|path| path.extension().is_some_and(|kind| kind == "journal")).max().unwrap();
        let mut bytes = fs::read(&segment).unwrap();
        let records: Vec<usize> =
            (0..bytes.len() - 48).step_by(8).filter(|&at| bytes[at..].starts_with(b"WJR1")).collect();
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        said = (number(records[0] + 8), records.iter().map(|at| number(at + 32)).max().unwrap());
        bytes[records[0] + 48] ^= 1;
        fs::write(&segment, bytes).unwrap();
    }
    said
}

#[test]
fn what_is_missing_is_told_before_a_loss_is_accepted() {
    let volume = Volume::new("rs:4+2", 6);
    volume.put(volume.scratch.file("f", 100), "").good();
    volume.put(volume.scratch.file("g", 100), "").good();
    let (left, others) = mirrors(&volume);
    fs::remove_dir_all(&volume.path).unwrap();
    let open = |disks: &[PathBuf], more: &[&str]| {
        run(weft().args(["volume", "open"]).arg(&volume.path).args(disks).arg("--accept-loss").args(more))
    };
    let told = |disks: &[PathBuf]| -> serde_json::Value {
        let ended = open(disks, &["--json"]);
        let document: serde_json::Value = serde_json::from_slice(&ended.output).unwrap();
        assert!(document["error"]["message"].as_str().unwrap().contains("nothing was changed"), "{document}");
        assert_eq!(ended.status, 1);
        document
    };
    // Each of the three has all, but others may have more.
    let document = told(&left);
    let transactions = &document["loss"]["transactions"];
    let readable = transactions["readable"].as_u64().unwrap();
    assert_eq!(transactions["may_be_missing_after"], readable);
    assert!(transactions["missing"].is_null() && transactions["missing_opening"].is_null(), "{document}");
    assert!(transactions["changed_at"].as_u64().unwrap() > 1_700_000_000, "{document}");
    assert_eq!(document["loss"]["missing_targets"].as_array().unwrap().len(), 3);
    let said = String::from_utf8(open(&left, &[]).output).unwrap();
    let line = format!("Transactions after {readable} may be missing, too: only the missing targets can tell.");
    assert!(said.contains(&line) && !said.contains("MISSING transactions"), "{said}");
    // Those without a journal know that there was an opening, and nothing of it.
    let without: Vec<PathBuf> = others.into_iter().rev().take(2).collect();
    let document = told(&without);
    let transactions = &document["loss"]["transactions"];
    assert!(transactions["readable"].is_null() && transactions["may_be_missing_after"].is_null(), "{document}");
    assert!(transactions["missing_opening"]["epoch"].as_u64().unwrap() > 1, "{document}");
    assert!(String::from_utf8(open(&without, &[]).output).unwrap().contains("which changes are missing is not known"));
    // What was durable cannot be read any more, and a later record says that there was something.
    let (first, last) = damage(&left);
    assert!(first <= last, "{first} {last}");
    let said = String::from_utf8(open(&left, &[]).output).unwrap();
    assert!(said.contains(&format!("MISSING transactions {first} to {last}: they were durable\n")), "{said}");
    assert!(!volume.path.join("volume.json").exists(), "nothing was changed");
    let opened = open(&left, &["--yes-lose", "a volume", "--json"]).json();
    let missing = serde_json::json!({ "first": first, "last": last });
    assert_eq!(
        (&opened["loss"]["transactions"]["missing"], &opened["loss"]["transactions"]["readable"]),
        (&missing, &(first - 1).into())
    );
    assert_eq!(text(run(weft().arg("ls").arg(volume.at("")))), "f\n");
}

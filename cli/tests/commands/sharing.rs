//! `volume create --allow-sharing`: several blocks of a stripe on one target.

use crate::scratch::{Scratch, run, weft};
use crate::volumes::Volume;

/// A volume of a code on a number of disks, and what its creation said.
fn volume(code: &str, disks: usize) -> (Volume, String) {
    let scratch = Scratch::new(disks);
    let path = scratch.path.join("a volume");
    let mut create = weft();
    create.arg("create").arg(&path).args(["--code", code, "--allow-sharing"]).args(&scratch.disks);
    let said = String::from_utf8(run(&mut create).good()).unwrap();
    (Volume { scratch, path }, said)
}

#[test]
fn it_warns_until_there_are_enough_targets() {
    let (volume, said) = volume("rs:4+2", 4);
    assert!(said.contains("SHARED TARGETS: 4 targets have up to 2 of the 6 blocks"), "{said}");
    assert!(said.contains("only 1 may be lost, not 2"), "{said}");
    let file = volume.scratch.file("f", 3_000_000);
    volume.put(&file, "").good();
    for more in [&[][..], &["-v"]] {
        let status = run(weft().arg("status").args(more).arg(&volume.path));
        assert_eq!(status.status, 1);
        let text = String::from_utf8_lossy(&status.output).into_owned();
        assert!(text.contains("SHARED TARGETS") && text.contains("1 more loss"), "{text}");
    }
    for number in [5, 6] {
        let disk = volume.scratch.path.join(format!("more {number}"));
        run(weft().args(["target", "add"]).arg(&volume.path).arg(&disk)).good();
    }
    let text = String::from_utf8_lossy(&run(weft().arg("status").arg(&volume.path)).output).into_owned();
    assert!(text.contains("still has several") && text.contains("weft rebalance"), "{text}");
    run(weft().arg("rebalance").arg(&volume.path)).good();
    let text = String::from_utf8(run(weft().arg("status").arg(&volume.path)).good()).unwrap();
    assert!(text.contains("healthy") && !text.contains("SHARED") && text.contains("2 more losses"), "{text}");
    let got = volume.scratch.path.join("got");
    run(weft().arg("cp").arg(volume.at("f")).arg(&got)).good();
    assert!(std::fs::read(&got).unwrap() == std::fs::read(&file).unwrap());
}

#[test]
fn a_target_that_must_not_be_lost_is_named() {
    let (volume, said) = volume("rs:8+2", 4);
    assert!(said.contains("NONE may be lost"), "{said}");
    volume.put(volume.scratch.file("f", 3_000_000), "").good();
    let status = run(weft().args(["status", "--json"]).arg(&volume.path)).json();
    let lost_with: Vec<u64> = status["targets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["chunk_sets_lost_with_it"].as_u64().unwrap())
        .collect();
    assert_eq!((lost_with.iter().sum::<u64>(), &status["chunk_sets_sharing_targets"]), (2, &1.into()), "{status}");
    let text = String::from_utf8_lossy(&run(weft().arg("status").arg(&volume.path)).output).into_owned();
    for (number, lost) in lost_with.into_iter().enumerate() {
        let named = text.replace('\n', " ");
        let named: String = named.split_whitespace().collect();
        let disk: String = volume.scratch.disks[number].to_str().unwrap().split_whitespace().collect();
        assert_eq!(named.contains(&format!("survivesnolossof{disk}:")), lost > 0, "{text}");
    }
}

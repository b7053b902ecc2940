//! `weft sim`: a simulated cluster.

use crate::scratch::{Scratch, run, weft};
use std::fs;

const SMALL: &str =
    "[volume]\nsets = 300\n[[growth]]\nadd_stores = 4\n[failures]\nruns = 2\n[workload]\nseconds = 2.0\n";

#[test]
fn the_example_is_a_simulation() {
    let scratch = Scratch::new(0);
    let (file, page) = (scratch.path.join("cluster.toml"), scratch.path.join("sim.html"));
    let example = run(weft().args(["sim", "--example"])).good();
    fs::write(&file, &example).unwrap();
    let text = String::from_utf8(run(weft().arg("sim").arg(&file).args(["--seeds", "2", "--html"]).arg(&page)).good());
    let text = text.unwrap();
    for word in ["sets against the rule     0", "the least possible", "loss in a year", "by a Markov chain", "clients"]
    {
        assert!(text.contains(word), "{text}");
    }
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("<svg") && !page.contains("http"));
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let scratch = Scratch::new(0);
    let file = scratch.path.join("small.toml");
    fs::write(&file, SMALL).unwrap();
    let json = |more: &[&str]| run(weft().arg("sim").arg(&file).arg("--json").args(more)).good();
    let first = json(&["--threads", "1"]);
    assert!(first == json(&["--threads", "4"]) && first == json(&["--seed", "0"]));
    assert!(first != json(&["--seed", "1"]));
    let first: serde_json::Value = serde_json::from_slice(&first).unwrap();
    assert_eq!((&first["filled"]["chunks"], &first["years"]["years"]), (&2400.into(), &2.into()));
}

#[test]
fn what_cannot_be_simulated_is_told_in_one_line() {
    let scratch = Scratch::new(0);
    let file = scratch.path.join("bad.toml");
    for (text, status, word) in [
        ("[volume]\nkk = 3\n", 2, "kk"),
        ("[volume]\nsets = 99999999999\n", 2, "volume.sets"),
        ("[[growth]]\ndrain = \"nowhere\"\n", 2, "nowhere"),
    ] {
        fs::write(&file, text).unwrap();
        let told = run(weft().arg("sim").arg(&file)).failed(status);
        assert!(told.contains(word) && told.trim_end().lines().count() == 1, "{told}");
    }
    assert!(run(weft().arg("sim").arg(scratch.path.join("none"))).failed(1).contains("none"));
    fs::write(&file, SMALL).unwrap();
    let page = scratch.file("page.html", 10);
    let told = run(weft().arg("sim").arg(&file).arg("--html").arg(&page)).failed(1);
    assert!(told.contains("--force"), "{told}");
    let told = run(weft().arg("sim"));
    assert!(told.status == 2 && told.errors.contains("FILE.toml"), "{}", told.errors);
}

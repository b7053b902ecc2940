//! `weft model`: constants from a measurement, and predictions with them.

use crate::scratch::{Scratch, run, weft};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Rates of a made-up machine: microseconds a record and nanoseconds a byte, by step.
const FIXED: [f64; 7] = [20.0, 30.0, 0.0, 5.0, 1.0, 60.0, 100.0];
const BYTE: [f64; 7] = [0.1, 0.0, 0.0, 0.2, 0.3, 0.5, 4.0];

/// What `weft bench write-cost` would have written there, in 4+2, coded by the client.
fn result() -> Value {
    let point = |record: u64| {
        let (way, slave, sent) = if record <= 32 << 10 {
            ("inline", record as f64, 4.0 * record as f64)
        } else {
            ("stripe", record as f64 / 4.0, 1.5 * record as f64)
        };
        let r = record as f64;
        let sizes = [r, r, r, r, 2.0 * r, sent, slave];
        let mut counted = [0.0; 7];
        for step in 0..7 {
            let coded = way == "stripe" || !(3..=4).contains(&step);
            counted[step] = if coded { 10.0 * (FIXED[step] * 1e-6 + BYTE[step] * 1e-9 * sizes[step]) } else { 0.0 };
        }
        let wall: f64 = counted.iter().sum();
        json!({
            "code": "rs:4+2", "k": 4, "m": 2, "coding": "client", "record_bytes": record, "way": way, "count": 10,
            "rounds": [{ "wall": wall, "counted": counted, "kernel": 0.0 }],
        })
    };
    let sizes = [4096u64, 8192, 32_768, 65_536, 131_072, 1 << 20];
    let points: Vec<Value> = sizes.into_iter().map(point).collect();
    json!({
        "kind": "weft-write-cost", "version": 1, "date": "2026-11-25 12:00:00 UTC", "machine": "made up",
        "program": "0", "stores": 6, "link": { "bytes_per_second": null, "round_trip_seconds": 0.0 },
        "points": points,
    })
}

fn near(value: &Value, expected: f64) {
    let value = value.as_f64().unwrap();
    assert!((value - expected).abs() <= 1e-6 * expected.abs(), "{value} is not {expected}");
}

fn model(home: &Path, arguments: &[&str]) -> crate::scratch::Ended {
    run(weft().env("XDG_DATA_HOME", home).arg("model").args(arguments))
}

#[test]
fn constants_are_saved_for_the_machine_and_predict() {
    let scratch = Scratch::new(0);
    let home = scratch.path.join("data");
    let file = scratch.path.join("result.json");
    fs::write(&file, result().to_string()).unwrap();
    let file = file.to_str().unwrap();
    assert!(model(&home, &["predict"]).failed(1).contains("weft model calibrate"));

    let answer = model(&home, &["calibrate", file, "--json"]).json();
    let saved = Path::new(answer["saved"].as_str().unwrap());
    assert!(saved.starts_with(home.join("weft/model")) && saved.exists(), "{answer}");
    let text = String::from_utf8(model(&home, &["calibrate", file]).good()).unwrap();
    assert!(text.contains("made up, measured 2026-11-25") && text.contains("residual"), "{text}");

    // 196,608 bytes leave at 1.25e9 a second, beside the constants.
    let answer = model(&home, &["predict", "--net", "10G", "--round-trip-us", "50", "--json"]).json();
    let steps = &answer["serial"]["steps"];
    near(&steps["CT"], 20e-6 + 0.1e-9 * 131_072.0);
    near(&steps["MT"], 30e-6 + 50e-6);
    near(&steps["DD"], 60e-6 + 0.5e-9 * 196_608.0 + 196_608.0 / 1.25e9 + 150e-6);
    near(&steps["SP"], 100e-6 + 4e-9 * 32_768.0);
    assert_eq!(answer["constants"]["date"], "2026-11-25 12:00:00 UTC");
    assert_eq!(answer["serial"]["first_full"]["resource"], "store CPU");
    // The study: one round trip, and a link for each slave.
    let paper = model(&home, &["predict", "--net", "10G", "--round-trip-us", "50", "--paper", "--json"]).json();
    near(&paper["serial"]["steps"]["DD"], 60e-6 + 0.5e-9 * 196_608.0 + 32_768.0 / 1.25e9 + 50e-6);

    // A stream over a slow link gets what is left beside the parity.
    let slow = model(&home, &["predict", "--net", "100M", "--json"]).json();
    near(&slow["stream"]["bytes_per_second"], 100e6 / 8.0 * 4.0 / 6.0);
    assert_eq!(slow["stream"]["limit"], "client link");
    near(&slow["stream"]["first_full"]["clients"], 6.0);
    let text = String::from_utf8(model(&home, &["predict", "--net", "100M", "--record", "4k"]).good()).unwrap();
    assert!(text.contains("into the metadata") && text.contains("limited by the client link"), "{text}");

    assert!(model(&home, &["predict", "--coding", "server"]).failed(1).contains("--coding server"));
    assert!(model(&home, &["predict", "--coding", "auto"]).failed(2).contains("auto"));
    assert!(model(&home, &["predict", "--code", "rs:16+4", "--stores", "6"]).failed(2).contains("20 stores"));
}

#[test]
fn points_that_were_left_out_are_predicted() {
    let scratch = Scratch::new(0);
    let (home, file) = (scratch.path.join("data"), scratch.path.join("result.json"));
    let mut made = result();
    fs::write(&file, made.to_string()).unwrap();
    let name = file.to_str().unwrap();
    let answer = model(&home, &["check", name, "--json"]).json();
    assert_eq!(answer["points"].as_array().unwrap().len(), 6);
    assert!(answer["worst_error"].as_f64().unwrap() < 1e-6, "{answer}");
    // The smallest and the largest records of a way have others on one side only.
    let between = answer["points"].as_array().unwrap().iter().map(|point| point["interpolated"].as_bool().unwrap());
    assert_eq!(between.collect::<Vec<_>>(), [false, true, false, false, true, false]);
    assert_eq!(answer["left_out"][0]["interpolated"]["points"], 2);

    let text = String::from_utf8(model(&home, &["check", name, name]).good()).unwrap();
    assert!(text.contains("left out one point: 12 points") && text.contains("left out a size of records"), "{text}");
    assert!(text.contains("beyond the others: "), "{text}");

    // Constants of before, and a machine that takes twice as long since.
    let saved = scratch.path.join("model.json");
    model(&home, &["calibrate", name, "--out", saved.to_str().unwrap()]).good();
    for point in made["points"].as_array_mut().unwrap() {
        point["rounds"][0]["wall"] = (2.0 * point["rounds"][0]["wall"].as_f64().unwrap()).into();
    }
    fs::write(&file, made.to_string()).unwrap();
    let answer = model(&home, &["check", name, "--model", saved.to_str().unwrap(), "--json"]).json();
    near(&answer["median_error"], 0.5);
    let text = String::from_utf8(model(&home, &["check", name, "--model", saved.to_str().unwrap()]).good()).unwrap();
    assert!(text.contains("median error 50.0 %, worst 50.0 %") && !text.contains("left out"), "{text}");

    made["points"][0]["count"] = 0.into();
    fs::write(&file, made.to_string()).unwrap();
    assert!(model(&home, &["check", name]).failed(1).contains("nothing was written"));
    fs::write(&file, "{}").unwrap();
    assert!(model(&home, &["calibrate", name]).failed(1).contains("no result of weft bench write-cost"));
}

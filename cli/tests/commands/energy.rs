//! `weft energy`: figures that say where they come from, and a profile that costs are computed
//! with.

use crate::scratch::{Scratch, run, weft};
use std::fs;

/// A machine with measured powers, and coding as fast as reading and writing.
const PROFILE: &str = r#"{
  "machine": "a test", "date": "2026-11-21 18:30:00 UTC", "source": "meter: log.csv", "basis": "measured", "scope": "node",
  "constants": { "idle_watts": 90.0, "read_write_watts": 10.0, "coding_watts": 20.0 },
  "read_write_bytes_per_second": 5e8,
  "coding": [{ "code": "rs:160+80", "k": 160, "m": 80, "bytes_per_second": 1e9 }]
}"#;

#[test]
fn a_source_that_is_given_is_measured_and_the_model_never_is() {
    let scratch = Scratch::new(0);
    let readings = scratch.path.join("power.json");
    fs::write(&readings, r#"{"PowerWatts": {"Reading": 250}}"#).unwrap();
    let arguments = ["energy", "--seconds", "0.2", "--json", "--readings"];
    let answer = run(weft().args(arguments).arg(&readings)).json();
    assert_eq!(answer["used"], "IPMI/Redfish");
    let of = |name: &str| answer["sources"].as_array().unwrap().iter().find(|source| source["source"] == name).unwrap();
    assert_eq!(
        (&of("IPMI/Redfish")["basis"], of("IPMI/Redfish")["watts"].as_f64().unwrap().round()),
        (&"measured".into(), 250.0)
    );
    assert!(of("meter")["watts"].is_null() && of("meter")["refused"].as_str().unwrap().contains("--meter"));
    assert_eq!(of("model")["basis"], "modelled");

    fs::write(&readings, "nonsense").unwrap();
    let text = run(weft().args(["energy", "--seconds", "0.1", "--readings"]).arg(&readings)).good();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("Instantaneous power reading") && text.contains("assumed"), "{text}");
}

#[test]
fn a_site_pays_what_the_formulas_say() {
    let scratch = Scratch::new(0);
    let profile = scratch.path.join("profile.json");
    fs::write(&profile, PROFILE).unwrap();
    let cost = |more: &[&str]| run(weft().args(["energy", "cost", "--profile"]).arg(&profile).args(more));
    let answer = cost(&["--site-tb-per-month", "3000", "--years", "3", "--price", "0.1", "--json"]).json();
    assert_eq!(answer["user_bytes"], 108e15);
    let coded = &answer["coded"]["cost"];
    assert_eq!(coded["stored_bytes"], 162e15);
    // 108 PB read and 162 written are 135 PB at 500 MB/s: 2.7e8 s; coding 1.08e8 s.
    let joules = 90.0 * 3.78e8 + 10.0 * 2.7e8 + 20.0 * 1.08e8;
    let near = |value: &serde_json::Value, expected: f64| (value.as_f64().unwrap() / expected - 1.0).abs() < 1e-9;
    assert!(near(&coded["kwh"], joules / 3.6e6) && near(&coded["money"], joules / 3.6e7), "{coded}");
    assert!(near(&answer["coded"]["money_as_the_study_counts"], 1.5 * joules / 3.6e7));
    assert!(near(&answer["copied"]["cost"]["times"]["total_seconds"], 4.32e8));

    let text = String::from_utf8(cost(&["--size", "120PB", "--currency", "EUR"]).good()).unwrap();
    assert!(text.contains("180 PB") && text.contains("EUR") && text.contains("measured (meter: log.csv)"), "{text}");
    assert!(cost(&["--code", "rs:4+2"]).failed(2).contains("it knows rs:160+80"));
    fs::write(&profile, PROFILE.replace("90.0", "-90.0")).unwrap();
    assert!(cost(&[]).failed(1).contains("idle_watts"));
    fs::remove_file(&profile).unwrap();
    assert!(cost(&[]).failed(1).contains("weft energy calibrate"));
}

#[test]
fn a_small_data_set_costs_more_than_zero() {
    let scratch = Scratch::new(0);
    let profile = scratch.path.join("profile.json");
    fs::write(&profile, PROFILE).unwrap();
    let cost = |more: &[&str]| run(weft().args(["energy", "cost", "--profile"]).arg(&profile).args(more));
    // 40 GB read and 60 written are 50 GB at 500 MB/s: 100 s. Coding takes 40 s.
    let text = String::from_utf8(cost(&["--size", "40GB"]).good()).unwrap();
    let rows = ["0.004 kWh", "0.0035 kWh", "0.000278 kWh", "0.000222 kWh", "0.000428 USD"];
    assert!(rows.iter().all(|row| text.contains(row)) && !text.contains("0.00 "), "{text}");

    let coded = &cost(&["--size", "40000000003", "--json"]).json()["coded"];
    assert_eq!(coded["cost"]["stored_bytes"], 60_000_000_005.0);
    let figures = [&coded["cost"]["kwh"], &coded["cost"]["money"], &coded["money_as_the_study_counts"]];
    assert_eq!(figures.map(|figure| figure.as_f64().unwrap()), [0.004, 0.000_428, 0.000_642]);
    assert_eq!(coded["cost"]["split"]["io_joules"], 1000.0);
}

#[test]
fn calibration_writes_a_profile_that_says_what_was_not_measured() {
    let scratch = Scratch::new(0);
    let profile = scratch.path.join("profile.json");
    let calibrate = |more: &[&str]| {
        let arguments = ["energy", "calibrate", "--seconds", "0.1", "--scratch-bytes", "4MiB", "--scratch"];
        run(weft().args(arguments).arg(&scratch.path).arg("--out").arg(&profile).args(more))
    };
    assert!(calibrate(&["--code", "nonsense:1+1"]).failed(2).contains("nonsense"));
    assert!(!profile.exists());
    calibrate(&["--idle-watts", "50", "--core-watts", "5"]).good();
    assert!(calibrate(&[]).failed(1).contains("profile.json exists; give --force to replace it"));
    calibrate(&["--force"]).good();
    let written: serde_json::Value = serde_json::from_slice(&fs::read(&profile).unwrap()).unwrap();
    assert!(written["read_write_bytes_per_second"].as_f64().unwrap() > 0.0);
    assert_eq!(fs::read_dir(&scratch.path).unwrap().count(), 1, "only the profile stays");
    run(weft().args(["energy", "cost", "--profile"]).arg(&profile)).good();
}

/// The studies' experiments, tiny, so that they do not rot.
#[test]
fn the_experiments_have_all_their_rows() {
    let scratch = Scratch::new(0);
    let page = scratch.path.join("page.html");
    let arguments =
        ["bench", "archive", "--paper", "--quick", "--rounds", "1", "--json", "--peers", "/nonexistent", "--dir"];
    let answer = run(weft().args(arguments).arg(&scratch.path).arg("--html").arg(&page));
    assert_eq!(answer.status, 0, "{}", answer.errors);
    let answer = answer.json();
    let parts: Vec<u64> =
        answer["parts"].as_array().unwrap().iter().map(|row| row["parts"].as_u64().unwrap()).collect();
    assert_eq!(parts, [1, 2, 4, 8, 20, 40]);
    let modelled = |policy: &str| {
        let rows = answer["schedules"].as_array().unwrap();
        let row = rows.iter().find(|row| row["policy"] == policy && row["modelled"] == true).unwrap();
        row["finish"]["utilization"].as_f64().unwrap()
    };
    // The times of objects are measured: on a busy machine, bytes may seem to cost nothing, and
    // both are level then. `plan` compares the two with times that are given.
    assert!(modelled("demand") >= modelled("round-robin"), "{answer:#}");
    let shapes: Vec<&str> =
        answer["wide"].as_array().unwrap().iter().map(|row| row["shape"].as_str().unwrap()).collect();
    assert!(["160+80", "160+40", "160+32"].iter().all(|shape| shapes.contains(shape)), "{shapes:?}");
    let trees: Vec<u64> =
        answer["trees"].as_array().unwrap().iter().map(|row| row["files"].as_u64().unwrap()).collect();
    assert_eq!(trees, [2, 4, 40]);
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("energy, modelled") && page.matches("<svg").count() >= 10 && !page.contains("http"));
    assert_eq!(fs::read_dir(&scratch.path).unwrap().count(), 1, "only the page stays");
    let refused = run(weft().args(arguments).arg(&scratch.path).arg("--html").arg(scratch.path.join("page.html")));
    assert!(refused.status == 1 && refused.errors.contains("give --force"), "{}", refused.errors);
}

//! `weft bench write-cost`, and the model of what it measured.

use crate::lab::possible;
use crate::scratch::{Scratch, run, weft};
use std::fs;

#[test]
fn the_steps_of_records_are_measured_and_make_a_model() {
    if !possible("the_steps_of_records_are_measured_and_make_a_model") {
        return;
    }
    let scratch = Scratch::new(0);
    let (place, file) = (scratch.path.join("try"), scratch.path.join("result.json"));
    fs::create_dir(&place).unwrap();
    let bench = |more: &[&str]| {
        let mut command = weft();
        command.args(["bench", "write-cost", "--quick", "--code", "rs:2+1", "--stores", "3", "--dir"]).arg(&place);
        run(command.arg("--json-file").arg(&file).args(more))
    };
    let result = bench(&["--json"]).json();
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "nothing is left");
    let written: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(written, result);
    let points = result["points"].as_array().unwrap();
    let ways: Vec<_> = points.iter().map(|point| point["way"].as_str().unwrap()).collect();
    assert_eq!(ways, ["inline", "inline", "inline", "stripe", "stripe", "stripe"]);
    for point in points {
        let round = &point["rounds"][0];
        let step = |number: usize| round["counted"][number].as_f64().unwrap();
        // DT is of Masters, and what is not in a stripe is not coded.
        for (number, code) in ["CT", "MT", "DT", "MP", "PC", "DD", "SP"].iter().enumerate() {
            let none = number == 2 || point["way"] == "inline" && (3..=4).contains(&number);
            assert!(none || step(number) > 0.0, "{code}: {point}");
        }
        let counted: f64 = (0..7).map(step).sum();
        assert!(step(2) == 0.0 && counted <= round["wall"].as_f64().unwrap(), "nothing is counted twice: {point}");
    }
    assert!(bench(&[]).failed(1).contains("exists; give --force"));
    let text = String::from_utf8(bench(&["--force"]).good()).unwrap();
    assert!(text.contains("sum/wall") && text.contains("the metadata") && text.contains("1.0 MiB"), "{text}");

    let model = scratch.path.join("model.json");
    run(weft().args(["model", "calibrate"]).arg(&file).arg("--out").arg(&model)).good();
    run(weft().args(["model", "check"]).arg(&file)).good();
    let predicted = run(weft().args(["model", "predict", "--net", "10G", "--json", "--model"]).arg(&model)).json();
    assert!(predicted["serial"]["seconds"].as_f64().unwrap() > 0.0, "{predicted}");
}

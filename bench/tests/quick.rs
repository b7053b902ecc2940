//! The benchmarks themselves, run tiny so that they do not rot.

use bench::{Args, Outcome, Section};

fn quick() -> Args {
    Args { quick: true, rounds: 2, ..Args::default() }
}

#[test]
fn every_section_gives_figures_json_text_and_charts() {
    let report = bench::measure(&quick()).expect("measured");
    assert_eq!(report.lanes.len(), 1);
    let tables = &report.lanes[0].tables;
    let ids: Vec<&str> = tables.iter().map(|t| t.id.as_str()).collect();
    assert_eq!(
        ids,
        [
            "gluster",
            "systematic",
            "cached",
            "regions",
            "overlap",
            "memory",
            "memory-all",
            "cores",
            "wide",
            "decode",
            "bitmatrix",
            "bitmatrix-memory",
            "kernels",
            "file"
        ]
    );
    for table in tables {
        assert!(!table.rows.is_empty(), "{}", table.id);
        for row in &table.rows {
            for cell in &row.cells {
                match &cell.outcome {
                    Outcome::Figure(f) => assert!(f.min > 0.0 && f.min <= f.median && f.median <= f.max, "{cell:?}"),
                    Outcome::Refused { refused } => assert!(cell.role == bench::Role::Peer, "{}: {refused}", row.label),
                }
            }
        }
    }
    let json: serde_json::Value = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
    assert_eq!(json["lanes"][0]["tables"][1]["rows"][0]["cells"][0]["column"], "weft rs");
    assert!(json["machine"]["bandwidth"][0]["figure"]["median"].as_f64().unwrap() > 0.0);

    let html = bench::html(&report);
    assert!(html.starts_with("<!doctype html>") && html.matches("<svg").count() > 50, "charts are there");
    assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
    assert!(!html.contains("http://") && !html.contains("https://"), "the page needs no other file");

    let text = bench::text(&report);
    assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    assert!(text.contains("Gluster's table"));
}

#[test]
fn peers_that_are_missing_or_broken_are_named_and_nothing_else() {
    let folder = std::env::temp_dir().join(format!("weft-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let fake = |name: &str, script: &str| {
        use std::os::unix::fs::PermissionsExt;
        let path = folder.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    fake("isal", "read hello; echo ok isal 1 codes=rs kernel=auto; read job; exit 3");
    fake("zfec", "echo what");
    let args = Args { section: vec![Section::Wide], peers: Some(folder.clone()), ..quick() };
    let report = bench::measure(&args).expect("measured");
    std::fs::remove_dir_all(&folder).unwrap();

    let lane = &report.lanes[0];
    assert!(lane.absent.contains(&"not installed: klauspost (build with cargo xtask peers)".to_owned()), "{lane:?}");
    assert!(lane.absent.iter().any(|a| a.starts_with("does not work: zfec")), "{lane:?}");
    let row = &lane.tables[0].rows[0];
    assert!(row.figure("weft rs").is_some() && row.figure("ISA-L rs").is_none());
    assert!(bench::text(&report).contains("No figure: ISA-L rs: it ended early"), "{}", bench::text(&report));
}

#[test]
fn the_command_repeats_the_measurement() {
    let args = Args { section: vec![Section::Table, Section::Decode], ..quick() };
    assert_eq!(args.command(), "weft bench codes --section table,decode --rounds 2 --quick --kernel auto");
}

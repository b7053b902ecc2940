//! The rounds: every workload in every directory, taking turns.

use super::args::{Args, Target, Workload};
use super::cache::Cold;
use super::content::Content;
use super::meter::{Doing, Fault, Meter};
use super::report::{Failure, Ledger, Place, Report};
use super::{account, metadata, random, sequential};
use std::fs;
use std::io::Write;

/// Measures everything that was asked for.
pub fn measure(args: &Args) -> Result<Report, String> {
    let servers = servers(args)?;
    let served: Vec<u32> = servers.iter().flatten().copied().collect();
    let effort = args.effort();
    let content = Content::new();
    let cold = Cold::available();
    let workloads = args.workloads();
    let mut ledger = Ledger::default();
    let mut failures: Vec<Failure> = vec![];
    // A number of its own for each turn's directory: one that could not be removed does no harm.
    let mut turns = 0;
    for round in 0..u64::from(args.rounds) {
        for &workload in &workloads {
            for turn in 0..args.targets.len() {
                // No target is always first, since a disk may be slower after another one's writes.
                let at = (turn + round as usize) % args.targets.len();
                let target = &args.targets[at];
                if failures.iter().any(|f| f.workload == workload.name() && f.label == target.label) {
                    continue;
                }
                let directory = target.directory.join(format!("weft-bench-fs-{}-{turns}", std::process::id()));
                turns += 1;
                let server = servers[at];

                let mut meter = Meter {
                    directory,
                    effort,
                    content: &content,
                    cold,
                    round,
                    server,
                    servers: &served,
                    samples: vec![],
                };
                progress(round, args.rounds, workload, target);
                let done = one(workload, &mut meter);
                ledger.add(workload, at, meter.samples);
                if let Err(fault) = done {
                    let label = target.label.clone();
                    failures.push(Failure { workload: workload.name(), label, round: round + 1, fault });
                }
            }
        }
    }
    let place = |(target, server): (&Target, &Option<u32>)| Place::new(target, server.and_then(account::peak_memory));
    let places = args.targets.iter().zip(&servers).map(place).collect();
    Ok(Report::new(args, cold, places, ledger.rows(args), failures))
}

/// The process that serves each directory, where it is known.
fn servers(args: &Args) -> Result<Vec<Option<u32>>, String> {
    for (at, target) in args.targets.iter().enumerate() {
        if !target.directory.is_dir() {
            return Err(format!("{} is not a directory", target.directory.display()));
        }
        if args.targets[..at].iter().any(|other| other.label == target.label) {
            return Err(format!("two directories are called {}; write LABEL=DIR", target.label));
        }
    }
    for pid in &args.pid {
        if !args.targets.iter().any(|target| target.label == pid.label) {
            return Err(format!("no directory is called {}", pid.label));
        }
        if account::peak_memory(pid.pid).is_none() {
            return Err(format!("there is no process {}", pid.pid));
        }
    }
    let of = |target: &Target| args.pid.iter().find(|pid| pid.label == target.label).map(|pid| pid.pid);
    Ok(args.targets.iter().map(of).collect())
}

/// One workload in a directory of its own, which goes in any case.
fn one(workload: Workload, meter: &mut Meter) -> Result<(), Fault> {
    meter.settle()?;
    fs::create_dir(&meter.directory).doing("mkdir")?;
    let done = match workload {
        Workload::SeqWrite => sequential::write(meter),
        Workload::Dd => sequential::dd(meter),
        Workload::SeqRead => sequential::read(meter),
        Workload::RandWrite => random::write(meter),
        Workload::RandWriteSync => random::write_sync(meter),
        Workload::RandRead => random::read(meter),
        Workload::SmallFiles => metadata::small_files(meter),
        Workload::BigDirectory => metadata::big_directory(meter),
    };
    let removed = fs::remove_dir_all(&meter.directory).doing("cleaning up");
    done.and(removed)
}

fn progress(round: u64, rounds: u32, workload: Workload, target: &Target) {
    let line = format!("round {}/{rounds}: {} in {}\n", round + 1, workload.name(), target.label);
    let _ = std::io::stderr().write_all(line.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        args: Args,
    }

    fn measured(words: &[&str]) -> Result<Report, String> {
        measure(&Program::parse_from(["fs", "--quick", "--rounds", "2"].iter().chain(words)).args)
    }

    #[test]
    fn every_workload_gives_figures_and_leaves_nothing() {
        let directory = std::env::temp_dir().join(format!("weft-fs-test-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let (place, pid) = (format!("a={}", directory.display()), format!("a={}", std::process::id()));
        let report = measured(&[&place, &format!("b={}", directory.display()), "--pid", &pid]).unwrap();
        assert!(report.failures.is_empty(), "{:?}", report.failures);
        assert!(report.rows.len() >= 20, "{:?}", report.rows);
        for row in &report.rows {
            let first = row.cells[0].as_ref().unwrap();
            assert!(first.figure.samples.len() == 2 && first.figure.min > 0.0, "{row:?}");
            assert!(first.server.is_some() == (row.unit != "ratio"), "{row:?}");
            assert!(row.cells[1].as_ref().unwrap().server.is_none(), "{row:?}");
        }
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        fs::remove_dir(&directory).unwrap();
        assert!(super::super::text::report(&report).contains("b/a"));
    }

    #[test]
    fn what_fails_is_named_with_its_errno_and_the_rest_goes_on() {
        let good = format!("good={}", std::env::temp_dir().display());
        let report = measured(&[&good, "bad=/proc", "--only", "dd,big-directory"]).unwrap();
        let named: Vec<_> = report.failures.iter().map(|f| (f.workload.as_str(), f.label.as_str(), f.round)).collect();
        assert_eq!(named, [("dd", "bad", 1), ("big-directory", "bad", 1)]);
        assert!(report.failures.iter().all(|failure| failure.fault.errno.is_some()));
        assert!(report.rows.iter().all(|row| row.cells[0].is_some() && row.cells[1].is_none()));
        assert!(measured(&[&good, &good]).is_err() && measured(&[&good, "--pid", "other=1"]).is_err());
    }
}

//! The command line.

use crate::broken::Broken;
use crate::{check, failovers, scenario};
use std::collections::VecDeque;
use std::ops::Range;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use world::Options;

const HELP: &str = "\
simulate --seed N [--trace] [--takeovers] [--broken RULE]
                                                 one seed; --trace prints every event
simulate --seeds A..B [--minutes N] [--jobs N] [--takeovers] [--broken RULE]
                                                 all of these, each in a process of its own, for so long at most;
                                                 with --takeovers by several metadata servers, too

simulate --failovers N [--from SEED] [--minutes N] [--jobs N] [--broken RULE]
simulate --failovers 1 --seed N [--trace] [--broken RULE]
                                                 takeovers between several metadata servers until there were N, or
                                                 those of one seed

RULE is a rule that the simulated ways break: once, sync, locks, recalls, disks; with --failovers: once, sync, fences,
leases, witnesses, clocks. The checks have to find it.
";

/// A run with more choices than this does not come to an end.
const MAX_STEPS: u64 = 30_000_000;
/// A run of a seed takes seconds. One that takes this long hangs.
const RUN_TIMEOUT: Duration = Duration::from_secs(600);
/// Pause between looks at the processes of the seeds.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

struct Arguments {
    seed: Option<u64>,
    seeds: Option<Range<u64>>,
    failovers: Option<u64>,
    /// The first seed for these.
    from: u64,
    time: Duration,
    jobs: usize,
    trace: bool,
    takeovers: bool,
    broken: Broken,
}

fn arguments() -> Result<Arguments, String> {
    let mut found = Arguments {
        seed: None,
        seeds: None,
        failovers: None,
        from: 1,
        time: Duration::MAX,
        jobs: std::thread::available_parallelism().map_or(2, usize::from),
        trace: false,
        takeovers: false,
        broken: Broken::Nothing,
    };
    let mut rest = std::env::args().skip(1);
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--seed" => found.seed = Some(number(&value()?)?),
            "--seeds" => {
                let text = value()?;
                let (first, end) = text.split_once("..").ok_or_else(|| format!("{text}: as in 1..100"))?;
                found.seeds = Some(number(first)?..number(end)?);
            }
            "--failovers" => found.failovers = Some(number(&value()?)?),
            "--from" => found.from = number(&value()?)?,
            "--minutes" => {
                let text = value()?;
                let minutes = text.parse::<f64>().ok().filter(|minutes| (0.0..=100_000.0).contains(minutes));
                found.time =
                    Duration::from_secs_f64(60.0 * minutes.ok_or_else(|| format!("{text}: from 0 to 100000"))?);
            }
            "--jobs" => found.jobs = number(&value()?)?.clamp(1, 256) as usize,
            "--trace" => found.trace = true,
            "--takeovers" => found.takeovers = true,
            "--broken" => found.broken = value()?.parse()?,
            other => return Err(format!("{other}: no such option\n{HELP}")),
        }
    }
    Ok(found)
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number"))
}

pub fn main() -> ExitCode {
    let done = arguments().and_then(|arguments| match (arguments.failovers, arguments.seed, arguments.seeds.clone()) {
        (None, Some(seed), None) => Ok(one(seed, &arguments)),
        (None, None, Some(seeds)) => many(seeds, &arguments),
        (Some(_), Some(seed), None) => {
            failovers::one(seed, arguments.trace, arguments.broken);
            Ok(true)
        }
        (Some(count), None, None) => {
            let Arguments { from, jobs, time, broken, .. } = arguments;
            failovers::until(count, from, jobs, time, &name(broken))
        }
        _ => Err(HELP.into()),
    });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("simulate: {why}");
            ExitCode::from(2)
        }
    }
}

/// Runs one seed in this process. Returns whether all was right.
fn one(seed: u64, arguments: &Arguments) -> bool {
    let options = Options { seed, loud: arguments.trace, most_steps: MAX_STEPS };
    let (history, mut wrong, trace) = world::run(options, || {
        let (history, wrong) = scenario::run(arguments.broken, arguments.takeovers);
        (history, wrong, world::trace())
    });
    // The checks are outside of the world: nothing runs beside them.
    wrong.extend(check::all(&history));
    let done = [
        (history.namings.len(), "names"),
        (history.writes.len(), "writes"),
        (history.reads.len(), "reads"),
        (history.sections.len(), "counts"),
        (history.appends.len(), "appends"),
        (history.cuts.len(), "truncations"),
        (history.syncs.len(), "syncs"),
        (history.deaths.len(), "deaths of the server"),
    ];
    let done: Vec<String> = done.iter().map(|(count, what)| format!("{count} {what}")).collect();
    println!("seed {seed}: {}; {} steps, trace {:016x}", done.join(", "), trace.1, trace.0);
    wrong.iter().for_each(|line| println!("WRONG: {line}"));
    // Threads of the run are left; nothing of them is to run.
    wrong.is_empty()
}

/// Runs seeds, each in a process of its own. Returns whether all were right.
fn many(seeds: Range<u64>, arguments: &Arguments) -> Result<bool, String> {
    let own = std::env::current_exe().map_err(|why| format!("this program: {why}"))?;
    let begun = Instant::now();
    let takeovers: &[&str] = if arguments.takeovers { &["--takeovers"] } else { &[] };
    let mut next = seeds.clone();
    let mut running: VecDeque<(u64, Instant, Child)> = VecDeque::new();
    let (mut ran, mut failed) = (0, Vec::new());
    loop {
        while running.len() < arguments.jobs && begun.elapsed() < arguments.time && failed.is_empty() {
            let Some(seed) = next.next() else { break };
            let mut command = Command::new(&own);
            command.args(["--seed", &seed.to_string()]).args(takeovers).args(name(arguments.broken));
            let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            running.push_back((seed, Instant::now(), child.map_err(|why| format!("it does not start: {why}"))?));
        }
        let Some((seed, since, mut child)) = running.pop_front() else { break };
        match child.try_wait().map_err(|why| why.to_string())? {
            Some(status) => {
                ran += 1;
                if !status.success() {
                    failed.push(seed);
                }
            }
            None if since.elapsed() > RUN_TIMEOUT => {
                _ = child.kill().and_then(|()| child.wait());
                println!("seed {seed} hangs");
                failed.push(seed);
            }
            None => {
                running.push_back((seed, since, child));
                sleep(POLL_INTERVAL);
            }
        }
    }
    let (count, took) = (failed.len(), begun.elapsed().as_secs_f64());
    println!("{ran} seeds from {seeds:?} in {took:.0} s, {count} wrong");
    failed.sort_unstable();
    for seed in &failed {
        println!("again: cargo xtask simulate --seed {seed} {}", takeovers.concat());
    }
    Ok(failed.is_empty())
}

/// The arguments for a broken rule.
fn name(broken: Broken) -> Vec<String> {
    let found = crate::broken::ALL.iter().find(|(_, other)| *other == broken);
    found.map_or_else(Vec::new, |(name, _)| vec!["--broken".into(), (*name).into()])
}

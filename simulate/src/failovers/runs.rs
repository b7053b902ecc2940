//! Runs of seeds until there were enough failovers.

use super::figures::Figures;
use super::scenario;
use crate::broken::Broken;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use world::Options;

/// A run with more choices than this does not come to an end.
const MAX_STEPS: u64 = 100_000_000;
/// A run takes seconds. One that takes this long hangs.
const RUN_TIMEOUT: Duration = Duration::from_secs(600);
/// Pause between looks at the processes of the seeds.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Seeds that are wrong are printed, up to this number; then it ends.
const MAX_WRONG: usize = 5;

/// Runs one seed in this process, which ends when it is wrong.
pub fn one(seed: u64, loud: bool, broken: Broken) {
    let options = Options { seed, loud, most_steps: MAX_STEPS };
    let (figures, trace) = world::run(options, || (scenario::run(broken), world::trace()));
    println!("seed {seed}: {} failovers; {} steps, trace {:016x}", figures.failovers(), trace.1, trace.0);
    print!("{figures}");
}

/// Runs seeds from this one on, each in a process of its own, until there were so many failovers.
/// Returns whether all were right.
///
/// # Errors
/// When a process cannot be started.
pub fn until(wanted: u64, first: u64, jobs: usize, time: Duration, broken: &[String]) -> Result<bool, String> {
    let own = std::env::current_exe().map_err(|why| format!("this program: {why}"))?;
    let (begun, mut next, mut ran) = (Instant::now(), first, 0);
    let (mut running, mut figures, mut wrong) = (Vec::<(u64, Instant, Child)>::new(), Figures::default(), Vec::new());
    loop {
        let goes_on = figures.failovers() < wanted && wrong.len() < MAX_WRONG && begun.elapsed() < time;
        while goes_on && running.len() < jobs {
            let mut command = Command::new(&own);
            command.args(["--failovers", "1", "--seed", &next.to_string()]).args(broken);
            let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
            running.push((next, Instant::now(), child.map_err(|why| format!("it does not start: {why}"))?));
            next += 1;
        }
        if running.is_empty() {
            break;
        }
        let mut left = Vec::new();
        for (seed, since, mut child) in running {
            match child.try_wait().map_err(|why| why.to_string())? {
                Some(status) => {
                    ran += 1;
                    let said = child.wait_with_output().map_err(|why| why.to_string())?.stdout;
                    figures.take(&Figures::read(&String::from_utf8_lossy(&said)));
                    if !status.success() {
                        wrong.push(seed);
                    }
                }
                None if since.elapsed() > RUN_TIMEOUT => {
                    _ = child.kill().and_then(|()| child.wait());
                    println!("seed {seed} hangs");
                    wrong.push(seed);
                }
                None => left.push((seed, since, child)),
            }
        }
        running = left;
        sleep(POLL_INTERVAL);
    }
    let took = begun.elapsed().as_secs_f64();
    println!(
        "{} failovers in {ran} seeds from {first} on, {took:.0} s, {} seeds wrong",
        figures.failovers(),
        wrong.len()
    );
    print!("{figures}");
    wrong.sort_unstable();
    for seed in &wrong {
        println!("again: cargo xtask simulate --failovers 1 --seed {seed} --trace");
    }
    Ok(wrong.is_empty())
}

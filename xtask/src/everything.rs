//! `cargo xtask test`: every test. Optional parts (peers, MPI, fuzzing, mounts) are used if they
//! are available, and named if they are not.
//!
//! What waits runs beside what computes: the tests run while the rest is compiled, the fuzz targets
//! are compiled while tests run, and the seeds of the simulation run beside servers and clients.

use crate::{build_peers, cargo, fuzz, look_at_mir, mir, monitoring, mpi, optional, python, root, s3};
use crate::{simulate, suite, torture, weft};
use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Everything that is tested; `weft-mpi` is added where MPI is.
const ALL: [&str; 6] = ["--release", "--workspace", "--exclude", "weft-mpi", "--features", "weft-csi/csi"];
const ALL_WITH_MPI: [&str; 4] = ["--release", "--workspace", "--features", "weft-mpi/mpi,weft-csi/csi"];
/// The kernels' own tests once more: with assertions, and not optimised, or compiling them takes
/// minutes. All others run the kernels that users run.
const KERNELS_WITH_ASSERTIONS: [&str; 9] = [
    "--release",
    "-p",
    "weft-gf",
    "--config",
    "profile.release.package.weft-gf.debug-assertions=true",
    "--config",
    "profile.release.package.weft-gf.overflow-checks=true",
    "--config",
    "profile.release.package.weft-gf.opt-level=0",
];

/// Runs everything, and says what was skipped and why. A step that fails does not keep the others
/// from being run, as a run takes many minutes; what does not compile does.
///
/// # Errors
/// All that failed.
pub fn test() -> Result<(), String> {
    let (root, run) = (root(), Run::new());
    run.step("peers", || build_peers().map(|missing| run.skip(missing)));
    let mpi = mpi::ready();
    let all = if mpi.is_ok() { &ALL_WITH_MPI[..] } else { &ALL[..] };
    run.skip(mpi.err().map(|why| ("weft-mpi, the archive encoder under MPI".into(), why)));
    std::thread::scope(|scope| {
        // What comes from elsewhere comes meanwhile. The step that needs it says what did not.
        scope.spawn(|| [python::prepare, s3::prepare].map(|prepare| prepare(&root)));
        let fuzzers = OnceLock::new();
        let library = || {
            // The library that Python loads. All below it is compiled by then.
            cargo(&[&["build", "--lib", "--tests"], all].concat(), &suite::as_users())?;
            let _ = fuzzers.set(scope.spawn(|| fuzz::build(&root, "none", false)));
            Ok(())
        };
        let builds = [(" with assertions", KERNELS_WITH_ASSERTIONS.to_vec()), ("", [&["--tests"], all].concat())];
        // Most tests wait for servers and disks, and leave the processors to the compiler.
        let at_once = suite::processors() + 1;
        run.step("compiling, and tests", || suite::build_and_run(&root, &builds, at_once, library));
        let Some(fuzzers) = fuzzers.into_inner() else { return };
        let beside = scope.spawn(|| users(&root, &run));
        // The same packages with the same features, so that nothing is compiled again.
        let documented = [&["test", "--doc"], all].concat();
        run.step("tests in documentation", || cargo(&documented, &suite::as_users()));
        run.step("simulation", || simulate::test(&root));
        beside.join().expect("it does not panic");
        // Longer than a build for speed would need, as this one is slower.
        let fuzzed = || fuzz::run(&root, fuzzers.join().expect("it does not panic")?, 15, "none");
        run.step("coverage-guided fuzzing", fuzzed);
    });
    run.end()
}

/// What users have, by servers and clients.
fn users(root: &Path, run: &Run) {
    match mir::not_needed() {
        Some(why) => run.skip([("looking for values that are freed twice".into(), why)]),
        None => run.step("looking for values that are freed twice", || look_at_mir(&root.join("target/release/deps"))),
    }
    run.step("torture of a volume", || torture_for_a_minute(None));
    run.step("torture of a cluster", || torture_for_a_minute(Some("--cluster")));
    run.step("S3 clients", || s3::check(root, &weft()));
    run.step("Python", || python::check(root, &weft()));
    run.step("alert rules", || monitoring::check(root));
}

fn torture_for_a_minute(kind: Option<&'static str>) -> Result<(), String> {
    within(Duration::from_secs(900), "torture", move || {
        let (folder, weft) = (root().join("target/torture"), weft());
        let path = |path: &Path| path.to_str().map(str::to_owned).ok_or("the project's path is not UTF-8");
        let arguments = [&path(&folder)?, "--minutes", "1", "--weft", &path(&weft)?];
        torture::run(&root(), &[arguments.as_slice(), kind.as_slice()].concat())
    })
}

/// Runs the work. If it takes longer than it may, it hangs, and its thread is left behind.
fn within(
    limit: Duration,
    what: &str,
    work: impl FnOnce() -> Result<(), String> + Send + 'static,
) -> Result<(), String> {
    let (sender, done) = channel();
    std::thread::spawn(move || sender.send(work()));
    done.recv_timeout(limit).unwrap_or_else(|_| Err(format!("{what} did not end within {} s", limit.as_secs())))
}

/// What was run, and how it ended.
struct Run {
    begun: Instant,
    steps: Mutex<Vec<(&'static str, Duration)>>,
    skipped: Mutex<Vec<String>>,
    failed: Mutex<Vec<String>>,
}

impl Run {
    fn new() -> Self {
        Self { begun: Instant::now(), steps: Mutex::default(), skipped: Mutex::default(), failed: Mutex::default() }
    }

    /// Runs a step. What is not possible here is skipped.
    fn step(&self, name: &'static str, work: impl FnOnce() -> Result<(), String>) {
        let start = Instant::now();
        let done = work();
        self.steps.lock().expect(UNHURT).push((name, start.elapsed()));
        match optional(name, done) {
            Ok(skipped) => self.skipped.lock().expect(UNHURT).extend(skipped),
            Err(why) => {
                println!("FAILED: {name}: {why}");
                self.failed.lock().expect(UNHURT).push(why);
            }
        }
    }

    /// Notes what is skipped, each with the reason.
    fn skip(&self, what: impl IntoIterator<Item = (String, String)>) {
        self.skipped.lock().expect(UNHURT).extend(what.into_iter().map(|(what, why)| format!("{what} ({why})")));
    }

    /// Says how long each step took, also when one failed, and what was skipped.
    fn end(self) -> Result<(), String> {
        let [skipped, failed] = [self.skipped, self.failed].map(|list| list.into_inner().expect(UNHURT));
        for (step, took) in self.steps.into_inner().expect(UNHURT).iter().chain([&("all", self.begun.elapsed())]) {
            println!("{:6} s  {step}", took.as_secs());
        }
        skipped.iter().for_each(|what| println!("skipped: {what}"));
        if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
    }
}

/// Why no lock is poisoned.
const UNHURT: &str = "no step panics";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_fail_are_all_named_and_others_go_on() {
        let run = Run::new();
        let ran = Mutex::new(Vec::new());
        let step = |name, done: Result<(), &str>| {
            run.step(name, || {
                ran.lock().unwrap().push(name);
                done.map_err(str::to_owned)
            });
        };
        step("first", Err("one is wrong"));
        step("second", Err("not possible here: no such program"));
        step("third", Err("two are wrong"));
        step("fourth", Ok(()));
        assert_eq!(*ran.lock().unwrap(), ["first", "second", "third", "fourth"]);
        assert_eq!(*run.skipped.lock().unwrap(), ["second (not possible here: no such program)"]);
        assert_eq!(run.end(), Err("one is wrong; two are wrong".into()));
    }
}

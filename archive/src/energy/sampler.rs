//! Reads instruments during a job and gives, in the end, an account of the energy by phase.
//!
//! A thread reads each instrument when it is due and sleeps otherwise. An instrument that fails
//! once is refused for the whole job, with the reason: a figure with a gap in it is not shown.

use super::choice::Choice;
use super::curve::Curve;
use super::model::Model;
use super::source::Source;
use crate::report::Phase;
use plan::energy::{Account, Basis, Constants, PhaseEnergy, Profile, Scope, Split, Times, attribute};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use volume::{lock, unpoisoned};

/// The time at which something began.
#[derive(Clone, Copy, Debug)]
struct Moment {
    /// Seconds since 1970, by a clock that does not jump during the job.
    unix: f64,
    /// Processor time of this process, in seconds.
    cpu: f64,
}

/// A clock of seconds since 1970 that does not jump.
#[derive(Clone, Copy)]
struct Clock {
    unix: f64,
    began: Instant,
}

impl Clock {
    fn start() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        Self { unix, began: Instant::now() }
    }

    fn now(&self) -> f64 {
        self.unix + self.began.elapsed().as_secs_f64()
    }
}

/// An instrument that is being read.
struct Watched {
    source: Box<dyn Source>,
    asked: bool,
    curve: Result<Curve, String>,
    due: f64,
}

impl Watched {
    fn ask(&mut self, now: f64) {
        self.due = now + self.source.period().as_secs_f64();
        if let Ok(curve) = &mut self.curve
            && let Err(why) = self.source.read(now).and_then(|reading| curve.add(now, reading))
        {
            self.curve = Err(why);
        }
    }
}

/// What the thread and the job share.
struct Shared {
    watched: Mutex<(Vec<Watched>, bool)>,
    stop: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, (Vec<Watched>, bool)> {
        lock(&self.watched)
    }
}

/// Reads instruments during a job.
pub struct Sampler {
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
    clock: Clock,
    /// Where each phase began.
    marks: Vec<(String, Moment)>,
    model: Model,
    profile: Option<Profile>,
    /// Instruments that were requested and are not available.
    refused: Vec<String>,
}

/// What a sampler knows at the end of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// For each scope the account of the best instrument, and the model's.
    pub accounts: Vec<Account>,
    /// The phases with their times, in the order in which they first began.
    pub phases: Vec<Phase>,
    /// Instruments without an account, and why.
    pub refused: Vec<String>,
}

impl Sampler {
    /// Starts to read the instruments, in the job's first phase.
    pub fn start(choice: &Choice, phase: &str) -> Self {
        let clock = Clock::start();
        let mut refused = vec![];
        let mut watched = vec![];
        for found in choice.find() {
            match found.source {
                Ok(source) => {
                    watched.push(Watched { source, asked: found.asked, curve: Ok(Curve::default()), due: 0.0 })
                }
                Err(why) if found.asked => refused.push(format!("{}: {why}", found.name)),
                Err(_) => {}
            }
        }
        let now = clock.now();
        watched.iter_mut().for_each(|watched| watched.ask(now));
        let shared = Arc::new(Shared { watched: Mutex::new((watched, false)), stop: Condvar::new() });
        let thread = {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name("energy".into()).spawn(move || watch(&shared, clock)).ok()
        };
        let (model, profile) = (choice.model.clone(), choice.profile.clone());
        let mut sampler = Self { shared, thread, clock, marks: vec![], model, profile, refused };
        sampler.phase(phase);
        sampler
    }

    /// Begins another phase, or resumes one that began before.
    pub fn phase(&mut self, name: &str) {
        self.marks.push((name.to_owned(), self.now()));
    }

    fn now(&self) -> Moment {
        Moment { unix: self.clock.now(), cpu: cpu_seconds() }
    }

    /// Ends the sampler and returns the accounts. The times that the job spent on I/O and on
    /// coding, summed over its workers, divide the energy among its causes.
    pub fn finish(mut self, io_seconds: f64, coding_seconds: f64) -> Finished {
        let end = self.now();
        self.end();
        let first = self.marks[0].1;
        let times = Times { total_seconds: end.unix - first.unix, io_seconds, coding_seconds };
        let mut refused = std::mem::take(&mut self.refused);
        let mut accounts: Vec<Account> = vec![];
        for watched in &mut self.shared.lock().0 {
            let scope = watched.source.scope();
            if accounts.iter().any(|account| account.scope == scope) {
                let failed = watched.curve.as_ref().err().filter(|_| watched.asked);
                refused.extend(failed.map(|why| format!("{}: {why}", watched.source.name())));
                continue;
            }
            watched.ask(end.unix);
            match self.account(watched, end, &times) {
                Ok(account) => accounts.push(account),
                Err(why) if watched.asked || scope != Scope::Gpu => {
                    refused.push(format!("{}: {why}", watched.source.name()));
                }
                Err(_) => {}
            }
        }
        let phases = self.phases(end);
        accounts.push(self.modelled(&phases, &times));
        Finished { accounts, phases, refused }
    }

    fn account(&self, watched: &Watched, end: Moment, times: &Times) -> Result<Account, String> {
        let curve = watched.curve.as_ref().map_err(Clone::clone)?;
        let joules = curve.between(self.marks[0].1.unix, end.unix)?;
        let mut phases: Vec<PhaseEnergy> = vec![];
        for (name, from, to) in self.intervals(end) {
            let joules = curve.between(from.unix, to.unix)?;
            match phases.iter_mut().find(|phase| phase.phase == name) {
                Some(phase) => phase.joules += joules,
                None => phases.push(PhaseEnergy { phase: name.to_owned(), joules }),
            }
        }
        let source = &watched.source;
        Ok(Account {
            source: source.name().to_owned(),
            detail: source.detail(),
            basis: Basis::Measured,
            scope: source.scope(),
            error: source.error(),
            joules,
            phases,
            split: self.split(joules, source.scope(), times),
        })
    }

    /// Splits a measured energy by causes. That needs powers that were measured for the same parts
    /// of the machine.
    fn split(&self, joules: f64, scope: Scope, times: &Times) -> Option<Split> {
        let profile = self.profile.as_ref()?;
        let fits = profile.basis == Basis::Measured && profile.scope == scope;
        fits.then(|| attribute(joules, &profile.constants, times))
    }

    fn modelled(&self, phases: &[Phase], times: &Times) -> Account {
        let of = |phase: &Phase| self.model.joules(phase.wall_seconds, phase.cpu_seconds);
        let joules = phases.iter().map(of).sum();
        let energy = |phase: &Phase| PhaseEnergy { phase: phase.name.clone(), joules: of(phase) };
        // Without a profile, the power of I/O is unknown, so that the energy is not split by
        // causes.
        let split = self.profile.as_ref().map(|profile| {
            let (idle_watts, coding_watts) = (self.model.idle_watts, self.model.core_watts);
            let constants =
                Constants { idle_watts, coding_watts, read_write_watts: profile.constants.read_write_watts };
            attribute(joules, &constants, times)
        });
        Account {
            source: "model".into(),
            detail: self.model.describe(),
            basis: Basis::Modelled,
            scope: Scope::Node,
            error: None,
            joules,
            phases: phases.iter().map(energy).collect(),
            split,
        }
    }

    /// The intervals of time of each phase.
    fn intervals(&self, end: Moment) -> impl Iterator<Item = (&str, Moment, Moment)> {
        let ends = self.marks.iter().skip(1).map(|mark| mark.1).chain([end]);
        self.marks.iter().zip(ends).map(|((name, from), to)| (name.as_str(), *from, to))
    }

    fn phases(&self, end: Moment) -> Vec<Phase> {
        let mut phases: Vec<Phase> = vec![];
        for (name, from, to) in self.intervals(end) {
            let (wall, cpu) = (to.unix - from.unix, (to.cpu - from.cpu).max(0.0));
            match phases.iter_mut().find(|phase| phase.name == name) {
                Some(phase) => {
                    phase.wall_seconds += wall;
                    phase.cpu_seconds += cpu;
                }
                None => phases.push(Phase { name: name.to_owned(), wall_seconds: wall, cpu_seconds: cpu }),
            }
        }
        phases
    }

    fn end(&mut self) {
        self.shared.lock().1 = true;
        self.shared.stop.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.end();
    }
}

/// Reads every instrument that is due, until the job ends.
fn watch(shared: &Shared, clock: Clock) {
    let mut state = shared.lock();
    while !state.1 {
        let now = clock.now();
        state.0.iter_mut().filter(|watched| watched.due <= now).for_each(|watched| watched.ask(now));
        let next = state.0.iter().map(|watched| watched.due).fold(now + 60.0, f64::min);
        let pause = Duration::from_secs_f64((next - clock.now()).clamp(0.01, 60.0));
        state = unpoisoned(shared.stop.wait_timeout(state, pause)).0;
    }
}

/// Processor time of this process so far, in seconds.
pub fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

#[cfg(test)]
mod tests {
    use super::super::source::testing::Scratch;
    use super::*;

    fn log_line(watts: f64) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        format!("{now},{watts}\n")
    }

    #[test]
    fn a_job_has_an_account_of_each_kind() {
        let scratch = Scratch::new("sampler");
        let meter = scratch.file("log.csv", &format!("time,watts\n{}", log_line(100.0)));
        scratch.file("intel-rapl:0/name", "package-0");
        scratch.file("intel-rapl:0/max_energy_range_uj", "262143328850");
        scratch.file("intel-rapl:0/energy_uj", "1000000");
        let profile = Profile {
            machine: "a test".into(),
            date: String::new(),
            source: "meter".into(),
            basis: Basis::Measured,
            scope: Scope::Node,
            constants: Constants { idle_watts: 50.0, read_write_watts: 0.0, coding_watts: 1e6 },
            read_write_bytes_per_second: 1.0,
            coding: vec![],
        };
        let choice = Choice {
            meter: Some(meter),
            powercap: scratch.path(""),
            readings: Some(scratch.path("missing")),
            profile: Some(profile),
            ..Choice::default()
        };
        let mut sampler = Sampler::start(&choice, "explore");
        std::thread::sleep(Duration::from_millis(60));
        sampler.phase("encode");
        std::thread::sleep(Duration::from_millis(60));
        sampler.phase("explore");
        scratch.file("intel-rapl:0/energy_uj", "3000000");
        scratch.append("log.csv", &log_line(100.0));
        let finished = sampler.finish(0.01, 0.1);

        let kinds: Vec<_> = finished.accounts.iter().map(|account| (account.source.as_str(), account.scope)).collect();
        assert_eq!(kinds, [("meter", Scope::Node), ("RAPL", Scope::Package), ("model", Scope::Node)]);
        assert_eq!(finished.refused.len(), 1, "{:?}", finished.refused);
        assert!(finished.refused[0].starts_with("IPMI/Redfish:") && finished.refused[0].contains("no such file"));
        let names: Vec<&str> = finished.phases.iter().map(|phase| phase.name.as_str()).collect();
        assert_eq!(names, ["explore", "encode"]);
        let wall: f64 = finished.phases.iter().map(|phase| phase.wall_seconds).sum();
        for account in &finished.accounts {
            let sum: f64 = account.phases.iter().map(|phase| phase.joules).sum();
            assert!((sum - account.joules).abs() < 1e-6 * account.joules.max(1.0), "{account:?}");
        }
        assert!((finished.accounts[0].joules - 100.0 * wall).abs() < 0.01, "100 W all the time");
        let counted = finished.accounts[1].joules;
        assert!(
            counted > 1.0 && counted <= 2.0 + 1e-9,
            "{counted}: the counter's 2 J, but for what was before the job"
        );
        let split = finished.accounts[0].split.expect("the profile is of the whole machine");
        assert!((split.shares()[0] - 0.5).abs() < 1e-6, "half of it is idling: {split:?}");
        assert_eq!(finished.accounts[1].split, None, "the profile says nothing of packages");
    }

    #[test]
    fn an_instrument_that_stands_still_has_no_account() {
        let scratch = Scratch::new("sampler-still");
        scratch.file("intel-rapl:0/name", "package-0");
        scratch.file("intel-rapl:0/max_energy_range_uj", "262143328850");
        scratch.file("intel-rapl:0/energy_uj", "0");
        let choice = Choice { powercap: scratch.path(""), ..Choice::default() };
        let sampler = Sampler::start(&choice, "encode");
        std::thread::sleep(Duration::from_millis(20));
        let finished = sampler.finish(0.0, 0.0);
        assert!(finished.accounts.iter().all(|account| account.basis == Basis::Modelled || account.source != "RAPL"));
        assert!(finished.refused.iter().any(|why| why.contains("stood still")), "{:?}", finished.refused);
    }
}

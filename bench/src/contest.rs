//! One row: subjects that take turns at the same shape in the same setting.

use crate::args::Effort;
use crate::measure::interleaved;
use crate::own;
use crate::results::{Cell, Role, Row};
use crate::subject::{Job, Subject};
use std::io::{IsTerminal, Write};

/// Before each sample from cache, each subject warms up with one part in `WARM_UP_DIVISOR` of it.
const WARM_UP_DIVISOR: usize = 10;

/// All subjects of a lane, and how much each is measured.
pub struct Contest {
    pub effort: Effort,
    subjects: Vec<Box<dyn Subject>>,
    /// The kernel of those that are this engine's.
    pub kernel: &'static dyn gf::Kernel,
}

/// A subject with one of its codes.
#[derive(Clone, Debug)]
pub struct Entrant {
    pub column: String,
    pub role: Role,
    pub subject: &'static str,
    pub code: &'static str,
    pub packet: usize,
    pub threads: usize,
}

impl Entrant {
    /// A byte code of this engine on one core.
    pub fn own(column: &str, code: &'static str) -> Self {
        Self { column: column.into(), role: Role::Own, subject: "weft", code, packet: 0, threads: 1 }
    }

    /// A byte code of a peer.
    pub fn peer(column: &str, subject: &'static str, code: &'static str) -> Self {
        Self { column: column.into(), role: Role::Peer, subject, code, packet: 0, threads: 1 }
    }

    /// The traffic limit.
    pub fn limit() -> Self {
        Self { column: "limit".into(), role: Role::Limit, subject: "limit", code: "-", packet: 0, threads: 1 }
    }

    /// The same with bit-matrix packets.
    pub fn with_packet(self, packet: usize) -> Self {
        Self { packet, ..self }
    }

    /// The same on several cores, in a column of its own.
    pub fn with_threads(self, column: &str, threads: usize) -> Self {
        Self { column: column.into(), threads, ..self }
    }
}

/// Where the blocks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Regime {
    /// One stripe, again and again; as often as given in a round, or until its samples are long
    /// enough.
    Cached { iterations: Option<usize> },
    /// Many stripes one after the other, larger than the caches.
    Streamed,
}

impl Regime {
    /// How many samples a round has.
    fn turns(self, effort: &Effort) -> usize {
        match self {
            Self::Cached { .. } => effort.turns,
            Self::Streamed => 1,
        }
    }
}

/// A row to be measured.
#[derive(Clone, Debug)]
pub struct Race {
    pub label: String,
    pub k: usize,
    pub m: usize,
    pub block_bytes: usize,
    pub regime: Regime,
    /// Positions to decode; none: encode.
    pub lost: Vec<usize>,
    pub entrants: Vec<Entrant>,
}

impl Contest {
    pub fn new(effort: Effort, kernel: &'static dyn gf::Kernel, subjects: Vec<Box<dyn Subject>>) -> Self {
        Self { effort, subjects, kernel }
    }

    /// All subjects, in order.
    pub fn subjects(&self) -> impl Iterator<Item = &dyn Subject> {
        self.subjects.iter().map(|subject| &**subject)
    }

    /// Measures a row. A subject that is not here, or does not have the code, has no cell; one that
    /// refuses or fails has a cell that says so.
    pub fn run(&mut self, race: &Race) -> Row {
        let entrants: Vec<(usize, &Entrant)> = race
            .entrants
            .iter()
            .filter_map(|entrant| {
                let here = |subject: &dyn Subject| subject.name() == entrant.subject && subject.supports(entrant.code);
                Some((self.subjects().position(here)?, entrant))
            })
            .collect();
        begun(&race.label);
        let mut jobs = Vec::with_capacity(entrants.len());
        for &(subject, entrant) in &entrants {
            progress(&format!("{}: how fast is {}", race.label, entrant.column));
            jobs.push(self.size(subject, entrant, race));
        }
        let turns = self.effort.rounds * race.regime.turns(&self.effort);
        let mut taken = 0;
        let figures = interleaved(turns, entrants.len(), |at| {
            progress(&format!("{}: turn {} of {turns}", race.label, taken / entrants.len() + 1));
            taken += 1;
            let job = jobs[at].as_ref().map_err(Clone::clone)?;
            if let Regime::Cached { .. } = race.regime {
                std::thread::sleep(self.effort.pause);
                let warm = Job { iterations: job.iterations.div_ceil(WARM_UP_DIVISOR), ..job.clone() };
                self.time(entrants[at].0, &warm, &race.lost)?;
            }
            Ok(job.rate(self.time(entrants[at].0, job, &race.lost)?))
        });
        progress("");
        let cells = entrants.iter().zip(&jobs).zip(figures).map(|((&(_, entrant), job), outcome)| Cell {
            column: entrant.column.clone(),
            role: entrant.role,
            code: entrant.code.to_owned(),
            block_bytes: job.as_ref().map_or(race.block_bytes, |job| job.block_bytes),
            stripes: job.as_ref().map_or(0, |job| job.stripes),
            iterations: job.as_ref().map_or(0, |job| job.iterations),
            threads: entrant.threads,
            charted: true,
            outcome: outcome.into(),
        });
        let cells = cells.collect();
        Row { label: race.label.clone(), k: race.k, m: race.m, lost: race.lost.clone(), cells, beside: vec![] }
    }

    fn time(&mut self, subject: usize, job: &Job, lost: &[usize]) -> Result<f64, String> {
        let subject = &mut self.subjects[subject];
        if lost.is_empty() { subject.time_encode(job) } else { subject.time_decode(job, lost) }
    }

    /// Finds out how many stripes and iterations make a good sample.
    fn size(&mut self, subject: usize, entrant: &Entrant, race: &Race) -> Result<Job, String> {
        let Effort { sample_seconds, max_seconds, streamed_bytes, .. } = self.effort;
        let turns = race.regime.turns(&self.effort);
        let [sample_seconds, max_seconds] = [sample_seconds, max_seconds].map(|s| s / turns as f64);
        let mut job = Job {
            code: entrant.code.to_owned(),
            k: race.k,
            m: race.m,
            block_bytes: self.block_bytes(entrant, race)?,
            packet: entrant.packet,
            stripes: entrant.threads,
            iterations: 1,
            threads: entrant.threads,
        };
        let mut seconds = self.time(subject, &job, &race.lost)?;
        while seconds < sample_seconds / 50.0 && job.iterations < 1 << 20 {
            job.iterations *= 8;
            seconds = self.time(subject, &job, &race.lost)?;
        }
        let stripe_seconds = seconds / (job.stripes * job.iterations) as f64;
        let fitting = |seconds: f64| ((seconds / stripe_seconds) as usize).max(1);
        match race.regime {
            Regime::Cached { iterations: None } => job.iterations = fitting(sample_seconds).div_ceil(job.stripes),
            Regime::Cached { iterations: Some(wanted) } => {
                job.iterations = wanted.div_ceil(turns).min(fitting(max_seconds))
            }
            Regime::Streamed => {
                let wanted = streamed_bytes.div_ceil((race.k + race.m) * job.block_bytes);
                // A subject that is far slower than memory needs only more than the caches hold.
                let stripes = wanted.min(fitting(max_seconds).max(wanted / 8));
                job.stripes = stripes.next_multiple_of(entrant.threads);
                // One stripe was in cache all the time, so how long a pass takes is known only
                // after one.
                job.iterations = 1;
                job.iterations = (sample_seconds / self.time(subject, &job, &race.lost)?).ceil() as usize;
            }
        }
        Ok(job)
    }

    /// This engine's codes whose blocks consist of regions get the row's block length rounded down
    /// to whole ones.
    fn block_bytes(&self, entrant: &Entrant, race: &Race) -> Result<usize, String> {
        if entrant.role != Role::Own {
            return Ok(race.block_bytes);
        }
        let code = own::build(self.kernel, entrant.code, race.k, race.m, entrant.packet)?;
        let unit = code.encoder().granularity();
        Ok((race.block_bytes / unit * unit).max(unit))
    }
}

/// Says that a row, or a section, begins, where `progress` says nothing: a line each, for the log
/// of a long run.
pub fn begun(text: &str) {
    let mut stderr = std::io::stderr();
    if !stderr.is_terminal() {
        let _ = writeln!(stderr, "{text}");
    }
}

/// Shows what is going on, on a terminal; an empty text ends the line.
pub fn progress(text: &str) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        // Progress that cannot be shown is no reason to stop measuring.
        let _ = write!(stderr, "\r\x1b[K{text}").and_then(|()| stderr.flush());
    }
}

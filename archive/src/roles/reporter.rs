//! The reporter: it adds up what the other roles did, shows progress, and returns the facts at the
//! end.

use crate::message::{Message, Phase, Problem, Span, Tally};
use crate::report::{Ending, Facts, Phase as PhaseFacts, Worker as WorkerFacts};
use crate::transport::{Broken, Crew, Next, Outbox, Rank, Role};
use std::time::{Duration, Instant};

/// Shows the progress of a job.
pub trait Show {
    /// A file has a problem.
    fn problem(&mut self, problem: &Problem);

    /// The progress so far; called a few times a second.
    fn progress(&mut self, facts: &Facts);
}

/// How often progress is shown.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// The reporter of a job.
pub struct Reporter<S> {
    crew: Crew,
    facts: Facts,
    show: S,
    shown: Instant,
    /// Beginning, end and processor time of each phase.
    phases: [Option<(f64, f64, f64)>; 3],
    here: u32,
    broken: Option<String>,
}

impl<S: Show> Reporter<S> {
    /// A reporter. `facts` has what is already known of the job: its name, its code, its sources.
    pub fn new(crew: Crew, mut facts: Facts, show: S) -> Self {
        let worker = |number| WorkerFacts { name: format!("worker {}", number + 1), ..WorkerFacts::default() };
        if facts.workers.is_empty() {
            facts.workers = (0..crew.workers).map(worker).collect();
        }
        let here = crew.explorers + crew.workers;
        Self { crew, facts, show, shown: Instant::now(), phases: [None; 3], here, broken: None }
    }

    /// Begins another run of roles in the same job.
    pub fn begin(&mut self) {
        self.here = self.crew.explorers + self.crew.workers;
    }

    /// Whether the job cannot continue.
    pub fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// The facts and, if the job had to stop, the reason.
    pub fn into_facts(mut self, control: &volume::Control) -> (Facts, Option<String>) {
        let names = ["explore", self.facts.task.phase(), "commit"];
        for (name, phase) in names.into_iter().zip(self.phases) {
            if let Some((start, end, cpu)) = phase {
                let phase = PhaseFacts { name: name.into(), wall_seconds: end - start, cpu_seconds: cpu };
                self.facts.phases.push(phase);
            }
        }
        self.facts.ending = match (&self.broken, control.go_on()) {
            (Some(_), _) => Ending::Failed,
            (None, Err(_)) => Ending::Interrupted,
            (None, Ok(())) => Ending::Finished,
        };
        (self.facts, self.broken)
    }

    fn worked(&mut self, from: Rank, span: &Span) {
        let phase = &mut self.phases[span.phase as usize];
        *phase = Some(match *phase {
            None => (span.start, span.end, span.cpu),
            Some((start, end, cpu)) => (start.min(span.start), end.max(span.end), cpu + span.cpu),
        });
        let worker = self.crew.worker_of(from).and_then(|number| self.facts.workers.get_mut(number as usize));
        if let Some(worker) = worker {
            worker.timeline.add(span.start, span.end);
            if span.phase == Phase::Work {
                worker.tasks += 1;
                worker.bytes = worker.bytes.saturating_add(span.bytes);
                self.facts.throughput.add(span.end, span.bytes);
            }
        }
    }

    fn count(&mut self, tally: &Tally) {
        self.facts.files += tally.files;
        self.facts.bytes = self.facts.bytes.saturating_add(tally.bytes);
        self.facts.others += tally.others;
        self.facts.unchanged_files += tally.unchanged_files;
        self.facts.unchanged_bytes = self.facts.unchanged_bytes.saturating_add(tally.unchanged_bytes);
        self.facts.sizes.merge(&tally.sizes);
        self.facts.found_files += tally.found_files;
        self.facts.found_bytes = self.facts.found_bytes.saturating_add(tally.found_bytes);
    }
}

/// A line with the path and the problem.
pub fn line(problem: &Problem) -> String {
    format!("{}: {}", volume::shown(&problem.path), problem.what)
}

impl<S: Show> Role for Reporter<S> {
    fn handle(&mut self, from: Rank, message: Message, _out: &mut Outbox) -> Result<(), Broken> {
        match message {
            Message::Problem(problem) => {
                self.show.problem(&problem);
                self.facts.errors.add(line(&problem));
            }
            Message::Worked(span) => self.worked(from, &span),
            Message::Tally(tally) => self.count(&tally),
            Message::Explored => self.facts.explored = true,
            Message::Broken(why) => self.broken = Some(why),
            Message::Bye => self.here = self.here.saturating_sub(1),
            _ => {}
        }
        if self.shown.elapsed() >= PROGRESS_INTERVAL {
            self.show.progress(&self.facts);
            self.shown = Instant::now();
        }
        Ok(())
    }

    fn work(&mut self, _out: &mut Outbox) -> Result<(), Broken> {
        self.show.progress(&self.facts);
        self.shown = Instant::now();
        Ok(())
    }

    fn next(&self) -> Next {
        if self.here == 0 { Next::End } else { Next::WaitUntil(self.shown + PROGRESS_INTERVAL) }
    }
}

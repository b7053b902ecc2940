//! The worker: it requests work, does it, and reports it as done when it is durable. A [`Craft`]
//! defines what it does with files.

use super::super::clock::Clock;
use crate::message::{Ended, Large, Message, Phase, Problem, Tally, Work};
use crate::transport::{Broken, MANAGER, Next, Outbox, REPORTER, Rank, Role};
use std::time::{Duration, Instant};

/// Work is made durable after the worker was idle for this long.
const COMMIT_AFTER_IDLE: Duration = Duration::from_millis(5);
/// Work waits no longer than this, however busy the worker is.
const MAX_COMMIT_DELAY: Duration = Duration::from_millis(500);

/// What was done in a task, but is not durable yet.
#[derive(Clone, Debug, Default)]
pub struct Made {
    /// Bytes of user data.
    pub bytes: u64,
    /// Whether all of the task was done.
    pub good: bool,
    /// For `Work::Open`: the parts to do.
    pub opened: Option<(Large, Vec<u32>)>,
}

/// What a worker does with files.
pub trait Craft {
    /// Does a task. The result need not be durable, except for what it reports about a file in
    /// parts.
    ///
    /// # Errors
    /// If the job cannot continue. A fault of a single file is no error but a problem.
    fn work(&mut self, work: &Work, problems: &mut Vec<Problem>) -> Result<Made, Broken>;

    /// Whether the work so far must be made durable before there is more.
    fn is_full(&self) -> bool;

    /// Makes the work durable, and counts it. Whether the tasks since the last call are good stays
    /// as `work` reported it.
    ///
    /// # Errors
    /// If the job cannot continue.
    fn commit(&mut self, problems: &mut Vec<Problem>) -> Result<Tally, Broken>;
}

/// A worker.
pub struct Worker<C> {
    craft: C,
    clock: Clock,
    state: State,
    task: Option<(u64, Work)>,
    /// Tasks that are done, but not durable yet.
    pending: Vec<Ended>,
    since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    /// It has requested work.
    Asking,
    Working,
    Finishing,
    Ended,
}

impl<C: Craft> Worker<C> {
    /// A worker that requests work as soon as it runs.
    pub fn new(craft: C, clock: Clock) -> Self {
        Self { craft, clock, state: State::New, task: None, pending: Vec::new(), since: Instant::now() }
    }

    fn do_task(&mut self, out: &mut Outbox) -> Result<(), Broken> {
        let Some((task, work)) = self.task.take() else { return Ok(()) };
        let mut problems = Vec::new();
        let watch = self.clock.start(Phase::Work);
        let made = self.craft.work(&work, &mut problems)?;
        out.push((REPORTER, Message::Worked(watch.stop(made.bytes))));
        out.extend(problems.into_iter().map(|problem| (REPORTER, Message::Problem(problem))));
        match made.opened {
            Some((large, parts)) => out.push((MANAGER, Message::Opened(task, large, parts))),
            None => {
                if self.pending.is_empty() {
                    self.since = Instant::now();
                }
                self.pending.push(Ended { task, good: made.good });
            }
        }
        Ok(())
    }

    fn commit(&mut self, out: &mut Outbox) -> Result<(), Broken> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let mut problems = Vec::new();
        let watch = self.clock.start(Phase::Commit);
        let tally = self.craft.commit(&mut problems)?;
        out.push((REPORTER, Message::Worked(watch.stop(0))));
        out.extend(problems.into_iter().map(|problem| (REPORTER, Message::Problem(problem))));
        out.push((REPORTER, Message::Tally(Box::new(tally))));
        out.push((MANAGER, Message::Done(std::mem::take(&mut self.pending))));
        Ok(())
    }
}

impl<C: Craft> Role for Worker<C> {
    fn handle(&mut self, _from: Rank, message: Message, _out: &mut Outbox) -> Result<(), Broken> {
        match message {
            Message::Do(task, work) => {
                self.task = Some((task, work));
                self.state = State::Working;
            }
            Message::Finish => {
                // A task that was handed out but not begun is not done.
                self.task = None;
                self.state = State::Finishing;
            }
            _ => {}
        }
        Ok(())
    }

    fn work(&mut self, out: &mut Outbox) -> Result<(), Broken> {
        match self.state {
            State::New => {
                out.push((MANAGER, Message::Ready));
                self.state = State::Asking;
            }
            State::Working => {
                self.do_task(out)?;
                if self.craft.is_full() || !self.pending.is_empty() && self.since.elapsed() > MAX_COMMIT_DELAY {
                    self.commit(out)?;
                }
                out.push((MANAGER, Message::Ready));
                self.state = State::Asking;
            }
            State::Asking => self.commit(out)?,
            State::Finishing => {
                self.commit(out)?;
                out.push((REPORTER, Message::Bye));
                self.state = State::Ended;
            }
            State::Ended => {}
        }
        Ok(())
    }

    fn next(&self) -> Next {
        match self.state {
            State::New | State::Working | State::Finishing => Next::Work,
            State::Asking if self.pending.is_empty() => Next::Wait,
            State::Asking => Next::WaitUntil(Instant::now() + COMMIT_AFTER_IDLE),
            State::Ended => Next::End,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts tasks; every second one is bad.
    #[derive(Default)]
    struct Counting {
        done: u64,
        committed: Vec<u64>,
    }

    impl Craft for Counting {
        fn work(&mut self, _: &Work, _: &mut Vec<Problem>) -> Result<Made, Broken> {
            self.done += 1;
            Ok(Made { bytes: 10, good: self.done % 2 == 1, opened: None })
        }

        fn is_full(&self) -> bool {
            self.done == 3
        }

        fn commit(&mut self, _: &mut Vec<Problem>) -> Result<Tally, Broken> {
            self.committed.push(std::mem::take(&mut self.done));
            Ok(Tally { files: 1, ..Tally::default() })
        }
    }

    fn step(worker: &mut Worker<Counting>, message: Option<Message>) -> Vec<Message> {
        let mut out = Outbox::new();
        match message {
            Some(message) => worker.handle(MANAGER, message, &mut out).unwrap(),
            None => worker.work(&mut out).unwrap(),
        }
        out.into_iter().map(|(_, message)| message).filter(|message| !matches!(message, Message::Worked(_))).collect()
    }

    #[test]
    fn tasks_are_done_when_they_are_durable() {
        let mut worker = Worker::new(Counting::default(), Clock::now());
        assert_eq!(step(&mut worker, None), [Message::Ready]);
        assert_eq!(worker.next(), Next::Wait);
        let task = |number| Some(Message::Do(number, Work::Files(vec![])));
        let tally = Message::Tally(Box::new(Tally { files: 1, ..Tally::default() }));
        for number in [1, 2] {
            assert_eq!(step(&mut worker, task(number)), []);
            assert_eq!(step(&mut worker, None), [Message::Ready], "it asks for more before it is durable");
        }
        assert!(matches!(worker.next(), Next::WaitUntil(_)));
        let ended =
            |tasks: &[(u64, bool)]| Message::Done(tasks.iter().map(|&(task, good)| Ended { task, good }).collect());
        assert_eq!(step(&mut worker, None), [tally.clone(), ended(&[(1, true), (2, false)])], "with nothing to do");
        for number in [3, 4] {
            step(&mut worker, task(number));
            step(&mut worker, None);
        }
        step(&mut worker, task(5));
        let third = step(&mut worker, None);
        assert_eq!(
            third,
            [tally.clone(), ended(&[(3, true), (4, false), (5, true)]), Message::Ready],
            "when it is full"
        );
        step(&mut worker, task(6));
        step(&mut worker, None);
        step(&mut worker, task(7));
        step(&mut worker, Some(Message::Finish));
        assert_eq!(step(&mut worker, None), [tally, ended(&[(6, true)]), Message::Bye], "what was not begun is left");
        assert_eq!((worker.next(), &worker.craft.committed[..]), (Next::End, &[2, 3, 1][..]));
    }
}

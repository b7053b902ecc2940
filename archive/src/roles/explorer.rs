//! An explorer: walks what the manager tells it to, and tells what it finds, a bounded piece at a time.

use super::super::clock::Clock;
use crate::message::{Group, Message, Phase, Problem, Tally, Walk};
use crate::transport::{Broken, MANAGER, Next, Outbox, REPORTER, Rank, Role};

/// What a piece of a walk found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// Files.
    pub groups: Vec<Group>,
    /// Directories that somebody has to look at.
    pub walks: Vec<Walk>,
    /// What could not be looked at.
    pub problems: Vec<Problem>,
    /// What is done already: directories.
    pub done: Tally,
}

/// What an explorer walks.
pub trait Tree {
    /// Begins a walk.
    ///
    /// # Errors
    /// When the job cannot go on. What cannot be walked is no error but a problem.
    fn begin(&mut self, walk: Walk) -> Result<(), Broken>;

    /// The next piece of what was begun, no more than a message takes; None when there is no more.
    ///
    /// # Errors
    /// When the job cannot go on.
    fn next(&mut self) -> Result<Option<Found>, Broken>;
}

/// The explorer of a tree.
pub struct Explorer<T> {
    tree: T,
    clock: Clock,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It has nothing to walk, or waits until there is room for more.
    Waiting,
    Walking,
    Ended,
}

impl<T: Tree> Explorer<T> {
    /// An explorer.
    pub fn new(tree: T, clock: Clock) -> Self {
        Self { tree, clock, state: State::Waiting }
    }
}

impl<T: Tree> Role for Explorer<T> {
    fn handle(&mut self, _from: Rank, message: Message, out: &mut Outbox) -> Result<(), Broken> {
        match message {
            Message::Walk(walk) => {
                self.tree.begin(walk)?;
                self.state = State::Walking;
            }
            Message::Continue => self.state = State::Walking,
            Message::Finish => {
                self.state = State::Ended;
                out.push((REPORTER, Message::Bye));
            }
            _ => {}
        }
        Ok(())
    }

    fn work(&mut self, out: &mut Outbox) -> Result<(), Broken> {
        if self.state != State::Walking {
            return Ok(());
        }
        let watch = self.clock.start(Phase::Explore);
        let found = self.tree.next()?;
        out.push((REPORTER, Message::Worked(watch.stop(0))));
        let done = found.is_none();
        let Found { groups, walks, problems, done: tally } = found.unwrap_or_default();
        out.extend(problems.into_iter().map(|problem| (REPORTER, Message::Problem(problem))));
        if tally != Tally::default() {
            out.push((REPORTER, Message::Tally(Box::new(tally))));
        }
        out.push((MANAGER, Message::Found { groups, walks, done }));
        self.state = State::Waiting;
        Ok(())
    }

    fn next(&self) -> Next {
        match self.state {
            State::Waiting => Next::Wait,
            State::Walking => Next::Work,
            State::Ended => Next::End,
        }
    }
}

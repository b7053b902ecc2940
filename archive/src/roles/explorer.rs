//! The explorer: it walks what the manager sends, and reports what it finds in pieces of bounded
//! size.

use super::super::clock::Clock;
use crate::message::{Group, Message, Phase, Problem, Tally, Walk};
use crate::transport::{Broken, MANAGER, Next, Outbox, REPORTER, Rank, Role};

/// What one piece of a walk found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// Files.
    pub groups: Vec<Group>,
    /// Directories that explorers must still walk.
    pub walks: Vec<Walk>,
    /// Files that could not be read.
    pub problems: Vec<Problem>,
    /// What is already done: directories.
    pub done: Tally,
}

/// What an explorer walks.
pub trait Tree {
    /// Begins a walk.
    ///
    /// # Errors
    /// If the job cannot continue. A file that cannot be walked is no error but a problem.
    fn begin(&mut self, walk: Walk) -> Result<(), Broken>;

    /// The next piece of the walk, at most as long as a message; None at the end.
    ///
    /// # Errors
    /// If the job cannot continue.
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
    /// Without a walk, or waiting until the queue has space.
    Waiting,
    Walking,
    Ended,
}

impl<T: Tree> Explorer<T> {
    /// An explorer of this tree.
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
        let Found { groups, walks, problems, done: mut tally } = found.unwrap_or_default();
        tally.find(&groups);
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

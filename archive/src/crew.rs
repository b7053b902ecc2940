//! Runs all roles of a job in the threads of one process.

use crate::clock::Clock;
use crate::message::Message;
use crate::roles::{Craft, Explorer, Manager, Reporter, Show, Tree, Worker};
use crate::threads::Threads;
use crate::transport::{Broken, Crew, MANAGER, REPORTER, Rank, Transport, live};

/// What explorers and workers are made from.
pub struct Roles<T, C> {
    /// The tree that an explorer walks.
    pub tree: T,
    /// The work that a worker does.
    pub craft: C,
}

/// Notifies the other roles if a thread dies.
struct Alarm<'a>(&'a dyn Transport);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            give_up(self.0, "a thread of the job panicked, which is a defect".into());
        }
    }
}

/// Notifies the other roles that an explorer or a worker cannot start.
pub fn give_up(way: &dyn Transport, why: String) {
    let _ = way.send(MANAGER, Message::Failed(why));
    let _ = way.send(REPORTER, Message::Bye);
}

/// Runs an explorer or a worker until the job ends.
pub fn live_as<T: Tree, C: Craft>(
    me: Rank,
    crew: Crew,
    clock: Clock,
    roles: &Roles<impl Fn() -> T, impl Fn() -> Result<C, Broken>>,
    way: &dyn Transport,
) {
    let _alarm = Alarm(way);
    if crew.explorer_of(me).is_some() {
        let _ = live(&mut Explorer::new((roles.tree)(), clock), me, way);
        return;
    }
    match (roles.craft)() {
        Ok(craft) => _ = live(&mut Worker::new(craft, clock), me, way),
        Err(Broken(why)) => give_up(way, why),
    }
}

/// Runs a manager until the job ends.
pub fn manage(manager: &mut Manager, crew: Crew, way: &dyn Transport) {
    if let Err(Broken(why)) = live(manager, MANAGER, way) {
        // Without a manager, this thread must notify all roles.
        let _ = way.send(REPORTER, Message::Broken(why));
        (1..crew.ranks()).for_each(|rank| _ = way.send(rank, Message::Finish));
    }
}

/// Runs all roles in threads until the job ends. Returns the reporter.
pub fn live_in_threads<T: Tree, C: Craft, S: Show + Send>(
    crew: Crew,
    clock: Clock,
    mut manager: Manager,
    mut reporter: Reporter<S>,
    roles: &Roles<impl Fn() -> T + Sync, impl Fn() -> Result<C, Broken> + Sync>,
) -> Reporter<S> {
    let ways = Threads::between(crew.ranks());
    std::thread::scope(|scope| {
        for (me, way) in (0..).zip(&ways).skip(2) {
            scope.spawn(move || live_as(me, crew, clock, roles, way));
        }
        let way = &ways[MANAGER as usize];
        scope.spawn(move || manage(&mut manager, crew, way));
        let _ = live(&mut reporter, REPORTER, &ways[REPORTER as usize]);
    });
    reporter
}

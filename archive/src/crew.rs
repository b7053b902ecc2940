//! A whole crew in the threads of one process.

use crate::clock::Clock;
use crate::message::Message;
use crate::roles::{Craft, Explorer, Manager, Reporter, Show, Tree, Worker};
use crate::threads::Threads;
use crate::transport::{Broken, Crew, MANAGER, REPORTER, Rank, Transport, live};

/// What explorers and workers are made of.
pub struct Roles<T, C> {
    /// What an explorer walks.
    pub tree: T,
    /// What a worker does.
    pub craft: C,
}

/// Tells the others when a thread dies.
struct Alarm<'a>(&'a Threads);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.0.send(MANAGER, Message::Failed("a thread of the job panicked, which is a defect".into()));
            let _ = self.0.send(REPORTER, Message::Bye);
        }
    }
}

/// Lets a crew live in threads until the job ends. Returns its reporter.
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
            scope.spawn(move || {
                let _alarm = Alarm(way);
                if crew.explorer_of(me).is_some() {
                    let _ = live(&mut Explorer::new((roles.tree)(), clock), me, way);
                    return;
                }
                match (roles.craft)() {
                    Ok(craft) => _ = live(&mut Worker::new(craft, clock), me, way),
                    Err(Broken(why)) => give_up(way, why),
                }
            });
        }
        let way = &ways[MANAGER as Rank as usize];
        scope.spawn(move || {
            if let Err(Broken(why)) = live(&mut manager, MANAGER, way) {
                // Without a manager everybody has to be told here.
                let _ = way.send(REPORTER, Message::Broken(why));
                (1..crew.ranks()).for_each(|rank| _ = way.send(rank, Message::Finish));
            }
        });
        let _ = live(&mut reporter, REPORTER, &ways[REPORTER as usize]);
    });
    reporter
}

fn give_up(way: &Threads, why: String) {
    let _ = way.send(MANAGER, Message::Failed(why));
    let _ = way.send(REPORTER, Message::Bye);
}

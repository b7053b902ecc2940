//! The commands that a metadata server carries out for others. They hold nothing of the volume by
//! themselves, so that none of them keeps it open when it goes to another server, and they end
//! then: a verification takes hours.

use crate::shares::Shares;
use std::sync::{Arc, Mutex};
use volume::{Control, lock};
use wire::{Reply, Request};

/// Maximum number of commands at a time.
pub(super) const MAX_COMMANDS: usize = 64;

/// Executes a command until it ends or is cancelled. The command is bytes that only the command
/// line understands. The second argument says whether an operator sent it. A command that gives the
/// volume away waits for the end of all others, and looks at no control itself.
#[derive(Clone)]
pub struct Commands(Arc<Execute>);

type Execute = dyn Fn(&[u8], bool, &Arc<Control>) -> Vec<u8> + Send + Sync;

impl Commands {
    /// Executed by this function.
    pub fn new(execute: impl Fn(&[u8], bool, &Arc<Control>) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self(Arc::new(execute))
    }

    /// Executes one.
    pub(super) fn execute(&self, command: &[u8], operator: bool, control: &Arc<Control>) -> Vec<u8> {
        (self.0)(command, operator, control)
    }
}

/// Carries commands out until the volume goes away.
pub(super) struct CommandDesk {
    commands: Commands,
    places: Shares,
    working: Mutex<Working>,
}

/// The commands that are carried out.
#[derive(Default)]
struct Working {
    controls: Vec<Arc<Control>>,
    /// Nothing begins any more.
    over: bool,
}

/// Cancels a command when its client is gone.
struct Cancel(Arc<Control>);

impl Drop for Cancel {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// A command that is in the list of those that are cancelled.
struct Listed {
    desk: Arc<CommandDesk>,
    control: Arc<Control>,
}

impl Listed {
    fn new(desk: Arc<CommandDesk>, control: Arc<Control>) -> Self {
        {
            let mut working = lock(&desk.working);
            working.controls.push(control.clone());
            if working.over {
                control.cancel();
            }
        }
        Self { desk, control }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        lock(&self.desk.working).controls.retain(|other| !Arc::ptr_eq(other, &self.control));
    }
}

impl CommandDesk {
    /// Carries out so many at a time.
    pub fn new(commands: Commands, places: usize) -> Arc<Self> {
        Arc::new(Self { commands, places: Shares::new(places), working: Mutex::default() })
    }

    /// Carries a command out, and answers.
    pub async fn carry_out(self: Arc<Self>, request: Request) -> Reply {
        let cancel = Cancel(Arc::default());
        let (control, operator) = (cancel.0.clone(), crate::identity::is_operator(&request.peer));
        let place = self.places.take(request.peer.name.as_deref()).await;
        let desk = self.clone();
        let work = tokio::task::spawn_blocking(move || {
            // Hold the place until the command is done, even when its client is gone.
            let _place = place;
            let listed = Listed::new(desk, control);
            listed.desk.commands.execute(&request.body, operator, &listed.control)
        });
        match work.await {
            Ok(answer) => Reply::default().with_payload(answer),
            Err(_) => Reply::error(wire::STATUS_PANICKED, Vec::new()),
        }
    }

    /// Cancels all commands, and those that come later.
    pub fn cancel(&self) {
        let mut working = lock(&self.working);
        working.over = true;
        working.controls.iter().for_each(|control| control.cancel());
    }
}

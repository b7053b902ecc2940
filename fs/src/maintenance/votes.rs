//! Moves votes between targets, so that no failure domain takes the metadata along
//! ([`plan::voters`] says who should vote). One vote is given or taken at a time. Who gets one is a
//! voter before the journal uses it, and who loses one leaves the journal first: so m+1 voters have
//! what is durable at each moment, whether the label says so already or not.

use crate::volume::label::{Label, Member, Role};
use crate::volume::voters::{Numbered, divide};
use crate::{FileSystem, Result};
use plan::TargetId;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};
use volume::lock;

/// How long to wait until votes are moved again: some could not be moved.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// The thread that moves votes, and when it was last begun.
#[derive(Debug, Default)]
pub(crate) struct Votes(Mutex<Option<(Instant, JoinHandle<()>)>>);

impl Votes {
    /// Waits until the thread has ended, at most `timeout`.
    pub fn wait(&self, timeout: Duration) {
        let begun = Instant::now();
        let runs = || {
            let moving = lock(&self.0);
            moving.as_ref().is_some_and(|(_, it)| !it.is_finished() && it.thread().id() != thread::current().id())
        };
        while runs() && begun.elapsed() < timeout {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl FileSystem {
    /// Moves votes if some targets should vote that do not, or the other way round. Waits for
    /// nothing.
    pub(crate) fn watch_votes(self: &Arc<Self>) {
        if self.role.owner().is_none() || self.is_read_only() || self.is_closed() {
            return;
        }
        let label = self.volume.label();
        if self.wanted_voters(&label) == voters(&label) {
            return;
        }
        let mut moving = lock(&self.votes.0);
        if moving.as_ref().is_some_and(|(when, it)| !it.is_finished() || when.elapsed() < RETRY_INTERVAL) {
            return;
        }
        let fs = Arc::downgrade(self);
        let begun = Builder::new().name("weft-votes".into()).spawn(move || {
            let Some(fs) = fs.upgrade() else { return };
            fs.beside("moving votes", || {
                let _alone = fs.volume.changing.lock();
                fs.settle_votes();
            });
        });
        // Without a thread it is tried again at the next call.
        *moving = begun.ok().map(|thread| (Instant::now(), thread));
    }

    /// Moves votes until those vote that should. What cannot be moved now is tried again later.
    /// Called with the lock of changes of the targets.
    pub(super) fn settle_votes(&self) {
        if let Err(why) = self.move_votes()
            && !self.is_closed()
        {
            self.volume.warn(&format!("cannot move the votes about the metadata: {why}"));
        }
    }

    fn move_votes(&self) -> Result<()> {
        while !self.is_closed() {
            let label = self.volume.label();
            let (now, wanted) = (voters(&label), self.wanted_voters(&label));
            let mut more = wanted.difference(&now);
            if let Some(&id) = more.clone().find(|id| self.store.targets.is_healthy(**id)) {
                self.give_vote(id, &now)?;
            } else if more.next().is_some() {
                // It is given when the target is there.
                return Ok(());
            } else if let Some(&id) = now.difference(&wanted).next() {
                self.take_vote(id, &now)?;
            } else {
                return Ok(());
            }
        }
        Ok(())
    }

    fn give_vote(&self, id: TargetId, now: &BTreeSet<TargetId>) -> Result<()> {
        let with: BTreeSet<TargetId> = now.iter().copied().chain([id]).collect();
        self.relabel(|label| label.set_voters(&with))?;
        if let Err(why) = self.tell_journal(None) {
            // It has no claim that counts.
            self.relabel(|label| label.set_voters(now))?;
            return Err(why);
        }
        Ok(())
    }

    fn take_vote(&self, id: TargetId, now: &BTreeSet<TargetId>) -> Result<()> {
        let without: BTreeSet<TargetId> = now.iter().copied().filter(|other| *other != id).collect();
        self.leave_journal(id)?;
        let taken = self.relabel(|label| label.set_voters(&without));
        self.tell_journal(None)?;
        taken
    }

    /// The members that should vote.
    pub(super) fn wanted_voters(&self, label: &Label) -> BTreeSet<TargetId> {
        let targets = &self.store.targets;
        label.wanted_voters(|member: &Member| {
            let stays = member.role == Role::Active && !self.is_out(member.id);
            (stays, targets.get(member.id).is_some() && targets.error(member.id).is_none())
        })
    }

    /// Tells the journal which targets vote, and which others there are; `with` is one that is
    /// there again.
    pub(super) fn tell_journal(&self, with: Option<Numbered>) -> Result<()> {
        let rejoins = with.as_ref().map(|(id, _)| *id);
        let (voting, others) = divide(&self.volume.label(), self.there(with));
        let journal = &self.engine()?.journal;
        let votes = rejoins.is_none_or(|id| voting.iter().any(|(voter, _)| *voter == id));
        let moved = if votes { journal.set_targets(voting) } else { Ok(()) };
        journal.set_bystanders(others)?;
        Ok(moved?)
    }

    /// Brings a target up to date that was away: it gets the label, and one that has lost its vote
    /// meanwhile loses the metadata that it has. It is outvoted if that fails.
    pub(crate) fn update_label(&self, id: TargetId) {
        let Ok(engine) = self.engine() else { return };
        let label = {
            let _one_at_a_time = self.volume.relabelling.lock();
            let label = self.volume.label();
            label.write_to(&self.store.targets, vec![id]);
            label
        };
        let (_, others) = divide(&label, self.there(None));
        engine.journal.clear(others.into_iter().filter(|(other, _)| *other == id).collect());
    }

    /// Moves the metadata off a target.
    pub(super) fn leave_journal(&self, id: TargetId) -> Result<()> {
        let (mut voting, _) = divide(&self.volume.label(), self.there(None));
        voting.retain(|(other, _)| *other != id);
        Ok(self.engine()?.journal.set_targets(voting)?)
    }

    fn there(&self, with: Option<Numbered>) -> Vec<Numbered> {
        let targets = &self.store.targets;
        targets.ids().into_iter().filter_map(|id| Some((id, targets.get(id)?))).chain(with).collect()
    }
}

fn voters(label: &Label) -> BTreeSet<TargetId> {
    label.voters().into_iter().collect()
}

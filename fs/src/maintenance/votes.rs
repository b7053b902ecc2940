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

/// What is done about votes in the background.
#[derive(Debug, Default)]
pub(crate) struct Votes {
    /// The thread that does it, and when it was begun.
    thread: Mutex<Option<(Instant, JoinHandle<()>)>>,
    /// Targets that were away: they may have an old label, and metadata although they do not vote.
    outdated: Mutex<BTreeSet<TargetId>>,
}

impl Votes {
    /// Notes targets that were away.
    pub fn were_away(&self, targets: impl IntoIterator<Item = TargetId>) {
        lock(&self.outdated).extend(targets);
    }

    /// Waits until the thread has ended, at most `timeout`.
    pub fn wait(&self, timeout: Duration) {
        let begun = Instant::now();
        let runs = || {
            let thread = lock(&self.thread);
            thread.as_ref().is_some_and(|(_, it)| !it.is_finished() && it.thread().id() != thread::current().id())
        };
        while runs() && begun.elapsed() < timeout {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl FileSystem {
    /// Moves votes if some targets should vote that do not, or the other way round, and brings
    /// targets up to date that were away. Waits for nothing.
    pub(crate) fn watch_votes(self: &Arc<Self>) {
        if self.role.owner().is_none() || self.is_read_only() || self.is_closed() {
            return;
        }
        let label = self.volume.label();
        if self.wanted_voters(&label) == voters(&label) && lock(&self.votes.outdated).is_empty() {
            return;
        }
        let mut thread = lock(&self.votes.thread);
        if thread.as_ref().is_some_and(|(when, it)| !it.is_finished() || when.elapsed() < RETRY_INTERVAL) {
            return;
        }
        let fs = Arc::downgrade(self);
        let begun = Builder::new().name("weft-votes".into()).spawn(move || {
            let Some(fs) = fs.upgrade() else { return };
            fs.beside("moving votes", || {
                let _alone = fs.volume.changing.lock();
                fs.update_outdated();
                fs.settle_votes();
            });
        });
        // Without a thread it is tried again at the next call.
        *thread = begun.ok().map(|thread| (Instant::now(), thread));
    }

    /// Brings targets up to date that were away: they get the label, and those that have lost their
    /// votes meanwhile lose the metadata that they have. Those without the claim wait for it: they
    /// are outvoted until then.
    fn update_outdated(&self) {
        let outdated = std::mem::take(&mut *lock(&self.votes.outdated));
        let Ok(engine) = self.engine() else { return };
        let there = self.there(None).into_iter().filter(|(id, _)| outdated.contains(id)).collect();
        let claimed = engine.journal.claimed(there);
        let ids: Vec<TargetId> = claimed.iter().map(|(id, _)| *id).collect();
        let (label, written) = {
            let _one_at_a_time = self.volume.relabelling.lock();
            let label = self.volume.label();
            let (written, _) = label.write_to(&self.store.targets, ids);
            (label, written)
        };
        self.votes.were_away(outdated.into_iter().filter(|id| !written.contains(id) && self.is_member(*id)));
        let (_, others) = divide(&label, claimed);
        engine.journal.clear(&others);
    }

    fn is_member(&self, id: TargetId) -> bool {
        self.volume.label().members().any(|member| member.id == id)
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

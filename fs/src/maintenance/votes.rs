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
use std::thread::Builder;
use std::time::{Duration, Instant};
use volume::lock;

/// How long to wait until votes are moved again: some could not be moved.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// When votes were last moved in the background.
#[derive(Debug, Default)]
pub(crate) struct Votes(Mutex<Option<Moving>>);

#[derive(Debug)]
enum Moving {
    Runs,
    Ended(Instant),
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
        {
            let mut moving = lock(&self.votes.0);
            match *moving {
                Some(Moving::Runs) => return,
                Some(Moving::Ended(when)) if when.elapsed() < RETRY_INTERVAL => return,
                _ => *moving = Some(Moving::Runs),
            }
        }
        let fs = Arc::downgrade(self);
        let begun = Builder::new().name("weft-votes".into()).spawn(move || {
            let Some(fs) = fs.upgrade() else { return };
            fs.beside("moving votes", || {
                let _alone = fs.volume.changing.lock();
                fs.settle_votes();
            });
            *lock(&fs.votes.0) = Some(Moving::Ended(Instant::now()));
        });
        if begun.is_err() {
            *lock(&self.votes.0) = Some(Moving::Ended(Instant::now()));
        }
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
        loop {
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

//! Changes of the label, which lists the voters: one at a time, and in effect when m+1 voters of
//! the label before have the new one and m+1 of its own.

use crate::bounds::{Broken, Change};
use crate::protocol::Protocol;
use crate::state::{Phase, State, Voter};
use crate::step::Step;

impl Protocol {
    /// Whether these voters show that the new label is in effect.
    pub(crate) fn is_in_effect<'a>(&self, voters: impl Iterator<Item = &'a Voter> + Clone) -> bool {
        let has = |new: bool| voters.clone().filter(|voter| voter.label && voter.is_in(new)).count();
        let old = has(false) >= self.bounds.durable() || self.broken == Some(Broken::Label);
        old && has(true) >= self.bounds.durable()
    }

    /// Whether any voter has the new label.
    pub(crate) fn is_labelled(&self, state: &State) -> bool {
        self.voters(state).iter().any(|voter| voter.label)
    }

    /// Whether claims of these voters are enough for an opening, and whether it uses the new label
    /// then. Labels are read once more under the claims; `new` is what was found before. Whether a
    /// new one was ever used is not known, unless these voters show it. Then what is durable may be
    /// so under either of the two.
    pub(crate) fn enough<'a>(&self, voters: impl Iterator<Item = &'a Voter> + Clone, new: bool) -> Option<bool> {
        let rereads = self.broken != Some(Broken::Reread);
        let new = new || rereads && voters.clone().any(|voter| voter.label);
        let enough = |new: bool| voters.clone().filter(|voter| voter.is_in(new)).count() >= self.quorum(new);
        let alone = new && (self.is_in_effect(voters.clone()) || self.broken == Some(Broken::Joint));
        ((!new || enough(true)) && (alone || enough(false))).then_some(new)
    }

    /// Whether a server knows of a target and asks it for a claim. A holder asks the one that is to
    /// join before it changes the label.
    pub(crate) fn may_ask(&self, state: &State, server: usize, at: &Voter) -> bool {
        let opening = &state.openings[server];
        match opening.phase {
            Phase::Holder if !state.changed => true,
            Phase::Holder => at.is_in(opening.new) || opening.changes && at.is,
            _ => at.was || at.is && self.is_labelled(state),
        }
    }

    /// Begins a change, or the same one again if it was begun before, and ends it.
    pub(crate) fn change(&self, state: &State, server: usize, each: &mut dyn FnMut(Step, State)) {
        let opening = &state.openings[server];
        if opening.changes && self.is_in_effect(self.voters(state).iter()) {
            let mut to = *state;
            (to.openings[server].new, to.openings[server].changes) = (true, false);
            each(Step::Use(server), to);
        }
        let Some(change) = self.bounds.change.filter(|_| !opening.new && !opening.changes) else { return };
        let voters = self.voters(state).iter().enumerate();
        // Who leaves is no mirror any more, and who joins counts.
        let leaves = |voter: &Voter| voter.was && (voter.views[server].has == 0 || self.broken == Some(Broken::Leave));
        let joins = |voter: &Voter| !voter.was && voter.counts() && self.same(voter.claim, opening.epoch);
        let begun = |number: usize, joins: bool| !state.changed || state.voters[number].is == joins;
        let numbers = |may: &dyn Fn(&Voter) -> bool, joins: bool| -> Vec<Option<usize>> {
            let may = voters.clone().filter(|(number, voter)| may(voter) && begun(*number, joins));
            may.map(|(number, _)| Some(number)).collect()
        };
        let leaving = if change == Change::Add { vec![None] } else { numbers(&leaves, false) };
        let joining = if change == Change::Remove { vec![None] } else { numbers(&joins, true) };
        for (leaves, joins) in leaving.iter().flat_map(|leaves| joining.iter().map(move |joins| (*leaves, *joins))) {
            let mut to = *state;
            for (number, voter) in to.voters.iter_mut().enumerate().filter(|_| !state.changed) {
                voter.is = (voter.was || joins == Some(number)) && leaves != Some(number);
            }
            (to.changed, to.openings[server].changes) = (true, true);
            each(Step::Change(server, leaves, joins), to);
        }
    }

    /// Whether a voter takes the new label from a server.
    pub(crate) fn may_label(&self, state: &State, server: usize, at: &Voter) -> bool {
        let opening = &state.openings[server];
        let brings = opening.changes || opening.new && opening.phase == Phase::Adopted;
        brings && at.is && !at.label && self.same(at.claim, opening.epoch)
    }
}

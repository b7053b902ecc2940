//! Steps: what servers do, and requests that reach a voter.
//!
//! A request is on the network from the moment in which its opening has made it, and for ever: it
//! reaches a voter at any time, again and again, or never. So the network needs no state.
//! An answer is with the server at once: one that comes late is the same as a server that does not
//! look, as nothing that it knows keeps it from a step. Only for claims it makes a difference
//! whether the answer is lost.

use crate::bounds::Broken;
use crate::protocol::Protocol;
use crate::state::{Journal, Log, Phase, State, Voter};

impl Protocol {
    /// Whether a voter grants a claim that it does not have yet, or tells that it is blank.
    pub(crate) fn may_claim(&self, state: &State, server: usize, at: &Voter) -> bool {
        let epoch = state.openings[server].epoch;
        if !self.may_ask(state, server, at) {
            return false;
        }
        let free = !at.lease || self.broken == Some(Broken::Lease);
        let renewed = at.claim != epoch && self.same(at.claim, epoch);
        let phase = state.openings[server].phase;
        let open = matches!(phase, Phase::Adopted | Phase::Holder);
        let tells = open && at.blank && at.claim == epoch && !at.views[server].marked;
        phase != Phase::Idle && (at.claim.number < epoch.number && free || renewed || tells)
    }

    /// A voter grants a claim. Its answer may be lost. One that has lost everything is blank from
    /// then on: it does not count under any claim. A server that claims a voter does not count
    /// what it had there.
    pub(crate) fn claim(&self, state: &State, server: usize, number: usize, answered: bool) -> State {
        let mut to = *state;
        let phase = state.openings[server].phase;
        let open = matches!(phase, Phase::Adopted | Phase::Holder);
        let voter = &mut to.voters[number];
        if voter.claim != state.openings[server].epoch {
            voter.views.iter_mut().for_each(|view| view.marked = false);
        }
        voter.blank |= voter.claim.number == 0 && self.broken != Some(Broken::Blank);
        let blank = voter.blank;
        let view = &mut voter.views[server];
        if phase == Phase::Claiming {
            view.granted |= answered && !blank;
        } else if open && (answered || self.broken != Some(Broken::Renewal)) {
            let told = answered && blank;
            if view.has > 0 {
                to.openings[server].kept = self.known(state, server);
            }
            (view.has, view.blank, view.marked, view.sure) = (0, told, told, false);
        }
        view.fresh = self.bounds.leases && answered && !blank && phase != Phase::Failed;
        voter.claim = state.openings[server].epoch;
        voter.lease = self.bounds.leases;
        if open && answered && blank {
            to.voters.iter_mut().for_each(|voter| voter.views[server].shown = false);
        }
        to
    }

    /// Whether a voter has a claim to show that matters: another one that is blank waits for that.
    pub(crate) fn may_show(&self, state: &State, server: usize, number: usize) -> bool {
        let at = &state.voters[number];
        let waits = |voter: &Voter| voter.views[server].blank && !voter.views[server].sure;
        self.same(at.claim, state.openings[server].epoch)
            && !(at.blank || at.views[server].shown)
            && at.is_in(state.openings[server].new)
            && self.voters(state).iter().any(waits)
    }

    /// A voter shows that it has the claim, and is not blank. When N-Q+1 have, a blank one cannot
    /// have lost the claim of an opening that goes on: that one has claims on Q voters, so one of
    /// these would have it, too. Q is what an opening needs.
    pub(crate) fn show(&self, state: &State, server: usize, number: usize) -> State {
        let mut to = *state;
        to.voters[number].views[server].shown = true;
        let shown = to.voters.iter().filter(|voter| voter.views[server].shown).count();
        let new = state.openings[server].new;
        if shown > usize::from(self.bounds.members(new)) - self.bounds.quorum(new) {
            for voter in &mut to.voters {
                let view = &mut voter.views[server];
                (view.sure, view.shown) = (view.blank, false);
            }
        }
        to
    }

    /// Whether a voter takes the whole state from a server.
    pub(crate) fn may_put(&self, state: &State, server: usize, at: &Voter) -> bool {
        let opening = &state.openings[server];
        let open = matches!(opening.phase, Phase::Adopted | Phase::Holder);
        // It is asked for a claim first, and tells whether it is blank.
        let told = !at.blank || at.views[server].marked;
        // During a change, what becomes durable must be so under both labels.
        let listed = at.is_in(opening.new) && (!opening.changes || at.is);
        open && listed && self.same(at.claim, opening.epoch) && at.views[server].has == 0 && told
    }

    /// A voter gets what the server had adopted; the transactions since follow one by one.
    pub(crate) fn put(&self, state: &State, server: usize, number: usize) -> State {
        let mut to = *state;
        let opening = &state.openings[server];
        let early = self.broken == Some(Broken::Recruit) && opening.phase == Phase::Holder;
        let log = if early { Log::holes(opening.log.length()) } else { opening.log.first(opening.base) };
        to.voters[number].journal = Journal { epoch: opening.epoch, log };
        to.voters[number].views[server].has = log.length() + 1;
        to
    }

    /// Whether a mirror takes the next transaction.
    pub(crate) fn may_append(&self, state: &State, server: usize, at: &Voter) -> bool {
        let (opening, has) = (&state.openings[server], at.views[server].has);
        let more = has > 0 && has <= opening.log.length();
        more && (self.same(at.claim, opening.epoch) || self.broken == Some(Broken::Fence))
    }

    /// A mirror gets the next transaction.
    pub(crate) fn append(&self, state: &State, server: usize, number: usize) -> State {
        let mut to = *state;
        let voter = &mut to.voters[number];
        let has = &mut voter.views[server].has;
        if voter.journal.log.length() < *has - 1 {
            // It has lost what was before that.
            voter.journal.log = Log::holes(*has - 1);
        }
        if voter.journal.epoch.number == 0 {
            voter.journal.epoch = state.openings[server].epoch;
        }
        voter.journal.log = voter.journal.log.first(*has - 1).push(state.openings[server].log.at(*has - 1));
        *has += 1;
        to
    }

    /// Whether a blank voter may count: it has got all that is durable, or others have all of it.
    /// The server has seen it blank, and it has lost nothing since.
    pub(crate) fn may_count(&self, state: &State, server: usize, number: usize) -> bool {
        let (opening, at) = (&state.openings[server], &state.voters[number]);
        let open = matches!(opening.phase, Phase::Adopted | Phase::Holder);
        let durable = self.known(state, server).max(opening.base + 1);
        let has = at.views[server].has >= durable || self.durable(state, server, Some(number)) >= durable;
        let view = &at.views[server];
        let has = has || self.broken == Some(Broken::Whole);
        let sure = view.sure || self.broken == Some(Broken::Fresh);
        open && at.blank && self.same(at.claim, opening.epoch) && view.marked && has && sure
    }

    /// Whether a server may drop a mirror: as much is durable without it.
    pub(crate) fn may_drop(&self, state: &State, server: usize, number: usize) -> bool {
        let (opening, at) = (&state.openings[server], &state.voters[number]);
        opening.phase == Phase::Holder
            && state.drops < self.bounds.drops
            && at.views[server].has > 0
            && self.same(at.claim, opening.epoch)
            && self.durable(state, server, Some(number)) >= self.known(state, server)
    }
}

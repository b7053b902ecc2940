//! Steps: what servers do, and requests that reach a voter.
//!
//! A request is on the network from the moment in which its opening has made it, and for ever: it
//! reaches a voter at any time, again and again, or never. So the network needs no state.
//! An answer is with the server at once: one that comes late is the same as a server that does not
//! look, as nothing that it knows keeps it from a step. Only for claims it makes a difference
//! whether the answer is lost.

use crate::bounds::Broken;
use crate::protocol::Protocol;
use crate::state::{Epoch, Journal, Log, Phase, State, Voter};
use std::fmt;

/// A step. Voters are numbers, servers letters.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A server reads claims and asks all voters for one with this number.
    Start(usize, u8),
    /// A voter gets a claim; whether its answer arrives.
    Claim(usize, usize, bool),
    /// A server reads journals and adopts a history.
    Adopt(usize),
    /// A voter gets all that the server had adopted, with the new epoch: the barrier, or a new
    /// mirror's copy.
    Put(usize, usize),
    /// A mirror gets the next transaction.
    Append(usize, usize),
    /// A server begins to answer.
    Establish(usize),
    /// A server writes a transaction.
    Write(usize),
    /// A server answers all that it knows to be durable.
    Answer(usize),
    /// A blank voter counts from now on.
    Whole(usize, usize),
    /// A voter renews the lease.
    Renew(usize, usize),
    /// The lease that a voter gave runs out, for its holder not later than for the voter.
    Expire(usize),
    /// A server drops a mirror and removes the journal there.
    Drop(usize, usize),
    /// A voter loses all that it has.
    Wipe(usize),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |server: usize| char::from(b'a' + server as u8);
        match *self {
            Self::Start(server, number) => write!(f, "server {} asks for claims with number {number}", name(server)),
            Self::Claim(server, voter, true) => write!(f, "voter {voter} grants server {} its claim", name(server)),
            Self::Claim(server, voter, false) => {
                write!(f, "voter {voter} grants server {} its claim; the answer is lost", name(server))
            }
            Self::Adopt(server) => write!(f, "server {} adopts a history", name(server)),
            Self::Put(server, voter) => write!(f, "voter {voter} gets the state from server {}", name(server)),
            Self::Append(server, voter) => write!(f, "voter {voter} gets a transaction from server {}", name(server)),
            Self::Establish(server) => write!(f, "server {} begins to answer", name(server)),
            Self::Write(server) => write!(f, "server {} writes a transaction", name(server)),
            Self::Answer(server) => write!(f, "server {} answers what is durable", name(server)),
            Self::Whole(server, voter) => write!(f, "voter {voter} counts again, says server {}", name(server)),
            Self::Renew(server, voter) => write!(f, "voter {voter} renews the lease of server {}", name(server)),
            Self::Expire(voter) => write!(f, "the lease runs out at voter {voter}"),
            Self::Drop(server, voter) => write!(f, "server {} removes its journal at voter {voter}", name(server)),
            Self::Wipe(voter) => write!(f, "voter {voter} loses everything"),
        }
    }
}

impl Protocol {
    /// Whether two epochs are the same.
    pub(crate) fn same(&self, one: Epoch, other: Epoch) -> bool {
        one.number == other.number && (one.id == other.id || self.broken == Some(Broken::Ids))
    }

    /// Whether a voter grants a claim that it does not have yet, or tells that it is blank.
    pub(crate) fn may_claim(&self, state: &State, server: usize, at: &Voter) -> bool {
        let epoch = state.openings[server].epoch;
        let free = !at.lease || self.broken == Some(Broken::Lease);
        let renewed = at.claim != epoch && self.same(at.claim, epoch);
        let phase = state.openings[server].phase;
        let open = matches!(phase, Phase::Adopted | Phase::Holder);
        let tells = open && at.blank && at.claim == epoch && !at.views[server].marked;
        phase != Phase::Idle && (at.claim.number < epoch.number && free || renewed || tells)
    }

    /// A voter grants a claim. It may be late or repeated: then the server does not count it. One
    /// that has lost everything is blank from then on: it does not count, whoever claims it.
    pub(crate) fn claim(&self, state: &State, server: usize, number: usize, answered: bool) -> State {
        let mut to = *state;
        let phase = state.openings[server].phase;
        let voter = &mut to.voters[number];
        if voter.claim != state.openings[server].epoch {
            voter.views.iter_mut().for_each(|view| view.marked = false);
        }
        voter.blank |= voter.claim.number == 0 && self.broken != Some(Broken::Blank);
        let view = &mut voter.views[server];
        if answered && phase == Phase::Claiming {
            view.granted = !voter.blank;
        } else if answered && voter.blank && matches!(phase, Phase::Adopted | Phase::Holder) {
            if view.has > 0 {
                to.openings[server].kept = self.known(state, server);
            }
            (view.marked, view.has) = (true, 0);
        }
        view.fresh = self.bounds.leases && answered && phase != Phase::Failed;
        voter.claim = state.openings[server].epoch;
        voter.lease = self.bounds.leases;
        to
    }

    /// Whether a voter takes the whole state from a server.
    pub(crate) fn may_put(&self, state: &State, server: usize, at: &Voter) -> bool {
        let opening = &state.openings[server];
        let open = matches!(opening.phase, Phase::Adopted | Phase::Holder);
        open && self.same(at.claim, opening.epoch) && at.views[server].has == 0
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
        let ours = self.same(at.claim, opening.epoch) && self.same(at.journal.epoch, opening.epoch);
        more && (ours || self.broken == Some(Broken::Fence)) && at.journal.log.length() + 1 >= has
    }

    /// A mirror gets the next transaction.
    pub(crate) fn append(&self, state: &State, server: usize, number: usize) -> State {
        let mut to = *state;
        let voter = &mut to.voters[number];
        let has = &mut voter.views[server].has;
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
        let safe = has && at.views[server].marked || self.broken == Some(Broken::Whole);
        open && at.blank && self.same(at.claim, opening.epoch) && safe
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

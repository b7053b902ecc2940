//! What a server does by itself: it begins an opening, adopts a history, writes and answers.

use crate::bounds::Broken;
use crate::protocol::Protocol;
use crate::state::{Epoch, Fault, Journal, Log, Phase, State, View};

impl Protocol {
    /// The numbers that an opening may choose: one more than the highest claim of those that it
    /// could read. With one that is too low at too many voters nothing can come of it.
    pub(crate) fn numbers(&self, state: &State) -> Vec<u8> {
        let claims =
            || self.voters(state).iter().filter(|voter| voter.claim.number > 0).map(|voter| voter.claim.number);
        let least = self.quorum(false).min(self.quorum(true));
        let grants = |number: u8| claims().filter(|&claim| claim < number).count() >= least;
        let mut numbers: Vec<u8> = claims().map(|claim| claim + 1).filter(|&number| grants(number)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// Begins an opening: it asks all voters for a claim.
    pub(crate) fn start(&self, state: &State, server: usize, number: u8, new: bool) -> State {
        let mut to = *state;
        to.openings[server].new = new;
        to.openings[server].epoch = Epoch { number, id: server as u8 + 1 };
        to.openings[server].phase = Phase::Claiming;
        if self.broken == Some(Broken::ClaimRead) {
            to.voters.iter_mut().for_each(|voter| voter.views[server].before = voter.claim);
        }
        to
    }

    /// Whether enough voters have granted the claim: with the label that the opening uses then.
    pub(crate) fn may_adopt(&self, state: &State, server: usize) -> Option<bool> {
        let opening = &state.openings[server];
        let granted = self.voters(state).iter().filter(|voter| voter.views[server].granted);
        if opening.phase == Phase::Claiming { self.enough(granted, opening.new) } else { None }
    }

    /// Reads the journals of all voters that granted the claim, and adopts the newest history. That
    /// is one step: only a later opening can change them meanwhile, and its journal makes this one
    /// fail, whenever it is seen.
    pub(crate) fn adopt(&self, state: &State, server: usize, new: bool) -> State {
        let mut to = *state;
        to.openings[server].new = new;
        let granted = self.voters(state).iter().filter(|voter| voter.views[server].granted);
        let adopted = self.choose(granted.map(|voter| (voter.views[server].before, voter.journal)));
        let opening = &mut to.openings[server];
        match adopted {
            Some(log) => {
                (opening.phase, opening.base, opening.log) = (Phase::Adopted, log.length(), log);
                opening.lacks = !log.has(state.answered);
            }
            None => opening.phase = Phase::Failed,
        }
        for voter in &mut to.voters {
            let fresh = voter.views[server].fresh && adopted.is_some();
            voter.views[server] = View { fresh, ..View::default() };
        }
        to
    }

    /// The history that these voters prove, each with the claim that was read before it was
    /// replaced and its journal: the longest of the highest epoch. A voter with a journal of that
    /// epoch had its claim, whatever was read earlier.
    pub(crate) fn choose(&self, voters: impl Iterator<Item = (Epoch, Journal)> + Clone) -> Option<Log> {
        let journals = voters.filter(|(_, journal)| journal.epoch.number > 0);
        if self.broken == Some(Broken::Lineage) {
            return journals.map(|(_, journal)| journal.log).max_by_key(|log| log.length());
        }
        let newest = journals.clone().map(|(_, journal)| journal.epoch).max()?;
        let late = self.broken == Some(Broken::ClaimRead);
        let believed = journals.filter(|(before, _)| !late || before.number >= newest.number);
        let known = believed.filter(|(_, journal)| self.same(journal.epoch, newest));
        known.map(|(_, journal)| journal.log).max_by_key(|log| log.length())
    }

    /// How many transactions of an opening are durable, as far as it knows: one more than that, and
    /// 0 if too few mirrors have what it began with. `without` is a voter that does not count.
    pub(crate) fn durable(&self, state: &State, server: usize, without: Option<usize>) -> u8 {
        let needed = self.bounds.durable() - usize::from(self.broken == Some(Broken::Durable));
        let voters = self.voters(state).iter().enumerate().filter(|(number, _)| Some(*number) != without);
        let voters = voters.filter(|(_, voter)| voter.is_in(state.openings[server].new));
        let views = voters.map(|(_, voter)| &voter.views[server]);
        let counts = |view: &&View| !view.blank || view.sure || self.broken == Some(Broken::Fresh);
        let mut has: Vec<u8> = views.filter(counts).map(|view| view.has).collect();
        has.sort_unstable();
        if needed == 0 || needed > has.len() { 0 } else { has[has.len() - needed] }
    }

    /// As `durable`, and what was so once, although a mirror has lost it since.
    pub(crate) fn known(&self, state: &State, server: usize) -> u8 {
        state.openings[server].kept.max(self.durable(state, server, None))
    }

    /// It is a holder as soon as all that it has adopted is durable. Readers see it from then on,
    /// so all of it counts as answered.
    pub(crate) fn establish(&self, state: &State, server: usize) -> State {
        let mut to = *state;
        to.openings[server].phase = Phase::Holder;
        let log = state.openings[server].log;
        if state.openings[server].lacks {
            to.fault = Some(Fault::Lost);
        }
        self.answer(&mut to, log);
        to
    }

    /// Answers these transactions as durable.
    pub(crate) fn answer(&self, to: &mut State, log: Log) {
        if log.has(to.answered) {
            to.answered = log;
        } else if !to.answered.has(log) {
            to.fault = Some(Fault::Forked);
        }
    }

    /// Whether its lease runs, by its own clock, at m+1 voters: of both labels during a change.
    pub(crate) fn may_read(&self, state: &State, server: usize) -> bool {
        let opening = &state.openings[server];
        let fresh = |new: bool| {
            let fresh = self.voters(state).iter().filter(|voter| voter.is_in(new) && voter.views[server].fresh);
            fresh.count() >= self.bounds.durable()
        };
        let both = opening.changes && self.broken != Some(Broken::BothLeases);
        opening.phase == Phase::Holder && fresh(opening.new) && (!both || fresh(!opening.new))
    }
}

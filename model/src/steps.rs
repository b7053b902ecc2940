//! All steps of a state, and what must be true of it.

use crate::check::Model;
use crate::protocol::Protocol;
use crate::state::{Epoch, Fault, Journal, Log, Phase, State};
use crate::step::Step;

impl Protocol {
    /// The steps of one server.
    fn serve(&self, state: &State, server: usize, each: &mut dyn FnMut(Step, State)) {
        let opening = &state.openings[server];
        match opening.phase {
            // Ids are made up, so the openings may begin in the order of their ids.
            Phase::Idle if server == 0 || state.openings[server - 1].phase != Phase::Idle => {
                let labels = [false, true].into_iter().take(1 + usize::from(self.is_labelled(state)));
                for (number, new) in
                    self.numbers(state).into_iter().flat_map(|n| labels.clone().map(move |new| (n, new)))
                {
                    each(Step::Start(server, number, new), self.start(state, server, number, new));
                }
            }
            Phase::Claiming => {
                if let Some(new) = self.may_adopt(state, server) {
                    each(Step::Adopt(server), self.adopt(state, server, new));
                }
            }
            Phase::Adopted if self.durable(state, server, None) > opening.base => {
                // A label that is not in effect yet is brought there first.
                let is_in_effect = !opening.new || self.is_in_effect(self.voters(state).iter());
                is_in_effect.then(|| each(Step::Establish(server), self.establish(state, server)));
            }
            Phase::Holder => {
                let written = opening.log.length() - opening.base;
                if written < self.bounds.writes {
                    let mut to = *state;
                    to.openings[server].log = opening.log.push(server as u8 + 1);
                    each(Step::Write(server), to);
                }
                let durable = opening.log.first(self.durable(state, server, None).saturating_sub(1));
                if !state.answered.has(durable) {
                    let mut to = *state;
                    self.answer(&mut to, durable);
                    each(Step::Answer(server), to);
                }
                self.change(state, server, each);
            }
            _ => {}
        }
    }

    /// The steps of one voter with one server.
    fn reach(&self, state: &State, server: usize, number: usize, each: &mut dyn FnMut(Step, State)) {
        let (opening, at) = (&state.openings[server], &state.voters[number]);
        if self.may_claim(state, server, at) {
            each(Step::Claim(server, number, true), self.claim(state, server, number, true));
            each(Step::Claim(server, number, false), self.claim(state, server, number, false));
        }
        if self.may_count(state, server, number) {
            let mut to = *state;
            to.voters[number].blank = false;
            to.voters[number].views.iter_mut().for_each(|view| view.marked = false);
            let view = &mut to.voters[number].views[server];
            (view.blank, view.sure) = (false, false);
            each(Step::Whole(server, number), to);
        }
        if self.may_label(state, server, at) {
            let mut to = *state;
            to.voters[number].label = true;
            each(Step::Label(server, number), to);
        }
        if self.may_show(state, server, number) {
            each(Step::Show(server, number), self.show(state, server, number));
        }
        if self.may_put(state, server, at) {
            each(Step::Put(server, number), self.put(state, server, number));
        }
        if self.may_append(state, server, at) {
            each(Step::Append(server, number), self.append(state, server, number));
        }
        let ours = self.same(at.claim, opening.epoch) && !at.blank;
        let renews = self.bounds.leases && opening.phase == Phase::Holder && ours;
        if renews && !(at.lease && at.views[server].fresh) {
            let mut to = *state;
            (to.voters[number].lease, to.voters[number].views[server].fresh) = (true, true);
            each(Step::Renew(server, number), to);
        }
        if self.may_drop(state, server, number) {
            let mut to = *state;
            to.drops += 1;
            to.voters[number].journal = Journal::default();
            to.voters[number].views[server].has = 0;
            each(Step::Drop(server, number), to);
        }
    }

    /// The steps of one voter alone.
    fn suffer(&self, state: &State, number: usize, each: &mut dyn FnMut(Step, State)) {
        let at = &state.voters[number];
        if at.lease || at.views.iter().any(|view| view.fresh) {
            let mut to = *state;
            to.voters[number].lease = false;
            to.voters[number].views.iter_mut().for_each(|view| view.fresh = false);
            each(Step::Expire(number), to);
        }
        let lost = self.voters(state).iter().filter(|voter| !voter.counts()).count();
        let may_lose = lost < usize::from(self.bounds.losses) || !at.counts();
        if state.wipes < self.bounds.wipes && at.claim.number > 0 && may_lose {
            let mut to = *state;
            to.wipes += 1;
            let voter = &mut to.voters[number];
            (voter.claim, voter.lease, voter.blank) = (Epoch::default(), false, false);
            voter.journal = Journal::default();
            for view in &mut voter.views {
                // An opening that has its claim cannot read the journal any more.
                (view.granted, view.before, view.marked) = (false, Epoch::default(), false);
                // Its server does not know that, and goes on with what it has seen.
                (view.blank, view.sure) = (view.blank && view.has > 0, view.sure && view.has > 0);
            }
            each(Step::Wipe(number), to);
        }
    }

    /// What an opening finds that has just these voters, in this state, with all leases over.
    fn found(&self, state: &State, chosen: u32) -> Option<Log> {
        let voters = self.voters(state).iter().enumerate().filter(|(number, _)| chosen & 1 << number != 0);
        self.choose(voters.map(|(_, voter)| (voter.claim, voter.journal)))
    }
}

impl Model for Protocol {
    type State = State;
    type Step = Step;

    /// A new volume: all voters have the first claim, and m+2 of them are mirrors.
    fn first(&self) -> State {
        let epoch = Epoch { number: 1, id: 0 };
        let mut state = State {
            voters: Default::default(),
            openings: Default::default(),
            answered: Log::default(),
            wipes: 0,
            drops: 0,
            changed: false,
            fault: None,
        };
        for number in 0..usize::from(self.bounds.voters) {
            (state.voters[number].claim, state.voters[number].was) = (epoch, true);
            if number < self.bounds.durable() + 1 {
                state.voters[number].journal.epoch = epoch;
            }
        }
        state
    }

    fn steps(&self, state: &State, each: &mut dyn FnMut(Step, State)) {
        for server in 0..usize::from(self.bounds.openings) {
            self.serve(state, server, each);
            for number in 0..self.bounds.targets() {
                self.reach(state, server, number, each);
            }
        }
        (0..self.bounds.targets()).for_each(|number| self.suffer(state, number, each));
    }

    fn canonical(&self, state: &State) -> State {
        let mut sorted = *state;
        for server in 0..usize::from(self.bounds.openings) {
            // What no step looks at.
            if state.openings[server].kept <= self.durable(state, server, None) {
                sorted.openings[server].kept = 0;
            }
            for voter in &mut sorted.voters {
                let ours = self.same(voter.claim, state.openings[server].epoch);
                let view = &mut voter.views[server];
                if !ours && view.has == 0 {
                    (view.blank, view.marked, view.sure) = (false, false, false);
                }
            }
            if !sorted.voters.iter().any(|voter| voter.views[server].blank && !voter.views[server].sure) {
                sorted.voters.iter_mut().for_each(|voter| voter.views[server].shown = false);
            }
        }
        sorted.voters[..self.bounds.targets()].sort_unstable();
        sorted
    }

    fn wrong(&self, state: &State) -> Option<String> {
        match state.fault {
            Some(Fault::Lost) => return Some("(a) an opening answers without what was answered as durable".into()),
            Some(Fault::Forked) => return Some("(b) two answers for one number have different contents".into()),
            None => {}
        }
        for server in 0..usize::from(self.bounds.openings) {
            if self.may_read(state, server) && !state.openings[server].log.has(state.answered) {
                let name = char::from(b'a' + server as u8);
                return Some(format!("(c) server {name} answers reads and lacks what another one answered"));
            }
        }
        for chosen in 0..1u32 << self.bounds.targets() {
            let is_chosen = |number: &usize| chosen & 1 << number != 0;
            let names: Vec<usize> = (0..self.bounds.targets()).filter(is_chosen).collect();
            let voters = names.iter().map(|&number| &state.voters[number]);
            // An opening that begins before there is a new label may go on after it.
            if voters.clone().any(|voter| !voter.counts()) || self.enough(voters, false).is_none() {
                continue;
            }
            match self.found(state, chosen) {
                None => return Some(format!("(d) an opening with the voters {names:?} finds no history")),
                Some(log) if !log.has(state.answered) => {
                    return Some(format!("(a) an opening with the voters {names:?} finds {log:?} only"));
                }
                Some(_) => {}
            }
        }
        None
    }
}

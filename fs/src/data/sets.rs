//! The sources of new chunk sets: this process places them, or the metadata server does so ahead of
//! need.

use crate::data::store::{NewSets, Store};
use crate::ranks::{LeasedSets, SetRequest};
use crate::volume::history;
use crate::{Error, Result};
use ::volume::ranked::{Guard, Ranked};
use meta::{Meta, SetRecord};
use plan::placement::{place_beside, share};
use plan::{Position, SetId, TargetId};
use session::port::Session;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many sets a client requests at a time, and how many it keeps ahead. A set holds some hundred
/// MiB.
const SETS_PER_REQUEST: u32 = 4;
const SETS_AHEAD: usize = 2;
/// The times between two exchanges of sets for better ones. The server may not know yet that there
/// are better ones, or know why there are none: a target may be too full for new chunks. As long as
/// it gives no better ones and the same targets are there, each interval is twice as long as the
/// one before.
const MIN_RENEWAL_INTERVAL: Duration = Duration::from_secs(3);
const MAX_RENEWAL_INTERVAL: Duration = Duration::from_secs(60);

/// Places sets in this process.
pub(crate) struct Placed(pub Arc<Meta>);

impl Placed {
    /// Places a set on targets that can take data. Uses a target in `avoid` only if there are too
    /// few others, and those of the other open sets of the writer, `beside`, after others. Calls
    /// `held` with the number before any other thread can see the set.
    pub fn place(
        &self,
        store: &Store,
        avoid: &[TargetId],
        beside: &[Vec<Option<TargetId>>],
        held: impl Fn(SetId),
    ) -> Result<(SetId, SetRecord)> {
        let set = self.0.next_set()?;
        let others: Vec<TargetId> = avoid.iter().chain(beside.iter().flatten().flatten()).copied().collect();
        let topology = store.topology();
        let near = topology.near().map(|places| &**places);
        let places = match store.balance.place_apart(set, &others, near, |id| store.takes_new_chunks(id)) {
            Some(places) => places,
            None => Self::choose(store, set, avoid, beside)?,
        };
        let record = SetRecord { code: store.options.code.spec().to_string(), places, sealed: false, length: 0 };
        held(set);
        store.history.add(set, |all| Ok(self.0.put_setting(history::SETTING, all).map(drop)?))?;
        self.0.put_set(set, &record)?;
        let lost: Vec<Position> =
            Position::all(record.places.len()).filter(|p| record.places[p.index()].is_none()).collect();
        if !lost.is_empty() {
            self.0.queue_repair(set, &lost)?;
        }
        Ok((set, record))
    }

    /// Chooses the targets of a set among all.
    fn choose(
        store: &Store,
        set: SetId,
        avoid: &[TargetId],
        beside: &[Vec<Option<TargetId>>],
    ) -> Result<Vec<Option<TargetId>>> {
        let k = store.options.code.shape().k;
        let mut candidates = store.candidates();
        let willing = candidates.iter().filter(|candidate| !avoid.contains(&candidate.id)).count();
        if willing >= k {
            candidates.retain(|candidate| !avoid.contains(&candidate.id));
        }
        let topology = store.topology();
        let rules = topology.rules(store.options.code.shape(), store.new_chunk_bytes());
        let mut places = place_beside(&*topology.policy(), &candidates, &rules, set, k, beside);
        let most = topology.most_on_one(rules.width);
        if most > 1 {
            share(&mut places, &candidates, &rules, set, most);
        }
        let found = places.iter().flatten().count();
        if found < k {
            let why = format!("too few targets can take data: {found}, and it takes {k}");
            return Err(if candidates.len() * most < k {
                Error::Meta(meta::Error::Unavailable(why))
            } else {
                Error::Volume(volume::Error::NoSpace("the volume".into()))
            });
        }
        let taken: Vec<TargetId> = places.iter().flatten().copied().collect();
        store.balance.placed(&taken, &candidates);
        Ok(places)
    }
}

impl NewSets for Placed {
    fn next(&self, store: &Store) -> Result<(SetId, SetRecord)> {
        self.place(store, &[], &store.open_places(), |_| ())
    }
}

/// Sets that the metadata server placed for this client.
pub(crate) struct Leased {
    session: Arc<dyn Session>,
    /// Never held during a request to the server: the thread that reclaims the session needs it.
    state: Ranked<State, LeasedSets>,
    /// Held by the thread that requests sets. The server takes back sets that it gave to the
    /// session and that a request does not list, so requests must not overlap.
    asking: Ranked<(), SetRequest>,
}

#[derive(Default)]
struct State {
    ahead: VecDeque<(SetId, SetRecord)>,
    /// All sets of this session, including those kept ahead.
    held: BTreeSet<SetId>,
    /// The last exchange of sets for better ones.
    renewal: Option<Renewal>,
    /// How often this client reclaimed its sets from a server. An older answer may list sets that
    /// were not reclaimed.
    reclaims: u64,
    /// How often a server answered to that: another one may have forgotten what the one before had
    /// not made durable.
    losses: u64,
    /// Sets were lost, and their data has not been checked yet.
    lost: bool,
}

/// An exchange of sets for better ones.
struct Renewal {
    when: Instant,
    /// The targets that were there.
    there: Vec<TargetId>,
    /// The time to the next one, if the same targets are there then.
    interval: Duration,
}

impl Renewal {
    /// The next exchange, if it is due now.
    fn after(last: Option<&Self>, there: Vec<TargetId>, now: Instant) -> Option<Self> {
        let first = Self { when: now, there, interval: MIN_RENEWAL_INTERVAL };
        let Some(last) = last else { return Some(first) };
        let passed = now.saturating_duration_since(last.when);
        if first.there != last.there {
            return (passed >= MIN_RENEWAL_INTERVAL).then_some(first);
        }
        let interval = (last.interval * 2).min(MAX_RENEWAL_INTERVAL);
        (passed >= last.interval).then_some(Self { interval, ..first })
    }
}

impl Leased {
    pub fn new(session: Arc<dyn Session>) -> Self {
        Self { session, state: Ranked::default(), asking: Ranked::default() }
    }

    fn state(&self) -> Guard<'_, State, LeasedSets> {
        self.state.lock()
    }

    /// The sets that this client may write to, to reclaim them from a server that lost the session.
    pub fn tell(&self) -> Vec<SetId> {
        let mut state = self.state();
        state.reclaims += 1;
        state.held.iter().copied().collect()
    }

    /// Of the reclaimed sets `reclaimed`, the server confirmed `kept`. Returns how many were lost:
    /// they belong to another client now, or are removed.
    pub fn keep(&self, reclaimed: &[SetId], kept: &[SetId]) -> usize {
        let mut state = self.state();
        let before = state.held.len();
        let lost = |set: &SetId| reclaimed.contains(set) && !kept.contains(set);
        state.held.retain(|set| !lost(set));
        state.ahead.retain(|(set, _)| !lost(set));
        let count = before - state.held.len();
        state.losses += 1;
        state.lost |= count > 0;
        count
    }

    /// Whether sets were lost since the last call.
    pub fn take_lost(&self) -> bool {
        std::mem::take(&mut self.state().lost)
    }

    /// Sets that were taken for writing.
    pub fn taken(&self) -> Vec<SetId> {
        let state = self.state();
        state.held.iter().copied().filter(|set| !state.ahead.iter().any(|(ahead, _)| ahead == set)).collect()
    }

    /// Requests more sets when few are left. Returns how many there were then; other threads may
    /// take them. Do not call it where a write waits for a set.
    pub fn refill(&self, store: &Store) -> Result<usize> {
        let _one_at_a_time = self.asking.lock();
        let avoid: Vec<TargetId> =
            store.targets.ids().into_iter().filter(|id| store.targets.error(*id).is_some()).collect();
        loop {
            let (reclaims, known): (u64, Vec<SetId>) = {
                let state = self.state();
                if state.ahead.len() >= SETS_AHEAD {
                    return Ok(state.ahead.len());
                }
                (state.reclaims, state.held.iter().copied().collect())
            };
            let new = self.session.new_sets(SETS_PER_REQUEST, &avoid, &known)?;
            let mut state = self.state();
            // If the session was reclaimed meanwhile, these sets were not in the list. The next
            // request gives them back.
            if state.reclaims == reclaims {
                state.held.extend(new.iter().map(|(set, _)| *set));
                state.ahead.extend(new);
                return Ok(state.ahead.len());
            }
        }
    }

    /// Gives up sets that were placed while targets were away, if those are back now. New data in
    /// them would be at risk, and existing data is repaired only when this client is done with the
    /// set. Also gives up sets with a target that is to be emptied.
    pub fn renew(&self, store: &Store) -> Result<()> {
        let good = |id: &TargetId| {
            store.targets.get(*id).is_some() && store.targets.error(*id).is_none() && !store.is_closed(*id)
        };
        let most = store.topology().most_on_one(store.options.code.shape().blocks());
        let there: Vec<TargetId> = store.targets.ids().into_iter().filter(|id| good(id)).collect();
        let worse = |places: &[Option<TargetId>]| {
            places.iter().flatten().filter(|id| good(id)).count() < (there.len() * most).min(places.len())
        };
        // Compare the places of the open writer, not those in the metadata: the latter still
        // include targets that failed since, or at the beginning.
        let open = store.open_places().iter().any(|places| worse(places));
        let ahead: Vec<SetId> = {
            let mut state = self.state();
            let of_no_use: Vec<SetId> =
                state.ahead.iter().filter(|(_, record)| worse(&record.places)).map(|(set, _)| *set).collect();
            if !open && of_no_use.is_empty() {
                state.renewal.iter_mut().for_each(|last| last.interval = MIN_RENEWAL_INTERVAL);
                return Ok(());
            }
            let Some(due) = Renewal::after(state.renewal.as_ref(), there, Instant::now()) else { return Ok(()) };
            state.renewal = Some(due);
            state.ahead.retain(|(set, _)| !of_no_use.contains(set));
            of_no_use
        };
        if open {
            store.seal_open()?;
        }
        self.release(&ahead)
    }

    /// Gives back sets. No uncommitted data may refer to them.
    pub fn release(&self, sets: &[SetId]) -> Result<()> {
        if !sets.is_empty() {
            self.session.release_sets(sets)?;
            self.state().held.retain(|set| !sets.contains(set));
        }
        Ok(())
    }

    /// Gives back all sets that were never written.
    pub fn release_ahead(&self) -> Result<()> {
        let ahead: Vec<SetId> = self.state().ahead.drain(..).map(|(set, _)| set).collect();
        self.release(&ahead)
    }
}

impl NewSets for Leased {
    fn next(&self, store: &Store) -> Result<(SetId, SetRecord)> {
        loop {
            let next = self.state().ahead.pop_front();
            let Some((set, record)) = next else {
                if self.refill(store)? == 0 {
                    return Err(Error::Meta(meta::Error::Unavailable(
                        "the metadata server gives no chunk sets".into(),
                    )));
                }
                continue;
            };
            // A set that was placed before a target failed or became full is of no use while there
            // are better ones. It is given back later, because a write waits for this call.
            let is_bad = |&id: &TargetId| store.targets.error(id).is_some() || store.targets.was_full(id);
            if record.places.iter().flatten().any(is_bad) && !self.state().ahead.is_empty() {
                continue;
            }
            return Ok((set, record));
        }
    }

    fn is_ours(&self, set: SetId) -> bool {
        self.state().held.contains(&set)
    }

    fn may_lose(&self) -> bool {
        true
    }

    fn losses(&self) -> u64 {
        self.state().losses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_exchanged_less_and_less_often_while_the_same_targets_are_there() {
        let there = |count| (0..count).map(TargetId).collect::<Vec<_>>();
        let (begin, mut last, mut times) = (Instant::now(), None, Vec::new());
        for second in 0..3600 {
            if let Some(due) = Renewal::after(last.as_ref(), there(6), begin + Duration::from_secs(second)) {
                times.push(second);
                last = Some(due);
            }
        }
        assert_eq!(times[..5], [0, 3, 9, 21, 45]);
        assert_eq!(times[times.len() - 1] - times[times.len() - 2], 60);
        // A target comes back.
        let soon = last.as_ref().unwrap().when + MIN_RENEWAL_INTERVAL;
        assert!(Renewal::after(last.as_ref(), there(6), soon).is_none());
        assert!(Renewal::after(last.as_ref(), there(7), soon - Duration::from_secs(1)).is_none());
        assert_eq!(Renewal::after(last.as_ref(), there(7), soon).unwrap().interval, MIN_RENEWAL_INTERVAL);
    }
}

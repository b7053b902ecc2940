//! Where new chunk sets come from: they are placed here, or by the metadata server, ahead of need.

use crate::mutex::lock;
use crate::store::Store;
use crate::{Error, Result, history};
use meta::port::Session;
use meta::{Meta, SetRecord};
use plan::TargetId;
use plan::placement::place;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Sets that a client asks for at a time, and what it keeps ahead: one is filled with some hundred MiB.
const BATCH: u32 = 4;
const AHEAD: usize = 2;
/// Sets are exchanged for better ones not more often: the server may not know yet that there are better ones.
const RENEW_AFTER: Duration = Duration::from_secs(3);

/// Gives out chunk sets.
pub(crate) trait NewSets: Send + Sync {
    /// A chunk set that nobody else writes to.
    fn next(&self, store: &Store) -> Result<(u64, SetRecord)>;
}

/// Places sets itself.
pub(crate) struct Placed(pub Arc<Meta>);

impl Placed {
    /// Places a set on targets that can take data, but not on those to avoid unless there are too few others.
    /// `held` hears its number before anybody else.
    pub fn place(&self, store: &Store, avoid: &[TargetId], held: impl Fn(u64)) -> Result<(u64, SetRecord)> {
        let set = self.0.next_set()?;
        let blocks = store.options.code.shape().blocks();
        let k = store.options.code.shape().k;
        let mut candidates = store.candidates();
        let willing = candidates.iter().filter(|candidate| !avoid.contains(&candidate.id)).count();
        if willing >= k {
            candidates.retain(|candidate| !avoid.contains(&candidate.id));
        }
        let need = u64::from(store.options.chunk_bytes).min(1 << 20);
        let topology = store.topology();
        let rules = topology.rules(store.options.code.shape(), need);
        let places = place(&*topology.policy(), &candidates, &rules, set);
        let found = places.iter().flatten().count();
        if found < k {
            let why = format!("{found} targets can take data and {k} are needed");
            return Err(if candidates.len() < k {
                Error::Meta(meta::Error::Unavailable(why))
            } else {
                Error::Volume(volume::Error::NoSpace("the volume".into()))
            });
        }
        let record = SetRecord { code: store.options.code.spec().to_string(), places, sealed: false, length: 0 };
        held(set);
        store.history.add(set, |all| Ok(self.0.put_setting(history::SETTING, all).map(drop)?))?;
        self.0.put_set(set, &record)?;
        let lost: Vec<u16> = (0..blocks as u16).filter(|&p| record.places[usize::from(p)].is_none()).collect();
        if !lost.is_empty() {
            self.0.queue_repair(set, &lost)?;
        }
        Ok((set, record))
    }
}

impl NewSets for Placed {
    fn next(&self, store: &Store) -> Result<(u64, SetRecord)> {
        self.place(store, &[], |_| ())
    }
}

/// Sets that the metadata server placed for this client.
pub(crate) struct Leased {
    session: Arc<dyn Session>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ahead: VecDeque<(u64, SetRecord)>,
    /// All sets of this session, those ahead too.
    held: BTreeSet<u64>,
    /// When sets were last exchanged for better ones.
    renewed: Option<Instant>,
}

impl Leased {
    pub fn new(session: Arc<dyn Session>) -> Self {
        Self { session, state: Mutex::default() }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The sets that this client may write to.
    pub fn held(&self) -> Vec<u64> {
        self.state().held.iter().copied().collect()
    }

    /// Sets that were taken to be written to.
    pub fn taken(&self) -> Vec<u64> {
        let state = self.state();
        state.held.iter().copied().filter(|set| !state.ahead.iter().any(|(ahead, _)| ahead == set)).collect()
    }

    /// Asks for sets when few are left. Not for whoever waits for one.
    pub fn refill(&self, store: &Store) -> Result<()> {
        if self.state().ahead.len() >= AHEAD {
            return Ok(());
        }
        let avoid: Vec<TargetId> =
            store.targets.ids().into_iter().filter(|id| store.targets.error(*id).is_some()).collect();
        let new = self.session.new_sets(BATCH, &avoid)?;
        let mut state = self.state();
        state.held.extend(new.iter().map(|(set, _)| *set));
        state.ahead.extend(new);
        Ok(())
    }

    /// Lets go of sets that were placed while targets were away which are back: what is written to them would be at risk, and what was
    /// written is made whole only when this client is done with them.
    pub fn renew(&self, store: &Store) -> Result<()> {
        let good = |id: &TargetId| store.targets.get(*id).is_some() && store.targets.error(*id).is_none();
        let there = store.targets.ids().iter().filter(|id| good(id) && !store.is_closed(**id)).count();
        let worse = |places: &[Option<TargetId>]| {
            places.iter().flatten().filter(|id| good(id)).count() < there.min(places.len())
        };
        let open =
            store.open_set().map(|set| store.layout(set)).transpose()?.is_some_and(|layout| worse(&layout.places));
        let ahead: Vec<u64> = {
            let mut state = self.state();
            let of_no_use: Vec<u64> =
                state.ahead.iter().filter(|(_, record)| worse(&record.places)).map(|(set, _)| *set).collect();
            if !open && of_no_use.is_empty() || state.renewed.is_some_and(|when| when.elapsed() < RENEW_AFTER) {
                return Ok(());
            }
            state.renewed = Some(Instant::now());
            state.ahead.retain(|(set, _)| !of_no_use.contains(set));
            of_no_use
        };
        if open {
            store.seal_open()?;
        }
        self.release(&ahead)
    }

    /// Gives sets back that nothing uncommitted refers to.
    pub fn release(&self, sets: &[u64]) -> Result<()> {
        if !sets.is_empty() {
            self.session.release_sets(sets)?;
            self.state().held.retain(|set| !sets.contains(set));
        }
        Ok(())
    }

    /// Gives all sets back that were never written to.
    pub fn release_ahead(&self) -> Result<()> {
        let ahead: Vec<u64> = self.state().ahead.drain(..).map(|(set, _)| set).collect();
        self.release(&ahead)
    }
}

impl NewSets for Leased {
    fn next(&self, store: &Store) -> Result<(u64, SetRecord)> {
        loop {
            let next = self.state().ahead.pop_front();
            let Some((set, record)) = next else {
                self.refill(store)?;
                if self.state().ahead.is_empty() {
                    return Err(Error::Meta(meta::Error::Unavailable(
                        "the metadata server gives no chunk sets".into(),
                    )));
                }
                continue;
            };
            // One that was placed before a target failed is of no use, as long as there are better ones.
            let failed = record.places.iter().flatten().any(|&id| store.targets.error(id).is_some());
            if failed && !self.state().ahead.is_empty() {
                self.release(&[set])?;
                continue;
            }
            return Ok((set, record));
        }
    }
}

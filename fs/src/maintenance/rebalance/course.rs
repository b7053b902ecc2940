//! The course of a rebalancing: round after round of what the plan says, until that is nothing.

use super::spaces::chunk_bytes;
use super::state::{DEFAULT_LIMIT, Doing, Rebalanced, Running};
use crate::{Error, FileSystem, Result};
use plan::membership::TargetState;
use plan::placement::rebalance::{Balance, Fill, Move, Outlook, SetPlaces};
use plan::{SetId, TargetId};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use volume::{Control, Limit, lock};

/// How many sets are read at a time.
const SETS_PER_STEP: usize = 256;
/// Clients and repairs wait no longer than it takes to move this many sets, side by side.
const SETS_AT_A_TIME: usize = 2;
/// How often one that waits looks whether it may go on.
const WAIT_INTERVAL: Duration = Duration::from_millis(500);
/// A rebalancing beside writers ends after so many rounds, at the latest.
const MAX_ROUNDS: usize = 4;
/// How often it looks again when nothing is to be moved, but a target has not answered.
const MAX_LOOKS: usize = 20;
/// What it waits for while a target does not work, or is late.
const FOR_TARGET: &str = "for a target that does not answer";

/// What a rebalancing would do now.
#[derive(Clone, Debug, Default)]
pub struct Forecast {
    /// Chunks that would move.
    pub chunks: u64,
    /// Their bytes, at most.
    pub bytes: u64,
    /// How many of the chunks break the rule about domains.
    pub against_rule: u64,
    /// Chunks that break it, and that no target may take.
    pub stuck: u64,
    /// The targets that take chunks: path, capacity, and bytes used before and afterwards.
    pub targets: Vec<(PathBuf, u64, u64, u64)>,
}

/// A round that is under way.
pub(super) struct Round {
    balance: Balance,
    from: SetId,
    moved: u64,
}

impl FileSystem {
    /// What a rebalancing would do now. Changes nothing.
    ///
    /// # Errors
    /// When the metadata cannot be read, or another process has it.
    pub fn forecast_rebalance(&self) -> Result<Forecast> {
        let mut balance = self.survey()?;
        let label = self.volume.label();
        let fills = |balance: &Balance| -> Vec<Option<Fill>> {
            label.members().map(|member| balance.fill_of(member.id)).collect()
        };
        let before = fills(&balance);
        let mut forecast = Forecast { against_rule: balance.outlook().must_chunks, ..Forecast::default() };
        // Of sets with moves, where their chunks are by then.
        let mut moved: BTreeMap<SetId, Vec<Option<TargetId>>> = BTreeMap::new();
        loop {
            self.each_set(|set, record| {
                if self.may_move(set, record) {
                    let mut moves = Vec::new();
                    let now = moved.get(&set).unwrap_or(&record.places).clone();
                    balance.look(&self.set_places(set, record, &now)?, &mut moves);
                    forecast.chunks += moves.len() as u64;
                    forecast.bytes += moves.iter().map(|made| made.bytes).sum::<u64>();
                    if !moves.is_empty() {
                        let places = moved.entry(set).or_insert(now);
                        moves.iter().for_each(|made| places[made.position.index()] = Some(made.to));
                    }
                }
                Ok(())
            })?;
            if !balance.next_pass() {
                break;
            }
        }
        forecast.stuck = balance.outlook().stuck;
        for ((member, before), after) in label.members().zip(before).zip(fills(&balance)) {
            if let Some((before, after)) = before.zip(after) {
                forecast.targets.push((member.path.clone(), after.total, before.used, after.used));
            }
        }
        Ok(forecast)
    }

    /// A set as the plan sees it, with its chunks at these places.
    pub(super) fn set_places<'a>(
        &self,
        set: SetId,
        record: &meta::SetRecord,
        places: &'a [Option<TargetId>],
    ) -> Result<SetPlaces<'a>> {
        let spare = if record.code == self.store.options.code.spec().to_string() {
            self.store.options.code.shape().m
        } else {
            self.store.layout_of(set, record)?.code.shape().m
        };
        Ok(SetPlaces { set, chunk_bytes: chunk_bytes(record), spare, places })
    }

    /// Moves chunks until all targets are equally full and no set breaks the rule about domains.
    /// Waits for repairs, and for targets that are away. It can be interrupted and called again.
    ///
    /// # Errors
    /// When it is paused, runs already, was interrupted, or the metadata cannot be written. A set
    /// that cannot be moved is part of the result.
    pub fn rebalance(&self, control: &Arc<Control>) -> Result<Rebalanced> {
        self.writable()?;
        if self.rebalance_setting()?.paused {
            return Err(Error::Invalid("the rebalancing of this volume is paused; resume it first".into()));
        }
        let total = Arc::new(AtomicU64::new(0));
        {
            let mut running = lock(&self.rebalancing.running);
            if running.is_some() {
                return Err(Error::Invalid("this volume is being rebalanced already".into()));
            }
            let (control, total, begun) = (control.clone(), total.clone(), Instant::now());
            *running = Some(Running { begun, control, total, doing: Doing::Moving });
        }
        let _end = OnDrop(|| *lock(&self.rebalancing.running) = None);
        if self.rebalancing.ends.load(Ordering::Relaxed) {
            return Err(volume::Error::Interrupted.into());
        }
        let setting = self.set_rebalance(|setting| setting.begun = true)?;
        // A pause before it was registered as running has not cancelled it.
        if setting.paused {
            return Err(volume::Error::Interrupted.into());
        }
        control.limit(Arc::new(Limit::new(setting.limit.unwrap_or(DEFAULT_LIMIT))));
        let done = self.rounds(control, &total);
        self.rebalancing.ended(done.as_ref().map(Clone::clone).map_err(ToString::to_string));
        if done.is_ok() {
            self.set_rebalance(|setting| setting.begun = false)?;
        }
        done
    }

    fn rounds(&self, control: &Control, total: &AtomicU64) -> Result<Rebalanced> {
        let (mut done, mut number, mut looks) = (Rebalanced::default(), 0, 0);
        while number < MAX_ROUNDS {
            self.wait_for_turn(control)?;
            let (balance, are_absent) = self.survey_with_absence()?;
            let mut round = Round { balance, from: SetId::default(), moved: 0 };
            let Outlook { must, above, .. } = round.balance.outlook();
            if number == 0 {
                control.start(must + above);
            }
            total.store(control.done_bytes() + must + above, Ordering::Relaxed);
            while self.rebalance_step(&mut round, control, &mut done)? {}
            done.stuck = round.balance.outlook().stuck;
            // What seems even without targets that are late for a moment may not be.
            if round.moved == 0 && done.failed.0 == 0 && are_absent && looks < MAX_LOOKS {
                looks += 1;
                self.rebalancing.set_doing(Doing::Waiting(FOR_TARGET));
                self.rest(WAIT_INTERVAL, control)?;
                continue;
            }
            if round.moved == 0 || done.failed.0 > 0 {
                break;
            }
            number += 1;
        }
        Ok(done)
    }

    /// Looks at some sets, and moves what the plan says. Returns whether more is to do.
    fn rebalance_step(&self, round: &mut Round, control: &Control, done: &mut Rebalanced) -> Result<bool> {
        let sets = self.engine()?.meta.sets(round.from, SETS_PER_STEP)?;
        let Some((last, _)) = sets.last() else {
            round.from = SetId::default();
            return Ok(round.balance.next_pass());
        };
        round.from = last.next();
        let mut batch: Vec<Vec<Move>> = Vec::new();
        for (set, record) in &sets {
            control.go_on()?;
            if self.may_move(*set, record) {
                let mut moves = Vec::new();
                round.balance.look(&self.set_places(*set, record, &record.places)?, &mut moves);
                if !moves.is_empty() {
                    batch.push(moves);
                }
            }
            if batch.len() >= SETS_AT_A_TIME {
                self.move_batch(std::mem::take(&mut batch), round, control, done)?;
            }
        }
        self.move_batch(batch, round, control, done)?;
        Ok(true)
    }

    /// Makes the moves of some sets.
    fn move_batch(
        &self,
        batch: Vec<Vec<Move>>,
        round: &mut Round,
        control: &Control,
        done: &mut Rebalanced,
    ) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        self.wait_for_turn(control)?;
        let (begun, clients) = (Instant::now(), self.client_work()?);
        let mut own = 0;
        let made: Vec<_> = std::thread::scope(|scope| {
            let others = batch[1..].iter().map(|moves| scope.spawn(|| self.move_chunks(moves, control)));
            let others: Vec<_> = others.collect();
            let first = self.move_chunks(&batch[0], control);
            let joined =
                others.into_iter().map(|it| it.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            std::iter::once(first).chain(joined.collect::<Vec<_>>()).collect()
        });
        for (moves, made) in batch.iter().zip(made) {
            match made {
                Ok(None) => {}
                Ok(Some(report)) => {
                    own += 1;
                    round.moved += moves.len() as u64;
                    done.chunks += moves.len() as u64;
                    done.bytes += report.bytes;
                }
                Err(error @ (Error::Volume(volume::Error::Interrupted) | Error::Meta(_))) => return Err(error),
                Err(error) => {
                    done.failed.0 += 1;
                    done.failed.1.get_or_insert_with(|| format!("chunk set {}: {error}", moves[0].set));
                }
            }
        }
        // Half the time is for clients while there are some.
        let now = self.client_work()?;
        if now.0 != clients.0 || now.1 > clients.1 + own {
            self.rest(begun.elapsed(), control)?;
        }
        Ok(())
    }

    /// What shows that there are clients: the bytes that they read and write in this process, and
    /// the number of transactions.
    fn client_work(&self) -> Result<(u64, u64)> {
        let counts = &self.counts;
        let transactions = self.engine()?.journal.status().committed;
        Ok((counts.reads.bytes() + counts.writes.bytes(), transactions.0))
    }

    fn rest(&self, time: Duration, control: &Control) -> Result<()> {
        let begun = Instant::now();
        while let Some(left) = time.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) {
            control.go_on()?;
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
        Ok(())
    }

    /// Waits while something is more urgent.
    fn wait_for_turn(&self, control: &Control) -> Result<()> {
        loop {
            control.go_on()?;
            let Some(why) = self.more_urgent() else { break };
            self.rebalancing.set_doing(Doing::Waiting(why));
            self.rest(WAIT_INTERVAL, control)?;
        }
        self.rebalancing.set_doing(Doing::Moving);
        Ok(())
    }

    /// What is more urgent than rebalancing.
    fn more_urgent(&self) -> Option<&'static str> {
        if !self.counts.repairs.running().is_empty() {
            return Some("for a repair");
        }
        let label = self.volume.label();
        let state = |id: TargetId| self.members.state(id).map(|(state, _)| state);
        let mut states = label.members().filter_map(|member| state(member.id));
        states.any(|state| state == TargetState::Down).then_some(FOR_TARGET)
    }
}

/// Does something in the end.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

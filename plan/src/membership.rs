//! Which targets of a volume are there: a state machine. The caller tells it what it sees, with the
//! time, and asks what to do. It reads no clock and does nothing itself.
//!
//! ```text
//!  joining --answer--> up <--answer-- down, out
//!     `---silence--> down --down_out--> out: what was on it is rebuilt on others
//!  draining is up, but takes no data: its role says so, and it is counted out like any other
//!  when it is silent
//! ```

use crate::TargetId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// After a repair that left something undone, the next one waits.
const RETRY_PAUSE: Duration = Duration::from_secs(60);

/// How a target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetState {
    /// It belongs to the volume, and nothing was heard of it yet.
    Joining,
    /// It answers and takes data.
    Up,
    /// It does not answer.
    Down,
    /// It has not answered for so long that what was on it is rebuilt elsewhere.
    Out,
    /// It answers and is being emptied.
    Draining,
}

/// A target became something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateChange {
    /// The target.
    pub id: TargetId,
    /// What it was, and for how long.
    pub was: (TargetState, Duration),
    /// What it is now.
    pub is: TargetState,
}

#[derive(Debug)]
struct Member {
    state: TargetState,
    since: Duration,
    draining: bool,
    /// What was on it was rebuilt elsewhere since it went out.
    repaired: bool,
}

/// The targets of a volume. Times are since any moment, and do not go back.
#[derive(Debug)]
pub struct Membership {
    down_out: Duration,
    members: BTreeMap<TargetId, Member>,
    changes: VecDeque<StateChange>,
    not_before: Duration,
}

impl Membership {
    /// No targets yet. A target that is silent for `down_out` is out.
    pub fn new(down_out: Duration) -> Self {
        Self { down_out, members: BTreeMap::new(), changes: VecDeque::new(), not_before: Duration::ZERO }
    }

    fn turn(&mut self, id: TargetId, to: TargetState, now: Duration) {
        let Some(member) = self.members.get_mut(&id).filter(|member| member.state != to) else { return };
        self.changes.push_back(StateChange { id, was: (member.state, now.saturating_sub(member.since)), is: to });
        (member.state, member.since, member.repaired) = (to, now, false);
    }

    /// These are the targets of the volume now, and whether they are being emptied. Others are
    /// forgotten.
    pub fn handle_members(&mut self, all: &[(TargetId, bool)], now: Duration) {
        let named: BTreeSet<TargetId> = all.iter().map(|(id, _)| *id).collect();
        self.members.retain(|id, _| named.contains(id));
        for &(id, draining) in all {
            let new = Member { state: TargetState::Joining, since: now, draining, repaired: false };
            self.members.entry(id).or_insert(new).draining = draining;
        }
    }

    /// A target answered.
    pub fn handle_answer(&mut self, id: TargetId, now: Duration) {
        let Some(member) = self.members.get(&id) else { return };
        let to = if member.draining { TargetState::Draining } else { TargetState::Up };
        self.turn(id, to, now);
    }

    /// A target did not answer.
    pub fn handle_silence(&mut self, id: TargetId, now: Duration) {
        if self.members.get(&id).is_some_and(|member| !matches!(member.state, TargetState::Down | TargetState::Out)) {
            self.turn(id, TargetState::Down, now);
        }
    }

    /// What was on these targets when the repair began was rebuilt on others (`whole`), or part of
    /// it could not be and is tried again. One that was back meanwhile may have got new chunks.
    pub fn handle_repair(&mut self, ids: &[TargetId], begun: Duration, whole: bool, now: Duration) {
        if !whole {
            self.not_before = now + RETRY_PAUSE;
            return;
        }
        for (id, member) in &mut self.members {
            member.repaired |= ids.contains(id) && member.state == TargetState::Out && member.since <= begun;
        }
    }

    /// Counts those out that were silent for too long, and returns those whose chunks are to be
    /// rebuilt now.
    pub fn poll_repair(&mut self, now: Duration) -> Vec<TargetId> {
        let late =
            |member: &Member| member.state == TargetState::Down && now.saturating_sub(member.since) >= self.down_out;
        let late: Vec<TargetId> = self.members.iter().filter(|(_, m)| late(m)).map(|(&id, _)| id).collect();
        late.into_iter().for_each(|id| self.turn(id, TargetState::Out, now));
        if now < self.not_before {
            return Vec::new();
        }
        let due = self.members.iter().filter(|(_, member)| member.state == TargetState::Out && !member.repaired);
        due.map(|(&id, _)| id).collect()
    }

    /// The next change that the caller has not taken yet.
    pub fn poll_change(&mut self) -> Option<StateChange> {
        self.changes.pop_front()
    }

    /// How a target is, and since when.
    pub fn state(&self, id: TargetId) -> Option<(TargetState, Duration)> {
        self.members.get(&id).map(|member| (member.state, member.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: TargetId = TargetId(1);
    const B: TargetId = TargetId(2);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Both there since 0.
    fn both() -> Membership {
        let mut members = Membership::new(at(300));
        members.handle_members(&[(A, false), (B, false)], at(0));
        members.handle_answer(A, at(0));
        members.handle_answer(B, at(0));
        while members.poll_change().is_some() {}
        members
    }

    #[test]
    fn a_target_joins_and_is_up() {
        let mut members = Membership::new(at(300));
        members.handle_members(&[(A, false)], at(5));
        assert_eq!(members.state(A), Some((TargetState::Joining, at(5))));
        members.handle_members(&[(A, false)], at(6));
        members.handle_answer(A, at(7));
        members.handle_answer(A, at(9));
        assert_eq!(members.state(A), Some((TargetState::Up, at(7))));
        assert_eq!(
            members.poll_change(),
            Some(StateChange { id: A, was: (TargetState::Joining, at(2)), is: TargetState::Up })
        );
        assert_eq!((members.poll_change(), members.state(B)), (None, None));
    }

    #[test]
    fn who_is_away_long_enough_is_out_once() {
        let mut members = both();
        members.handle_silence(A, at(10));
        members.handle_silence(A, at(200));
        members.handle_silence(B, at(200));
        assert_eq!(members.state(A), Some((TargetState::Down, at(10))));
        assert_eq!(members.poll_repair(at(309)), []);
        assert_eq!(members.poll_repair(at(310)), [A]);
        assert_eq!(members.state(A), Some((TargetState::Out, at(310))));
        // Until it is done.
        assert_eq!(members.poll_repair(at(311)), [A]);
        members.handle_repair(&[A], at(311), true, at(312));
        assert_eq!(members.poll_repair(at(313)), []);
        assert_eq!(members.poll_repair(at(500)), [B]);
        // A target that was back in between counts from the beginning.
        members.handle_answer(A, at(501));
        members.handle_silence(A, at(502));
        assert_eq!(members.poll_repair(at(801)), [B]);
        assert_eq!(members.poll_repair(at(802)), [A, B]);
    }

    #[test]
    fn what_could_not_be_repaired_is_tried_again_later() {
        let mut members = both();
        members.handle_silence(A, at(10));
        assert_eq!(members.poll_repair(at(400)), [A]);
        members.handle_repair(&[A], at(400), false, at(405));
        assert_eq!(members.poll_repair(at(464)), []);
        assert_eq!(members.poll_repair(at(465)), [A]);
        // It came back while it was repaired: there is nothing to remember of that.
        members.handle_answer(A, at(466));
        members.handle_repair(&[A], at(465), true, at(467));
        members.handle_silence(A, at(470));
        assert_eq!(members.poll_repair(at(770)), [A]);
        // The same if it is out again before the repair ends.
        members.handle_answer(A, at(771));
        members.handle_silence(A, at(772));
        assert_eq!(members.poll_repair(at(1072)), [A]);
        members.handle_repair(&[A], at(770), true, at(1073));
        assert_eq!(members.poll_repair(at(1073)), [A]);
        members.handle_repair(&[A], at(1073), true, at(1080));
        assert_eq!(members.poll_repair(at(1080)), []);
    }

    #[test]
    fn who_never_came_is_missed_too() {
        let mut members = Membership::new(at(300));
        members.handle_members(&[(A, false)], at(0));
        members.handle_silence(A, at(2));
        assert_eq!(members.state(A), Some((TargetState::Down, at(2))));
        assert_eq!(members.poll_repair(at(302)), [A]);
    }

    #[test]
    fn a_target_is_emptied_and_leaves() {
        let mut members = both();
        members.handle_members(&[(A, true), (B, false)], at(10));
        members.handle_answer(A, at(11));
        assert_eq!(members.state(A), Some((TargetState::Draining, at(11))));
        members.handle_silence(A, at(20));
        assert_eq!(members.state(A), Some((TargetState::Down, at(20))));
        assert_eq!(members.poll_repair(at(320)), [A]);
        members.handle_answer(A, at(330));
        assert_eq!(members.state(A), Some((TargetState::Draining, at(330))));
        members.handle_members(&[(B, false)], at(340));
        assert_eq!(members.state(A), None);
        members.handle_answer(A, at(341));
        assert_eq!(members.state(A), None);
        let states: Vec<TargetState> = std::iter::from_fn(|| members.poll_change()).map(|change| change.is).collect();
        assert_eq!(states, [TargetState::Draining, TargetState::Down, TargetState::Out, TargetState::Draining]);
    }

    /// Whatever is told in whatever order: out only after the time, due only while out, and every
    /// change is told once.
    #[test]
    fn nobody_is_out_before_the_time() {
        let mut random = fastrand::Rng::with_seed(4);
        let (mut members, mut silent, mut now) = (both(), BTreeMap::<TargetId, Duration>::new(), at(0));
        let mut states = BTreeMap::from([(A, TargetState::Up), (B, TargetState::Up)]);
        for _ in 0..100_000 {
            now += Duration::from_millis(random.u64(0..20_000));
            let id = if random.bool() { A } else { B };
            match random.u8(0..20) {
                0 => {
                    members.handle_answer(id, now);
                    silent.remove(&id);
                }
                1..15 => {
                    members.handle_silence(id, now);
                    silent.entry(id).or_insert(now);
                }
                15 => members.handle_repair(&[id], now, random.bool(), now),
                _ => {
                    for due in members.poll_repair(now) {
                        assert!(now - silent[&due] >= at(300));
                        assert_eq!(members.state(due).unwrap().0, TargetState::Out);
                    }
                }
            }
            while let Some(change) = members.poll_change() {
                assert_eq!(states.insert(change.id, change.is), Some(change.was.0));
            }
            assert!([A, B].iter().all(|id| members.state(*id).unwrap().0 == states[id]));
        }
    }
}

//! The seat: single decisions, every sequence of events up to a length, and several seats at
//! targets that grant claims as real ones do.

use super::*;
use std::collections::{HashSet, VecDeque};

const MS: Duration = Duration::from_millis(1);

fn rules() -> Rules {
    Rules::new(3)
}

fn held(by: &str) -> Vote {
    Vote::Held { holder: Peer { name: by.into(), address: format!("{by}:1") } }
}

/// A standby whose first look is answered at `now`.
fn after_a_look(votes: &[Vote], rank: u32, now: Time) -> Seat {
    let mut seat = Seat::new("a");
    assert_eq!(seat.poll(Time::ZERO), Some(Action::Look));
    assert_eq!(seat.next(), None, "a look is under way");
    seat.looked(votes, rank, &rules(), now);
    seat
}

/// Answers every look with the same votes; returns when the server claims.
fn claims_after(votes: &[Vote], rank: u32, longest: Duration) -> Option<Duration> {
    let mut seat = after_a_look(votes, rank, Time::ZERO);
    let mut now = Time::ZERO;
    loop {
        match seat.poll(now) {
            Some(Action::Claim) => return Some(now),
            Some(Action::Look) => seat.looked(votes, rank, &rules(), now),
            Some(other) => panic!("{other:?}"),
            None => now = seat.next()?,
        }
        if now > longest {
            return None;
        }
    }
}

#[test]
fn a_standby_claims_when_enough_targets_are_free() {
    let long = Duration::from_secs(60);
    assert_eq!(claims_after(&[Vote::Free, Vote::Free, Vote::Free, Vote::Silent], 0, long), Some(Time::ZERO));
    assert_eq!(claims_after(&[Vote::Free, Vote::Free, held("b"), Vote::Free], 0, long), Some(Time::ZERO));
    for third in [held("b"), Vote::Silent] {
        assert_eq!(claims_after(&[Vote::Free, Vote::Free, third, Vote::Silent], 0, long), None);
    }
    assert_eq!(claims_after(&[], 0, long), None);
}

#[test]
fn of_several_standbys_one_goes_first() {
    let free = [Vote::Free, Vote::Free, Vote::Free];
    let at = |rank| claims_after(&free, rank, Duration::from_secs(60)).unwrap();
    for rank in 0..5 {
        assert_eq!(at(rank), rules().step * rank);
    }
}

#[test]
fn what_was_given_back_is_left_to_who_was_invited_for_a_moment() {
    let long = Duration::from_secs(60);
    let released = [Vote::Released, Vote::Free, Vote::Free];
    assert_eq!(claims_after(&released, 0, long), Some(rules().courtesy));
    assert_eq!(claims_after(&released, 2, long), Some(rules().courtesy + rules().step * 2));
    let mut seat = after_a_look(&released, 0, Time::ZERO);
    seat.invited();
    assert_eq!(seat.poll(MS), Some(Action::Claim));
    // The invited server has claimed the volume, and given it back again.
    for between in [[held("b"), held("b"), held("b")], [Vote::Free, Vote::Free, held("b")]] {
        let mut seat = after_a_look(&released, 0, Time::ZERO);
        seat.looked(&between, 0, &rules(), MS);
        seat.looked(&released, 0, &rules(), rules().courtesy);
        assert_eq!(seat.state(), SeatState::Standby);
    }
}

#[test]
fn the_wait_after_a_failed_claim_is_random_and_within_bounds() {
    let free = [Vote::Free, Vote::Free, Vote::Free];
    let mut waits = HashSet::new();
    for random in 0..1000 {
        let mut seat = after_a_look(&free, 0, Time::ZERO);
        assert_eq!(seat.poll(Time::ZERO), Some(Action::Claim));
        let now = Duration::from_secs(10);
        seat.claimed(Claimed::Failed, &rules(), now, random * 7919);
        let again = seat.next().unwrap();
        let wait = again - now;
        assert!(wait >= rules().pause.0 && wait <= rules().pause.1, "{wait:?}");
        waits.insert(wait);
        // Before that it does not even look.
        assert_eq!(seat.poll(again - MS), None);
        assert_eq!(seat.poll(again), Some(Action::Look));
        seat.looked(&free, 0, &rules(), again);
        assert_eq!(seat.poll(again), Some(Action::Claim));
    }
    assert!(waits.len() > 500, "{}", waits.len());
}

#[test]
fn a_holder_gives_the_volume_to_another_and_not_to_itself() {
    let mut seat = holder();
    assert!(!seat.hand_over("a"));
    assert_eq!((seat.state(), seat.poll(MS)), (SeatState::Holder, None));
    assert!(seat.hand_over("b"));
    assert!(!seat.hand_over("c"), "it has nothing to give any more");
    assert_eq!(seat.poll(MS), Some(Action::Close { successor: Some("b".into()) }));
    seat.ended(&rules(), MS, 0);
    assert_eq!(seat.state(), SeatState::Standby);
}

#[test]
fn who_is_invited_claims_without_a_look() {
    let mut seat = after_a_look(&[held("b"), held("b"), held("b")], 0, Time::ZERO);
    assert_eq!(seat.poll(MS), None);
    seat.invited();
    assert_eq!(seat.poll(MS), Some(Action::Claim));
    seat.invited();
    assert_eq!(seat.poll(MS), None, "once");
}

#[test]
fn an_end_waits_for_what_is_open() {
    let mut seat = holder();
    seat.stop(Some("b".into()));
    assert_eq!(seat.poll(MS), Some(Action::Close { successor: Some("b".into()) }));
    assert_eq!(seat.poll(MS), None);
    seat.ended(&rules(), MS, 0);
    assert_eq!(seat.poll(MS), Some(Action::Exit));
    // One that is just opening.
    let mut seat = after_a_look(&[Vote::Free, Vote::Free, Vote::Free], 0, Time::ZERO);
    assert_eq!(seat.poll(MS), Some(Action::Claim));
    seat.stop(None);
    assert_eq!(seat.poll(MS), None);
    seat.claimed(Claimed::Holds, &rules(), MS, 0);
    assert_eq!(seat.poll(MS), Some(Action::Close { successor: None }));
}

/// Otherwise a server with a full disk would claim the volume again and again, and no other could.
#[test]
fn a_server_that_cannot_open_what_it_claims_leaves_it_to_others() {
    let free = [Vote::Free, Vote::Free, Vote::Free];
    let mut seat = Seat::new("a");
    let (mut now, mut waits) = (Time::ZERO, Vec::new());
    let mut claim = |seat: &mut Seat, how: Claimed| {
        let begun = now;
        loop {
            match seat.poll(now) {
                Some(Action::Look) => seat.looked(&free, 0, &rules(), now),
                Some(Action::Claim) => break,
                Some(other) => panic!("{other:?}"),
                None => now = seat.next().unwrap(),
            }
        }
        waits.push((now - begun).as_secs());
        seat.claimed(how, &rules(), now, 0);
    };
    (0..7).for_each(|_| claim(&mut seat, Claimed::Unable));
    claim(&mut seat, Claimed::Failed);
    claim(&mut seat, Claimed::Unable);
    assert_eq!(waits, [0, 3, 6, 12, 24, 32, 32, 32, 0]);
    assert_eq!(rules().unable, (Duration::from_secs(3), Duration::from_secs(32)));
}

fn holder() -> Seat {
    let mut seat = after_a_look(&[Vote::Free, Vote::Free, Vote::Free], 0, Time::ZERO);
    assert_eq!(seat.poll(Time::ZERO), Some(Action::Claim));
    seat.claimed(Claimed::Holds, &rules(), Time::ZERO, 0);
    assert_eq!(seat.state(), SeatState::Holder);
    seat
}

/// Its own earlier claims are free to it, and given back to the others: it must wait for longer
/// than they do, or none of them ever begins.
#[test]
fn who_cannot_go_on_leaves_the_volume_to_others() {
    let free = [Vote::Free, Vote::Free, Vote::Free];
    let begins = |mut seat: Seat, now: Time| {
        assert_eq!(seat.state(), SeatState::Standby);
        let again = seat.next().unwrap();
        assert_eq!(seat.poll(again), Some(Action::Look));
        seat.looked(&free, 0, &rules(), again);
        assert_eq!(seat.poll(again), Some(Action::Claim), "it tries again");
        again - now
    };
    let now = Duration::from_secs(10);
    let mut seat = holder();
    seat.failed();
    assert_eq!(seat.poll(now), Some(Action::Discard));
    seat.ended(&rules(), now, 0);
    let after_failure = begins(seat, now);
    let mut seat = after_a_look(&free, 0, Time::ZERO);
    assert_eq!(seat.poll(Time::ZERO), Some(Action::Claim));
    seat.claimed(Claimed::Unable, &rules(), now, 0);
    let others = rules().look + rules().courtesy + rules().step * 5;
    assert!(begins(seat, now) > others && after_failure > others);
    // The next time that it loses the volume, another one has it.
    let mut seat = holder();
    seat.failed();
    seat.poll(now);
    seat.ended(&rules(), now, 0);
    seat.invited();
    seat.poll(now);
    seat.claimed(Claimed::Holds, &rules(), now, 0);
    seat.fenced();
    seat.poll(now);
    seat.ended(&rules(), now, 0);
    assert!(seat.next().unwrap() - now <= rules().pause.1);
}

/// Everything that can happen to a seat.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    Pass,
    SeesFree,
    SeesHeld,
    SeesReleased,
    Invited,
    Holds,
    Fails,
    CannotOpen,
    Fenced,
    CannotGoOn,
    HandOver,
    Ended,
    Stop,
}

const EVENTS: [Event; 13] = [
    Event::Pass,
    Event::SeesFree,
    Event::SeesHeld,
    Event::SeesReleased,
    Event::Invited,
    Event::Holds,
    Event::Fails,
    Event::CannotOpen,
    Event::Fenced,
    Event::CannotGoOn,
    Event::HandOver,
    Event::Ended,
    Event::Stop,
];

/// A seat, and what a caller that does what it says has open and under way.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Driven {
    seat: Seat,
    open: bool,
    under_way: Option<Under>,
    /// A standby may claim: it saw enough free targets, or was invited, since it last had a claim.
    may_claim: bool,
    fenced: bool,
    over: bool,
    now: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Under {
    Look,
    Claim,
    Discard,
    Close,
}

impl Driven {
    fn new() -> Self {
        let seat = Seat::new("a");
        let (open, under_way, may_claim, fenced, over) = (false, None, false, false, false);
        let mut driven = Self { seat, open, under_way, may_claim, fenced, over, now: Time::ZERO };
        driven.poll();
        driven
    }

    /// Does what the seat says, and checks that it may say that.
    fn poll(&mut self) {
        while let Some(action) = self.seat.poll(self.now) {
            assert!(!self.over, "{action:?} after the end");
            match action {
                Action::Look => {
                    assert!(self.under_way.is_none() && !self.open);
                    self.under_way = Some(Under::Look);
                }
                Action::Claim => {
                    assert!(!self.open && self.may_claim);
                    assert!(matches!(self.under_way, None | Some(Under::Look)), "{:?}", self.under_way);
                    self.under_way = Some(Under::Claim);
                    self.may_claim = false;
                }
                Action::Discard => {
                    assert!(self.open && self.fenced && self.under_way.is_none());
                    self.under_way = Some(Under::Discard);
                }
                Action::Close { .. } => {
                    assert!(self.open && !self.fenced && self.under_way.is_none());
                    self.under_way = Some(Under::Close);
                }
                Action::Exit => {
                    assert!(!self.open && matches!(self.under_way, None | Some(Under::Look)));
                    self.over = true;
                }
            }
        }
    }

    /// Whether the event can happen now.
    fn can(&self, event: Event) -> bool {
        let under_way = |what| self.under_way == Some(what);
        match event {
            Event::SeesFree | Event::SeesHeld | Event::SeesReleased => under_way(Under::Look),
            Event::Holds | Event::Fails | Event::CannotOpen => under_way(Under::Claim),
            Event::Ended => under_way(Under::Discard) || under_way(Under::Close),
            Event::Fenced | Event::CannotGoOn => self.open && !self.fenced,
            Event::Pass | Event::Invited | Event::HandOver | Event::Stop => true,
        }
    }

    fn happens(&mut self, event: Event) {
        let rules = rules();
        let looked = |driven: &mut Self, vote: Vote, free: bool| {
            driven.under_way = None;
            driven.may_claim |= free && driven.seat.state() == SeatState::Standby;
            driven.seat.looked(&[vote.clone(), vote.clone(), vote], 1, &rules, driven.now);
        };
        match event {
            Event::Pass => self.now = self.seat.next().unwrap_or(self.now),
            Event::SeesFree => looked(self, Vote::Free, true),
            Event::SeesHeld => looked(self, held("b"), false),
            Event::SeesReleased => looked(self, Vote::Released, true),
            Event::Invited => {
                self.may_claim |= self.seat.state() == SeatState::Standby;
                self.seat.invited();
            }
            Event::Holds => {
                (self.under_way, self.open) = (None, true);
                self.seat.claimed(Claimed::Holds, &rules, self.now, 3);
            }
            Event::Fails => {
                self.under_way = None;
                self.seat.claimed(Claimed::Failed, &rules, self.now, 3);
            }
            Event::CannotOpen => {
                self.under_way = None;
                self.seat.claimed(Claimed::Unable, &rules, self.now, 3);
            }
            Event::Fenced => {
                // One that closes already hears of it from that.
                self.fenced = self.under_way != Some(Under::Close);
                self.seat.fenced();
            }
            Event::CannotGoOn => {
                self.fenced = self.under_way != Some(Under::Close);
                self.seat.failed();
            }
            Event::HandOver => _ = self.seat.hand_over("b"),
            Event::Ended => {
                (self.under_way, self.open, self.fenced) = (None, false, false);
                self.seat.ended(&rules, self.now, 3);
            }
            Event::Stop => self.seat.stop(None),
        }
        self.poll();
    }

    /// With targets that are free from now on and claims that succeed, it holds the volume; after a
    /// stop, it ends.
    fn comes_to_its_goal(mut self, stops: bool) {
        if stops {
            self.happens(Event::Stop);
        }
        let stops = stops || self.seat.stops;
        for _ in 0..100 {
            if self.over && stops || !stops && self.seat.state() == SeatState::Holder {
                return;
            }
            let order = [Event::Ended, Event::Holds, Event::SeesFree, Event::Pass];
            let event = order.into_iter().find(|&event| self.can(event)).expect("time can always pass");
            self.happens(event);
        }
        panic!("{:?} goes nowhere", self.seat);
    }
}

/// Every sequence of events that leads to another state, up to a length. `poll` checks what each
/// action needs; from each state the goal can be reached.
#[test]
fn every_sequence_of_events_is_sound_and_none_is_a_dead_end() {
    let mut seen: HashSet<Driven> = HashSet::new();
    let mut queue = VecDeque::from([(Driven::new(), 0)]);
    while let Some((driven, length)) = queue.pop_front() {
        if length == 9 || !seen.insert(driven.clone()) {
            continue;
        }
        driven.clone().comes_to_its_goal(false);
        driven.clone().comes_to_its_goal(true);
        for event in EVENTS.into_iter().filter(|&event| driven.can(event)) {
            let mut next = driven.clone();
            next.happens(event);
            queue.push_back((next, length + 1));
        }
    }
    let states: HashSet<SeatState> = seen.iter().map(|driven| driven.seat.state()).collect();
    assert_eq!(states.len(), 6, "{states:?}");
    assert!(seen.len() > 300, "{}", seen.len());
}

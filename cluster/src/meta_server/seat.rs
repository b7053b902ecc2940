//! The seat of a metadata server: whether this process holds the volume, stands by, or is on the
//! way from one to the other. The targets decide who holds a volume; a seat decides only when to
//! ask them. It has no side effects: the caller passes times and random numbers in, and does what
//! `poll` says.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Time since a moment that the caller chose.
pub type Time = Duration;

/// A metadata server, as its claim and other servers name it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// Where clients reach it: `host:port`.
    pub address: String,
}

/// What a target says of the claim on a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vote {
    /// Nothing keeps this server from claiming: there is no claim, its lease has run out, or it is
    /// an earlier one of this server.
    Free,
    /// Another server gave it back, perhaps because a third one is about to claim.
    Released,
    /// Another server holds it.
    Held { holder: Peer },
    /// The target did not say.
    Silent,
}

/// Numbers and times of a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The number of targets whose votes a claim needs.
    pub enough: usize,
    /// How often a standby reads the claims.
    pub look: Duration,
    /// The least and the longest wait after a claim that failed.
    pub pause: (Duration, Duration),
    /// The wait of a server that could claim the volume and not open it, the first time and at
    /// most: it doubles each time, for others may have no such trouble. The first one is also that
    /// of a server that could not go on, and longer than others wait for one another.
    pub unable: (Duration, Duration),
    /// How long a standby without an invitation leaves a returned claim alone.
    pub courtesy: Duration,
    /// Of several standbys, each waits longer by this than the one before it, because two that
    /// claim at the same time block each other.
    pub step: Duration,
}

impl Rules {
    /// For a volume that can be opened with the votes of `enough` targets.
    pub fn new(enough: usize) -> Self {
        Self {
            enough,
            look: Duration::from_millis(400),
            pause: (Duration::from_millis(100), Duration::from_millis(600)),
            unable: (Duration::from_secs(3), Duration::from_secs(32)),
            courtesy: Duration::from_millis(700),
            step: Duration::from_millis(300),
        }
    }

    /// A wait of random length.
    fn wait(&self, random: u64) -> Duration {
        let (least, longest) = self.pause;
        let spread = longest.saturating_sub(least).as_micros().max(1) as u64;
        least + Duration::from_micros(random % spread)
    }
}

/// What the caller does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read the claims, then call `looked`.
    Look,
    /// Claim the volume and open it, then call `claimed`.
    Claim,
    /// Another server has the volume, or this one cannot go on: end what is open without touching a
    /// target, then call `ended`.
    Discard,
    /// Answer the requests that came, commit everything, release the claim in favour of this
    /// server, then call `ended`.
    Close { successor: Option<String> },
    /// End the process.
    Exit,
}

/// How a claim ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// The volume is open.
    Holds,
    /// It is not: another server was faster, or too few targets answered.
    Failed,
    /// It is not, because of this server: its disk is full, for example.
    Unable,
}

/// What a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SeatState {
    /// It reads the claims and answers that another server has the volume.
    Standby,
    /// It claims the volume and opens it.
    Claiming,
    /// It has the volume open.
    Holder,
    /// It gives the volume to another server, or ends.
    HandingOver,
    /// It ends what it had open, for another server has claimed the volume, or it cannot go on.
    Fenced,
    /// The process ends.
    Over,
}

/// The seat of one server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seat {
    name: String,
    state: SeatState,
    /// What `poll` says next.
    action: Option<Said>,
    /// When the claims are read again.
    look_at: Time,
    /// When this server claims at the earliest.
    not_before: Time,
    /// Since when enough targets are free, and whether one of them was given back.
    free: Option<(Time, bool)>,
    /// How many times in a row it could not open what it had claimed.
    unable: u32,
    /// The process ends as soon as nothing is open.
    stops: bool,
    /// What it has open does not go on, for a reason of its own.
    failed: bool,
}

/// An action without what is in the state already.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Said {
    Look,
    Claim,
    Discard,
    Close(Option<String>),
    Exit,
}

impl Seat {
    /// A server that begins as a standby and reads the claims at once.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            state: SeatState::Standby,
            action: Some(Said::Look),
            look_at: Time::MAX,
            not_before: Time::ZERO,
            free: None,
            unable: 0,
            stops: false,
            failed: false,
        }
    }

    /// What it is.
    pub fn state(&self) -> SeatState {
        self.state
    }

    /// What to do now; None if there is nothing before `next` or the next event.
    pub fn poll(&mut self, now: Time) -> Option<Action> {
        if self.action.is_none() && self.state == SeatState::Standby && now >= self.look_at {
            self.look_at = Time::MAX;
            self.action = Some(Said::Look);
        }
        Some(match self.action.take()? {
            Said::Look => Action::Look,
            Said::Claim => Action::Claim,
            Said::Discard => Action::Discard,
            Said::Close(successor) => Action::Close { successor },
            Said::Exit => Action::Exit,
        })
    }

    /// When `poll` has something to say without an event.
    pub fn next(&self) -> Option<Time> {
        let waits = self.state == SeatState::Standby && self.action.is_none() && self.look_at != Time::MAX;
        waits.then_some(self.look_at)
    }

    /// The answer to `Look`. `rank` is the number of standbys that go first.
    pub fn looked(&mut self, votes: &[Vote], rank: u32, rules: &Rules, now: Time) {
        if self.state != SeatState::Standby {
            return;
        }
        self.look_at = now + rules.look;
        let free = votes.iter().filter(|vote| matches!(vote, Vote::Free | Vote::Released)).count();
        if free < rules.enough {
            self.free = None;
            return;
        }
        let released = votes.contains(&Vote::Released);
        // Somebody held it in between when it was given back only now.
        let since = self.free.filter(|(_, before)| *before == released).map_or(now, |(since, _)| since);
        self.free = Some((since, released));
        let courtesy = if released { rules.courtesy } else { Duration::ZERO };
        let begin = self.not_before.max(since.saturating_add(courtesy).saturating_add(rules.step.saturating_mul(rank)));
        if now >= begin {
            self.claim();
        } else {
            self.look_at = self.look_at.min(begin);
        }
    }

    /// The holder has released its claim in favour of this server.
    pub fn invited(&mut self) {
        if self.state == SeatState::Standby && !self.stops {
            self.claim();
        }
    }

    fn claim(&mut self) {
        (self.state, self.action, self.free, self.look_at) = (SeatState::Claiming, Some(Said::Claim), None, Time::MAX);
    }

    /// The answer to `Claim`.
    pub fn claimed(&mut self, how: Claimed, rules: &Rules, now: Time, random: u64) {
        if self.state != SeatState::Claiming {
            return;
        }
        match how {
            Claimed::Holds => {
                self.unable = 0;
                if self.stops {
                    self.close(None);
                } else {
                    self.state = SeatState::Holder;
                }
            }
            Claimed::Failed => self.stand_by(rules.wait(random), now),
            Claimed::Unable => {
                let (first, most) = rules.unable;
                let pause = first.saturating_mul(1 << self.unable.min(16)).min(most);
                self.unable = self.unable.saturating_add(1);
                self.stand_by(pause + rules.wait(random), now);
            }
        }
    }

    /// Another server has claimed the volume. Nothing that is open may change it any more.
    pub fn fenced(&mut self) {
        // A server that is closing learns of it from the close.
        if self.state == SeatState::Holder {
            (self.state, self.action) = (SeatState::Fenced, Some(Said::Discard));
        }
    }

    /// What is open cannot go on, for a reason of this server. Others come first, and none of them
    /// does while this one tries again and again.
    pub fn failed(&mut self) {
        self.failed |= self.state == SeatState::Holder;
        self.fenced();
    }

    /// Gives the volume to another server. Returns whether this server has it to give.
    pub fn hand_over(&mut self, successor: &str) -> bool {
        let can = self.state == SeatState::Holder && successor != self.name;
        if can {
            self.close(Some(successor.into()));
        }
        can
    }

    fn close(&mut self, successor: Option<String>) {
        (self.state, self.action) = (SeatState::HandingOver, Some(Said::Close(successor)));
    }

    /// The answer to `Discard` and `Close`.
    pub fn ended(&mut self, rules: &Rules, now: Time, random: u64) {
        match self.state {
            SeatState::HandingOver | SeatState::Fenced => {
                let pause = if std::mem::take(&mut self.failed) { rules.unable.0 } else { Duration::ZERO };
                self.stand_by(pause + rules.wait(random), now);
            }
            _ => {}
        }
    }

    fn stand_by(&mut self, pause: Duration, now: Time) {
        if self.stops {
            (self.state, self.action) = (SeatState::Over, Some(Said::Exit));
            return;
        }
        (self.state, self.action, self.free) = (SeatState::Standby, None, None);
        self.not_before = now.saturating_add(pause);
        self.look_at = self.not_before;
    }

    /// Ends this server: what is open is closed, in favour of `successor`.
    pub fn stop(&mut self, successor: Option<String>) {
        self.stops = true;
        match self.state {
            SeatState::Standby => (self.state, self.action) = (SeatState::Over, Some(Said::Exit)),
            SeatState::Holder => self.close(successor),
            SeatState::Claiming | SeatState::HandingOver | SeatState::Fenced | SeatState::Over => {}
        }
    }
}

#[cfg(test)]
mod tests;

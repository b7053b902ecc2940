//! Where a stripe is coded: by the client that has the data, or by its Master, a store that has one
//! of its chunks.
//!
//! A client that codes sends k+m blocks; one that leaves it to a Master sends the data once, and
//! the Master sends the blocks on. The first has the shorter way, the second has less to do and
//! less to send.

use crate::placement::mix;
use crate::{Position, SetId, TargetId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Coding {
    /// The client codes.
    #[default]
    Client,
    /// The Master of each chunk set codes.
    Server,
    /// What was measured decides for each stripe.
    Auto,
}

impl FromStr for Coding {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "client" => Ok(Self::Client),
            "server" => Ok(Self::Server),
            "auto" => Ok(Self::Auto),
            _ => Err(format!("{text:?} is not a way of coding; use client, server or auto")),
        }
    }
}

impl fmt::Display for Coding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "client",
            Self::Server => "server",
            Self::Auto => "auto",
        })
    }
}

/// Which side codes a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coder {
    /// The client that has the data.
    Here,
    /// The Master of the chunk set.
    Master,
}

/// The position whose target is the Master of a chunk set: another one with each set, and the same
/// as long as that has its place. None if no position has one.
pub fn master(set: SetId, places: &[Option<TargetId>]) -> Option<Position> {
    // Not the mixture that placement chose these targets by: the first of those would be the same
    // ones too often.
    let weight = |(_, id): &(Position, TargetId)| mix(!set.0, u64::from(id.0));
    Position::placed(places).max_by_key(weight).map(|(position, _)| position)
}

/// A stripe that is to be written.
#[derive(Clone, Copy, Debug)]
pub struct Stripe {
    /// User data.
    pub bytes: usize,
    /// Data blocks.
    pub k: usize,
    /// Parity blocks.
    pub m: usize,
}

impl Stripe {
    /// Whether its messages cost more than its bytes.
    fn is_short(&self) -> bool {
        self.bytes / self.k.max(1) <= SHORT_BLOCK
    }

    fn blocks(&self) -> f64 {
        (self.k + self.m) as f64
    }

    /// Bytes that leave a client that codes.
    fn coded(&self) -> f64 {
        self.bytes as f64 * self.blocks() / self.k as f64
    }

    /// Bytes that leave a Master, which keeps a block.
    fn distributed(&self) -> f64 {
        self.bytes as f64 * (self.blocks() - 1.0) / self.k as f64
    }
}

/// Blocks up to this length say what a message costs, longer ones what a byte does.
const SHORT_BLOCK: usize = 16 << 10;
/// A processor is never taken for busier than this: what it has to do gets its share all the same.
const MIN_IDLE_SHARE: f64 = 1.0 / 16.0;
/// The other way must cost less than this share of the present one to be worth a change, because
/// measurements vary.
const SWITCH_COST_RATIO: f64 = 0.75;
/// Measurements of Masters count for this long; then Masters are tried again if they may be worth
/// it.
const MEASUREMENT_VALID_FOR: Duration = Duration::from_secs(60);
/// What a message to a Master costs that does not listen.
const NEVER: f64 = 3600.0;
/// The weight of what was measured last.
const NEWEST: f64 = 0.25;

/// What work costs on one side, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// A message, beside its bytes.
    pub message: f64,
    /// Coding a byte of user data.
    pub coding: f64,
    /// Sending a byte to the stores, until it is written.
    pub sending: f64,
}

/// A guess until something is measured: an ordinary machine in an ordinary network.
const DEFAULT_COSTS: Costs = Costs { message: 50e-6, coding: 0.5e-9, sending: 2e-9 };

/// What is known of both ways.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The share of this machine's processor time that nobody uses, 0 to 1.
    pub idle: f64,
    /// User data that is on its way from here to stores.
    pub queued: f64,
    /// What work costs here.
    pub here: Costs,
    /// What it costs at Masters; None if that is not known: Masters then count as idle machines
    /// like this one, in an ordinary network.
    pub there: Option<Costs>,
}

/// What both ways would take, in seconds: coding here, and at the Master. Work on a busy processor
/// takes as much longer as others have of it.
fn costs(stripe: &Stripe, seen: &Measured) -> (f64, f64) {
    let (here, there) = (seen.here, seen.there.unwrap_or_else(|| seen.here.elsewhere()));
    let busy = 1.0 / seen.idle.clamp(MIN_IDLE_SHARE, 1.0);
    let bytes = stripe.bytes as f64;
    // What waits for the same way is as long for stripes that were coded before.
    let by_client = (stripe.blocks() * here.message + bytes * here.coding) * busy
        + (stripe.coded() + seen.queued * stripe.blocks() / stripe.k as f64) * here.sending;
    let to_master = here.message * busy + (bytes + seen.queued) * here.sending;
    let by_master =
        (stripe.blocks() - 1.0) * there.message + bytes * there.coding + stripe.distributed() * there.sending;
    (by_client, to_master + by_master)
}

/// Which side codes a stripe, where `now` coded such stripes so far. It changes only if the other
/// side is clearly better.
pub fn decide(now: Coder, stripe: &Stripe, seen: &Measured) -> Coder {
    let (here, there) = costs(stripe, seen);
    match now {
        Coder::Here if there < here * SWITCH_COST_RATIO => Coder::Master,
        Coder::Master if here < there * SWITCH_COST_RATIO => Coder::Here,
        now => now,
    }
}

/// What stripes of a client took, and therefore which side codes the next one. Time is passed in,
/// from any beginning.
#[derive(Clone, Debug)]
pub struct Auto {
    /// Of short stripes and of long ones.
    now: [Coder; 2],
    idle: f64,
    here: Costs,
    there: Costs,
    /// When a Master last coded something.
    heard: Option<Duration>,
}

impl Default for Auto {
    fn default() -> Self {
        Self { now: [Coder::Here; 2], idle: 1.0, here: DEFAULT_COSTS, there: DEFAULT_COSTS, heard: None }
    }
}

/// What one stripe took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Took {
    /// Coding.
    pub coding: Duration,
    /// Sending the blocks until they were written, from where it was coded.
    pub sending: Duration,
    /// All of it, where the data came from.
    pub total: Duration,
}

fn average(of: &mut f64, newest: f64) {
    *of += (newest - *of) * NEWEST;
}

impl Costs {
    /// What it may cost at Masters of which nothing is known. That the way from here is narrow says
    /// nothing of the ways between them.
    fn elsewhere(&self) -> Self {
        Self { sending: self.sending.min(DEFAULT_COSTS.sending), ..*self }
    }

    /// Takes notice of a stripe that was coded on this side, where `sent` bytes in `messages` left
    /// it.
    fn note(&mut self, stripe: &Stripe, took: &Took, sent: f64, messages: f64) {
        let sending = took.sending.as_secs_f64();
        if stripe.is_short() {
            return average(&mut self.message, sending / messages.max(1.0));
        }
        average(&mut self.coding, took.coding.as_secs_f64() / stripe.bytes as f64);
        if sent > 0.0 {
            average(&mut self.sending, sending / sent);
        }
    }
}

impl Auto {
    /// The share of this machine's processor time that nobody used lately.
    pub fn note_idle(&mut self, share: f64) {
        self.idle = share;
    }

    /// A stripe was coded and written.
    pub fn note(&mut self, by: Coder, stripe: &Stripe, took: &Took, now: Duration) {
        if stripe.bytes == 0 {
            return;
        }
        if by == Coder::Here {
            return self.here.note(stripe, took, stripe.coded(), stripe.blocks());
        }
        if !self.knows_masters(now) {
            self.there = self.here.elsewhere();
        }
        self.heard = Some(now);
        self.there.note(stripe, took, stripe.distributed(), stripe.blocks() - 1.0);
        // The rest was the way there.
        let way = took.total.saturating_sub(took.coding + took.sending).as_secs_f64();
        if stripe.is_short() {
            average(&mut self.here.message, way);
        } else {
            average(&mut self.here.sending, way / stripe.bytes as f64);
        }
    }

    /// A Master did not do its work: no Master is tried for a while.
    pub fn note_no_master(&mut self, now: Duration) {
        self.there = Costs { message: NEVER, ..self.here };
        self.heard = Some(now);
    }

    fn knows_masters(&self, now: Duration) -> bool {
        self.heard.is_some_and(|heard| now.saturating_sub(heard) < MEASUREMENT_VALID_FOR)
    }

    /// Which side codes this stripe, while `queued` bytes are on their way to stores.
    pub fn choose(&mut self, stripe: &Stripe, queued: u64, now: Duration) -> Coder {
        let there = self.knows_masters(now).then_some(self.there);
        let seen = Measured { idle: self.idle, queued: queued as f64, here: self.here, there };
        let last = &mut self.now[usize::from(stripe.is_short())];
        *last = decide(*last, stripe, &seen);
        *last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::TargetState;
    use crate::placement::{Random, Rules, TargetCandidate, place};
    use std::collections::BTreeMap;

    const LONG_STRIPE: Stripe = Stripe { bytes: 4 << 20, k: 4, m: 2 };
    const SHORT_STRIPE: Stripe = Stripe { bytes: 4 << 10, k: 4, m: 2 };

    fn seen(idle: f64) -> Measured {
        Measured { idle, queued: 0.0, here: DEFAULT_COSTS, there: None }
    }

    #[test]
    fn masters_spread_and_stay() {
        let mut load = BTreeMap::new();
        for set in (0..6000).map(SetId) {
            let places: Vec<Option<TargetId>> = (0..6).map(|n| Some(TargetId(n))).collect();
            let first = master(set, &places).unwrap();
            *load.entry(first).or_insert(0) += 1;
            // A target that leaves changes the Master only if it was the Master.
            let other = Position((first.0 + 1) % 6);
            let mut fewer = places.clone();
            fewer[other.index()] = None;
            assert_eq!(master(set, &fewer), Some(first));
            fewer[first.index()] = None;
            assert!(![Some(first), Some(other)].contains(&master(set, &fewer)));
        }
        assert!(load.len() == 6 && load.values().all(|&count| (800..1200).contains(&count)), "{load:?}");
        assert_eq!(master(SetId(7), &[None, None]), None);
    }

    #[test]
    fn masters_spread_also_where_placement_chooses_the_targets() {
        let candidates: Vec<TargetCandidate> = (0..12)
            .map(|n| TargetCandidate {
                id: TargetId(n),
                free: 100,
                total: 0,
                domain: None,
                state: TargetState::Up,
                load: None,
            })
            .collect();
        let rules = Rules { width: 6, spare: 2, domain_level: None, need: 1 };
        let mut load = BTreeMap::new();
        for set in (0..12_000).map(SetId) {
            let places = place(&Random::default(), &candidates, &rules, set);
            *load.entry(places[master(set, &places).unwrap().index()].unwrap().0).or_insert(0) += 1;
        }
        assert!(load.len() == 12 && load.values().all(|&count| (800..1200).contains(&count)), "{load:?}");
    }

    #[test]
    fn who_has_time_codes_and_who_has_none_does_not() {
        for stripe in [LONG_STRIPE, SHORT_STRIPE] {
            assert_eq!(decide(Coder::Here, &stripe, &seen(1.0)), Coder::Here);
            assert_eq!(decide(Coder::Here, &stripe, &seen(0.02)), Coder::Master);
        }
        // A Master that has no time, either, is no help.
        let slow = Costs { message: 2e-3, coding: 10e-9, sending: 20e-9 };
        for stripe in [LONG_STRIPE, SHORT_STRIPE] {
            assert_eq!(decide(Coder::Master, &stripe, &Measured { there: Some(slow), ..seen(0.02) }), Coder::Here);
        }
    }

    #[test]
    fn a_narrow_way_to_the_stores_is_used_once() {
        // 1 Gbit/s from here, 10 between stores.
        let narrow = Costs { sending: 8e-9, ..DEFAULT_COSTS };
        let wide = Costs { sending: 0.8e-9, ..DEFAULT_COSTS };
        let measured = Measured { here: narrow, there: Some(wide), ..seen(1.0) };
        assert_eq!(decide(Coder::Here, &Stripe { m: 4, ..LONG_STRIPE }, &measured), Coder::Master);
        // The same everywhere: the blocks would go a longer way.
        assert_eq!(
            decide(Coder::Master, &LONG_STRIPE, &Measured { there: Some(narrow), here: narrow, ..seen(1.0) }),
            Coder::Here
        );
    }

    #[test]
    fn what_is_nearly_the_same_changes_nothing() {
        let mut changes = 0;
        for now in [Coder::Here, Coder::Master] {
            let mut last = now;
            for step in 0..1000 {
                // The share at which both ways cost the same for such stripes, and a little around
                // it.
                let idle = 0.24 + 0.04 * f64::from(step % 7) / 6.0;
                let next = decide(last, &LONG_STRIPE, &Measured { there: Some(DEFAULT_COSTS), ..seen(idle) });
                changes += u32::from(next != last);
                last = next;
            }
        }
        assert!(changes <= 1, "{changes} changes");
    }

    fn took(coding: u64, sending: u64, total: u64) -> Took {
        let us = Duration::from_micros;
        Took { coding: us(coding), sending: us(sending), total: us(total) }
    }

    #[test]
    fn it_follows_what_stripes_took() {
        let (mut auto, mut now) = (Auto::default(), Duration::ZERO);
        let mut step = |auto: &mut Auto, there: Took, idle: f64| {
            now += Duration::from_millis(100);
            auto.note_idle(idle);
            let by = auto.choose(&LONG_STRIPE, 0, now);
            auto.note(by, &LONG_STRIPE, &if by == Coder::Here { took(2000, 6000, 8000) } else { there }, now);
            by
        };
        let quick = took(2000, 5000, 11_000);
        assert!((0..100).all(|_| step(&mut auto, quick, 0.9) == Coder::Here));
        assert!((0..100).filter(|_| step(&mut auto, quick, 0.05) == Coder::Master).count() > 90);
        // The Masters get slow: it takes some stripes to be sure, and then it is tried once a
        // minute.
        let slow = took(40_000, 200_000, 400_000);
        let tried = (0..1200).filter(|_| step(&mut auto, slow, 0.05) == Coder::Master).count();
        assert!((1..=40).contains(&tried), "{tried} stripes went to slow Masters");
        // And they are found out to be quick again.
        let found = (0..1200).filter(|_| step(&mut auto, quick, 0.05) == Coder::Master).count();
        assert!(found > 400, "{found}");
    }

    #[test]
    fn it_follows_the_width_of_the_link_to_the_stores() {
        let (mut auto, mut now) = (Auto::default(), Duration::ZERO);
        auto.note_idle(1.0);
        // How many of `stripes` stripes Masters coded, where a byte takes `nanoseconds` to leave
        // this machine and `queued` bytes wait.
        let mut by_masters = |stripes: usize, nanoseconds: u64, queued: u64| {
            let step = |_: &usize| {
                now += Duration::from_millis(100);
                let by = auto.choose(&LONG_STRIPE, queued, now);
                let sending = |bytes: f64| bytes as u64 * nanoseconds / 1000;
                let it = match by {
                    Coder::Here => took(2000, sending(LONG_STRIPE.coded()), 2000 + sending(LONG_STRIPE.coded())),
                    Coder::Master => took(3000, 8000, 11_000 + sending(LONG_STRIPE.bytes as f64)),
                };
                auto.note(by, &LONG_STRIPE, &it, now);
                by == Coder::Master
            };
            (0..stripes).filter(step).count()
        };
        assert_eq!(by_masters(100, 1, 0), 0);
        // 100 Mbit/s. It takes some stripes to notice.
        assert!(by_masters(100, 80, 16 << 20) > 90);
        assert!(by_masters(100, 1, 0) < 30);
        assert_eq!(by_masters(100, 1, 0), 0);
    }

    #[test]
    fn where_no_master_codes_it_is_tried_once_a_minute() {
        let mut auto = Auto::default();
        auto.note_idle(0.0);
        let mut tried = 0;
        for tenth in 0..1200 {
            let now = Duration::from_millis(100 * tenth);
            match auto.choose(&LONG_STRIPE, 0, now) {
                Coder::Master => {
                    tried += 1;
                    auto.note_no_master(now);
                }
                Coder::Here => auto.note(Coder::Here, &LONG_STRIPE, &took(2000, 6000, 8000), now),
            }
        }
        assert_eq!(tried, 2);
    }

    #[test]
    fn ways_have_names() {
        for coding in [Coding::Client, Coding::Server, Coding::Auto] {
            assert_eq!(coding.to_string().parse(), Ok(coding));
        }
        assert!("both".parse::<Coding>().unwrap_err().contains("client, server or auto"));
    }
}

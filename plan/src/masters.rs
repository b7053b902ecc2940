//! Which store codes the next stripe: each of those that have a chunk of its set could be the
//! Master.
//!
//! They take turns by how fast they are, over all sets and files of a client, so that several open
//! files of one client load several Masters, as in the write-cost analysis (paper 000, figure 3).
//! One Master for each set would not do: a client that writes many small files fills one set, and
//! one store would code all of them.

use crate::coding::master;
use crate::{Position, SetId, TargetId};
use std::collections::BTreeMap;
use std::time::Duration;

/// A Master is never taken for this many times as slow as the others, nor for as many times as
/// fast, so that it is tried again.
const MAX_FACTOR: f64 = 8.0;
/// The weight of the newest stripe in what a Master usually takes.
const NEWEST: f64 = 0.25;
/// A Master that had no turn for a while catches up by this many stripes at most.
const MOST_BEHIND: f64 = 2.0;
/// What a stripe costs beside its bytes, in bytes.
const STRIPE_BYTES: f64 = 65_536.0;

/// What a client knows of the Masters.
#[derive(Clone, Debug, Default)]
pub struct Masters {
    known: BTreeMap<TargetId, Known>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// When it has done what it was given, in a time of its own that goes on with its stripes.
    due: f64,
    /// Seconds a byte takes; None until it has coded one.
    pace: Option<f64>,
}

impl Masters {
    /// The position of the Master for a stripe of this many bytes, of those that have a place:
    /// whose turn it is. It counts at once. Before there were any, it is another one with each set,
    /// so that clients that know nothing do not all begin with the same one.
    pub fn next(&mut self, set: SetId, places: &[Option<TargetId>], bytes: usize) -> Option<Position> {
        self.next_by_way(set, places, bytes, |_| None)
    }

    /// The same in a network where stripes cross more links with one Master than with another:
    /// `links` says how many, if that is known. One with which they cross twice as many has half as
    /// many turns, as if it took twice as long, and of several whose turn it is the one with the
    /// fewest is first. So the nearest has most of the work, but not all: it would be the narrow
    /// place of a client that writes much.
    pub fn next_by_way(
        &mut self,
        set: SetId,
        places: &[Option<TargetId>],
        bytes: usize,
        links: impl Fn(TargetId) -> Option<u64>,
    ) -> Option<Position> {
        let usual = self.usual_pace();
        let ways: BTreeMap<TargetId, u64> =
            Position::placed(places).filter_map(|(_, id)| Some((id, links(id)?))).collect();
        let (least, most) = (ways.values().min().copied().unwrap_or(0), ways.values().max().copied().unwrap_or(0));
        // One of which nothing is known is as far as the farthest.
        let links = |id: TargetId| ways.get(&id).copied().unwrap_or(most);
        let way = |id: TargetId| ((links(id) + 1) as f64 / (least + 1) as f64).min(MAX_FACTOR);
        let latest = Position::placed(places).map(|(_, id)| self.due(id)).fold(0.0, f64::max);
        let stride = cost(bytes);
        let due = |id: TargetId| (self.due(id)).max(latest - MOST_BEHIND * stride * MAX_FACTOR);
        // When it would be done, compared with the nearest: from the beginning the far ones wait.
        let turn = |id: TargetId| due(id) + stride * (way(id) - 1.0);
        let first = Position::placed(places).map(|(_, id)| turn(id)).fold(f64::INFINITY, f64::min);
        let next = |id: TargetId| turn(id) <= first;
        let nearest = Position::placed(places).filter(|(_, id)| next(*id)).map(|(_, id)| links(id)).min();
        let is_first = |id: &TargetId| next(*id) && Some(links(*id)) == nearest;
        let position = master(set, &places.iter().map(|id| id.filter(is_first)).collect::<Vec<_>>())?;
        let id = places[position.index()]?;
        let factor =
            self.known.get(&id).and_then(|known| known.pace).zip(usual).map_or(1.0, |(pace, usual)| pace / usual);
        let due = due(id) + stride * way(id) * factor.clamp(1.0 / MAX_FACTOR, MAX_FACTOR);
        self.known.entry(id).or_default().due = due;
        Some(position)
    }

    /// A Master took so long for a stripe of this many bytes, or was given up after it.
    pub fn took(&mut self, id: TargetId, bytes: usize, took: Duration) {
        let now = took.as_secs_f64() / cost(bytes);
        // More makes no difference, and is forgotten later.
        let now = self.usual_pace().map_or(now, |usual| now.min(2.0 * MAX_FACTOR * usual));
        let known = self.known.entry(id).or_default();
        known.pace = Some(known.pace.map_or(now, |pace| pace + NEWEST * (now - pace)));
    }

    fn due(&self, id: TargetId) -> f64 {
        self.known.get(&id).map_or(0.0, |known| known.due)
    }

    /// The pace in the middle of all.
    fn usual_pace(&self) -> Option<f64> {
        let mut paces: Vec<f64> = self.known.values().filter_map(|known| known.pace).collect();
        paces.sort_by(f64::total_cmp);
        paces.get(paces.len() / 2).copied().filter(|pace| *pace > 0.0)
    }
}

fn cost(bytes: usize) -> f64 {
    bytes as f64 + STRIPE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(ids: std::ops::Range<u16>) -> Vec<Option<TargetId>> {
        ids.map(|id| Some(TargetId(id))).collect()
    }

    /// How many stripes of one set each of six Masters codes, where each takes so many
    /// milliseconds.
    fn shares(masters: &mut Masters, stripes: usize, milliseconds: [u64; 6]) -> Vec<usize> {
        let mut counts = vec![0; 6];
        for _ in 0..stripes {
            let at = masters.next(SetId(3), &places(0..6), 1 << 20).unwrap().index();
            counts[at] += 1;
            masters.took(TargetId(at as u16), 1 << 20, Duration::from_millis(milliseconds[at]));
        }
        counts
    }

    #[test]
    fn stripes_of_one_set_go_round_all_its_stores() {
        assert_eq!(shares(&mut Masters::default(), 60, [5; 6]), [10; 6]);
    }

    #[test]
    fn a_slow_one_codes_less_and_never_nothing() {
        let mut masters = Masters::default();
        let counts = shares(&mut masters, 600, [5, 5, 20, 5, 5, 5]);
        assert!((20..=40).contains(&counts[2]) && counts.iter().all(|count| *count > 0), "{counts:?}");
        let counts = shares(&mut masters, 600, [5, 5, 100_000, 5, 5, 5]);
        assert!((5..=20).contains(&counts[2]), "{counts:?}");
        // It is as fast as the others again.
        let counts = shares(&mut masters, 2000, [5; 6]);
        assert!(counts[2] > 250, "{counts:?}");
    }

    #[test]
    fn who_had_no_turn_has_no_claim_to_all_of_them() {
        let mut masters = Masters::default();
        (0..1000).for_each(|_| _ = masters.next(SetId(1), &places(0..5), 1 << 20));
        let counts = shares(&mut masters, 120, [5; 6]);
        assert!((20..=40).contains(&counts[5]), "{counts:?}");
    }

    #[test]
    fn clients_that_know_nothing_begin_with_different_ones() {
        let mut counts = [0; 6];
        for set in (0..600).map(SetId) {
            let first = Masters::default().next(set, &places(0..6), 100).unwrap();
            assert_eq!(Some(first), master(set, &places(0..6)));
            counts[first.index()] += 1;
        }
        assert!(counts.iter().all(|count| *count > 60), "{counts:?}");
        assert_eq!(Masters::default().next(SetId(1), &[None, None], 1), None);
        let one = Masters::default().next(SetId(1), &[None, Some(TargetId(7))], 1);
        assert_eq!(one, Some(Position(1)));
    }

    /// How many of 700 stripes of one set each Master codes, with so many links for each.
    fn by_way(links: [Option<u64>; 4]) -> Vec<usize> {
        let mut masters = Masters::default();
        let mut counts = vec![0; 4];
        for _ in 0..700 {
            let at = masters.next_by_way(SetId(3), &places(0..4), 1 << 20, |id| links[usize::from(id.0)]).unwrap();
            counts[at.index()] += 1;
        }
        counts
    }

    #[test]
    fn the_nearest_codes_most_and_not_all() {
        // 1, 1/2, 1/4 and 1/4.
        let counts = by_way([Some(1), Some(3), Some(7), None]);
        let wanted = [350, 175, 87, 87];
        assert!(counts.iter().zip(wanted).all(|(&count, wanted)| count.abs_diff(wanted) <= 4), "{counts:?}");
        // No Master is so far that it is never tried.
        let far = by_way([Some(0), Some(1000), Some(1000), Some(1000)]);
        assert!(far[0] > 480 && far[1..].iter().all(|&count| count > 50), "{far:?}");
        // Where nothing is known, or all are as far, they take turns.
        assert_eq!(by_way([None; 4]), [175; 4]);
        assert_eq!(by_way([Some(5); 4]), [175; 4]);
    }

    /// All tori of a few places, with a set on four of them: the first stripe goes to the Master
    /// with the fewest links, wherever the client is.
    #[test]
    fn the_first_stripe_goes_to_the_nearest() {
        for sizes in ["4", "7", "2,2", "3,2", "2,2,2"] {
            let torus: crate::topology::Torus = sizes.parse().unwrap();
            let of: BTreeMap<TargetId, _> = (0..).map(TargetId).zip(torus.all()).collect();
            let there = crate::topology::Places { torus, of };
            for client in there.of.values() {
                for set in (0..20).map(SetId) {
                    let links = |id: TargetId| there.links(Some(client), 2, id, &places(0..4));
                    let first = Masters::default().next_by_way(set, &places(0..4), 100, links).unwrap();
                    let least = (0..4).filter_map(|id| links(TargetId(id))).min();
                    assert_eq!(links(TargetId(first.index() as u16)), least, "{sizes} from {client}");
                }
            }
        }
    }
}

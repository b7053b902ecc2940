//! What is made again first, and where it goes.

use crate::TargetId;
use crate::placement::{Candidate, place};
use std::time::Duration;

/// A chunk set that lacks blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Degraded {
    /// The chunk set.
    pub set: u64,
    /// Where its chunks are, by position.
    pub places: Vec<Option<TargetId>>,
    /// The positions that must be made again.
    pub lost: Vec<usize>,
}

/// The order of repair: whoever survives the fewest further losses first, then the older set.
pub fn order(sets: &mut [Degraded]) {
    sets.sort_by_key(|degraded| (std::cmp::Reverse(degraded.lost.len()), degraded.set));
}

/// Where each lost position goes, in the order of `lost`: back to its own target if that is a candidate, else to one that has no
/// chunk of the set; None when there is no target left.
pub fn destinations(degraded: &Degraded, candidates: &[Candidate], need: u64) -> Vec<Option<TargetId>> {
    let own = |position: usize| degraded.places[position].filter(|id| candidates.iter().any(|c| c.id == *id));
    let free: Vec<Candidate> = candidates.iter().filter(|c| !degraded.places.contains(&Some(c.id))).copied().collect();
    let mut spare = place(&free, free.len(), degraded.set, need).into_iter().flatten();
    degraded.lost.iter().map(|&position| own(position).or_else(|| spare.next())).collect()
}

/// How long what is left takes, if it goes on as until now; None while nothing is done, or nothing is to do.
pub fn time_left(done: u64, total: u64, elapsed: Duration) -> Option<Duration> {
    if done == 0 || total == 0 {
        return None;
    }
    let left = elapsed.as_secs_f64() * total.saturating_sub(done) as f64 / done as f64;
    Duration::try_from_secs_f64(left).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_estimated_from_what_is_done() {
        let elapsed = Duration::from_secs(30);
        assert_eq!(time_left(0, 100, elapsed), None);
        assert_eq!(time_left(0, 0, elapsed), None);
        assert_eq!(time_left(25, 100, elapsed), Some(Duration::from_secs(90)));
        assert_eq!(time_left(120, 100, elapsed), Some(Duration::ZERO));
        assert_eq!(time_left(1, u64::MAX, Duration::MAX), None);
    }

    #[test]
    fn repair_goes_back_or_to_a_stranger() {
        let id = |n: u16| Some(TargetId(n));
        let degraded = Degraded { set: 3, places: vec![id(0), id(1), id(2), None], lost: vec![1, 2, 3] };
        let candidates = [0, 2, 5].map(|n| Candidate { id: TargetId(n), free: 10 });
        assert_eq!(destinations(&degraded, &candidates, 1), [id(5), id(2), None]);
    }

    #[test]
    fn the_least_redundant_comes_first() {
        let degraded = |set, lost: &[usize]| Degraded { set, places: vec![None; 4], lost: lost.to_vec() };
        let mut sets = [degraded(1, &[0]), degraded(3, &[0, 1]), degraded(2, &[1, 2])];
        order(&mut sets);
        assert_eq!(sets.map(|d| d.set), [2, 3, 1]);
    }
}

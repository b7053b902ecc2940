//! Which chunks move to other targets, so that every target is equally full, a set obeys the rule
//! about domains, and targets that are emptied have nothing left.
//!
//! - **Goals** (`goals.rs`). Each target should have the same part of its capacity used, as far as
//!   a set can have no more than one chunk there, and a domain no more than the rule allows.
//! - **Least movement.** What must move goes first: chunks that break the rule, and those on
//!   targets that are emptied. Then chunks go from targets above their goal to targets below it,
//!   and only from there. Who is above is chosen from by chance, so that not only old sets move. A
//!   chunk goes the way over a third target only where the rule allows no direct one.
//! - **No move back and forth.** Every move that is no must lowers the sum of `D² / capacity` over
//!   all targets, D being the bytes above the goal, and moves change no goal. So after the moves of
//!   a call that was not cut short, a second call has none.
//!
//! Work and memory: a pass looks at each position once; beside what the caller has of the sets,
//! memory grows with the targets, and in [`rebalance`] with the moves.

mod balance;
mod goals;
mod moves;
mod sinks;

pub use balance::{Balance, Fill, Outlook};
pub use moves::{Move, SetPlaces};

use super::candidate::TargetCandidate;
use crate::{SetId, TargetId};
use std::collections::HashMap;

/// The moves that even out the targets, `most` at most, to be made in this order. `domain_level` is
/// how many names of a domain count, `reserve` the bytes that a move leaves free on its target.
/// States: `Up` targets take chunks and give them; `Draining` ones only give; all others neither.
/// Targets of unknown capacity take part only where they are emptied or the rule is broken.
pub fn rebalance<'a>(
    targets: &[TargetCandidate],
    domain_level: Option<u8>,
    reserve: u64,
    sets: impl Iterator<Item = SetPlaces<'a>> + Clone,
    most: usize,
) -> Vec<Move> {
    let mut balance = Balance::new(targets, domain_level, reserve);
    sets.clone().for_each(|set| balance.count(&set));
    balance.begin();
    let mut moves = Vec::new();
    // Of sets with moves, where their chunks are by now.
    let mut moved: HashMap<SetId, Vec<Option<TargetId>>> = HashMap::new();
    loop {
        for set in sets.clone() {
            if moves.len() >= most {
                moves.truncate(most);
                return moves;
            }
            let (planned, now) = (moves.len(), moved.get(&set.set));
            balance.look(&SetPlaces { places: now.map_or(set.places, Vec::as_slice), ..set }, &mut moves);
            if moves.len() > planned {
                let places = moved.entry(set.set).or_insert_with(|| set.places.to_vec());
                moves[planned..].iter().for_each(|made| places[made.position.index()] = Some(made.to));
            }
        }
        if !balance.next_pass() {
            return moves;
        }
    }
}

#[cfg(test)]
mod tests;

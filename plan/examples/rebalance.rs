//! How long it takes to plan the moves after some targets were added: `cargo run --release -p plan
//! --example rebalance [TARGETS [SETS]]`. Prints the time of the whole plan and of each set.

use plan::membership::TargetState;
use plan::placement::TargetCandidate;
use plan::placement::rebalance::{SetPlaces, rebalance};
use plan::{SetId, TargetId};
use std::time::Instant;

const WIDTH: usize = 6;
const CHUNK_BYTES: u64 = 64 << 20;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<usize>().expect("a number"));
    let targets = arguments.next().unwrap_or(10_000);
    let sets = arguments.next().unwrap_or(10_000_000);
    let new = targets / 100;
    // A hundred to a rack.
    let mut used = vec![0u64; targets];
    let mut random = fastrand::Rng::with_seed(1);
    let places: Vec<Option<TargetId>> = (0..sets)
        .flat_map(|_| {
            let mut set: Vec<Option<TargetId>> = Vec::with_capacity(WIDTH);
            while set.len() < WIDTH {
                let target = Some(TargetId(random.usize(0..targets - new) as u16));
                if !set.contains(&target) {
                    set.push(target);
                }
            }
            set
        })
        .inspect(|target| used[usize::from(target.expect("all are placed").0)] += CHUNK_BYTES)
        .collect();
    let total = used.iter().sum::<u64>() / targets as u64 * 2;
    let target = |(id, used): (u16, &u64)| TargetCandidate {
        id: TargetId(id),
        free: total - used,
        total,
        domain: format!("rack{}/host{id}", id / 100).parse().ok(),
        state: TargetState::Up,
        load: None,
    };
    let targets: Vec<TargetCandidate> = (0..).zip(&used).map(target).collect();
    let sets_of = (0..).map(SetId).zip(places.chunks(WIDTH));
    let sets_of = sets_of.map(|(set, places)| SetPlaces { set, chunk_bytes: CHUNK_BYTES, spare: 2, places });
    let begun = Instant::now();
    let moves = rebalance(&targets, Some(2), 0, sets_of, usize::MAX);
    let time = begun.elapsed();
    let onto_new = moves.iter().filter(|made| usize::from(made.to.0) >= targets.len() - new).count();
    println!("{} targets, {sets} sets: {} moves, {onto_new} onto {new} new targets", targets.len(), moves.len());
    println!("{:.2} s in all, {:.0} ns a set", time.as_secs_f64(), time.as_nanos() as f64 / sets as f64);
}

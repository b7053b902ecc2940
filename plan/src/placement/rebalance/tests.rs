use super::*;
use crate::membership::TargetState;
use std::collections::BTreeMap;

const CHUNK: u64 = 64;

fn target(id: u16, free: u64, total: u64, domain: Option<&str>) -> TargetCandidate {
    let domain = domain.map(|domain| domain.parse().unwrap());
    TargetCandidate { id: TargetId(id), free, total, domain, state: TargetState::Up, load: None }
}

/// Targets and chunk sets that change together.
#[derive(Clone)]
struct World {
    targets: Vec<TargetCandidate>,
    sets: Vec<Vec<Option<TargetId>>>,
    spare: usize,
    level: Option<u8>,
}

impl World {
    fn sets(&self) -> impl Iterator<Item = SetPlaces<'_>> + Clone {
        let spare = self.spare;
        let numbered = (0..).map(SetId).zip(&self.sets);
        numbered.map(move |(set, places)| SetPlaces { set, chunk_bytes: CHUNK, spare, places })
    }

    /// The space of the targets as it follows from the sets.
    fn measure(&mut self) {
        let mut used: BTreeMap<TargetId, u64> = BTreeMap::new();
        self.sets.iter().flatten().flatten().for_each(|id| *used.entry(*id).or_default() += CHUNK);
        for target in &mut self.targets {
            target.free = target.total - used.get(&target.id).copied().unwrap_or(0);
        }
    }

    fn plan(&self, most: usize) -> Vec<Move> {
        rebalance(&self.targets, self.level, 0, self.sets(), most)
    }

    fn domain(&self, id: TargetId) -> String {
        // Each has its place as its number.
        let domain = self.targets[usize::from(id.0)].domain.as_ref();
        domain.map_or_else(|| format!("#{}", id.0), |domain| domain.at(self.level).to_owned())
    }

    /// The most chunks of a set that a domain has.
    fn fullest(&self, set: usize) -> usize {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        self.sets[set].iter().flatten().for_each(|id| *counts.entry(self.domain(*id)).or_default() += 1);
        counts.into_values().max().unwrap_or(0)
    }

    /// Makes moves, each of which keeps all rules.
    fn apply(&mut self, moves: &[Move], limit: usize) {
        for made in moves {
            let set = made.set.0 as usize;
            let before = self.fullest(set);
            let place = &mut self.sets[set][made.position.index()];
            assert_eq!(*place, Some(made.from), "{made:?}");
            *place = Some(made.to);
            let ids: std::collections::BTreeSet<_> = self.sets[set].iter().flatten().collect();
            assert_eq!(ids.len(), self.sets[set].iter().flatten().count(), "two chunks on a target: {made:?}");
            assert!(self.fullest(set) <= before.max(limit), "{made:?}");
            assert_eq!(self.targets[usize::from(made.to.0)].state, TargetState::Up);
        }
        self.measure();
    }

    /// Moves everything; afterwards there is nothing more to do. Returns the number of moves.
    fn settle(&mut self, limit: usize) -> usize {
        let moves = self.plan(usize::MAX);
        assert_eq!(moves, self.plan(usize::MAX), "the same arguments, the same answer");
        self.apply(&moves, limit);
        assert_eq!(self.plan(usize::MAX), [], "nothing moves back");
        moves.len()
    }

    fn used(&self, id: usize) -> f64 {
        (self.targets[id].total - self.targets[id].free) as f64
    }

    /// By how much the used ratio of a target that takes chunks differs from that of all, at most.
    fn worst(&self) -> f64 {
        let takes: Vec<usize> = (0..self.targets.len()).filter(|&n| self.targets[n].state == TargetState::Up).collect();
        let total: f64 = takes.iter().map(|&n| self.targets[n].total as f64).sum();
        let mean = takes.iter().map(|&n| self.used(n)).sum::<f64>() / total;
        takes.iter().map(|&n| (self.used(n) / self.targets[n].total as f64 - mean).abs()).fold(0.0, f64::max)
    }
}

/// Sets of `width` chunks on the first `on` of the targets, by chance and weight; `limit` a domain.
fn world(targets: Vec<TargetCandidate>, on: usize, sets: usize, width: usize, spare: usize) -> World {
    let mut random = fastrand::Rng::with_seed(7);
    let mut world = World { targets, sets: Vec::new(), spare, level: Some(1) };
    let totals: Vec<u64> = world.targets[..on].iter().map(|target| target.total).collect();
    let sum: u64 = totals.iter().sum();
    for _ in 0..sets {
        let mut places: Vec<Option<TargetId>> = Vec::new();
        while places.len() < width {
            let mut point = random.u64(0..sum);
            let index = totals.iter().position(|total| {
                let here = point < *total;
                point = point.saturating_sub(*total);
                here
            });
            let id = world.targets[index.unwrap()].id;
            let domain = world.domain(id);
            let in_domain = places.iter().flatten().filter(|other| world.domain(**other) == domain).count();
            if !places.contains(&Some(id)) && in_domain < spare {
                places.push(Some(id));
            }
        }
        world.sets.push(places);
    }
    world.measure();
    world
}

fn equal(count: u16) -> Vec<TargetCandidate> {
    (0..count).map(|id| target(id, 0, 1 << 20, None)).collect()
}

#[test]
fn one_more_of_twenty_moves_little_more_than_the_least() {
    let mut world = world(equal(21), 20, 20_000, 6, 2);
    // The twenty are even first, so that the least is what the new one lacks.
    let new = world.targets.pop().unwrap();
    world.settle(2);
    world.targets.push(new);
    world.measure();
    let least = 20_000 * 6 / 21;
    let moves = world.settle(2);
    assert!((least..=least * 11 / 10).contains(&moves), "{moves} of {least}");
    assert!(world.worst() * (1 << 20) as f64 <= CHUNK as f64, "{}", world.worst());
    // Old sets and new ones gave chunks alike.
    let moved = |range: std::ops::Range<usize>| {
        world.sets[range].iter().filter(|set| set.contains(&Some(TargetId(20)))).count() as f64
    };
    let (old, young) = (moved(0..10_000), moved(10_000..20_000));
    assert!((0.8..1.25).contains(&(old / young)), "{old} {young}");
}

#[test]
fn one_less_of_twenty_one_moves_little_more_than_the_least() {
    let mut world = world(equal(21), 21, 20_000, 6, 2);
    world.settle(2);
    world.targets[4].state = TargetState::Draining;
    let least = (world.used(4) / CHUNK as f64) as usize;
    let moves = world.settle(2);
    assert!((least..=least * 11 / 10).contains(&moves), "{moves} of {least}");
    assert_eq!(world.used(4), 0.0);
    assert!(world.worst() * (1 << 20) as f64 <= 2.0 * CHUNK as f64, "{}", world.worst());
}

#[test]
fn a_batch_is_the_begin_of_the_whole() {
    let world = world(equal(9), 6, 2000, 4, 2);
    let all = world.plan(usize::MAX);
    assert!(all.len() > 1000);
    for most in [0, 1, 7, 1000] {
        assert_eq!(world.plan(most), all[..most]);
    }
    // Batch after batch ends, too.
    let mut world = world;
    let mut moved = 0;
    loop {
        let moves = world.plan(100);
        if moves.is_empty() {
            break;
        }
        moved += moves.len();
        world.apply(&moves, 2);
    }
    assert!(moved <= all.len() + all.len() / 10, "{moved} and {}", all.len());
}

/// 1000 targets of five sizes in 50 racks, filled at random, 20 of them new and 10 to be emptied.
#[test]
fn a_thousand_targets_of_five_sizes_are_filled_by_ratio() {
    let targets: Vec<TargetCandidate> = (0..1000u16)
        .map(|id| target(id, 0, [1, 2, 3, 4, 8][usize::from(id % 5)] << 14, Some(&format!("rack{}", id % 50))))
        .collect();
    let mut world = world(targets, 980, 30_000, 12, 3);
    world.targets[100..110].iter_mut().for_each(|target| target.state = TargetState::Draining);
    let moves = world.settle(3);
    assert!((100..110).all(|n| world.used(n) == 0.0));
    assert!((0..world.sets.len()).all(|set| world.fullest(set) <= 3));
    assert!(world.worst() < 0.01, "{}", world.worst());
    assert!(moves < 360_000 / 8, "{moves}");
}

/// Every way to have up to three sets of two chunks on four targets in two racks, of which one may
/// be emptied: rules, ends, and no move back.
#[test]
fn small_worlds_settle() {
    let pairs: Vec<(u16, u16)> = (0..4).flat_map(|a| (0..4).map(move |b| (a, b))).filter(|(a, b)| a != b).collect();
    let mut worlds = 0;
    for (first, second) in pairs.iter().flat_map(|a| pairs.iter().map(move |b| (a, b))) {
        for (third, emptied) in pairs.iter().flat_map(|pair| (0..5).map(move |emptied| (pair, emptied))) {
            for racks in [[0, 0, 1, 1], [0, 1, 1, 1], [0, 1, 2, 3]] {
                let rack = |id: u16| format!("rack{}", racks[usize::from(id)]);
                let mut targets: Vec<TargetCandidate> =
                    (0..4).map(|id| target(id, 0, 1000 + 1000 * u64::from(id / 2), Some(&rack(id)))).collect();
                if let Some(target) = targets.get_mut(emptied) {
                    target.state = TargetState::Draining;
                }
                let sets = [first, second, third].map(|&(a, b)| vec![Some(TargetId(a)), Some(TargetId(b))]);
                let mut world = World { targets, sets: sets.to_vec(), spare: 1, level: Some(1) };
                world.measure();
                // Without the one that is emptied two racks are left, or the rule cannot hold.
                let left = |n: &usize| *n != emptied;
                let racks_left: std::collections::BTreeSet<_> = (0..4).filter(left).map(|n| racks[n]).collect();
                let possible = racks_left.len() > 1;
                world.settle(if possible { 1 } else { 2 });
                if possible {
                    assert!((0..3).all(|set| world.fullest(set) == 1), "{:?}", world.sets);
                }
                assert!(emptied == 4 || world.used(emptied) == 0.0, "{:?}", world.sets);
                worlds += 1;
            }
        }
    }
    assert_eq!(worlds, 12 * 12 * 12 * 5 * 3);
}

/// Sets that were placed before there were domains: only what breaks the rule must move.
#[test]
fn the_rule_comes_first() {
    let mut world = world(equal(12), 12, 3000, 6, 6);
    for target in &mut world.targets {
        target.domain = Some(format!("rack{}/h{}", target.id.0 / 4, target.id.0).parse().unwrap());
    }
    world.spare = 2;
    let broken: usize = (0..world.sets.len()).filter(|&set| world.fullest(set) > 2).count();
    assert!(broken > 1000);
    let moves = world.plan(usize::MAX);
    let excess: usize = world
        .sets
        .iter()
        .map(|set| {
            let mut counts = [0usize; 3];
            set.iter().flatten().for_each(|id| counts[usize::from(id.0 / 4)] += 1);
            counts.iter().map(|count| count.saturating_sub(2)).sum::<usize>()
        })
        .sum();
    let mut first = world.clone();
    first.apply(&moves[..excess], 2);
    assert!((0..first.sets.len()).all(|set| first.fullest(set) <= 2), "the rule holds after the first {excess} moves");
    world.settle(2);
    assert!((0..world.sets.len()).all(|set| world.fullest(set) <= 2));
}

/// A target with half of all space cannot have half of the chunks, and the others are even.
#[test]
fn who_cannot_be_filled_leaves_the_others_even() {
    let mut targets = equal(7);
    targets[6].total = 6 << 20;
    let mut world = world(targets, 6, 6000, 3, 2);
    world.settle(2);
    assert!(world.used(6) > 5990.0 * CHUNK as f64, "a chunk of each set: {}", world.used(6));
    let used: Vec<f64> = (0..6).map(|n| world.used(n)).collect();
    let (least, most) = (used.iter().copied().fold(f64::MAX, f64::min), used.iter().copied().fold(0.0, f64::max));
    assert!(most - least <= 2.0 * CHUNK as f64, "{used:?}");
}

#[test]
fn who_is_away_or_full_gets_nothing() {
    let mut world = world(equal(8), 6, 500, 3, 1);
    world.targets[6].state = TargetState::Down;
    let moves = rebalance(&world.targets, None, (1 << 20) - 10 * CHUNK, world.sets(), usize::MAX);
    let to = |id: u16| moves.iter().filter(|made| made.to == TargetId(id)).count();
    assert_eq!((to(6), to(7)), (0, 10), "and the reserve stays free");
    world.targets[7].total = 0;
    assert_eq!(world.plan(usize::MAX).iter().filter(|made| made.to.0 > 5).count(), 0);
}

#[test]
fn an_outlook_says_what_is_to_do() {
    let world = world(equal(5), 4, 400, 2, 1);
    let mut balance = Balance::new(&world.targets, None, 0);
    world.sets().for_each(|set| balance.count(&set));
    balance.begin();
    let outlook = balance.outlook();
    let least = 400 * 2 * CHUNK / 5;
    assert!((least..least + 20 * CHUNK).contains(&outlook.above), "{outlook:?}");
    assert_eq!((outlook.must, outlook.must_chunks, outlook.stuck), (0, 0, 0));
    assert!((outlook.most_below - least as f64 / (1 << 20) as f64).abs() < 1e-9);
    assert_eq!(balance.fill_of(TargetId(4)), Some(Fill { used: 0, goal: least, total: 1 << 20 }));
}

/// Targets that differ by one chunk, with goals between, beside an emptier one that the rule keeps
/// empty: rounding never sends a chunk back and forth.
#[test]
fn every_plan_ends() {
    let mut random = fastrand::Rng::with_seed(4);
    for round in 0..40_000 {
        let (count, racks) = (random.u16(3..12), random.u16(2..5));
        let bytes = [64u64 << 20, 1 << 20, 48_000_000][random.usize(0..3)];
        let total = [16_000_000_000_000u64, 4_000_000_000, 7_777_777_777][random.usize(0..3)];
        let width = random.usize(1..=usize::from(count).min(6));
        let mut used = vec![0; usize::from(count)];
        let mut sets: Vec<Vec<Option<TargetId>>> = Vec::new();
        // Some are new, or were replaced.
        let old = random.u16((width as u16)..=count);
        for _ in 0..random.usize(1..60) {
            let mut ids: Vec<u16> = (0..old).collect();
            random.shuffle(&mut ids);
            ids[..width].iter().for_each(|id| used[usize::from(*id)] += bytes);
            sets.push(ids[..width].iter().map(|id| Some(TargetId(*id))).collect());
        }
        let rack = |id: u16| format!("rack{}", if id + 1 == count { 0 } else { id % racks });
        let targets: Vec<TargetCandidate> =
            (0..count).map(|id| target(id, total - used[usize::from(id)], total, Some(&rack(id)))).collect();
        let all = (0..).map(SetId).zip(&sets);
        let all = all.map(|(set, places)| SetPlaces { set, chunk_bytes: bytes, spare: 1, places });
        let moves = rebalance(&targets, Some(1), 0, all, 3000).len();
        assert!(moves < 3000, "{round}: {count} targets of {total} in {racks}, {} sets of {width}", sets.len());
    }
}

/// Three targets share six chunks of each set; then others come. Chunks that are beside another one
/// of their set go there, and with six targets none is left.
#[test]
fn chunks_that_share_a_target_spread_over_new_ones() {
    let target = |id| TargetCandidate {
        id: TargetId(id),
        free: 1000 * CHUNK,
        total: 1000 * CHUNK,
        domain: None,
        state: TargetState::Up,
        load: None,
    };
    let sets: Vec<Vec<Option<TargetId>>> =
        (0..20).map(|set| (0..6).map(|at| Some(TargetId((at + set) % 3))).collect()).collect();
    let doubled = |places: &[Option<TargetId>]| (1..6).filter(|&at| places[..at].contains(&places[at])).count();
    for (count, left) in [(3, 3), (4, 2), (5, 1), (6, 0), (9, 0)] {
        let mut world = World { targets: (0..count).map(target).collect(), sets: sets.clone(), spare: 2, level: None };
        world.measure();
        let mut balance = Balance::new(&world.targets, None, 0);
        world.sets().for_each(|set| balance.count(&set));
        assert_eq!(balance.outlook().must_chunks, 20 * (3 - left));
        for made in world.plan(usize::MAX) {
            let places = &mut world.sets[made.set.0 as usize];
            assert!(!places.contains(&Some(made.to)), "{made:?}");
            places[made.position.index()] = Some(made.to);
        }
        assert!(world.sets.iter().all(|places| doubled(places) == left as usize), "{count}: {:?}", world.sets);
        world.measure();
        assert_eq!(world.plan(usize::MAX), [], "nothing more is to do");
    }
}

/// In a ring of nine targets, three are new: chunks that move go to those that are near to the rest
/// of their set, and the targets get as full as without the ring.
#[test]
fn of_targets_that_are_as_full_the_nearer_one_gets_the_chunk() {
    let target = |id| target(id, 1000 * CHUNK, 1000 * CHUNK, None);
    // Two neighbours of the targets 0, 1, 3, 4, 6 and 7; 2, 5 and 8 are new.
    let sets: Vec<Vec<Option<TargetId>>> =
        (0..180).map(|set| [0, 1].map(|at| Some(TargetId(3 * (set % 3) + at))).to_vec()).collect();
    let mut world = World { targets: (0..9).map(target).collect(), sets, spare: 2, level: None };
    world.measure();
    let torus: crate::topology::Torus = "9".parse().unwrap();
    let places = crate::topology::Places { of: (0..9).map(TargetId).zip(torus.all()).collect(), torus };
    let moved = |near: Option<std::sync::Arc<crate::topology::Places>>| {
        let mut balance = Balance::new(&world.targets, None, 0).near(near);
        world.sets().for_each(|set| balance.count(&set));
        balance.begin();
        let (mut sets, mut moves) = (world.sets.clone(), Vec::new());
        loop {
            for (number, set) in world.sets().enumerate() {
                let planned = moves.len();
                balance.look(&SetPlaces { places: &sets[number], ..set }, &mut moves);
                moves[planned..].iter().for_each(|made: &Move| sets[number][made.position.index()] = Some(made.to));
            }
            if !balance.next_pass() {
                break;
            }
        }
        let hops: u32 = sets.iter().map(|set| places.between(set[0].unwrap(), set[1].unwrap()).unwrap()).sum();
        let mut full = [0; 9];
        sets.iter().flatten().flatten().for_each(|id| full[usize::from(id.0)] += 1);
        (moves.len(), hops, full)
    };
    let (blind, near) = (moved(None), moved(Some(std::sync::Arc::new(places.clone()))));
    assert!(near.0 <= blind.0 + 3, "{near:?} and {blind:?}");
    assert!(near.1 - 180 < (blind.1 - 180) / 2, "{near:?} and {blind:?}");
    assert!(near.2.iter().all(|count| (39..=41).contains(count)), "{near:?}");
}

/// It may be anywhere: it gets no chunk for being near, and is no worse than the farthest.
#[test]
fn a_target_without_a_place_counts_as_far_away() {
    use crate::topology::{Places, Torus};
    let torus: Torus = "9".parse().unwrap();
    let at = |place: usize| torus.all().nth(place).unwrap();
    for (third, to) in [(2, 3), (3, 3), (5, 2)] {
        let of = [(0, 0), (1, 1), (3, third)].map(|(id, place)| (TargetId(id), at(place))).into();
        let mut targets: Vec<TargetCandidate> = (0..4).map(|id| target(id, 1000 * CHUNK, 1000 * CHUNK, None)).collect();
        targets[1].state = TargetState::Draining;
        if third == 5 {
            // As far as can be: then the emptier one counts, which is the other.
            targets[3].free -= CHUNK / 2;
        }
        let sets = vec![vec![Some(TargetId(0)), Some(TargetId(1))]];
        let world = World { targets, sets, spare: 1, level: None };
        let near = Places { torus: torus.clone(), of };
        let mut balance = Balance::new(&world.targets, None, 0).near(Some(std::sync::Arc::new(near)));
        world.sets().for_each(|set| balance.count(&set));
        balance.begin();
        let mut moves = Vec::new();
        world.sets().for_each(|set| balance.look(&set, &mut moves));
        assert_eq!(moves.iter().map(|made| made.to).collect::<Vec<_>>(), [TargetId(to)], "{third}");
    }
}

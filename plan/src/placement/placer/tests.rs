use super::*;
use crate::placement::{open_sets, place};
use std::collections::{BTreeMap, BTreeSet};

const GIB: u64 = 1 << 30;
const CHUNK: u64 = 64 << 20;

fn target(id: u16, free: u64, total: u64, domain: Option<String>) -> TargetCandidate {
    let domain = domain.map(|domain| domain.parse().unwrap());
    TargetCandidate { id: TargetId(id), free, total, domain, state: TargetState::Up, load: None }
}

/// Equal targets of 1 TiB that are half full, five in a rack.
pub(super) fn equal(count: u16) -> Vec<TargetCandidate> {
    (0..count).map(|id| target(id, 512 * GIB, 1024 * GIB, Some(format!("rack{}/host{id}", id / 5)))).collect()
}

const RULES: Rules = Rules { width: 8, spare: 2, domain_level: Some(1), need: CHUNK };

pub(super) fn placer(targets: &[TargetCandidate], tuning: Tuning, seed: u64) -> Placer {
    let mut placer = Placer::new(RULES, tuning, seed);
    placer.handle_members(targets);
    placer
}

pub(super) fn report(idle: f64, temperature: f64, free: u64) -> Report {
    Report { idle, network: 1.0 - idle, temperature, free, total: 1024 * GIB, ..Report::default() }
}

/// How many chunks of `sets` sets each target gets.
fn shares(placer: &mut Placer, sets: std::ops::Range<u64>) -> BTreeMap<u16, usize> {
    let mut counts: BTreeMap<u16, usize> = placer.members.iter().map(|member| (member.id.0, 0)).collect();
    for set in sets.map(SetId) {
        placer.place(set).iter().flatten().for_each(|id| *counts.get_mut(&id.0).unwrap() += 1);
    }
    counts
}

/// Set by set, with targets that come and go, fill up, are loaded and stay silent. With every
/// second seed, accesses are measured.
#[test]
fn a_placer_places_what_the_policy_places() {
    let mut random = fastrand::Rng::with_seed(7);
    for seed in 0..30 {
        let targets: Vec<TargetCandidate> = (0..random.u16(0..60))
            .map(|id| {
                let (free, domain) = (random.u64(0..40) * CHUNK, random.u16(0..9));
                target(id, free, 50 * CHUNK, (domain > 0).then(|| format!("rack{domain}/host{id}")))
            })
            .collect();
        let mut placer = placer(&targets, Tuning::default(), seed);
        for set in (0..60).map(SetId) {
            for id in (0..targets.len() as u16).map(TargetId) {
                if random.u8(0..4) > 0 {
                    continue;
                }
                let load = report(random.f64(), random.f64() * 1e4, random.u64(0..40) * CHUNK);
                match random.u8(0..10) {
                    0 => placer.handle_state(id, TargetState::Down),
                    1 | 2 => placer.handle_state(id, TargetState::Up),
                    _ => {
                        let [queue, service, answer] = std::array::from_fn(|_| random.f64() * (seed % 2) as f64);
                        let measured = Report { queue: 9.0 * queue, service, answer, ..load };
                        placer.handle_report(id, &Report { total: 50 * CHUNK, ..measured });
                    }
                }
            }
            placer.handle_interval();
            let expected = place(&placer.policy, &placer.candidates(), &RULES, set);
            let told = placer.explain(set);
            assert_eq!(placer.place(set), expected);
            assert_eq!(told.places, expected);
            // What follows in the interval counts in the next one.
            placer.place(SetId(1000 + set.0));
        }
    }
}

#[test]
fn between_two_reports_there_is_no_herd() {
    // One is idle, and all others have much to do.
    let mut one = placer(&equal(100), Tuning::default(), 1);
    for id in 0..100 {
        one.handle_report(TargetId(id), &report(if id == 42 { 1.0 } else { 0.1 }, 1000.0, 512 * GIB));
    }
    one.handle_interval();
    let best = shares(&mut one, 0..100)[&42];
    // Even are 8 of 800; it is preferred, but no more than four times, and what it may be behind.
    assert!((16..=40).contains(&best), "{best}");
    // Many writers that know nothing of each other do no harm, either.
    let best: usize = (0..50)
        .map(|seed| {
            let mut other = one.clone();
            other.policy.seed = seed;
            shares(&mut other, 0..2)[&42]
        })
        .sum();
    assert!(best <= 8 * 8, "no more than it is drawn: {best}");
}

/// One is ten times as fast as all others, and has no queue. It gets the next chunks, until it has
/// a queue.
#[test]
fn what_was_placed_waits_where_accesses_are_measured() {
    let mut placer = placer(&equal(100), Tuning::default(), 1);
    for id in 0..100 {
        let (queue, service) = if id == 42 { (0.0, 0.001) } else { (4.0, 0.01) };
        let load = Report { queue, service, answer: 0.001, ..report(0.5, 1000.0, 512 * GIB) };
        placer.handle_report(TargetId(id), &load);
    }
    placer.handle_interval();
    // Even are 8. An access there takes 13 ms, with what a store is allowed to answer in; elsewhere
    // 60, and 140 when they have got eight chunks each. Each chunk more makes it 4 ms, and its turn
    // comes later with each that it is ahead.
    let best = shares(&mut placer, 0..100)[&42];
    assert!((11..=34).contains(&best), "{best}");
    // A report that says the same of it later forgets what was placed before, in two steps.
    let idle = Report { service: 0.001, answer: 0.001, ..report(0.5, 1000.0, 512 * GIB) };
    let wait = |placer: &Placer| placer.turn(42);
    let before = wait(&placer);
    placer.handle_report(TargetId(42), &idle);
    let once = wait(&placer);
    placer.handle_report(TargetId(42), &idle);
    assert!(before > once && once > wait(&placer), "{before} {once}");
}

#[test]
fn what_was_placed_counts_at_once() {
    // No report comes: equal targets get the same all the time, as with round-robin.
    let mut placer = placer(&equal(20), Tuning::default(), 3);
    let mut counts = BTreeMap::new();
    for round in 0..40 {
        let more = shares(&mut placer, 5 * round..5 * round + 5);
        more.into_iter().for_each(|(id, count)| *counts.entry(id).or_insert(0) += count);
        let (least, most) = (counts.values().min().unwrap(), counts.values().max().unwrap());
        assert!(most - least <= 3, "{round}: {counts:?}");
    }
    // But not always the same ones together, so that many can help with the repair of one.
    let together: BTreeSet<TargetId> = (200..240)
        .map(|set| placer.place(SetId(set)))
        .filter(|places| places.contains(&Some(TargetId(3))))
        .flatten()
        .flatten()
        .collect();
    assert!(together.len() > 15, "{together:?}");
}

/// A target of which nothing was known is not left out for ever when its space is told.
#[test]
fn who_tells_its_space_late_gets_its_share() {
    let mut targets = equal(20);
    let (free, total) = (targets[7].free, targets[7].total);
    (targets[7].free, targets[7].total, targets[7].state) = (0, 0, TargetState::Down);
    let mut placer = placer(&targets, Tuning { evenness: 0.0, ..Tuning::default() }, 3);
    assert_eq!(shares(&mut placer, 0..50)[&7], 0);
    placer.handle_space(TargetId(7), free, total);
    placer.handle_state(TargetId(7), TargetState::Up);
    placer.handle_interval();
    let counts = shares(&mut placer, 50..150);
    // Even are 40.
    assert!((36..=44).contains(&counts[&7]), "{counts:?}");
}

#[test]
fn what_others_placed_counts_as_if_the_placer_had() {
    let [mut one, mut other] = [(); 2].map(|()| placer(&equal(20), Tuning::default(), 3));
    for set in (0..30).map(SetId) {
        let ids: Vec<TargetId> = one.place(set).into_iter().flatten().collect();
        other.handle_placed(&ids);
    }
    let ahead =
        |placer: &Placer| placer.candidates().iter().map(|target| target.load.unwrap().ahead).collect::<Vec<_>>();
    let differ = ahead(&one).iter().zip(ahead(&other)).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(differ < 1e-6, "{differ}");
}

#[test]
fn what_is_given_back_was_not_placed() {
    let mut placer = placer(&equal(20), Tuning::default(), 3);
    (0..10).for_each(|set| drop(placer.place(SetId(set))));
    let ahead =
        |placer: &Placer| placer.candidates().iter().map(|target| target.load.unwrap().ahead).collect::<Vec<_>>();
    let before = ahead(&placer);
    let ids: Vec<TargetId> = placer.place(SetId(10)).into_iter().flatten().collect();
    placer.handle_given_back(&ids);
    let differ = before.iter().zip(ahead(&placer)).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(differ < 0.01, "{differ}");
}

#[test]
fn space_counts_until_a_second_report_shows_it() {
    let mut placer = placer(&equal(20), Tuning::default(), 3);
    (0..5).for_each(|set| drop(placer.place(SetId(set))));
    let free = |placer: &Placer| placer.candidates().iter().map(|target| target.free).sum::<u64>();
    // The first report may have been on its way when a chunk was placed.
    for expected in [40, 40, 0] {
        assert_eq!(free(&placer), 20 * 512 * GIB - expected * CHUNK);
        (0..20).for_each(|id| placer.handle_report(TargetId(id), &report(0.5, 100.0, 512 * GIB)));
    }
}

#[test]
fn a_new_target_is_not_flooded_and_a_hot_one_does_not_starve() {
    let mut targets = equal(99);
    targets.push(target(99, 512 * GIB, 1024 * GIB, None));
    let mut placer = placer(&targets, Tuning { evenness: 0.0, ..Tuning::default() }, 5);
    let mut counts = BTreeMap::new();
    for interval in 0..100 {
        for id in 0..100u16 {
            let (idle, temperature) = match id {
                99 => (1.0, 0.0),
                7 => (0.0, 1e6),
                _ => (0.4, 1000.0),
            };
            placer.handle_report(TargetId(id), &report(idle, temperature, 512 * GIB));
        }
        placer.handle_interval();
        shares(&mut placer, 20 * interval..20 * interval + 20)
            .into_iter()
            .for_each(|(id, count)| *counts.entry(id).or_insert(0) += count);
    }
    // Even are 160; the bounds are a quarter and four times as many.
    assert!((200..=4 * 165).contains(&counts[&99]), "{}", counts[&99]);
    assert!((38..100).contains(&counts[&7]), "{}", counts[&7]);
}

/// An empty target among 99 that are half full, and one that takes ten times as long, with all
/// accesses measured: the one is not flooded, the other does not starve.
#[test]
fn an_empty_target_is_not_flooded_where_accesses_are_measured() {
    let mut targets = equal(99);
    targets.push(target(99, 1024 * GIB, 1024 * GIB, None));
    let mut placer = placer(&targets, Tuning::default(), 5);
    let mut counts = BTreeMap::new();
    for interval in 0..100 {
        for id in 0..100u16 {
            let free = if id == 99 { 1024 * GIB } else { 512 * GIB };
            let service = if id == 7 { 0.1 } else { 0.01 };
            let load = Report { queue: 1.0, service, ..report(0.5, 1000.0, free) };
            placer.handle_report(TargetId(id), &load);
        }
        placer.handle_interval();
        shares(&mut placer, 20 * interval..20 * interval + 20)
            .into_iter()
            .for_each(|(id, count)| *counts.entry(id).or_insert(0) += count);
    }
    // Even are 160; what it can take in an interval is what the others' waits allow.
    assert!((200..=6 * 160).contains(&counts[&99]), "{}", counts[&99]);
    assert!((20..110).contains(&counts[&7]), "{}", counts[&7]);
}

#[test]
fn who_is_silent_becomes_as_the_others() {
    let tuning = Tuning { evenness: 0.0, ..Tuning::default() };
    let mut placer = placer(&equal(50), tuning, 9);
    let mut seen = Vec::new();
    for interval in 0..60 {
        for id in (0..50).filter(|&id| id != 7 || interval == 0) {
            let idle = if id == 7 { 0.0 } else { 0.5 };
            placer.handle_report(TargetId(id), &report(idle, 100.0, 512 * GIB));
        }
        placer.handle_interval();
        seen.push(placer.members[7].share);
    }
    assert!(seen[0] < 0.3 && seen.is_sorted() && seen[59] > 0.88, "{seen:?}");
}

/// A target that comes back, or whose score rises, has no claim to what it missed.
#[test]
fn what_was_missed_is_forgotten() {
    let mut placer = placer(&equal(40), Tuning { evenness: 0.0, ..Tuning::default() }, 9);
    placer.handle_state(TargetId(7), TargetState::Down);
    shares(&mut placer, 0..1000);
    placer.handle_state(TargetId(7), TargetState::Up);
    // Even are 8 of 320.
    let counts = shares(&mut placer, 1000..1040);
    assert!((6..=8 + 5).contains(&counts[&7]), "{counts:?}");
}

/// What is used of each target after a number of sets, where some are always busier.
fn filled(targets: Vec<TargetCandidate>, sets: u64, idle: impl Fn(u16) -> f64) -> Vec<f64> {
    let mut free: Vec<u64> = targets.iter().map(|target| target.free).collect();
    let mut placer = placer(&targets, Tuning::default(), 11);
    for set in 0..sets {
        placer.place(SetId(set)).iter().flatten().for_each(|id| free[usize::from(id.0)] -= CHUNK);
        if set % 20 == 19 {
            for (target, &free) in targets.iter().zip(&free) {
                let busy = report(idle(target.id.0), 100.0 * (2.0 - idle(target.id.0)), free);
                placer.handle_report(target.id, &Report { total: target.total, ..busy });
            }
            placer.handle_interval();
        }
    }
    targets.iter().zip(free).map(|(target, free)| 1.0 - free as f64 / target.total as f64).collect()
}

/// How far the fullest and the emptiest are from the mean, relative to it.
fn uneven(used: &[f64]) -> f64 {
    let mean = used.iter().sum::<f64>() / used.len() as f64;
    used.iter().map(|used| (used / mean - 1.0).abs()).fold(0.0, f64::max)
}

#[test]
fn equal_targets_stay_even() {
    let empty = |count| (0..count).map(|id| target(id, 1024 * GIB, 1024 * GIB, None)).collect::<Vec<_>>();
    let usual = uneven(&filled(empty(32), 20_000, |_| 0.5));
    assert!(usual < 0.01, "{usual}");
    // Half of them are busier than the others, for ever.
    let busy = uneven(&filled(empty(32), 20_000, |id| if id % 2 == 0 { 0.8 } else { 0.4 }));
    assert!(busy < 0.05, "{busy}");
}

#[test]
fn mixed_sizes_fill_by_ratio() {
    let mixed = (0..30u16).map(|id| {
        let total = [256, 512, 1024][usize::from(id % 3)] * GIB;
        target(id, total, total, None)
    });
    for sets in [2_000, 10_000, 25_000] {
        let used = filled(mixed.clone().collect(), sets, |_| 0.5);
        assert!(uneven(&used) < 0.05, "{sets}: {used:?}");
    }
}

#[test]
fn nearly_full_targets_are_avoided_early() {
    let mut targets = equal(40);
    targets[3].free = 40 * GIB;
    let mut placer = placer(&targets, Tuning { evenness: 0.0, ..Tuning::default() }, 13);
    let counts = shares(&mut placer, 0..500);
    // Even are 100.
    assert!(counts[&3] < 5 && counts[&4] > 80, "{counts:?}");
    // Where there is nothing else, they are used.
    targets.iter_mut().for_each(|target| target.free = 40 * GIB);
    placer.handle_members(&targets);
    placer.place(SetId(0)).iter().for_each(|place| assert!(place.is_some()));
    assert_eq!(open_sets(40, 8, 6, 4), 4);
}

/// A million sets (fewer without optimisation), while targets fail, come back, fill up and are
/// emptied, racks have from one to forty targets, and reports come or do not: distinct targets
/// that are up, with the space, and no rack with more than it must have.
#[test]
fn no_placement_violates_the_rules() {
    let sets = if cfg!(debug_assertions) { 20_000 } else { 1_000_000 };
    let mut random = fastrand::Rng::with_seed(17);
    let sizes = [1, 2, 3, 5, 8, 13, 20, 40, 20, 20, 12, 6];
    let racks = sizes.iter().enumerate().flat_map(|(rack, &size)| vec![rack; size]);
    let mut targets: Vec<TargetCandidate> = racks
        .zip(0..)
        .map(|(rack, id)| {
            let total = [1, 2, 8][usize::from(id % 3)] * 64 * GIB;
            // Some have no domain.
            target(id, total, total, (id % 11 > 0).then(|| format!("rack{rack}/host{id}")))
        })
        .collect();
    let name = |target: &TargetCandidate| {
        target.domain.as_ref().map_or_else(|| target.id.0.to_string(), |domain| domain.at(Some(1)).to_owned())
    };
    let names: Vec<String> = targets.iter().map(name).collect();
    let numbers: BTreeMap<&String, usize> = names.iter().collect::<BTreeSet<_>>().into_iter().zip(0..).collect();
    let rack_of: Vec<usize> = names.iter().map(|name| numbers[name]).collect();
    let mut placer = placer(&targets, Tuning::default(), 19);
    let mut as_it_is = 0;
    for set in (0..sets).map(SetId) {
        if set.0 % 16 == 0 {
            let id = random.usize(0..targets.len());
            let states = [TargetState::Up, TargetState::Up, TargetState::Down, TargetState::Out, TargetState::Draining];
            // At times a whole rack fails, and at times all are there.
            match random.u8(0..100) {
                0 => (0..targets.len()).filter(|&other| rack_of[other] == rack_of[id]).for_each(|other| {
                    targets[other].state = TargetState::Down;
                }),
                1 => targets.iter_mut().for_each(|target| target.state = TargetState::Up),
                _ => targets[id].state = states[random.usize(0..5)],
            }
            targets.iter().for_each(|target| placer.handle_state(target.id, target.state));
            let id = random.usize(0..targets.len());
            if random.bool() {
                // What was there is deleted.
                targets[id].free = targets[id].total;
            }
            let load = report(random.f64(), random.f64() * 100.0, targets[id].free);
            placer.handle_report(targets[id].id, &Report { total: targets[id].total, ..load });
        }
        if set.0 % 64 == 0 {
            placer.handle_interval();
        }
        let usable = |target: &TargetCandidate| target.state == TargetState::Up && target.free >= CHUNK;
        // What was placed counts until two reports have come: the placer sees no more than is
        // there.
        let seen_in = placer.usable_in.clone();
        let seen: usize = seen_in.iter().sum();
        as_it_is += u64::from(seen == targets.iter().filter(|target| usable(target)).count());
        let places = placer.place(set);
        let (mut rack_has, mut distinct) = (vec![0; numbers.len()], BTreeSet::new());
        for id in places.iter().flatten().map(|id| usize::from(id.0)) {
            assert!(distinct.insert(id) && usable(&targets[id]), "{set}: {places:?}");
            targets[id].free -= CHUNK;
            rack_has[rack_of[id]] += 1;
        }
        assert!(places.len() == 8 && distinct.len() == seen.min(8), "{set}: {places:?} of {seen}");
        let fits = |limit: usize| seen_in.iter().map(|&size| size.min(limit)).sum::<usize>() >= seen.min(8);
        let limit = (2..).find(|&limit| fits(limit)).unwrap();
        let fullest = rack_has.into_iter().max().unwrap();
        assert!(fullest <= limit, "{set}: {fullest} in a rack, {limit} are possible");
    }
    assert!(2 * as_it_is > sets, "it mostly sees all that there is: {as_it_is} of {sets}");
}

#[test]
fn a_set_apart_has_no_target_of_others() {
    let mut placer = placer(&equal(200), Tuning::default(), 3);
    let mut counts = BTreeMap::new();
    for writer in 0..100 {
        let mut used: Vec<TargetId> = Vec::new();
        for set in 4 * writer..4 * writer + 4 {
            let places: Vec<TargetId> = placer.place_apart(SetId(set), &used).unwrap().into_iter().flatten().collect();
            assert!(places.len() == 8 && places.iter().all(|id| !used.contains(id)), "{used:?} {places:?}");
            used.extend(places);
        }
        used.into_iter().for_each(|id| *counts.entry(id).or_insert(0) += 1);
    }
    // Even are 16.
    assert!(counts.len() == 200 && counts.values().all(|count| (14..=18).contains(count)), "{counts:?}");
    // One target in each of eight racks is left; then one less. What was left out can be drawn
    // again.
    let all: BTreeSet<TargetId> = (0..200).map(TargetId).collect();
    let rest: BTreeSet<TargetId> = (0..8).map(|rack| TargetId(5 * rack)).collect();
    let mut others: Vec<TargetId> = all.difference(&rest).copied().collect();
    let last: BTreeSet<TargetId> = placer.place_apart(SetId(1000), &others).unwrap().into_iter().flatten().collect();
    assert_eq!(last, rest);
    others.push(TargetId(0));
    assert_eq!(placer.place_apart(SetId(1000), &others), None);
    assert_eq!(placer.place(SetId(1001)).iter().flatten().collect::<BTreeSet<_>>().len(), 8);
}

/// Of twice as many that are drawn the callers take those they want, within the rule.
#[test]
fn some_of_those_that_are_drawn_are_preferred() {
    let mut placer = placer(&equal(200), Tuning::default(), 3);
    for set in (0..50).map(SetId) {
        let mut drawn = Vec::new();
        let by_number = |ids: &mut Vec<TargetId>| {
            ids.sort();
            drawn.clone_from(ids);
        };
        let mut places: Vec<TargetId> =
            placer.place_among(set, &[TargetId(7)], 16, by_number).unwrap().into_iter().flatten().collect();
        places.sort();
        assert!(drawn.len() == 16 && !drawn.contains(&TargetId(7)), "{drawn:?}");
        assert_eq!(places, drawn[..8]);
    }
}

/// At once or one by one, the loads of an interval give the same shares.
#[test]
fn loads_of_many_are_those_of_each() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut one = placer(&equal(40), Tuning::default(), 1);
    let mut many = one.clone();
    for interval in 0..30u64 {
        let reported = (0..40).filter(|_| random.u8(0..5) > 0).map(TargetId);
        let mut seeds = fastrand::Rng::with_seed(interval);
        let loads: Vec<(TargetId, Report)> =
            reported.map(|id| (id, report(seeds.f64(), seeds.f64() * 1e3, 0))).collect();
        let ends = interval % 3 > 0;
        if ends {
            one.handle_interval();
        }
        loads.iter().for_each(|(id, load)| one.handle_load(*id, load));
        many.handle_loads(&loads, ends);
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(1.0);
        for index in 0..40 {
            let (a, b) = (&one.members[index], &many.members[index]);
            assert!(close(a.share, b.share) && close(a.stride, b.stride), "{interval}: {a:?} {b:?}");
            assert_eq!((a.load, a.placed, a.usable), (b.load, b.placed, b.usable));
            assert_eq!(one.lottery.weight(index), many.lottery.weight(index));
        }
        // The sum of all rates is that of the rates.
        let sum: f64 = (0..40).map(|index| many.rate_of(index)).sum();
        assert!(!ends || close(sum, many.rate), "{sum} {}", many.rate);
        for set in (interval * 9..interval * 9 + 9).map(SetId) {
            let places: Vec<TargetId> = one.place(set).into_iter().flatten().collect();
            many.handle_placed(&places);
        }
    }
}

/// A set is placed before this knows that its targets are up again.
#[test]
fn time_goes_on_where_no_target_could_be_chosen() {
    let away = |target: TargetCandidate| TargetCandidate { state: TargetState::Down, ..target };
    let mut placer = placer(&equal(10).into_iter().map(away).collect::<Vec<_>>(), Tuning::default(), 3);
    placer.handle_placed(&(0..8).map(TargetId).collect::<Vec<_>>());
    placer.handle_given_back(&(2..8).map(TargetId).collect::<Vec<_>>());
    assert!(!placer.can_take(TargetId(0)));
    placer.handle_members(&equal(10));
    assert!(placer.can_take(TargetId(0)) && placer.now.is_finite(), "{}", placer.now);
    assert!(placer.members.iter().all(|member| member.due.is_finite()));
    let counts = shares(&mut placer, 0..50);
    assert!(counts.values().all(|count| (38..=42).contains(count)), "{counts:?}");
}

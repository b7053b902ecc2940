use super::*;
use crate::membership::TargetState;
use crate::{Domain, SetId, TargetId};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn candidate(id: u16, free: u64, domain: Option<&str>) -> TargetCandidate {
    let domain = domain.map(|domain| domain.parse().unwrap());
    TargetCandidate { id: TargetId(id), free, total: 0, domain, state: TargetState::Up, load: None }
}

fn alone(free: &[u64]) -> Vec<TargetCandidate> {
    free.iter().zip(0..).map(|(&free, id)| candidate(id, free, None)).collect()
}

/// Domains with `sizes` targets each, numbered across them.
fn racks(sizes: &[usize]) -> Vec<TargetCandidate> {
    let rack = |(rack, &size): (usize, &usize)| (0..size).map(move |_| rack);
    let racks = sizes.iter().enumerate().flat_map(rack);
    racks.zip(0..).map(|(rack, id)| candidate(id, 100, Some(&format!("rack{rack}/host{id}")))).collect()
}

fn rules(width: usize, spare: usize, domain_level: Option<u8>) -> Rules {
    Rules { width, spare, domain_level, need: 10 }
}

fn policies() -> [Box<dyn Policy>; 5] {
    PolicyName::ALL.map(|policy| Placement { policy, ..Placement::default() }.policy(0, 64 << 20))
}

/// How many chunks of a set each first name of a domain has.
fn per_rack(targets: &[TargetCandidate], placed: impl IntoIterator<Item = TargetId>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for id in placed {
        let target = targets.iter().find(|target| target.id == id).unwrap();
        *counts.entry(target.domain.as_ref().unwrap().at(Some(1)).to_owned()).or_insert(0) += 1;
    }
    counts
}

#[test]
fn sets_go_to_distinct_targets_with_space_that_take_data() {
    let mut targets = alone(&[100, 100, 5, 100, 100, 100, 100]);
    targets[5].state = TargetState::Down;
    targets[6].state = TargetState::Draining;
    for (policy, set) in policies().iter().flat_map(|policy| (0..500).map(move |set| (policy, SetId(set)))) {
        let placed = place(&**policy, &targets, &rules(4, 1, None), set);
        let ids: BTreeSet<u16> = placed.iter().flatten().map(|id| id.0).collect();
        assert_eq!(ids, [0, 1, 3, 4].into(), "one has no space, and two take nothing");
    }
}

/// The one with the least free of all may be the one that a policy likes best.
#[test]
fn what_is_nearly_full_is_for_when_nothing_else_is_left() {
    let large =
        |id: u16, percent: u64, domain| TargetCandidate { total: 100 << 30, ..candidate(id, percent << 30, domain) };
    for policy in policies() {
        // Three of six are nearly full; sets take three, four and six.
        let targets: Vec<TargetCandidate> =
            (0..6).map(|id| large(id, if id < 3 { 4 } else { 6 + u64::from(id) }, None)).collect();
        for (set, width) in (0..200).map(SetId).flat_map(|set| [3, 4, 6].map(move |width| (set, width))) {
            let placed = place(&*policy, &targets, &rules(width, 1, None), set);
            let full = placed.iter().flatten().filter(|id| id.0 < 3).count();
            assert_eq!((full, placed.iter().flatten().count()), (width - 3, width), "{set} {placed:?}");
        }
        // The rule is worth more than that.
        let racks = [large(0, 50, Some("a")), large(1, 50, Some("a")), large(2, 1, Some("b"))];
        let placed = place(&*policy, &racks, &rules(2, 1, Some(1)), SetId(5));
        assert!(placed.contains(&Some(TargetId(2))), "{placed:?}");
    }
}

#[test]
fn chance_follows_space_and_parity_goes_round() {
    let (mut load, mut parity) = (BTreeMap::new(), BTreeMap::new());
    for set in (0..6000).map(SetId) {
        let placed = place(&Random { seed: 7 }, &alone(&[100, 100, 100, 300]), &rules(2, 1, None), set);
        placed.iter().flatten().for_each(|id| *load.entry(id.0).or_insert(0) += 1);
        *parity.entry(placed[1].unwrap().0).or_insert(0) += 1;
    }
    // Three times the space, but no target is taken twice for a set: about twice the load.
    assert!(5 * load[&3] > 9 * load[&0], "{load:?}");
    assert!(parity.values().all(|&count| count > 500), "{parity:?}");
}

#[test]
fn round_robin_uses_all_targets_alike() {
    for (count, width) in [(7u16, 6), (6, 6), (9, 4), (12, 6), (5, 3)] {
        let (mut load, mut parity) = (vec![0; usize::from(count)], vec![0; usize::from(count)]);
        let targets = alone(&vec![100; usize::from(count)]);
        let sets = 20 * u64::from(count) * width as u64;
        for set in (0..sets).map(SetId) {
            let placed = place(&RoundRobin, &targets, &rules(width, 1, None), set);
            placed.iter().flatten().for_each(|id| load[usize::from(id.0)] += 1);
            parity[usize::from(placed[width - 1].unwrap().0)] += 1;
        }
        assert!(load.iter().all(|&load| load == sets as usize * width / usize::from(count)), "{load:?}");
        assert!(parity.iter().all(|&parity| parity > 0), "{count} {width}: {parity:?}");
    }
}

/// Every way to have up to twelve targets in up to four racks, and every shape that fits on them.
#[test]
fn no_domain_has_more_than_it_must() {
    for sizes in (0..5usize.pow(4)).map(|n| [n % 5, n / 5 % 5, n / 25 % 5, n / 125]) {
        let targets = racks(&sizes);
        for (width, spare) in (1..=targets.len().min(8)).flat_map(|width| (0..=3.min(width)).map(move |m| (width, m))) {
            // The least limit with which there is space for all.
            let capacity = |limit: usize| sizes.iter().map(|&size| size.min(limit)).sum::<usize>() >= width;
            let least = (1..=4).find(|&limit| capacity(limit)).unwrap();
            for (policy, set) in policies().iter().flat_map(|policy| (0..3).map(move |set| (policy, SetId(set)))) {
                let placed = place(&**policy, &targets, &rules(width, spare, Some(1)), set);
                let chosen: BTreeSet<TargetId> = placed.iter().flatten().copied().collect();
                assert_eq!(chosen.len(), width, "{sizes:?} {width} {placed:?}");
                let fullest = per_rack(&targets, chosen).into_values().max().unwrap();
                assert!(fullest <= least.max(spare), "{sizes:?} {width}+{spare}: {fullest} and {least} are possible");
            }
        }
    }
}

/// Every set of lost positions of every set on nine targets in three racks: rebuilt chunks go where
/// the rule holds again.
#[test]
fn repair_keeps_the_rule() {
    let targets = racks(&[4, 4, 4]);
    for (policy, set) in policies().iter().flat_map(|policy| (0..20).map(move |set| (policy, SetId(set)))) {
        let rules = rules(9, 3, Some(1));
        let placed: Vec<TargetId> = place(&**policy, &targets, &rules, set).into_iter().flatten().collect();
        for lost in 0..1 << 9 {
            let there = placed.iter().zip(0..).filter(|(_, position)| lost >> position & 1 == 0);
            let there: Vec<(TargetId, Option<Domain>)> =
                there.map(|(id, _)| (*id, targets[usize::from(id.0)].domain.clone())).collect();
            let count = 9 - there.len();
            let more = place_more(&**policy, &targets, &rules, set, count, &there);
            let all: BTreeSet<TargetId> = there.iter().map(|(id, _)| *id).chain(more).collect();
            assert_eq!(all.len(), 9, "all on different targets");
            assert!(per_rack(&targets, all).values().all(|&chunks| chunks == 3));
        }
    }
}

#[test]
fn too_few_targets_leave_positions_open() {
    for policy in policies() {
        let placed = place(&*policy, &alone(&[99, 99]), &rules(4, 1, None), SetId(7));
        assert_eq!((placed.len(), placed.iter().flatten().count()), (4, 2));
        assert_eq!(place(&*policy, &[], &rules(3, 1, None), SetId(1)), [None; 3]);
    }
}

#[test]
fn a_level_decides_what_a_domain_is() {
    let targets: Vec<TargetCandidate> =
        (0..8).map(|n| candidate(n, 100, Some(&format!("row{}/host{}", n / 4, n / 2)))).collect();
    let hosts =
        |placed: Vec<Option<TargetId>>| -> BTreeSet<u16> { placed.iter().flatten().map(|id| id.0 / 2).collect() };
    for (policy, set) in policies().iter().flat_map(|policy| (0..50).map(move |set| (policy, SetId(set)))) {
        // Four hosts, so one chunk on each; two rows, so two on each.
        assert_eq!(hosts(place(&**policy, &targets, &rules(4, 1, Some(2)), set)).len(), 4);
        let by_row = place(&**policy, &targets, &rules(4, 1, Some(1)), set);
        assert_eq!(by_row.iter().flatten().filter(|id| id.0 < 4).count(), 2, "{by_row:?}");
    }
}

/// Ten thousand targets in 250 racks: what is looked at grows like sorting does, so that this test
/// ends at once.
#[test]
fn ten_thousand_targets_are_no_trouble() {
    let targets: Vec<TargetCandidate> =
        (0..10_000).map(|n| candidate(n, 1000, Some(&format!("rack{}/host{}", n % 250, n % 2500)))).collect();
    for (policy, set) in policies().iter().flat_map(|policy| (0..20).map(move |set| (policy, SetId(set)))) {
        let placed = place(&**policy, &targets, &rules(24, 2, Some(1)), set);
        let chosen: BTreeSet<TargetId> = placed.into_iter().flatten().collect();
        assert_eq!(chosen.len(), 24);
        assert!(per_rack(&targets, chosen).into_values().all(|chunks| chunks <= 2));
    }
}

proptest! {
    /// Any targets, any rules: as many as can be, distinct, all usable, the rule as good as it can
    /// be, and the same answer again.
    #[test]
    fn the_rules_hold_whatever_there_is(
        targets in proptest::collection::vec((0u64..30, 0usize..6, 0usize..5), 0..40),
        width in 1usize..20, spare in 0usize..5, set in any::<u64>().prop_map(SetId), seed in any::<u64>(),
        name in 0usize..5, total in 0u64..60,
    ) {
        let states = [TargetState::Up, TargetState::Up, TargetState::Up, TargetState::Out, TargetState::Draining];
        let targets: Vec<TargetCandidate> = targets.into_iter().zip(0..).map(|((free, rack, state), id)| {
            // One rack is none: its targets are on their own.
            let rack = (rack > 0).then(|| format!("rack{rack}"));
            TargetCandidate { state: states[state], total, ..candidate(id, free, rack.as_deref()) }
        }).collect();
        let policy = Placement { policy: PolicyName::ALL[name], ..Placement::default() }.policy(seed, 64 << 20);
        let policy = &*policy;
        let rules = rules(width, spare, None);
        let placed = place(policy, &targets, &rules, set);
        prop_assert_eq!(&place(policy, &targets, &rules, set), &placed);
        prop_assert_eq!(placed.len(), width);
        let usable: Vec<_> = targets.iter().filter(|t| t.state == TargetState::Up && t.free >= 10).collect();
        let chosen: BTreeSet<TargetId> = placed.iter().flatten().copied().collect();
        prop_assert_eq!(chosen.len(), placed.iter().flatten().count());
        prop_assert_eq!(chosen.len(), width.min(usable.len()));
        prop_assert!(chosen.iter().all(|id| usable.iter().any(|target| target.id == *id)));
        let mut sizes = BTreeMap::new();
        for target in usable {
            let key = target.domain.as_ref().map_or_else(|| target.id.0.to_string(), ToString::to_string);
            let (all, taken) = sizes.entry(key).or_insert((0usize, 0usize));
            *all += 1;
            *taken += usize::from(chosen.contains(&target.id));
        }
        let fullest = sizes.values().map(|(_, taken)| *taken).max().unwrap_or(0);
        let fits = |limit: usize| sizes.values().map(|(all, _)| (*all).min(limit)).sum::<usize>() >= chosen.len();
        let least = (0..).find(|&limit| fits(limit)).unwrap();
        prop_assert!(fullest <= least.max(spare), "{} where {} is possible", fullest, least);
    }
}

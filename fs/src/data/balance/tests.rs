use super::*;
use crate::data::sets::Placed;
use crate::testing::{Lab, make};
use crate::{Error, FileSystem, OpenOptions, Result};
use plan::placement::PolicyName;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use volume::Control;
use volume::target::Target;

/// Servers that say how busy they are: two of their eight targets have a long queue.
#[derive(Debug, Default)]
struct Servers {
    reports: AtomicU64,
    gauges: Mutex<BTreeMap<PathBuf, Gauge>>,
}

const SLOW: [&str; 2] = ["/disk0", "/disk5"];

impl Places for Servers {
    fn format(&self, _: &Path) -> Result<Arc<dyn Target>> {
        Err(Error::Invalid("there are no places".into()))
    }

    fn open(&self, _: &Path) -> Result<Arc<dyn Target>> {
        Err(Error::Invalid("there are no places".into()))
    }

    fn full(&self, place: &Path) -> Result<PathBuf> {
        Ok(place.to_path_buf())
    }

    fn gauge(&self, place: &Path) -> Option<Gauge> {
        let gauge = lock(&self.gauges).entry(place.to_path_buf()).or_default().clone();
        gauge.set(self.observed(place));
        Some(gauge)
    }
}

impl Servers {
    fn observed(&self, place: &Path) -> Option<Observed> {
        let number = self.reports.load(Ordering::SeqCst);
        let (queue, speed) = if SLOW.iter().any(|slow| Path::new(slow) == place) { (6.0, 10) } else { (0.2, 40) };
        let observed =
            Observed { number, idle: 0.9, accesses: number * speed, queue, seconds: 1.0, ..Observed::default() };
        (number > 0).then_some(observed)
    }

    /// All report once more.
    fn report(&self) {
        self.reports.fetch_add(1, Ordering::SeqCst);
        lock(&self.gauges).iter().for_each(|(place, gauge)| gauge.set(self.observed(place)));
    }
}

/// A volume on targets whose servers report; on eight, if it is not said.
fn volume(code: &str, policy: PolicyName) -> (Arc<FileSystem>, Arc<Servers>, Lab) {
    volume_on(8, code, policy)
}

fn volume_on(targets: usize, code: &str, policy: PolicyName) -> (Arc<FileSystem>, Arc<Servers>, Lab) {
    let (lab, servers) =
        (Lab::at(code, targets, |number| format!("/disk{number}").into()), Arc::new(Servers::default()));
    let fs = lab.open_as(OpenOptions { places: servers.clone(), ..OpenOptions::default() });
    fs.set_placement(Placement { policy, ..Placement::default() }).unwrap();
    (fs, servers, lab)
}

fn report(fs: &FileSystem, servers: &Servers) {
    servers.report();
    fs.observe_loads();
}

#[test]
fn new_sets_avoid_busy_targets_and_starve_none() {
    let (fs, servers, _lab) = volume("rs:2+2", PolicyName::Adaptive);
    for number in 0..8 {
        let rack = if number < 4 { "left" } else { "right" };
        fs.set_domain(Path::new(&format!("/disk{number}")), Some(rack.parse().unwrap())).unwrap();
    }
    let placed = Placed(fs.engine().unwrap().meta.clone());
    let mut counts = [0; 8];
    for number in 0..200 {
        if number % 5 == 0 {
            report(&fs, &servers);
        }
        let (_, record) = placed.place(&fs.store, &[], &[], |_| ()).unwrap();
        let ids: Vec<usize> = record.places.iter().flatten().map(|id| usize::from(id.0)).collect();
        assert_eq!(ids.iter().filter(|&&id| id < 4).count(), 2, "no rack has more than two: {ids:?}");
        ids.into_iter().for_each(|id| counts[id] += 1);
    }
    for (slow, others) in [(counts[0], &counts[1..4]), (counts[5], &[counts[4], counts[6], counts[7]])] {
        assert!(slow >= 10 && others.iter().all(|&count| count > 2 * slow), "{counts:?}");
    }
    fs.close_volume().unwrap();
}

/// The second set of a writer goes beside its first one, and not to the busy targets because
/// they are the ones without a chunk.
#[test]
fn the_sets_of_one_writer_avoid_busy_targets_too() {
    let (fs, servers, _lab) = volume("rs:2+1", PolicyName::Adaptive);
    let placed = Placed(fs.engine().unwrap().meta.clone());
    (0..3).for_each(|_| report(&fs, &servers));
    let mut beside = Vec::new();
    for _ in 0..4 {
        let places = placed.place(&fs.store, &[], &beside, |_| ()).unwrap().1.places;
        beside.push(places);
    }
    let on = |id: u16| beside.iter().flatten().filter(|place| **place == Some(TargetId(id))).count();
    let (busy, all) = (on(0) + on(5), (0..8).map(on).sum::<usize>());
    assert!(all == 12 && busy <= 1, "{beside:?}");
    fs.close_volume().unwrap();
}

#[test]
fn other_policies_look_at_no_load() {
    let (fs, servers, _lab) = volume("rs:2+1", PolicyName::RoundRobin);
    let placed = Placed(fs.engine().unwrap().meta.clone());
    (0..3).for_each(|_| report(&fs, &servers));
    let mut counts = [0; 8];
    for _ in 0..40 {
        let places = placed.place(&fs.store, &[], &[], |_| ()).unwrap().1.places;
        places.into_iter().flatten().for_each(|id| counts[usize::from(id.0)] += 1);
    }
    assert!(counts.iter().all(|&count| (14..=16).contains(&count)), "{counts:?}");
    // What is known is shown all the same.
    let status = fs.status().unwrap();
    assert!(status.targets[0].load.unwrap().queue > 5.0 && status.targets[1].load.unwrap().queue < 1.0);
    assert_eq!(status.targets[0].score, None);
    fs.close_volume().unwrap();
}

#[test]
fn rebuilt_chunks_go_where_new_ones_would() {
    let (fs, servers, _lab) = volume("rs:2+1", PolicyName::RoundRobin);
    for number in 0..64 {
        fs.write(make(&fs, &format!("file{number}")), 0, &[7; 100_000]).unwrap();
        fs.sync_all().unwrap();
        fs.set_placement(fs.placement()).unwrap();
    }
    fs.set_placement(Placement { policy: PolicyName::Adaptive, ..Placement::default() }).unwrap();
    (0..3).for_each(|_| report(&fs, &servers));
    let chunks = |fs: &FileSystem| fs.status().unwrap().targets.iter().map(|target| target.chunks).collect::<Vec<_>>();
    let before = chunks(&fs);
    let done = fs.drain_target(Path::new("/disk7"), &Control::default()).unwrap();
    assert!(done.chunks >= 20, "{done:?}");
    let more: Vec<usize> = chunks(&fs).iter().zip(&before).map(|(now, before)| now - before).collect();
    let slow = more[0].max(more[5]);
    assert!([1, 2, 3, 4, 6].into_iter().all(|id| more[id] > slow && more[id] > 0), "{more:?}");
    fs.close_volume().unwrap();
}

#[test]
fn what_is_explained_is_where_it_would_go_and_where_it_is() {
    let (fs, servers, _lab) = volume("rs:2+1", PolicyName::Adaptive);
    (0..3).for_each(|_| report(&fs, &servers));
    let next = fs.explain_set(None).unwrap();
    assert!(next.there.is_none() && next.loads.len() == 8 && next.now.targets.len() == 8);
    let score = |id: u16| next.now.targets.iter().find(|target| target.id.0 == id).unwrap().score.unwrap().score;
    assert!(score(0) < score(1) && score(5) < score(6));
    let (set, record) = Placed(fs.engine().unwrap().meta.clone()).place(&fs.store, &[], &[], |_| ()).unwrap();
    let there = fs.explain_set(Some(set)).unwrap();
    assert_eq!(there.there, Some(record.places));
    fs.close_volume().unwrap();
}

/// Of many targets, only those that are chosen are looked at.
#[test]
fn a_set_among_many_targets_avoids_what_takes_none() {
    let (fs, servers, _lab) = volume_on(160, "rs:2+2", PolicyName::Adaptive);
    let apart =
        |others: &[TargetId]| fs.store.balance.place_apart(SetId(7), others, None, |id| fs.store.takes_new_chunks(id));
    assert_eq!(apart(&[]), None, "nothing is known yet");
    report(&fs, &servers);
    let first: Vec<TargetId> = apart(&[]).unwrap().into_iter().flatten().collect();
    fs.store.balance.given_back(&first);
    assert!(first.len() == 4 && apart(&first).unwrap().iter().flatten().all(|id| !first.contains(id)));
    let closed = first[0];
    fs.store.close_target(closed, true);
    let placed = Placed(fs.engine().unwrap().meta.clone());
    for _ in 0..100 {
        let (_, one) = placed.place(&fs.store, &first[1..2], &[], |_| ()).unwrap();
        let beside = std::slice::from_ref(&one.places);
        let (_, other) = placed.place(&fs.store, &[], beside, |_| ()).unwrap();
        assert!(!one.places.contains(&Some(first[1])), "{one:?}");
        for record in [&one, &other] {
            assert!(record.places.iter().all(|id| id.is_some_and(|id| id != closed)), "{record:?}");
        }
        assert!(one.places.iter().all(|id| !other.places.contains(id)), "{one:?} {other:?}");
    }
    fs.set_placement(Placement { policy: PolicyName::Random, ..Placement::default() }).unwrap();
    report(&fs, &servers);
    assert_eq!(apart(&[]), None);
    fs.close_volume().unwrap();
}

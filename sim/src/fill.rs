//! Places all sets of the volume.

use crate::chooser::Chooser;
use crate::cluster::Cluster;
use crate::config::Config;
use crate::table::{Table, pack};
use crate::watch::{Phase, Watch};
use serde::Serialize;
use std::sync::Mutex;

/// How many looks a placer takes at how full all stores are.
const LOOKS: usize = 64;
/// Sets between two messages of progress.
const STEP: usize = 1024;

/// How full the stores are.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Filled {
    /// Chunks that are placed.
    pub chunks: u64,
    /// Chunks without a target: for want of space, or of stores.
    pub unplaced: u64,
    /// Sets of which a domain has more than m chunks, or a store more than one.
    pub against_the_rule: u64,
    /// The used part of the emptiest store, of all, and of the fullest.
    pub used: [f64; 3],
}

/// Places all sets, on so many threads, and counts what each store has. Each placer knows its part
/// of each store only, so the result does not depend on the threads.
pub fn fill(config: &Config, cluster: &mut Cluster, threads: usize, watch: &Watch) -> Table {
    let volume = &config.volume;
    let mut table = Table::new(volume.sets as usize, volume.width());
    let placers = volume.placers as usize;
    watch.begin(Phase::Fill, volume.sets);
    let parts: Mutex<Vec<_>> = Mutex::new(table.parts(placers).into_iter().enumerate().collect());
    let these = &*cluster;
    let work = || {
        // The guard is gone before the work begins.
        let next = || parts.lock().expect("no thread panics with it").pop();
        while let Some((number, (first, places))) = next() {
            let seed = config.seed ^ (number as u64) << 32;
            let mut chooser = Chooser::new(volume, these, seed, placers as u64);
            let sets = places.len() / volume.width();
            let each = sets.div_ceil(LOOKS).max(1);
            for (at, places) in places.chunks_mut(volume.width()).enumerate() {
                if at % each == each - 1 {
                    chooser.handle_interval();
                }
                pack(&chooser.place(these, plan::SetId(first.0 + at as u64)), places);
                if at % STEP == STEP - 1 {
                    watch.add(STEP as u64);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        (1..threads.clamp(1, placers)).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    cluster.count(&table);
    table
}

/// How full the stores are, and whether the rule holds.
pub fn look(config: &Config, cluster: &Cluster, table: &Table) -> Filled {
    let unplaced = table.unplaced();
    let chunks = (table.sets() * table.width()) as u64 - unplaced;
    Filled { chunks, unplaced, against_the_rule: against_the_rule(config, cluster, table), used: cluster.fill() }
}

/// Sets of which a domain has more than it may, or a store more than one. Where there are too few
/// domains, more than m are allowed: as few as can be.
fn against_the_rule(config: &Config, cluster: &Cluster, table: &Table) -> u64 {
    let volume = &config.volume;
    let mut names: Vec<&str> = cluster.stores.iter().map(|store| store.domain.at(Some(volume.domain_level))).collect();
    let all = names.clone();
    names.sort_unstable();
    names.dedup();
    let domains: Vec<u32> =
        all.iter().map(|name| names.binary_search(name).expect("it is among them") as u32).collect();
    let candidates = cluster.candidates().into_iter();
    let (width, spare) = (volume.width(), volume.m as usize);
    let most = plan::placement::least_limit_of(candidates, Some(volume.domain_level), width, spare.max(1));
    let (mut counts, mut places, mut against) = (vec![0usize; names.len()], Vec::new(), 0);
    for set in 0..table.sets() {
        table.read(set, &mut places);
        let mut bad = false;
        for (at, id) in places.iter().enumerate() {
            let Some(id) = id else { continue };
            let count = &mut counts[domains[usize::from(id.0)] as usize];
            *count += 1;
            bad |= *count > most || places[..at].contains(&Some(*id));
        }
        places.iter().flatten().for_each(|id| counts[domains[usize::from(id.0)] as usize] = 0);
        against += u64::from(bad);
    }
    against
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str, threads: usize) -> (Config, Cluster, Table) {
        let config = Config::parse(text).unwrap();
        let mut cluster = Cluster::new(&config);
        let table = fill(&config, &mut cluster, threads, &Watch::default());
        (config, cluster, table)
    }

    #[test]
    fn every_policy_fills_by_the_rule() {
        for policy in ["adaptive", "random", "round-robin", "crush", "prime"] {
            let (config, cluster, table) = filled(&format!("[volume]\nsets = 2000\npolicy = {policy:?}"), 1);
            let found = look(&config, &cluster, &table);
            assert_eq!((found.chunks, found.unplaced, found.against_the_rule), (16_000, 0, 0), "{policy}");
            assert_eq!(cluster.stores.iter().map(|store| store.chunks).sum::<u64>(), 16_000);
        }
    }

    #[test]
    fn adaptive_placement_fills_mixed_disks_by_ratio() {
        let text = "[volume]\nsets = 20000\n[cluster]\ncabinets = 16\nstores = 4\ndisk = \"1T\"\n\
                    [[class]]\npart = 0.5\ndisk = \"2T\"";
        let (config, cluster, table) = filled(text, 2);
        let [least, mean, most] = look(&config, &cluster, &table).used;
        assert!(least > 0.97 * mean && most < 1.03 * mean, "{least} {mean} {most}");
    }

    #[test]
    fn threads_change_nothing() {
        let text = "[volume]\nsets = 3001\nplacers = 5";
        let [one, three, many] = [1, 3, 64].map(|threads| filled(text, threads).2);
        assert!(one == three && one == many);
        assert!(one != filled(&format!("seed = 9\n{text}"), 1).2);
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let (config, cluster, table) = filled("[volume]\nsets = 1000\n[cluster]\ndisk = \"8GiB\"", 2);
        let found = look(&config, &cluster, &table);
        // 32 times 128 chunks fit.
        assert!(found.unplaced >= 8000 - 4096 && found.unplaced < 4200, "{found:?}");
        assert_eq!(found.against_the_rule, 0);
    }
}

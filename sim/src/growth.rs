//! Rebalancing after stores were added, or are to be emptied: the real decisions, over all sets.

use crate::cluster::Cluster;
use crate::config::{Config, Growth};
use crate::table::Table;
use crate::watch::{Phase, Watch};
use plan::placement::rebalance::{Balance, Move, Outlook, SetPlaces};
use plan::{SetId, TargetId};
use serde::Serialize;

/// What a step of growth moved.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Grown {
    /// What was done, in words.
    pub what: String,
    /// Chunks that moved.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The fewest bytes that could have been moved: what must go, and what is above its goal.
    pub least_bytes: u64,
    /// Chunks that must go and for which no store has a place.
    pub stuck: u64,
    /// In a torus: the mean hops of a block between its Master and its store, before and after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hops: Option<[f64; 2]>,
    /// Seconds that the moves take at the limit.
    pub seconds_at_limit: f64,
    /// Seconds that the busiest store needs, were there no limit.
    pub seconds_of_busiest: f64,
    /// The used part of the emptiest store, of all, and of the fullest: before.
    pub before: [f64; 3],
    /// The same afterwards.
    pub after: [f64; 3],
}

/// Carries out a step: changes the stores, plans all moves, and makes them.
///
/// # Errors
/// When the step cannot be: no store is in the domain that is to be emptied.
pub fn grow(
    config: &Config,
    step: &Growth,
    cluster: &mut Cluster,
    table: &mut Table,
    watch: &Watch,
) -> Result<Grown, String> {
    let volume = &config.volume;
    cluster.grow(config, step)?;
    // Most steps end after some passes, and nobody knows how many.
    watch.begin(Phase::Growth, 0);
    let before = cluster.fill();
    let hops_before = crate::hops::hops_of(cluster, table);
    let (mut chunks, mut moved) = (0, vec![0u64; cluster.stores.len()]);
    let outlook = rebalance(
        config,
        cluster,
        table,
        |_| false,
        |set| {
            watch.add(set);
        },
        |made| {
            for id in [made.from, made.to] {
                moved[usize::from(id.0)] = moved[usize::from(id.0)].saturating_add(made.bytes);
            }
            chunks += 1;
        },
    );
    cluster.count(table);
    let bytes = u64::saturating_mul(chunks, volume.chunk.0);
    let speed = |id: usize| cluster.stores[id].disk.min(cluster.stores[id].link);
    let busiest = moved.iter().enumerate().map(|(id, bytes)| *bytes as f64 / speed(id)).fold(0.0, f64::max);
    Ok(Grown {
        what: describe(step),
        chunks,
        bytes,
        least_bytes: outlook.must.saturating_add(outlook.above),
        stuck: outlook.stuck,
        hops: hops_before.zip(crate::hops::hops_of(cluster, table)).map(|(before, after)| [before, after]),
        seconds_at_limit: bytes as f64 / (step.limit_mb_per_second * 1e6),
        seconds_of_busiest: busiest,
        before,
        after: cluster.fill(),
    })
}

/// Plans all moves, and makes them in the table. Sets that are `away` are counted and stay. Returns
/// what there was to do.
pub fn rebalance(
    config: &Config,
    cluster: &Cluster,
    table: &mut Table,
    away: impl Fn(usize) -> bool,
    mut looked: impl FnMut(u64),
    mut made: impl FnMut(&Move),
) -> Outlook {
    let volume = &config.volume;
    let (chunk_bytes, spare) = (volume.chunk.0, volume.m as usize);
    let near = cluster.places.clone().filter(|_| crate::near::looks_at_hops(volume.policy));
    let mut balance = Balance::new(&cluster.candidates(), Some(volume.domain_level), 0).near(near);
    let mut places: Vec<Option<TargetId>> = Vec::with_capacity(volume.width());
    for set in 0..table.sets() {
        table.read(set, &mut places);
        balance.count(&SetPlaces { set: SetId(set as u64), chunk_bytes, spare, places: &places });
    }
    balance.begin();
    let mut moves = Vec::new();
    loop {
        for set in (0..table.sets()).filter(|set| !away(*set)) {
            table.read(set, &mut places);
            balance.look(&SetPlaces { set: SetId(set as u64), chunk_bytes, spare, places: &places }, &mut moves);
            for step in moves.drain(..) {
                table.put(set, step.position.index(), Some(step.to));
                made(&step);
            }
            if set % LOOKED == LOOKED - 1 {
                looked(LOOKED as u64);
            }
        }
        if !balance.next_pass() {
            return balance.outlook();
        }
    }
}

/// Sets between two messages of progress.
const LOOKED: usize = 1 << 16;

fn describe(step: &Growth) -> String {
    match &step.drain {
        Some(domain) => format!("drain {domain}"),
        None => format!("add {}", plan::words::count(step.add_stores as usize, "store")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fill;
    use plan::membership::TargetState;

    fn grown(text: &str) -> (Vec<Grown>, Config, Cluster, Table) {
        let config = Config::parse(text).unwrap();
        let (mut cluster, watch) = (Cluster::new(&config), Watch::default());
        let mut table = fill::fill(&config, &mut cluster, 1, &watch);
        let step = |step| grow(&config, step, &mut cluster, &mut table, &watch).unwrap();
        let all = config.growth.iter().map(step).collect();
        (all, config, cluster, table)
    }

    /// The issue: adding one to twenty, and taking one away, moves within a tenth of the least.
    #[test]
    fn one_store_more_or_less_moves_little() {
        let text = "[cluster]\ncabinets = 5\nstores = 4\n[volume]\nk = 4\n[[growth]]\nadd_stores = 1\nspread = true\n\
                    [[growth]]\ndrain = \"net0/row0/cabinet0/new20\"\n";
        let (steps, config, cluster, table) = grown(text);
        for step in &steps {
            assert!(step.chunks > 5000 && step.bytes as f64 <= 1.1 * step.least_bytes as f64, "{step:?}");
            assert_eq!(step.stuck, 0);
            assert!(step.after[2] < 1.02 * step.after[1], "{step:?}");
        }
        assert_eq!((steps[0].what.as_str(), cluster.stores[20].chunks), ("add 1 store", 0));
        assert_eq!(cluster.stores[20].state, TargetState::Draining);
        assert_eq!(fill::look(&config, &cluster, &table).against_the_rule, 0);
    }

    #[test]
    fn a_cabinet_is_emptied() {
        let (steps, config, cluster, table) =
            grown("[cluster]\ncabinets = 6\n[[growth]]\ndrain = \"net0/row0/cabinet2\"");
        let inside: u64 = cluster.stores.iter().filter(|store| store.cabinet == 2).map(|store| store.chunks).sum();
        assert_eq!((inside, steps[0].stuck, fill::look(&config, &cluster, &table).against_the_rule), (0, 0, 0));
        assert!(steps[0].seconds_at_limit > steps[0].seconds_of_busiest);
    }
}

//! The virtual stores: where they stand, how large and how fast they are, and what they have.

use crate::config::{Bytes, Class, Config, Growth};
use crate::table::Table;
use plan::membership::TargetState;
use plan::placement::{Rules, TargetCandidate};
use plan::topology::Places;
use plan::{Domain, TargetId};
use std::sync::Arc;

/// A store with its one disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Store {
    /// Where it stands: sub-network, row, cabinet and store.
    pub domain: Domain,
    /// Its cabinet, as a number.
    pub cabinet: u32,
    /// The capacity in bytes.
    pub total: u64,
    /// Bytes a second of the disk, the link each way, and the processors.
    pub disk: f64,
    /// The same of the link.
    pub link: f64,
    /// The same of the processors.
    pub processor: f64,
    /// Chunks that it has.
    pub chunks: u64,
    /// How it is.
    pub state: TargetState,
}

/// All stores. The number of a target is its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// The stores.
    pub stores: Vec<Store>,
    /// Cabinets.
    pub cabinets: u32,
    /// Where all stores are in a torus, also those that come later.
    pub places: Option<Arc<Places>>,
    chunk_bytes: u64,
    rules: Rules,
    turns: Turns,
}

const MB: f64 = 1e6;

impl Cluster {
    /// As a configuration has it, without chunks.
    pub fn new(config: &Config) -> Self {
        let volume = &config.volume;
        let rules = Rules {
            width: volume.width(),
            spare: volume.m as usize,
            domain_level: Some(volume.domain_level),
            need: volume.chunk.0,
        };
        let torus = config.cluster.torus.as_deref();
        let places = torus.and_then(|sizes| crate::torus::places(sizes, config.most_stores()));
        let mut cluster = Self {
            stores: Vec::new(),
            cabinets: 0,
            places: places.map(Arc::new),
            chunk_bytes: volume.chunk.0,
            rules,
            turns: Turns::default(),
        };
        let of = &config.cluster;
        for (network, row) in (0..of.networks).flat_map(|network| (0..of.rows).map(move |row| (network, row))) {
            for cabinet in 0..of.cabinets {
                let path = format!("net{network}/row{row}/cabinet{cabinet}");
                (0..of.stores)
                    .for_each(|store| cluster.add(config, &format!("{path}/store{store}"), cluster.cabinets, None));
                cluster.cabinets += 1;
            }
        }
        cluster
    }

    /// Puts a store somewhere.
    fn add(&mut self, config: &Config, path: &str, cabinet: u32, disk: Option<Bytes>) {
        let class = self.turns.next(config);
        let of = &config.cluster;
        let own = |value: fn(&Class) -> Option<f64>, usual: f64| class.and_then(value).unwrap_or(usual) * MB;
        let usual = class.and_then(|class| class.disk).unwrap_or(of.disk);
        self.stores.push(Store {
            domain: path.parse().expect("a path of four short names"),
            cabinet,
            total: disk.unwrap_or(usual).0,
            disk: own(|class| class.disk_mb_per_second, of.disk_mb_per_second),
            link: own(|class| class.link_mb_per_second, of.link_mb_per_second),
            processor: own(|class| class.processor_mb_per_second, of.processor_mb_per_second),
            chunks: 0,
            state: TargetState::Up,
        });
    }

    /// Adds stores, or says which are to be emptied.
    ///
    /// # Errors
    /// When no store is in the domain, or too few are left.
    pub fn grow(&mut self, config: &Config, step: &Growth) -> Result<(), String> {
        if let Some(domain) = &step.drain {
            let inside = |store: &Store| {
                store
                    .domain
                    .to_string()
                    .strip_prefix(&**domain)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            let leaving = self.stores.iter_mut().filter(|store| store.state == TargetState::Up && inside(store));
            let count = leaving.map(|store| store.state = TargetState::Draining).count();
            if count == 0 {
                return Err(format!("growth.drain: no store is in {domain:?}; domains are such as net0/row0/cabinet1"));
            }
            let left = self.stores.iter().filter(|store| store.state == TargetState::Up).count();
            if left < self.rules.width {
                return Err(format!("growth.drain: {left} stores are left, and a set has {} chunks", self.rules.width));
            }
            return Ok(());
        }
        let known = self.cabinets;
        let of = &config.cluster;
        for added in 0..step.add_stores {
            let number = self.stores.len();
            if step.spread {
                let cabinet = added % known;
                let beside = self.stores.iter().find(|store| store.cabinet == cabinet).expect("no cabinet is empty");
                let path = format!("{}/new{number}", beside.domain.at(Some(3)));
                self.add(config, &path, cabinet, step.disk);
            } else {
                let cabinet = known + added / of.stores;
                self.cabinets = self.cabinets.max(cabinet + 1);
                let (network, row) = (of.networks - 1, of.rows - 1);
                self.add(config, &format!("net{network}/row{row}/new{cabinet}/store{number}"), cabinet, step.disk);
            }
        }
        Ok(())
    }

    /// The rules of the volume's sets.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Counts what each store has.
    pub fn count(&mut self, table: &Table) {
        let counts = table.counts(self.stores.len());
        self.stores.iter_mut().zip(counts).for_each(|(store, count)| store.chunks = count);
    }

    /// Bytes that a store has.
    pub fn used(&self, store: &Store) -> u64 {
        store.chunks.saturating_mul(self.chunk_bytes)
    }

    /// The length of a chunk.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    /// The stores as placement sees them.
    pub fn candidates(&self) -> Vec<TargetCandidate> {
        let candidate = |(id, store): (u16, &Store)| TargetCandidate {
            id: TargetId(id),
            free: store.total.saturating_sub(self.used(store)),
            total: store.total,
            domain: Some(store.domain.clone()),
            state: store.state,
            load: None,
        };
        (0..).zip(&self.stores).map(candidate).collect()
    }

    /// How full the stores that take chunks are, as parts of their capacity: the emptiest, all
    /// together, and the fullest.
    pub fn fill(&self) -> [f64; 3] {
        let up = || self.stores.iter().filter(|store| store.state == TargetState::Up);
        let part = |store: &Store| self.used(store) as f64 / store.total as f64;
        let sum = |of: &dyn Fn(&Store) -> u64| up().map(|store| of(store) as f64).sum::<f64>();
        let mean = sum(&|store| self.used(store)) / sum(&|store| store.total).max(1.0);
        [up().map(part).fold(f64::INFINITY, f64::min), mean, up().map(part).fold(0.0, f64::max)]
    }
}

/// Gives classes in turn, each its part, spread as evenly as can be (smooth weighted round-robin).
#[derive(Clone, Debug, Default, PartialEq)]
struct Turns(Vec<f64>);

impl Turns {
    /// The class of the next store, if it has one.
    fn next<'a>(&mut self, config: &'a Config) -> Option<&'a Class> {
        let usual = 1.0 - config.class.iter().map(|class| class.part).sum::<f64>();
        let parts = config.class.iter().map(|class| class.part).chain([usual]);
        self.0.resize(config.class.len() + 1, 0.0);
        self.0.iter_mut().zip(parts).for_each(|(credit, part)| *credit += part);
        let best = (0..self.0.len()).max_by(|&a, &b| self.0[a].total_cmp(&self.0[b])).unwrap_or(0);
        self.0[best] -= 1.0;
        config.class.get(best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(text: &str) -> (Config, Cluster) {
        let config = Config::parse(text).unwrap();
        let cluster = Cluster::new(&config);
        (config, cluster)
    }

    #[test]
    fn stores_stand_in_cabinets() {
        let (_, cluster) = cluster("[cluster]\nnetworks = 2\nrows = 2\ncabinets = 3\nstores = 4\n");
        assert_eq!((cluster.stores.len(), cluster.cabinets), (48, 12));
        assert_eq!(cluster.stores[47].domain.to_string(), "net1/row1/cabinet2/store3");
        assert_eq!((cluster.stores[47].cabinet, cluster.stores[4].cabinet), (11, 1));
    }

    #[test]
    fn classes_are_spread() {
        let (_, cluster) =
            cluster("[[class]]\npart = 0.25\ndisk = \"8T\"\n[[class]]\npart = 0.25\ndisk_mb_per_second = 9.0\n");
        let small = cluster.stores.iter().filter(|store| store.total != 16_000_000_000_000).count();
        let slow = cluster.stores.iter().filter(|store| store.disk == 9e6).count();
        assert_eq!((small, slow), (8, 8));
        assert!(cluster.stores.chunks(8).all(|cabinet| cabinet.iter().any(|store| store.disk == 9e6)));
    }

    #[test]
    fn growth_adds_and_drains() {
        let (config, mut cluster) = cluster("");
        let add = |count, spread| Growth { add_stores: count, spread, ..Growth::default() };
        cluster.grow(&config, &add(9, false)).unwrap();
        assert_eq!((cluster.stores.len(), cluster.cabinets), (41, 6));
        cluster.grow(&config, &add(3, true)).unwrap();
        assert_eq!((cluster.stores[42].cabinet, cluster.cabinets), (1, 6));
        assert!(cluster.stores[42].domain.to_string().starts_with("net0/row0/cabinet1/"));
        let drain = |of: &str| Growth { drain: Some(of.into()), ..Growth::default() };
        assert!(cluster.grow(&config, &drain("net0/row0/cabinet9")).unwrap_err().contains("cabinet9"));
        // Not those of cabinet10 to 19.
        assert!(cluster.grow(&config, &drain("net0/row0/cab")).is_err());
        cluster.grow(&config, &drain("net0/row0/cabinet1")).unwrap();
        assert_eq!(cluster.stores.iter().filter(|store| store.state == TargetState::Draining).count(), 9);
        assert!(cluster.grow(&config, &drain("net0")).unwrap_err().contains("0 stores are left"));
    }
}

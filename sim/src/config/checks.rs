//! Which values a configuration can have.

use super::{Cluster, Config, Failures, MAX_STORES, Volume, Workload};
use crate::check::{Checked, at_least, between, whole};

/// The most chunks: two bytes each.
const MAX_CHUNKS: u64 = 200_000_000;
/// The most sets: when many stores are lost at once, each takes some hundred bytes.
const MAX_SETS: u64 = 50_000_000;
/// The longest chunk: the bytes of all are a u64.
const MAX_CHUNK_BYTES: u64 = 1 << 36;
/// The widest set: lost positions are the bits of a number.
const MAX_WIDTH: u64 = 64;
/// The most failures in a run: more have no meaning, and take for ever.
const MAX_FAILURES: f64 = 1e6;

impl Config {
    pub(super) fn check(&self) -> Checked {
        self.check_cluster()?;
        let Volume { k, m, sets, chunk, domain_level, scoring, placers, .. } = &self.volume;
        whole("volume.k", (*k).into(), 1, MAX_WIDTH)?;
        whole("volume.m", (*m).into(), 0, MAX_WIDTH)?;
        let width = u64::from(k + m);
        whole("the width k + m", width, 1, MAX_WIDTH)?;
        whole("volume.sets", *sets, 1, MAX_SETS.min(MAX_CHUNKS / width))?;
        whole("volume.chunk", chunk.0, 1 << 12, MAX_CHUNK_BYTES)?;
        whole("volume.domain_level", (*domain_level).into(), 1, 4)?;
        whole("volume.placers", (*placers).into(), 1, 64)?;
        if scoring.is_some_and(|scoring| !scoring.is_sound()) {
            return Err("volume.scoring: weights are from 0 to 1000, tau is from 0 to 0.95, a + b is above 0".into());
        }
        if width > self.stores() {
            return Err(format!("a set of {width} chunks does not fit on {} stores", self.stores()));
        }
        self.check_growth()?;
        if let Some(failures) = &self.failures {
            failures.check(self.most_stores())?;
        }
        self.workload.as_ref().map_or(Ok(()), Workload::check)
    }

    fn check_cluster(&self) -> Checked {
        let Cluster { networks, rows, cabinets, stores, disk, .. } = &self.cluster;
        for (name, count) in [("networks", networks), ("rows", rows), ("cabinets", cabinets), ("stores", stores)] {
            whole(&format!("cluster.{name}"), (*count).into(), 1, MAX_STORES)?;
        }
        whole("the number of stores", self.stores(), 1, MAX_STORES)?;
        whole("cluster.disk", disk.0, 1 << 20, 1 << 60)?;
        let cluster = &self.cluster;
        for (name, speed) in [
            ("disk_mb_per_second", cluster.disk_mb_per_second),
            ("link_mb_per_second", cluster.link_mb_per_second),
            ("processor_mb_per_second", cluster.processor_mb_per_second),
        ] {
            between(&format!("cluster.{name}"), speed, 1e-3, 1e9)?;
        }
        if let Some(torus) = &self.cluster.torus {
            crate::torus::parse(torus)?;
            let places = torus.iter().fold(1u64, |all, &size| all.saturating_mul(size.into()));
            if places < self.most_stores() {
                let stores = self.most_stores();
                return Err(format!("cluster.torus has {places} places, and there are {stores} stores with growth"));
            }
        }
        whole("the number of classes", self.class.len() as u64, 0, 100)?;
        for class in &self.class {
            between("class.part", class.part, 0.0, 1.0)?;
            whole("class.disk", class.disk.map_or(1 << 20, |disk| disk.0), 1 << 20, 1 << 60)?;
            let speeds = [class.disk_mb_per_second, class.link_mb_per_second, class.processor_mb_per_second];
            for speed in speeds.into_iter().flatten() {
                between("the MB a second of a class", speed, 1e-3, 1e9)?;
            }
        }
        between("the parts of all classes together", self.class.iter().map(|class| class.part).sum(), 0.0, 1.0)
    }

    fn check_growth(&self) -> Checked {
        whole("the steps of growth", self.growth.len() as u64, 0, 100)?;
        for step in &self.growth {
            if (step.add_stores == 0) == step.drain.is_none() {
                return Err("growth: a step has one of add_stores and drain".into());
            }
            whole("growth.disk", step.disk.map_or(1 << 20, |disk| disk.0), 1 << 20, 1 << 60)?;
            between("growth.limit_mb_per_second", step.limit_mb_per_second, 1e-3, 1e9)?;
        }
        whole("the number of stores after growth", self.most_stores(), 1, MAX_STORES)
    }
}

impl Failures {
    fn check(&self, stores: u64) -> Checked {
        whole("failures.years", self.years.into(), 1, 1000)?;
        whole("failures.runs", self.runs.into(), 1, 10_000)?;
        at_least("failures.server_mtbf_years", self.server_mtbf_years)?;
        at_least("failures.cabinet_mtbf_years", self.cabinet_mtbf_years)?;
        between("failures.replace_hours", self.replace_hours, 0.0, 1e6)?;
        let never = self.rebalance_days == 0.0;
        between("failures.rebalance_days", if never { 1.0 } else { self.rebalance_days }, 0.01, 1e5)?;
        between("failures.cabinet_hours", self.cabinet_hours, 0.0, 1e6)?;
        between("failures.correlated_per_year", self.correlated_per_year, 0.0, 1e4)?;
        whole("failures.correlated_stores", self.correlated_stores.into(), 1, stores)?;
        between("failures.latent_errors_per_tb_year", self.latent_errors_per_tb_year, 0.0, 1e4)?;
        between("failures.scrub_days", self.scrub_days, 0.0, 1e5)?;
        between("failures.detection_minutes", self.detection_minutes, 0.0, 1e6)?;
        between("failures.repair_share", self.repair_share, 1e-6, 1.0)?;
        whole("failures.repairs_at_a_time", self.repairs_at_a_time.into(), 0, 1_000_000)?;
        let rate = |mtbf: f64| if mtbf > 0.0 { stores as f64 / mtbf } else { 0.0 };
        let correlated = self.correlated_per_year * f64::from(self.correlated_stores);
        let in_a_year = rate(self.server_mtbf_years) + rate(self.cabinet_mtbf_years) + correlated;
        if in_a_year * f64::from(self.years) > MAX_FAILURES {
            return Err(format!("failures: more than {MAX_FAILURES} in a run; choose fewer years or rarer failures"));
        }
        Ok(())
    }
}

impl Workload {
    fn check(&self) -> Checked {
        whole("workload.clients", self.clients.into(), 1, 10_000)?;
        whole("workload.writers", self.writers.into(), 1, 1000)?;
        whole("workload.clients times writers", u64::from(self.clients) * u64::from(self.writers), 1, 100_000)?;
        between("workload.second_writer_part", self.second_writer_part, 0.0, 1.0)?;
        whole("workload.record", self.record.0, 1 << 12, 1 << 40)?;
        between("workload.read_share", self.read_share, 0.0, 1.0)?;
        between("workload.seconds", self.seconds, 1.0, 1e5)?;
        between("workload.link_mb_per_second", self.link_mb_per_second, 1e-3, 1e9)?;
        between("workload.report_seconds", self.report_seconds, 0.1, 1e5)?;
        between("workload.speed_spread", self.speed_spread, 0.0, 1.0)?;
        between("workload.speed_seconds", self.speed_seconds, 0.1, 1e6)
    }
}

//! A whole simulation.

use crate::cluster::Cluster;
use crate::config::Config;
use crate::report::Report;
use crate::watch::Watch;
use crate::{fill, growth, hops, writes, years};

/// Parts of the chart that shows how full stores are.
const PARTS: usize = 10;

/// Simulates on so many threads; the result does not depend on them.
///
/// # Errors
/// One line, when a step of growth cannot be.
pub fn run(config: &Config, threads: usize, watch: &Watch) -> Result<Report, String> {
    let mut cluster = Cluster::new(config);
    let stores = cluster.stores.len() as u64;
    let capacity = cluster.stores.iter().fold(0u64, |sum, store| sum.saturating_add(store.total));
    let mut table = fill::fill(config, &mut cluster, threads, watch);
    let filled = fill::look(config, &cluster, &table);
    let torus = hops::hops(config, &cluster);
    let mut steps = Vec::with_capacity(config.growth.len());
    for step in &config.growth {
        steps.push(growth::grow(config, step, &mut cluster, &mut table, watch)?);
    }
    let grown = (!steps.is_empty()).then(|| fill::look(config, &cluster, &table));
    let of_years =
        config.failures.as_ref().map(|failures| years::simulate(config, failures, &cluster, &table, threads, watch));
    let of_writes = config.workload.as_ref().map(|work| writes::simulate(config, work, &cluster, &table, watch));
    Ok(Report {
        version: 1,
        config: config.clone(),
        stores,
        capacity,
        filled,
        torus,
        growth: steps,
        grown,
        used_parts: used_parts(&cluster),
        writes: of_writes,
        years: of_years,
    })
}

fn used_parts(cluster: &Cluster) -> Vec<u64> {
    let [_, _, most] = cluster.fill();
    let mut parts = vec![0; PARTS];
    for store in &cluster.stores {
        let part = cluster.used(store) as f64 / store.total as f64 / most.max(f64::MIN_POSITIVE);
        parts[((part * PARTS as f64) as usize).min(PARTS - 1)] += 1;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EXAMPLE;
    use crate::report::{html, text};
    use plan::placement::PolicyName;

    fn example() -> Config {
        let mut config = Config::parse(EXAMPLE).unwrap();
        config.volume.sets = 2000;
        config.failures.as_mut().unwrap().runs = 3;
        config.workload.as_mut().unwrap().seconds = 5.0;
        config
    }

    /// The same file and seed: the same bytes, however many threads.
    #[test]
    fn a_simulation_is_deterministic() {
        let json = |threads, seed| {
            let config = Config { seed, ..example() };
            run(&config, threads, &Watch::default()).unwrap().json().to_string()
        };
        let first = json(1, 1);
        assert!(first == json(3, 1) && first == json(2, 1));
        assert!(first != json(1, 2));
    }

    #[test]
    fn a_report_is_text_of_100_columns_and_a_page_without_addresses() {
        let report = run(&example(), 2, &Watch::default()).unwrap();
        let text = text(&report);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        for word in ["sets against the rule     0", "the least possible", "loss in a year", "Markov", "written"] {
            assert!(text.contains(word), "{text}");
        }
        let page = html(&report);
        assert!(page.matches("<svg").count() >= 5 && page.ends_with("</html>\n"));
        assert!(!["http:", "https:", "src=", "url(", "NaN", "inf,"].iter().any(|word| page.contains(word)));
    }

    /// The largest values that are allowed: no sum overflows.
    #[test]
    fn the_largest_values_are_simulated() {
        let file = "[cluster]\ndisk = 1152921504606846976\n[volume]\nchunk = \"64GiB\"\nsets = 500\n\
                    [[growth]]\nadd_stores = 1\n[failures]\nruns = 1\nserver_mtbf_years = 0.5\n\
                    correlated_per_year = 5.0\n\
                    correlated_stores = 32\nlatent_errors_per_tb_year = 10000.0\nscrub_days = 100000.0\n\
                    [workload]\nclients = 1\nrecord = \"1T\"\nseconds = 1.0\nspeed_spread = 1.0\n";
        let report = run(&Config::parse(file).unwrap(), 1, &Watch::default()).unwrap();
        assert_eq!(report.capacity, u64::MAX);
        assert!(report.years.as_ref().is_some_and(|years| years.lost_sets > 0) && !text(&report).contains("NaN"));
    }

    /// In each torus, small or with more stores than a policy looks at one by one.
    #[test]
    fn placement_that_looks_at_the_torus_has_fewer_hops() {
        for (torus, cabinets, stores) in [("[4, 4, 4]", 16, 4), ("[8, 8, 4]", 64, 4)] {
            let file = format!(
                "[cluster]\ncabinets = {cabinets}\nstores = {stores}\ntorus = {torus}\n\
                 [volume]\nk = 4\nm = 2\nsets = 400\n[[growth]]\ndrain = \"net0/row0/cabinet1\"\n"
            );
            let report = run(&Config::parse(&file).unwrap(), 1, &Watch::default()).unwrap();
            let hops = report.torus.as_ref().unwrap();
            let of = |policy, looks| hops.policies.iter().find(|it| (it.policy, it.looks) == (policy, looks)).unwrap();
            for policy in [PolicyName::Adaptive, PolicyName::Random] {
                assert!(of(policy, true).writes < 0.95 * of(policy, false).writes, "{hops:?}");
            }
            let crush = of(PolicyName::Crush, false);
            assert!(crush.repairs > 0.5 && crush.repairs < hops.any_two, "it reads the nearest: {hops:?}");
            assert_eq!(report.filled.against_the_rule, 0);
            let [before, after] = report.growth[0].hops.unwrap();
            assert!(before > 0.0 && after > 0.0);
        }
    }

    #[test]
    fn a_step_that_cannot_be_is_told() {
        let config = Config::parse("[volume]\nsets = 10\n[[growth]]\ndrain = \"rack9\"").unwrap();
        let why = run(&config, 1, &Watch::default()).unwrap_err();
        assert!(why.contains("rack9") && !why.contains('\n'), "{why}");
    }
}

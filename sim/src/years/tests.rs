use super::*;
use crate::fill::fill;

fn years(text: &str, threads: usize) -> Years {
    let config = Config::parse(text).unwrap();
    let (mut cluster, watch) = (Cluster::new(&config), Watch::default());
    let table = fill(&config, &mut cluster, threads, &watch);
    simulate(&config, config.failures.as_ref().unwrap(), &cluster, &table, threads, &watch)
}

#[test]
fn nothing_fails_and_nothing_is_lost() {
    let seen = years("[volume]\nsets = 100\n[failures]\nserver_mtbf_years = 0.0\nruns = 2", 1);
    assert_eq!((seen.failures, seen.rebuilt_chunks, seen.lost_sets, seen.years), (0, 0, 0, 2));
    assert_eq!((seen.markov.loss_per_year, seen.markov.years_to_loss_of_a_set), (0.0, None));
    assert_eq!(seen.loss_per_year.happened, 0);
}

/// About as many failures as their mean says, each of them rebuilt, and each chunk counted.
#[test]
fn what_fails_is_rebuilt() {
    let text = "[volume]\nsets = 500\n[failures]\nyears = 10\nruns = 4\nserver_mtbf_years = 8.0";
    let seen = years(text, 2);
    assert!((110..210).contains(&seen.failures), "{} of 160", seen.failures);
    assert!(seen.rebuild_seconds.count + 8 >= seen.failures, "{seen:?}");
    let each = seen.rebuilt_chunks as f64 / seen.failures as f64;
    assert!((100.0..150.0).contains(&each), "{each} of 125");
    // Ten minutes until it is known, and eight chunks at a time.
    assert!(seen.rebuild_seconds.median > 600.0 && seen.rebuild_seconds.median < 1200.0, "{seen:?}");
    assert_eq!(seen.lost_sets, 0);
}

/// A mirror without detection time is lost as often as the chain says: some 80 times in 1000 runs.
#[test]
fn the_chain_agrees_where_it_should() {
    let text = "seed = 3\n[cluster]\ncabinets = 2\nstores = 1\ndisk_mb_per_second = 0.05\n\
                [volume]\nk = 1\nm = 1\nsets = 1\nchunk = \"256MiB\"\n\
                [failures]\nyears = 10\nruns = 1000\nserver_mtbf_years = 0.2\nreplace_hours = 0.0\n\
                rebalance_days = 0.0\ndetection_minutes = 0.0\nrepair_share = 1.0";
    let seen = years(text, 2);
    // What is lost once stays lost, so less than ten years of a run count.
    let (found, chain) = (seen.loss_per_year.part, seen.markov.loss_per_year);
    assert!(seen.lost_sets > 40 && found > 0.7 * chain && found < 1.3 * chain, "{found} and {chain}: {seen:?}");
}

#[test]
fn a_cabinet_takes_nothing_where_the_rule_spreads() {
    let outage = "[failures]\nserver_mtbf_years = 0.0\ncabinet_mtbf_years = 0.05\ncabinet_hours = 1.0\nruns = 2";
    let seen = years(&format!("[volume]\nsets = 200\n{outage}"), 1);
    // It is away for longer than ten minutes, so its chunks are rebuilt; none was lost.
    assert!(seen.rebuilt_chunks > 0 && seen.lost_sets == 0 && seen.failures == 0, "{seen:?}");
}

/// Where half of the stores are lost at once, sets are.
#[test]
fn many_at_once_lose_sets() {
    let text = "[volume]\nsets = 300\n[failures]\nserver_mtbf_years = 0.0\ncorrelated_per_year = 2.0\n\
                correlated_stores = 16\nruns = 8";
    let seen = years(text, 2);
    assert!(seen.lost_sets > 10 && seen.loss_per_year.part > 0.4, "{seen:?}");
    // Without that, latent errors while one of two spare chunks is missing are survived.
    let latent =
        "[volume]\nsets = 300\n[failures]\nlatent_errors_per_tb_year = 5000.0\nserver_mtbf_years = 1.0\nruns = 4";
    let seen = years(latent, 1);
    assert!(seen.latent_errors > 0, "{seen:?}");
}

#[test]
fn threads_change_nothing() {
    let text = "[volume]\nsets = 300\n[failures]\nruns = 5\nserver_mtbf_years = 1.0\ncorrelated_per_year = 3.0";
    assert_eq!(years(text, 1), years(text, 4));
    assert_ne!(years(text, 1), years(&format!("seed = 5\n{text}"), 1));
}

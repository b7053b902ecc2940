//! A line for each scenario and policy.

use super::result::{Measurement, Reached, Scenario};
use super::study::published;
use super::text::against;
use plan::placement::PolicyName;
use std::iter::once;

const HEAD: &str = "load,slowed_stores,policy,rounds,mib_per_second,spread_percent,ratio_round_robin,ratio_random,\
                    least_store_percent,most_store_percent,sets,sets_lacking,paper_ratio_round_robin,\
                    paper_ratio_random";

/// All figures.
pub fn csv(result: &Measurement) -> String {
    let stores = (1..=result.stores).map(|store| format!(",store_{store}_bytes")).collect::<String>();
    let lines = result
        .scenarios
        .iter()
        .flat_map(|scenario| scenario.policies.iter().map(move |reached| line(scenario, reached)));
    once(format!("{HEAD}{stores}")).chain(lines).map(|line| line + "\n").collect()
}

fn line(scenario: &Scenario, reached: &Reached) -> String {
    let ratio = |other| against(scenario, reached, other).map_or_else(String::new, |ratio| format!("{ratio:.4}"));
    let ((least, most), (sets, lacking)) = (reached.evenness(), reached.sets());
    let published = published(scenario.load);
    // The paper has figures of adaptive placement only.
    let paper = |more: f64| match reached.policy {
        PolicyName::Adaptive => format!("{:.3}", 1.0 + more / 100.0),
        _ => String::new(),
    };
    let (of_round_robin, of_random) = (paper(published.over_round_robin), paper(published.over_random));
    let stores: String = reached.stores().iter().map(|bytes| format!(",{bytes}")).collect();
    format!(
        "{},{},{},{},{:.2},{:.2},{},{},{:.2},{:.2},{sets:.1},{lacking:.1},{of_round_robin},{of_random}{stores}",
        scenario.load,
        scenario.slowed,
        reached.policy,
        reached.rounds.len(),
        reached.bandwidth().median,
        100.0 * reached.spread(),
        ratio(PolicyName::RoundRobin),
        ratio(PolicyName::Random),
        100.0 * least,
        100.0 * most,
    )
}

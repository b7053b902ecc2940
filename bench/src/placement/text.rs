//! The result for a terminal.

use super::result::{Held, How, Load, Measurement, Reached, Scenario};
use super::study::{WORDS, published};
use crate::text::wrapped;
use plan::placement::PolicyName;
use plan::words::{count, size};
use std::fmt::Write;

/// The whole result, in lines of at most 120 columns.
pub fn text(result: &Measurement) -> String {
    let mut text = format!("{}\n{}", result.machine, wrapped(&lab(result)));
    if result.quick {
        text += "Little was written: whether it works, not how fast.\n";
    }
    for scenario in &result.scenarios {
        let _ = writeln!(text, "\n{}", title(result, scenario));
        text += "                                        against                 a store, over mean    sets a round\n";
        text += "policy            MiB/s  spread   round-robin   random      least     most      all  lack a chunk\n";
        scenario.policies.iter().for_each(|reached| text += &line(scenario, reached));
        text += &beside(scenario);
        scenario.policies.iter().for_each(|reached| text += &stores(reached));
    }
    text + "\n" + &wrapped(WORDS)
}

/// What ran, in words.
pub fn lab(result: &Measurement) -> String {
    let disks =
        if result.disks > 1 { format!(" of {}", count(result.disks as usize, "target")) } else { String::new() };
    format!(
        "{}{disks}, {}, {}, chunks of {}, stripes of {}, {} of writing; {}",
        count(result.stores as usize, "store"),
        result.code,
        count(result.clients as usize, "client"),
        size(result.chunk_bytes),
        size(result.stripe_bytes),
        count_seconds(result.seconds),
        held(result.held)
    )
}

fn count_seconds(seconds: f64) -> String {
    format!("{seconds} s")
}

fn held(held: Option<Held>) -> String {
    match held {
        None => "no store is limited".into(),
        Some(Held { how: How::Cpu, to }) => format!("a store has {to:.3} of a processor"),
        Some(Held { how, to }) => {
            let what = if how == How::Net { "link" } else { "disk" };
            format!("the {what} of a store carries {:.1} MB/s", to / 1e6)
        }
    }
}

/// A scenario in words.
pub fn title(result: &Measurement, scenario: &Scenario) -> String {
    let slowed = match scenario.slowed {
        0 => "no store slowed".into(),
        slowed => format!("{slowed} of {} stores slowed to {:.0} %", result.stores, 100.0 * result.slow_to),
    };
    let load = match scenario.load {
        Load::Balanced => "balanced load: every client has one writer",
        Load::Unbalanced => "unbalanced load: half of the clients have a second writer",
    };
    format!("{load}; {slowed}")
}

/// How much faster a policy is than another one; None for itself.
pub fn against(scenario: &Scenario, reached: &Reached, other: PolicyName) -> Option<f64> {
    (reached.policy != other).then(|| Some(reached.ratio(scenario.of(other)?))).flatten()
}

/// The same in words.
pub fn ratio_of(scenario: &Scenario, reached: &Reached, other: PolicyName) -> String {
    against(scenario, reached, other).map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}x"))
}

fn line(scenario: &Scenario, reached: &Reached) -> String {
    let ratio = |other| ratio_of(scenario, reached, other);
    let ((least, most), (sets, lacking)) = (reached.evenness(), reached.sets());
    format!(
        "{:<14} {:>8.1} {:>5.1} % {:>13} {:>8} {:>8.1} % {:>6.1} % {sets:>8.0} {lacking:>13.0}\n",
        reached.policy.to_string(),
        reached.bandwidth().median,
        100.0 * reached.spread(),
        ratio(PolicyName::RoundRobin),
        ratio(PolicyName::Random),
        100.0 * least,
        100.0 * most
    )
}

/// The paper's line, where it has one.
fn beside(scenario: &Scenario) -> String {
    let paper = published(scenario.load);
    let [over_round_robin, over_random] = [paper.over_round_robin, paper.over_random].map(|more| 1.0 + more / 100.0);
    format!(
        "{:<31} {:>12} {:>8}   space nearly even, as figures 9 and 11 show it\n",
        "the paper's adaptive",
        format!("{over_round_robin:.3}x"),
        format!("{over_random:.3}x")
    )
}

fn stores(reached: &Reached) -> String {
    let each: Vec<String> = reached.stores().iter().map(|bytes| format!("{}", bytes >> 20)).collect();
    format!("MiB on each store, {:<12} {}\n", format!("{}:", reached.policy), each.join(" "))
}

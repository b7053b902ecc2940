//! The log: what was synced is there once, and nothing is there twice.

use crate::history::All;
use std::collections::BTreeMap;

/// Checks the records that were found in the log at the end.
pub fn check(history: &All, found: &[u64]) -> Vec<String> {
    let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
    found.iter().filter(|record| **record != 0).for_each(|record| *counts.entry(*record).or_default() += 1);
    let mut wrong = Vec::new();
    for append in &history.appends {
        let count = counts.remove(&append.record).unwrap_or(0);
        let is_durable =
            append.done && history.is_durable(append.client, super::super::work::LOG, &append.span, u64::MAX);
        if count > 1 || (count == 0 && is_durable) {
            wrong.push(format!("{append:?} is there {count} times"));
        }
    }
    wrong.extend(counts.keys().map(|record| format!("nobody appended {record}")));
    wrong
}

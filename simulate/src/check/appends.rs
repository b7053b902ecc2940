//! The logs: what was synced and not truncated is there once, and nothing is there twice.

use crate::history::{All, Span};
use crate::work::CUT_LOG;
use std::collections::BTreeMap;

/// Checks the records that were found in a log at the end.
pub fn check(history: &All, log: usize, found: &[u64]) -> Vec<String> {
    let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
    found.iter().filter(|record| **record != 0).for_each(|record| *counts.entry(*record).or_default() += 1);
    let mut wrong = Vec::new();
    for append in history.appends.iter().filter(|append| append.log == log) {
        let count = counts.remove(&append.record).unwrap_or(0);
        let is_durable = append.done && history.is_durable(append.client, log, &append.span, u64::MAX);
        let is_before = |cut: &Span| cut.end.is_some_and(|end| end < append.span.begin);
        let may_be_cut_off = log == CUT_LOG && !history.cuts.iter().all(is_before);
        if count > 1 || (count == 0 && is_durable && !may_be_cut_off) {
            wrong.push(format!("{append:?} is there {count} times"));
        }
    }
    wrong.extend(counts.keys().map(|record| format!("nobody appended {record} to log {log}")));
    wrong
}

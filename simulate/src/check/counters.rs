//! Counters under an exclusive lock: no two programs hold it at once, and no count is lost.

use crate::history::{All, Section};

/// Checks every pair of sections.
pub fn check(history: &All) -> Vec<String> {
    let mut wrong = Vec::new();
    let sections = &history.sections;
    for (at, first) in sections.iter().enumerate() {
        for second in &sections[at + 1..] {
            if first.counter == second.counter {
                wrong.extend(pair(history, first, second));
                wrong.extend(pair(history, second, first));
            }
        }
    }
    wrong
}

/// What is wrong with two sections if `second` came later.
fn pair(history: &All, first: &Section, second: &Section) -> Option<String> {
    let apart = second.held.end.is_none_or(|end| first.held.begin >= end)
        || first.held.end.is_none_or(|end| second.held.begin >= end);
    if first.done && second.done && !apart && first.span.begin < second.span.begin {
        return Some(format!("both have the lock: {first:?}, {second:?}"));
    }
    let is_later = first.done && first.span.is_before(&second.held);
    // A released count is committed. Only the death of the server loses it, if it was not synced.
    let end = second.span.end.unwrap_or(u64::MAX);
    let is_kept = first.synced || !history.died(first.span.begin, end);
    if is_later && is_kept && second.read <= first.read {
        return Some(format!("a count is lost: {first:?}, {second:?}"));
    }
    None
}

/// The least value that a counter must have at the end.
pub fn least(history: &All, counter: usize) -> u64 {
    let synced = history.sections.iter().filter(|section| section.counter == counter && section.done && section.synced);
    synced.map(|section| section.read + 1).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Span;

    #[test]
    fn a_lost_count_and_a_shared_lock_are_found() {
        let section = |begin: u64, read| Section {
            counter: 0,
            span: Span { begin, end: Some(begin + 10) },
            held: Span { begin: begin + 3, end: Some(begin + 6) },
            read,
            done: true,
            synced: false,
        };
        let wrong = |sections: &[Section], deaths: &[u64]| {
            check(&All { sections: sections.to_vec(), deaths: deaths.to_vec(), ..All::default() }).len()
        };
        assert_eq!(wrong(&[section(0, 0), section(20, 1), section(24, 2)], &[]), 0);
        assert_eq!(wrong(&[section(0, 0), section(20, 0)], &[]), 1);
        assert_eq!(wrong(&[section(0, 0), section(20, 0)], &[15]), 0);
        assert_eq!(wrong(&[Section { synced: true, ..section(0, 0) }, section(20, 0)], &[15]), 1);
        assert_eq!(wrong(&[section(0, 0), section(2, 1)], &[]), 1);
    }
}

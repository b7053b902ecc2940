//! Counters under an exclusive lock: no two programs hold it at once, and no count is lost. A
//! section that failed was told so, and what it wrote may still get there later: until its client
//! commits the file again, the counter may begin again from there.

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
    let begins_again = leftovers(history, first).any(|left| left.read < second.read && left.span.begin < end);
    if is_later && is_kept && second.read <= first.read && !begins_again {
        return Some(format!("a count is lost: {first:?}, {second:?}"));
    }
    None
}

/// Sections that failed and whose writes may come after this one: their clients have not committed
/// the file since.
fn leftovers<'a>(history: &'a All, section: &'a Section) -> impl Iterator<Item = &'a Section> {
    let others = || history.sections.iter().filter(|other| other.counter == section.counter);
    let is_gone = move |failed: &Section| {
        let commits =
            |other: &Section| other.client == failed.client && other.done && failed.span.is_before(&other.span);
        others().any(|other| commits(other) && other.span.end <= section.span.end)
    };
    others().filter(move |other| !other.done && !is_gone(other))
}

/// The least value that a counter must have at the end.
pub fn least(history: &All, counter: usize) -> u64 {
    let synced = history.sections.iter().filter(|section| section.counter == counter && section.done && section.synced);
    let values = synced.map(|section| {
        let left = leftovers(history, section).map(|left| left.read).min();
        section.read.min(left.unwrap_or(u64::MAX)) + 1
    });
    values.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Span;

    #[test]
    fn a_lost_count_and_a_shared_lock_are_found() {
        let section = |begin: u64, read| Section {
            counter: 0,
            client: 0,
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
        // What failed may come later, but not when its client has committed since.
        let failed = Section { client: 1, done: false, ..section(0, 0) };
        let (own, synced) = (Section { client: 1, ..section(20, 0) }, Section { synced: true, ..section(40, 1) });
        assert_eq!(wrong(&[failed, section(20, 0), section(40, 1), section(60, 1)], &[]), 0);
        assert_eq!(wrong(&[failed, section(20, 0), section(40, 1), section(60, 0)], &[]), 2);
        assert_eq!(wrong(&[failed, own, section(40, 1), section(60, 1)], &[]), 1);
        let least = |sections: &[Section]| super::least(&All { sections: sections.to_vec(), ..All::default() }, 0);
        assert_eq!([least(&[failed, section(20, 0), synced]), least(&[failed, own, synced])], [1, 2]);
    }
}

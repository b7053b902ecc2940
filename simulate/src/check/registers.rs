//! Files with one writer: a program that opens a file sees what was written before, or something
//! newer, and never something older than what was synced.

use crate::history::{All, Read, Span, Write};

/// Checks every read.
pub fn check(history: &All) -> Vec<String> {
    history.reads.iter().filter_map(|read| wrong(history, read)).collect()
}

fn wrong(history: &All, read: &Read) -> Option<String> {
    let writes = || history.writes.iter().filter(|write| write.file == read.file);
    let Span { begin, end } = read.span;
    let end = end?;
    if read.version > 0 {
        let known = writes().find(|write| write.version == read.version);
        if known.is_none_or(|write| write.span.begin > end) {
            return Some(format!("{read:?}: nobody wrote this"));
        }
    }
    let newer = writes().filter(|write| write.version > read.version && write.done && write.span.is_before(&read.span));
    for write in newer {
        if must_be_seen(history, write, begin, end) {
            return Some(format!("{read:?}: it is older than {write:?}"));
        }
    }
    None
}

/// Whether a write that ended before a read began must be seen by it.
fn must_be_seen(history: &All, write: &Write, begin: u64, end: u64) -> bool {
    let is_durable = history.is_durable(write.client, write.file, &write.span, begin);
    // Without a fault, an opening makes other clients commit what they wrote.
    is_durable || history.is_calm(write.span.begin, end)
}

/// The least version that a file must have at the end, when all is well and all was synced.
pub fn least(history: &All, file: usize) -> u64 {
    let durable = |write: &&Write| {
        write.file == file && write.done && history.is_durable(write.client, file, &write.span, u64::MAX)
    };
    history.writes.iter().filter(durable).map(|write| write.version).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Sync;

    fn span(begin: u64, end: u64) -> Span {
        Span { begin, end: Some(end) }
    }

    #[test]
    fn what_was_written_before_is_seen() {
        let write = |version, begin| Write { file: 0, client: 0, version, span: span(begin, begin + 1), done: true };
        let read = |begin, version| Read { file: 0, span: span(begin, begin + 5), version };
        let mut all = All { writes: vec![write(1, 10), write(2, 30)], ..All::default() };
        let mut wrong = |reads: Vec<Read>, change: &dyn Fn(&mut All)| {
            all.reads = reads;
            change(&mut all);
            check(&all).len()
        };
        let nothing = |_: &mut All| {};
        assert_eq!(wrong(vec![read(20, 1), read(28, 2), read(28, 1), read(40, 2)], &nothing), 0);
        assert_eq!(wrong(vec![read(20, 0), read(40, 1), read(10, 2), read(50, 3)], &nothing), 4);
        // Not if something failed, unless it was synced.
        assert_eq!(wrong(vec![read(40, 1)], &|all| all.disturbed = vec![(35, 36)]), 0);
        let sync = |all: &mut All| all.syncs = vec![Sync { client: 0, file: None, span: span(33, 34) }];
        assert_eq!(wrong(vec![read(40, 1)], &sync), 1);
        assert_eq!(wrong(vec![read(40, 1)], &|all| all.errors = vec![(0, 32)]), 0);
    }
}

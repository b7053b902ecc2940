//! Limits repeated warnings: each kind is passed on once in a while, with the number of those that
//! were dropped. Otherwise a volume that is full or has dead targets would fill a log. A warning
//! about several targets is passed on once for each of the first ones; the rest are counted.

use crate::mutex::lock;
use plan::TargetId;
use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How often one kind is passed on.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);
/// The most kinds that are remembered.
const KINDS: usize = 256;
/// The most targets for which one kind is passed on in that time.
const TARGETS: usize = 8;

/// The recent warnings.
#[derive(Debug, Default)]
pub(crate) struct Warnings(Mutex<HashMap<String, WarningKind>>);

/// The state of one kind.
#[derive(Debug)]
struct WarningKind {
    /// When the first one was passed on.
    heard: Instant,
    /// How many were dropped since.
    unheard: u64,
    /// The targets that it named since, as text.
    targets: BTreeSet<String>,
}

/// A line without its numbers: lines that differ only in numbers are of the same kind.
fn kind_of(what: &str) -> String {
    what.split(|c: char| c.is_ascii_digit()).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("#")
}

/// The target that a line names.
fn target_of(what: &str) -> Option<&str> {
    let (_, rest) = what.split_once("target ")?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    (end > 0).then(|| &rest[..end])
}

/// The line about targets that were not found, with the reasons of the first ones; None when there
/// are none.
pub(crate) fn missing(targets: &[(TargetId, String)]) -> Option<String> {
    const NAMED: usize = 3;
    let named: Vec<String> =
        targets.iter().take(NAMED).map(|(id, why)| format!("target {} is missing: {why}", id.0)).collect();
    match targets.len() {
        0 => None,
        1 => named.into_iter().next(),
        count if count > NAMED => {
            Some(format!("{count} targets are missing: {}; and {} more", named.join("; "), count - NAMED))
        }
        count => Some(format!("{count} targets are missing: {}", named.join("; "))),
    }
}

impl Warnings {
    /// The line to pass on; None when one of its kind was passed on a moment ago.
    pub fn line(&self, what: &str) -> Option<String> {
        let mut kinds = lock(&self.0);
        let kind = kind_of(what);
        let target = target_of(what).map(str::to_owned);
        let (unheard, targets) = match kinds.get_mut(&kind) {
            Some(known) if known.heard.elapsed() < WARNING_INTERVAL => {
                let is_new = target.is_some_and(|target| known.targets.insert(target));
                if is_new && known.targets.len() <= TARGETS {
                    return Some(what.into());
                }
                known.unheard += 1;
                return None;
            }
            Some(known) => (known.unheard, known.targets.len()),
            None => (0, 0),
        };
        if kinds.len() >= KINDS {
            kinds.retain(|_, known| known.heard.elapsed() < WARNING_INTERVAL);
        }
        // With this many kinds in a minute, some are passed on more often.
        if kinds.len() >= KINDS {
            kinds.clear();
        }
        let targets_now = target.into_iter().collect();
        kinds.insert(kind, WarningKind { heard: Instant::now(), unheard: 0, targets: targets_now });
        Some(match (unheard, targets) {
            (0, _) => what.into(),
            (1, 0 | 1) => format!("{what} (and once before)"),
            (_, 0 | 1) => format!("{what} (and {unheard} times before)"),
            _ => format!("{what} (and {unheard} times before, of {targets} targets)"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_heard_once_in_a_while() {
        let warnings = Warnings::default();
        let heard = |what: &str| warnings.line(what);
        assert_eq!(heard("cannot reclaim space 1").as_deref(), Some("cannot reclaim space 1"));
        assert!((0..700).all(|n| heard(&format!("cannot reclaim space {n}")).is_none()));
        assert!(heard("cannot clean up").is_some());
        lock(&warnings.0).values_mut().for_each(|kind| kind.heard -= WARNING_INTERVAL);
        let again = heard("cannot reclaim space 2");
        assert_eq!(again.as_deref(), Some("cannot reclaim space 2 (and 700 times before)"));
        assert!(heard("cannot reclaim space 3").is_none());
    }

    /// A warning is passed on for each target, but not for hundreds.
    #[test]
    fn targets_are_not_taken_for_each_other() {
        let warnings = Warnings::default();
        let heard = |target: usize| warnings.line(&format!("target {target} fails"));
        assert!([0, 1, 2].iter().all(|&target| heard(target).is_some()));
        assert!([0, 1, 2].iter().all(|&target| heard(target).is_none()));
        assert_eq!((0..80).filter(|&target| heard(target).is_some()).count(), TARGETS - 3);
        lock(&warnings.0).values_mut().for_each(|kind| kind.heard -= WARNING_INTERVAL);
        assert_eq!(heard(5).as_deref(), Some("target 5 fails (and 78 times before, of 80 targets)"));
        let away = |count: u16| (0..count).map(|id| (TargetId(id), "no".to_string())).collect::<Vec<_>>();
        let said = [0, 1, 3, 80].map(|count| missing(&away(count)).unwrap_or_default());
        assert_eq!(said[..2], ["", "target 0 is missing: no"]);
        assert!(said[2].starts_with("3 targets are missing: ") && said[2].ends_with("target 2 is missing: no"));
        assert!(said[3].starts_with("80 targets are missing: ") && said[3].ends_with("; and 77 more"), "{}", said[3]);
    }

    #[test]
    fn it_does_not_grow_for_ever() {
        let warnings = Warnings::default();
        let letters = |n: usize| n.to_string().bytes().map(|digit| char::from(digit + 49)).collect::<String>();
        (0..10_000).for_each(|n| assert!(warnings.line(&letters(n)).is_some()));
        assert!(lock(&warnings.0).len() <= KINDS);
    }
}

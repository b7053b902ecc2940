//! Warnings that are repeated: each kind is heard once in a while, with how often it was left out. A volume that is full, or has targets that are dead, would
//! fill a log otherwise.

use crate::mutex::lock;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How often one kind is heard.
const INTERVAL: Duration = Duration::from_secs(60);
/// Kinds that are kept in mind.
const KINDS: usize = 256;

/// What was said lately: when each kind was heard last, and how often it was left out since.
#[derive(Debug, Default)]
pub(crate) struct Warnings(Mutex<HashMap<String, (Instant, u64)>>);

/// A line without its numbers: what differs in them only is of the same kind.
fn kind_of(what: &str) -> String {
    what.split(|c: char| c.is_ascii_digit()).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("#")
}

impl Warnings {
    /// The line to be heard; None when one of its kind was heard a moment ago.
    pub fn line(&self, what: &str) -> Option<String> {
        let mut kinds = lock(&self.0);
        let kind = kind_of(what);
        let unheard = match kinds.get_mut(&kind) {
            Some((when, unheard)) if when.elapsed() < INTERVAL => {
                *unheard += 1;
                return None;
            }
            Some((_, unheard)) => *unheard,
            None => 0,
        };
        if kinds.len() >= KINDS {
            kinds.retain(|_, (when, _)| when.elapsed() < INTERVAL);
        }
        // With so many kinds in a minute, some are heard more often.
        if kinds.len() >= KINDS {
            kinds.clear();
        }
        kinds.insert(kind, (Instant::now(), 0));
        Some(if unheard > 0 { format!("{what} (and {unheard} times before)") } else { what.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_heard_once_in_a_while() {
        let warnings = Warnings::default();
        let heard = |what: &str| warnings.line(what);
        assert_eq!(heard("no space is left on target 3").as_deref(), Some("no space is left on target 3"));
        assert!((0..700).all(|n| heard(&format!("no space is left on target {n}")).is_none()));
        assert!(heard("cannot give room back").is_some());
        lock(&warnings.0).values_mut().for_each(|(when, _)| *when -= INTERVAL);
        let again = heard("no space is left on target 4");
        assert_eq!(again.as_deref(), Some("no space is left on target 4 (and 700 times before)"));
        assert!(heard("no space is left on target 5").is_none());
    }

    #[test]
    fn it_does_not_grow_for_ever() {
        let warnings = Warnings::default();
        let letters = |n: usize| n.to_string().bytes().map(|digit| char::from(digit + 49)).collect::<String>();
        (0..10_000).for_each(|n| assert!(warnings.line(&letters(n)).is_some()));
        assert!(lock(&warnings.0).len() <= KINDS);
    }
}

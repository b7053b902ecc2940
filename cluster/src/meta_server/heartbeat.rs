//! What a standby says when the holder does not take its heartbeats: it would follow the volume and
//! be called silent, and nobody would know why.

use std::time::{Duration, Instant};

/// How long heartbeats may fail before it is said: the holder may be about to end.
const FAILURE_PATIENCE: Duration = Duration::from_secs(30);
/// How long they may be refused: a server that was started anew elsewhere has the name of one that
/// counts as living.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(5);

/// Why the holder did not take a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The holder does not count this server, and says why.
    Refused(String),
    /// The holder does not answer, or not to this server.
    Failed(String),
}

/// The heartbeats until now.
#[derive(Debug, Default)]
pub(super) struct Heartbeats {
    /// Since when they fail.
    failing: Option<Instant>,
    /// Whether that was said.
    said: bool,
}

impl Heartbeats {
    /// Notes one. Returns what is to be said, once until one is taken.
    pub fn note(&mut self, trouble: Option<Trouble>, now: Instant) -> Option<String> {
        let (why, patience) = match trouble {
            None => {
                *self = Self::default();
                return None;
            }
            Some(Trouble::Refused(why)) => (why, REFUSAL_PATIENCE),
            Some(Trouble::Failed(why)) => (why, FAILURE_PATIENCE),
        };
        let since = *self.failing.get_or_insert(now);
        if self.said || now.saturating_duration_since(since) < patience {
            return None;
        }
        self.said = true;
        Some(format!("the server that has the volume does not count this one as a standby: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_said_once_and_a_failure_when_it_lasts() {
        let (start, mut heartbeats) = (Instant::now(), Heartbeats::default());
        let refused = || Some(Trouble::Refused("its name is taken".into()));
        let failed = || Some(Trouble::Failed("no route".into()));
        assert_eq!(heartbeats.note(refused(), start), None);
        let said = heartbeats.note(refused(), start + REFUSAL_PATIENCE).unwrap();
        assert!(said.ends_with("as a standby: its name is taken"), "{said}");
        assert_eq!(heartbeats.note(refused(), start + FAILURE_PATIENCE), None);
        assert_eq!(heartbeats.note(None, start), None);
        assert_eq!(heartbeats.note(failed(), start), None);
        assert_eq!(heartbeats.note(None, start + FAILURE_PATIENCE / 2), None);
        assert_eq!(heartbeats.note(failed(), start + FAILURE_PATIENCE), None);
        assert!(heartbeats.note(failed(), start + 2 * FAILURE_PATIENCE).is_some());
        assert_eq!(heartbeats.note(failed(), start + 3 * FAILURE_PATIENCE), None);
        assert_eq!(heartbeats.note(None, start), None);
        assert_eq!(heartbeats.note(refused(), start), None);
        assert!(heartbeats.note(refused(), start + REFUSAL_PATIENCE).is_some());
    }
}

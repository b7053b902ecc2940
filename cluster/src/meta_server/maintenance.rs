//! Looking after a volume: says what becomes of its targets, and has made again on others what was on one that is out, and what writers did without.

use fs::{FileSystem, Repaired, State};
use plan::TargetId;
use plan::membership::Change;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use volume::Control;

/// How often targets are looked at.
const LOOK: Duration = Duration::from_secs(2);
/// After a repair of what is queued that left something undone, the next one waits.
const AGAIN: Duration = Duration::from_secs(60);
/// What is queued for repair waits so long for more of its kind: stores fail together, and come back.
const GATHER: Duration = Duration::from_secs(30);

/// Repairs that are queued: since when there are any, and when they may be tried.
#[derive(Debug, Default)]
struct Waiting {
    since: Option<Instant>,
    not_before: Option<Instant>,
}

impl Waiting {
    /// Takes notice of how many there are; returns whether it is time.
    fn look(&mut self, queued: usize, now: Instant) -> bool {
        if queued == 0 {
            self.since = None;
            return false;
        }
        let gathered = now.saturating_duration_since(*self.since.get_or_insert(now)) >= GATHER;
        gathered && self.not_before.is_none_or(|then| now >= then)
    }

    /// What was queued was repaired, or something of it could not be.
    fn tried(&mut self, whole: bool, now: Instant) {
        *self = Self { since: None, not_before: (!whole).then(|| now + AGAIN) };
    }
}

/// Looks after the targets in the background, until the volume is closed. Who is away for `down_out` is counted out.
pub fn keep(volume: &Arc<FileSystem>, down_out: Duration, say: fn(&str)) {
    volume.watch_members(down_out);
    let volume = Arc::downgrade(volume);
    std::thread::spawn(move || work(&volume, say));
}

fn work(volume: &Weak<FileSystem>, say: fn(&str)) {
    let mut waiting = Waiting::default();
    loop {
        let Some(volume) = volume.upgrade().filter(|volume| !volume.is_closed()) else { return };
        volume.beside("looking after targets", || look(&volume, &mut waiting, say));
        drop(volume);
        std::thread::sleep(LOOK);
    }
}

fn look(volume: &FileSystem, waiting: &mut Waiting, say: fn(&str)) {
    let seen = volume.look_at_members();
    seen.changes.iter().filter_map(told).for_each(|line| say(&line));
    let gathered = waiting.look(volume.count_queued().unwrap_or(0), Instant::now());
    if !seen.to_repair.is_empty() || gathered {
        // Before it: one that panics is not tried again at once.
        waiting.tried(false, Instant::now());
        let whole = repair(volume, &seen.to_repair, say);
        waiting.tried(whole, Instant::now());
    }
}

/// What an operator hears of a change. That all is as it should be is nothing to tell.
fn told(change: &Change) -> Option<String> {
    let (id, (was, time)) = (change.id.0, change.was);
    match (was, change.is) {
        (_, State::Down) => Some(format!("target {id} is down")),
        (State::Down | State::Out, State::Up | State::Draining) => {
            Some(format!("target {id} is there again, {} seconds later", time.as_secs()))
        }
        _ => None,
    }
}

/// Repairs without those that are out, or, where nobody is, what is queued. Returns whether nothing is left undone.
fn repair(volume: &FileSystem, out: &[TargetId], say: fn(&str)) -> bool {
    let done = if out.is_empty() {
        volume.repair_queued(&Control::default())
    } else {
        let names: Vec<String> = out.iter().map(|id| id.0.to_string()).collect();
        say(&format!("target {} is away for too long: what was on it is made again on others", names.join(" and ")));
        volume.repair_without(out)
    };
    let Repaired { chunks, bytes, by_stores, failed, .. } = match done {
        Ok(done) => done,
        Err(error) => {
            say(&format!("cannot repair: {error}"));
            return false;
        }
    };
    match failed.first() {
        None => say(&format!("repaired: {chunks} chunks, {bytes} bytes, {by_stores} of them made by the stores")),
        Some((_, why)) => {
            say(&format!("repaired {chunks} chunks; {} chunk sets could not be: {why}", failed.len()));
        }
    }
    failed.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_queued_waits_for_more_and_not_for_ever() {
        let start = Instant::now();
        let mut waiting = Waiting::default();
        assert!(!waiting.look(0, start));
        assert!(!waiting.look(2, start + GATHER));
        assert!(!waiting.look(5, start + GATHER + GATHER / 2));
        assert!(waiting.look(7, start + 2 * GATHER));
        // Somebody repaired it.
        assert!(!waiting.look(0, start + 3 * GATHER));
        assert!(!waiting.look(1, start + 3 * GATHER));
    }

    #[test]
    fn what_could_not_be_repaired_is_tried_again_later() {
        let start = Instant::now();
        let mut waiting = Waiting::default();
        assert!(!waiting.look(1, start));
        assert!(waiting.look(1, start + GATHER));
        waiting.tried(false, start + GATHER);
        assert!(!waiting.look(1, start + GATHER) && !waiting.look(1, start + GATHER + AGAIN - LOOK));
        assert!(waiting.look(1, start + GATHER + AGAIN));
        waiting.tried(true, start + GATHER + AGAIN);
        assert!(!waiting.look(1, start + GATHER + AGAIN));
        assert!(waiting.look(1, start + 2 * GATHER + AGAIN));
    }

    #[test]
    fn an_operator_hears_who_goes_and_who_comes() {
        let change = |was, is| Change { id: TargetId(3), was: (was, Duration::from_secs(70)), is };
        assert_eq!(told(&change(State::Up, State::Down)).unwrap(), "target 3 is down");
        assert_eq!(told(&change(State::Out, State::Up)).unwrap(), "target 3 is there again, 70 seconds later");
        assert_eq!(told(&change(State::Joining, State::Up)), None);
        assert_eq!(told(&change(State::Up, State::Draining)), None);
    }
}

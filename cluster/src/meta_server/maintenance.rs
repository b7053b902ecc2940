//! Maintenance of a volume: reports changes of its targets, rebuilds on other targets the chunks of
//! a target that is out, and repairs what writers left out.

use fs::{FileSystem, Repaired, TargetState};
use plan::TargetId;
use plan::membership::StateChange;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use volume::Control;

/// How often the targets are checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// Pause after a repair of the queue that left something undone.
const RETRY_PAUSE: Duration = Duration::from_secs(60);
/// How long queued repairs wait for more to join them: stores fail together, and come back
/// together.
const GATHER_TIME: Duration = Duration::from_secs(30);

/// The state of the repair queue: when the oldest entry was seen, and when the next attempt is
/// permitted.
#[derive(Debug, Default)]
struct Waiting {
    since: Option<Instant>,
    not_before: Option<Instant>,
}

impl Waiting {
    /// Notes the length of the queue; returns whether it is time for a repair.
    fn look(&mut self, queued: usize, now: Instant) -> bool {
        if queued == 0 {
            self.since = None;
            return false;
        }
        let gathered = now.saturating_duration_since(*self.since.get_or_insert(now)) >= GATHER_TIME;
        gathered && self.not_before.is_none_or(|then| now >= then)
    }

    /// Notes an attempt. `whole` says whether it left nothing undone.
    fn tried(&mut self, whole: bool, now: Instant) {
        *self = Self { since: None, not_before: (!whole).then(|| now + RETRY_PAUSE) };
    }
}

/// Maintains the targets in the background until the volume is closed. A target that is silent for
/// `down_out` becomes out.
pub fn keep(volume: &Arc<FileSystem>, down_out: Duration, say: fn(&str)) {
    volume.watch_members(down_out);
    volume.rebalance_by_itself();
    let volume = Arc::downgrade(volume);
    std::thread::spawn(move || work(&volume, say));
}

/// A repair that runs on a thread of its own: it may take hours, and targets fail meanwhile.
struct Running {
    /// The targets that it rebuilds; none if it repairs what is queued.
    out: Vec<TargetId>,
    control: Arc<Control>,
    /// Whether it left nothing undone.
    thread: JoinHandle<bool>,
}

impl Running {
    fn begin(volume: &Arc<FileSystem>, out: Vec<TargetId>, say: fn(&str)) -> Self {
        let control = Arc::new(Control::default());
        let (volume, its, targets) = (volume.clone(), control.clone(), out.clone());
        let thread = std::thread::spawn(move || {
            volume.beside("repairing", || repair(&volume, &targets, &its, say)).unwrap_or(false)
        });
        Self { out, control, thread }
    }
}

/// Whether a repair without the targets `now` lacks some that are out since it began. The next one
/// begins with the chunk sets that have the least redundancy now.
fn is_outdated(now: &[TargetId], out: &[TargetId]) -> bool {
    out.iter().any(|id| !now.contains(id))
}

fn work(volume: &Weak<FileSystem>, say: fn(&str)) {
    let (mut waiting, mut running) = (Waiting::default(), None);
    loop {
        let Some(volume) = volume.upgrade().filter(|volume| !volume.is_closed()) else {
            running.iter().for_each(|running: &Running| running.control.cancel());
            return;
        };
        volume.beside("looking after targets", || look(&volume, &mut waiting, &mut running, say));
        drop(volume);
        std::thread::sleep(CHECK_INTERVAL);
    }
}

fn look(volume: &Arc<FileSystem>, waiting: &mut Waiting, running: &mut Option<Running>, say: fn(&str)) {
    // Before the members: they count what it repaired.
    if let Some(done) = running.take_if(|running| running.thread.is_finished()) {
        waiting.tried(done.thread.join().unwrap_or(false), Instant::now());
    }
    let seen = volume.look_at_members();
    seen.changes.iter().filter_map(describe).for_each(|line| say(&volume.with_paths(&line)));
    if let Some(running) = running {
        if is_outdated(&running.out, &seen.to_repair) {
            running.control.cancel();
        }
        return;
    }
    let gathered = waiting.look(volume.count_queued().unwrap_or(0), Instant::now());
    if !seen.to_repair.is_empty() || gathered {
        *running = Some(Running::begin(volume, seen.to_repair, say));
    }
}

/// The message to the operator about a change. None when all is well.
fn describe(change: &StateChange) -> Option<String> {
    let (id, (was, time)) = (change.id.0, change.was);
    match (was, change.is) {
        (_, TargetState::Down) => Some(format!("target {id} is down")),
        (TargetState::Down | TargetState::Out, TargetState::Up | TargetState::Draining) => {
            Some(format!("target {id} is there again, {} seconds later", time.as_secs()))
        }
        _ => None,
    }
}

/// Rebuilds without the targets that are out; without such targets, repairs what is queued. Returns
/// whether nothing is left undone.
fn repair(volume: &FileSystem, out: &[TargetId], control: &Control, say: fn(&str)) -> bool {
    let done = if out.is_empty() {
        volume.repair_queued(control)
    } else {
        for id in out {
            let line = format!("target {} is away for too long: what was on it is rebuilt on others", id.0);
            say(&volume.with_paths(&line));
        }
        volume.repair_without(out, control)
    };
    let Repaired { chunks, bytes, by_stores, failed, .. } = match done {
        Ok(done) => done,
        Err(fs::Error::Volume(volume::Error::Interrupted)) => {
            say("the repair ends before it is done: more targets are out, or the volume is closed");
            return false;
        }
        Err(error) => {
            say(&format!("cannot repair: {error}"));
            return false;
        }
    };
    match failed.first() {
        None => say(&format!("chunks repaired: {chunks}, of {bytes} bytes; {by_stores} of them rebuilt by the stores")),
        Some((_, why)) => {
            say(&format!("chunks repaired: {chunks}; chunk sets that could not be repaired: {}: {why}", failed.len()));
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
        assert!(!waiting.look(2, start + GATHER_TIME));
        assert!(!waiting.look(5, start + GATHER_TIME + GATHER_TIME / 2));
        assert!(waiting.look(7, start + 2 * GATHER_TIME));
        // The queue was repaired in another way.
        assert!(!waiting.look(0, start + 3 * GATHER_TIME));
        assert!(!waiting.look(1, start + 3 * GATHER_TIME));
    }

    #[test]
    fn what_could_not_be_repaired_is_tried_again_later() {
        let start = Instant::now();
        let mut waiting = Waiting::default();
        assert!(!waiting.look(1, start));
        assert!(waiting.look(1, start + GATHER_TIME));
        waiting.tried(false, start + GATHER_TIME);
        assert!(
            !waiting.look(1, start + GATHER_TIME)
                && !waiting.look(1, start + GATHER_TIME + RETRY_PAUSE - CHECK_INTERVAL)
        );
        assert!(waiting.look(1, start + GATHER_TIME + RETRY_PAUSE));
        waiting.tried(true, start + GATHER_TIME + RETRY_PAUSE);
        assert!(!waiting.look(1, start + GATHER_TIME + RETRY_PAUSE));
        assert!(waiting.look(1, start + 2 * GATHER_TIME + RETRY_PAUSE));
    }

    #[test]
    fn a_repair_begins_again_when_more_targets_are_out() {
        let ids = |ids: &[u16]| ids.iter().map(|&id| TargetId(id)).collect::<Vec<_>>();
        assert!(is_outdated(&[], &ids(&[1])) && is_outdated(&ids(&[1]), &ids(&[1, 2])));
        // It came back, or another repair is not due yet.
        assert!(!is_outdated(&ids(&[1]), &ids(&[1])) && !is_outdated(&ids(&[1, 2]), &ids(&[2])));
        assert!(!is_outdated(&ids(&[1]), &[]) && !is_outdated(&[], &[]));
    }

    #[test]
    fn an_operator_hears_who_goes_and_who_comes() {
        let change = |was, is| StateChange { id: TargetId(3), was: (was, Duration::from_secs(70)), is };
        assert_eq!(describe(&change(TargetState::Up, TargetState::Down)).unwrap(), "target 3 is down");
        assert_eq!(
            describe(&change(TargetState::Out, TargetState::Up)).unwrap(),
            "target 3 is there again, 70 seconds later"
        );
        assert_eq!(describe(&change(TargetState::Joining, TargetState::Up)), None);
        assert_eq!(describe(&change(TargetState::Up, TargetState::Draining)), None);
    }
}

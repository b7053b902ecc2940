//! Looking after a volume: says what becomes of its targets, and has made again on others what was on one that is out.

use fs::{FileSystem, State};
use plan::TargetId;
use plan::membership::Change;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often targets are looked at.
const LOOK: Duration = Duration::from_secs(2);

/// Looks after the targets in the background, until the volume is closed. Who is away for `down_out` is counted out.
pub fn keep(volume: &Arc<FileSystem>, down_out: Duration, say: fn(&str)) {
    volume.watch_members(down_out);
    let volume = Arc::downgrade(volume);
    std::thread::spawn(move || work(&volume, say));
}

fn work(volume: &Weak<FileSystem>, say: fn(&str)) {
    loop {
        let Some(volume) = volume.upgrade().filter(|volume| !volume.is_closed()) else { return };
        let seen = volume.look_at_members();
        seen.changes.iter().filter_map(told).for_each(|line| say(&line));
        if !seen.to_repair.is_empty() {
            repair(&volume, &seen.to_repair, say);
        }
        drop(volume);
        std::thread::sleep(LOOK);
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

fn repair(volume: &FileSystem, out: &[TargetId], say: fn(&str)) {
    let names: Vec<String> = out.iter().map(|id| id.0.to_string()).collect();
    say(&format!("target {} is away for too long: what was on it is made again on others", names.join(" and ")));
    match volume.repair_without(out) {
        Ok(done) if done.failed.is_empty() => say(&format!("repaired: {} chunks, {} bytes", done.chunks, done.bytes)),
        Ok(done) => say(&format!(
            "repaired {} chunks; {} chunk sets could not be: {}",
            done.chunks,
            done.failed.len(),
            done.failed[0].1
        )),
        Err(error) => say(&format!("cannot repair: {error}")),
    }
}

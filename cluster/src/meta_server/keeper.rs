//! Looking after a volume: what was on a store that is down for long is made again on others, and so is what writers did without.

use fs::FileSystem;
use plan::TargetId;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use volume::Control;

/// How often targets are looked at.
const LOOK: Duration = Duration::from_secs(2);
/// After a repair that left something undone, the next one waits.
const AGAIN: Duration = Duration::from_secs(60);
/// What is queued for repair waits so long for more of its kind: stores fail together, and come back.
const GATHER: Duration = Duration::from_secs(30);

/// Which targets are away, and since when: decides without a clock when to repair.
#[derive(Debug)]
struct Absences {
    down_out: Duration,
    away: BTreeMap<TargetId, Instant>,
    /// Targets whose chunks were made again elsewhere.
    out: Vec<TargetId>,
}

impl Absences {
    fn new(down_out: Duration) -> Self {
        Self { down_out, away: BTreeMap::new(), out: Vec::new() }
    }

    /// Takes notice of who is away now; returns those that became so long ago that they are counted out.
    fn look(&mut self, away: &[TargetId], now: Instant) -> Vec<TargetId> {
        self.away.retain(|id, _| away.contains(id));
        self.out.retain(|id| away.contains(id));
        for &id in away {
            self.away.entry(id).or_insert(now);
        }
        let long = |since: &Instant| now.saturating_duration_since(*since) >= self.down_out;
        let due = self.away.iter().filter(|(id, since)| long(since) && !self.out.contains(id));
        due.map(|(&id, _)| id).collect()
    }

    fn repaired(&mut self, ids: &[TargetId]) {
        self.out.extend(ids);
    }
}

/// Repairs that are queued, and since when there are any.
#[derive(Debug, Default)]
struct Waiting(Option<Instant>);

impl Waiting {
    /// Takes notice of how many there are; returns whether it is time.
    fn look(&mut self, queued: usize, now: Instant) -> bool {
        if queued == 0 {
            self.0 = None;
            return false;
        }
        now.saturating_duration_since(*self.0.get_or_insert(now)) >= GATHER
    }
}

/// Repairs in the background, until the volume is closed.
pub fn keep(volume: &Arc<FileSystem>, down_out: Duration, say: fn(&str)) {
    let volume = Arc::downgrade(volume);
    std::thread::spawn(move || work(&volume, down_out, say));
}

fn work(volume: &Weak<FileSystem>, down_out: Duration, say: fn(&str)) {
    let mut absences = Absences::new(down_out);
    let mut waiting = Waiting::default();
    let mut not_before = Instant::now();
    loop {
        std::thread::sleep(LOOK);
        let Some(volume) = volume.upgrade().filter(|volume| !volume.is_closed()) else { return };
        let due = absences.look(&volume.absent_targets(), Instant::now());
        let gathered = waiting.look(volume.count_queued().unwrap_or(0), Instant::now());
        if due.is_empty() && !gathered || Instant::now() < not_before {
            continue;
        }
        let done = if due.is_empty() {
            volume.repair_queued(&Control::default())
        } else {
            let names: Vec<String> = due.iter().map(|id| id.0.to_string()).collect();
            let names = names.join(" and ");
            say(&format!("target {names} is away for too long: what was on it is made again on others"));
            volume.repair(&Control::default())
        };
        match done {
            Ok(done) if done.failed.is_empty() => {
                say(&format!("repaired: {} chunks, {} bytes", done.chunks, done.bytes));
                absences.repaired(&due);
                waiting = Waiting::default();
            }
            Ok(done) => {
                say(&format!(
                    "repaired {} chunks; {} chunk sets could not be: {}",
                    done.chunks,
                    done.failed.len(),
                    done.failed[0].1
                ));
                not_before = Instant::now() + AGAIN;
            }
            Err(error) => {
                say(&format!("cannot repair: {error}"));
                not_before = Instant::now() + AGAIN;
            }
        }
    }
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
    fn who_is_away_long_enough_is_out_once() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut absences = Absences::new(Duration::from_secs(300));
        let (a, b) = (TargetId(1), TargetId(2));
        assert!(absences.look(&[a], at(0)).is_empty());
        assert!(absences.look(&[a, b], at(200)).is_empty());
        assert_eq!(absences.look(&[a, b], at(300)), [a]);
        // Tried again until it is done.
        assert_eq!(absences.look(&[a, b], at(301)), [a]);
        absences.repaired(&[a]);
        assert!(absences.look(&[a, b], at(302)).is_empty());
        assert_eq!(absences.look(&[a, b], at(500)), [b]);
        // Who was back in between counts from the beginning.
        assert!(absences.look(&[b], at(501)).len() == 1);
        assert!(absences.look(&[a, b], at(502)).len() == 1);
        assert_eq!(absences.look(&[a], at(802)), [a]);
    }
}

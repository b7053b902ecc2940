//! Looking after a volume: what was on a store that is down for long is made again on others.

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

/// Repairs in the background, until the volume is closed.
pub fn keep(volume: &Arc<FileSystem>, down_out: Duration, say: fn(&str)) {
    let volume = Arc::downgrade(volume);
    std::thread::spawn(move || work(&volume, down_out, say));
}

fn work(volume: &Weak<FileSystem>, down_out: Duration, say: fn(&str)) {
    let mut absences = Absences::new(down_out);
    let mut not_before = Instant::now();
    loop {
        std::thread::sleep(LOOK);
        let Some(volume) = volume.upgrade().filter(|volume| !volume.is_closed()) else { return };
        let due = absences.look(&volume.absent_targets(), Instant::now());
        if due.is_empty() || Instant::now() < not_before {
            continue;
        }
        let names: Vec<String> = due.iter().map(|id| id.0.to_string()).collect();
        say(&format!("target {} is away for too long: what was on it is made again on others", names.join(" and ")));
        match volume.repair(&Control::default()) {
            Ok(done) if done.failed.is_empty() => {
                say(&format!("repaired: {} chunks, {} bytes", done.chunks, done.bytes));
                absences.repaired(&due);
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

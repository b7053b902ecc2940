//! Targets that failed are tried from time to time, and used again when they work: a file system that was frozen for a while, or a server that was gone,
//! needs nobody who looks after it. What they lack stays in the repair queue.

use crate::FileSystem;
use plan::TargetId;
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::sync::Weak;
use std::time::{Duration, Instant};
use volume::target::{Target, TargetFile};

/// No chunk set has this number: files of it are tries whether something can be written.
pub const PROBE_SET: u64 = 0;

const TICK: Duration = Duration::from_millis(200);
/// A target that failed is tried after this time, and after twice as long each time that it fails again soon.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// When targets that failed are tried.
#[derive(Debug, Default)]
struct Probes(BTreeMap<TargetId, (Instant, Duration)>);

impl Probes {
    /// Which of those that fail are to be tried now.
    fn due(&mut self, failing: &[TargetId], now: Instant) -> Vec<TargetId> {
        for &id in failing {
            let (at, pause) = self.0.entry(id).or_insert((now + PAUSE, PAUSE));
            // It was forgiven, and failed again soon.
            if *at + *pause < now {
                (*at, *pause) = (now + PAUSE, PAUSE);
            }
        }
        failing.iter().copied().filter(|id| self.0.get(id).is_some_and(|(at, _)| *at <= now)).collect()
    }

    /// One was tried: the next time is later.
    fn tried(&mut self, id: TargetId, now: Instant) {
        let (at, pause) = self.0.entry(id).or_insert((now, PAUSE));
        *pause = (*pause * 2).min(LONGEST_PAUSE);
        *at = now + *pause;
    }
}

/// The thread that tries them.
pub(crate) fn probe(fs: &Weak<FileSystem>) {
    let mut probes = Probes::default();
    loop {
        std::thread::sleep(TICK);
        let Some(fs) = fs.upgrade() else { return };
        if fs.is_closed() {
            return;
        }
        fs.beside("trying targets", || {
            let targets = &fs.store.targets;
            // One that still does what was given up is not asked for more.
            let failing = targets.ids().into_iter().filter(|&id| targets.error(id).is_some() && !targets.hangs(id));
            let failing: Vec<TargetId> = failing.collect();
            for id in probes.due(&failing, Instant::now()) {
                if fs.works(id) {
                    // It may have missed something.
                    fs.orphan_chunks.suspect(id);
                    targets.forgive(id);
                    if let Some(engine) = fs.role.owner() {
                        engine.journal.retry();
                    }
                }
                probes.tried(id, Instant::now());
            }
        });
    }
}

impl FileSystem {
    /// Whether something can be written to a target, durably.
    fn works(&self, id: TargetId) -> bool {
        // Two who try at the same time have different files.
        let file = TargetFile::NewChunk { set: PROBE_SET, position: fastrand::u16(..) };
        let done = self.store.targets.each([(0, id)], move |_, target: &dyn Target| {
            let written = target.write(file, 0, &[IoSlice::new(b"does it work?")]).and_then(|()| target.sync(file));
            let removed = target.remove(file);
            match written {
                // A full one works.
                Err(why) if matches!(why.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => removed,
                written => written.and(removed),
            }
        });
        done.iter().all(|(.., done)| done.is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_goes_on_failing_is_left_alone_for_longer() {
        let (mut probes, id, begun) = (Probes::default(), TargetId(3), Instant::now());
        let mut tries = Vec::new();
        for second in 0..1000 {
            let now = begun + Duration::from_secs(second);
            if probes.due(&[id], now) == [id] {
                probes.tried(id, now);
                tries.push(second);
            }
        }
        assert_eq!(tries[..8], [1, 3, 7, 15, 31, 61, 91, 121]);
        // One that worked for a long time is tried soon.
        let later = begun + Duration::from_secs(10_000);
        assert_eq!(probes.due(&[id], later), []);
        assert_eq!(probes.due(&[id], later + PAUSE), [id]);
    }
}

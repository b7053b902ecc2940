//! Probes failed targets from time to time, and uses them again when they work. So a file system
//! that was frozen for a while, or a server that was away, recovers without an operator. What the
//! targets missed stays in the repair queue.

use crate::FileSystem;
use crate::data::pauses::Pauses;
use plan::backoff::BackOff;
use plan::{Position, SetId, TargetId};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, Weak};
use std::thread::Builder;
use std::time::{Duration, Instant};
use volume::target::{Durable, Target, TargetFile};
use volume::{Targets, lock};

/// No chunk set has this number: files of it are probes of whether a target can be written.
pub const PROBE_SET: SetId = SetId(0);

/// How often failed targets are looked for.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// The back-off for a failed target: it is probed after this time, and after twice as long each
/// time that it soon fails again.
const PAUSES: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(30);

/// When to probe the failed targets.
#[derive(Debug, Default)]
struct Probes(BTreeMap<TargetId, BackOff>);

impl Probes {
    /// The failing targets that are due for a probe.
    fn due(&mut self, failing: &[TargetId], now: Instant) -> Vec<TargetId> {
        for &id in failing {
            let known = self.0.entry(id).or_insert_with(|| BackOff::after(None, PAUSES, now));
            // Reset the back-off, unless the target was used again and failed again soon.
            if known.is_old(1, now) {
                *known = BackOff::after(None, PAUSES, now);
            }
        }
        failing.iter().copied().filter(|id| self.0.get(id).is_some_and(|known| known.is_due(now))).collect()
    }

    /// Records a probe: the next one is later.
    fn tried(&mut self, id: TargetId, now: Instant) {
        let known = self.0.entry(id).or_insert_with(|| BackOff::after(None, PAUSES, now));
        *known = BackOff::after(Some(*known), PAUSES, now);
    }
}

/// The thread that probes failed targets.
pub(crate) fn probe(fs: &Weak<FileSystem>, pauses: &Pauses) {
    probe_by(fs, pauses, works);
}

/// Each probe has a thread of its own: a target that hangs delays no other one.
fn probe_by(
    fs: &Weak<FileSystem>,
    pauses: &Pauses,
    works: impl Fn(&Targets, TargetId) -> bool + Clone + Send + 'static,
) {
    let (mut probes, running) = (Probes::default(), Arc::<Mutex<BTreeSet<TargetId>>>::default());
    let is_open = |fs: &Arc<FileSystem>| !fs.is_closed();
    while pauses.pause(CHECK_INTERVAL) {
        // A target that hangs keeps no file system open.
        let Some(targets) = fs.upgrade().filter(is_open).map(|fs| fs.store.targets.clone()) else { return };
        // Do not probe a target that is still busy with requests that timed out.
        let is_idle = |id: &TargetId| !targets.hangs(*id) && !lock(&running).contains(id);
        let failing = targets.ids().into_iter().filter(|id| targets.error(*id).is_some() && is_idle(id));
        for id in probes.due(&failing.collect::<Vec<_>>(), Instant::now()) {
            probes.tried(id, Instant::now());
            lock(&running).insert(id);
            let (fs, works) = (fs.clone(), works.clone());
            let (targets, its) = (targets.clone(), running.clone());
            let begun = Builder::new().spawn(move || {
                let works = FileSystem::beside_without(&fs, "trying a target", || works(&targets, id));
                lock(&its).remove(&id);
                if let Some(fs) = fs.upgrade().filter(|fs| works == Some(true) && is_open(fs)) {
                    fs.beside("using a target again", || fs.forgive(id));
                }
            });
            // The system has no more threads. It is tried again later.
            if begun.is_err() {
                lock(&running).remove(&id);
            }
        }
    }
}

/// Whether a target can be written durably.
fn works(targets: &Targets, id: TargetId) -> bool {
    // Two probes at the same time use different files.
    let file = TargetFile::NewChunk { set: PROBE_SET, position: Position(fastrand::u16(..)) };
    let done = targets.each([(0, id)], move |_, target: &dyn Target| {
        let written =
            target.write(file, 0, &[IoSlice::new(b"does it work?")], Durable::Later).and_then(|_| target.sync(file));
        let removed = target.remove(file);
        match written {
            // A full target works.
            Err(why) if matches!(why.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => removed,
            written => written.and(removed),
        }
    });
    done.iter().all(|(.., done)| done.is_ok())
}

impl FileSystem {
    /// Uses a target that failed and works again.
    fn forgive(&self, id: TargetId) {
        // The target may have missed deletions.
        self.orphan_chunks.suspect(id);
        self.store.targets.forgive(id);
        if let Some(engine) = self.role.owner() {
            engine.journal.retry();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Lab;
    use std::sync::mpsc::channel;

    /// As disks that hang: the volume was given away meanwhile.
    #[test]
    fn probes_that_hang_delay_no_other_one_and_keep_no_file_system_open() {
        let fs = Lab::new("rs:2+1", 4).open();
        let (weak, targets) = (Arc::downgrade(&fs), fs.store.targets.clone());
        let ((began, begins), (release, released)) = (channel(), channel::<()>());
        let (probed, released) = (weak.clone(), Arc::new(Mutex::new(released)));
        let probing = std::thread::spawn(move || {
            probe_by(&probed, &Pauses::default(), move |_, id| {
                let _ = (began.send(id), lock(&released).recv());
                false
            });
        });
        let (start, mut begun) = (Instant::now(), BTreeSet::new());
        while begun.len() < 2 {
            begun.extend(begins.try_iter());
            // The thread of the file system may be faster, and forgives them.
            [2, 3].into_iter().for_each(|id| targets.failed(TargetId(id), &io::Error::other("a bad block")));
            assert!(start.elapsed() < Duration::from_secs(60), "nothing is probed");
            std::thread::sleep(Duration::from_millis(20));
        }
        fs.abandon();
        drop(fs);
        while weak.strong_count() > 0 {
            assert!(start.elapsed() < Duration::from_secs(120), "the probe holds the file system");
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(release);
        probing.join().unwrap();
    }

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
        // A target that worked for a long time is probed soon.
        let later = begun + Duration::from_secs(10_000);
        assert_eq!(probes.due(&[id], later), []);
        assert_eq!(probes.due(&[id], later + *PAUSES.start()), [id]);
    }
}

//! Keeps a recent status of the volume for monitoring, so that a reader does not wait for targets.

use crate::maintenance::presence::Astray;
use crate::{FileSystem, Status, now};
use plan::{Domain, SetId, TargetId};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use volume::{TargetHealth, lock};

/// How often the status is taken.
const STATUS_INTERVAL: Duration = Duration::from_secs(10);
/// Taking it uses at most one part in this many of the time.
const SHARE: u32 = 20;
/// How soon the thread notices that the volume was closed.
const CLOSE_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// The known state of a target, without asking it.
#[derive(Clone, Debug)]
pub struct KnownTarget {
    /// Its number.
    pub id: TargetId,
    /// Where it is.
    pub path: PathBuf,
    /// Its failure domain.
    pub domain: Option<Domain>,
    /// Its health; None if it was never found.
    pub health: Option<TargetHealth>,
}

/// What was found when the volume was looked at.
#[derive(Debug, Default)]
pub(crate) struct Census {
    /// The last status of the volume, with its time in seconds since 1970.
    last: Mutex<Option<(i64, Arc<Status>)>>,
    /// Chunks that the last look at their sets did not find.
    pub(super) astray: Mutex<Astray>,
}

impl FileSystem {
    /// Starts a background thread that takes the status regularly.
    pub fn watch_status(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        std::thread::spawn(move || watch(&weak));
    }

    /// The last status and its time, in seconds since 1970.
    pub fn last_status(&self) -> Option<(i64, Arc<Status>)> {
        lock(&self.census.last).clone()
    }

    /// All targets of the volume, including missing ones.
    pub fn known_targets(&self) -> Vec<KnownTarget> {
        let mut health = self.known_health();
        let label = self.volume.label();
        let known = label.members().map(|member| KnownTarget {
            id: member.id,
            path: member.path.clone(),
            domain: member.domain(),
            health: health.iter().position(|it| it.id == member.id).map(|place| health.swap_remove(place)),
        });
        known.collect()
    }
}

fn watch(fs: &Weak<FileSystem>) {
    let (mut next, mut next_set) = (Instant::now(), SetId::default());
    loop {
        let Some(open) = fs.upgrade().filter(|fs| !fs.is_closed()) else { return };
        if Instant::now() >= next {
            let begun = Instant::now();
            // While the metadata cannot be read, readers get the old status with its age.
            if let Some(Ok(status)) = open.beside("looking at the volume", || open.glance(&mut next_set)) {
                *lock(&open.census.last) = Some((now().seconds, Arc::new(status)));
            }
            next = Instant::now() + STATUS_INTERVAL.max(begun.elapsed() * SHARE);
        }
        drop(open);
        std::thread::sleep(CLOSE_CHECK_INTERVAL);
    }
}

//! What a status found a while ago, for monitoring: who asks for that waits for nothing.

use crate::mutex::lock;
use crate::{FileSystem, Status, now};
use plan::{Domain, TargetId};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use volume::TargetHealth;

/// How often the volume is looked at.
const LOOK: Duration = Duration::from_secs(10);
/// It takes this part of the time at most.
const SHARE: u32 = 20;
/// How soon the end of the volume is noticed.
const TICK: Duration = Duration::from_millis(200);

/// A target, as far as it is known without asking anybody.
#[derive(Clone, Debug)]
pub struct KnownTarget {
    /// Its number.
    pub id: TargetId,
    /// Where it is.
    pub path: PathBuf,
    /// What it fails together with.
    pub domain: Option<Domain>,
    /// How it is; None when it was never found.
    pub health: Option<TargetHealth>,
}

impl FileSystem {
    /// From now on, has the volume looked at in the background.
    pub fn watch_status(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        std::thread::spawn(move || watch(&weak));
    }

    /// What was found when the volume was last looked at, and when, in seconds since 1970.
    pub fn last_status(&self) -> Option<(i64, Arc<Status>)> {
        lock(&self.counts.census).clone()
    }

    /// All targets of the volume, those too that are not there.
    pub fn known_targets(&self) -> Vec<KnownTarget> {
        let mut health = self.known_health();
        let label = self.volume.label();
        let known = label.members().map(|member| KnownTarget {
            id: member.id,
            path: member.path.clone(),
            domain: member.domain.clone(),
            health: health.iter().position(|it| it.id == member.id).map(|place| health.swap_remove(place)),
        });
        known.collect()
    }
}

fn watch(fs: &Weak<FileSystem>) {
    let mut next = Instant::now();
    loop {
        let Some(open) = fs.upgrade().filter(|fs| !fs.is_closed()) else { return };
        if Instant::now() >= next {
            let begun = Instant::now();
            // While the metadata cannot be read, what was known is told, with its age.
            if let Some(Ok(status)) = open.beside("looking at the volume", || open.status()) {
                *lock(&open.counts.census) = Some((now().seconds, Arc::new(status)));
            }
            next = Instant::now() + LOOK.max(begun.elapsed() * SHARE);
        }
        drop(open);
        std::thread::sleep(TICK);
    }
}

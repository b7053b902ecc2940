//! Begins a rebalancing by itself where a process has the volume open for long, and goes on with
//! one that was interrupted.

use crate::data::pauses::Pauses;
use crate::{Error, FileSystem, Result};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use volume::Control;

/// How often the thread looks.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long after a change of the targets it is looked whether a rebalancing is due: more changes
/// may follow.
const SETTLE_TIME: Duration = Duration::from_secs(10);
/// How often it is looked without a change.
const SURVEY_INTERVAL: Duration = Duration::from_secs(30 * 60);
/// After one that left something undone, the next one waits.
const RETRY_PAUSE: Duration = Duration::from_secs(60);
/// It begins by itself when a target is that far from its goal, as a part of its capacity.
const TOLERANCE: f64 = 0.05;

/// What is known of the need for a rebalancing.
struct Need {
    /// The generation of the label at the last look, and when it was another.
    label: (u64, Instant),
    /// When to look again.
    next: Instant,
    not_before: Option<Instant>,
}

/// The thread; it acts only where `rebalance_by_itself` was called.
pub(crate) fn watch(fs: &Weak<FileSystem>, pauses: &Pauses) {
    let mut need: Option<Need> = None;
    while pauses.pause(LOOK_INTERVAL) {
        let Some(fs) = fs.upgrade().filter(|fs| !fs.is_closed()) else { return };
        if !fs.rebalancing.by_itself.load(Ordering::Relaxed) {
            continue;
        }
        let now = Instant::now();
        let need = need.get_or_insert_with(|| Need {
            label: (fs.volume.label().generation, now),
            next: now + SETTLE_TIME,
            not_before: None,
        });
        fs.beside("rebalancing", || fs.rebalance_if_due(need));
    }
}

impl FileSystem {
    /// From now on, rebalancings begin and go on by themselves in this process, if the volume is
    /// not set otherwise.
    pub fn rebalance_by_itself(&self) {
        self.rebalancing.by_itself.store(true, Ordering::Relaxed);
    }

    /// Whether a rebalancing that is asked for runs in the background of this process.
    pub fn rebalances_by_itself(&self) -> bool {
        self.rebalancing.by_itself.load(Ordering::Relaxed)
    }

    fn rebalance_if_due(&self, need: &mut Need) {
        let now = Instant::now();
        let generation = self.volume.label().generation;
        if generation != need.label.0 {
            need.label = (generation, now);
            need.next = now + SETTLE_TIME;
        }
        if need.not_before.is_some_and(|then| now < then) {
            return;
        }
        match self.is_due(need, now) {
            Ok(true) => {}
            Ok(false) => return,
            Err(why) => {
                need.not_before = Some(now + RETRY_PAUSE);
                return self.volume.warn(&format!("cannot look whether to rebalance: {why}"));
            }
        }
        let done = self.rebalance(&Arc::<Control>::default());
        let whole = match done {
            Ok(done) => {
                if done.chunks > 0 || done.failed.0 > 0 {
                    let failed = done.failed.1.map_or_else(String::new, |why| {
                        format!("; chunk sets that could not be moved: {}: {why}", done.failed.0)
                    });
                    let line =
                        format!("chunks moved to even out the targets: {}, of {} bytes", done.chunks, done.bytes);
                    self.volume.warn(&format!("{line}{failed}"));
                }
                done.failed.0 == 0
            }
            // It was told to stop, or to go on with another limit.
            Err(Error::Volume(volume::Error::Interrupted)) => return,
            Err(why) => {
                self.volume.warn(&format!("cannot rebalance: {why}"));
                false
            }
        };
        need.not_before = (!whole).then(|| Instant::now() + RETRY_PAUSE);
        need.next = Instant::now() + SURVEY_INTERVAL;
    }

    fn is_due(&self, need: &mut Need, now: Instant) -> Result<bool> {
        let setting = self.rebalance_setting()?;
        if setting.paused {
            return Ok(false);
        }
        if setting.begun {
            return Ok(true);
        }
        if setting.by_hand || now < need.next {
            return Ok(false);
        }
        need.next = now + SURVEY_INTERVAL;
        let outlook = self.survey()?.outlook();
        Ok(outlook.most_above > TOLERANCE || outlook.most_below > TOLERANCE || outlook.must_chunks > 0)
    }
}

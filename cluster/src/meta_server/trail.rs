//! A standby follows the holder's journal, on a thread of its own, so that the index in its volume
//! directory is warm when it takes over. It reads targets and changes none. The index is closed
//! before this process opens the volume, also while a target hangs.

use super::entrance::Entrance;
use crate::places::ClusterPlaces;
use crate::ranks::{StandbyCourse, StandbyIndex, StandbyWalk};
use meta::journal::{FollowOptions, Follower, Hint, MirrorTarget, Shelf};
use plan::TxId;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use volume::ranked::Ranked;

/// How often the end of the journal is read. A limited amount is read at a time, so this limits the
/// requests of a standby behind a busy holder, too.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The wait after a failure.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// How long that may go on before there is a warning: a holder that has just begun shows nothing
/// yet.
const WARN_AFTER: Duration = Duration::from_secs(5);
/// How often the index is made durable. What it lacks after that is read again.
const INDEX_SYNC_INTERVAL: Duration = Duration::from_secs(2);
/// The least time between two looks at all files of the targets.
const MIN_LISTING_INTERVAL: Duration = Duration::from_secs(2);
/// How long a target may take to answer.
const TARGET_TIMEOUT: Duration = Duration::from_secs(5);
/// Changes in memory, in bytes.
const BATCH_BYTES: usize = 4 << 20;

/// What to follow.
pub(super) struct Course {
    pub volume: [u8; 16],
    /// How many targets may be lost.
    pub losses: usize,
    pub places: Vec<MirrorTarget>,
    /// The number and the id of the highest epoch that a claim names.
    pub epoch: Option<(u64, u128)>,
}

/// Follows the holder while there is one.
pub(super) struct Trail {
    directory: PathBuf,
    entrance: Arc<Entrance>,
    places: Arc<ClusterPlaces>,
    walk: Ranked<Option<Arc<Walk>>, StandbyWalk>,
}

/// One thread that follows.
struct Walk {
    course: Ranked<Course, StandbyCourse>,
    ended: AtomicBool,
    shelf: Ranked<Option<Arc<Shelf>>, StandbyIndex>,
}

impl Trail {
    pub fn new(directory: &Path, entrance: Arc<Entrance>, places: Arc<ClusterPlaces>) -> Self {
        Self { directory: directory.to_path_buf(), entrance, places, walk: Ranked::default() }
    }

    /// Another server has the volume: follows it, from now on by this course.
    pub fn follow(&self, course: Course) {
        let mut walk = self.walk.lock();
        if let Some(walk) = &*walk {
            *walk.course.lock() = course;
            return;
        }
        let new =
            Arc::new(Walk { course: Ranked::new(course), ended: AtomicBool::new(false), shelf: Ranked::default() });
        *walk = Some(new.clone());
        let (directory, entrance, places) = (self.directory.clone(), self.entrance.clone(), self.places.clone());
        std::thread::spawn(move || new.run(&directory, &entrance, &places));
    }

    /// Ends that. Afterwards the index is closed, unless it is being cleared; then it is worth
    /// nothing, and an opening makes another one.
    pub fn stop(&self) {
        let Some(walk) = self.walk.lock().take() else { return };
        walk.ended.store(true, Ordering::SeqCst);
        let shelf = walk.shelf.lock().take();
        shelf.iter().for_each(|shelf| shelf.close());
        self.entrance.progress.lock().0.applied = None;
    }
}

impl Walk {
    fn is_over(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    fn run(&self, directory: &Path, entrance: &Entrance, places: &ClusterPlaces) {
        let (mut failing, warnings) = (None, fs::Warnings::default());
        while !self.is_over() {
            // What it has of the journal stays as after an error: it is read again.
            let follow = || self.follow(directory, entrance);
            let followed = places.stores().caught("following the holder", |line| tracing::error!("{line}"), follow);
            if let Err(why) = followed.unwrap_or_else(|| Err(fs::Error::Invalid("a defect".into())))
                && !self.is_over()
            {
                let now = Instant::now();
                if entrance.progress.lock().0.applied.is_some() {
                    // It followed until now.
                    failing = Some(now);
                } else if now.duration_since(*failing.get_or_insert(now)) > WARN_AFTER
                    && let Some(line) = warnings.line(&format!("this standby cannot follow the holder: {why}"), now)
                {
                    tracing::warn!("{line}");
                }
                self.tell(entrance, None);
                std::thread::sleep(RETRY_PAUSE);
            }
        }
    }

    /// Follows until it is over.
    fn follow(&self, directory: &Path, entrance: &Entrance) -> fs::Result<()> {
        let Some(shelf) = self.open(directory)? else { return Ok(()) };
        let (volume, losses) = {
            let course = self.course.lock();
            (course.volume, course.losses)
        };
        let (batch_bytes, delay, pause, deadline) =
            (BATCH_BYTES, INDEX_SYNC_INTERVAL, MIN_LISTING_INTERVAL, TARGET_TIMEOUT);
        let options = FollowOptions { volume, losses, batch_bytes, delay, pause, deadline };
        let mut follower = Follower::new(options, shelf).map_err(meta::Error::from)?;
        while !self.is_over() {
            let (places, epoch) = {
                let course = self.course.lock();
                (course.places.clone(), course.epoch)
            };
            let last = entrance.progress.lock().1;
            let more = follower.step(&places, &Hint { epoch, last }).map_err(meta::Error::from)?;
            self.tell(entrance, follower.position());
            if !more {
                std::thread::sleep(POLL_INTERVAL);
            }
        }
        Ok(())
    }

    /// Opens the index, unless it is over already.
    fn open(&self, directory: &Path) -> fs::Result<Option<Arc<Shelf>>> {
        let mut shelf = self.shelf.lock();
        if let Some(before) = shelf.take() {
            before.close();
        }
        if !self.is_over() {
            *shelf = Some(Arc::new(Shelf::new(fs::standby_index(directory)?)));
        }
        Ok(shelf.clone())
    }

    fn tell(&self, entrance: &Entrance, applied: Option<TxId>) {
        let mut progress = entrance.progress.lock();
        if !self.is_over() {
            progress.0.applied = applied;
        }
    }
}

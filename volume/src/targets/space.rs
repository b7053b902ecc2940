//! The space on the targets: all are asked at once, and the answers are kept for a moment.

use super::batch::{self, Batch};
use super::{Entry, Targets, lock};
use crate::target::Space;
use plan::TargetId;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a reported free space, or the lack of an answer, remains valid.
const SPACE_VALID_FOR: Duration = Duration::from_millis(50);
const SILENCE_LASTS: Duration = Duration::from_secs(5);
/// How long a target that rejected a write for lack of space counts as full, whatever it reports.
const FULL_LASTS: Duration = Duration::from_secs(30);

/// The space on a target, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedSpace {
    /// The target.
    pub id: TargetId,
    /// The last reported space; None if the target never reported any.
    pub space: Option<Space>,
    /// Whether that report is current.
    pub answer: Answer,
}

/// Whether a target reports its space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It does.
    Given,
    /// It has not answered for this long, which says nothing about its space.
    Awaited(Duration),
    /// The target is missing.
    None,
}

/// What a target reported of its space.
#[derive(Debug, Default)]
pub(super) struct SpaceReport {
    /// The last answer and when it came; without a space, the target did not answer.
    answer: Mutex<Option<(Instant, Option<Space>)>>,
    /// The last space that the target ever reported.
    last: Mutex<Option<Space>>,
    /// Since when it has not answered requests for its space.
    silent: Mutex<Option<Instant>>,
    /// The last request for its space failed.
    absent: AtomicBool,
    /// When a write last failed for lack of space.
    full: Mutex<Option<Instant>>,
}

impl SpaceReport {
    /// The last answer, if it is still valid.
    fn valid(&self) -> Option<io::Result<Space>> {
        match *lock(&self.answer) {
            Some((when, Some(space))) if when.elapsed() < SPACE_VALID_FOR => Some(Ok(space)),
            Some((when, None)) if when.elapsed() < SILENCE_LASTS => Some(Err(io::ErrorKind::TimedOut.into())),
            _ => None,
        }
    }

    fn note(&self, found: &io::Result<Space>) {
        self.absent.store(found.is_err(), Ordering::Relaxed);
        let now = Instant::now();
        let silence = found.as_ref().is_err_and(|why| why.kind() == io::ErrorKind::TimedOut);
        {
            let mut silent = lock(&self.silent);
            *silent = if silence { silent.or(Some(now)) } else { None };
        }
        *lock(&self.answer) = match found {
            Ok(space) => Some((now, Some(*space))),
            Err(_) if silence => Some((now, None)),
            Err(_) => None,
        };
        if let Ok(space) = found {
            *lock(&self.last) = Some(*space);
        }
    }

    /// Records that the target did not answer a request sent at `asked`, unless it has answered
    /// since.
    fn note_silence(&self, asked: Instant) {
        let answered = matches!(*lock(&self.answer), Some((when, Some(_))) if when >= asked);
        if !answered {
            self.note(&Err(io::ErrorKind::TimedOut.into()));
        }
    }

    /// Records that a write failed for lack of space.
    pub fn note_full(&self) {
        *lock(&self.full) = Some(Instant::now());
    }

    /// Whether the last request failed.
    pub fn is_absent(&self) -> bool {
        self.absent.load(Ordering::Relaxed)
    }

    /// The space of the last answer, however old it is.
    pub fn known(&self) -> Option<Space> {
        lock(&self.answer).and_then(|(_, space)| space)
    }

    /// Whether the target never reported its space.
    pub fn is_new(&self) -> bool {
        lock(&self.last).is_none()
    }
}

impl Entry {
    /// The space that the target reported last, if the report is still valid.
    fn known_space(&self) -> Option<io::Result<Space>> {
        // All its threads hang: another request would hang, too.
        if self.pool.is_stuck() {
            lock(&self.space.silent).get_or_insert_with(Instant::now);
            return Some(Err(io::ErrorKind::TimedOut.into()));
        }
        self.space.valid()
    }
}

impl Targets {
    /// The space on a target, at most a moment old.
    ///
    /// # Errors
    /// If the target is missing or does not answer.
    pub fn space(&self, id: TargetId) -> io::Result<Space> {
        self.spaces_of(&[id], false).pop().map_or(Err(io::ErrorKind::NotFound.into()), |(_, found)| found)
    }

    /// The space on all targets that answer. With `fresh`, recent reports do not count. All targets
    /// are asked at the same time, so several that hang delay the caller no longer than one.
    pub fn spaces(&self, fresh: bool) -> Vec<(TargetId, Space)> {
        let all = self.spaces_of(&self.ids(), fresh).into_iter();
        all.filter_map(|(id, found)| Some((id, found.ok()?))).collect()
    }

    fn spaces_of(&self, ids: &[TargetId], fresh: bool) -> Vec<(TargetId, io::Result<Space>)> {
        let mut batch = Batch::new();
        let mut all: BTreeMap<TargetId, io::Result<Space>> = BTreeMap::new();
        for &id in ids {
            let Some(entry) = self.entry(id) else { continue };
            match entry.known_space().filter(|known| !fresh || known.is_err()) {
                Some(known) => _ = all.insert(id, known),
                None => {
                    let weak = Arc::downgrade(&entry);
                    batch.run(self, usize::from(id.0), id, move |target| {
                        let found = target.space();
                        // Record the answer even if the caller gave up: a late target has answered
                        // then.
                        if let Some(entry) = weak.upgrade() {
                            entry.space.note(&found);
                        }
                        found
                    });
                }
            }
        }
        let (most, asked) = (batch.waiting.len().div_ceil(2), batch.begun);
        // A target that never answered may be overloaded, as all are on a busy machine: a late
        // answer does not mean that it hangs.
        batch.spares_new = true;
        for (_, id, found) in batch.collect_while(|took| plan::late::straggler_timeout(took, most, most, self.deadline))
        {
            if let Some(entry) = self.entry(id).filter(|_| batch::is_late(&found)) {
                entry.space.note_silence(asked);
            }
            all.insert(id, found);
        }
        all.into_iter().collect()
    }

    /// The space on all targets as far as it is known, including targets that do not answer. With
    /// `fresh`, recent reports do not count.
    pub fn reported_spaces(&self, fresh: bool) -> Vec<ReportedSpace> {
        let reported = |(id, found): (TargetId, io::Result<Space>)| {
            let entry = self.entry(id)?;
            let answer = match &found {
                Ok(_) => Answer::Given,
                Err(why) if why.kind() == io::ErrorKind::TimedOut => {
                    Answer::Awaited(lock(&entry.space.silent).map_or(Duration::ZERO, |since| since.elapsed()))
                }
                Err(_) => Answer::None,
            };
            let space = found.ok().or(*lock(&entry.space.last));
            Some(ReportedSpace { id, space, answer })
        };
        self.spaces_of(&self.ids(), fresh).into_iter().filter_map(reported).collect()
    }

    /// Whether a target recently rejected a write for lack of space.
    pub fn was_full(&self, id: TargetId) -> bool {
        self.entry(id).is_some_and(|entry| lock(&entry.space.full).is_some_and(|when| when.elapsed() < FULL_LASTS))
    }
}

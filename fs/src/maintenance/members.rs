//! The membership of the targets. [`plan::membership`] decides it; this module reports observations
//! and the time to it.

use crate::volume::label::Role;
use crate::{FileSystem, Result};
use plan::TargetId;
use plan::membership::{Membership, StateChange, TargetState};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use volume::{Control, lock};

/// The membership of the targets of a volume, if it is watched.
#[derive(Debug, Default)]
pub(crate) struct Members(Mutex<Option<Watched>>);

#[derive(Debug)]
struct Watched {
    begun: Instant,
    membership: Membership,
}

impl Members {
    /// The state of a target, and for how long; None while the membership is not watched.
    pub fn state(&self, id: TargetId) -> Option<(TargetState, Duration)> {
        let watched = lock(&self.0);
        let Watched { begun, membership } = watched.as_ref()?;
        let (state, since) = membership.state(id)?;
        Some((state, begun.elapsed().saturating_sub(since)))
    }

    /// Begins to watch. A target that is silent for `down_out` is out.
    fn begin(&self, down_out: Duration) {
        let new = || Watched { begun: Instant::now(), membership: Membership::new(down_out) };
        lock(&self.0).get_or_insert_with(new);
    }

    /// Calls `work` with the membership and the time, if it is watched.
    fn with<T>(&self, work: impl FnOnce(&mut Membership, Duration) -> T) -> Option<T> {
        let mut watched = lock(&self.0);
        let Watched { begun, membership } = watched.as_mut()?;
        Some(work(membership, begun.elapsed()))
    }
}

/// The result of a look at the targets.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Changes of state.
    pub changes: Vec<StateChange>,
    /// Targets whose chunks must be rebuilt on others now.
    pub to_repair: Vec<TargetId>,
}

impl FileSystem {
    /// Begins to watch the membership; `look_at_members` must be called regularly. A target that is
    /// silent for `down_out` is out.
    pub fn watch_members(&self, down_out: Duration) {
        self.members.begin(down_out);
    }

    /// Checks which targets are present.
    pub fn look_at_members(&self) -> Seen {
        let label = self.volume.label();
        let all: Vec<(TargetId, bool)> =
            label.members().map(|member| (member.id, member.role == Role::Draining)).collect();
        // This takes as long as a hanging target, so do it without the lock of the membership.
        let absent = self.absent_targets();
        let seen = self.members.with(|membership, now| {
            membership.handle_members(&all, now);
            for &(id, _) in &all {
                if absent.contains(&id) {
                    membership.handle_silence(id, now);
                } else {
                    membership.handle_answer(id, now);
                }
            }
            let to_repair = membership.poll_repair(now);
            Seen { changes: std::iter::from_fn(|| membership.poll_change()).collect(), to_repair }
        });
        seen.unwrap_or_default()
    }

    /// Whether the volume goes on without a target.
    pub(crate) fn is_out(&self, id: TargetId) -> bool {
        self.members.state(id).is_some_and(|(state, _)| state == TargetState::Out)
    }

    /// Rebuilds what was on targets that are out. Targets for which something failed are tried
    /// again later.
    ///
    /// # Errors
    /// When it was cancelled or the metadata cannot be written. A chunk set that cannot be repaired
    /// is part of the result.
    pub fn repair_without(&self, out: &[TargetId], control: &Control) -> Result<crate::Repaired> {
        let begun = self.members.with(|_, now| now).unwrap_or_default();
        let done = self.repair(control);
        if !matches!(done, Err(crate::Error::Volume(volume::Error::Interrupted))) {
            let whole = done.as_ref().is_ok_and(|done| done.failed.is_empty());
            self.members.with(|membership, now| membership.handle_repair(out, begun, whole, now));
        }
        done
    }
}

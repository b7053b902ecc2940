//! Who of the targets is there, as [`plan::membership`] decides it: this tells it what is seen, with the time.

use crate::mutex::lock;
use crate::volume::label::Role;
use crate::{FileSystem, Result};
use plan::TargetId;
use plan::membership::{Change, Membership, State};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use volume::Control;

/// The targets of a volume that somebody looks after.
#[derive(Debug, Default)]
pub(crate) struct Members(Mutex<Option<Watched>>);

#[derive(Debug)]
struct Watched {
    begun: Instant,
    membership: Membership,
}

impl Members {
    /// How a target is, and for how long; None where nobody looks.
    pub fn state(&self, id: TargetId) -> Option<(State, Duration)> {
        let watched = lock(&self.0);
        let Watched { begun, membership } = watched.as_ref()?;
        let (state, since) = membership.state(id)?;
        Some((state, begun.elapsed().saturating_sub(since)))
    }

    /// Begins to look after them. Those that are silent for `down_out` are counted out.
    fn begin(&self, down_out: Duration) {
        let new = || Watched { begun: Instant::now(), membership: Membership::new(down_out) };
        lock(&self.0).get_or_insert_with(new);
    }

    /// Does something with the membership, and the time, if it was begun.
    fn with<T>(&self, work: impl FnOnce(&mut Membership, Duration) -> T) -> Option<T> {
        let mut watched = lock(&self.0);
        let Watched { begun, membership } = watched.as_mut()?;
        Some(work(membership, begun.elapsed()))
    }
}

/// What was seen of the targets.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// What became of them.
    pub changes: Vec<Change>,
    /// Those whose chunks are to be made again on others now.
    pub to_repair: Vec<TargetId>,
}

impl FileSystem {
    /// From now on it is known which targets are there and since when, as long as somebody looks at them. Those that are silent for `down_out` are
    /// counted out.
    pub fn watch_members(&self, down_out: Duration) {
        self.members.begin(down_out);
    }

    /// Looks which targets are there.
    pub fn look_at_members(&self) -> Seen {
        let label = self.volume.label();
        let all: Vec<(TargetId, bool)> =
            label.members().map(|member| (member.id, member.role == Role::Draining)).collect();
        // It takes as long as a target that hangs; nobody waits for the membership meanwhile.
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

    /// Makes again what was on targets that are out. They are tried again later if something cannot be.
    ///
    /// # Errors
    /// When it was cancelled or the metadata cannot be written; a chunk set that cannot be repaired is in the result.
    pub fn repair_without(&self, out: &[TargetId]) -> Result<crate::Repaired> {
        let done = self.repair(&Control::default());
        let whole = done.as_ref().is_ok_and(|done| done.failed.is_empty());
        self.members.with(|membership, now| membership.handle_repair(out, whole, now));
        done
    }
}

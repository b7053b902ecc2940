//! Rejoins targets that were missing when the volume was opened: they are used as soon as they are
//! there, without an operator. Targets that were found and failed later are probed by `probe.rs`.

use crate::volume::find::open_target;
use crate::volume::label::{Member, Role};
use crate::{FileSystem, Result};
use plan::TargetId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::{Duration, Instant};
use volume::lock;
use volume::target::Target;

/// The interval between two searches for a missing target.
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);

/// Targets that are being searched for, and the time of the next search for the others.
#[derive(Debug, Default)]
pub(crate) struct Rejoins {
    busy: Mutex<BTreeSet<TargetId>>,
    next: Mutex<BTreeMap<TargetId, Instant>>,
}

impl Rejoins {
    /// Whether to search for a target now.
    fn is_due(&self, id: TargetId, now: Instant) -> bool {
        let due = lock(&self.next).get(&id).is_none_or(|next| now >= *next);
        due && lock(&self.busy).insert(id)
    }

    fn looked(&self, id: TargetId, now: Instant) {
        lock(&self.next).insert(id, now + SEARCH_INTERVAL);
        lock(&self.busy).remove(&id);
    }
}

impl FileSystem {
    /// Searches for missing targets, without waiting for them.
    pub(crate) fn rejoin_targets(self: &Arc<Self>) {
        let label = self.volume.label();
        for member in label.members() {
            let id = member.id;
            if self.store.targets.get(id).is_some() || !self.rejoins.is_due(id, Instant::now()) {
                continue;
            }
            let (search, member, fs) = (self.search(member), member.clone(), Arc::downgrade(self));
            let begun = Builder::new().spawn(move || {
                // A directory may hang for ever, which keeps no file system open.
                let found = Self::beside_without(&fs, "looking for a target", search);
                let Some(fs) = fs.upgrade() else { return };
                // The status shows that the target is missing.
                if let Some(Ok(target)) = found
                    && !fs.is_closed()
                {
                    let _ = fs.beside("using a target again", || fs.rejoin(&member, target));
                }
                fs.rejoins.looked(member.id, Instant::now());
            });
            // The system has no more threads.
            if begun.is_err() {
                self.rejoins.looked(id, Instant::now());
            }
        }
        self.watch_votes();
    }

    /// How to look for a missing target, without the file system.
    fn search(&self, member: &Member) -> impl FnOnce() -> Result<Arc<dyn Target>> + Send + use<> {
        let find = self.client().map(|client| client.find.clone());
        let (places, volume, member) = (self.volume.places.clone(), self.volume.label().volume, member.clone());
        move || match find {
            Some(find) => find(&member),
            None => Ok(open_target(&*places, &member.path, &volume, Some(member.id))?.0),
        }
    }

    /// Uses a target that was missing and is there.
    fn rejoin(&self, member: &Member, target: Arc<dyn Target>) -> Result<()> {
        let (id, targets) = (member.id, &self.store.targets);
        // A change of the targets must not leave this one out, nor this search the new one.
        let _alone = self.volume.changing.lock();
        let label = self.volume.label();
        let Some(member) = label.members().find(|member| member.id == id) else { return Ok(()) };
        let engine = self.role.owner().filter(|_| !self.is_read_only());
        // It must be claimed before it is used: a claimed target refuses all other openings.
        let moved = engine.map_or(Ok(()), |_| self.tell_journal(Some((id, target.clone()))));
        targets.add(id, target);
        self.volume.missing.lock().remove(&id);
        if member.role != Role::Active {
            self.store.close_target(id, true);
        }
        self.volume.warn(&format!("target {} is there again", id.0));
        if let Some(engine) = engine {
            self.votes.were_away([id]);
            moved?;
            self.orphan_chunks.suspect(id);
            engine.journal.retry();
        }
        Ok(())
    }
}

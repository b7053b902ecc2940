//! Changes the targets of a volume: adds and replaces them.

use crate::maintenance::repair::Repaired;
use crate::volume::find::open_target;
use crate::volume::label::{Label, Member, Role};
use crate::volume::membership::{is_known, is_same_set, too_few, write_pointer};
use crate::{Error, FileSystem, Result};
use plan::placement::Placement;
use plan::topology::{Coordinates, Places, Torus};
use plan::{Domain, Position, TargetId};
use std::path::{Path, PathBuf};
use volume::Control;
use volume::target::TargetFile;

impl FileSystem {
    /// The member at a path.
    pub(super) fn member(&self, path: &Path) -> Result<Member> {
        let label = self.volume.label();
        let wanted = self.volume.places.full(path).unwrap_or_else(|_| path.to_path_buf());
        let same = |member: &&Member| member.path == wanted || member.path == path;
        label.members().find(same).cloned().ok_or_else(|| {
            let known: Vec<String> = label.members().map(|m| volume::Shown(&m.path).to_string()).collect();
            Error::NotFound(format!(
                "{} is not a target of this volume; it has {}",
                volume::Shown(path),
                known.join(", ")
            ))
        })
    }

    /// Changes the label everywhere: first on the targets that can be reached, then in the pointer.
    pub(super) fn relabel(&self, change: impl FnOnce(&mut Label)) -> Result<()> {
        let epoch = self.engine()?.journal.status().epoch;
        // Others may read the label while a target that hangs keeps this one waiting.
        let _one_at_a_time = self.volume.relabelling.lock();
        let old = self.volume.label();
        let mut new = old.clone();
        change(&mut new);
        new.set_format();
        new.generation = old.next_generation(epoch);
        if !is_same_set(&new.voters(), &old.voters()) {
            new.before = old.voters();
        }
        let targets = &self.store.targets;
        let there = new.members().map(|member| member.id).filter(|&id| targets.is_usable(id)).collect();
        let (written, failed) = new.write_to(targets, there);
        for (id, why) in &failed {
            self.volume.warn(&format!("cannot write the label of target {}: {why}", id.0));
        }
        let losses = self.store.options.code.shape().m;
        if !is_known(&new, &old.voters(), &written, losses) {
            let count = new.voters().iter().filter(|id| written.contains(id)).count();
            // The next opening would find it and complete the change.
            let old = Label { generation: new.generation + 1, ..old };
            old.write_to(targets, written);
            *self.volume.label.lock() = old;
            return Err(too_few(count, losses, &failed));
        }
        if !new.before.is_empty() {
            // It is in effect. Who does not get this counts the voters before it, too.
            new.before.clear();
            new.generation += 1;
            for (id, why) in new.write_to(targets, written).1 {
                self.volume.warn(&format!("cannot write the label of target {}: {why}", id.0));
            }
        }
        // From here on nothing may fail: who votes is settled.
        if let Some(directory) = &self.volume.directory
            && let Err(why) = write_pointer(&new, directory)
        {
            // The targets tell of the label, too.
            self.volume.warn(&why.to_string());
        }
        self.engine()?.journal.set_label(new.generation, new.voters().len());
        self.store.set_topology(&new);
        self.volume.places.arrange(&new.domains());
        *self.volume.label.lock() = new;
        Ok(())
    }

    /// Sets the failure domain of a target; None makes it its own domain. Existing chunks stay
    /// where they are. New chunk sets and repairs use the new domain.
    ///
    /// # Errors
    /// When it is not a target of the volume, or the label cannot be written.
    pub fn set_domain(&self, path: &Path, domain: Option<Domain>) -> Result<()> {
        self.writable()?;
        let _one_at_a_time = self.volume.changing.lock();
        let member = self.member(path)?;
        self.relabel(|label| {
            label
                .targets
                .iter_mut()
                .filter(|other| other.id == member.id)
                .for_each(|other| other.domain.clone_from(&domain));
        })?;
        self.settle_votes();
        self.store.seal_open()
    }

    /// How new chunk sets are placed.
    pub fn placement(&self) -> Placement {
        self.volume.label().placement
    }

    /// Sets how new chunk sets are placed.
    ///
    /// # Errors
    /// When the label cannot be written.
    pub fn set_placement(&self, placement: Placement) -> Result<()> {
        self.writable()?;
        if !placement.scoring().is_sound() {
            return Err(Error::Invalid("the scores of such coefficients say nothing".into()));
        }
        self.relabel(|label| label.placement = placement)?;
        self.store.seal_open()
    }

    /// The torus of the volume, and where the targets are in it.
    pub fn torus(&self) -> Option<Places> {
        self.volume.label().places()
    }

    /// Gives the volume a torus, or its servers other places in it. Those that are not named stay
    /// where they are, or get the next free places.
    ///
    /// # Errors
    /// When there are too few places, a place cannot be, or the label cannot be written.
    pub fn set_torus(&self, torus: Option<Torus>, at: &[(PathBuf, Coordinates)]) -> Result<()> {
        self.writable()?;
        let _one_at_a_time = self.volume.changing.lock();
        let mut label = self.volume.label();
        label.set_torus(torus, at, &*self.volume.places)?;
        self.relabel(|new| (new.torus, new.targets) = (label.torus, label.targets))?;
        self.store.seal_open()
    }

    /// Takes the torus away: all servers are as near to each other again.
    ///
    /// # Errors
    /// When the label cannot be written.
    pub fn forget_torus(&self) -> Result<()> {
        self.writable()?;
        self.relabel(Label::forget_torus)?;
        self.store.seal_open()
    }

    /// Adds a directory to the targets, in this domain or in the one that its server reports. New
    /// chunk sets use it at once.
    ///
    /// # Errors
    /// When it is already a target, of this volume or another, or cannot be written.
    pub fn add_target(&self, path: &Path, domain: Option<Domain>) -> Result<TargetId> {
        self.add_target_at(path, domain, None)
    }

    /// The same at a place in the volume's torus; without one, it is the place of its server, or
    /// the next one that is free.
    ///
    /// # Errors
    /// As [`Self::add_target`]; also when it cannot be there, or no place is free.
    pub fn add_target_at(&self, path: &Path, domain: Option<Domain>, at: Option<&Coordinates>) -> Result<TargetId> {
        self.add_member(path, domain, at, None)
    }

    fn add_member(
        &self,
        path: &Path,
        domain: Option<Domain>,
        at: Option<&Coordinates>,
        replaces: Option<TargetId>,
    ) -> Result<TargetId> {
        self.writable()?;
        let _one_at_a_time = self.volume.changing.lock();
        let places = &*self.volume.places;
        let path: PathBuf = places.full(path)?;
        let label = self.volume.label();
        let number = label.targets.iter().map(|member| member.id.0 + 1).max().unwrap_or(0);
        let id = TargetId(number);
        let new = Member { replaces, ..Member::new(id, path.clone()) };
        let at = label.place_for(&new, at, places)?;
        let domain = domain.map_or_else(|| places.domain(&path), |domain| Ok(Some(domain)))?;
        let disk = places.format(&path)?;
        let first = Label { generation: 0, ..label.clone() };
        let failed = |why| Error::Invalid(format!("cannot write to {}: {why}", volume::Shown(&path)));
        let journal = &self.engine()?.journal;
        journal.claim_new(&*disk).and_then(|()| first.write(&*disk, id)).map_err(failed)?;
        drop(disk);
        let (disk, _) = open_target(places, &path, &label.volume, Some(id))?;
        journal.claim_new(&*disk).map_err(failed)?;
        self.store.targets.add(id, disk.clone());
        let mut member = Member { domain, at, votes: false, ..new };
        let mut with = label.clone();
        with.targets.push(member.clone());
        member.votes = self.wanted_voters(&with).contains(&id);
        if let Err(why) = self.relabel(|label| label.targets.push(member)) {
            self.store.targets.remove(id);
            // It is no target. What else was written there, its owner removes.
            let _ = disk.remove(TargetFile::Label);
            return Err(match why {
                Error::Unavailable(why) => Error::Unavailable(format!("{why}, and empty {}", volume::Shown(&path))),
                why => why,
            });
        }
        self.tell_journal(None)?;
        self.settle_votes();
        self.store.seal_open()?;
        self.measure_space();
        Ok(id)
    }

    /// Moves everything to a new directory and removes the old one, which may be dead, from the
    /// volume. The new one is in the given domain, or else the one that its server reports, or else
    /// that of the old one.
    ///
    /// # Errors
    /// When the new one cannot be added, or something cannot be rebuilt.
    pub fn replace_target(
        &self,
        old: &Path,
        new: &Path,
        domain: Option<Domain>,
        control: &Control,
    ) -> Result<Repaired> {
        self.writable()?;
        let member = self.member(old)?;
        match self.member(new) {
            // An earlier call was interrupted after this step.
            Ok(there) if there.replaces == Some(member.id) => {}
            Ok(there) => {
                let shown = volume::Shown(&there.path);
                return Err(Error::Invalid(format!(
                    "{shown} is a target of this volume; the new one must be an empty directory with another path"
                )));
            }
            Err(_) => {
                let known = domain.map_or_else(|| self.volume.places.domain(new), |domain| Ok(Some(domain)))?;
                self.add_member(new, known.or(member.domain.clone()), None, Some(member.id))?;
            }
        }
        {
            let _alone = self.volume.changing.lock();
            if !self.volume.label().members().any(|other| other.id == member.id) {
                // An earlier call has finished meanwhile.
                return Ok(Repaired::default());
            }
            self.set_role(&[member.id], Role::Draining)?;
            self.store.close_target(member.id, true);
        }
        let mut done = self.leave(std::slice::from_ref(&member), control)?;
        // Positions that are queued or have no place may have waited for this target. Those that
        // must wait longer stay queued.
        let waiting = self.repair_where(control, |record, queued| {
            let waits = |position: &Position| record.places[position.index()].is_none() || queued.contains(position);
            Position::all(record.places.len()).filter(waits).collect()
        })?;
        done.add(Repaired { failed: Vec::new(), ..waiting });
        Ok(done)
    }

    pub(super) fn set_role(&self, ids: &[TargetId], role: Role) -> Result<()> {
        self.relabel(|label| {
            label.targets.iter_mut().filter(|member| ids.contains(&member.id)).for_each(|member| member.role = role);
        })
    }

    /// Removes targets from the volume that were being emptied and are empty.
    pub(crate) fn forget_drained(&self) -> Result<()> {
        if !self.volume.label().members().any(|member| member.role == Role::Draining) {
            return Ok(());
        }
        // Otherwise a call could use the target again, and put chunks on it, after it was found
        // empty.
        let _alone = self.volume.changing.lock();
        self.settle_votes();
        for member in self.volume.label().members().filter(|member| member.role == Role::Draining) {
            let id = member.id;
            if self.chunks_on(&[id])? > 0 {
                continue;
            }
            if self.store.targets.is_healthy(id) {
                // Remove orphan chunks of recently deleted sets, too: nothing looks at this target
                // later.
                self.orphan_chunks.suspect(id);
                self.remove_orphans_now()?;
            }
            // Move the metadata off the target before removing it.
            self.leave_journal(id)?;
            if let Err(why) = self.set_role(&[id], Role::Removed) {
                self.tell_journal(None)?;
                return Err(why);
            }
            // A target that is away keeps its label; the labels of the others show that it is
            // outdated.
            self.store.targets.each([(0, id)], |_, target| target.remove(TargetFile::Label));
            self.store.targets.remove(id);
            self.tell_journal(None)?;
        }
        self.settle_votes();
        Ok(())
    }
}

/// Waits until no process has the volume open, at most ten seconds.
pub fn wait_until_closed(directory: &Path) {
    for _ in 0..100 {
        if crate::volume::opened::lock(directory).is_ok() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Lab;
    use std::time::Duration;

    /// The end of a drain is held up after the target was found empty and before it is removed.
    #[test]
    fn what_is_used_again_is_not_taken_out() {
        let lab = Lab::new("rs:2+1", 4);
        let fs = lab.open();
        // All targets of the lab are at this path; it means the first of them.
        let (path, id) = (Path::new(""), TargetId(0));
        let held = fs.orphan_chunks.hold();
        std::thread::scope(|scope| {
            let drain = scope.spawn(|| fs.drain_target(path, &Control::default()));
            while !fs.orphan_chunks.is_suspected(id) {
                assert!(!drain.is_finished());
                std::thread::sleep(Duration::from_millis(1));
            }
            let undrain = scope.spawn(|| fs.undrain_target(path));
            // Gives the other thread the time to get in between, if it can.
            for _ in 0..100 {
                if undrain.is_finished() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            drop(held);
            let (drained, undrained) = (drain.join().unwrap(), undrain.join().unwrap());
            let label = fs.volume.label();
            let role = label.members().find(|member| member.id == id).map(|member| member.role);
            match undrained {
                Ok(()) => assert_eq!(role, Some(Role::Active), "it is used again, and was taken out: {drained:?}"),
                Err(_) => assert!(role.is_none() && drained.is_ok(), "{role:?} {drained:?}"),
            }
        });
        fs.close_volume().unwrap();
    }
}

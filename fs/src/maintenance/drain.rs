//! Drains: targets are emptied and leave the volume, one or many as one job.

use crate::data::space::balanced;
use crate::maintenance::repair::Repaired;
use crate::volume::label::{Member, Role};
use crate::{Error, FileSystem, Result};
use plan::placement::least_limit_of;
use plan::{Position, SetId, TargetId};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use volume::Control;

/// How long a drain waits for those who write to the targets while none of them moves on. A client
/// that does not answer loses its sets when its lease ends, which is sooner.
const MOVE_ON_TIMEOUT: Duration = Duration::from_secs(180);
const MOVE_ON_CHECK_INTERVAL: Duration = Duration::from_millis(200);

impl FileSystem {
    /// Moves everything from a target to the others and removes it from the volume. It can be
    /// interrupted and called again.
    ///
    /// # Errors
    /// When too few targets would be left, or a chunk has nowhere to go.
    pub fn drain_target(&self, path: &Path, control: &Control) -> Result<Repaired> {
        self.drain_targets(&[path.to_path_buf()], control)
    }

    /// The same for several targets: none of them gets what is moved away from the others.
    ///
    /// # Errors
    /// When what would be left is too little for the data or for the rule about domains, or a chunk
    /// has nowhere to go.
    pub fn drain_targets(&self, paths: &[PathBuf], control: &Control) -> Result<Repaired> {
        self.writable()?;
        let alone = self.volume.changing.lock();
        let members: Vec<Member> = paths.iter().map(|path| self.member(path)).collect::<Result<_>>()?;
        self.check_drain(&members)?;
        let ids: Vec<TargetId> = members.iter().map(|member| member.id).collect();
        self.set_role(&ids, Role::Draining)?;
        ids.iter().for_each(|&id| self.store.close_target(id, true));
        drop(alone);
        self.leave(&members, control)
    }

    /// Uses targets again that were being emptied: new chunk sets go to them, and their chunks
    /// stay.
    ///
    /// # Errors
    /// When one of them is not being emptied.
    pub fn undrain_targets(&self, paths: &[PathBuf]) -> Result<()> {
        self.writable()?;
        // A target that is empty and being removed must not be used again halfway.
        let _alone = self.volume.changing.lock();
        let members: Vec<Member> = paths.iter().map(|path| self.member(path)).collect::<Result<_>>()?;
        if let Some(member) = members.iter().find(|member| member.role != Role::Draining) {
            return Err(Error::Invalid(format!("{} is not being emptied", volume::Shown(&member.path))));
        }
        let ids: Vec<TargetId> = members.iter().map(|member| member.id).collect();
        self.set_role(&ids, Role::Active)?;
        ids.iter().for_each(|&id| self.store.close_target(id, false));
        Ok(())
    }

    /// The same for one target.
    ///
    /// # Errors
    /// When it is not being emptied.
    pub fn undrain_target(&self, path: &Path) -> Result<()> {
        self.undrain_targets(&[path.to_path_buf()])
    }

    /// The targets in a domain: `rack1` has those in `rack1/host3`, too.
    ///
    /// # Errors
    /// When no target is there.
    pub fn targets_in_domain(&self, domain: &str) -> Result<Vec<PathBuf>> {
        let label = self.volume.label();
        let is_in = |member: &&Member| {
            let path = member.domain().map(|domain| domain.to_string()).unwrap_or_default();
            path.strip_prefix(domain).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let found: Vec<PathBuf> = label.members().filter(is_in).map(|member| member.path.clone()).collect();
        if found.is_empty() {
            let known: BTreeSet<String> =
                label.members().filter_map(|member| Some(member.domain()?.to_string())).collect();
            let known: Vec<String> = known.into_iter().collect();
            return Err(Error::NotFound(format!(
                "no target of this volume is in the domain {domain}; it has {}",
                listed(&known)
            )));
        }
        Ok(found)
    }

    /// Refuses a drain after which the others could not have what is there.
    fn check_drain(&self, leaving: &[Member]) -> Result<()> {
        let label = self.volume.label();
        let leaves = |id: TargetId| leaving.iter().any(|member| member.id == id);
        let names: Vec<String> = leaving.iter().map(|it| volume::Shown(&it.path).to_string()).collect();
        let shape = self.store.options.code.shape();
        let others: Vec<&Member> = label.members().filter(|m| m.role == Role::Active && !leaves(m.id)).collect();
        if others.len() < shape.blocks() {
            return Err(Error::Invalid(format!(
                "too few targets would be left without {}: {}, and {} takes {}; add one first, or replace it",
                listed(&names),
                others.len(),
                label.code,
                shape.blocks()
            )));
        }
        // The chunks of a set in the fullest domain, with all targets that are used now and then.
        let topology = self.store.topology();
        let limit = |members: &mut dyn Iterator<Item = &Member>| {
            let candidates = members.map(|member| topology.candidate(member.id, 0, 0));
            least_limit_of(candidates, label.placement.domain_level, shape.blocks(), shape.m)
        };
        let now = limit(&mut label.members().filter(|member| member.role == Role::Active || leaves(member.id)));
        let then = limit(&mut others.iter().copied());
        if then > now.max(shape.m) {
            return Err(Error::Invalid(format!(
                "without {} a domain would have {then} chunks of a set, and {} survives the loss of {}: add targets in \
                 other domains first",
                listed(&names),
                label.code,
                shape.m
            )));
        }
        self.check_drain_space(leaving, &others, &names)
    }

    /// Refuses a drain for which the others have no space, with each chunk of a set on another one.
    /// Targets that share a file system with one that leaves have the space of its chunks, too.
    fn check_drain_space(&self, leaving: &[Member], others: &[&Member], names: &[String]) -> Result<()> {
        let (mut chunks, mut length): (BTreeMap<TargetId, u64>, u64) = (BTreeMap::new(), 0);
        self.each_set(|_, record| {
            let bytes = u64::from(record.length).max(volume::format::CHUNK_HEADER_BYTES as u64);
            length += bytes;
            record.places.iter().flatten().for_each(|id| *chunks.entry(*id).or_default() += bytes);
            Ok(())
        })?;
        let spaces: BTreeMap<TargetId, volume::target::Space> = self.store.targets.spaces(true).into_iter().collect();
        // Of each file system: the targets that stay, and what their chunks may take.
        let mut systems: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for member in others {
            let Some(space) = spaces.get(&member.id) else { continue };
            let (targets, bytes) = systems.entry(space.system).or_insert((0, space.free));
            *targets += 1;
            *bytes += chunks.get(&member.id).copied().unwrap_or(0);
        }
        for member in leaving {
            let system = spaces.get(&member.id).and_then(|space| systems.get_mut(&space.system));
            system.into_iter().for_each(|(_, bytes)| *bytes += chunks.get(&member.id).copied().unwrap_or(0));
        }
        let blocks = self.store.options.code.shape().blocks() as u64;
        let fits = balanced(&systems.into_values().collect::<Vec<_>>(), blocks);
        if fits < length {
            return Err(Error::Invalid(format!(
                "what is on {} does not fit on the other targets, with each chunk of a set on another one: up to {} \
                 bytes are missing there; add targets first, or remove files",
                listed(names),
                (length - fits) * blocks
            )));
        }
        Ok(())
    }

    /// Empties targets that get no new chunks. The repair removes each of them from the volume when
    /// it is empty. Those who write to them move on: the sets that this process writes are sealed,
    /// and clients learn of the drain and give theirs back.
    pub(super) fn leave(&self, members: &[Member], control: &Control) -> Result<Repaired> {
        let ids: Vec<TargetId> = members.iter().map(|member| member.id).collect();
        let mut done = Repaired::default();
        let (mut moved, mut busy) = (Instant::now(), BTreeSet::new());
        let mut left = usize::MAX;
        loop {
            let busy_before = self.written_on(&ids)?;
            // A set that cannot be synced now keeps its chunks where its writer looks for them.
            self.sync_written()?;
            // What failed is tried again.
            done.failed.clear();
            done.add(self.repair_where(control, |record, _| positions_on(record, &ids))?);
            if let Some(member) = members.iter().find(|member| !self.store.is_closed(member.id)) {
                return Err(Error::Invalid(format!("{} is used again", volume::Shown(&member.path))));
            }
            let now = self.chunks_on(&ids)?;
            if now == 0 {
                return Ok(done);
            }
            let progress = now < std::mem::replace(&mut left, now) || busy != busy_before;
            if progress {
                moved = Instant::now();
            }
            busy = busy_before;
            if busy.is_empty() && !progress || moved.elapsed() >= MOVE_ON_TIMEOUT {
                break;
            }
            let waits = Instant::now();
            while !busy.is_empty() && self.written_on(&ids)? == busy && waits.elapsed() < MOVE_ON_TIMEOUT {
                control.go_on()?;
                std::thread::sleep(MOVE_ON_CHECK_INTERVAL);
            }
        }
        let names: Vec<String> = members.iter().map(|it| volume::Shown(&it.path).to_string()).collect();
        let why = match done.failed.first() {
            Some((set, why)) => format!("; chunk set {set}: {why}"),
            None if !busy.is_empty() => {
                let all: Vec<String> = busy.iter().take(4).map(ToString::to_string).collect();
                format!(", as clients do not give back the chunk sets {}", listed(&all))
            }
            None => String::new(),
        };
        Err(Error::Invalid(format!("chunks that are still on {}: {left}{why}", listed(&names))))
    }

    /// The sets with chunks on these targets that somebody writes to, or may write to.
    fn written_on(&self, ids: &[TargetId]) -> Result<BTreeSet<SetId>> {
        let mut held = BTreeSet::new();
        self.each_set(|set, record| {
            if !positions_on(record, ids).is_empty() && self.is_busy(set) {
                held.insert(set);
            }
            Ok(())
        })?;
        Ok(held)
    }

    /// The number of chunks that should be on these targets.
    pub(super) fn chunks_on(&self, ids: &[TargetId]) -> Result<usize> {
        let mut chunks = 0;
        self.each_set(|_, record| {
            chunks += positions_on(record, ids).len();
            Ok(())
        })?;
        Ok(chunks)
    }
}

/// The positions of a set that are on these targets.
fn positions_on(record: &meta::SetRecord, ids: &[TargetId]) -> Vec<Position> {
    Position::placed(&record.places).filter(|(_, there)| ids.contains(there)).map(|(position, _)| position).collect()
}

/// Names in a sentence.
fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

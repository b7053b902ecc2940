//! Checks the metadata against the chunks, and rebuilds the metadata from the chunks.

use crate::data::manifest::File;
use crate::maintenance::chunk_contents::{Candidates, Finder, FoundSet, FoundStripe, files_of, first_gap, size_of};
use crate::maintenance::presence;
use crate::volume::create::random_id;
use crate::volume::find::{FoundTargets, find};
use crate::volume::label::Label;
use crate::volume::membership::write_pointer;
use crate::volume::opened::STRIPES_PER_OPENING;
use crate::volume::places::Places;
use crate::volume::voters::Voters;
use crate::{Error, FileSystem, OpenOptions, ROOT, Result};
use meta::{ContentEdit, FileKind, New, Resize, SetRecord};
use plan::{ExtentMap, ExtentPlace, Ino, Position, RecordOffset, SetId};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use volume::target::{Claim, ClaimRequest, Epoch, Target, TargetFile};

/// How often a comparison that found problems is repeated.
const MAX_REPEATED_COMPARISONS: usize = 2;

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// Files of any kind.
    pub files: usize,
    /// Their extents.
    pub extents: usize,
    /// Bytes of files that are in the metadata, not in stripes.
    pub inline_bytes: u64,
    /// Stripes.
    pub stripes: usize,
    /// Contradictions, one line each.
    pub problems: Vec<String>,
}

impl FileSystem {
    /// Checks the references of files against the chunk sets and the counts of references.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn check(&self) -> Result<Checked> {
        let mut found = self.compare()?;
        // The comparison is not a snapshot: data that is written or moved meanwhile looks wrong
        // once. A real problem is found again.
        for _ in 0..MAX_REPEATED_COMPARISONS {
            if found.problems.is_empty() {
                break;
            }
            let mut again = self.compare()?;
            again.problems.retain(|problem| found.problems.contains(problem));
            found = again;
        }
        let queue: BTreeMap<SetId, Vec<Position>> = self.engine()?.meta.repairs()?.into_iter().collect();
        let mut sets = Vec::new();
        self.each_set(|set, record| {
            sets.push((set, record.clone()));
            if sets.len() < presence::SETS_PER_CHECK {
                return Ok(());
            }
            self.check_chunks(&std::mem::take(&mut sets), &queue, &mut found)
        })?;
        self.check_chunks(&sets, &queue, &mut found)?;
        Ok(found)
    }

    /// Compares the references of files with the records of stripes.
    fn compare(&self) -> Result<Checked> {
        let mut found = Checked::default();
        let mut live: BTreeMap<(SetId, RecordOffset), (u32, i64)> = BTreeMap::new();
        self.engine()?.meta.each_file(|ino| -> Result<()> {
            let attributes = match self.meta.attributes(ino) {
                // The file was removed meanwhile.
                Err(meta::Error::NotFound) => return Ok(()),
                attributes => attributes?,
            };
            found.files += 1;
            let (mut end, mut allocated) = (0, 0);
            let mut rest = 0..u64::MAX;
            while !rest.is_empty() {
                let (extents, covered) = self.next_extents(ino, rest.clone())?;
                rest.start = covered.end;
                for extent in extents {
                    found.extents += 1;
                    if extent.offset < end {
                        found.problems.push(format!("inode {ino}: extents overlap at {}", extent.offset));
                    }
                    end = extent.end();
                    allocated += extent.length;
                    if let ExtentPlace::Bytes(bytes) = &extent.place {
                        found.inline_bytes += bytes.len() as u64;
                    }
                    if let ExtentPlace::Stripe(span) = extent.place {
                        let stripe = live.entry(span.stripe()).or_insert((span.block, 0));
                        stripe.1 += extent.length as i64;
                        if stripe.0 != span.block {
                            found
                                .problems
                                .push(format!("inode {ino}: a stripe of chunk set {} has two lengths", span.set));
                        }
                    }
                }
            }
            if attributes.kind == FileKind::File && allocated != attributes.allocated {
                let problem =
                    format!("inode {ino}: {allocated} bytes are allocated, its dinode says {}", attributes.allocated);
                found.problems.push(problem);
            }
            Ok(())
        })?;
        self.each_set(|set, _| {
            for (at, stripe) in self.engine()?.meta.stripes(set)? {
                found.stripes += 1;
                let referred = live.remove(&(set, at)).map_or(0, |(_, bytes)| bytes);
                if referred != stripe.live {
                    found.problems.push(format!(
                        "chunk set {set}, stripe at {at}: files refer to {referred} bytes of it, its record says {}",
                        stripe.live
                    ));
                }
            }
            Ok(())
        })?;
        for ((set, at), (_, bytes)) in live {
            found.problems.push(format!(
                "chunk set {set}, stripe at {at}: {bytes} bytes are referred to, and there is no such stripe"
            ));
        }
        Ok(found)
    }

    /// Checks that the chunks of these sets exist. Queues missing ones for repair where that is
    /// possible.
    fn check_chunks(
        &self,
        sets: &[(SetId, SetRecord)],
        queue: &BTreeMap<SetId, Vec<Position>>,
        found: &mut Checked,
    ) -> Result<()> {
        for (set, positions) in self.look_at(sets, queue)? {
            for (position, presence) in &positions {
                if let Some(what) = presence::problem(*presence) {
                    found.problems.push(format!("chunk set {set}, position {position}: {what}"));
                }
            }
            if !self.is_read_only() {
                self.meta
                    .queue_repair(set, &positions.into_iter().map(|(position, _)| position).collect::<Vec<_>>())?;
            }
        }
        Ok(())
    }
}

/// The result of a rebuild of the metadata.
#[derive(Clone, Debug, Default)]
pub struct Rebuilt {
    /// Files that were found.
    pub files: usize,
    /// Files without a known name among them.
    pub unnamed: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Chunk sets.
    pub sets: usize,
    /// What could not be restored, one line each. What is left of it stays on the targets.
    pub problems: Vec<String>,
    /// The number of further problems that are not listed.
    pub unlisted: usize,
}

/// The most problems that are listed.
const MAX_LISTED_PROBLEMS: usize = 1000;

impl Rebuilt {
    fn lost(&mut self, what: String) {
        if self.problems.len() < MAX_LISTED_PROBLEMS {
            self.problems.push(what);
        } else {
            self.unlisted += 1;
        }
    }

    /// Whether everything that had chunks was restored.
    pub fn is_whole(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Rebuilds the metadata of a volume from its chunks alone. Existing metadata on the targets is
/// removed.
///
/// # Errors
/// When the volume is open, or its targets cannot be read or written.
pub fn rebuild(directory: &Path, places: Arc<dyn Places>) -> Result<Rebuilt> {
    let pointer = Label::read_pointer(directory)?;
    let guard = crate::volume::opened::lock(directory)?;
    let mut found = find(&places, pointer)?;
    claim_all(&found)?;
    if Voters::of(&found.label).others > 0 {
        // Those that voted may be gone. Those that are there are enough for the journal.
        let label = &mut found.label;
        let away = found.missing.iter().map(|(id, _)| *id).collect();
        label.accept_loss(away);
        label.set_voters(&found.disks.keys().copied().collect());
        for (&id, target) in &found.disks {
            label.write(&**target, id).map_err(|why| Error::Invalid(format!("cannot write a label: {why}")))?;
        }
        write_pointer(label, directory)?;
    }
    for target in found.disks.values() {
        let files = target.list_metadata().map_err(|why| Error::Invalid(format!("cannot list a target: {why}")))?;
        for (file, _) in files {
            target.remove(file).map_err(|why| Error::Invalid(format!("cannot remove old metadata: {why}")))?;
        }
    }
    let _ = std::fs::remove_file(directory.join(crate::volume::opened::INDEX));
    crate::volume::create::begin(&found.label, found.disks.iter().map(|(&id, disk)| (id, disk.clone())).collect())?;
    drop(found);
    drop(guard);
    // A rebuild of the metadata takes all targets that are left.
    let fs = FileSystem::open_volume(directory, OpenOptions { places, accept_loss: true, ..OpenOptions::default() })?;
    let done = fs.take_in_chunks()?;
    fs.close_volume()?;
    Ok(done)
}

/// Claims the targets, above all earlier openings: a rebuild removes what these left.
fn claim_all(found: &FoundTargets) -> Result<()> {
    let unreadable = |why: std::io::Error| Error::Invalid(format!("cannot claim a target: {why}"));
    let mut claims = Vec::new();
    for target in found.disks.values() {
        claims.extend(target.claim(&ClaimRequest::Read).map_err(unreadable)?.claim);
    }
    let Some(newest) = claims.into_iter().max_by_key(|claim| claim.epoch.number) else { return Ok(()) };
    let epoch = Epoch { number: newest.epoch.number.saturating_add(1), id: u128::from_le_bytes(random_id()) };
    let claim = Claim { epoch, mirrors: Vec::new(), ..newest };
    let ask = ClaimRequest::Take { claim, lease: std::time::Duration::ZERO, blank: 0 };
    let claim = |target: &Arc<dyn Target>| {
        let blank = target.claim(&ask)?.blank;
        // What it lacks is made from chunks.
        if blank == 0 { Ok(()) } else { target.claim(&ClaimRequest::Whole { epoch, blank }).map(drop) }
    };
    found.disks.values().try_for_each(|target| claim(target).map_err(unreadable))
}

impl FileSystem {
    /// Creates the files that the manifests of all stripes name.
    fn take_in_chunks(&self) -> Result<Rebuilt> {
        let mut done = Rebuilt::default();
        let mut stripes = Vec::new();
        let mut sets: BTreeMap<SetId, Candidates> = BTreeMap::new();
        for member in self.volume.label().members() {
            let id = member.id;
            let Some(target) = self.store.targets.get(id) else {
                let why = self.problem(id).unwrap_or_else(|| "it is not there".into());
                let path = volume::Shown(&member.path);
                done.lost(format!("target {} at {path}: {why}; what is only there cannot be brought back", id.0));
                continue;
            };
            let files = target.list().map_err(|why| Error::Invalid(format!("cannot list target {}: {why}", id.0)))?;
            for (file, _) in files {
                if let TargetFile::Chunk { set, position } = file {
                    sets.entry(set).or_default().entry(position).or_default().push(id);
                }
            }
        }
        let mut finder = Finder {
            targets: &self.store.targets,
            volume: self.store.options.volume,
            code: self.store.options.code.spec().to_string(),
            codes: HashMap::new(),
        };
        for (&set, candidates) in &sets {
            stripes.extend(self.take_in_set(&mut finder, set, candidates, &mut done)?);
        }
        let last = sets.range(..=meta::MAX_SKIPPED).next_back().map_or_else(SetId::default, |(&set, _)| set);
        self.engine()?.meta.skip_sets(last)?;
        if let Some(last) = stripes.iter().map(|stripe| stripe.sequence).max() {
            let opening: u64 = self.engine()?.meta.setting("openings")?.unwrap_or(0);
            self.engine()?.meta.put_setting("openings", &opening.max(last.0 / STRIPES_PER_OPENING))?;
        }
        let files = files_of(stripes);
        let some_lost = !done.is_whole();
        for (ino, (map, file)) in files {
            let (path, size) = self.take_in_file(ino, &map, file, &mut done)?;
            // A hole looks the same, so report this only where something is lost.
            if let Some(gap) = first_gap(&map, size).filter(|_| some_lost) {
                done.lost(format!(
                    "{}: bytes {} to {} were not found and read as zeroes; they are lost, unless they were a hole",
                    volume::shown(&path),
                    gap.start,
                    gap.end
                ));
            }
        }
        self.sync_all()?;
        Ok(done)
    }

    /// The stripes of a set, which becomes known to the metadata.
    fn take_in_set(
        &self,
        finder: &mut Finder<'_>,
        set: SetId,
        candidates: &Candidates,
        done: &mut Rebuilt,
    ) -> Result<Vec<FoundStripe>> {
        let found = finder.set(set, candidates, |_, _, _| (), |what| done.lost(what))?;
        let Some(FoundSet { record, stripes, has_records, .. }) = found else { return Ok(Vec::new()) };
        // A set without stripes would be deleted as empty.
        if !stripes.is_empty() || !has_records {
            self.engine()?.meta.put_set(set, &record)?;
            done.sets += 1;
        }
        Ok(stripes)
    }

    /// Creates a file from extents; returns its path and its size.
    fn take_in_file(
        &self,
        ino: Ino,
        map: &ExtentMap,
        file: Option<File>,
        done: &mut Rebuilt,
    ) -> Result<(Vec<u8>, u64)> {
        let size = size_of(map, file.as_ref());
        let named = file.as_ref().map(|file| file.path.clone()).filter(|path| !path.is_empty());
        done.unnamed += usize::from(named.is_none());
        let path = named.unwrap_or_else(|| format!("lost+found/inode-{ino}").into_bytes());
        let new = |kind, mode| New { kind, mode, uid: 0, gid: 0, device: 0, link: Vec::new() };
        let mut names: Vec<&[u8]> = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).collect();
        let Some(last) = names.pop() else { return Ok((path, size)) };
        let mut parent = ROOT;
        for name in names {
            parent = match self.meta.lookup(parent, name) {
                Ok(there) => there.ino,
                Err(_) => self.make(parent, name, &new(FileKind::Directory, 0o755))?.ino,
            };
        }
        let mut wanted = new(FileKind::File, file.as_ref().map_or(0o600, |file| file.mode));
        if let Some(file) = &file {
            (wanted.uid, wanted.gid) = (file.uid, file.gid);
        }
        let mut made = self.make(parent, last, &wanted);
        let mut number = 1;
        // Two files had the name one after the other. The later number is the later file; keep
        // both.
        while matches!(made, Err(Error::Meta(meta::Error::Exists))) && number < 1000 {
            made = self.make(parent, &[last, format!(".{number}").as_bytes()].concat(), &wanted);
            number += 1;
        }
        let made = made?.ino;
        let ranges = map.within(&(0..size)).into_iter().map(|extent| (extent.range(), vec![extent])).collect();
        let modified = file.map(|file| file.modified);
        self.meta.change_content(made, &ContentEdit { ranges, resize: Resize::AtLeast(size), modified })?;
        done.files += 1;
        // Files have holes.
        done.bytes = done.bytes.saturating_add(size);
        Ok((path, size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::manifest::{self, Piece};
    use crate::testing::{Lab, make};
    use plan::TargetId;

    #[test]
    fn what_a_rebuild_cannot_use_is_a_loss() {
        let lab = Lab::new("rs:2+1", 4);
        let fs = lab.open();
        fs.write(make(&fs, "good"), 0, &[7; 100_000]).unwrap();
        fs.sync_all().unwrap();
        // Its manifest describes more bytes than the stripe has.
        let mut buffer = fs.store.pool.take();
        buffer.extend_from_slice(&[8; 5000]);
        let piece = Piece { ino: Ino(99), offset: 0, length: 5001, file: None };
        let (_, pin) = fs.append_stripe(buffer, &manifest::encode(&[piece])).unwrap();
        fs.store.sync().unwrap();
        drop(pin);
        let done = fs.take_in_chunks().unwrap();
        assert!(!done.is_whole() && done.files == 1, "{done:?}");
        let told = "its manifest does not fit its data; 5000 bytes of files cannot be brought back";
        assert!(done.problems.len() == 1 && done.problems[0].ends_with(told), "{done:?}");
        fs.abandon();

        let lab = Lab::new("rs:2+1", 4);
        let fs = lab.open();
        fs.write(make(&fs, "good"), 0, &[7; 100_000]).unwrap();
        fs.sync_all().unwrap();
        fs.store.targets.remove(TargetId(3));
        let done = fs.take_in_chunks().unwrap();
        assert!(!done.is_whole() && done.files == 1, "{done:?}");
        let told = done.problems.first().expect("it is told");
        assert!(told.starts_with("target 3 ") && told.ends_with("cannot be brought back"), "{done:?}");
        fs.abandon();
    }
}

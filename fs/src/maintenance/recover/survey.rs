//! Which chunks and fragments lie in some directories.

use crate::maintenance::chunk_contents::Candidates;
use crate::{Error, Result};
use ::volume::format::{ObjectId, VolumeId};
use ::volume::target::{Loose, TargetFile, stem};
use ::volume::{Control, FoundChunk, Identity, Shown, Targets, identify};
use plan::{Position, SetId, TargetId};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What lies in some directories.
#[derive(Debug, Default)]
pub struct Survey {
    /// The volumes of which chunks were found.
    pub volumes: BTreeMap<VolumeId, FoundVolume>,
    /// The objects of which fragments were found. Several may have the same name.
    pub objects: BTreeMap<(Vec<u8>, ObjectId), FoundObject>,
    /// Files that are called as fragments and say nothing, by the beginning of their names.
    called: BTreeMap<Vec<u8>, Vec<(Position, PathBuf)>>,
    /// What could not be read, one line each.
    pub problems: Vec<String>,
    /// Whether there are journals or snapshots: perhaps a volume can be opened.
    pub has_metadata: bool,
}

/// The fragments of an object.
#[derive(Debug, Default)]
pub struct FoundObject {
    /// Its fragments, and files that are called as if they were of it and say nothing themselves.
    pub fragments: Vec<(Position, PathBuf)>,
}

impl FoundObject {
    /// The directories that they are in.
    pub fn directories(&self) -> BTreeSet<&Path> {
        self.fragments.iter().filter_map(|(_, path)| path.parent()).collect()
    }
}

/// The chunks of a volume. Each that is found for the same set and position is on a target of its
/// own: the first ones on targets 0 to 255, by position, the second ones on the next 256.
#[derive(Debug, Default)]
pub struct FoundVolume {
    /// The number of chunk files.
    pub chunks: usize,
    /// How many of them have no sound header.
    pub headless: usize,
    /// How many of them were described when they were sealed.
    pub sealed: usize,
    loose: BTreeMap<TargetId, Loose>,
    pub(super) sets: BTreeMap<SetId, Candidates>,
    codes: BTreeMap<String, usize>,
    pub(super) records: BTreeMap<(SetId, TargetId), (usize, u64)>,
}

impl FoundVolume {
    /// The number of chunk sets.
    pub fn sets(&self) -> usize {
        self.sets.len()
    }

    /// The code of most chunks; empty if none says it.
    pub fn code(&self) -> &str {
        self.codes.iter().max_by_key(|(_, count)| **count).map_or("", |(code, _)| code)
    }

    /// The path of a chunk.
    pub(super) fn path(&self, set: SetId, position: Position, target: TargetId) -> &Path {
        let file = TargetFile::Chunk { set, position };
        self.loose.get(&target).and_then(|loose| loose.path(file)).unwrap_or(Path::new("?"))
    }

    /// The chunks as targets.
    pub(super) fn targets(&self) -> Targets {
        let targets = Targets::new();
        self.loose.iter().for_each(|(&id, loose)| targets.add(id, Arc::new(loose.clone())));
        targets
    }

    fn add(&mut self, chunk: FoundChunk, path: &Path) {
        let FoundChunk { set, position, code, sealed, is_headless, .. } = chunk;
        // Copies of a chunk beyond 256 are left out.
        let mut targets = (0..=u8::MAX).map(|copy| TargetId(u16::from(copy) << 8 | position.0));
        let file = TargetFile::Chunk { set, position };
        let Some(target) = targets.find(|id| self.loose.entry(*id).or_default().add(file, path)) else { return };
        self.chunks += 1;
        self.headless += usize::from(is_headless);
        self.sets.entry(set).or_default().entry(position).or_default().push(target);
        code.into_iter().for_each(|code| *self.codes.entry(code).or_default() += 1);
        if let Some(sealed) = sealed {
            self.sealed += 1;
            self.records.insert((set, target), sealed);
        }
    }
}

/// Looks at all files in and below the directories, but not below `without`.
///
/// # Errors
/// When one of the directories cannot be listed, or `Interrupted`. What cannot be read below them
/// is a problem of the survey.
pub fn survey(from: &[PathBuf], without: Option<&Path>, control: &Control) -> Result<Survey> {
    let mut found = Survey::default();
    let without = without.and_then(|path| path.canonicalize().ok());
    let mut seen = BTreeSet::new();
    for path in from {
        std::fs::read_dir(path).map_err(::volume::Error::io("list", path))?;
        let mut below = vec![path.clone()];
        while let Some(directory) = below.pop() {
            control.go_on()?;
            // The same directory may be given twice, or one and another below it.
            let real = directory.canonicalize().unwrap_or_else(|_| directory.clone());
            if Some(&real) == without.as_ref() || !seen.insert(real) {
                continue;
            }
            match std::fs::read_dir(&directory) {
                Ok(entries) => {
                    for entry in entries {
                        found.look_at(&directory, entry, &mut below);
                    }
                }
                Err(why) => found.problems.push(format!("cannot list {}: {why}", Shown(&directory))),
            }
        }
    }
    found.settle_called();
    Ok(found)
}

impl Survey {
    /// Fragments that do not say what they are: their records say whether they belong to an object
    /// that is called so.
    fn settle_called(&mut self) {
        for ((name, _), object) in &mut self.objects {
            object.fragments.extend(self.called.get(&stem(name)).into_iter().flatten().cloned());
        }
        let stems: BTreeSet<Vec<u8>> = self.objects.keys().map(|(name, _)| stem(name)).collect();
        let called = std::mem::take(&mut self.called).into_iter().filter(|(called, _)| !stems.contains(called));
        let lost = |(_, path): (Position, PathBuf)| {
            format!("{}: a fragment without a sound header or attributes", Shown(&path))
        };
        self.problems.extend(called.flat_map(|(_, fragments)| fragments).map(lost));
    }

    fn look_at(&mut self, directory: &Path, entry: std::io::Result<std::fs::DirEntry>, below: &mut Vec<PathBuf>) {
        let entry = match entry {
            Ok(entry) => entry,
            Err(why) => return self.problems.push(format!("cannot list {}: {why}", Shown(directory))),
        };
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => below.push(path),
            Ok(kind) if kind.is_file() => {
                let ending = path.extension().and_then(OsStr::to_str);
                self.has_metadata |= matches!(ending, Some("journal" | "snapshot"));
                match identify(&path) {
                    Ok(Identity::Chunk(chunk)) => self.volumes.entry(chunk.volume).or_default().add(chunk, &path),
                    Ok(Identity::Fragment { name, object, position }) => {
                        self.objects.entry((name, object)).or_default().fragments.push((position, path));
                    }
                    Ok(Identity::Called { stem, position }) => {
                        self.called.entry(stem).or_default().push((position, path));
                    }
                    Ok(Identity::Unknown) => {}
                    Err(why) => self.problems.push(format!("cannot read {}: {why}", Shown(&path))),
                }
            }
            Ok(_) => {}
            Err(why) => self.problems.push(format!("cannot look at {}: {why}", Shown(&path))),
        }
    }

    /// The volume with this id, or the only one; None when no chunk of any volume was found.
    ///
    /// # Errors
    /// When there are several and no id was given, or none with that id.
    pub fn volume(&self, id: Option<VolumeId>) -> Result<Option<&FoundVolume>> {
        match id {
            Some(id) => match self.volumes.get(&id) {
                Some(found) => Ok(Some(found)),
                None => Err(Error::NotFound("no chunk of that volume is there".into())),
            },
            None if self.volumes.len() > 1 => {
                Err(Error::Invalid(format!("there are chunks of {} volumes; choose one", self.volumes.len())))
            }
            None => Ok(self.volumes.values().next()),
        }
    }
}

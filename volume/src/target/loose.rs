//! Chunk files that lie anywhere, under any names, for reading only: what is left of a volume.

use super::claim::{ClaimRequest, ClaimState};
use super::{Allocation, Durable, Owner, Presence, ReadPart, Space, Target, TargetFile, Wait, open_regular};
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Files of a volume by what they are, wherever they lie. Nothing is changed.
#[derive(Clone, Debug, Default)]
pub struct Loose(BTreeMap<TargetFile, PathBuf>);

impl Loose {
    /// Says where a file lies. Returns whether none was known yet; the known one stays.
    pub fn add(&mut self, file: TargetFile, path: &Path) -> bool {
        let is_new = !self.0.contains_key(&file);
        self.0.entry(file).or_insert_with(|| path.into());
        is_new
    }

    /// Where a file lies.
    pub fn path(&self, file: TargetFile) -> Option<&Path> {
        self.0.get(&file).map(PathBuf::as_path)
    }

    fn known(&self, file: TargetFile) -> io::Result<&Path> {
        self.path(file).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn read_only<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl Target for Loose {
    fn write(&self, _: TargetFile, _: u64, _: &[IoSlice<'_>], _: Durable) -> io::Result<Duration> {
        read_only()
    }

    fn read(&self, file: TargetFile, parts: &mut [ReadPart<'_>], wait: Wait) -> io::Result<()> {
        wait.refuse_limit()?;
        super::read_parts(&open_regular(self.known(file)?)?, parts)
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn sync(&self, _: TargetFile) -> io::Result<Duration> {
        read_only()
    }

    fn allocate(&self, _: TargetFile, _: Allocation) -> io::Result<()> {
        read_only()
    }

    fn seal(&self, _: TargetFile) -> io::Result<()> {
        read_only()
    }

    fn rename(&self, _: TargetFile, _: TargetFile) -> io::Result<()> {
        read_only()
    }

    fn remove(&self, _: TargetFile) -> io::Result<()> {
        read_only()
    }

    fn list(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        self.0.iter().map(|(&file, path)| Ok((file, path.metadata()?.len()))).collect()
    }

    fn list_metadata(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        Ok(self.list()?.into_iter().filter(|(file, _)| file.is_metadata()).collect())
    }

    fn claim(&self, _: &ClaimRequest) -> io::Result<ClaimState> {
        read_only()
    }

    fn look(&self, files: &[TargetFile]) -> io::Result<Vec<Presence>> {
        let there = |file: &TargetFile| self.path(*file).is_some_and(Path::is_file);
        Ok(files.iter().map(|file| if there(file) { Presence::There } else { Presence::Absent }).collect())
    }

    fn space(&self) -> io::Result<Space> {
        Ok(Space::default())
    }

    fn owner(&self) -> Option<Owner<'_>> {
        None
    }
}

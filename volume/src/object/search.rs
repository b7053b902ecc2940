//! Looks through directories for the files that may be fragments of an object, and holds only those
//! open: there may be very many others.

use super::fragment::{FragmentCandidate, read_header};
use super::problems::{Collector, Problem, ProblemKind};
use crate::target::{Directory, FileName, open_regular, stem};
use crate::{Error, Result, Shown, shown};
use plan::Position;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// A reader may meet a writer that renames what it has just listed. Then it looks again, at most
/// this many times in all.
const MAX_SEARCHES: usize = 3;

/// A file by its name alone.
struct Entry {
    path: PathBuf,
    directory: usize,
    file_name: FileName,
}

/// Opens the directories. One that cannot be opened is a problem, unless there is no other.
pub(super) fn open(paths: &[PathBuf], problems: &Collector) -> Result<Vec<Option<Directory>>> {
    let mut opened = Vec::new();
    let mut first_error = None;
    for path in paths {
        match Directory::open(path) {
            Ok(directory) => opened.push(Some(directory)),
            Err(error) if error.is_of_open_files() => return Err(error),
            Err(error) => {
                problems.add(Problem::new(ProblemKind::Unreadable, path.clone(), None, error.to_string()));
                first_error.get_or_insert(error);
                opened.push(None);
            }
        }
    }
    match first_error {
        Some(error) if opened.iter().all(Option::is_none) => Err(error),
        None if opened.is_empty() => Err(Error::Invalid("no directory was given".into())),
        _ => Ok(opened),
    }
}

/// All chunk files, in the order of the directories. A directory that was given twice has its files
/// once.
fn list(directories: &[Option<Directory>], problems: &Collector) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut seen = BTreeSet::new();
    for (number, directory) in directories.iter().enumerate().filter_map(|(n, d)| d.as_ref().map(|d| (n, d))) {
        let path = directory.path();
        if !seen.insert(path.canonicalize().unwrap_or_else(|_| path.to_path_buf())) {
            continue;
        }
        match directory.chunk_files() {
            Ok(mut files) => {
                files.sort_by(|a, b| a.0.cmp(&b.0));
                let entry = |(name, file_name)| Entry {
                    path: path.join::<std::ffi::OsString>(name),
                    directory: number,
                    file_name,
                };
                entries.extend(files.into_iter().map(entry));
            }
            Err(error) => {
                problems.add(Problem::new(ProblemKind::Unreadable, path.to_path_buf(), None, error.to_string()));
            }
        }
    }
    entries
}

/// A file that cannot be read: which it is, and the position that its name gives.
pub(super) type Unreadable = ((u64, u64), Position);

/// What `candidates` finds.
pub(super) struct FoundFragments {
    pub candidates: Vec<FragmentCandidate>,
    /// Committed files of this name that cannot be read.
    pub unreadable: Vec<Unreadable>,
}

/// The files that may belong to the object of that name: by their file name, and, unless those are
/// all, by their header.
///
/// # Errors
/// When too many files are open: what is there cannot be told then.
pub(super) fn candidates(
    name: &[u8],
    directories: &[Option<Directory>],
    problems: &Collector,
) -> Result<FoundFragments> {
    let stem = stem(name);
    for look in 1.. {
        let entries = list(directories, problems);
        let (named, others): (Vec<Entry>, Vec<Entry>) = entries.into_iter().partition(|e| e.file_name.stem == stem);
        let (mut found, mut unreadable) = (Vec::new(), Vec::new());
        let mut vanished = false;
        for Entry { path, directory, file_name } in named {
            let (position, committed) = (file_name.position, file_name.written_by.is_none());
            match FragmentCandidate::open(path.clone(), directory, file_name) {
                Ok(candidate) => found.push(candidate),
                Err(Error::Io { source, .. })
                    if source.kind() == std::io::ErrorKind::NotFound && look < MAX_SEARCHES =>
                {
                    vanished = true;
                }
                Err(error) if error.is_of_open_files() => return Err(error),
                Err(error) if committed => {
                    let identity = path.metadata().map_or((0, 0), |found| (found.dev(), found.ino()));
                    unreadable.push((identity, position));
                    problems.add(Problem::new(ProblemKind::Unreadable, path, position, error.to_string()));
                }
                Err(_) => {}
            }
        }
        if vanished {
            continue;
        }
        if !whole(name, &found) {
            let renamed =
                others.into_iter().filter_map(|e| FragmentCandidate::open(e.path, e.directory, e.file_name).ok());
            found.extend(renamed.filter(|c| c.header.as_ref().is_ok_and(|header| header.name == name)));
            found.sort_by_key(|candidate| candidate.directory);
        }
        return Ok(FoundFragments { candidates: found, unreadable });
    }
    unreachable!("the last look takes what there is")
}

/// Whether all chunks of one object are among the files, each under its own name.
fn whole(name: &[u8], found: &[FragmentCandidate]) -> bool {
    let mut positions: BTreeMap<_, BTreeSet<Position>> = BTreeMap::new();
    for candidate in found.iter().filter(|c| c.file_name.written_by.is_none()) {
        if let Ok(header) = &candidate.header
            && header.name == name
            && header.position == candidate.file_name.position
        {
            let of = positions.entry((header.object, header.layout.blocks())).or_default();
            of.insert(header.position);
        }
    }
    positions.iter().any(|((_, blocks), there)| there.len() == *blocks)
}

/// The name of the only object there is.
pub(super) fn only_name(directories: &[Option<Directory>], problems: &Collector) -> Result<Vec<u8>> {
    let mut names: BTreeSet<Vec<u8>> = BTreeSet::new();
    for entry in list(directories, problems).into_iter().filter(|entry| entry.file_name.written_by.is_none()) {
        if let Ok(Ok(header)) = open_regular(&entry.path).and_then(|file| read_header(&file)) {
            names.insert(header.name);
        }
    }
    if names.len() > 1 {
        let some: Vec<String> = names.iter().take(10).map(|name| shown(name)).collect();
        let more = if names.len() > 10 { format!(" and {} more", names.len() - 10) } else { String::new() };
        return Err(Error::Invalid(format!("there are several objects, name one of them: {}{more}", some.join(", "))));
    }
    names.pop_first().ok_or_else(|| Error::NotFound(format!("there are no fragments in {}", listed(directories))))
}

/// The directories that are open, on one line.
pub(super) fn listed(directories: &[Option<Directory>]) -> String {
    let paths: Vec<String> = directories.iter().flatten().map(|d| Shown(d.path()).to_string()).collect();
    paths.join(", ")
}

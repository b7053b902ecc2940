//! Makes an object out of the fragments in some directories. The headers count; file names only
//! help to find them.
//!
//! Of several objects of one name (a replacement that was interrupted, old fragments that came
//! back) the newest with enough fragments is chosen. Everything else of that name is reported as a
//! problem.

use super::fragment::{Fragment, FragmentCandidate};
use super::problems::{Collector, Problem, ProblemKind};
use super::search::{self, FoundFragments, Unreadable, listed};
use super::survival::readable;
use crate::format::{FormatError, Header};
use crate::target::{Directory, Target, stem};
use crate::{Error, Result, Shown, shown};
use ec::Code;
use plan::Position;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An object and the fragments that were found.
#[derive(Debug)]
pub struct Object {
    /// What all its headers say; the position is that of any one of them.
    pub header: Header,
    /// Its code.
    pub code: Arc<dyn Code>,
    /// The files of each position; none where it is missing, several where there are copies.
    pub(super) fragments: Vec<Vec<Fragment>>,
    /// As they were given; none where one could not be opened.
    pub(super) directories: Vec<Option<Directory>>,
    /// The committed files that are called as its fragments, by device and inode, and the header of
    /// each; none where the system does not read it. Only these may be replaced.
    pub(super) seen: BTreeMap<(u64, u64), Option<HeaderRead>>,
    pub(super) problems: Collector,
}

/// What a file has where its header should be.
pub(super) type HeaderRead = std::result::Result<Header, FormatError>;

impl Object {
    /// The object's name as a path, to be shown or to be written to.
    pub fn name(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.header.name))
    }

    /// The same object, with the targets of its directories behind decorators.
    #[must_use]
    pub fn decorated(mut self, mut decorate: impl FnMut(Arc<dyn Target>) -> Arc<dyn Target>) -> Self {
        let directories = std::mem::take(&mut self.directories);
        self.directories = directories.into_iter().map(|it| it.map(|it| it.decorated(&mut decorate))).collect();
        self
    }

    /// The target that a fragment is read from.
    pub(super) fn target_of(&self, fragment: &Fragment) -> &dyn Target {
        self.directories[fragment.directory].as_ref().expect("it was found there").target()
    }

    /// The positions that have a file.
    pub(super) fn present(&self) -> Vec<usize> {
        (0..self.fragments.len()).filter(|&position| !self.fragments[position].is_empty()).collect()
    }

    /// How many stripes any file reaches into.
    pub(super) fn stored_stripes(&self) -> u64 {
        let layout = &self.header.layout;
        let longest = self.fragments.iter().flatten().filter_map(|f| f.file.metadata().ok()).map(|m| m.len()).max();
        let record = layout.record_offset(1) - layout.record_offset(0);
        longest.unwrap_or(0).saturating_sub(layout.record_offset(0)).div_ceil(record)
    }

    /// The memory that a reader of its stripes takes.
    pub(super) fn stripe_memory_bytes(&self) -> usize {
        let layout = &self.header.layout;
        let blocks = layout.blocks() + if self.code.systematic() { 0 } else { layout.k() };
        blocks * layout.record_bytes(0)
    }
}

/// Finds the object of that name, or the only one there is, in the directories.
///
/// # Errors
/// `NotFound` when there is no fragment of it, `Invalid` when there is no name and not exactly one
/// object.
pub fn find(name: Option<&OsStr>, directories: &[PathBuf]) -> Result<Object> {
    crate::allow_many_open_files();
    let problems = Collector::default();
    let directories = search::open(directories, &problems)?;
    let name = match name {
        Some(name) => name.as_bytes().to_vec(),
        None => search::only_name(&directories, &problems)?,
    };
    let found = search::candidates(&name, &directories, &problems)?;
    choose(&name, found, directories, problems)
}

/// The header with what differs between the fragments of one object taken out.
fn common(header: &Header) -> Header {
    Header { compatible: 0, position: Position(0), ..header.clone() }
}

fn choose(
    name: &[u8],
    found: FoundFragments,
    directories: Vec<Option<Directory>>,
    problems: Collector,
) -> Result<Object> {
    let FoundFragments { candidates, unreadable } = found;
    let stem = stem(name);
    let mut groups: Vec<(Header, BTreeSet<Position>)> = Vec::new();
    // Renaming the first fragment commits an object: from then on its other fragments count
    // although they still have temporary names. Before that, they are of no object.
    let committed: BTreeSet<_> = candidates
        .iter()
        .filter(|c| c.file_name.written_by.is_none())
        .filter_map(|c| c.header.as_ref().ok().map(|header| header.object))
        .collect();
    for header in candidates.iter().filter_map(|c| c.header.as_ref().ok()) {
        if header.name == name && committed.contains(&header.object) {
            let key = common(header);
            match groups.iter_mut().find(|(known, _)| *known == key) {
                Some((_, positions)) => _ = positions.insert(header.position),
                None => groups.push((key, BTreeSet::from([header.position]))),
            }
        }
    }
    let enough = |(header, positions): &(Header, BTreeSet<Position>)| {
        let have: Vec<usize> = positions.iter().map(|position| position.index()).collect();
        // A code that is not known here is an error only when nothing newer is there, so it counts
        // as any other.
        let known = code_of(header, &candidates);
        known.map_or(have.len() >= header.layout.k(), |code| readable(&*code, &header.layout, &have).is_ok())
    };
    let best = groups.iter().max_by_key(|group| {
        let (header, positions) = group;
        if enough(group) { (true, 0, header.created) } else { (false, positions.len(), header.created) }
    });
    let Some((header, _)) = best.cloned() else {
        return Err(none_found(name, &stem, &candidates, &directories));
    };
    let code = code_of(&header, &candidates)?;
    let mut seen: BTreeMap<_, _> = unreadable.iter().map(|&(identity, _)| (identity, None)).collect();
    let committed = |c: &&FragmentCandidate| c.file_name.written_by.is_none() && c.file_name.stem == stem;
    seen.extend(candidates.iter().filter(committed).filter_map(|c| Some((c.identity()?, Some(c.header.clone())))));
    let mut object = Object {
        seen,
        fragments: (0..header.layout.blocks()).map(|_| Vec::new()).collect(),
        header,
        code,
        directories,
        problems,
    };
    for candidate in candidates {
        sort_in(&mut object, candidate, &stem);
    }
    complain_of_gaps(&mut object, &unreadable);
    Ok(object)
}

fn none_found(name: &[u8], stem: &[u8], candidates: &[FragmentCandidate], directories: &[Option<Directory>]) -> Error {
    let damaged =
        candidates.iter().filter(|c| c.header.is_err() && c.file_name.stem == stem && c.file_name.written_by.is_none());
    let name = shown(name);
    match damaged.clone().next() {
        Some(FragmentCandidate { path, header: Err(why), .. }) if why.is_newer() => Error::Corrupt {
            path: path.clone(),
            what: format!("it was written by a newer weft, and no fragment of {name} can be read by this one: {why}"),
        },
        Some(FragmentCandidate { path, header: Err(why), .. }) => Error::Corrupt {
            path: path.clone(),
            what: format!("none of the {} fragments of {name} has a sound header: {why}", damaged.count()),
        },
        _ => Error::NotFound(format!("there is no fragment of {name} in {}", listed(directories))),
    }
}

fn code_of(header: &Header, candidates: &[FragmentCandidate]) -> Result<Arc<dyn Code>> {
    let path = || {
        let of = candidates.iter().find(|c| c.header.as_ref().is_ok_and(|h| h.object == header.object));
        of.map(|c| c.path.clone()).unwrap_or_default()
    };
    let corrupt = |what: String| Error::Corrupt { path: path(), what };
    let code =
        ec::parse(&header.code).map_err(|e| corrupt(format!("its code {:?} cannot be had: {e}", header.code)))?;
    let (shape, layout) = (code.shape(), &header.layout);
    if (shape.k, shape.m, code.unit()) != (layout.k(), layout.m(), layout.unit()) {
        return Err(corrupt(format!("its shape does not fit its code {}", header.code)));
    }
    Ok(code)
}

/// Puts a file where it belongs in the object, or says why it belongs nowhere.
fn sort_in(object: &mut Object, candidate: FragmentCandidate, stem: &[u8]) {
    let FragmentCandidate { path, file_name, header, file_bytes, .. } = &candidate;
    let committed = file_name.written_by.is_none();
    let ours = file_name.stem == stem;
    let named = |kind, position: Position, what: String| Problem::new(kind, path.clone(), position, what);
    let (position, mut sound) = match header {
        Ok(header) if common(header) == object.header => (header.position, true),
        Ok(header) if committed && (ours || header.name == object.header.name) => {
            let of = shown(&header.name);
            let newer = header.name == object.header.name && header.created > object.header.created;
            let what = if newer {
                format!("it belongs to a NEWER object {of} ({}), of which too few fragments are there", header.object)
            } else {
                format!("it belongs to another object, {of} ({})", header.object)
            };
            object.problems.add(named(ProblemKind::Foreign, file_name.position, what));
            return;
        }
        Ok(_) => return,
        Err(_) if !committed || !ours => return,
        Err(why) if why.is_newer() => {
            let what = format!("it was written by a newer weft: {why}");
            object.problems.add(named(ProblemKind::Header, file_name.position, what));
            return;
        }
        // The records still say what they are, and prove it.
        Err(why) => {
            object.problems.add(named(
                ProblemKind::Header,
                file_name.position,
                format!("the file header is damaged: {why}"),
            ));
            match candidate.position_by_records(object.header.object, &object.header.layout) {
                Some(position) => (position, false),
                None => return,
            }
        }
    };
    if !committed {
        object.problems.add(named(
            ProblemKind::Uncommitted,
            position,
            "its writer was interrupted before it had its name".into(),
        ));
        sound = false;
    } else if ours && file_name.position != position {
        let what = format!("its name says position {}, but it is position {position}", file_name.position);
        object.problems.add(named(ProblemKind::Misnamed, position, what));
    }
    let expected = object.header.layout.file_bytes();
    if *file_bytes > expected {
        object.problems.add(named(
            ProblemKind::Length,
            position,
            format!("there are {} bytes behind its end", file_bytes - expected),
        ));
        sound = false;
    }
    if let Some(first) = object.fragments[position.index()].first() {
        let what = format!("it is position {position}, as {} is", Shown(&first.path));
        object.problems.add(named(ProblemKind::Duplicate, position, what));
    }
    let FragmentCandidate { path, file, directory, header, .. } = candidate;
    let place = object.directories[directory].as_ref().expect("it was found there");
    let stored = match place.adopt(&path, position, file.clone()) {
        Ok(stored) => stored,
        Err(error) => {
            object.problems.add(Problem::new(ProblemKind::Unreadable, path, position, error.to_string()));
            return;
        }
    };
    let fragment = Fragment { path, file, stored, position, directory, headed: header.is_ok(), sound, committed };
    // Sound files come first, so that they are read first.
    let at = object.fragments[position.index()].partition_point(|other| other.sound >= sound);
    object.fragments[position.index()].insert(at, fragment);
}

fn complain_of_gaps(object: &mut Object, unreadable: &[Unreadable]) {
    let named = |position: Position| unreadable.iter().any(|&(_, of)| of == position);
    for (position, files) in Position::all(object.fragments.len()).zip(&object.fragments) {
        if files.is_empty() && !named(position) {
            object.problems.add(Problem::new(ProblemKind::Missing, None, position, "the fragment is missing"));
        }
    }
}

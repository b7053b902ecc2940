//! Writes the files of chunks.

use super::{FoundVolume, Recovered};
use crate::Result;
use crate::data::manifest::File as Described;
use crate::maintenance::chunk_contents::{Finder, files_of, first_gap, size_of};
use ::volume::format::{StripeHeader, VolumeId};
use ::volume::target::checksum_of_records;
use ::volume::{Control, SetLayout, Shown, Targets, lock, shown};
use plan::extent::pieces;
use plan::{Extent, ExtentMap, ExtentPlace, Ino, SetId, Span};
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

/// Bytes that are read at a time.
const READ_BYTES: usize = 4 << 20;
/// Where a read fails, what is left around the damage is looked for in pieces of at least so many
/// bytes.
const LEAST_READ_BYTES: usize = 64 << 10;
/// What is added to the name of a file of which something is lost.
const INCOMPLETE: &[u8] = b".incomplete";

/// A file that is to be written.
struct Wanted {
    ino: Ino,
    map: ExtentMap,
    file: Option<Described>,
    size: u64,
    /// Below the directory.
    path: Vec<u8>,
}

/// What is needed to read and write.
struct Work<'a> {
    targets: &'a Targets,
    layouts: &'a HashMap<SetId, SetLayout>,
    to: &'a Path,
    some_lost: bool,
    control: &'a Control,
    done: Mutex<Recovered>,
}

impl FoundVolume {
    /// Writes all files of which there is anything into the directory `to`.
    ///
    /// # Errors
    /// When nothing can be written there, or `Interrupted`. What cannot be recovered is a problem
    /// of the result.
    pub fn recover(&self, id: VolumeId, to: &Path, control: &Control) -> Result<Recovered> {
        let mut done = Recovered::default();
        let targets = self.targets();
        let mut finder = Finder { targets: &targets, volume: id, code: self.code().into(), codes: HashMap::new() };
        let (mut stripes, mut layouts) = (Vec::new(), HashMap::new());
        for (&set, candidates) in &self.sets {
            control.go_on()?;
            let mut notes = Vec::new();
            let found = finder.set(
                set,
                candidates,
                |position, target, records| {
                    if let Some(&sealed) = self.records.get(&(set, target))
                        && sealed != summary(records)
                    {
                        let path = Shown(self.path(set, position, target)).to_string();
                        notes.push(format!("{path}: {} of its {} records are sound", records.len(), sealed.0));
                    }
                },
                |what| done.lost(what),
            );
            notes.into_iter().for_each(|note| done.note(note));
            match found {
                Ok(Some(found)) => {
                    stripes.extend(found.stripes);
                    layouts.insert(set, found.layout);
                }
                Ok(None) => {}
                Err(why) => done.lost(format!("chunk set {set}: {why}")),
            }
        }
        let mut names = Names::default();
        let wanted: Vec<Wanted> = files_of(stripes)
            .into_iter()
            .map(|(ino, (map, file))| {
                let size = size_of(&map, file.as_ref());
                let path = names.give(ino, file.as_ref().map(|file| &*file.path), &mut done);
                Wanted { ino, map, file, size, path }
            })
            .collect();
        control.start(wanted.iter().map(|file| file.size).sum());
        let some_lost = !done.is_whole();
        let work = Work { targets: &targets, layouts: &layouts, to, some_lost, control, done: Mutex::new(done) };
        work.write_all(&wanted, &names.files)?;
        // Once for all files, which may be many and small.
        let synced = File::open(to).and_then(|directory| Ok(rustix::fs::syncfs(directory)?));
        synced.map_err(::volume::Error::io("sync", to))?;
        let mut done = work.done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        done.incomplete.sort_unstable();
        Ok(done)
    }
}

fn summary(records: &[StripeHeader]) -> (usize, u64) {
    (records.len(), checksum_of_records(records.iter().map(StripeHeader::checksum)))
}

/// The names that files get: those of their manifests where they are usable and free.
#[derive(Default)]
struct Names {
    files: BTreeSet<Vec<u8>>,
    directories: BTreeSet<Vec<u8>>,
}

impl Names {
    fn give(&mut self, ino: Ino, path: Option<&[u8]>, done: &mut Recovered) -> Vec<u8> {
        let named = path.and_then(usable).filter(|path| {
            let above = above(path);
            !self.directories.contains(path) && above.iter().all(|path| !self.files.contains(*path))
        });
        done.unnamed += usize::from(named.is_none());
        let path = named.unwrap_or_else(|| format!("lost+found/inode-{ino}").into_bytes());
        // Two files had the name one after the other. The later number is the later file.
        let numbered = |number: u32| [&*path, format!(".{number}").as_bytes()].concat();
        let is_free = |path: &Vec<u8>| !self.files.contains(path) && !self.directories.contains(path);
        let free = std::iter::once(path.clone()).chain((1..).map(numbered)).find(is_free).unwrap_or_default();
        above(&free).into_iter().for_each(|path| _ = self.directories.insert(path.to_vec()));
        self.files.insert(free.clone());
        free
    }
}

/// A path that leads nowhere else, as a manifest may be anybody's.
fn usable(path: &[u8]) -> Option<Vec<u8>> {
    let names: Vec<&[u8]> = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).collect();
    let is_name = |name: &&[u8]| !matches!(*name, b"." | b"..") && !name.contains(&0) && name.len() <= 255;
    (!names.is_empty() && names.iter().all(is_name)).then(|| names.join(&b'/'))
}

/// The directories above a file.
fn above(path: &[u8]) -> Vec<&[u8]> {
    (0..path.len()).filter(|&at| path[at] == b'/').map(|at| &path[..at]).collect()
}

impl Work<'_> {
    fn write_all(&self, wanted: &[Wanted], names: &BTreeSet<Vec<u8>>) -> Result<()> {
        let next = AtomicUsize::new(0);
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
        let work = || {
            while let Some(file) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.write(file, names)?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let ended =
                all.into_iter().map(|thread| thread.join().unwrap_or_else(|why| std::panic::resume_unwind(why)));
            ended.collect::<Vec<Result<()>>>().into_iter().collect()
        })
    }

    fn write(&self, wanted: &Wanted, names: &BTreeSet<Vec<u8>>) -> Result<()> {
        self.control.go_on()?;
        let path = self.to.join(OsStr::from_bytes(&wanted.path));
        let parent = path.parent().unwrap_or(self.to);
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(parent)
            .map_err(::volume::Error::io("make the directory", parent))?;
        // Not under its own name before it is whole. The number is in no other name.
        let temporary = parent.join(format!(".weft-recover-{}", wanted.ino));
        let written = self.write_content(wanted, &temporary).and_then(|lost| {
            let mut name = if lost.is_empty() { wanted.path.clone() } else { [&*wanted.path, INCOMPLETE].concat() };
            if !lost.is_empty() && names.contains(&name) {
                name.extend_from_slice(format!("-{}", wanted.ino).as_bytes());
            }
            let path = self.to.join(OsStr::from_bytes(&name));
            std::fs::rename(&temporary, &path).map_err(::volume::Error::io("rename a file to", &path))?;
            Ok((lost, name))
        });
        let (lost, name) = written.inspect_err(|_| _ = std::fs::remove_file(&temporary))?;
        let mut done = lock(&self.done);
        if lost.is_empty() {
            (done.files, done.bytes) = (done.files + 1, done.bytes + wanted.size);
        } else {
            done.incomplete.push(name);
        }
        lost.into_iter().for_each(|what| done.lost(format!("{}: {what}", shown(&wanted.path))));
        Ok(())
    }

    /// Returns what is lost of it.
    fn write_content(&self, wanted: &Wanted, path: &Path) -> Result<Vec<String>> {
        let failed = |what: &'static str| ::volume::Error::io(what, path);
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(path).map_err(failed("create"))?;
        file.set_len(wanted.size).map_err(failed("write to"))?;
        let mut lost: Vec<String> = Vec::new();
        let extents: Vec<Extent> = wanted.map.within(&(0..wanted.size));
        for piece in pieces(&extents, 0..wanted.size) {
            let Some(ExtentPlace::Stripe(span)) = piece.place else {
                self.control.count((piece.range.end - piece.range.start) as usize);
                continue;
            };
            let mut at = piece.range.start;
            while at < piece.range.end {
                self.control.go_on()?;
                let length = READ_BYTES.min((piece.range.end - at) as usize);
                let span = span.skip(at - piece.range.start);
                let mut bytes = vec![0; length];
                let mut bad = Vec::new();
                self.read(span, at, &mut bytes, &mut bad);
                file.write_all_at(&bytes, at).map_err(failed("write to"))?;
                lost.extend(bad.into_iter().map(|(range, why): (std::ops::Range<u64>, String)| {
                    format!("bytes {} to {} are lost and read as zeroes: {why}", range.start, range.end)
                }));
                self.control.count(length);
                at += length as u64;
            }
        }
        // A hole looks the same, so this counts only where something is lost.
        if let Some(gap) = first_gap(&wanted.map, wanted.size).filter(|_| self.some_lost) {
            let (start, end) = (gap.start, gap.end);
            lost.push(format!("bytes {start} to {end} were not found; they are lost, unless they were a hole"));
        }
        describe(&file, wanted.file.as_ref()).map_err(failed("set the attributes of"))?;
        Ok(lost)
    }

    /// Reads what can be read; what cannot is zeroes, and in `bad`.
    fn read(&self, span: Span, at: u64, into: &mut [u8], bad: &mut Vec<(std::ops::Range<u64>, String)>) {
        let read = match self.layouts.get(&span.set) {
            Some(layout) => ::volume::read(self.targets, layout, span, into).map(drop),
            None => Err(::volume::Error::NotFound(format!("chunk set {}", span.set))),
        };
        let Err(why) = read else { return };
        into.fill(0);
        if into.len() <= LEAST_READ_BYTES {
            return match bad.last_mut() {
                Some((range, _)) if range.end == at => range.end += into.len() as u64,
                _ => bad.push((at..at + into.len() as u64, why.to_string())),
            };
        }
        let half = (into.len() / 2).next_multiple_of(LEAST_READ_BYTES);
        let (first, second) = into.split_at_mut(half);
        self.read(span, at, first, bad);
        self.read(span.skip(half as u64), at + half as u64, second, bad);
    }
}

/// Gives a file the mode, the owner and the time that it had. Only root may give it another owner.
fn describe(file: &File, described: Option<&Described>) -> std::io::Result<()> {
    let Some(described) = described else { return Ok(()) };
    let _ = fchown(file, Some(described.uid), Some(described.gid));
    // Without the bits that would let others act as its owner.
    file.set_permissions(Permissions::from_mode(described.mode & 0o777))?;
    let (seconds, nanoseconds) = (described.modified.seconds, described.modified.nanoseconds);
    let since = Duration::from_secs(seconds.unsigned_abs());
    let whole = match seconds {
        0.. => SystemTime::UNIX_EPOCH.checked_add(since),
        _ => SystemTime::UNIX_EPOCH.checked_sub(since),
    };
    whole.map_or(Ok(()), |time| file.set_modified(time + Duration::from_nanos(nanoseconds.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_nowhere_else_and_are_given_once() {
        assert_eq!(usable(b"a//b"), Some(b"a/b".to_vec()));
        for bad in [&b""[..], b"/", b"../a", b"a/..", b"a/./b", b"a\0b", &[b'x'; 256]] {
            assert_eq!(usable(bad), None, "{bad:?}");
        }
        let (mut names, mut done) = (Names::default(), Recovered::default());
        let mut give = |ino, path: &str| String::from_utf8(names.give(Ino(ino), Some(path.as_bytes()), &mut done));
        assert_eq!(give(16, "a/b").unwrap(), "a/b");
        assert_eq!(give(17, "a/b").unwrap(), "a/b.1");
        assert_eq!(give(18, "a/b/c").unwrap(), "lost+found/inode-18", "a file is in the way");
        assert_eq!(give(19, "a").unwrap(), "lost+found/inode-19", "a directory is in the way");
        assert_eq!(give(20, "../x").unwrap(), "lost+found/inode-20");
        assert_eq!(done.unnamed, 3);
    }
}

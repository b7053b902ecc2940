//! Writes the files of chunks.

use super::Recovered;
use super::names::{Names, UNNAMED, numbered, unnamed};
use crate::Result;
use crate::data::manifest::File as Described;
use crate::maintenance::chunk_contents::first_gap;
use ::volume::target::rename_new;
use ::volume::{Control, SetLayout, Targets, lock, shown};
use plan::extent::pieces;
use plan::{Extent, ExtentMap, ExtentPlace, Ino, SetId, Span};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

/// Bytes that are read at a time.
const READ_BYTES: usize = 4 << 20;
/// Around damage, reads become shorter, down to this many bytes.
const LEAST_READ_BYTES: usize = 64 << 10;
/// What is added to the name of a file of which something is lost.
const INCOMPLETE: &[u8] = b".incomplete";

/// A file that is to be written.
pub(super) struct Wanted {
    pub ino: Ino,
    pub map: ExtentMap,
    pub file: Option<Described>,
    pub size: u64,
    /// Below the directory.
    pub path: Vec<u8>,
}

/// What is needed to read and write.
pub(super) struct Work<'a> {
    pub targets: &'a Targets,
    pub layouts: &'a HashMap<SetId, SetLayout>,
    pub to: &'a Path,
    /// For files that are not whole yet.
    pub private: &'a Path,
    pub names: &'a Names,
    /// Whether a gap in a file may be a loss.
    pub in_doubt: bool,
    pub control: &'a Control,
    pub done: Mutex<Recovered>,
}

/// What is to be said of a file that was written.
struct Content {
    lost: Vec<String>,
    note: Option<String>,
}

impl Work<'_> {
    pub fn write_all(&self, wanted: &[Wanted]) -> Result<()> {
        let next = AtomicUsize::new(0);
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
        let work = || {
            while let Some(file) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.write(file)?;
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

    /// Writes a file. One that cannot be written is a loss, and no reason to leave out the others.
    fn write(&self, wanted: &Wanted) -> Result<()> {
        self.control.go_on()?;
        // Not under its own name before it is whole.
        let temporary = self.private.join(wanted.ino.to_string());
        let written = self.write_content(wanted, &temporary).and_then(|content| {
            let mut name = wanted.path.clone();
            if !content.lost.is_empty() {
                name.extend_from_slice(INCOMPLETE);
                if self.names.has(&name) {
                    name.extend_from_slice(format!("-{}", wanted.ino).as_bytes());
                }
            }
            let name = self.commit(&temporary, wanted, name)?;
            Ok((content, name))
        });
        let own = shown(&wanted.path);
        let (Content { lost, note }, name) = match written {
            Ok(written) => written,
            Err(why) => {
                let _ = std::fs::remove_file(&temporary);
                if matches!(why, ::volume::Error::Interrupted | ::volume::Error::NoSpace(_)) {
                    return Err(why.into());
                }
                lock(&self.done).lost(format!("{own}: {why}"));
                return Ok(());
            }
        };
        let mut done = lock(&self.done);
        if lost.is_empty() {
            (done.files, done.bytes) = (done.files + 1, done.bytes.saturating_add(wanted.size));
        } else {
            done.incomplete.push(name);
        }
        note.into_iter().for_each(|what| done.note(format!("{own}: {what}")));
        lost.into_iter().for_each(|what| done.lost(format!("{own}: {what}")));
        Ok(())
    }

    /// Gives a written file its name, or another one if the directory cannot have it: it may be too
    /// long there, or a file may be where a directory is needed. Returns the name.
    fn commit(&self, temporary: &Path, wanted: &Wanted, name: Vec<u8>) -> ::volume::Result<Vec<u8>> {
        let failed = |why| ::volume::Error::io("rename a file to", &self.to.join(OsStr::from_bytes(&name)))(why);
        let why = match self.commit_as(temporary, &name) {
            Ok(given) if given == name => return Ok(given),
            Ok(given) => {
                let (own, given_shown) = (shown(&name), shown(&given));
                lock(&self.done).note(format!("{own}: something else has this name; it is {given_shown}"));
                return Ok(given);
            }
            Err(why) if matches!(why.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
                return Err(failed(why));
            }
            Err(why) => why,
        };
        let is_whole = name == wanted.path;
        let other = [&*unnamed(wanted.ino), if is_whole { b"" } else { INCOMPLETE }].concat();
        let given = self.commit_as(temporary, &other).map_err(failed)?;
        let mut done = lock(&self.done);
        done.unnamed += usize::from(!wanted.path.starts_with(UNNAMED));
        done.note(format!("{}: it cannot have this name ({why}); it is {}", shown(&name), shown(&given)));
        Ok(given)
    }

    /// Replaces nothing: names that differ may be the same for the file system.
    fn commit_as(&self, temporary: &Path, name: &[u8]) -> std::io::Result<Vec<u8>> {
        let path = self.to.join(OsStr::from_bytes(name));
        let parent = path.parent().unwrap_or(self.to);
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        let mut number = 0;
        loop {
            let name = numbered(name, number);
            match rename_new(rustix::fs::CWD, temporary, &self.to.join(OsStr::from_bytes(&name))) {
                Err(rustix::io::Errno::EXIST) => number += 1,
                renamed => return Ok(renamed.map(|()| name)?),
            }
        }
    }

    fn write_content(&self, wanted: &Wanted, path: &Path) -> ::volume::Result<Content> {
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
        // A hole looks the same, so this counts only where something may be lost.
        let mut note = None;
        if let Some(gap) = first_gap(&wanted.map, wanted.size) {
            let (start, end) = (gap.start, gap.end);
            if self.in_doubt {
                lost.push(format!("bytes {start} to {end} were not found; they are lost, unless they were a hole"));
            } else {
                note = Some(format!("bytes {start} to {end} were not found and read as zeroes, as a hole does"));
            }
        }
        // The content is what counts.
        let _ = describe(&file, wanted.file.as_ref());
        Ok(Content { lost, note })
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
    let time = whole.and_then(|time| time.checked_add(Duration::from_nanos(nanoseconds.into())));
    time.map_or(Ok(()), |time| file.set_modified(time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use meta::Time;

    #[test]
    fn a_time_that_there_is_not_is_left_out() {
        let path = std::env::temp_dir().join(format!("weft-describe-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        for seconds in [i64::MAX, i64::MIN] {
            let modified = Time { seconds, nanoseconds: u32::MAX };
            let described = Described { path: Vec::new(), size: 0, mode: 0o640, uid: 0, gid: 0, modified };
            // Whether it can be set does not count, as long as it ends.
            let _ = describe(&file, Some(&described));
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        }
    }
}

//! `weft cp`: files into a volume that is not mounted, and out of it.

use super::{COPY_PIECE_BYTES, at, entries, find, find_open, parent_path};
use crate::failure::{Failure, Outcome};
use crate::volumes::{Address, Open, open};
use crate::{interrupt, progress, show};
use clap::Args;
use fs::{Attributes, FileKind, New, RenameMode, SetAttributes, SetTime, Time};
use plan::Ino;
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;
use serde_json::json;
use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;
use volume::{Control, Shown};

/// Copy files into a volume or out of it
#[derive(Args)]
#[command(after_help = "Examples:
  weft cp film.mkv /srv/films:/
  weft cp -r photos /srv/films:/2024
  weft cp /srv/films:/film.mkv .

Unlike cp(1), it replaces an existing file only with --force, and then when the copy is complete. It merges \
directories. It stops at the first failure; what it copied before stays.

Into a volume it keeps owners, permissions and times; out of it, permissions and modification times. It does not keep \
extended attributes and hard links; `weft archive` does.")]
pub struct Arguments {
    /// Source and destination; one of them is VOLUME:/path
    #[arg(required = true, num_args = 2.., value_name = "FILE")]
    paths: Vec<OsString>,
    /// Copy directories with everything in them
    #[arg(short, long)]
    recursive: bool,
    /// Replace existing files
    #[arg(short, long)]
    force: bool,
}

/// A copy that is being made: what it counts, and what stops it.
struct Copying<'a> {
    volume: &'a Open,
    control: Arc<Control>,
    recursive: bool,
    force: bool,
    files: Cell<usize>,
    bytes: Cell<u64>,
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    let Some((to, from)) = arguments.paths.split_last() else {
        return Err(Failure::Usage("give one or more sources and a destination".into()));
    };
    let control = interrupt::control(false);
    let (mut files, mut bytes) = (0, 0);
    let mut with = |volume: &Open, work: &dyn Fn(&Copying) -> Outcome| {
        let (control, recursive, force) = (control.clone(), arguments.recursive, arguments.force);
        let (files_copied, bytes_copied) = (Cell::new(0), Cell::new(0));
        let copying =
            Copying { volume, control: control.clone(), recursive, force, files: files_copied, bytes: bytes_copied };
        let done = progress::shown("copying", &control, || work(&copying));
        files += copying.files.get();
        bytes += copying.bytes.get();
        done
    };
    if let Some(to) = Address::parse(to) {
        if from.iter().any(|given| Address::parse(given).is_some()) {
            let what = "one of both must be a path of this machine; to copy within a volume, mount it";
            return Err(Failure::Usage(what.into()));
        }
        let volume = open(&to.volume, false)?;
        let done = with(&volume, &|copying| {
            from.iter().try_for_each(|given| copying.take_in(Path::new(given), &to, from.len() > 1))
        });
        // Files that were copied before a failure stay.
        let finished = progress::shown("committing", &control, || volume.finish());
        done?;
        finished?;
    } else {
        let addresses: Vec<Address> = from.iter().map(|given| Address::required(given)).collect::<Result<_, _>>()?;
        for of_volume in addresses.chunk_by(|a, b| a.volume == b.volume) {
            let volume = open(&of_volume[0].volume, true)?;
            with(&volume, &|copying| {
                of_volume.iter().try_for_each(|address| copying.take_out(address, Path::new(to), from.len() > 1))
            })?;
        }
    }
    if as_json { show::json(&json!({ "files": files, "bytes": bytes })) } else { Ok(()) }
}

/// Gives a complete copy its name. If the file system cannot refuse to replace, a file that
/// appeared during the copy is replaced.
fn put_under_name(part: &Path, to: &Path, force: bool) -> std::io::Result<()> {
    if !force {
        match rustix::fs::renameat_with(CWD, part, CWD, to, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
            done => return Ok(done?),
        }
    }
    std::fs::rename(part, to)
}

/// A name for an incomplete file, which no other copy uses.
fn temporary_name() -> String {
    // Processes in containers have the same numbers.
    format!(".weft-part-{:016x}", fastrand::u64(..))
}

impl Copying<'_> {
    fn take_in(&self, from: &Path, to: &Address, into: bool) -> Outcome {
        let failed = |why: &dyn std::fmt::Display| Failure::Other(format!("{}: {why}", Shown(from)));
        let (parent, name) = match find(self.volume, to) {
            Ok(found) if found.kind == FileKind::Directory => {
                // The plain path of `.` or `..` has a name.
                let plain = if from.file_name().is_some() { Ok(from.to_path_buf()) } else { from.canonicalize() };
                let plain = plain.map_err(|why| failed(&why))?;
                let name = plain.file_name().ok_or_else(|| failed(&"it has no name to copy it under"))?;
                (found.ino, name.as_bytes().to_vec())
            }
            _ if into => return Err(Failure::Usage(format!("{} is not a directory", to.shown()))),
            _ => {
                let name = to.names().last().ok_or_else(|| failed(&"no name to copy it to"))?.to_vec();
                let above = Address { path: parent_path(&to.path), ..to.clone() };
                let parent = find(self.volume, &above)?;
                if parent.kind != FileKind::Directory {
                    return Err(Failure::Other(format!("{} is not a directory", above.shown())));
                }
                (parent.ino, name)
            }
        };
        self.put_in(from, parent, &name)
    }

    /// Copies a file or a tree under a name. What has that name already is replaced only when the
    /// whole copy is there; directories are merged.
    fn put_in(&self, from: &Path, parent: Ino, name: &[u8]) -> Outcome {
        let failed = |why: &dyn std::fmt::Display| Failure::Other(format!("{}: {why}", Shown(from)));
        let volume = self.volume;
        self.control.go_on()?;
        let source = from.symlink_metadata().map_err(|why| failed(&why))?;
        let kind = if source.is_dir() {
            FileKind::Directory
        } else if source.is_symlink() {
            FileKind::Symlink
        } else if source.is_file() {
            FileKind::File
        } else {
            show::warning(format_args!("{} is not a file, directory or link; it was not copied", Shown(from)));
            return Ok(());
        };
        if kind == FileKind::Directory && !self.recursive {
            return Err(Failure::Usage(format!("{} is a directory; give -r to copy it with all in it", Shown(from))));
        }
        let link = if kind == FileKind::Symlink {
            std::fs::read_link(from).map_err(|why| failed(&why))?.as_os_str().as_bytes().to_vec()
        } else {
            Vec::new()
        };
        let new = New { kind, mode: source.mode() & 0o7777, uid: source.uid(), gid: source.gid(), device: 0, link };
        if kind == FileKind::Directory {
            let ino = match volume.make(parent, name, &new) {
                Ok(made) => made.ino,
                Err(error) => match volume.lookup(parent, name) {
                    Ok(there) if there.kind == FileKind::Directory => there.ino,
                    Ok(_) => return Err(failed(&"something in the volume is not a directory")),
                    Err(_) => return Err(failed(&error)),
                },
            };
            for entry in std::fs::read_dir(from).map_err(|why| failed(&why))? {
                let entry = entry.map_err(|why| failed(&why))?;
                self.put_in(&entry.path(), ino, entry.file_name().as_bytes())?;
            }
            return self.put_times(ino, &source).map_err(|why| failed(&why));
        }
        let there = volume.lookup(parent, name).ok();
        if there.is_some_and(|there| there.kind == FileKind::Directory) {
            return Err(failed(&"there is a directory of that name in the volume"));
        }
        if there.is_some() && !self.force {
            return Err(failed(&"there is a file of that name in the volume; give --force to replace it"));
        }
        let temporary = temporary_name();
        let under = if there.is_some() { temporary.as_bytes() } else { name };
        let made = volume.make(parent, under, &new).map_err(|why| failed(&why))?;
        let filled = || -> Outcome {
            if kind == FileKind::File {
                self.put_content(from, made.ino)?;
            }
            self.put_times(made.ino, &source).map_err(|why| failed(&why))?;
            if there.is_some() {
                volume.rename((parent, under), (parent, name), RenameMode::Replace).map_err(|why| failed(&why))?;
            }
            Ok(())
        };
        filled().inspect_err(|_| _ = volume.unlink(parent, under))?;
        self.files.update(|files| files + 1);
        Ok(())
    }

    /// Copies the bytes of a file; its holes stay holes.
    fn put_content(&self, from: &Path, ino: Ino) -> Outcome {
        let failed = |why: &dyn std::fmt::Display| Failure::Other(format!("{}: {why}", Shown(from)));
        let file = File::open(from).map_err(|why| failed(&why))?;
        let (mut piece, mut offset) = (vec![0; COPY_PIECE_BYTES], 0);
        loop {
            self.control.go_on()?;
            let length = file.read_at(&mut piece, offset).map_err(|why| failed(&why))?;
            if length == 0 {
                break;
            }
            if piece[..length].iter().any(|&byte| byte != 0) {
                self.volume.write(ino, offset, &piece[..length]).map_err(|why| failed(&why))?;
            }
            offset += length as u64;
            self.count(length);
        }
        // Zeroes at the end were not written.
        let size = SetAttributes { size: Some(offset), ..SetAttributes::default() };
        self.volume.set_attributes(ino, size).map_err(|why| failed(&why))?;
        Ok(())
    }

    fn put_times(&self, ino: Ino, source: &std::fs::Metadata) -> Result<(), fs::Error> {
        let time = |seconds, nanoseconds| SetTime::To(Time { seconds, nanoseconds });
        let times = SetAttributes {
            accessed: Some(time(source.atime(), source.atime_nsec() as u32)),
            modified: Some(time(source.mtime(), source.mtime_nsec() as u32)),
            ..SetAttributes::default()
        };
        self.volume.set_attributes(ino, times).map(drop)
    }

    fn count(&self, bytes: usize) {
        self.bytes.update(|sum| sum + bytes as u64);
        self.control.count(bytes);
    }

    fn take_out(&self, address: &Address, to: &Path, into: bool) -> Outcome {
        let found = find(self.volume, address)?;
        let mut target = to.to_path_buf();
        if target.is_dir() {
            target.push(OsStr::from_bytes(address.names().last().unwrap_or(b".")));
        } else if into {
            return Err(Failure::Usage(format!("{} is not a directory", Shown(&target))));
        }
        self.put_out(address, &found, &target)
    }

    /// Copies a file or a tree out of a volume. What is there already is replaced only when the
    /// whole copy is there; directories are merged.
    fn put_out(&self, address: &Address, found: &Attributes, to: &Path) -> Outcome {
        let exists = || Failure::Other(format!("{} exists; give --force to replace it", Shown(to)));
        let failed = |why: &dyn std::fmt::Display| Failure::Other(format!("{}: {why}", Shown(to)));
        self.control.go_on()?;
        match found.kind {
            FileKind::Directory if !self.recursive => {
                let what = format!("{} is a directory; give -r to copy it with all in it", address.shown());
                return Err(Failure::Usage(what));
            }
            FileKind::Directory => {
                if !to.is_dir() {
                    std::fs::DirBuilder::new().mode(0o700).create(to).map_err(|why| failed(&why))?;
                }
                for (name, inside) in entries(self.volume, found.ino).map_err(at(address))? {
                    let path = [&address.path[..], &name].join(&b'/');
                    let inside_address = Address { path, ..address.clone() };
                    self.put_out(&inside_address, &inside, &to.join(OsStr::from_bytes(&name)))?;
                }
                let permissions = std::fs::Permissions::from_mode(found.mode);
                return std::fs::set_permissions(to, permissions).map_err(|why| failed(&why));
            }
            FileKind::File | FileKind::Symlink => {}
            _ => {
                show::warning(format_args!("{} is not a file, directory or link; it was not copied", address.shown()));
                return Ok(());
            }
        }
        if to.symlink_metadata().is_ok_and(|there| there.is_dir()) {
            return Err(failed(&"is a directory, which is not replaced"));
        }
        if to.symlink_metadata().is_ok() && !self.force {
            return Err(exists());
        }
        let part = to.with_file_name(temporary_name());
        let filled = || -> Outcome {
            if found.kind == FileKind::File {
                self.put_file(address, found, &part, to)?;
            } else {
                let target = self.volume.read_link(found.ino).map_err(at(address))?;
                std::os::unix::fs::symlink(OsStr::from_bytes(&target), &part).map_err(|why| failed(&why))?;
            }
            put_under_name(&part, to, self.force).map_err(|why| match why.kind() {
                std::io::ErrorKind::AlreadyExists => exists(),
                _ => failed(&why),
            })
        };
        filled().inspect_err(|_| _ = std::fs::remove_file(&part))?;
        self.files.update(|files| files + 1);
        Ok(())
    }

    /// Copies the bytes of a file; its holes stay holes.
    fn put_file(&self, address: &Address, found: &Attributes, part: &Path, to: &Path) -> Outcome {
        let failed = |why: &dyn std::fmt::Display| Failure::Other(format!("{}: {why}", Shown(to)));
        let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(part);
        let file = made.map_err(|why| failed(&why))?;
        // One read takes a small file as it is. A longer one is open, so that a program that
        // replaces it leaves its bytes to this copy.
        let opened = if found.size >= COPY_PIECE_BYTES as u64 { Some(find_open(self.volume, address)?) } else { None };
        let found = opened.as_ref().unwrap_or(found);
        let copied = self.put_bytes(address, found.ino, &file, to);
        if opened.is_some() {
            self.volume.close(found.ino);
        }
        file.set_len(copied?).map_err(|why| failed(&why))?;
        file.set_permissions(std::fs::Permissions::from_mode(found.mode)).map_err(|why| failed(&why))?;
        let since = std::time::Duration::new(found.modified.seconds.unsigned_abs(), 0);
        let second =
            if found.modified.seconds < 0 { UNIX_EPOCH.checked_sub(since) } else { UNIX_EPOCH.checked_add(since) };
        let nanoseconds = std::time::Duration::from_nanos(found.modified.nanoseconds.into());
        if let Some(modified) = second.and_then(|second| second.checked_add(nanoseconds)) {
            file.set_modified(modified).map_err(|why| failed(&why))?;
        }
        Ok(())
    }

    /// Copies bytes to their offsets, and returns how many there are. Zeros stay holes.
    fn put_bytes(&self, address: &Address, from: Ino, file: &std::fs::File, to: &Path) -> Result<u64, Failure> {
        let (mut piece, mut offset) = (vec![0; COPY_PIECE_BYTES], 0);
        loop {
            self.control.go_on()?;
            let length = self.volume.read(from, offset, &mut piece).map_err(at(address))?;
            if piece[..length].iter().any(|&byte| byte != 0) {
                let failed = |why| Failure::Other(format!("{}: {why}", Shown(to)));
                file.write_all_at(&piece[..length], offset).map_err(failed)?;
            }
            offset += length as u64;
            self.count(length);
            if length < piece.len() {
                return Ok(offset);
            }
        }
    }
}

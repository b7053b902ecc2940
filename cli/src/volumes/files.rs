//! `weft ls`, `cat`, `cp`, `rm` and `stat`: files of a volume that is not mounted.

use super::{Address, Open, open};
use crate::failure::{Failure, Outcome};
use crate::{interrupt, progress, show};
use clap::Args;
use fs::{Attributes, Kind, New, ROOT, RenameMode, SetAttributes, SetTime, Time};
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;
use serde_json::{Value, json};
use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;
use volume::{Control, Shown};

/// What is copied at a time.
const PIECE: usize = 1 << 20;
/// Entries that are listed at a time.
const BATCH: usize = 1000;

/// List the files of a volume
#[derive(Args)]
#[command(after_help = "Examples:
  weft ls /srv/films:/
  weft ls -l /srv/films:/2024")]
pub struct ListArguments {
    /// VOLUME:/path
    address: OsString,
    /// Show mode, owner, size and time, too
    #[arg(short)]
    long: bool,
}

/// Print a file of a volume
#[derive(Args)]
#[command(after_help = "Examples:
  weft cat /srv/films:/notes.txt")]
pub struct CatArguments {
    /// VOLUME:/path
    address: OsString,
}

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
pub struct CopyArguments {
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

/// Remove files of a volume
#[derive(Args)]
#[command(after_help = "Examples:
  weft rm /srv/films:/old.mkv
  weft rm -r /srv/films:/2019")]
pub struct RemoveArguments {
    /// VOLUME:/path
    #[arg(required = true)]
    addresses: Vec<OsString>,
    /// Remove directories with everything in them
    #[arg(short, long)]
    recursive: bool,
}

/// Show the attributes of a file of a volume
#[derive(Args)]
#[command(after_help = "Examples:
  weft stat /srv/films:/film.mkv")]
pub struct StatArguments {
    /// VOLUME:/path
    address: OsString,
}

/// A failure of something at an address.
fn at(address: &Address) -> impl Fn(fs::Error) -> Failure {
    let shown = address.shown();
    move |error| Failure::Other(format!("{shown}: {error}"))
}

/// The file at an address.
fn find(volume: &Open, address: &Address) -> Result<Attributes, Failure> {
    let mut found = volume.attributes(ROOT).map_err(at(address))?;
    for name in address.names() {
        found = volume.lookup(found.ino, name).map_err(at(address))?;
    }
    Ok(found)
}

/// All entries of a directory.
fn entries(volume: &Open, ino: u64) -> Result<Vec<(Vec<u8>, Attributes)>, fs::Error> {
    let (mut all, mut cookie) = (Vec::new(), 0);
    loop {
        let listed = volume.list(ino, cookie, BATCH)?;
        let Some(last) = listed.last() else { break };
        cookie = last.cookie;
        all.extend(listed.into_iter().map(|entry| (entry.name, entry.attributes)));
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(all)
}

fn word(kind: Kind) -> (&'static str, char) {
    match kind {
        Kind::File => ("file", '-'),
        Kind::Directory => ("directory", 'd'),
        Kind::Symlink => ("symlink", 'l'),
        Kind::Fifo => ("fifo", 'p'),
        Kind::Socket => ("socket", 's'),
        Kind::BlockDevice => ("block-device", 'b'),
        Kind::CharacterDevice => ("character-device", 'c'),
    }
}

fn mode(attributes: &Attributes) -> String {
    let bits = (0..9).rev().map(|bit| if attributes.mode >> bit & 1 == 1 { b"xwr"[bit % 3] as char } else { '-' });
    std::iter::once(word(attributes.kind).1).chain(bits).collect()
}

/// A time in UTC, as `2024-02-29 12:00:00` (days to date after Howard Hinnant's civil_from_days).
fn date(time: Time) -> String {
    let (days, second) = (time.seconds.div_euclid(86_400), time.seconds.rem_euclid(86_400));
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}

fn document(name: &[u8], attributes: &Attributes) -> Value {
    json!({
        "name": show::name(name),
        "kind": word(attributes.kind).0,
        "inode": attributes.ino,
        "mode": format!("{:04o}", attributes.mode),
        "links": attributes.links,
        "uid": attributes.uid,
        "gid": attributes.gid,
        "size": attributes.size,
        "allocated": attributes.allocated,
        "modified": { "seconds": attributes.modified.seconds, "nanoseconds": attributes.modified.nanoseconds },
    })
}

pub fn list(arguments: &ListArguments, as_json: bool) -> Outcome {
    let address = Address::required(&arguments.address)?;
    let volume = open(&address.volume, true)?;
    let found = find(&volume, &address)?;
    let listed = if found.kind == Kind::Directory {
        entries(&volume, found.ino).map_err(at(&address))?
    } else {
        vec![(address.names().last().unwrap_or_default().to_vec(), found)]
    };
    if as_json {
        return show::json(&listed.iter().map(|(name, attributes)| document(name, attributes)).collect());
    }
    for (name, attributes) in listed {
        let shown = Shown(Path::new(OsStr::from_bytes(&name))).to_string();
        if arguments.long {
            let (mode, date) = (mode(&attributes), date(attributes.modified));
            let Attributes { links, uid, gid, size, .. } = attributes;
            show::text(format_args!("{mode} {links:3} {uid:5} {gid:5} {size:12} {date} {shown}"))?;
        } else {
            show::text(shown)?;
        }
    }
    Ok(())
}

pub fn stat(arguments: &StatArguments, as_json: bool) -> Outcome {
    let address = Address::required(&arguments.address)?;
    let volume = open(&address.volume, true)?;
    let found = find(&volume, &address)?;
    if as_json {
        return show::json(&document(address.names().last().unwrap_or_default(), &found));
    }
    show::text(format_args!("{}: {}", address.shown(), word(found.kind).0))?;
    show::text(format_args!(
        "  inode {}  links {}  {}  {}:{}",
        found.ino,
        found.links,
        mode(&found),
        found.uid,
        found.gid
    ))?;
    show::text(format_args!(
        "  size {} ({} bytes, {} not holes)",
        show::bytes(found.size),
        found.size,
        found.allocated
    ))?;
    show::text(format_args!("  modified {}.{:09} UTC", date(found.modified), found.modified.nanoseconds))
}

pub fn cat(arguments: &CatArguments, as_json: bool) -> Outcome {
    if as_json {
        return Err(Failure::Usage("cat prints the bytes of a file, which are no JSON: leave out --json".into()));
    }
    let address = Address::required(&arguments.address)?;
    let volume = open(&address.volume, true)?;
    let found = find(&volume, &address)?;
    let mut output = std::io::stdout().lock();
    read_out(&volume, found.ino, &mut output).map_err(|why| match why {
        ReadOut::Read(error) => at(&address)(error),
        ReadOut::Write(why) if why.kind() == std::io::ErrorKind::BrokenPipe => Failure::OutputClosed,
        ReadOut::Write(why) => Failure::Other(format!("cannot write to standard output: {why}")),
    })
}

enum ReadOut {
    Read(fs::Error),
    Write(std::io::Error),
}

fn read_out(volume: &Open, ino: u64, to: &mut dyn Write) -> Result<(), ReadOut> {
    let (mut piece, mut offset) = (vec![0; PIECE], 0);
    loop {
        let length = volume.read(ino, offset, &mut piece).map_err(ReadOut::Read)?;
        to.write_all(&piece[..length]).map_err(ReadOut::Write)?;
        if length < piece.len() {
            return to.flush().map_err(ReadOut::Write);
        }
        offset += length as u64;
    }
}

pub fn remove(arguments: &RemoveArguments, as_json: bool) -> Outcome {
    let addresses: Vec<Address> =
        arguments.addresses.iter().map(|given| Address::required(given)).collect::<Result<_, _>>()?;
    let mut removed = 0;
    for of_volume in addresses.chunk_by(|a, b| a.volume == b.volume) {
        let volume = open(&of_volume[0].volume, false)?;
        let done =
            of_volume.iter().try_for_each(|address| remove_one(&volume, address, arguments.recursive, &mut removed));
        // Also what was removed before a failure is.
        let finished = volume.finish();
        done?;
        finished?;
    }
    if as_json { show::json(&json!({ "removed": removed })) } else { Ok(()) }
}

fn remove_one(volume: &Open, address: &Address, recursive: bool, removed: &mut usize) -> Outcome {
    let Some(name) = address.names().last().map(<[u8]>::to_vec) else {
        return Err(Failure::Usage("the root of a volume cannot be removed".into()));
    };
    let found = find(volume, address)?;
    let parent = Address { path: parent_path(&address.path), ..address.clone() };
    let parent = find(volume, &parent)?.ino;
    if found.kind == Kind::Directory && !recursive {
        let what = format!("{} is a directory; give -r to remove it with all in it", address.shown());
        return Err(Failure::Usage(what));
    }
    remove_tree(volume, parent, &name, &found, removed).map_err(at(address))
}

fn parent_path(path: &[u8]) -> Vec<u8> {
    path.iter().rposition(|&byte| byte == b'/').map_or_else(Vec::new, |at| path[..at].to_vec())
}

fn remove_tree(
    volume: &Open,
    parent: u64,
    name: &[u8],
    found: &Attributes,
    removed: &mut usize,
) -> Result<(), fs::Error> {
    if found.kind == Kind::Directory {
        for (name, inside) in entries(volume, found.ino)? {
            remove_tree(volume, found.ino, &name, &inside, removed)?;
        }
        volume.remove_directory(parent, name)?;
    } else {
        volume.unlink(parent, name)?;
    }
    *removed += 1;
    Ok(())
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

pub fn copy(arguments: &CopyArguments, as_json: bool) -> Outcome {
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
        // Also what was copied before a failure stays.
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

/// Gives a complete copy its name. Where the file system cannot refuse to replace, a file that
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

/// A name for what is not complete yet, which no other copy uses.
fn temporary_name() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!(".weft-part-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

impl Copying<'_> {
    fn take_in(&self, from: &Path, to: &Address, into: bool) -> Outcome {
        let failed = |why: &dyn std::fmt::Display| Failure::Other(format!("{}: {why}", Shown(from)));
        let (parent, name) = match find(self.volume, to) {
            Ok(found) if found.kind == Kind::Directory => {
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
                if parent.kind != Kind::Directory {
                    return Err(Failure::Other(format!("{} is not a directory", above.shown())));
                }
                (parent.ino, name)
            }
        };
        self.put_in(from, parent, &name)
    }

    /// Copies a file or a tree under a name. What has that name already is replaced only when the
    /// whole copy is there; directories are merged.
    fn put_in(&self, from: &Path, parent: u64, name: &[u8]) -> Outcome {
        let failed = |why: &dyn std::fmt::Display| Failure::Other(format!("{}: {why}", Shown(from)));
        let volume = self.volume;
        self.control.go_on()?;
        let source = from.symlink_metadata().map_err(|why| failed(&why))?;
        let kind = if source.is_dir() {
            Kind::Directory
        } else if source.is_symlink() {
            Kind::Symlink
        } else if source.is_file() {
            Kind::File
        } else {
            show::warning(format_args!("{} is no file, directory or link; it was not copied", Shown(from)));
            return Ok(());
        };
        if kind == Kind::Directory && !self.recursive {
            return Err(Failure::Usage(format!("{} is a directory; give -r to copy it with all in it", Shown(from))));
        }
        let link = if kind == Kind::Symlink {
            std::fs::read_link(from).map_err(|why| failed(&why))?.as_os_str().as_bytes().to_vec()
        } else {
            Vec::new()
        };
        let new = New { kind, mode: source.mode() & 0o7777, uid: source.uid(), gid: source.gid(), device: 0, link };
        if kind == Kind::Directory {
            let ino = match volume.make(parent, name, &new) {
                Ok(made) => made.ino,
                Err(error) => match volume.lookup(parent, name) {
                    Ok(there) if there.kind == Kind::Directory => there.ino,
                    Ok(_) => return Err(failed(&"there is something in the volume that is no directory")),
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
        if there.is_some_and(|there| there.kind == Kind::Directory) {
            return Err(failed(&"there is a directory of that name in the volume"));
        }
        if there.is_some() && !self.force {
            return Err(failed(&"there is a file of that name in the volume; give --force to replace it"));
        }
        let temporary = temporary_name();
        let under = if there.is_some() { temporary.as_bytes() } else { name };
        let made = volume.make(parent, under, &new).map_err(|why| failed(&why))?;
        let filled = || -> Outcome {
            if kind == Kind::File {
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
    fn put_content(&self, from: &Path, ino: u64) -> Outcome {
        let failed = |why: &dyn std::fmt::Display| Failure::Other(format!("{}: {why}", Shown(from)));
        let file = File::open(from).map_err(|why| failed(&why))?;
        let (mut piece, mut offset) = (vec![0; PIECE], 0);
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

    fn put_times(&self, ino: u64, source: &std::fs::Metadata) -> Result<(), fs::Error> {
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
            Kind::Directory if !self.recursive => {
                let what = format!("{} is a directory; give -r to copy it with all in it", address.shown());
                return Err(Failure::Usage(what));
            }
            Kind::Directory => {
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
            Kind::File | Kind::Symlink => {}
            _ => {
                show::warning(format_args!("{} is no file, directory or link; it was not copied", address.shown()));
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
            if found.kind == Kind::File {
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
        let (mut piece, mut offset) = (vec![0; PIECE], 0);
        loop {
            self.control.go_on()?;
            let length = self.volume.read(found.ino, offset, &mut piece).map_err(at(address))?;
            if piece[..length].iter().any(|&byte| byte != 0) {
                file.write_all_at(&piece[..length], offset).map_err(|why| failed(&why))?;
            }
            offset += length as u64;
            self.count(length);
            if length < piece.len() {
                break;
            }
        }
        file.set_len(offset).map_err(|why| failed(&why))?;
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
}

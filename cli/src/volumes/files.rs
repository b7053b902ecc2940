//! `weft ls`, `cat`, `cp`, `rm` and `stat`: files of a volume that is not mounted.

use super::{Address, Open, open};
use crate::failure::{Failure, Outcome};
use crate::show;
use clap::Args;
use fs::{Attributes, Kind, New, ROOT, SetAttributes, SetTime, Time};
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use volume::Shown;

/// What is copied at a time.
const PIECE: usize = 1 << 20;
/// Entries that are listed at a time.
const BATCH: usize = 1000;

/// List files of a volume
#[derive(Args)]
#[command(after_help = "Examples:
  weft ls /srv/films:/
  weft ls -l /srv/films:/2024")]
pub struct ListArguments {
    /// VOLUME:/path
    address: OsString,
    /// With mode, owner, size and time
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
  weft cp /srv/films:/film.mkv .")]
pub struct CopyArguments {
    /// What, and where to; one of both is VOLUME:/path
    #[arg(required = true, num_args = 2.., value_name = "FILE")]
    paths: Vec<OsString>,
    /// Directories with all that is in them
    #[arg(short, long)]
    recursive: bool,
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
    /// Directories with all that is in them
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
        "name": String::from_utf8_lossy(name),
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

pub fn cat(arguments: &CatArguments) -> Outcome {
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

pub fn remove(arguments: &RemoveArguments) -> Outcome {
    for given in &arguments.addresses {
        let address = Address::required(given)?;
        let volume = open(&address.volume, false)?;
        let found = find(&volume, &address)?;
        let Some(name) = address.names().last().map(<[u8]>::to_vec) else {
            return Err(Failure::Usage("the root of a volume cannot be removed".into()));
        };
        let parent = Address { path: parent_path(&address.path), ..address.clone() };
        let parent = find(&volume, &parent)?.ino;
        if found.kind == Kind::Directory && !arguments.recursive {
            return Err(Failure::Usage(format!(
                "{} is a directory; give -r to remove it with all in it",
                address.shown()
            )));
        }
        remove_tree(&volume, parent, &name, &found).map_err(at(&address))?;
        volume.finish()?;
    }
    Ok(())
}

fn parent_path(path: &[u8]) -> Vec<u8> {
    path.iter().rposition(|&byte| byte == b'/').map_or_else(Vec::new, |at| path[..at].to_vec())
}

fn remove_tree(volume: &Open, parent: u64, name: &[u8], found: &Attributes) -> Result<(), fs::Error> {
    if found.kind != Kind::Directory {
        return volume.unlink(parent, name);
    }
    for (name, inside) in entries(volume, found.ino)? {
        remove_tree(volume, found.ino, &name, &inside)?;
    }
    volume.remove_directory(parent, name)
}

pub fn copy(arguments: &CopyArguments) -> Outcome {
    let Some((to, from)) = arguments.paths.split_last() else {
        return Err(Failure::Usage("what is to be copied, and where to?".into()));
    };
    match Address::parse(to) {
        Some(to) => {
            let volume = open(&to.volume, false)?;
            for given in from {
                if Address::parse(given).is_some() {
                    return Err(Failure::Usage(
                        "one of both must be a path of this machine; to copy within a volume, mount it".into(),
                    ));
                }
                copy_in(&volume, Path::new(given), &to, arguments.recursive, from.len() > 1)?;
            }
            volume.finish()
        }
        None => {
            for given in from {
                let address = Address::required(given)?;
                let volume = open(&address.volume, true)?;
                let found = find(&volume, &address)?;
                let mut target = PathBuf::from(to);
                if target.is_dir() {
                    target.push(OsStr::from_bytes(address.names().last().unwrap_or(b".")));
                } else if from.len() > 1 {
                    return Err(Failure::Usage(format!("{} is not a directory", Shown(&target))));
                }
                copy_out(&volume, &address, &found, &target, arguments.recursive)?;
            }
            Ok(())
        }
    }
}

fn copy_in(volume: &Open, from: &Path, to: &Address, recursive: bool, into: bool) -> Outcome {
    let failed = |why: &dyn std::fmt::Display| Failure::Other(format!("{}: {why}", Shown(from)));
    let found = find(volume, to);
    let (parent, name) = match &found {
        Ok(found) if found.kind == Kind::Directory => {
            let name = from.file_name().ok_or_else(|| failed(&"it has no name to copy it under"))?;
            (found.ino, name.as_bytes().to_vec())
        }
        _ if into => return Err(Failure::Usage(format!("{} is not a directory", to.shown()))),
        _ => {
            let name = to.names().last().ok_or_else(|| failed(&"no name to copy it to"))?.to_vec();
            (find(volume, &Address { path: parent_path(&to.path), ..to.clone() })?.ino, name)
        }
    };
    put_in(volume, from, parent, &name, recursive)
}

/// Copies a file or a tree under a name.
fn put_in(volume: &Open, from: &Path, parent: u64, name: &[u8], recursive: bool) -> Outcome {
    let failed = |why: &dyn std::fmt::Display| Failure::Other(format!("{}: {why}", Shown(from)));
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
    if kind == Kind::Directory && !recursive {
        return Err(Failure::Usage(format!("{} is a directory; give -r to copy it with all in it", Shown(from))));
    }
    let link = if kind == Kind::Symlink {
        std::fs::read_link(from).map_err(|why| failed(&why))?.as_os_str().as_bytes().to_vec()
    } else {
        Vec::new()
    };
    let new = New { kind, mode: source.mode() & 0o7777, uid: source.uid(), gid: source.gid(), device: 0, link };
    let ino = match volume.make(parent, name, &new) {
        Ok(made) => made.ino,
        Err(error) => {
            let there = volume.lookup(parent, name).ok();
            let there =
                there.filter(|there| there.kind == kind && kind != Kind::Symlink).ok_or_else(|| failed(&error))?;
            if kind == Kind::File {
                let cut = SetAttributes { size: Some(0), ..SetAttributes::default() };
                volume.set_attributes(there.ino, cut).map_err(|why| failed(&why))?;
            }
            there.ino
        }
    };
    match kind {
        Kind::Directory => {
            let entries = std::fs::read_dir(from).map_err(|why| failed(&why))?;
            for entry in entries {
                let entry = entry.map_err(|why| failed(&why))?;
                put_in(volume, &entry.path(), ino, entry.file_name().as_bytes(), true)?;
            }
        }
        Kind::File => {
            let mut file = File::open(from).map_err(|why| failed(&why))?;
            let (mut piece, mut offset) = (vec![0; PIECE], 0);
            loop {
                let length = file.read(&mut piece).map_err(|why| failed(&why))?;
                if length == 0 {
                    break;
                }
                volume.write(ino, offset, &piece[..length]).map_err(|why| failed(&why))?;
                offset += length as u64;
            }
        }
        _ => {}
    }
    let time = |seconds, nanoseconds| SetTime::To(Time { seconds, nanoseconds });
    let times = SetAttributes {
        accessed: Some(time(source.atime(), source.atime_nsec() as u32)),
        modified: Some(time(source.mtime(), source.mtime_nsec() as u32)),
        ..SetAttributes::default()
    };
    volume.set_attributes(ino, times).map_err(|why| failed(&why))?;
    Ok(())
}

/// Copies a file or a tree out of a volume. An existing file is replaced only when the whole copy is there.
fn copy_out(volume: &Open, address: &Address, found: &Attributes, to: &Path, recursive: bool) -> Outcome {
    let failed = |why: &dyn std::fmt::Display| Failure::Other(format!("{}: {why}", Shown(to)));
    match found.kind {
        Kind::Directory if !recursive => {
            return Err(Failure::Usage(format!(
                "{} is a directory; give -r to copy it with all in it",
                address.shown()
            )));
        }
        Kind::Directory => {
            if !to.is_dir() {
                std::fs::DirBuilder::new().mode(0o700).create(to).map_err(|why| failed(&why))?;
            }
            for (name, inside) in entries(volume, found.ino).map_err(at(address))? {
                let path = [&address.path[..], &name].join(&b'/');
                let inside_address = Address { path, ..address.clone() };
                copy_out(volume, &inside_address, &inside, &to.join(OsStr::from_bytes(&name)), true)?;
            }
            std::fs::set_permissions(to, std::fs::Permissions::from_mode(found.mode)).map_err(|why| failed(&why))
        }
        Kind::Symlink => {
            let target = volume.read_link(found.ino).map_err(at(address))?;
            std::os::unix::fs::symlink(OsStr::from_bytes(&target), to).map_err(|why| failed(&why))
        }
        Kind::File => {
            let mut name = to.file_name().ok_or_else(|| failed(&"not a name for a file"))?.to_os_string();
            name.push(".weft-part");
            let part = to.with_file_name(name);
            let made = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part);
            let mut file = made.map_err(|why| failed(&why))?;
            let done = read_out(volume, found.ino, &mut file).map_err(|why| match why {
                ReadOut::Read(error) => at(address)(error),
                ReadOut::Write(why) => failed(&why),
            });
            let done = done.and_then(|()| {
                let modified = std::time::UNIX_EPOCH
                    + std::time::Duration::new(found.modified.seconds.max(0) as u64, found.modified.nanoseconds);
                file.set_permissions(std::fs::Permissions::from_mode(found.mode)).map_err(|why| failed(&why))?;
                file.set_modified(modified).map_err(|why| failed(&why))?;
                std::fs::rename(&part, to).map_err(|why| failed(&why))
            });
            if done.is_err() {
                let _ = std::fs::remove_file(&part);
            }
            done
        }
        _ => {
            show::warning(format_args!("{} is no file, directory or link; it was not copied", address.shown()));
            Ok(())
        }
    }
}

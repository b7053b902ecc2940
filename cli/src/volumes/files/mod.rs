//! `weft ls`, `cat`, `rm` and `stat`, and the other commands for files of a volume that is not
//! mounted.

pub mod copy;
pub mod mkdir;
pub mod rename;
pub mod usage;

use super::{Address, Open, open};
use crate::failure::{Failure, Outcome};
use crate::show;
use clap::Args;
use fs::{Attributes, FileKind, ROOT};
use plan::Ino;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::Write;
use volume::shown;

/// What is copied at a time.
const COPY_PIECE_BYTES: usize = 1 << 20;
/// How often a file is looked up that others replace before it is open.
const OPEN_ATTEMPTS: usize = 32;
/// Entries that are listed at a time.
const LIST_BATCH_ENTRIES: usize = 1000;

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
fn entries(volume: &Open, ino: Ino) -> Result<Vec<(Vec<u8>, Attributes)>, fs::Error> {
    let (mut all, mut cookie) = (Vec::new(), 0);
    loop {
        let listed = volume.list(ino, cookie, LIST_BATCH_ENTRIES)?;
        let Some(last) = listed.last() else { break };
        cookie = last.cookie;
        all.extend(listed.into_iter().map(|entry| (entry.name, entry.attributes)));
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(all)
}

fn word(kind: FileKind) -> (&'static str, char) {
    match kind {
        FileKind::File => ("file", '-'),
        FileKind::Directory => ("directory", 'd'),
        FileKind::Symlink => ("symlink", 'l'),
        FileKind::Fifo => ("fifo", 'p'),
        FileKind::Socket => ("socket", 's'),
        FileKind::BlockDevice => ("block-device", 'b'),
        FileKind::CharacterDevice => ("character-device", 'c'),
    }
}

fn mode(attributes: &Attributes) -> String {
    let bits = (0..9).rev().map(|bit| if attributes.mode >> bit & 1 == 1 { b"xwr"[bit % 3] as char } else { '-' });
    std::iter::once(word(attributes.kind).1).chain(bits).collect()
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
    let listed = if found.kind == FileKind::Directory {
        entries(&volume, found.ino).map_err(at(&address))?
    } else {
        vec![(address.names().last().unwrap_or_default().to_vec(), found)]
    };
    if as_json {
        return show::json(&listed.iter().map(|(name, attributes)| document(name, attributes)).collect());
    }
    for (name, attributes) in listed {
        let name = shown(&name);
        if arguments.long {
            let (mode, date) = (mode(&attributes), show::date(attributes.modified.seconds));
            let Attributes { links, uid, gid, size, .. } = attributes;
            show::text(format_args!("{mode} {links:3} {uid:5} {gid:5} {size:12} {date} {name}"))?;
        } else {
            show::text(name)?;
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
    show::text(format_args!("  modified {}.{:09} UTC", show::date(found.modified.seconds), found.modified.nanoseconds))
}

pub fn cat(arguments: &CatArguments, as_json: bool) -> Outcome {
    if as_json {
        return Err(Failure::Usage("cat prints the bytes of a file, which are no JSON: leave out --json".into()));
    }
    let address = Address::required(&arguments.address)?;
    let volume = open(&address.volume, true)?;
    let found = find_open(&volume, &address)?;
    let mut output = std::io::stdout().lock();
    let read = read_out(&volume, found.ino, &mut output);
    volume.close(found.ino);
    read.map_err(|why| match why {
        ReadOut::Read(error) => at(&address)(error),
        ReadOut::Write(why) if why.kind() == std::io::ErrorKind::BrokenPipe => Failure::OutputClosed,
        ReadOut::Write(why) => Failure::Other(format!("cannot write to standard output: {why}")),
    })
}

/// Finds a file and opens it: what replaces it leaves its bytes to the reader. The caller closes
/// it.
fn find_open(volume: &Open, address: &Address) -> Result<Attributes, Failure> {
    let mut attempts = 0;
    loop {
        let found = find(volume, address)?;
        attempts += 1;
        match volume.open(found.ino, false) {
            Ok(()) => return Ok(found),
            Err(fs::Error::Stale) if attempts < OPEN_ATTEMPTS => {}
            Err(error) => return Err(at(address)(error)),
        }
    }
}

enum ReadOut {
    Read(fs::Error),
    Write(std::io::Error),
}

fn read_out(volume: &Open, ino: Ino, to: &mut dyn Write) -> Result<(), ReadOut> {
    let (mut piece, mut offset) = (vec![0; COPY_PIECE_BYTES], 0);
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
        // Files that were removed before a failure stay removed.
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
    if found.kind == FileKind::Directory && !recursive {
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
    parent: Ino,
    name: &[u8],
    found: &Attributes,
    removed: &mut usize,
) -> Result<(), fs::Error> {
    if found.kind == FileKind::Directory {
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

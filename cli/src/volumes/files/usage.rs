//! `weft du`: the space of files and directories of a volume. The process that has the volume open
//! may carry it out, so that it takes little memory, however large and deep the tree is.

use super::{LIST_BATCH_ENTRIES, at, entries, find};
use crate::failure::{Failure, Outcome};
use crate::volumes::{Address, Open, open};
use crate::{interrupt, show};
use clap::Args;
use fs::{Attributes, FileKind};
use plan::Ino;
use rustix::io::Errno;
use serde_json::json;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use volume::{Control, Shown};

/// Files with several names that are remembered, so that each counts once.
const MAX_LINKED: usize = 1 << 20;

/// Show how much space files and directories take
#[derive(Args)]
#[command(after_help = "Examples:
  weft du /srv/films:/
  weft du -s /srv/films:/2023 /srv/films:/2024

It shows what is in a directory, entry by entry, and the sum. Space is that of the data, without holes: the targets \
have (k+m)/k times as much. A file with several names counts once.")]
pub struct Arguments {
    /// VOLUME:/path
    #[arg(required = true)]
    addresses: Vec<OsString>,
    /// Show only the sums
    #[arg(short, long)]
    summary: bool,
}

/// What files and directories take together.
#[derive(Clone, Copy, Default)]
struct Usage {
    /// Sizes of files, in bytes; holes count.
    size: u64,
    /// Bytes that are not holes.
    allocated: u64,
    files: u64,
    directories: u64,
}

impl Usage {
    fn add(&mut self, other: Self) {
        self.size = self.size.saturating_add(other.size);
        self.allocated = self.allocated.saturating_add(other.allocated);
        self.files += other.files;
        self.directories += other.directories;
    }
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    let control = interrupt::control(true);
    let addresses: Vec<Address> =
        arguments.addresses.iter().map(|given| Address::required(given)).collect::<Result<_, _>>()?;
    let mut shown = Vec::new();
    for of_volume in addresses.chunk_by(|a, b| a.volume == b.volume) {
        let volume = open(&of_volume[0].volume, true)?;
        let mut walk = Walk { volume: &volume, control: &control, linked: HashSet::new(), is_exact: true };
        for address in of_volume {
            walk.address(address, arguments.summary, &mut shown)?;
        }
        if !walk.is_exact {
            show::warning(format_args!(
                "{} has more than {MAX_LINKED} files with several names: each name of the others counts",
                Shown(&of_volume[0].volume)
            ));
        }
    }
    if as_json {
        let each = shown.iter().map(|(path, usage)| {
            let Usage { size, allocated, files, directories } = usage;
            json!({
                "path": show::name(path.as_bytes()), "size": size, "allocated": allocated, "files": files,
                "directories": directories,
            })
        });
        return show::json(&each.collect());
    }
    show::text(format_args!("{:>10} {:>10}  PATH", "SPACE", "FILES"))?;
    for (path, usage) in shown {
        let path = Shown(Path::new(&path)).to_string();
        show::text(format_args!("{:>10} {:>10}  {path}", show::bytes(usage.allocated), usage.files))?;
    }
    Ok(())
}

/// A directory that is being walked.
struct Level {
    ino: Ino,
    /// Where its listing goes on; None if all of it was listed.
    cookie: Option<u64>,
    /// Directories of the last part of the listing that are still to be walked.
    inside: Vec<Ino>,
}

struct Walk<'a> {
    volume: &'a Open,
    control: &'a Control,
    /// Files with several names that were counted.
    linked: HashSet<Ino>,
    /// Whether all of these were remembered.
    is_exact: bool,
}

impl Walk<'_> {
    /// Adds an address to the output: its entries, if they are wanted, and the sum.
    fn address(&mut self, address: &Address, summary: bool, shown: &mut Vec<(OsString, Usage)>) -> Outcome {
        let path = |name: &[u8]| {
            let mut whole = address.volume.as_os_str().as_bytes().to_vec();
            whole.extend([b":/", &address.path[..]].concat());
            if !name.is_empty() && !address.path.is_empty() {
                whole.push(b'/');
            }
            whole.extend(name);
            OsStr::from_bytes(&whole).to_os_string()
        };
        let found = find(self.volume, address)?;
        let mut sum = self.entry(&found);
        if found.kind == FileKind::Directory {
            for (name, inside) in entries(self.volume, found.ino).map_err(at(address))? {
                let mut usage = self.entry(&inside);
                if inside.kind == FileKind::Directory {
                    usage.add(self.below(inside.ino).map_err(|failed| failed.at(address))?);
                }
                sum.add(usage);
                if !summary {
                    shown.push((path(&name), usage));
                }
            }
        }
        shown.push((path(b""), sum));
        Ok(())
    }

    /// What a file or directory takes, without its entries.
    fn entry(&mut self, attributes: &Attributes) -> Usage {
        if attributes.kind == FileKind::Directory {
            return Usage { directories: 1, ..Usage::default() };
        }
        if attributes.links > 1 {
            if self.linked.contains(&attributes.ino) {
                return Usage::default();
            }
            if self.linked.len() < MAX_LINKED {
                self.linked.insert(attributes.ino);
            } else {
                self.is_exact = false;
            }
        }
        let &Attributes { size, allocated, .. } = attributes;
        Usage { size, allocated, files: 1, directories: 0 }
    }

    /// What is in a directory and in those below.
    fn below(&mut self, ino: Ino) -> Result<Usage, Failed> {
        let begin = |ino| Level { ino, cookie: Some(0), inside: Vec::new() };
        let (mut sum, mut levels) = (Usage::default(), vec![begin(ino)]);
        while let Some(level) = levels.last_mut() {
            self.control.go_on().map_err(Failed::Work)?;
            if let Some(ino) = level.inside.pop() {
                levels.push(begin(ino));
                continue;
            }
            let Some(cookie) = level.cookie else {
                levels.pop();
                continue;
            };
            let listed = match self.volume.list(level.ino, cookie, LIST_BATCH_ENTRIES) {
                Ok(listed) => listed,
                // It was removed meanwhile.
                Err(why) if why.errno() == Errno::NOENT.raw_os_error() => Vec::new(),
                Err(why) => return Err(Failed::List(why)),
            };
            level.cookie = listed.last().map(|last| last.cookie);
            let directories = listed.iter().filter(|entry| entry.attributes.kind == FileKind::Directory);
            level.inside = directories.map(|entry| entry.attributes.ino).collect();
            listed.iter().for_each(|entry| sum.add(self.entry(&entry.attributes)));
        }
        Ok(sum)
    }
}

/// Why a tree could not be walked.
enum Failed {
    Work(volume::Error),
    List(fs::Error),
}

impl Failed {
    fn at(self, address: &Address) -> Failure {
        match self {
            Self::Work(error) => error.into(),
            Self::List(error) => at(address)(error),
        }
    }
}

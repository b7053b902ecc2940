//! `weft bench directories`: one directory of very many names. ECFS hashes directories extendibly,
//! Weft has names in the order of their hashes in one ordered map. Design note 013 says why.

mod structures;

use crate::failure::{Failure, Outcome};
use crate::volumes::bench_lab::{self, Common};
use crate::{interrupt, show};
use bench::paper::table::{Table, page};
use clap::Args;
use fs::{Create, FileKind, FileSystem, New, OpenOptions, ROOT};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;
use structures::{DINODE_BYTES, Extendible, Names, Ordered};

/// Names that are looked up, in random order.
const LOOK_UPS: u64 = 200_000;
/// Names that a list has at a time, as a mount asks for.
const LISTED: usize = 1024;
const QUICK_ENTRIES: [u64; 2] = [1_000, 10_000];

/// Large directories: names in hash order in an ordered map, beside an extendible hash
#[derive(Args)]
#[command(after_help = "Examples:
  weft bench directories
  # Ten million entries: minutes, and gigabytes of memory.
  weft bench directories --entries 10k,1M,10M
  # The structures alone.
  weft bench directories --entries 10M --no-volume
  weft bench directories --quick --json

A volume is made on directories of this machine, and files are created in one directory of it by one thread; all of \
them are durable at the end. Beside it are the structures alone, in memory, without transactions, a journal or a disk: \
the ordered map that Weft's metadata is, and a prototype of the extendible hash that ECFS has. The paper has no figure \
of directories.")]
pub struct Arguments {
    /// Numbers of entries, such as 10k,1M,10M
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "10k,1M", value_parser = number)]
    entries: Vec<u64>,
    /// Measure the structures alone, without a volume
    #[arg(long)]
    no_volume: bool,
    #[command(flatten)]
    common: Common,
}

/// A number with k for thousands and M for millions.
fn number(text: &str) -> Result<u64, String> {
    let (digits, scale) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1000),
        None => text.strip_suffix('M').map_or((text, 1), |digits| (digits, 1_000_000)),
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(scale));
    number.filter(|number| (1..=100_000_000).contains(number)).ok_or_else(|| "give 1 to 100M, such as 10k or 1M".into())
}

/// Thousands a second.
struct Rates {
    entries: u64,
    what: &'static str,
    create: f64,
    look_up: f64,
    list: f64,
}

const VOLUME: &str = "a volume";
const ORDERED: &str = "ordered map alone";
const HASH: &str = "extendible hash alone";

fn name(number: u64) -> Vec<u8> {
    // As names of files are: a common part, and numbers.
    format!("frame-{number:09}.dat").into_bytes()
}

/// Names to look up: numbers below `entries`, by chance.
fn asked(entries: u64) -> Vec<u64> {
    let mut random = fastrand::Rng::with_seed(entries);
    (0..LOOK_UPS.min(entries)).map(|_| random.u64(0..entries)).collect()
}

/// Thousands a second since then.
fn rate(count: u64, begun: Instant) -> f64 {
    count as f64 / begun.elapsed().as_secs_f64().max(1e-9) / 1e3
}

/// One of the structures, from empty.
fn structure(what: &'static str, names: &mut dyn Names, entries: u64) -> Result<Rates, Failure> {
    let wrong = || Failure::Other(format!("{what} lost a name"));
    let begun = Instant::now();
    let made = (0..entries).filter(|number| names.create(&name(*number), &[*number as u8; DINODE_BYTES])).count();
    let create = rate(entries, begun);
    let asked = asked(entries);
    let begun = Instant::now();
    let found = asked.iter().filter(|number| names.look_up(&name(**number)).is_some()).count();
    let look_up = rate(asked.len() as u64, begun);
    let begun = Instant::now();
    let (mut cookie, mut listed) = (None, 0);
    loop {
        cookie = names.list(cookie, LISTED, &mut |name, _| listed += u64::from(!name.is_empty()));
        if cookie.is_none() {
            break;
        }
    }
    let list = rate(entries, begun);
    if (made as u64, found, listed) != (entries, asked.len(), entries) {
        return Err(wrong());
    }
    Ok(Rates { entries, what, create, look_up, list })
}

/// A directory of a volume.
fn volume(place: &Path, entries: u64, control: &volume::Control) -> Result<Rates, Failure> {
    let create =
        Create::new("directories", "rs:2+1", (0..3).map(|number| place.join(format!("disk{number}"))).collect());
    create.run(&place.join("volume"))?;
    let fs = FileSystem::open_volume(&place.join("volume"), OpenOptions::default())?;
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let new = |kind| New { kind, mode: 0o755, uid, gid, device: 0, link: Vec::new() };
    let directory = fs.make(ROOT, b"directory", &new(FileKind::Directory))?.ino;
    let file = new(FileKind::File);
    let begun = Instant::now();
    for number in 0..entries {
        if number.is_multiple_of(4096) {
            control.go_on().map_err(Failure::Work)?;
        }
        fs.make(directory, &name(number), &file)?;
    }
    fs.sync_all()?;
    let create = rate(entries, begun);
    let asked = asked(entries);
    let begun = Instant::now();
    for number in &asked {
        fs.lookup(directory, &name(*number))?;
    }
    let look_up = rate(asked.len() as u64, begun);
    let begun = Instant::now();
    let (mut cookie, mut listed) = (0, 0);
    loop {
        let some = fs.list(directory, cookie, LISTED)?;
        let Some(last) = some.last() else { break };
        (cookie, listed) = (last.cookie, listed + some.len() as u64);
    }
    let list = rate(entries, begun);
    fs.close_volume()?;
    match listed == entries {
        true => Ok(Rates { entries, what: VOLUME, create, look_up, list }),
        false => Err(Failure::Other(format!("the volume lists {listed} of {entries} names"))),
    }
}

/// The directory of a run; it is removed when this goes.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn run(arguments: &Arguments, force: bool, as_json: bool) -> Outcome {
    arguments.common.check(force)?;
    let entries = if arguments.common.quick { QUICK_ENTRIES.to_vec() } else { arguments.entries.clone() };
    let control = interrupt::control(false);
    let parent = arguments.common.parent();
    let mut all = Vec::new();
    let mut fills = Vec::new();
    for (number, &entries) in entries.iter().enumerate() {
        if !arguments.no_volume {
            let place = Place(parent.join(format!("weft-directories-{}-{number}", std::process::id())));
            let failed = |why| Failure::Other(format!("{}: {why}", volume::Shown(&place.0)));
            std::fs::create_dir_all(&place.0).map_err(failed)?;
            all.push(volume(&place.0, entries, &control)?);
        }
        control.go_on().map_err(Failure::Work)?;
        all.push(structure(ORDERED, &mut Ordered::default(), entries)?);
        control.go_on().map_err(Failure::Work)?;
        let mut hash = Extendible::default();
        all.push(structure(HASH, &mut hash, entries)?);
        fills.push((entries, hash.fill()));
    }
    report(arguments, &all, &fills, force, as_json)
}

/// A table for each of create, look up and list.
fn tables(all: &[Rates]) -> Vec<Table> {
    let of = |title: &str, rate: fn(&Rates) -> f64| {
        let most = all.iter().map(rate).fold(f64::MIN_POSITIVE, f64::max);
        let row = |it: &Rates| {
            let cells = vec![format!("{}, {}", it.what, it.entries), format!("{:.1}", rate(it))];
            (cells, vec![(if it.what == VOLUME { "own" } else { "second" }, rate(it) / most)])
        };
        Table {
            title: title.into(),
            how: "The structures alone are in memory, without transactions, a journal or a disk.".into(),
            head: vec!["what, names", "thousands a second"],
            rows: all.iter().map(row).collect(),
        }
    };
    vec![of("Create", |it| it.create), of("Look up", |it| it.look_up), of("List", |it| it.list)]
}

fn report(arguments: &Arguments, all: &[Rates], fills: &[(u64, (usize, f64))], force: bool, as_json: bool) -> Outcome {
    let document = json!({
        "kind": "weft-directories", "version": 1, "date": bench_lab::now(), "machine": bench_lab::machine(),
        "program": env!("CARGO_PKG_VERSION"), "quick": arguments.common.quick,
        "results": all.iter().map(|it| json!({
            "entries": it.entries, "what": it.what, "create_per_second": it.create * 1e3,
            "look_up_per_second": it.look_up * 1e3, "list_per_second": it.list * 1e3,
        })).collect::<Vec<_>>(),
        "extendible_hash": fills.iter().map(|(entries, (buckets, fill))| json!({
            "entries": entries, "buckets": buckets, "fill": fill,
        })).collect::<Vec<_>>(),
    });
    let line = |it: &Rates| {
        let rates = [it.create, it.look_up, it.list].map(|rate| format!("{:.0}", rate * 1e3)).join(",");
        format!("{},{},{rates}", it.entries, it.what)
    };
    let head = "entries,what,create_per_second,look_up_per_second,list_per_second";
    let page = || {
        page("Weft: large directories", &format!("One directory, one thread; {}", bench_lab::machine()), &tables(all))
    };
    arguments.common.write(&document, head, all, line, page, force)?;
    if as_json {
        return show::json(&document);
    }
    show::text(format_args!("One directory, one thread, thousands a second; {}", bench_lab::machine()))?;
    show::text("   entries  what                     create   look up      list")?;
    for it in all {
        show::text(format_args!(
            "{:10}  {:21} {:9.1} {:9.1} {:9.1}",
            it.entries, it.what, it.create, it.look_up, it.list
        ))?;
    }
    for (entries, (buckets, fill)) in fills {
        show::text(format_args!(
            "extendible hash of {entries}: {} of 4 KiB, {:.0} % full",
            show::count(*buckets, "bucket"),
            100.0 * fill
        ))?;
    }
    show::text(
        "Published: ECFS hashes directories extendibly, and has no figure of them. The structures alone are in memory, \
         without transactions, a journal or a disk; a volume has all of these, and its cost is theirs, not that of the \
         structure.",
    )?;
    arguments.common.end()
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_of_entries() {
        assert_eq!(["10k", "1M", "10M", "77"].map(number), [10_000, 1_000_000, 10_000_000, 77].map(Ok));
        assert!(["0", "", "k", "1G", "101M", "-1", "1.5M"].iter().all(|text| number(text).is_err()));
    }
}

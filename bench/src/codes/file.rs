//! Whole files, as `weft encode` does them: read from the page cache, encoded, written, durable, beside the time that
//! copying the file and writing as many bytes as its parity has takes.

use crate::contest::{Contest, progress};
use crate::machine::size;
use crate::measure::interleaved;
use crate::own;
use crate::results::{Cell, Chart, Role, Row, Table};
use crate::threads::cores;
use ec::Code;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use volume::Control;
use volume::object::{EncodeOptions, Source, encode};

const SHAPES: [(&str, usize, usize); 3] = [("rs", 4, 2), ("rs", 10, 4), ("crs", 10, 4)];

const ENCODE: &str = "weft encode";
const BOUND: &str = "cp and parity";

/// Bytes written at a time by the bound.
const PIECE: usize = 1 << 20;

pub fn tables(contest: &mut Contest) -> Vec<Table> {
    let rows = contest.effort.file_bytes.into_iter().flat_map(|bytes| rows(contest, bytes)).collect();
    vec![Table {
        id: "file".into(),
        title: format!("A file from the page cache, all {} cores", cores()),
        how:
            "weft encode into one directory of the system's temporary files (TMPDIR), all durable at the end, MiB/s of \
              the file. Beside it the bound: cp of the file, then one file of as many bytes as the parity has, both \
              synced; all of it on one core, so that more cores can do better."
                .into(),
        first: "file and code".into(),
        chart: Chart::Bars,
        rows,
    }]
}

/// Encodes and copies one file by turns, in a directory that is gone afterwards.
fn rows(contest: &Contest, bytes: usize) -> Vec<Row> {
    let folder = Folder::new();
    let file = folder.as_ref().map_err(Clone::clone).and_then(|folder| random_file(&folder.0, bytes));
    let row = |&(name, k, m): &(&'static str, usize, usize)| {
        let ways = [(ENCODE, Role::Own), (BOUND, Role::Limit)];
        let figures = interleaved(contest.effort.rounds, ways.len(), |at| {
            progress(&format!("{} {name}:{k}+{m}: {}", size(bytes), ways[at].0));
            let file = file.as_ref().map_err(Clone::clone)?;
            read_through(file)?;
            let seconds = match ways[at].0 {
                ENCODE => time_encode(file, own::build(contest.kernel, name, k, m, 0)?)?,
                _ => time_bound(file, bytes / k * m)?,
            };
            Ok(bytes as f64 / (1 << 20) as f64 / seconds)
        });
        progress("");
        let cells = ways.iter().zip(figures).map(|(&(column, role), outcome)| Cell {
            column: column.into(),
            role,
            code: name.into(),
            block_bytes: 0,
            stripes: 1,
            iterations: 1,
            threads: if role == Role::Own { cores() } else { 1 },
            charted: true,
            outcome: outcome.into(),
        });
        let label = format!("{} {name}:{k}+{m}", size(bytes));
        let mut row = Row { label, k, m, lost: vec![], cells: cells.collect(), beside: vec![] };
        row.add_share("encode/ bound", ENCODE, BOUND);
        row
    };
    SHAPES.iter().map(row).collect()
}

/// A directory of our own that goes away with everything in it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("weft-bench-file-{}", std::process::id()));
        fs::create_dir(&path).map_err(failed(&path))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Nobody is there any more to be told.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> String {
    move |error| format!("{}: {error}", path.display())
}

/// A file that is on disk already, so that nobody pays for that inside the clock.
fn random_file(folder: &Path, bytes: usize) -> Result<PathBuf, String> {
    let path = folder.join("file");
    let mut arena = crate::arena::Arena::new(PIECE.min(bytes));
    write_durably(&path, arena.bytes(), bytes).map_err(failed(&path))?;
    Ok(path)
}

/// The piece, again and again.
fn write_durably(path: &Path, piece: &[u8], bytes: usize) -> std::io::Result<()> {
    let mut file = File::create_new(path)?;
    let mut left = bytes;
    while left > 0 {
        let now = left.min(piece.len());
        file.write_all(&piece[..now])?;
        left -= now;
    }
    file.sync_all()
}

/// Brings the file into the page cache.
fn read_through(path: &Path) -> Result<(), String> {
    let mut file = File::open(path).map_err(failed(path))?;
    let mut piece = vec![0; PIECE];
    while file.read(&mut piece).map_err(failed(path))? > 0 {}
    Ok(())
}

fn time_encode(file: &Path, code: Arc<dyn Code>) -> Result<f64, String> {
    let to = file.with_file_name("fragments");
    fs::create_dir(&to).map_err(failed(&to))?;
    let directories = [to.clone()];
    let start = Instant::now();
    let encoded = Source::file(file).and_then(|source| {
        let options = EncodeOptions {
            code,
            name: b"file",
            directories: &directories,
            force: false,
            block_bytes: None,
            threads: None,
        };
        encode(&source, &options, &Control::default())
    });
    let seconds = start.elapsed().as_secs_f64();
    fs::remove_dir_all(&to).map_err(failed(&to))?;
    encoded.map_err(|error| error.to_string())?;
    Ok(seconds)
}

fn time_bound(file: &Path, parity_bytes: usize) -> Result<f64, String> {
    let (copy, parity) = (file.with_file_name("copy"), file.with_file_name("parity"));
    let piece = vec![0x5A; PIECE];
    let start = Instant::now();
    // A copy that shares the file's blocks would copy nothing.
    let status = std::process::Command::new("cp").arg("--reflink=never").arg(file).arg(&copy).status();
    let status = status.map_err(|error| format!("cp: {error}"))?;
    if !status.success() {
        return Err(format!("cp: {status}"));
    }
    write_durably(&parity, &piece, parity_bytes).map_err(failed(&parity))?;
    File::open(&copy).and_then(|copy| copy.sync_all()).map_err(failed(&copy))?;
    let seconds = start.elapsed().as_secs_f64();
    fs::remove_file(&copy).and_then(|()| fs::remove_file(&parity)).map_err(failed(&parity))?;
    Ok(seconds)
}

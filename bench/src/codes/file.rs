//! Whole files, as `weft encode` does them: read from the page cache, encoded, written, durable,
//! beside the time that copying the file and writing as many bytes as its parity has takes.

use crate::bound::{copy_and_parity, failed, write_durably};
use crate::contest::{Contest, begun, progress};
use crate::measure::interleaved;
use crate::own;
use crate::results::{Cell, Chart, Role, Row, Table};
use crate::threads::cores;
use ec::Code;
use plan::words;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use volume::Control;
use volume::object::{EncodeOptions, Source, encode};
use volume::target::Directory;

const SHAPES: [(&str, usize, usize); 3] = [("rs", 4, 2), ("rs", 10, 4), ("crs", 10, 4)];

const ENCODE: &str = "weft encode";
const BOUND: &str = "cp and parity";

/// Bytes written at a time by the bound.
const WRITE_PIECE_BYTES: usize = 1 << 20;

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
        begun(&format!("{} {name}:{k}+{m}", words::size(bytes as u64)));
        let figures = interleaved(contest.effort.rounds, ways.len(), |at| {
            progress(&format!("{} {name}:{k}+{m}: {}", words::size(bytes as u64), ways[at].0));
            let file = file.as_ref().map_err(Clone::clone)?;
            read_through(file)?;
            let seconds = match ways[at].0 {
                ENCODE => time_encode(file, own::build(contest.kernel, name, k, m, 0)?)?,
                _ => copy_and_parity(file, file.parent().expect("it is in a folder"), bytes / k * m)?,
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
        let label = format!("{} {name}:{k}+{m}", words::size(bytes as u64));
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
        // No one is left who could get the error.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A file that is on disk already, so that no subject pays for that inside the clock.
fn random_file(folder: &Path, bytes: usize) -> Result<PathBuf, String> {
    let path = folder.join("file");
    let mut arena = crate::arena::Arena::new(WRITE_PIECE_BYTES.min(bytes));
    write_durably(&path, arena.bytes(), bytes).map_err(failed(&path))?;
    Ok(path)
}

/// Brings the file into the page cache.
fn read_through(path: &Path) -> Result<(), String> {
    let mut file = File::open(path).map_err(failed(path))?;
    let mut piece = vec![0; WRITE_PIECE_BYTES];
    while file.read(&mut piece).map_err(failed(path))? > 0 {}
    Ok(())
}

fn time_encode(file: &Path, code: Arc<dyn Code>) -> Result<f64, String> {
    let to = file.with_file_name("fragments");
    fs::create_dir(&to).map_err(failed(&to))?;
    let start = Instant::now();
    let encoded = Source::file(file).and_then(|source| {
        let options = EncodeOptions {
            code,
            name: b"file",
            directories: &[Directory::open(&to)?],
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

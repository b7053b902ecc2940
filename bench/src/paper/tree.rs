//! Trees from the page cache into a volume, beside `cp -r` of the same tree to the same disk and
//! writing as many bytes as its parity has; both durable at the end.

use super::Args;
use super::jobs::Ground;
use crate::bound::{copy_and_parity, settle};
use serde::Serialize;

/// Files of a folder; a tree has many folders.
const FOLDER: usize = 500;

/// One tree of files of one size.
#[derive(Clone, Debug, Serialize)]
pub struct Tree {
    /// Files.
    pub files: usize,
    /// Bytes of each.
    pub file_bytes: u64,
    /// Seconds of `weft archive`, the whole process.
    pub seconds: f64,
    /// Seconds of `cp -r` and of writing the parity's bytes, one after the other.
    pub bound_seconds: f64,
    /// The second by the first: 1 is as fast as the bound. The median of the rounds' ratios.
    pub share: f64,
    /// Processor seconds of the archive.
    pub cpu_seconds: f64,
}

impl Tree {
    /// Files a second.
    pub fn rate(&self) -> f64 {
        self.files as f64 / self.seconds
    }
}

/// Trees of large, of medium and of small files.
pub fn trees(ground: &Ground, args: &Args) -> Result<Vec<Tree>, String> {
    let sizes: [(usize, u64); 3] = if args.quick {
        [(2, 64 << 10), (4, 16 << 10), (40, 4 << 10)]
    } else {
        [(32, 32 << 20), (512, 1 << 20), (20_000, 4 << 10)]
    };
    sizes.into_iter().map(|(files, bytes)| tree(ground, args, files, bytes)).collect()
}

fn tree(ground: &Ground, args: &Args, files: usize, file_bytes: u64) -> Result<Tree, String> {
    let name = format!("tree-{file_bytes}");
    for file in 0..files {
        ground.file(&format!("{name}/{}/{file}", file / FOLDER), file_bytes)?;
    }
    let source = ground.folder.join(&name);
    let parity = files * file_bytes as usize / 2;
    let mut rounds = vec![];
    for _ in 0..args.rounds {
        settle(&ground.folder)?;
        let (facts, seconds) = ground.archive(&source, &[])?;
        settle(&ground.folder)?;
        rounds.push((seconds, copy_and_parity(&source, &ground.folder, parity)?, facts.cpu_seconds));
    }
    let middle = |of: fn(&(f64, f64, f64)) -> f64| {
        let mut all: Vec<f64> = rounds.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    std::fs::remove_dir_all(&source).map_err(|error| format!("{}: {error}", source.display()))?;
    Ok(Tree {
        files,
        file_bytes,
        seconds: middle(|round| round.0),
        bound_seconds: middle(|round| round.1),
        share: middle(|round| round.1 / round.0),
        cpu_seconds: middle(|round| round.2),
    })
}

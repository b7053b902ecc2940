//! What the experiment can be asked for.

use super::result::Pair;
use gf::Isa;
use std::path::PathBuf;

/// Options of `weft bench energy` beside its instruments.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Source devices: a directory on each
    #[arg(long, visible_alias = "dir", value_name = "DIR", num_args = 1.., default_value = ".")]
    pub from: Vec<PathBuf>,
    /// Destination devices [default: the sources]
    #[arg(long, value_name = "DIR", num_args = 1..)]
    pub to: Vec<PathBuf>,
    /// User data of a job, what stands for the study's 40 GB; 12 times as much is written to each
    /// source [default: 640MiB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub bytes: Option<u64>,
    /// Rounds of everything; the median counts [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: Option<u32>,
    /// The kernel of the methods with SIMD [default: the best here]
    #[arg(long, value_name = "KERNEL")]
    pub simd: Option<Isa>,
    /// Tiny sizes: shows that everything works; the figures mean nothing
    #[arg(long)]
    pub quick: bool,
    /// Write all results as JSON
    #[arg(long, value_name = "FILE")]
    pub json_file: Option<PathBuf>,
    /// Write a line for each measurement
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write a self-contained page with charts
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

fn size(given: &str) -> Result<u64, String> {
    plan::sizes::bytes(given).and_then(|bytes| if bytes > 0 { Ok(bytes) } else { Err("it is a size above 0".into()) })
}

impl Args {
    pub(super) fn bytes(&self) -> u64 {
        // The default has blocks of 4 MiB, as a long stripe has; the trial one of 16 KiB, as short
        // as the Cauchy codes go.
        self.bytes.unwrap_or(if self.quick { 160 << 14 } else { 160 << 22 })
    }

    pub(super) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 1 } else { 3 })
    }

    pub(super) fn simd(&self) -> Result<Isa, String> {
        let kernel = match self.simd {
            Some(isa) => gf::select::kernel(isa),
            // What forces a kernel on this program is not meant for half of its methods.
            None => Ok(*gf::select::listed().last().expect("kernels are listed")),
        };
        kernel.map(|kernel| kernel.isa()).map_err(|why| why.to_string())
    }

    /// All sources with all destinations.
    pub(super) fn pairs(&self) -> Vec<Pair> {
        let to = if self.to.is_empty() { &self.from } else { &self.to };
        let pair = |f: usize, t: usize| Pair {
            from: self.from[f].display().to_string(),
            to: to[t].display().to_string(),
            numbers: (f, t),
        };
        (0..self.from.len()).flat_map(|f| (0..to.len()).map(move |t| pair(f, t))).collect()
    }
}

//! What `weft bench codes` can be asked for, and how much work each answer is worth.

use clap::ValueEnum;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `weft bench codes`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Sections to measure, separated by commas; all when not given
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME,..")]
    pub section: Vec<Section>,
    /// Interleaved rounds; each figure is the median over them, or over their turns
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Tiny sizes: shows that everything works, in seconds; the figures mean nothing
    #[arg(long)]
    pub quick: bool,
    /// Which instructions weft and its peers use
    #[arg(long, value_enum, default_value_t = Lanes::Auto)]
    pub kernel: Lanes,
    /// Where the peers' executables are [default: target/peers beside this program's, or
    /// ./target/peers]
    #[arg(long, value_name = "DIR")]
    pub peers: Option<PathBuf>,
    /// Print one JSON document instead of text
    // A flag of the same name and type is global in `weft`; a value here would clash with it.
    #[arg(long)]
    pub json: bool,
    /// Write all results as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    pub json_file: Option<PathBuf>,
    /// Write the figures, a line for each
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write a self-contained page with charts; - is standard output
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:
  # Everything, in about half an hour.
  weft bench codes
  # The table of cached shapes, and decoding.
  weft bench codes --section table,decode
  # The curves of ECFS: regions, and overlap.
  weft bench codes --section regions --html curves.html
  # With every instruction, then with AVX2 alone.
  weft bench codes --kernel both --html codes.html
  # Without SIMD: the plain half of Gluster's table.
  weft bench codes --section table --kernel plain
  # A trial run.
  weft bench codes --quick --json

Peers are built by `cargo xtask peers`; each that is missing is named and left out.";

impl Default for Args {
    fn default() -> Self {
        Self {
            section: vec![],
            rounds: 5,
            quick: false,
            kernel: Lanes::Auto,
            peers: None,
            json: false,
            json_file: None,
            csv: None,
            html: None,
        }
    }
}

impl Args {
    /// The command that repeats this measurement, without where its results went.
    pub fn command(&self) -> String {
        let mut words = vec!["weft bench codes".to_owned()];
        if !self.section.is_empty() {
            words.push(format!("--section {}", self.section.iter().map(|s| s.name()).collect::<Vec<_>>().join(",")));
        }
        words.push(format!("--rounds {}", self.rounds));
        if self.quick {
            words.push("--quick".into());
        }
        words.push(format!("--kernel {}", value_name(&self.kernel)));
        words.join(" ")
    }

    pub(crate) fn sections(&self) -> Vec<Section> {
        let asked = |s: &Section| self.section.is_empty() || self.section.contains(s);
        Section::value_variants().iter().copied().filter(asked).collect()
    }

    pub(crate) fn effort(&self) -> Effort {
        let rounds = self.rounds as usize;
        if self.quick { Effort { rounds: rounds.min(2), ..QUICK_EFFORT } } else { Effort { rounds, ..FULL_EFFORT } }
    }
}

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Section {
    /// Gluster's table: 128 KiB of user data, 2 GiB in all; and more shapes from cache
    Table,
    /// Region sizes of Partition Encoding, conventional encoding beside, and coding beside sending
    Regions,
    /// Streaming from memory, one core and all
    Memory,
    /// Wide stripes: 160+80, 160+40, 160+32
    Wide,
    /// Decoding one and m lost blocks
    Decode,
    /// Codes made of XORs: crs, cauchy, liberation, raid6
    Bitmatrix,
    /// Every kernel that runs here
    Kernels,
    /// weft file encode of whole files, beside cp
    File,
}

impl Section {
    /// As it is written on the command line.
    pub fn name(self) -> String {
        value_name(&self)
    }
}

/// Which instruction sets are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Lanes {
    /// Each with the best it chooses itself
    Auto,
    /// Everybody held to AVX2
    Avx2,
    /// Weft without SIMD, beside zfec and Jerasure without it
    Plain,
    /// The first two, one after the other
    Both,
}

fn value_name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned())
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub rounds: usize,
    /// A round from cache has this many turns, with a short sample of each subject: on a shared
    /// machine, a disturbance of one then hits its neighbours in the list as well, and a ratio is
    /// the median of many.
    pub turns: usize,
    /// Time before each sample from cache, so that what a peer's process still does after its
    /// answer (freeing, collecting garbage) slows no other subject.
    pub pause: Duration,
    /// A subject repeats work in cache until it takes about this long in a round: long against
    /// clock and interrupts.
    pub sample_seconds: f64,
    /// A slow subject's rounds are cut to about this long by doing less of the same.
    pub max_seconds: f64,
    /// Iterations of Gluster's test, in a round.
    pub table_iterations: usize,
    /// User data of a stripe that is to stay in cache: Gluster's buffer.
    pub cached_bytes: usize,
    /// All blocks of a streaming test together, at least.
    pub streamed_bytes: usize,
    /// Block lengths in streaming tests, of usual and of wide stripes.
    pub streamed_block: usize,
    pub wide_block: usize,
    /// Block length and least region of the region curves.
    pub region_block: usize,
    pub region_least: usize,
    /// Lengths of the files that are encoded.
    pub file_bytes: [usize; 2],
    /// Buffer of the machine's own bandwidth.
    pub bandwidth_bytes: usize,
    /// Time that one request to a peer may take.
    pub deadline_seconds: u64,
}

const FULL_EFFORT: Effort = Effort {
    rounds: 5,
    turns: 4,
    pause: Duration::from_millis(10),
    sample_seconds: 0.1,
    max_seconds: 1.5,
    table_iterations: 16384,
    cached_bytes: 128 << 10,
    streamed_bytes: 512 << 20,
    streamed_block: 1 << 20,
    wide_block: 64 << 10,
    region_block: 64 << 20,
    region_least: 64 << 10,
    file_bytes: [64 << 20, 1 << 30],
    bandwidth_bytes: 256 << 20,
    deadline_seconds: 120,
};

const QUICK_EFFORT: Effort = Effort {
    rounds: 2,
    turns: 1,
    pause: Duration::ZERO,
    sample_seconds: 0.0001,
    max_seconds: 0.001,
    table_iterations: 16,
    cached_bytes: 128 << 10,
    streamed_bytes: 1 << 20,
    streamed_block: 32 << 10,
    wide_block: 4 << 10,
    region_block: 256 << 10,
    region_least: 64 << 10,
    file_bytes: [64 << 10, 1 << 20],
    bandwidth_bytes: 1 << 20,
    deadline_seconds: 20,
};

//! What `weft bench fs` can be asked for, and how much work each workload is.

use clap::ValueEnum;
use std::path::PathBuf;
use std::str::FromStr;

/// Arguments of `weft bench fs`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Directories to compare; ratios are to the first
    #[arg(required = true, value_name = "[LABEL=]DIR")]
    pub targets: Vec<Target>,
    /// Workloads, separated by commas; all when not given
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WORKLOAD,..")]
    pub only: Vec<Workload>,
    /// Interleaved rounds; each figure is the median over them
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Tiny sizes: shows that everything works, in seconds; the figures mean nothing
    #[arg(long)]
    pub quick: bool,
    /// Bytes of the sequential workloads (a quarter of it in 4 KiB records) [default: 1 GiB]
    #[arg(long, value_name = "SIZE", value_parser = plan::sizes::bytes)]
    pub bytes: Option<u64>,
    /// Files in the large directory [default: 100000]
    #[arg(long, value_name = "N")]
    pub entries: Option<u64>,
    /// The process that serves a directory: its processor time and memory are reported as well
    #[arg(long, value_name = "LABEL=PID")]
    pub pid: Vec<Pid>,
    /// Print one JSON document instead of text
    // A flag of the same name and type is global in `weft`; a value here would clash with it.
    #[arg(long)]
    pub json: bool,
    /// Write all results as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    pub json_file: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:
  weft bench fs ext4=/srv/plain passthrough=/mnt/pt \\
      weft=/mnt/weft --pid weft=4711
  weft bench fs /mnt/weft --only seq-write,seq-read \\
      --bytes 4GiB --json-file weft.json
  weft bench fs /mnt/weft --quick

Caches are dropped before cold reads: all of the kernel's as root, one file's pages otherwise. What a server keeps in \
its own memory stays there.";

/// A directory and what it is called.
#[derive(Clone, Debug)]
pub struct Target {
    /// The column's heading.
    pub label: String,
    /// Where the workloads run, each in a directory of its own.
    pub directory: PathBuf,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (label, directory) = match text.split_once('=') {
            Some((label, directory)) if !label.contains('/') => (label, directory),
            _ => (text.trim_end_matches('/').rsplit('/').next().unwrap_or(text), text),
        };
        if label.is_empty() || directory.is_empty() {
            return Err("a label and a directory, as in ext4=/srv/plain".into());
        }
        Ok(Self { label: label.to_owned(), directory: PathBuf::from(directory) })
    }
}

/// The process that serves a directory.
#[derive(Clone, Debug)]
pub struct Pid {
    /// The directory's label.
    pub label: String,
    /// The process.
    pub pid: u32,
}

impl FromStr for Pid {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('=').and_then(|(label, pid)| Some((label, pid.parse().ok()?)));
        let (label, pid) = parsed.ok_or("a label and a process id, as in weft=4711")?;
        Ok(Self { label: label.to_owned(), pid })
    }
}

/// What is done in every directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// Sequential write in records of 1 MiB and 128 KiB, fsync at the end
    SeqWrite,
    /// Sequential write in records of 4 KiB, as dd does by default with bs=4k, fsync at the end
    Dd,
    /// Sequential read in records of 1 MiB, cold and warm
    SeqRead,
    /// 4 KiB writes at random offsets of a file, fsync at the end
    RandWrite,
    /// The same with fsync after each
    RandWriteSync,
    /// 4 KiB reads at random offsets of a file, cold
    RandRead,
    /// Create, stat, list and remove files of 4 KiB
    SmallFiles,
    /// Create and list a directory of very many empty files
    BigDirectory,
}

impl Workload {
    /// As it is written on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned())
    }
}

impl Args {
    /// The command that repeats this measurement, without where it ran and where its results went.
    pub fn command(&self) -> String {
        let mut words = vec!["weft bench fs".to_owned()];
        words.extend(self.targets.iter().map(|target| format!("{}=DIR", target.label)));
        if !self.only.is_empty() {
            words.push(format!("--only {}", self.only.iter().map(|w| w.name()).collect::<Vec<_>>().join(",")));
        }
        words.push(format!("--rounds {}", self.rounds));
        words.extend(self.quick.then(|| "--quick".to_owned()));
        words.extend(self.bytes.map(|bytes| format!("--bytes {bytes}")));
        words.extend(self.entries.map(|entries| format!("--entries {entries}")));
        words.extend(self.pid.iter().map(|pid| format!("--pid {}=PID", pid.label)));
        words.join(" ")
    }

    pub(crate) fn workloads(&self) -> Vec<Workload> {
        let asked = |w: &Workload| self.only.is_empty() || self.only.contains(w);
        Workload::value_variants().iter().copied().filter(asked).collect()
    }

    pub(crate) fn effort(&self) -> Effort {
        let effort = if self.quick { QUICK_EFFORT } else { FULL_EFFORT };
        let bytes = self.bytes.map_or(effort.bytes, |bytes| bytes.next_multiple_of(1 << 20).max(1 << 20));
        Effort { bytes, entries: self.entries.unwrap_or(effort.entries).max(10), ..effort }
    }
}

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Bytes of the sequential workloads, a multiple of 1 MiB.
    pub bytes: u64,
    /// Bytes of the file that is written and read at random offsets.
    pub random_bytes: u64,
    /// Buffered writes, writes with fsync, and reads at random offsets.
    pub random_writes: u64,
    pub random_syncs: u64,
    pub random_reads: u64,
    /// Files of 4 KiB.
    pub files: u64,
    /// Files in the large directory.
    pub entries: u64,
    /// Whether the machine is not left alone between measurements.
    pub hasty: bool,
}

const FULL_EFFORT: Effort = Effort {
    bytes: 1 << 30,
    random_bytes: 256 << 20,
    random_writes: 16384,
    random_syncs: 512,
    random_reads: 4096,
    files: 5000,
    entries: 100_000,
    hasty: false,
};

const QUICK_EFFORT: Effort = Effort {
    bytes: 4 << 20,
    random_bytes: 1 << 20,
    random_writes: 64,
    random_syncs: 8,
    random_reads: 64,
    files: 50,
    entries: 200,
    hasty: true,
};

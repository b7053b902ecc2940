//! The options of `weft bench write-cost`, and what cannot be.

use crate::failure::{Failure, Outcome};
use crate::model::speed::{self, Speed};
use crate::volumes::bench_lab::{Front, Setup};
use crate::{show, unprotected};
use clap::Args;
use plan::coding::Coding;
use plan::sizes;
use std::path::PathBuf;

/// The largest record: what a mount takes in one call.
const MAX_RECORD_BYTES: u64 = 1 << 20;
/// Sizes of records that `--quick` takes, three for each way, and how many of each.
pub const QUICK_SIZES: ([u64; 6], u64) = ([4 << 10, 8 << 10, 32 << 10, 64 << 10, 128 << 10, 1 << 20], 8);
/// What the threads of `--quick` write.
pub const QUICK_STREAM_BYTES: u64 = 8 << 20;
/// The study's codes, none, Cauchy with SIMD, Cauchy and liberation without, Reed-Solomon by
/// tables, and ours with SIMD.
const STREAM_CODES: [&str; 8] = [
    "none:4+2",
    "rs:4+2",
    "crs:4+2",
    "cauchy-good:4+2",
    "liberation:4+2",
    "crs:4+2@plain",
    "liberation:4+2@plain",
    "rs:4+2@plain",
];

/// Where the time of a synced write goes: the five steps of the write-cost model
#[derive(Args)]
#[command(after_help = "Examples:
  weft bench write-cost
  # As many as the study, for weft model calibrate.
  weft bench write-cost --count 50000 --rounds 10 \\
      --json-file result.json
  weft bench write-cost --code rs:4+2 --code rs:8+3 \\
      --stores 11 --coding client,server --dir /srv/try
  # As root: behind links as fast as the study's.
  weft bench write-cost --net 1G,10G,40G,none \\
      --html steps.html --csv steps.csv
  # Does the number of stores matter?
  weft bench write-cost --stores 6,12,24 --net 1G,none \\
      --json-file result.json
  # The study's codes, with one thread and with ten.
  weft bench write-cost --threads 1,10 --only-streams \\
      --coding client,server --stream-bytes 5G
  weft bench write-cost --quick

Six stores, a metadata server and a mount run as processes on this machine. Records are written one after the other \
with O_DSYNC. With --threads, threads also write files of their own without waiting, and sync them at the end; the \
losses are against none:4+2, which stores and sends zeroes for parity and codes nothing. docs/cost-model.md says what \
the steps are; weft model calibrate takes the file of --json-file.")]
pub struct Arguments {
    /// Sizes of the records
    #[arg(
        long, value_name = "SIZE", value_delimiter = ',', value_parser = sizes::bytes,
        default_value = "4k,8k,16k,32k,64k,128k,1M"
    )]
    pub records: Vec<u64>,
    /// Records of each size; the study takes 50000
    #[arg(
        long, value_name = "N", default_value_t = 1000,
        value_parser = clap::value_parser!(u64).range(1..=10_000_000)
    )]
    pub count: u64,
    /// Rounds, in which everything takes its turn; the table has their mean, of four or more
    /// without the fastest and the slowest quarter
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub rounds: u64,
    /// A code; can be given several times
    #[arg(long, value_name = "CODE", default_value = "rs:4+2")]
    pub code: Vec<String>,
    /// Who codes: client, server (the storage servers), or both: client,server
    #[arg(long, value_name = "WHO", value_delimiter = ',', default_value = "client")]
    pub coding: Vec<Coding>,
    /// Also without servers: the mount has the volume on directories
    #[arg(long)]
    pub embedded: bool,
    /// Storage servers; at least as many as a code has blocks. With several numbers, as in 6,12,24,
    /// each has its turn in each round
    #[arg(
        long, value_name = "N", value_delimiter = ',', default_value = "6",
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    pub stores: Vec<u32>,
    /// Links of all machines in bits a second: 1G,10G,none; takes root, ip, tc [default: loopback]
    #[arg(long, value_name = "SPEED", value_delimiter = ',', value_parser = speed::parse)]
    pub net: Vec<Speed>,
    /// With --net: each message takes so many microseconds longer, one way (netem)
    #[arg(long, value_name = "US", requires = "net", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub latency: Option<u32>,
    /// User data of a stripe at most; the study has 6k [default: about 4 MiB]
    #[arg(long, value_name = "SIZE", value_parser = sizes::length::<usize>)]
    pub stripe_bytes: Option<usize>,
    /// Connections of the mount to each store that calls share; the study has 10 with ten threads
    #[arg(long, value_name = "N", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=64))]
    pub channels: Option<usize>,
    /// With server coding, the number of the store that codes everything, as in the study [default:
    /// another one for each chunk set]
    #[arg(long, value_name = "STORE", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub master: Option<u32>,
    /// Also write with so many threads at once, without waiting; the study takes 1,10
    #[arg(
        long, value_name = "N", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=256)
    )]
    pub threads: Vec<u32>,
    /// A code of the threads, with CODE@KERNEL on a kernel as WEFT_KERNEL names it; can be given
    /// several times [default: the study's]
    #[arg(long, value_name = "CODE", requires = "threads")]
    pub stream_code: Vec<String>,
    /// What all threads of a round write together; the study takes 5G for each
    #[arg(
        long, value_name = "SIZE", default_value = "512M", value_parser = sizes::bytes
    )]
    pub stream_bytes: u64,
    /// Leave the records out that are written one after the other
    #[arg(long, requires = "threads")]
    pub only_streams: bool,
    /// Where to create the temporary directory with everything [default: that of the system]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Few records of few sizes: whether it works, not how fast
    #[arg(long)]
    pub quick: bool,
    /// Also write the result to a file, for weft model calibrate
    #[arg(long, value_name = "FILE")]
    pub json_file: Option<PathBuf>,
    /// Also write the result to a file, an object on a line for each network, point and stream
    #[arg(long, value_name = "FILE")]
    pub json_lines: Option<PathBuf>,
    /// Also write the figures to a file, a line for each network and size of records
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// The same for the threads
    #[arg(long, value_name = "FILE", requires = "threads")]
    pub stream_csv: Option<PathBuf>,
    /// Also write a page with charts, beside the study's figures
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

impl Arguments {
    /// The files that it writes.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.json_file, &self.json_lines, &self.csv, &self.stream_csv, &self.html].into_iter().flatten()
    }

    /// The codes of the threads.
    pub fn stream_codes(&self) -> Vec<String> {
        match self.stream_code.is_empty() {
            true => STREAM_CODES.map(String::from).into(),
            false => self.stream_code.clone(),
        }
    }

    /// What records are written to: each code, coded by each side, and without servers.
    pub fn setups(&self) -> Vec<Setup<'_>> {
        let mut all = Vec::new();
        for code in &self.code {
            for &coding in &self.coding {
                all.extend(self.stores.iter().map(|&stores| Setup { stores, ..self.setup(code, coding) }));
            }
            if self.embedded {
                all.push(Setup { embedded: true, ..self.setup(code, Coding::Client) });
            }
        }
        all
    }

    /// Machines for stores.
    pub fn most_stores(&self) -> u32 {
        self.stores.iter().copied().max().unwrap_or(0)
    }

    /// A cluster with a code, with the first number of stores, perhaps on a kernel: `rs:4+2@plain`.
    pub fn setup<'a>(&self, code: &'a str, coding: Coding) -> Setup<'a> {
        let (code, kernel) = code.split_once('@').map_or((code, None), |(code, kernel)| (code, Some(kernel)));
        let &Self { stripe_bytes, channels, master, .. } = self;
        let master = master.filter(|_| coding == Coding::Server);
        Setup {
            front: Front::Mount("write-cost"),
            code,
            create: &[],
            kernel,
            coding,
            stores: self.stores[0],
            disks: 1,
            own_disks: false,
            embedded: false,
            stripe_bytes,
            channels,
            master,
        }
    }

    pub fn check(&self) -> Outcome {
        let wrong = |what: String| Err(Failure::Usage(what));
        if self.coding.contains(&Coding::Auto) {
            return wrong("--coding is client or server: with auto it is not known who coded".into());
        }
        if let Some(record) = self.records.iter().find(|&&record| record > MAX_RECORD_BYTES) {
            return wrong(format!("--records {record}: at most {}", show::bytes(MAX_RECORD_BYTES)));
        }
        if self.embedded && !self.net.is_empty() {
            return wrong("--embedded has no servers, so it has no --net: run it without".into());
        }
        if self.master.is_some() && !self.coding.contains(&Coding::Server) {
            return wrong("--master is for --coding server".into());
        }
        let fewest = self.stores.iter().copied().min().unwrap_or(0);
        if self.master.is_some_and(|master| master > fewest) {
            return wrong(format!("--master is a store from 1 to {fewest}"));
        }
        if self.stores.len() > 1 && !self.threads.is_empty() {
            return wrong("--threads takes one number of --stores".into());
        }
        if (1..self.stores.len()).any(|place| self.stores[..place].contains(&self.stores[place])) {
            return wrong("--stores has a number twice".into());
        }
        let streams = if self.threads.is_empty() { Vec::new() } else { self.stream_codes() };
        for code in self.code.iter().chain(&streams) {
            let setup = self.setup(code, Coding::Client);
            let blocks = unprotected::parse(setup.code)?.shape().blocks();
            if blocks > fewest as usize {
                return wrong(format!("{code} needs --stores {blocks}"));
            }
            if let Some(kernel) = setup.kernel {
                let isa = kernel.parse::<gf::Isa>().map_err(|why| Failure::Usage(why.to_string()))?;
                gf::select::kernel(isa).map_err(|why| Failure::Usage(why.to_string()))?;
            }
        }
        Ok(())
    }
}

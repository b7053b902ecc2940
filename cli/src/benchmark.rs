//! `weft bench`: measurements, beside other libraries and other file systems in the same run.

use crate::failure::{Failure, Outcome};
use clap::{Args, Subcommand};

/// Measure this machine and Weft on it, beside other libraries and file systems in the same run
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The coding engine: the papers' tables, from cache and from memory, wide shapes, decoding, every kernel
    Codes(bench::Args),
    /// File systems: the same workloads in several directories
    Fs(bench::fs::Args),
    /// The archive: the studies' experiments, scaled to this machine
    Archive(bench::paper::Args),
}

pub fn run(arguments: Arguments, as_json: bool) -> Outcome {
    match arguments.what {
        What::Codes(mut codes) => {
            codes.json |= as_json;
            bench::run(&codes).map_err(Failure::Other)
        }
        What::Archive(mut archive) => {
            archive.json |= as_json;
            bench::paper::run(&archive).map_err(Failure::Other)
        }
        What::Fs(mut fs) => {
            fs.json |= as_json;
            let all_succeeded = bench::fs::run(&fs).map_err(Failure::Other)?;
            if all_succeeded { Ok(()) } else { Err(Failure::Found) }
        }
    }
}

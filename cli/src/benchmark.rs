//! `weft bench`: measurements, beside other libraries and other file systems in the same run.

use crate::failure::{Failure, Outcome};
use crate::output;
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};

/// Measure Weft on this machine, beside other libraries and file systems
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
    /// Replace the files of --html, --csv and --json-file if there are any
    #[arg(long, global = true)]
    force: bool,
}

#[derive(Subcommand)]
enum What {
    /// The coding engine: the papers' tables, from cache and from memory, wide shapes, decoding,
    /// every kernel
    Codes(bench::Args),
    /// File systems: the same workloads in several directories
    Fs(bench::fs::Args),
    WriteCost(Box<crate::volumes::write_cost::Arguments>),
    Channels(crate::volumes::channels_bench::Arguments),
    Directories(crate::volumes::directories_bench::Arguments),
    Overlap(Box<crate::volumes::overlap_bench::Arguments>),
    Placement(Box<crate::volumes::placement_bench::Arguments>),
    /// The archive: the studies' experiments, scaled to this machine
    Archive(Box<Archive>),
    Energy(Box<crate::energy::experiment::Arguments>),
    Paper(crate::paper::Arguments),
}

/// The experiment and its instruments.
#[derive(Args)]
struct Archive {
    #[command(flatten)]
    paper: bench::paper::Args,
    #[command(flatten)]
    sources: crate::energy::Sources,
}

/// Refuses results that would replace a file, before anything is measured.
fn check<const N: usize>(files: [&Option<PathBuf>; N], force: bool) -> Outcome {
    let mut named = files.into_iter().filter_map(|file| file.as_deref()).filter(|file| *file != Path::new("-"));
    named.try_for_each(|file| output::check(file, force))
}

pub fn run(arguments: Arguments, as_json: bool) -> Outcome {
    let force = arguments.force;
    match arguments.what {
        What::Codes(mut codes) => {
            check([&codes.html, &codes.json_file, &codes.csv], force)?;
            codes.json |= as_json;
            bench::run(&codes).map_err(Failure::Other)
        }
        What::Archive(archive) => {
            let Archive { mut paper, sources } = *archive;
            check([&paper.html, &paper.json_file, &paper.csv], force)?;
            paper.json |= as_json;
            // Files that cannot be read are named before anything is measured.
            sources.choice()?;
            paper.instruments = sources.words();
            bench::paper::run(&paper).map_err(Failure::Other)
        }
        What::Energy(arguments) => crate::energy::experiment::run(&arguments, force, as_json),
        What::Paper(arguments) => crate::paper::run(&arguments, force, as_json),
        What::WriteCost(arguments) => crate::volumes::write_cost::run(&arguments, force, as_json),
        What::Channels(arguments) => crate::volumes::channels_bench::run(&arguments, force, as_json),
        What::Directories(arguments) => crate::volumes::directories_bench::run(&arguments, force, as_json),
        What::Overlap(arguments) => crate::volumes::overlap_bench::run(&arguments, force, as_json),
        What::Placement(arguments) => crate::volumes::placement_bench::run(&arguments, force, as_json),
        What::Fs(mut fs) => {
            check([&fs.json_file], force)?;
            fs.json |= as_json;
            let all_succeeded = bench::fs::run(&fs).map_err(Failure::Other)?;
            if all_succeeded { Ok(()) } else { Err(Failure::Found) }
        }
    }
}

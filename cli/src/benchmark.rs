//! `weft bench`: measurements, beside other libraries in the same run.

use crate::failure::{Failure, Outcome};
use clap::{Args, Subcommand};

/// Measure this machine and Weft on it, beside other libraries in the same run
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The coding engine: the papers' tables, from cache and from memory, wide shapes, decoding, every kernel
    Codes(bench::Args),
}

pub fn run(arguments: Arguments, as_json: bool) -> Outcome {
    let What::Codes(mut codes) = arguments.what;
    codes.json |= as_json;
    bench::run(&codes).map_err(Failure::Other)
}

//! `weft file`: single files in fragments, without a volume.

mod decode;
mod encode;
mod inspect;
mod repair;
pub mod verify;

use crate::failure::Outcome;
use clap::{Args, Subcommand};

/// Encode single files into fragments, and decode, verify and repair them
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Encode(encode::Arguments),
    Decode(decode::Arguments),
    Verify(verify::Arguments),
    Repair(repair::Arguments),
    Inspect(inspect::Arguments),
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    match &arguments.command {
        Command::Encode(arguments) => encode::run(arguments, as_json),
        Command::Decode(arguments) => decode::run(arguments, as_json),
        Command::Verify(arguments) => verify::run(arguments, as_json),
        Command::Repair(arguments) => repair::run(arguments, as_json),
        Command::Inspect(arguments) => inspect::run(arguments, as_json),
    }
}

//! `weft`: erasure-coded files, from the command line. Each command is a file; what they share is how they print,
//! wait and fail.
#![forbid(unsafe_code)]

mod benchmark;
mod codes;
mod decode;
mod demo;
mod encode;
mod failure;
mod inspect;
mod interrupt;
mod progress;
mod repair;
mod show;
mod verify;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Erasure-coded files: any few fragments may be lost, the file is not.
#[derive(Parser)]
#[command(name = "weft", version, after_help = EXAMPLES, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Print one JSON document instead of text
    #[arg(long, global = true)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  weft encode film.mkv --code rs:4+2 --to /disk1 /disk2 /disk3 /disk4 /disk5 /disk6
  weft verify film.mkv --from /disk*
  weft decode film.mkv --from /disk* --out film.mkv
  weft demo
  weft bench codes --section table --html table.html";

#[derive(Subcommand)]
enum Command {
    Codes(codes::Arguments),
    Encode(encode::Arguments),
    Decode(decode::Arguments),
    Verify(verify::Arguments),
    Repair(repair::Arguments),
    Inspect(inspect::Arguments),
    Demo(demo::Arguments),
    Bench(benchmark::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let json = arguments.json;
    // What it says is no fault of any file, so no command begins with a kernel that cannot be.
    if let Err(error) = gf::select::chosen() {
        return failure::Failure::Usage(error.to_string()).report(json);
    }
    let result = match arguments.command {
        Command::Codes(arguments) => codes::run(&arguments, json),
        Command::Encode(arguments) => encode::run(&arguments, json),
        Command::Decode(arguments) => decode::run(&arguments, json),
        Command::Verify(arguments) => verify::run(&arguments, json),
        Command::Repair(arguments) => repair::run(&arguments, json),
        Command::Inspect(arguments) => inspect::run(&arguments, json),
        Command::Demo(arguments) => demo::run(&arguments, json),
        Command::Bench(arguments) => benchmark::run(arguments, json),
    };
    result.map_or_else(|failure| failure.report(json), |()| ExitCode::SUCCESS)
}

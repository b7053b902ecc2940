//! The measurement of the codes without the rest of Weft: `cargo run --release -p bench --example
//! codes -- --quick`.

use clap::Parser;
use std::process::ExitCode;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: bench::Args,
}

fn main() -> ExitCode {
    match bench::run(&Command::parse().args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

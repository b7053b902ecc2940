//! `weft volume`: whole volumes.

use super::{create, fsck, status, upgrade, verify};
use crate::failure::Outcome;
use clap::{Args, Subcommand};

/// Create, check and repair volumes
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    Create(create::CreateArguments),
    Open(create::OpenArguments),
    Status(status::Arguments),
    Verify(verify::VerifyArguments),
    Repair(verify::RepairArguments),
    Fsck(fsck::Arguments),
    Upgrade(upgrade::Arguments),
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    match &arguments.command {
        Command::Create(arguments) => create::create(arguments, as_json),
        Command::Open(arguments) => create::open(arguments, as_json),
        Command::Status(arguments) => status::run(arguments, as_json),
        Command::Verify(arguments) => verify::verify(arguments, as_json),
        Command::Repair(arguments) => verify::repair(arguments, as_json),
        Command::Fsck(arguments) => fsck::run(arguments, as_json),
        Command::Upgrade(arguments) => upgrade::run(arguments, as_json),
    }
}

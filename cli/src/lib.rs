//! `weft`: erasure-coded files, from the command line. Each command is a file; what they share is how they print,
//! wait and fail.
#![forbid(unsafe_code)]

mod benchmark;
mod codes;
mod config;
mod decode;
mod demo;
mod encode;
mod energy;
mod failure;
mod inspect;
mod interrupt;
mod log;
mod progress;
mod repair;
mod show;
mod verify;
mod volumes;

/// What `weft-mpi` shares with `weft archive`.
pub mod archiving {
    pub use crate::failure::{Failure, Outcome};
    pub use crate::interrupt::control;
    pub use crate::show::warning;
    pub use crate::volumes::archive::{Arguments, Progress, Wanted, end};
    pub use crate::volumes::{Address, Open, client_name, open, options, server_of};
}

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use failure::{Failure, Outcome};
use std::ffi::OsString;
use std::process::ExitCode;

/// Erasure-coded files and volumes: any few disks may be lost, the data is not.
#[derive(Parser)]
#[command(name = "weft", version, after_help = EXAMPLES, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Print one JSON document instead of text
    #[arg(long, global = true)]
    json: bool,
    /// Who this is to the servers of a cluster: NAME.pem and NAME.key, with authority.pem beside them
    #[arg(long, global = true, value_name = "DIR/NAME", env = "WEFT_IDENTITY")]
    identity: Option<std::path::PathBuf>,
    /// A TOML file with options of servers and mounts, which flags and the environment override
    #[arg(long, global = true, value_name = "FILE", env = config::VARIABLE)]
    #[allow(dead_code, reason = "the file is read before the arguments are")]
    config: Option<std::path::PathBuf>,
}

const EXAMPLES: &str = "Examples:
  weft create /srv/films --code rs:4+2 /disk1 /disk2 /disk3 /disk4 /disk5 /disk6
  weft mount /srv/films /mnt
  weft status /srv/films
  weft target replace /srv/films /disk3 /newdisk

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
    Energy(energy::Arguments),
    Create(volumes::create::CreateArguments),
    Reopen(volumes::create::ReopenArguments),
    Mount(volumes::mount::MountArguments),
    #[command(visible_alias = "umount")]
    Unmount(volumes::mount::UnmountArguments),
    Ls(volumes::files::ListArguments),
    Cat(volumes::files::CatArguments),
    Cp(volumes::files::CopyArguments),
    Archive(volumes::archive::Arguments),
    Restore(volumes::restore::Arguments),
    Rm(volumes::files::RemoveArguments),
    Stat(volumes::files::StatArguments),
    Status(volumes::status::Arguments),
    Target(volumes::target::Arguments),
    Fsck(volumes::fsck::Arguments),
    Serve(volumes::serve::ServeArguments),
    Cluster(volumes::serve::ClusterArguments),
}

impl Command {
    /// Whether it looks after a volume, which not every member of a cluster may: it changes what there is, or whose it is.
    fn is_for_operators(&self) -> bool {
        !matches!(self, Self::Status(_) | Self::Ls(_) | Self::Stat(_) | Self::Verify(_))
    }

    /// Whether the process of a mount may carry it out for another one.
    fn works_on_mounted(&self) -> bool {
        match self {
            Self::Verify(arguments) => arguments.volume().is_some(),
            Self::Repair(arguments) => arguments.volume().is_some(),
            Self::Fsck(arguments) => !arguments.rebuild(),
            Self::Status(_) | Self::Target(_) | Self::Ls(_) | Self::Stat(_) => true,
            _ => false,
        }
    }
}

/// Carries out what the command line says, or, under the name `mount.weft`, what mount(8) asks.
pub fn main() -> ExitCode {
    let given: Vec<OsString> = std::env::args_os().collect();
    if !volumes::helper::is_called(&given) {
        return carry_out_given(given, |status| status, true);
    }
    let status = volumes::helper::status;
    match volumes::helper::translate(&given) {
        Ok(Some(ours)) => carry_out_given(ours, status, false),
        Ok(None) => ExitCode::SUCCESS,
        Err(failure) => status(failure.report(false)).into(),
    }
}

/// Carries out a command line. `shown` says which exit status an own one becomes; with `forwards`, whoever has the volume open may carry the command out.
fn carry_out_given(given: Vec<OsString>, shown: impl Fn(u8) -> u8, forwards: bool) -> ExitCode {
    let as_json = given.iter().any(|argument| argument == "--json");
    let command = match config::with_file(Arguments::command(), &given) {
        Ok(command) => command,
        Err(failure) => return shown(failure.report(as_json)).into(),
    };
    let matches = command.get_matches_from(given);
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|why| why.exit());
    // What it says is no fault of any file, so no command begins with a kernel that cannot be.
    if let Err(error) = gf::select::chosen() {
        return shown(Failure::Usage(error.to_string()).report(arguments.json)).into();
    }
    log::begin();
    let json = arguments.json;
    let Err(failure) = carry_out(arguments) else { return ExitCode::SUCCESS };
    let mounted = match &failure {
        Failure::Busy(volume, _) if forwards => volumes::remote::forward(volume),
        _ => None,
    };
    mounted.unwrap_or_else(|| shown(failure.report(json)).into())
}

/// Carries out a command and reports how it ended: its exit status.
fn run(arguments: Arguments) -> u8 {
    let json = arguments.json;
    carry_out(arguments).map_or_else(|failure| failure.report(json), |()| 0)
}

fn carry_out(arguments: Arguments) -> Outcome {
    let json = arguments.json;
    let identity = arguments.identity.as_deref();
    if let Some(place) = identity {
        cluster::use_identity(&cluster::Identity::at(place))?;
    }
    match arguments.command {
        Command::Codes(arguments) => codes::run(&arguments, json),
        Command::Encode(arguments) => encode::run(&arguments, json),
        Command::Decode(arguments) => decode::run(&arguments, json),
        Command::Verify(arguments) => verify::run(&arguments, json),
        Command::Repair(arguments) => repair::run(&arguments, json),
        Command::Inspect(arguments) => inspect::run(&arguments, json),
        Command::Demo(arguments) => demo::run(&arguments, json),
        Command::Bench(arguments) => benchmark::run(arguments, json),
        Command::Energy(arguments) => energy::run(&arguments, json),
        Command::Create(arguments) => volumes::create::create(&arguments, json),
        Command::Reopen(arguments) => volumes::create::reopen(&arguments, json),
        Command::Mount(arguments) => volumes::mount::mount(&arguments, identity, json),
        Command::Unmount(arguments) => volumes::mount::unmount(&arguments, json),
        Command::Ls(arguments) => volumes::files::list(&arguments, json),
        Command::Cat(arguments) => volumes::files::cat(&arguments),
        Command::Cp(arguments) => volumes::files::copy(&arguments, json),
        Command::Archive(arguments) => volumes::archive::run(&arguments, json),
        Command::Restore(arguments) => volumes::restore::run(&arguments, json),
        Command::Rm(arguments) => volumes::files::remove(&arguments, json),
        Command::Stat(arguments) => volumes::files::stat(&arguments, json),
        Command::Status(arguments) => volumes::status::run(&arguments, json),
        Command::Target(arguments) => volumes::target::run(&arguments, json),
        Command::Fsck(arguments) => volumes::fsck::run(&arguments, json),
        Command::Serve(arguments) => volumes::serve::serve(&arguments, identity, json),
        Command::Cluster(arguments) => volumes::serve::cluster(&arguments, json),
    }
}

//! `weft`: erasure-coded files, from the command line. Each command is a file. They share how they
//! print, wait and fail.
#![forbid(unsafe_code)]

mod benchmark;
mod codes;
mod completions;
mod config;
mod demo;
mod energy;
mod failure;
mod file;
#[cfg(test)]
mod help;
mod interrupt;
mod log;
mod man;
mod model;
mod output;
mod paper;
mod progress;
mod recover;
mod show;
mod simulation;
mod spelling;
mod unprotected;
mod volumes;

/// What `weft-mpi` shares with `weft archive`.
pub mod archiving {
    pub use crate::failure::{Failure, Outcome};
    pub use crate::interrupt::control;
    pub use crate::show::{failure, warning};
    pub use crate::volumes::archive::{Arguments, Report, Wanted, end};
    pub use crate::volumes::job_progress::Progress;
    pub use crate::volumes::{Address, Open, open, options, server_of};
}

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand, value_parser};
use failure::{Failure, Outcome};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// An erasure-coded file system: lose any few disks or servers and keep every byte
#[derive(Parser)]
#[command(name = "weft", version, after_help = EXAMPLES, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Print JSON instead of text
    #[arg(long, global = true)]
    json: bool,
    /// Read a volume although targets are missing that may have a newer state
    #[arg(long, global = true, hide_short_help = true)]
    possibly_old: bool,
}

const EXAMPLES: &str = "Examples:
  # A volume on six disks: any two of them may be lost.
  weft volume create /srv/films --code rs:4+2 /disk[1-6]
  weft mount /srv/films /mnt
  weft status /srv/films
  weft target replace /srv/films /disk3 /newdisk

  # One file in six fragments, without a volume.
  weft file encode film.mkv --code rs:4+2 --to /disk[1-6]
  weft file decode film.mkv --from /disk* --out film.mkv

  weft demo

`weft COMMAND --help` shows the options and examples of a command.";

#[derive(Subcommand)]
enum Command {
    Mount(volumes::mount::MountArguments),
    #[command(visible_alias = "umount")]
    Unmount(volumes::mount::UnmountArguments),
    Status(volumes::status::Arguments),
    Ls(volumes::files::ListArguments),
    Cat(volumes::files::CatArguments),
    Cp(volumes::files::copy::Arguments),
    Mv(volumes::files::rename::Arguments),
    Rm(volumes::files::RemoveArguments),
    Mkdir(volumes::files::mkdir::Arguments),
    Du(volumes::files::usage::Arguments),
    Stat(volumes::files::StatArguments),
    Archive(volumes::archive::Arguments),
    Restore(volumes::restore::Arguments),
    Volume(volumes::group::Arguments),
    Target(volumes::target::Arguments),
    Rebalance(volumes::rebalance::Arguments),
    Meta(volumes::meta::Arguments),
    Serve(volumes::serve::ServeArguments),
    S3(volumes::s3::Arguments),
    Console(volumes::console::Arguments),
    Cluster(volumes::serve::ClusterArguments),
    File(file::Arguments),
    Recover(recover::Arguments),
    Codes(codes::Arguments),
    Demo(demo::Arguments),
    Bench(benchmark::Arguments),
    Model(model::Arguments),
    Sim(simulation::Arguments),
    Energy(energy::Arguments),
    Completions(completions::Arguments),
    #[command(hide = true)]
    Man(man::Arguments),
}

impl Command {
    /// Whether it changes a volume, or which server has it: not every member of a cluster may do
    /// that.
    fn is_for_operators(&self) -> bool {
        use volumes::group::Command as OfVolume;
        match self {
            Self::Status(_) | Self::Ls(_) | Self::Stat(_) | Self::Du(_) => false,
            Self::Volume(volume) => !matches!(volume.command, OfVolume::Status(_) | OfVolume::Verify(_)),
            _ => true,
        }
    }

    /// Whether the process of a mount may carry it out for another one.
    fn works_on_mounted(&self) -> bool {
        use volumes::group::Command as OfVolume;
        match self {
            Self::Volume(volume) => match &volume.command {
                OfVolume::Verify(arguments) => !arguments.is_of_archive(),
                OfVolume::Fsck(arguments) => !arguments.rebuild(),
                OfVolume::Status(_) | OfVolume::Repair(_) | OfVolume::Upgrade(_) => true,
                OfVolume::Create(_) | OfVolume::Open(_) => false,
            },
            Self::Status(_) | Self::Ls(_) | Self::Stat(_) | Self::Du(_) => true,
            Self::Target(_) | Self::Rebalance(_) | Self::Meta(_) => true,
            Self::S3(arguments) => arguments.is_about_keys(),
            _ => false,
        }
    }
}

impl Command {
    /// Whether a metadata server that stands by may carry it out: it is about that server.
    fn works_on_standby(&self) -> bool {
        use volumes::group::Command as OfVolume;
        match self {
            Self::Volume(volume) => matches!(volume.command, OfVolume::Status(_)),
            Self::Status(_) | Self::Meta(_) => true,
            _ => false,
        }
    }
}

/// Commands that talk to the servers of a cluster. They show these an identity.
const CLUSTER_COMMANDS: [&[&str]; 33] = [
    &["mount"],
    &["status"],
    &["ls"],
    &["cat"],
    &["cp"],
    &["mv"],
    &["rm"],
    &["mkdir"],
    &["du"],
    &["stat"],
    &["archive"],
    &["restore"],
    &["volume", "create"],
    &["volume", "open"],
    &["volume", "status"],
    &["volume", "verify"],
    &["volume", "repair"],
    &["volume", "fsck"],
    &["target", "add"],
    &["target", "drain"],
    &["target", "undrain"],
    &["target", "replace"],
    &["target", "domain"],
    &["target", "placement"],
    &["rebalance"],
    &["meta", "handover"],
    &["meta", "forget"],
    &["s3"],
    &["s3", "key", "add"],
    &["s3", "key", "list"],
    &["s3", "key", "rotate"],
    &["s3", "key", "remove"],
    &["console"],
];

/// All commands, with the options that only some of them have.
fn commands() -> clap::Command {
    let identity = || {
        let help = "The certificate to show to servers: NAME.pem and NAME.key, with authority.pem beside them";
        option("identity", help).value_name("DIR/NAME").env("WEFT_IDENTITY")
    };
    let config = || {
        let help = "A TOML file with options; flags and environment variables override it";
        option("config", help).value_name("FILE").env(config::VARIABLE)
    };
    let servers: [&[&str]; 3] = [&["serve", "store"], &["serve", "meta"], &["serve", "join"]];
    let mut commands = Arguments::command();
    for path in CLUSTER_COMMANDS.iter().chain(&servers) {
        commands = below(commands, path, |command| command.arg(identity()));
    }
    for (_, path) in config::TABLES {
        commands = below(commands, path, |command| command.arg(config()));
    }
    let commands = below(commands, &["archive"], |command| {
        command
            .override_usage("weft archive [OPTIONS] <SOURCE>... <VOLUME:/path>\n       weft archive --execute <PLAN>")
    });
    // The same command has two names, and each shows examples of itself.
    below(commands, &["volume", "status"], |command| {
        let help = command.get_after_help().map(|help| help.to_string().replace("weft status", "weft volume status"));
        command.after_help(help.unwrap_or_default())
    })
}

fn option(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).help(help).help_heading(None).value_parser(value_parser!(PathBuf))
}

/// Changes a command below another one.
fn below(command: clap::Command, path: &[&str], change: impl FnOnce(clap::Command) -> clap::Command) -> clap::Command {
    match path {
        [] => change(command),
        [first, rest @ ..] => command.mut_subcommand(first, |inside| below(inside, rest, change)),
    }
}

/// What a command line says: the command, and the identity to show to servers.
fn parse(commands: clap::Command, given: Vec<OsString>) -> Result<(Arguments, Option<PathBuf>), clap::Error> {
    let matches = commands.try_get_matches_from(given)?;
    let arguments = Arguments::from_arg_matches(&matches)?;
    let mut leaf: &ArgMatches = &matches;
    while let Some((_, inside)) = leaf.subcommand() {
        leaf = inside;
    }
    let identity = leaf.try_get_one::<PathBuf>("identity").ok().flatten().cloned();
    Ok((arguments, identity))
}

/// Adds to an error about an unknown command the commands in groups that may be meant.
fn suggest(mut why: clap::Error) -> clap::Error {
    let Some(ContextValue::String(word)) = why.get(ContextKind::InvalidSubcommand) else { return why };
    if why.kind() != ErrorKind::InvalidSubcommand {
        return why;
    }
    let mut near: Vec<(usize, String)> = Vec::new();
    for group in commands().get_subcommands() {
        for command in group.get_subcommands() {
            let distance = config::distance(word, command.get_name());
            near.push((distance, format!("{} {}", group.get_name(), command.get_name())));
        }
    }
    near.retain(|(distance, _)| *distance <= 1 + word.len() / 4);
    near.sort();
    let mut names: Vec<String> = near.into_iter().map(|(_, name)| name).collect();
    match why.remove(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(more)) => names.extend(more),
        Some(ContextValue::String(more)) => names.push(more),
        _ => {}
    }
    if !names.is_empty() {
        why.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(names));
    }
    why
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
        Err(failure) => status(show::failure(&failure, false)).into(),
    }
}

/// Carries out a command line. `shown` turns an exit status of `weft` into the one to end with.
/// With `forwards`, the process that has the volume open may carry the command out.
fn carry_out_given(given: Vec<OsString>, shown: impl Fn(u8) -> u8, forwards: bool) -> ExitCode {
    let as_json = given.iter().any(|argument| argument == "--json");
    let commands = commands();
    let given = spelling::today(&commands, given);
    let commands = match config::with_file(commands, &given) {
        Ok(commands) => commands,
        Err(failure) => return shown(show::failure(&failure, as_json)).into(),
    };
    let (arguments, identity) = parse(commands, given).unwrap_or_else(|why| suggest(why).exit());
    // An unknown kernel is not the fault of a file, so no command begins with one.
    if let Err(error) = gf::select::chosen() {
        return shown(show::failure(&Failure::Usage(error.to_string()), arguments.json)).into();
    }
    let _log = log::begin();
    let json = arguments.json;
    let Err(failure) = carry_out(arguments, identity.as_deref()) else { return ExitCode::SUCCESS };
    let mounted = match &failure {
        Failure::Busy(volume, _) if forwards => volumes::remote::forward(volume, json),
        _ => None,
    };
    mounted.unwrap_or_else(|| shown(show::failure(&failure, json)).into())
}

/// Carries out a command for another process and reports how it ended: its exit status.
fn run(arguments: Arguments) -> u8 {
    let json = arguments.json;
    carry_out(arguments, None).map_or_else(|failure| show::failure(&failure, json), |()| 0)
}

fn carry_out(arguments: Arguments, identity: Option<&Path>) -> Outcome {
    let json = arguments.json;
    if arguments.possibly_old {
        volumes::allow_possibly_old();
    }
    if let Some(place) = identity {
        cluster::use_identity(&cluster::Identity::at(place))?;
    }
    match arguments.command {
        Command::Mount(arguments) => volumes::mount::mount(&arguments, identity, json),
        Command::Unmount(arguments) => volumes::mount::unmount(&arguments, json),
        Command::Status(arguments) => volumes::status::run(&arguments, json),
        Command::Ls(arguments) => volumes::files::list(&arguments, json),
        Command::Cat(arguments) => volumes::files::cat(&arguments, json),
        Command::Cp(arguments) => volumes::files::copy::run(&arguments, json),
        Command::Mv(arguments) => volumes::files::rename::run(&arguments, json),
        Command::Rm(arguments) => volumes::files::remove(&arguments, json),
        Command::Mkdir(arguments) => volumes::files::mkdir::run(&arguments, json),
        Command::Du(arguments) => volumes::files::usage::run(&arguments, json),
        Command::Stat(arguments) => volumes::files::stat(&arguments, json),
        Command::Archive(arguments) => volumes::archive::run(&arguments, json),
        Command::Restore(arguments) => volumes::restore::run(&arguments, json),
        Command::Volume(arguments) => volumes::group::run(&arguments, json),
        Command::Target(arguments) => volumes::target::run(&arguments, json),
        Command::Rebalance(arguments) => volumes::rebalance::run(&arguments, json),
        Command::Meta(arguments) => volumes::meta::run(&arguments, json),
        Command::Serve(arguments) => volumes::serve::serve(&arguments, identity, json),
        Command::S3(arguments) => volumes::s3::run(&arguments, json),
        Command::Console(arguments) => volumes::console::run(&arguments, json),
        Command::Cluster(arguments) => volumes::serve::cluster(&arguments, json),
        Command::File(arguments) => file::run(&arguments, json),
        Command::Recover(arguments) => recover::run(&arguments, json),
        Command::Codes(arguments) => codes::run(&arguments, json),
        Command::Demo(arguments) => demo::run(&arguments, json),
        Command::Bench(arguments) => benchmark::run(arguments, json),
        Command::Model(arguments) => model::run(&arguments, json),
        Command::Sim(arguments) => simulation::run(&arguments, json),
        Command::Energy(arguments) => energy::run(&arguments, json),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Man(arguments) => man::run(&arguments, json),
    }
}

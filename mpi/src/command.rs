//! The command line of `weft-mpi`: that of `weft archive`, except for options that mean something
//! else under MPI.

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use cli::archiving;
use std::ffi::OsString;
use std::path::PathBuf;

/// The parallel archive encoder of Weft, under MPI
#[derive(Parser)]
#[command(name = "weft-mpi", version, max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Print one JSON document instead of text
    #[arg(long, global = true)]
    pub json: bool,
    /// Who this is to the servers of a cluster: NAME.pem and NAME.key, with authority.pem beside
    /// them
    #[arg(long, global = true, value_name = "DIR/NAME", env = "WEFT_IDENTITY")]
    pub identity: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    Archive(ArchiveArguments),
}

/// Archive files and trees into a volume, with all their attributes, by many processes
#[derive(Args)]
struct ArchiveArguments {
    #[command(flatten)]
    shared: archiving::Arguments,
}

const EXAMPLES: &str = "Examples:
  mpirun -n 6 weft-mpi archive /data/run7 /srv/films:/runs        becomes /runs/run7
  mpirun -n 200 --hostfile nodes weft-mpi archive --explorers 4 /data/run7/ /srv/films:/runs/7
  srun --mpi=pmix -N 16 --ntasks-per-node 1 -c 32 weft-mpi archive --workers 32 /data/ weft://meta:7600/films:/data

Rank 0 hands out work and has the volume open, rank 1 counts, then come the explorers, and all others code. Sources,
and targets that are directories, must be there under the same paths on all nodes. It can be stopped at any moment
and started again, with any number of ranks, and does what is left; so does weft archive.";

impl Arguments {
    /// Reads a command line.
    ///
    /// # Errors
    /// What is wrong with it, or the help that was asked for.
    pub fn read(words: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let workers = "Threads that code, in each process that does; 1 without this";
        let explorers = "Processes that walk the trees, of those on the node of rank 0";
        let memory = "Memory to use, in each process";
        let command = Self::command().mut_subcommand("archive", |archive| {
            archive
                .after_help(EXAMPLES)
                .mut_arg("workers", |argument| argument.help(workers))
                .mut_arg("explorers", |argument| argument.help(explorers))
                .mut_arg("memory", |argument| argument.help(memory))
        });
        Self::from_arg_matches(&command.try_get_matches_from(words)?)
    }

    /// What is to be archived, and how.
    pub fn archive(&self) -> &archiving::Arguments {
        let Command::Archive(ArchiveArguments { shared }) = &self.command;
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &str) -> Result<Arguments, clap::Error> {
        Arguments::read(words.split(' ').map(OsString::from))
    }

    #[test]
    fn it_takes_what_weft_archive_takes() {
        let arguments = read("weft-mpi archive --workers 3 --explorers 2 --update /a v:/b --json").unwrap();
        assert!(arguments.json);
        assert_eq!((arguments.archive().workers, arguments.archive().explorers), (Some(3), 2));
        assert!(read("weft-mpi archive /a").is_err() && read("weft-mpi").is_err());
    }

    #[test]
    fn its_help_is_its_own() {
        let help = read("weft-mpi archive --help").err().unwrap().to_string();
        assert!(help.contains("mpirun -n 6") && help.contains("in each process that does"), "{help}");
        assert!(!help.contains("  weft archive /data/run7"), "{help}");
    }
}

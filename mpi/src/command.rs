//! The command line of `weft-mpi`: that of `weft archive`, except for options that mean something
//! else under MPI.

use archive::walk::Filter;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use cli::archiving;
use plan::sizes;
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
    Archive(Box<ArchiveArguments>),
    Restore(RestoreArguments),
    Verify(VerifyArguments),
}

/// What a job does.
pub enum Task<'a> {
    /// Archives files.
    Archive(&'a archiving::Arguments),
    /// Restores files.
    Restore(&'a RestoreArguments),
    /// Compares files with their hashes.
    Verify(&'a VerifyArguments),
}

/// Restore an archive, or some of it, into a directory, with all attributes, by many processes
#[derive(Args)]
#[command(after_help = "Examples:
  mpirun -n 6 weft-mpi restore /srv/films:/runs/7 /data/run7
  mpirun -n 200 --hostfile nodes weft-mpi restore --explorers 4 --include '*.h5' /srv/films:/runs /scratch/runs

The directory must be on a file system that all nodes share, under the same path. It can be stopped at any moment and \
started again, and does not write again what is there; so does weft restore. Rank 0 gives directories their \
attributes, when all files are in them.")]
pub struct RestoreArguments {
    /// What to restore: VOLUME:/path
    pub address: OsString,
    /// The directory to restore into; it is created if it is not there
    pub directory: PathBuf,
    /// The processes, and what each has.
    #[command(flatten)]
    pub crew: CrewArguments,
    /// Write no more bytes than this in a second, all processes together
    #[arg(long, value_name = "SIZE", value_parser = sizes::bytes)]
    pub limit: Option<u64>,
    /// Only files that match; a pattern with a slash is for paths below the restored one, one
    /// without for names
    #[arg(long, value_name = "GLOB")]
    include: Vec<String>,
    /// No files that match, and no directories that match with what is in them
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// Replace files that are there and differ, and the file of --report
    #[arg(long)]
    pub force: bool,
    /// Write a report with charts, a self-contained page
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
}

impl RestoreArguments {
    /// Which files.
    ///
    /// # Errors
    /// Names the pattern that is not valid.
    pub fn filter(&self) -> Result<Filter, archiving::Failure> {
        Filter::new(&self.include, &self.exclude).map_err(archiving::Failure::Usage)
    }
}

/// Compare the files of an archive, or those of its source, with what was archived, by many
/// processes
#[derive(Args)]
#[command(after_help = "Examples:
  mpirun -n 6 weft-mpi verify /srv/films:/runs/7
  # The source of the archive against what was archived.
  mpirun -n 6 weft-mpi verify /srv/films:/runs/7 /data/run7

It is weft volume verify --manifest, whose files are read by all ranks but the first three. Exit status 1 if anything \
differs.")]
pub struct VerifyArguments {
    /// The archive: VOLUME:/path
    pub address: OsString,
    /// The source of the archive: it is read then, and not the archive
    pub source: Option<PathBuf>,
    /// The processes, and what each has.
    #[command(flatten)]
    pub crew: CrewArguments,
}

/// The processes of a job.
#[derive(Args)]
pub struct CrewArguments {
    /// Threads that work, in each process that does
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub workers: u32,
    /// Processes that walk the tree, of those on the node of rank 0
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub explorers: u32,
    /// Memory to use, in each process
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = sizes::bytes)]
    pub memory: u64,
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

    /// What is to be done.
    pub fn task(&self) -> Task<'_> {
        match &self.command {
            Command::Archive(arguments) => Task::Archive(&arguments.shared),
            Command::Restore(arguments) => Task::Restore(arguments),
            Command::Verify(arguments) => Task::Verify(arguments),
        }
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
        let Task::Archive(archive) = arguments.task() else { panic!("another task") };
        assert_eq!((archive.workers, archive.explorers), (Some(3), 2));
        assert!(read("weft-mpi archive /a").is_err() && read("weft-mpi").is_err());
    }

    #[test]
    fn it_restores_and_verifies() {
        let restore = read("weft-mpi restore --workers 2 --include *.h5 v:/b /data").unwrap();
        let Task::Restore(restore) = restore.task() else { panic!("another task") };
        assert_eq!((restore.crew.workers, restore.crew.explorers, restore.force), (2, 1, false));
        let verify = read("weft-mpi verify v:/b /data --json").unwrap();
        assert!(verify.json && matches!(verify.task(), Task::Verify(it) if it.source.is_some()));
        assert!(read("weft-mpi restore v:/b").is_err() && read("weft-mpi verify").is_err());
    }

    #[test]
    fn its_help_is_its_own() {
        let help = read("weft-mpi archive --help").err().unwrap().to_string();
        assert!(help.contains("mpirun -n 6") && help.contains("in each process that does"), "{help}");
        assert!(!help.contains("  weft archive /data/run7"), "{help}");
    }
}

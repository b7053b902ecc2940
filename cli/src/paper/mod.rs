//! `weft bench paper`: the experiments of the five documents, each with one command. It decides
//! nothing: each is another command of `weft` with the document's options.

mod experiments;

use crate::failure::{Failure, Outcome};
use crate::show;
use clap::Args;
use experiments::{ALL, Experiment, Paper};
use serde_json::json;
use std::ffi::OsString;
use std::path::PathBuf;
use volume::Shown;

/// Repeat what the papers measured, beside what they published
#[derive(Args)]
#[command(after_help = "Examples:
  # What there is, and the command of each.
  weft bench paper
  # All of one paper, with results in files.
  weft bench paper gluster --out results
  # One figure, or one table.
  weft bench paper ecfs 8
  weft bench paper exstorus \"table 1\" --full
  # Whether it works, in a minute.
  weft bench paper --all --quick

The sizes are such that it takes minutes on this machine; --full takes those of the paper where that is possible. \
docs/papers.md has every figure and table of the papers: what was published, what we measured, and why they differ.")]
pub struct Arguments {
    /// The paper; without it, all experiments are listed
    #[arg(value_enum)]
    paper: Option<Paper>,
    /// A figure or table of it, such as 8 or "table 1"; all without it
    figure: Option<String>,
    /// All papers
    #[arg(long, conflicts_with = "paper")]
    all: bool,
    /// Tiny sizes: whether it works; the figures mean nothing
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// The sizes of the paper; it may take hours
    #[arg(long)]
    full: bool,
    /// Also write JSON, CSV and pages with charts to this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Where to create temporary directories [default: those of the commands]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print the commands, and run none
    #[arg(long)]
    dry_run: bool,
}

/// Lists or runs experiments. With `force`, files are replaced.
pub fn run(arguments: &Arguments, force: bool, as_json: bool) -> Outcome {
    let chosen: Vec<&Experiment> = ALL.iter().filter(|experiment| arguments.wants(experiment)).collect();
    if chosen.is_empty() {
        let (paper, figure) =
            (arguments.paper.map_or("", Paper::name), arguments.figure.as_deref().unwrap_or_default());
        let of_paper = ALL.iter().filter(|experiment| Some(experiment.paper) == arguments.paper);
        let there = of_paper.map(Experiment::all_figures).collect::<Vec<_>>().join(", ");
        return Err(Failure::Usage(format!("no command repeats {figure} of {paper}; there are {there}")));
    }
    if arguments.paper.is_none() && !arguments.all {
        return list(&chosen, arguments, force, as_json);
    }
    if let Some(directory) = arguments.out.as_deref().filter(|_| !arguments.dry_run) {
        let failed = |why| Failure::Other(format!("cannot create {}: {why}", Shown(directory)));
        std::fs::create_dir_all(directory).map_err(failed)?;
    }
    if arguments.dry_run && as_json {
        return list(&chosen, arguments, force, as_json);
    }
    let mut failed = Vec::new();
    for experiment in chosen {
        let words = arguments.words(experiment, force, as_json);
        let line = shown(&words);
        if arguments.dry_run {
            show::text(line)?;
            continue;
        }
        if !as_json {
            show::text(format_args!("== {}, {}: {}", experiment.paper.name(), figures(experiment), experiment.shows))?;
            show::text(format_args!("   {}", experiment.paper.title()))?;
            show::text(format_args!("   here: {}", experiment.differs))?;
            show::text(format_args!("$ {line}"))?;
        }
        let command = crate::parse(crate::commands(), words).map_err(|why| Failure::Other(why.to_string()))?;
        if crate::run(command.0) != 0 {
            failed.push(experiment.file_name());
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    // Each has said why.
    if !as_json {
        show::text(format_args!("not repeated: {}", failed.join(", ")))?;
    }
    Err(Failure::Found)
}

fn figures(experiment: &Experiment) -> String {
    let only_tables = experiment.figures.iter().all(|figure| figure.starts_with("table"));
    match experiment.figures {
        all if only_tables => all.join(", "),
        [one] if !one.starts_with(|first: char| first.is_ascii_digit()) => (*one).into(),
        [one] => format!("figure {one}"),
        all => format!("figures {}", all.join(", ")),
    }
}

fn list(chosen: &[&Experiment], arguments: &Arguments, force: bool, as_json: bool) -> Outcome {
    if as_json {
        let all: Vec<_> = chosen
            .iter()
            .map(|experiment| {
                json!({
                    "paper": experiment.paper.name(),
                    "title": experiment.paper.title(),
                    "figures": experiment.figures,
                    "shows": experiment.shows,
                    "differs": experiment.differs,
                    "command": shown(&arguments.words(experiment, force, false)),
                })
            })
            .collect();
        return show::json(&json!({ "experiments": all }));
    }
    let mut last = None;
    for experiment in chosen {
        let paper = experiment.paper;
        if last.replace(paper) != Some(paper) {
            show::text(format_args!("{}: \"{}\"", paper.name(), paper.title()))?;
        }
        show::text(format_args!("  {}: {}", figures(experiment), experiment.shows))?;
        show::text(format_args!("    {}", shown(&arguments.words(experiment, force, false))))?;
    }
    Ok(())
}

impl Arguments {
    fn wants(&self, experiment: &Experiment) -> bool {
        let is_of_paper = self.paper.is_none_or(|paper| paper == experiment.paper);
        is_of_paper && self.figure.as_deref().is_none_or(|figure| experiment.has(figure))
    }

    /// The command line of an experiment.
    fn words(&self, experiment: &Experiment, force: bool, as_json: bool) -> Vec<OsString> {
        let size = match () {
            () if self.quick => experiment.quick,
            () if self.full => experiment.full,
            () => &[],
        };
        let mut words: Vec<OsString> =
            std::iter::once("weft").chain(experiment.command.iter().chain(size).copied()).map(Into::into).collect();
        if let Some(directory) = self.dir.as_ref().filter(|_| experiment.has_dir) {
            words.extend(["--dir".into(), directory.into()]);
        }
        if let Some(directory) = &self.out {
            for (option, ending) in experiment.files {
                let file = directory.join(format!("{}.{ending}", experiment.file_name()));
                words.extend([option.into(), file.into()]);
            }
        }
        words.extend(force.then(|| "--force".into()));
        words.extend(as_json.then(|| "--json".into()));
        words
    }
}

/// A command line as a shell takes it.
fn shown(words: &[OsString]) -> String {
    let one = |word: &OsString| {
        let word = Shown(word.as_ref()).to_string();
        if word.contains(' ') { format!("'{word}'") } else { word }
    };
    words.iter().map(one).collect::<Vec<_>>().join(" ")
}

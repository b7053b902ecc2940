//! `weft bench paper`: the experiments of the five documents, each with one command. It decides
//! nothing: each is another command of `weft` with the document's options.

mod experiments;

use crate::failure::{Failure, Outcome};
use crate::interrupt::INTERRUPTED;
use crate::show;
use clap::Args;
use experiments::{ALL, Experiment, Paper};
use serde_json::json;
use std::ffi::OsString;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use volume::Shown;

const NO_LIMITS: &str = "links have no limit, as that takes root: left out --net";

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
Links are limited by root only (--net): other users measure without limits, and are told so. docs/papers.md has every \
figure and table of the papers: what was published, what we measured, and why they differ.")]
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
    let has_links = rustix::process::geteuid().is_root();
    let mut folder = Folder::of(arguments);
    let mut failed: Vec<String> = Vec::new();
    for experiment in chosen {
        let place = if arguments.dry_run { arguments.here() } else { &folder.path };
        let mut steps = arguments.steps(experiment, place, force, as_json);
        let left_out = if has_links { Vec::new() } else { without_links(&mut steps) };
        let line = one_line(&steps);
        if !left_out.is_empty() && (as_json || arguments.dry_run) {
            show::warning(format_args!("{NO_LIMITS} {}", left_out.join(", ")));
        }
        if arguments.dry_run {
            show::text(line)?;
            continue;
        }
        if !as_json {
            show::text(format_args!("== {}, {}: {}", experiment.paper.name(), figures(experiment), experiment.shows))?;
            show::text(format_args!("   {}", experiment.paper.title()))?;
            show::text(format_args!("   here: {}", experiment.differs))?;
            if !left_out.is_empty() {
                show::text(format_args!("   {NO_LIMITS} {}", left_out.join(", ")))?;
            }
            show::text(format_args!("$ {line}"))?;
        }
        if experiment.constants_of.is_some() || arguments.gives_constants(experiment) {
            folder.make()?;
        }
        let lacks = experiment.measurement().map(Experiment::file_name).filter(|name| failed.contains(name));
        if let Some(name) = &lacks {
            show::warning(format_args!("left out, as it predicts from the measurement of {name}"));
        }
        if lacks.is_some() || !is_done(steps, as_json)? {
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

/// Runs the commands of an experiment, each if the one before succeeded. Returns whether all did.
fn is_done(steps: Vec<Vec<OsString>>, as_json: bool) -> Result<bool, Failure> {
    let last = steps.len() - 1;
    for (at, words) in steps.into_iter().enumerate() {
        let command = crate::parse(crate::commands(), words).map_err(|why| Failure::Other(why.to_string()))?.0;
        // Of JSON there is one document, that of the last one.
        let status = match as_json && at < last {
            true => {
                let (status, _, errors) = show::captured(|| crate::run(command));
                eprint!("{errors}");
                status
            }
            false => crate::run(command),
        };
        if status == INTERRUPTED {
            return Err(Failure::Work(volume::Error::Interrupted));
        }
        if status != 0 {
            return Ok(false);
        }
    }
    Ok(true)
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
                    "command": arguments.line(experiment, force),
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
        show::text(format_args!("    {}", arguments.line(experiment, force)))?;
    }
    Ok(())
}

impl Arguments {
    fn wants(&self, experiment: &Experiment) -> bool {
        let is_of_paper = self.paper.is_none_or(|paper| paper == experiment.paper);
        is_of_paper && self.figure.as_deref().is_none_or(|figure| experiment.has(figure))
    }

    /// Whether an experiment that is wanted, too, predicts from the measurement of this one.
    fn gives_constants(&self, experiment: &Experiment) -> bool {
        let name = Some(experiment.file_name());
        let takes = |other: &Experiment| other.measurement().map(Experiment::file_name) == name;
        ALL.iter().any(|other| self.runs(other) && takes(other))
    }

    /// Whether an experiment is one of those that run one after the other, not one of a list.
    fn runs(&self, experiment: &Experiment) -> bool {
        (self.all || self.paper.is_some()) && self.wants(experiment)
    }

    /// The commands of an experiment, the last of which shows it. What a prediction takes is
    /// measured before, into files of the folder: by its own experiment, if that is wanted, too.
    fn steps(&self, experiment: &Experiment, folder: &Path, force: bool, as_json: bool) -> Vec<Vec<OsString>> {
        let mut steps = Vec::new();
        let mut words = self.words(experiment);
        if let Some(measurement) = experiment.measurement() {
            let file = |what: &str| OsString::from(folder.join(format!("{}-{what}.json", experiment.file_name())));
            let model = file("model");
            let measured = if self.runs(measurement) { results_of(measurement, folder) } else { file("measured") };
            if !self.runs(measurement) {
                let mut measure = self.words(measurement);
                measure.extend(["--json-file".into(), measured.clone()]);
                measure.extend(force.then(|| "--force".into()));
                steps.push(measure);
            }
            let calibrate = ["weft", "model", "calibrate"].map(OsString::from);
            steps.push(calibrate.into_iter().chain([measured, "--out".into(), model.clone()]).collect());
            words.extend(["--model".into(), model]);
        }
        if let Some(directory) = &self.out {
            for (option, ending) in experiment.files {
                let file = directory.join(format!("{}.{ending}", experiment.file_name()));
                words.extend([option.into(), file.into()]);
            }
        } else if self.gives_constants(experiment) {
            words.extend(["--json-file".into(), results_of(experiment, folder)]);
        }
        words.extend(force.then(|| "--force".into()));
        words.extend(as_json.then(|| "--json".into()));
        steps.push(words);
        steps
    }

    /// The command of an experiment with its size and directory.
    fn words(&self, experiment: &Experiment) -> Vec<OsString> {
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
        words
    }

    /// Where a line that is pasted has its files.
    fn here(&self) -> &Path {
        self.out.as_deref().unwrap_or(Path::new(""))
    }

    /// All commands of an experiment, as root gives them to a shell.
    fn line(&self, experiment: &Experiment, force: bool) -> String {
        one_line(&self.steps(experiment, self.here(), force, false))
    }
}

/// The file with the results of an experiment, which a prediction reads.
fn results_of(experiment: &Experiment, folder: &Path) -> OsString {
    folder.join(format!("{}.json", experiment.file_name())).into()
}

/// The directory for files that one command leaves to the next: that of the results, or one that is
/// removed at the end.
struct Folder {
    path: PathBuf,
    /// It is that of the results, and there.
    is_results: bool,
    /// It was created.
    is_ours: bool,
}

impl Folder {
    fn of(arguments: &Arguments) -> Self {
        let own = || {
            let parent = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
            parent.join(format!("weft-paper-{}", std::process::id()))
        };
        Self { path: arguments.out.clone().unwrap_or_else(own), is_results: arguments.out.is_some(), is_ours: false }
    }

    /// Creates it. One that is there may be another user's.
    fn make(&mut self) -> Outcome {
        if self.is_results || self.is_ours {
            return Ok(());
        }
        let failed = |why| Failure::Other(format!("cannot create {}: {why}", Shown(&self.path)));
        std::fs::DirBuilder::new().mode(0o700).create(&self.path).map_err(failed)?;
        self.is_ours = true;
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_ours {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Takes the limits of links out of commands that set them, and returns them. What is predicted for
/// a link stays.
fn without_links(steps: &mut [Vec<OsString>]) -> Vec<String> {
    let mut left_out = Vec::new();
    for words in steps.iter_mut().filter(|words| words.get(1).is_some_and(|word| word == "bench")) {
        while let Some(at) = words.iter().position(|word| word == "--net") {
            let pair: Vec<OsString> = words.drain(at..words.len().min(at + 2)).collect();
            left_out.extend(pair.last().map(|speed| speed.to_string_lossy().into_owned()));
        }
    }
    left_out
}

/// Commands in one line, each if the one before succeeded.
fn one_line(steps: &[Vec<OsString>]) -> String {
    steps.iter().map(|words| shown(words)).collect::<Vec<_>>().join(" && ")
}

/// A command line as a shell takes it.
fn shown(words: &[OsString]) -> String {
    let one = |word: &OsString| {
        let word = Shown(word.as_ref()).to_string();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
        if !word.is_empty() && word.chars().all(is_plain) { word } else { format!("'{}'", word.replace('\'', r"'\''")) }
    };
    words.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_root_no_link_is_limited() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let mut steps = vec![words("weft bench x --net 1G,10G --rounds 3"), words("weft model predict --net 100G")];
        assert_eq!(without_links(&mut steps), ["1G,10G"]);
        assert_eq!(one_line(&steps), "weft bench x --rounds 3 && weft model predict --net 100G");
        assert!(without_links(&mut steps).is_empty());
        assert_eq!(one_line(&[vec!["a".into(), "it's $x".into(), "".into()]]), r"a 'it'\''s $x' ''");
    }
}

//! A dry run: finds out what an archive job would do and writes a plan, a list of files that a
//! later job carries out exactly. It changes nothing.

use crate::clock::Clock;
use crate::crew::{Roles, live_in_threads};
use crate::encode::{Decision, decide};
use crate::job::{Options, Source, limits, most_objects, places};
use crate::message::{Group, Large, Problem, Tally, Work};
use crate::pace::{PACE_ATTRIBUTE, Pace};
use crate::report::Facts;
use crate::roles::{Craft, Made, Manager, Plan, Reporter, Show};
use crate::transport::Broken;
use crate::walk::{Expected, List, SourceTree, Walking, plan_line};
use fs::{FileKind, FileSystem, ROOT};
use plan::Ino;
use plan::schedule::Parts;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use volume::Control;
use volume::lock;

/// The first line of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The version of its format.
    pub weft_plan: u32,
    /// The directory that the paths of the plan are relative to.
    pub source: Vec<u8>,
    /// The destination as it was given: VOLUME:/path.
    pub address: Vec<u8>,
    /// Whether files that exist in the archive and differ are replaced.
    pub update: bool,
}

/// Reads the first line of a plan. The rest of the plan is its list of files.
///
/// # Errors
/// If the file is not a plan of this version.
pub fn read_plan(mut from: Box<dyn BufRead + Send>) -> Result<(Header, List), Broken> {
    let mut line = String::new();
    let no_plan = |why: &dyn std::fmt::Display| Broken(format!("this is not a plan: {why}"));
    std::io::Read::take(&mut from, 1 << 20).read_line(&mut line).map_err(|why| no_plan(&why))?;
    let header: Header = serde_json::from_str(&line).map_err(|why| no_plan(&why))?;
    match header.weft_plan {
        1 => Ok((header, List::plan(from))),
        other => Err(no_plan(&format_args!("it is of version {other}, and this program knows version 1"))),
    }
}

/// What all workers of a dry run share.
struct Planning {
    volume: Arc<FileSystem>,
    update: bool,
    control: Arc<Control>,
    /// Where the list is written, and the length of the source's path, which each path begins with.
    list: Option<(Mutex<Box<dyn Write + Send>>, usize)>,
    parts: AtomicU64,
}

struct Planner<'a> {
    job: &'a Planning,
    tally: Tally,
}

impl Planner<'_> {
    fn group(&mut self, group: &Group, parts: u64, problems: &mut Vec<Problem>) -> Result<(), Broken> {
        let place = &group.place;
        let names: Vec<_> = group.items.iter().map(|item| (place.ino, item.name.clone())).collect();
        let there = match place.fresh || place.ino == Ino(0) {
            true => vec![None; names.len()],
            false => self.job.volume.lookups(&names)?,
        };
        let mut lines = String::new();
        for (item, there) in group.items.iter().zip(there) {
            if self.job.control.go_on().is_err() {
                return Ok(());
            }
            let (stat, path) = (&item.stat, place.source_of(&item.name));
            let is_directory = stat.kind == FileKind::Directory;
            let decision = match is_directory {
                true if there.is_some() => Decision::Unchanged,
                true => Decision::New,
                false => decide(stat, there.as_ref(), |_| true),
            };
            match decision {
                Decision::New => {}
                Decision::Differs | Decision::Attributes if self.job.update => {}
                Decision::Unchanged | Decision::Attributes => {
                    if !is_directory {
                        self.tally.unchanged_files += 1;
                        self.tally.unchanged_bytes =
                            self.tally.unchanged_bytes.saturating_add(crate::encode::bytes_of(stat));
                    }
                    continue;
                }
                Decision::Differs => {
                    problems.push(Problem {
                        path,
                        what: "the archive has another version of it, which only an update replaces".into(),
                    });
                    continue;
                }
                Decision::Directory => {
                    problems.push(Problem { path, what: "there is a directory of that name in the archive".into() });
                    continue;
                }
            }
            if let Some((_, cut)) = &self.job.list {
                let expected = Expected { size: stat.size, modified: stat.modified };
                lines += &plan_line(path.get(*cut..).unwrap_or_default(), (!is_directory).then_some(expected));
                lines.push('\n');
            }
            match stat.kind {
                // A directory was counted when the explorer found it.
                FileKind::Directory => {}
                FileKind::File => {
                    self.tally.files += 1;
                    self.tally.bytes = self.tally.bytes.saturating_add(stat.size);
                    self.tally.sizes.add(stat.size);
                    self.job.parts.fetch_add(parts, Ordering::Relaxed);
                }
                _ => self.tally.others += 1,
            }
        }
        if let Some((list, _)) = &self.job.list {
            let mut list = lock(list);
            list.write_all(lines.as_bytes()).map_err(|why| Broken(format!("cannot write the plan: {why}")))?;
        }
        Ok(())
    }
}

impl Craft for Planner<'_> {
    fn work(&mut self, work: &Work, problems: &mut Vec<Problem>) -> Result<Made, Broken> {
        match work {
            Work::Files(groups) => groups.iter().try_for_each(|group| self.group(group, 1, problems))?,
            Work::Open(Large { place, item, part_bytes, .. }) => {
                let parts = Parts::new(item.stat.size, 1, Some(*part_bytes)).count();
                let group = Group { place: place.clone(), items: vec![item.clone()] };
                self.group(&group, parts.into(), problems)?;
            }
            Work::Part(..) | Work::Close(_) => {}
        }
        Ok(Made { good: true, ..Made::default() })
    }

    fn is_full(&self) -> bool {
        true
    }

    fn commit(&mut self, _: &mut Vec<Problem>) -> Result<Tally, Broken> {
        Ok(std::mem::take(&mut self.tally))
    }
}

/// What a job would do.
#[derive(Debug)]
pub struct Planned {
    /// Files, bytes and problems, counted as if the job had done them.
    pub facts: Facts,
    /// The number of parts of all files. A file that is done in one piece counts as one part.
    pub parts: u64,
    /// The estimated duration in seconds, at the pace of the last job into the same directory. None
    /// if there was no such job.
    pub seconds: Option<f64>,
}

/// Finds out what a job would do. Writes the plan to `list` if there is one; a plan has one source
/// only.
///
/// # Errors
/// If a source does not exist, or the plan cannot be written.
#[allow(clippy::too_many_arguments, reason = "each is another thing to go by")]
pub fn dry_run<S: Show + Send>(
    volume: &Arc<FileSystem>,
    sources: &[Source],
    target: &[u8],
    options: Options,
    list: Option<Box<dyn Write + Send>>,
    facts: Facts,
    show: S,
    control: &Arc<Control>,
) -> Result<(Planned, Option<String>), Broken> {
    let mut at = Some(volume.attributes(ROOT)?);
    for name in target.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
        at = at.and_then(|at| volume.lookup(at.ino, name).ok());
    }
    let pace = at
        .and_then(|at| volume.attribute(at.ino, PACE_ATTRIBUTE).ok())
        .and_then(|bytes| postcard::from_bytes(&bytes).ok());
    let listed = options.list.is_some();
    let (walks, avoid) = places(volume, sources, target, at.as_ref(), None, listed)?;
    let walking = Arc::new(Walking {
        volume: volume.clone(),
        filter: options.filter,
        one_file_system: options.one_file_system,
        dry: true,
        avoid,
        list: Mutex::new(options.list),
    });
    let cut = sources.first().map_or(0, |source| crate::job::below(&source.directory));
    let planning = Planning {
        volume: volume.clone(),
        update: options.update,
        control: control.clone(),
        list: list.map(|list| (Mutex::new(list), cut)),
        parts: AtomicU64::new(0),
    };
    let plan = Plan {
        policy: options.policy,
        limits: limits(volume.stripe_bytes()),
        part_bytes: options.part_bytes,
        most_objects: most_objects(options.memory),
    };
    let clock = Clock::now();
    let roles = Roles {
        tree: || SourceTree::new(walking.clone()),
        craft: || Ok::<_, Broken>(Planner { job: &planning, tally: Tally::default() }),
    };
    let manager = Manager::new(options.crew, plan, walks, control.clone());
    let reporter = live_in_threads(options.crew, clock, manager, Reporter::new(options.crew, facts, show), &roles);
    let (mut facts, broken) = reporter.into_facts(control);
    facts.wall_seconds = clock.seconds();
    if let Some((list, _)) = &planning.list {
        let mut list = lock(list);
        list.flush().map_err(|why| Broken(format!("cannot write the plan: {why}")))?;
    }
    let seconds = pace.map(|pace: Pace| pace.seconds(&facts));
    Ok((Planned { parts: planning.parts.load(Ordering::Relaxed), facts, seconds }, broken))
}

//! What holds the stores to their speeds.

use super::arguments::Arguments;
use crate::failure::{Failure, Outcome};
use crate::show;
use crate::volumes::bench_lab::{Groups, Lab, Limited, Run, Stage};
use bench::placement::{Held, How};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;
use volume::lock;

/// The part of this machine's processors that all stores have together, where processors limit.
const STORES_PART: f64 = 0.5;
/// How many stores are slowed where nothing is said.
const USUAL_SLOW: [u32; 2] = [0, 2];

/// What holds the stores of a run.
pub struct Hold {
    kind: Kind,
    held: Option<Held>,
    stores: u32,
    slow_to: f64,
    parent: PathBuf,
}

enum Kind {
    /// Stores are in namespaces, and their links are limited.
    Net(Box<Lab>),
    /// Stores are in control groups, those of the scenario now.
    Groups(Mutex<Groups>, Run),
    /// Nothing does.
    Free { _run: Run, why: String },
}

impl Hold {
    /// Removes what killed benches left, and begins.
    pub fn begin(arguments: &Arguments, parent: &Path) -> Result<Self, Failure> {
        let held = |how| {
            let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
            let part = STORES_PART * processors / f64::from(arguments.stores);
            Held { how, to: if how == How::Cpu { part } else { arguments.speed as f64 } }
        };
        let lab = || Lab::build(parent, arguments.stores, Duration::ZERO, "--how net").map(Box::new);
        let (kind, held) = match arguments.how {
            Some(How::Net) => (Kind::Net(lab()?), Some(held(How::Net))),
            Some(how) => {
                let run = Run::begin(parent)?;
                (Kind::Groups(Mutex::new(Groups::make(run.number, &[])?), run), Some(held(how)))
            }
            None => match lab() {
                Ok(lab) => (Kind::Net(lab), Some(held(How::Net))),
                Err(why) => (Kind::Free { _run: Run::begin(parent)?, why: why.to_string() }, None),
            },
        };
        Ok(Self { kind, held, stores: arguments.stores, slow_to: arguments.slow_to, parent: parent.into() })
    }

    /// What every store is held to.
    pub fn held(&self) -> Option<Held> {
        self.held
    }

    /// How many stores are slowed, in turns.
    pub fn slowed(&self, arguments: &Arguments) -> Result<Vec<u32>, Failure> {
        let asked = &arguments.slow;
        match &self.kind {
            Kind::Free { why, .. } if asked.iter().any(|&slow| slow > 0) => {
                Err(Failure::Other(format!("no store can be slowed here: {why}")))
            }
            Kind::Free { why, .. } => {
                show::warning(format_args!("no store is limited or slowed here: {why}"));
                Ok(vec![0])
            }
            _ if asked.is_empty() => Ok(USUAL_SLOW.into_iter().filter(|&slow| slow <= self.stores).collect()),
            _ => Ok(asked.clone()),
        }
    }

    /// Makes ready for a new cluster. Nothing is limited yet: to create a volume over slow links
    /// takes longer than all that is measured.
    pub fn make_ready(&self) -> Outcome {
        match &self.kind {
            Kind::Net(lab) => lab.unlimit(),
            Kind::Groups(groups, _) => {
                lock(groups).clear();
                Ok(())
            }
            Kind::Free { .. } => Ok(()),
        }
    }

    /// From now on the stores of a cluster are held to their speeds, and the first ones are slowed.
    pub fn hold(&self, slowed: u32, stage: &Stage) -> Outcome {
        let Some(Held { how, to }) = self.held else { return Ok(()) };
        let speed = |store: u32| if store < slowed { to * self.slow_to } else { to };
        let speeds = (0..self.stores).map(speed);
        match &self.kind {
            Kind::Net(lab) => lab.limit_stores(&speeds.map(|bytes| 8.0 * bytes).collect::<Vec<_>>()),
            Kind::Groups(groups, run) => {
                let limit = |(store, to): (u32, f64)| match how {
                    How::Cpu => Limited::Processor(to),
                    _ => Limited::Disk(stage.own_disk(store), to),
                };
                let mut groups = lock(groups);
                *groups = Groups::make(run.number, &(1..).zip(speeds).map(limit).collect::<Vec<_>>())?;
                groups.take(stage.store_processes())
            }
            Kind::Free { .. } => Ok(()),
        }
    }

    /// Where temporary directories are made.
    pub fn place(&self) -> &Path {
        &self.parent
    }

    /// Whether each store has a disk of its own.
    pub fn has_disks(&self) -> bool {
        self.held.is_some_and(|held| held.how == How::Disk)
    }

    /// The network that servers and clients are on, if not loopback.
    pub fn lab(&self) -> Option<&Lab> {
        if let Kind::Net(lab) = &self.kind { Some(lab) } else { None }
    }
}

//! The whole measurement: its subjects, their lanes, and the machine.

use crate::args::{Args, Effort, Lanes};
use crate::baseline::Baseline;
use crate::codes;
use crate::contest::{Contest, begun};
use crate::limit::Limit;
use crate::machine::Machine;
use crate::own::Own;
use crate::peer::{self, Peer};
use crate::results::Table;
use crate::subject::Subject;
use gf::Kernel;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Everything that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// This engine's version.
    pub weft: &'static str,
    /// When, in universal time.
    pub date: String,
    /// The command that repeats it.
    pub command: String,
    /// Rounds of every figure.
    pub rounds: usize,
    /// Turns of a round where work is done in cache.
    pub turns: usize,
    /// Whether the sizes were tiny, so that the figures mean nothing.
    pub quick: bool,
    /// Where.
    pub machine: Machine,
    /// What all figures of codes are.
    pub unit: &'static str,
    /// One lane, or two.
    pub lanes: Vec<Lane>,
}

/// One choice of instructions.
#[derive(Clone, Debug, Serialize)]
pub struct Lane {
    /// `auto`, `avx2` or `plain`.
    pub name: &'static str,
    /// The subjects.
    pub subjects: Vec<Participant>,
    /// Peers that did not, and why.
    pub absent: Vec<String>,
    /// The results.
    pub tables: Vec<Table>,
}

/// Somebody who took part.
#[derive(Clone, Debug, Serialize)]
pub struct Participant {
    /// The name.
    pub name: String,
    /// The version.
    pub version: String,
    /// The instructions that it says it uses.
    pub kernel: String,
}

pub fn measure(args: &Args) -> Result<Report, String> {
    let effort = args.effort();
    let chosen = gf::select::chosen().map_err(|e| e.to_string())?;
    let avx2 = || gf::select::kernel(gf::Isa::Avx2).map_err(|e| e.to_string());
    let lanes: Vec<(&'static str, &'static dyn Kernel)> = match args.kernel {
        Lanes::Auto => vec![("auto", chosen)],
        Lanes::Avx2 => vec![("avx2", avx2()?)],
        Lanes::Plain => vec![("plain", gf::select::kernel(gf::Isa::Plain).map_err(|e| e.to_string())?)],
        Lanes::Both => vec![("auto", chosen), ("avx2", avx2()?)],
    };
    let directory = args.peers.clone().unwrap_or_else(default_peers);
    let machine = Machine::measure(chosen, effort.bandwidth_bytes, effort.rounds);
    let lanes = lanes.into_iter().map(|(name, kernel)| lane(name, kernel, args, effort, &directory)).collect();
    Ok(Report {
        weft: env!("CARGO_PKG_VERSION"),
        date: date(SystemTime::now()),
        command: args.command(),
        rounds: effort.rounds,
        turns: effort.turns,
        quick: args.quick,
        machine,
        unit: "MiB of user data per second",
        lanes,
    })
}

fn lane(name: &'static str, kernel: &'static dyn Kernel, args: &Args, effort: Effort, directory: &Path) -> Lane {
    let mut subjects: Vec<Box<dyn Subject>> = vec![
        Box::new(Own::new("weft", kernel)),
        Box::new(Limit::new(kernel)),
        Box::new(Baseline::Vector),
        Box::new(Baseline::Words),
    ];
    let mut absent = vec![];
    for (called, executable, wanted) in candidates(name) {
        let path = directory.join(executable);
        if !path.is_file() {
            absent.push(format!("not installed: {executable} (build with cargo xtask peers)"));
            continue;
        }
        match Peer::start(called, &path, wanted, Duration::from_secs(effort.deadline_seconds)) {
            Ok(peer) => subjects.push(Box::new(peer)),
            Err(why) => absent.push(format!("does not work: {called} ({why})")),
        }
    }
    absent.dedup();
    let mut contest = Contest::new(effort, kernel, subjects);
    let sections = args.sections().into_iter().flat_map(|section| {
        begun(&format!("=== {name}: {} ===", section.name()));
        codes::tables(section, &mut contest)
    });
    let tables = sections.collect();
    let participant = |subject: &dyn Subject| Participant {
        name: subject.name().to_owned(),
        version: subject.version().to_owned(),
        kernel: subject.kernel().to_owned(),
    };
    let subjects = contest.subjects().filter(|s| s.name() != "limit").map(participant).collect();
    Lane { name, subjects, absent, tables }
}

/// Peers by name, executable and the kernel they are asked for. Jerasure takes part without its
/// vector instructions as well, since that is how most who use it run it.
fn candidates(lane: &'static str) -> Vec<(&'static str, &'static str, &'static str)> {
    if lane == "plain" {
        // The two of the energy study; the others have no such build.
        return vec![("jerasure-plain", "jerasure", "plain"), ("zfec", "zfec", "auto")];
    }
    let mut all: Vec<_> = peer::EXPECTED.iter().map(|&name| (name, name, lane)).collect();
    all.insert(2, ("jerasure-plain", "jerasure", "plain"));
    all
}

/// `target/peers` of the build this program comes from, else of the current directory.
fn default_peers() -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|executable| {
        executable
            .ancestors()
            .map(|folder| folder.join("peers"))
            .find(|peers| peers.is_dir() && peers.parent().is_some_and(|p| p.ends_with("target")))
    });
    beside.unwrap_or_else(|| Path::new("target").join("peers"))
}

/// Date and time in universal time.
pub(crate) fn date(now: SystemTime) -> String {
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    format!("{} UTC", plan::words::date(seconds as i64))
}

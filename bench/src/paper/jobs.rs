//! The parallel encoder's two experiments, as jobs of this program in a volume on six directories.

use super::{Args, Parts, Schedule, SizeMix, published};
use archive::report::{Facts, Finish};
use plan::energy::{Basis, Scope};
use plan::schedule::{Object, Policy, finishes};
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The paper's numbers of parts.
const PAPER_PARTS: [u64; 6] = [1, 2, 4, 8, 20, 40];
/// Units of the file in 20 and 40 parts, each a power of two long: a part is whole units.
pub(super) const UNITS: u64 = 40;
/// Units of the file in fewer parts.
const FEWER_UNITS: u64 = 32;
/// Its objects and workers.
const OBJECTS: usize = 600;
const WORKERS: usize = 32;
/// Of the periodic sizes one in `PERIOD` is `LARGE` times as large as the others. With 32 workers
/// in turn, the four that get them have 19 large ones each, and the mean finish is about a quarter
/// of the last.
const PERIOD: usize = 8;
const LARGE: u64 = 7;
/// The small ones in least sizes.
const PERIODIC: f64 = 64.0;

/// Runs of each tree, at least, that tell how long an object and a byte take.
const CALIBRATIONS: u32 = 3;

/// A folder that goes when the experiments end.
pub struct Ground {
    pub folder: PathBuf,
    /// Options of `weft archive` that name its instruments.
    pub instruments: Vec<OsString>,
}

impl Ground {
    /// Makes the folder.
    pub fn make(dir: &Path) -> Result<Self, String> {
        let folder = dir.join(format!(".weft-paper-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self { folder, instruments: vec![] })
    }

    /// A file of noise.
    pub fn file(&self, name: &str, bytes: u64) -> Result<PathBuf, String> {
        let path = self.folder.join(name);
        let failed = |error: std::io::Error| format!("{}: {error}; choose another --dir", path.display());
        std::fs::create_dir_all(path.parent().expect("it is in a folder")).map_err(failed)?;
        let mut file = File::create(&path).map_err(failed)?;
        let mut noise = Noise(bytes ^ 0x9e37_79b9);
        let mut piece = vec![0u8; bytes.clamp(8, 1 << 20).next_multiple_of(8) as usize];
        let mut left = bytes;
        while left > 0 {
            piece.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&noise.next().to_le_bytes()));
            let length = left.min(piece.len() as u64);
            file.write_all(&piece[..length as usize]).map_err(failed)?;
            left -= length;
        }
        Ok(path)
    }

    /// Archives a source into a volume of its own, which goes again: the facts, and the seconds of
    /// the whole process.
    pub fn archive(&self, source: &Path, more: &[&str]) -> Result<(Facts, f64), String> {
        self.job(source, more, None)
    }

    /// As [`Self::archive`] with a number of workers: ranks of an MPI job, if the arguments ask for
    /// one.
    pub fn archive_with(
        &self,
        args: &Args,
        source: &Path,
        workers: usize,
        more: &[&str],
    ) -> Result<(Facts, f64), String> {
        if args.mpi {
            return self.job(source, more, Some(workers));
        }
        let workers = workers.to_string();
        self.job(source, &[&["--workers", &workers], more].concat(), None)
    }

    fn job(&self, source: &Path, more: &[&str], workers_under_mpi: Option<usize>) -> Result<(Facts, f64), String> {
        let place = self.folder.join("volume");
        let targets: Vec<PathBuf> = (0..6).map(|disk| place.join(format!("disk{disk}"))).collect();
        for target in &targets {
            std::fs::create_dir_all(target).map_err(|error| format!("{}: {error}", target.display()))?;
        }
        let volume = place.join("v");
        weft(|weft| weft.args(["create", "--code", "rs:4+2"]).arg(&volume).args(&targets))?;
        let mut to = volume.into_os_string();
        to.push(":/");
        let began = Instant::now();
        let job = |job: &mut Command| {
            job.args(["--json", "archive", "--energy"]).args(&self.instruments).args(more).arg(source).arg(&to);
        };
        let said = match workers_under_mpi {
            None => weft(|weft| {
                job(weft);
                weft
            }),
            Some(workers) => mpirun(workers, job),
        };
        let seconds = began.elapsed().as_secs_f64();
        let _ = std::fs::remove_dir_all(&place);
        let said = said?;
        let last = said.lines().last().unwrap_or_default();
        let mut answer: serde_json::Value =
            serde_json::from_str(last).map_err(|error| format!("weft archive said {last:?}: {error}"))?;
        let facts = serde_json::from_value(answer["facts"].take());
        Ok((facts.map_err(|error| format!("weft archive said {last:?}: {error}"))?, seconds))
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Runs this program.
fn weft(arguments: impl FnOnce(&mut Command) -> &mut Command) -> Result<String, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program cannot be found: {error}"))?;
    let mut command = Command::new(program);
    arguments(&mut command);
    said(command)
}

/// Runs `weft-mpi`, which lies beside this program, with a rank for each worker, and one each for
/// the manager, the reporter and the explorer.
fn mpirun(workers: usize, arguments: impl FnOnce(&mut Command)) -> Result<String, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program cannot be found: {error}"))?;
    let program = program.with_file_name("weft-mpi");
    if !program.is_file() {
        return Err(format!("there is no {}; docs/mpi.md says how it is built", program.display()));
    }
    let mut command = Command::new("mpirun");
    // There are more ranks than cores, which mpirun refuses, as it does to run as root.
    command.args(["--oversubscribe", "-n", &(workers + 3).to_string()]).arg(program);
    command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    arguments(&mut command);
    said(command)
}

/// What a program prints, if it succeeds.
fn said(mut command: Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Numbers that look random and are the same in every run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
    }
}

/// One large file in parts. Parts are powers of two long, so that 20 and 40 parts are of a file a
/// quarter longer; what is compared is the time for a byte.
pub fn parts(ground: &Ground, args: &Args) -> Result<Vec<Parts>, String> {
    let unit = if args.quick { 64 << 10 } else { 1 << (args.bytes / UNITS).ilog2() };
    let mut rows: Vec<Parts> = vec![];
    for parts in PAPER_PARTS {
        let bytes = unit * if parts >= 20 { UNITS } else { FEWER_UNITS };
        let source = ground.file("large", bytes)?;
        let part = (bytes / parts).to_string();
        let mut runs = vec![];
        for _ in 0..args.rounds {
            let more = ["--part-bytes", &part, "--memory", "4GiB"];
            runs.push(ground.archive_with(args, &source, parts as usize, &more)?.0);
        }
        runs.sort_by(|a, b| a.wall_seconds.total_cmp(&b.wall_seconds));
        let median = &runs[runs.len() / 2];
        let rate = |seconds: f64, bytes: u64| seconds / bytes as f64;
        let one = rows.first().map_or(rate(median.wall_seconds, bytes), |one| rate(one.seconds, one.bytes));
        rows.push(Parts {
            parts,
            bytes,
            seconds: median.wall_seconds,
            reduction: 1.0 - rate(median.wall_seconds, bytes) / one,
            cpu_seconds: median.cpu_seconds,
            modelled_joules: median.energy.iter().find(|a| a.source == "model").map_or(0.0, |model| model.joules),
            measured: (median.energy.iter())
                .find(|account| account.basis == Basis::Measured && account.scope != Scope::Gpu)
                .map(|account| (account.source.clone(), account.joules)),
        });
    }
    Ok(rows)
}

/// 600 objects of mixed sizes on 32 workers: measured, with the cores that there are, and modelled,
/// with a core for each.
pub fn schedules(ground: &Ground, args: &Args) -> Result<Vec<Schedule>, String> {
    let mut noise = Noise(600);
    let (least, span) = (if args.quick { 256.0 } else { 16_384.0 }, 1024.0f64);
    let mut spread = || (least * span.powf((noise.next() >> 11) as f64 / (1u64 << 53) as f64)) as u64;
    let sizes: Vec<u64> = match args.size_mix {
        SizeMix::Mixed => (0..OBJECTS).map(|_| spread()).collect(),
        SizeMix::Periodic => {
            let small = (least * PERIODIC) as u64;
            (0..OBJECTS).map(|at| if at % PERIOD == 0 { LARGE * small } else { small }).collect()
        }
    };
    let small: Vec<u64> = vec![least as u64; OBJECTS];
    let tree = |name: &str, sizes: &[u64]| -> Result<PathBuf, String> {
        sizes.iter().enumerate().try_for_each(|(at, &size)| ground.file(&format!("{name}/{at:03}"), size).map(drop))?;
        Ok(ground.folder.join(name))
    };
    let (mixed, least_ones) = (tree("mixed", &sizes)?, tree("small", &small)?);
    // In the order of their names: a directory lists them in an order of its own.
    let list = ground.folder.join("mixed.list");
    let names: String = (0..OBJECTS).map(|at| format!("{at:03}\n")).collect();
    std::fs::write(&list, names).map_err(|error| format!("{}: {error}", list.display()))?;
    let list = list.to_str().ok_or("--dir is not UTF-8")?;
    // Two trees on one worker give the time for an object and the time for a byte: the shortest of
    // several runs in turn, since whatever else the machine does only makes them longer, and a
    // longer run of small objects would make bytes free.
    let alone = |source: &Path| ground.archive_with(args, source, 1, &[]).map(|(facts, _)| facts.wall_seconds);
    let (mut all, mut little) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..CALIBRATIONS.max(args.rounds) {
        (all, little) = (all.min(alone(&mixed)?), little.min(alone(&least_ones)?));
    }
    let total = |sizes: &[u64]| sizes.iter().sum::<u64>() as f64;
    let per_byte = ((all - little) / (total(&sizes) - total(&small))).max(0.0);
    let per_object = ((little - per_byte * total(&small)) / OBJECTS as f64).max(0.0);
    let objects: Vec<Object> =
        sizes.iter().map(|&bytes| Object { bytes, seconds: per_object + per_byte * bytes as f64 }).collect();

    let mut rows = vec![];
    for policy in [Policy::RoundRobin, Policy::Demand] {
        let (facts, _) = ground.archive_with(
            args,
            &mixed,
            WORKERS,
            &["--schedule", policy.word(), "--memory", "4GiB", "--files-from", list],
        )?;
        let measured: Vec<Option<f64>> = facts.workers.iter().map(|worker| worker.timeline.last_finish).collect();
        let alone = finishes(policy, &objects, WORKERS).into_iter().map(|done| Some(done).filter(|&done| done > 0.0));
        for (modelled, workers_seconds) in [(false, measured), (true, alone.collect())] {
            let times: Vec<f64> = workers_seconds.iter().copied().flatten().collect();
            let finish = Finish::of(&times).ok_or("no worker had an object")?;
            let finish = Finish { without_work: workers_seconds.len() - times.len(), ..finish };
            rows.push(Schedule {
                policy: policy.word(),
                modelled,
                workers: WORKERS,
                finish,
                workers_seconds,
                published: published(policy),
            });
        }
    }
    Ok(rows)
}

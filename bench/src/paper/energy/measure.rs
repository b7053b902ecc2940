//! Runs the jobs, each as a user would, and takes their time and energy.

use super::args::Args;
use super::result::{Copied, Job, Measurement, Took};
use super::study::{METHODS, Method, SHAPES, kernel};
use crate::bound::settle;
use crate::contest::{begun, progress};
use crate::paper::jobs::Ground;
use archive::energy::{Choice, Sampler};
use gf::Isa;
use plan::energy::{Basis, Scope, Split, Times, total};
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Instant, SystemTime};

/// Sizes of one object, in units of a job's data: the study's 40, 80, 120 and 240 GB.
const UNITS: [u64; 4] = [1, 2, 3, 6];
/// Its six objects of 40 GB.
const OBJECTS: u64 = 6;
/// Bytes that are read and written at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Does everything.
pub fn measure(args: &Args, choice: &Choice) -> Result<Measurement, String> {
    let simd = args.simd()?;
    let mut result = Measurement {
        weft: env!("CARGO_PKG_VERSION"),
        date: crate::report::date(SystemTime::now()),
        processor: volume::machine::processor().unwrap_or_else(|| "unknown".into()),
        cores: crate::threads::cores(),
        quick: args.quick,
        rounds: args.rounds(),
        bytes: args.bytes(),
        simd: simd.name(),
        energy: format!("modelled: {}", choice.model.describe()),
        basis: Basis::Modelled,
        refused: vec![],
        pairs: args.pairs(),
        copies: vec![],
        jobs: vec![],
    };
    let mut lab = Lab { choice, rounds: result.rounds, energy: None, refused: vec![] };
    for (number, pair) in result.pairs.iter().enumerate() {
        let (from, to) = (Ground::make(Path::new(&pair.from))?, Ground::make(Path::new(&pair.to))?);
        result.copies.extend(lab.copies(number, &from, &to, result.bytes)?);
        let source = from.file("object", result.bytes)?;
        settle(&from.folder)?;
        for (k, m) in SHAPES {
            let wanted = |method: &&Method| pair.is_whole() || method.name == "EC2-A";
            for method in METHODS.iter().filter(wanted) {
                let doing = format!("{}, {k}+{m}, {}", pair.name(), method.name);
                begun(&doing);
                progress(&doing);
                let job = lab.job(number, method, kernel(method, simd), (k, m), &source, &to, pair.is_whole())?;
                result.jobs.push(job);
            }
        }
    }
    progress("");
    if let Some(instrument) = lab.energy {
        (result.energy, result.basis) = (format!("measured, {instrument}"), Basis::Measured);
    }
    lab.refused.dedup();
    result.refused = lab.refused;
    Ok(result)
}

/// Takes times and energies.
struct Lab<'a> {
    choice: &'a Choice,
    rounds: u32,
    /// The instrument of what was measured last.
    energy: Option<String>,
    refused: Vec<String>,
}

impl Lab<'_> {
    /// Objects of several sizes, and six one after the other.
    fn copies(&mut self, pair: usize, from: &Ground, to: &Ground, unit: u64) -> Result<Vec<Copied>, String> {
        let mut rows = vec![];
        begun(&format!("{} objects, read, then written", OBJECTS + 1));
        let large = from.file("large", OBJECTS * unit)?;
        settle(&from.folder)?;
        for object_bytes in UNITS.map(|units| units * unit) {
            let took = self.median(&to.folder, |_| copy(&large, &to.folder.join("copy"), object_bytes), &[&large])?;
            rows.push(Copied { pair, objects: 1, object_bytes, took });
        }
        remove(&large)?;
        let objects: Vec<PathBuf> =
            (0..OBJECTS).map(|at| from.file(&format!("object{at}"), unit)).collect::<Result<_, _>>()?;
        settle(&from.folder)?;
        let sources: Vec<&Path> = objects.iter().map(PathBuf::as_path).collect();
        let all = |_| objects.iter().try_for_each(|object| copy(object, &to.folder.join("copy"), unit));
        let took = self.median(&to.folder, all, &sources)?;
        rows.push(Copied { pair, objects: OBJECTS, object_bytes: unit, took });
        objects.iter().try_for_each(|object| remove(object))?;
        Ok(rows)
    }

    #[allow(clippy::too_many_arguments, reason = "a job has as many parts")]
    fn job(
        &mut self,
        pair: usize,
        method: &Method,
        kernel: Isa,
        (k, m): (usize, usize),
        source: &Path,
        to: &Ground,
        decodes: bool,
    ) -> Result<Job, String> {
        let code = format!("{}:{k}+{m}", method.family);
        let chunks = to.folder.join("chunks");
        let encode = |_| {
            // What an earlier round left is replaced.
            let _ = std::fs::remove_dir_all(&chunks);
            std::fs::create_dir(&chunks).map_err(|error| format!("{}: {error}", chunks.display()))?;
            weft(kernel, |weft| {
                weft.args(["file", "encode", "--threads", "1", "--name", "object", "--code", &code, "--to"])
                    .arg(&chunks)
                    .arg("--")
                    .arg(source)
            })
        };
        let encode = self.median(&to.folder, encode, &[source])?;
        let mut decode = None;
        if decodes {
            for lost in 0..m {
                remove(&chunks.join(format!("object.{lost:03}.weft")))?;
            }
            let back = to.folder.join("back");
            let left: Vec<PathBuf> = (m..k + m).map(|at| chunks.join(format!("object.{at:03}.weft"))).collect();
            let left: Vec<&Path> = left.iter().map(PathBuf::as_path).collect();
            let read = |_| {
                weft(kernel, |weft| {
                    weft.args(["file", "decode", "object", "--threads", "1", "--force", "--from"])
                        .arg(&chunks)
                        .arg("--out")
                        .arg(&back)
                })
            };
            decode = Some(self.median(&to.folder, read, &left)?);
            if !same(source, &back)? {
                return Err(format!("{code} with {}: what came back is not what was encoded", kernel.name()));
            }
            remove(&back)?;
        }
        let _ = std::fs::remove_dir_all(&chunks);
        let (what, kernel) = (method.what, kernel.name());
        Ok(Job { pair, method: method.name, what, code, kernel, k, m, encode, decode })
    }

    /// The median round by its time. Before each, what it reads leaves the page cache.
    fn median(
        &mut self,
        folder: &Path,
        mut work: impl FnMut(u32) -> Result<(), String>,
        reads: &[&Path],
    ) -> Result<Took, String> {
        let mut rounds = vec![];
        for round in 0..self.rounds {
            settle(folder)?;
            reads.iter().try_for_each(|path| forget(path))?;
            rounds.push(self.took(|| work(round))?);
        }
        rounds.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        Ok(rounds[rounds.len() / 2])
    }

    fn took(&mut self, work: impl FnOnce() -> Result<(), String>) -> Result<Took, String> {
        let sampler = Sampler::start(self.choice, "job");
        let (before, began) = (processor()?, Instant::now());
        work()?;
        let (seconds, after) = (began.elapsed().as_secs_f64(), processor()?);
        let [user_seconds, system_seconds] = [0, 1].map(|at| (after[at] - before[at]).max(0.0));
        let io_seconds = (seconds - user_seconds).max(0.0);
        let finished = sampler.finish(io_seconds, user_seconds);
        self.refused.extend(finished.refused);
        let instrument = finished.accounts.iter().find(|it| it.basis == Basis::Measured && it.scope != Scope::Gpu);
        if let Some(account) = instrument {
            self.energy = Some(format!("{}: {}", account.source, account.detail));
            let (joules, split) = (account.joules, account.split);
            return Ok(Took { seconds, user_seconds, system_seconds, joules, basis: Basis::Measured, split });
        }
        let split = match &self.choice.profile {
            Some(profile) => {
                total(&profile.constants, &Times { total_seconds: seconds, io_seconds, coding_seconds: user_seconds })
            }
            // The model knows of no device: of reading and writing it has the processor's part.
            None => Split {
                idle_joules: self.choice.model.idle_watts * seconds,
                io_joules: self.choice.model.core_watts * system_seconds,
                coding_joules: self.choice.model.core_watts * user_seconds,
            },
        };
        let basis = Basis::Modelled;
        Ok(Took { seconds, user_seconds, system_seconds, joules: split.joules(), basis, split: Some(split) })
    }
}

/// Runs this program with a kernel.
fn weft(kernel: Isa, arguments: impl FnOnce(&mut Command) -> &mut Command) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| format!("this program cannot be found: {error}"))?;
    let mut command = Command::new(program);
    command.arg("--json").env(gf::select::FORCE_VARIABLE, kernel.name());
    let output = arguments(&mut command).stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// Reads the first bytes of a file and writes them to another one, which is on its device at the
/// end, and goes again.
fn copy(from: &Path, to: &Path, bytes: u64) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}; choose other devices", to.display());
    let (mut source, mut file) = (File::open(from).map_err(failed)?, File::create(to).map_err(failed)?);
    let mut piece = vec![0; PIECE_BYTES];
    let mut left = bytes;
    while left > 0 {
        let length = left.min(PIECE_BYTES as u64) as usize;
        source.read_exact(&mut piece[..length]).map_err(failed)?;
        file.write_all(&piece[..length]).map_err(failed)?;
        left -= length as u64;
    }
    file.sync_data().map_err(failed)?;
    remove(to)
}

fn remove(path: &Path) -> Result<(), String> {
    std::fs::remove_file(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Asks the system to drop a file from the page cache; where it does not, reading costs less.
fn forget(path: &Path) -> Result<(), String> {
    let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let _ = fadvise(&file, 0, None, Advice::DontNeed);
    Ok(())
}

/// Whether two files are equal.
fn same(one: &Path, other: &Path) -> Result<bool, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", other.display());
    let (mut one, mut other) = (File::open(one).map_err(failed)?, File::open(other).map_err(failed)?);
    let mut left = one.metadata().map_err(failed)?.len();
    if other.metadata().map_err(failed)?.len() != left {
        return Ok(false);
    }
    let mut pieces = [vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]];
    while left > 0 {
        let length = left.min(PIECE_BYTES as u64) as usize;
        one.read_exact(&mut pieces[0][..length]).map_err(failed)?;
        other.read_exact(&mut pieces[1][..length]).map_err(failed)?;
        if pieces[0][..length] != pieces[1][..length] {
            return Ok(false);
        }
        left -= length as u64;
    }
    Ok(true)
}

/// Processor seconds of this process and of its children that ended: in programs, and in the
/// system.
fn processor() -> Result<[f64; 2], String> {
    let text = std::fs::read_to_string("/proc/self/stat").map_err(|error| format!("/proc/self/stat: {error}"))?;
    // The second field is a name in brackets, which may have anything in it.
    let fields: Vec<f64> = (text.rsplit_once(')').map_or("", |it| it.1))
        .split_whitespace()
        .map(|field| field.parse().unwrap_or(0.0))
        .collect();
    // Fields 14 to 17: utime, stime, cutime, cstime, in ticks.
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let times = fields.get(11..15).ok_or("/proc/self/stat is short")?;
    Ok([(times[0] + times[2]) / ticks, (times[1] + times[3]) / ticks])
}

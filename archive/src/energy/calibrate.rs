//! Measures the constants of this machine for the study's formulas (S3): power when idle, when
//! reading and writing without coding, and when coding without I/O; and the rates of the latter
//! two.

use super::choice::Choice;
use super::sampler::{Sampler, cpu_seconds};
use crate::report::words::moment;
use ec::partition::Partition;
use plan::energy::{Account, Basis, Coding, Constants, Profile, Scope};
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How many bytes are read and written at a time.
const COPY_PIECE_BYTES: usize = 1 << 20;
/// The length of coded blocks: that of a long stripe of the archive.
const BLOCK_BYTES: usize = 64 << 10;
/// User data that each core codes again and again: more than its cache holds.
const CODED_BYTES: usize = 32 << 20;
/// A machine with more busy cores than this is not idle.
const IDLE_CORES: f64 = 0.1;

/// What to measure, and for how long.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Seconds for each of idling, reading and writing, and each code.
    pub seconds: f64,
    /// The folder for the file that is read and written. The file is removed afterwards.
    pub folder: PathBuf,
    /// The length of that file in bytes. The folder needs space for two.
    pub file_bytes: u64,
    /// The codes.
    pub codes: Vec<String>,
}

/// The current step of a calibration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CalibrationStep {
    /// Measuring the idle machine.
    Idle,
    /// Writing the file that is read later.
    Prepare,
    /// Reading and writing.
    ReadWrite,
    /// Coding with that code.
    Coding(String),
}

impl CalibrationStep {
    /// The name of the phase, in words.
    pub fn word(&self) -> String {
        match self {
            Self::Idle => "idle".into(),
            Self::Prepare => "prepare".into(),
            Self::ReadWrite => "read, then write".into(),
            Self::Coding(code) => format!("code {code}"),
        }
    }
}

/// A calibrated machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// The constants that were measured.
    pub profile: Profile,
    /// Warnings to show with the profile.
    pub warnings: Vec<String>,
}

impl Plan {
    /// Calibrates the machine, for as long as `go_on` returns true.
    ///
    /// # Errors
    /// One line: a code that does not exist, a folder that cannot be written, or that it was
    /// interrupted.
    pub fn run(
        &self,
        choice: &Choice,
        go_on: &(dyn Fn() -> bool + Sync),
        mut tell: impl FnMut(&CalibrationStep),
    ) -> Result<Calibration, String> {
        let codes = self.codes.iter().map(|code| ec::parse(code).map_err(|error| error.to_string()));
        let codes = codes.collect::<Result<Vec<_>, _>>()?;
        let length = Duration::from_secs_f64(self.seconds);
        let busy_before = busy_seconds();
        tell(&CalibrationStep::Idle);
        let mut sampler = Sampler::start(choice, &CalibrationStep::Idle.word());
        let began = Instant::now();
        while began.elapsed() < length {
            proceed(go_on)?;
            std::thread::sleep(Duration::from_millis(50).min(length));
        }
        let busy_cores =
            busy_before.zip(busy_seconds()).map(|(before, after)| (after - before) / began.elapsed().as_secs_f64());

        let mut begin = |sampler: &mut Sampler, step: &CalibrationStep| {
            tell(step);
            sampler.phase(&step.word());
        };
        begin(&mut sampler, &CalibrationStep::Prepare);
        let files = Files::prepare(&self.folder, self.file_bytes, go_on)?;
        begin(&mut sampler, &CalibrationStep::ReadWrite);
        let read_write_bytes_per_second = files.copy(length, go_on)?;
        drop(files);

        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut coding = vec![];
        for (code, name) in codes.iter().zip(&self.codes) {
            begin(&mut sampler, &CalibrationStep::Coding(name.clone()));
            let shape = code.shape();
            let bytes_per_second = code_on_all_cores(&**code, cores, length, go_on)?;
            coding.push(Coding { code: name.clone(), k: shape.k, m: shape.m, bytes_per_second });
        }
        let finished = sampler.finish(0.0, 0.0);
        let account = &finished.accounts[0];
        let walls: Vec<(&str, f64)> =
            finished.phases.iter().map(|phase| (phase.name.as_str(), phase.wall_seconds)).collect();
        let mut constants = constants(account, &walls, &self.codes, cores)?;
        if account.basis == Basis::Modelled {
            // A model can learn nothing from its own figures.
            (constants.idle_watts, constants.coding_watts) = (choice.model.idle_watts, choice.model.core_watts);
        }
        let mut warnings = finished.refused;
        warnings.extend(busy_cores.filter(|busy| *busy > IDLE_CORES).map(|busy| {
            format!(
                "the machine did not idle: {busy:.1} cores were busy, so that its idle power is too high and the \
                others too low"
            )
        }));
        if account.basis == Basis::Modelled {
            warnings.push("no instrument: the powers are not measured, they are those of the model".into());
        }
        let profile = Profile {
            machine: machine(cores),
            date: moment(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())),
            source: match account.basis {
                Basis::Measured => format!("{}: {}", account.source, account.detail),
                Basis::Modelled => account.detail.clone(),
            },
            basis: account.basis,
            scope: account.scope,
            constants,
            read_write_bytes_per_second,
            coding,
        };
        profile.check().map(|()| Calibration { profile, warnings })
    }
}

/// The powers from an account whose phases are the steps. The coding power of one core is that of
/// all cores divided by their number, as the mean over the codes.
fn constants(account: &Account, walls: &[(&str, f64)], codes: &[String], cores: usize) -> Result<Constants, String> {
    let watts = |step: CalibrationStep| {
        let name = step.word();
        let joules = account.phases.iter().find(|phase| phase.phase == name)?.joules;
        let wall = walls.iter().find(|wall| wall.0 == name)?.1;
        Some(joules / wall)
    };
    if account.scope == Scope::Gpu {
        return Err("only the graphics processors can be measured here, and they do not code".into());
    }
    let idle_watts = watts(CalibrationStep::Idle).unwrap_or(0.0);
    let above_idle = |watts: f64| (watts - idle_watts).max(0.0);
    let coding: Vec<f64> = codes.iter().filter_map(|code| watts(CalibrationStep::Coding(code.clone()))).collect();
    Ok(Constants {
        idle_watts,
        read_write_watts: watts(CalibrationStep::ReadWrite).map_or(0.0, above_idle),
        coding_watts: above_idle(coding.iter().sum::<f64>() / coding.len().max(1) as f64) / cores as f64,
    })
}

fn proceed(go_on: &dyn Fn() -> bool) -> Result<(), String> {
    if go_on() { Ok(()) } else { Err("interrupted: nothing was written".into()) }
}

/// The file that is read and the file that is written. Both are removed in the end.
struct Files {
    folder: PathBuf,
}

impl Files {
    fn prepare(folder: &Path, bytes: u64, go_on: &dyn Fn() -> bool) -> Result<Self, String> {
        let folder = folder.join(format!(".weft-calibrate-{}", std::process::id()));
        std::fs::create_dir(&folder).map_err(|error| cannot(&folder, &error))?;
        let files = Self { folder };
        let mut source = File::create(files.source()).map_err(|error| cannot(&files.source(), &error))?;
        let mut piece = vec![0; COPY_PIECE_BYTES];
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut left = bytes;
        while left > 0 {
            proceed(go_on)?;
            // All pieces differ, so that a file system with deduplication cannot store them once.
            for word in piece.chunks_exact_mut(8) {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                word.copy_from_slice(&state.to_le_bytes());
            }
            let length = left.min(COPY_PIECE_BYTES as u64) as usize;
            source.write_all(&piece[..length]).map_err(|error| cannot(&files.source(), &error))?;
            left -= length as u64;
        }
        source.sync_all().map_err(|error| cannot(&files.source(), &error))?;
        forget(&source);
        Ok(files)
    }

    fn source(&self) -> PathBuf {
        self.folder.join("source")
    }

    /// Reads and writes for this long, synced, and bypasses the page cache. Returns bytes a second.
    fn copy(&self, length: Duration, go_on: &dyn Fn() -> bool) -> Result<f64, String> {
        let to = self.folder.join("copy");
        let error = |error: std::io::Error| cannot(&to, &error);
        let mut source = File::open(self.source()).map_err(error)?;
        let mut copy = File::create(&to).map_err(error)?;
        let mut piece = vec![0; COPY_PIECE_BYTES];
        let mut copied = 0u64;
        let began = Instant::now();
        while began.elapsed() < length {
            proceed(go_on)?;
            let read = source.read(&mut piece).map_err(error)?;
            if read == 0 {
                copy.sync_all().map_err(error)?;
                forget(&source);
                forget(&copy);
                source.seek(SeekFrom::Start(0)).map_err(error)?;
                copy.seek(SeekFrom::Start(0)).map_err(error)?;
                continue;
            }
            copy.write_all(&piece[..read]).map_err(error)?;
            copied += read as u64;
        }
        copy.sync_all().map_err(error)?;
        Ok(copied as f64 / began.elapsed().as_secs_f64())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Asks the system to drop a file from the page cache.
fn forget(file: &File) {
    // Where the system cannot do that, the copy is faster than the disk, and the figure includes
    // that.
    let _ = fadvise(file, 0, None, Advice::DontNeed);
}

fn cannot(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}; choose another scratch folder, or a shorter scratch file", path.display())
}

/// Codes on all cores for this long. Returns the bytes of user data per second of processor time;
/// other programs on the machine do not affect that figure.
fn code_on_all_cores(
    code: &dyn ec::Code,
    cores: usize,
    length: Duration,
    go_on: &(dyn Fn() -> bool + Sync),
) -> Result<f64, String> {
    let k = code.shape().k;
    let block = (BLOCK_BYTES / code.unit() * code.unit()).max(code.unit());
    let stripes = (CODED_BYTES / cores / (k * block)).max(1);
    let coded = AtomicU64::new(0);
    let work = || {
        let data = vec![0x5a_u8; stripes * k * block];
        let mut made = vec![0_u8; stripes * code.coded().len() * block];
        let began = Instant::now();
        while began.elapsed() < length && go_on() {
            let pieces = data.chunks_exact(k * block).zip(made.chunks_exact_mut(code.coded().len() * block));
            for (data, made) in pieces {
                let inputs: Vec<&[u8]> = data.chunks_exact(block).collect();
                let mut outputs: Vec<&mut [u8]> = made.chunks_exact_mut(block).collect();
                Partition::default().run(code.encoder(), &inputs, &mut outputs);
                coded.fetch_add((k * block) as u64, Ordering::Relaxed);
            }
        }
    };
    let before = cpu_seconds();
    std::thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(work))));
    proceed(go_on)?;
    Ok(coded.load(Ordering::Relaxed) as f64 / (cpu_seconds() - before).max(1e-9))
}

/// Processor time of all programs on this machine since it started, in seconds.
pub fn busy_seconds() -> Option<f64> {
    // A tick is a hundredth of a second.
    Some(volume::machine::processors()?.busy as f64 / 100.0)
}

fn machine(cores: usize) -> String {
    let name = volume::machine::processor().unwrap_or_else(|| "unknown processor".into());
    format!("{name}, {}", plan::words::count(cores, "core"))
}

#[cfg(test)]
mod tests {
    use super::super::source::testing::Scratch;
    use super::*;
    use plan::energy::PhaseEnergy;

    fn plan(scratch: &Scratch) -> Plan {
        Plan { seconds: 0.05, folder: scratch.path(""), file_bytes: 3 << 20, codes: vec!["rs:4+2".into()] }
    }

    #[test]
    fn a_machine_without_instruments_gets_rates_that_are_measured_and_powers_that_are_not() {
        let scratch = Scratch::new("calibrate");
        let choice = Choice { powercap: scratch.path("none"), ..Choice::default() };
        let mut steps = vec![];
        let calibration = plan(&scratch).run(&choice, &|| true, |step| steps.push(step.word())).unwrap();
        assert_eq!(steps, ["idle", "prepare", "read, then write", "code rs:4+2"]);
        let profile = calibration.profile;
        assert!(profile.coding[0].bytes_per_second > 0.0 && profile.read_write_bytes_per_second > 0.0);
        assert_eq!((profile.coding[0].k, profile.coding[0].m), (4, 2));
        if profile.basis == Basis::Modelled {
            assert!(calibration.warnings.iter().any(|warning| warning.contains("not measured")));
            assert_eq!((profile.constants.idle_watts, profile.constants.coding_watts), (60.0, 6.0));
        }
        assert_eq!(std::fs::read_dir(scratch.path("")).unwrap().count(), 0, "nothing stays behind");
    }

    #[test]
    fn it_stops_when_it_is_told_and_leaves_nothing() {
        let scratch = Scratch::new("calibrate-stop");
        let choice = Choice { powercap: scratch.path("none"), ..Choice::default() };
        for calls in [0, 3, 6] {
            let left = AtomicU64::new(calls);
            let go_on = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
            assert!(plan(&scratch).run(&choice, &go_on, |_| ()).unwrap_err().contains("interrupted"));
            assert_eq!(std::fs::read_dir(scratch.path("")).unwrap().count(), 0);
        }
        let nowhere = Plan { folder: scratch.path("missing"), ..plan(&scratch) };
        assert!(nowhere.run(&choice, &|| true, |_| ()).unwrap_err().contains("scratch folder"));
        let no_code = Plan { codes: vec!["nonsense:4+2".into()], ..plan(&scratch) };
        assert!(no_code.run(&choice, &|| true, |_| ()).is_err());
    }

    #[test]
    fn powers_are_above_idle_and_of_one_core() {
        let energy = |phase: &str, joules| PhaseEnergy { phase: phase.into(), joules };
        let account = Account {
            source: "meter".into(),
            detail: String::new(),
            basis: Basis::Measured,
            scope: Scope::Node,
            error: None,
            joules: 0.0,
            phases: vec![
                energy("idle", 1000.0),
                energy("read, then write", 1200.0),
                energy("code a", 1800.0),
                energy("code b", 2000.0),
            ],
            split: None,
        };
        let walls = [("idle", 10.0), ("read, then write", 10.0), ("code a", 10.0), ("code b", 10.0)];
        let codes = ["a".to_owned(), "b".to_owned()];
        let constants = constants(&account, &walls, &codes, 4).unwrap();
        let expected = Constants { idle_watts: 100.0, read_write_watts: 20.0, coding_watts: 22.5 };
        assert_eq!(constants, expected);
    }
}

//! One size of records: written one after the other, each synced.

use crate::failure::Failure;
use crate::unprotected;
use crate::volumes::bench_lab::{Setup, Stage};
use plan::cost::Way;
use plan::cost::measured::{Point, Round};
use rustix::fs::{Advice, AtFlags, StatxFlags};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use volume::{Control, Shown};

/// Records that are written before anything is measured: chunk sets are begun, and connections
/// made.
const WARM_UP_RECORDS: u64 = 16;
/// Calls that do nothing, or little, for the kernel's part, between the records of a round: at
/// most so many.
const MOST_PROBES: u64 = 100;
/// A probe comes after so many records, or more.
const RECORDS_PER_PROBE: u64 = 10;
/// Calls that show what a mount counts for those.
const COUNTED_CALLS: u32 = 50;
/// CT in what a mount counts.
const CLIENT: usize = 0;

/// What is measured.
pub struct Plan<'a> {
    pub net: Option<&'a str>,
    pub setup: Setup<'a>,
    pub record: u64,
    pub count: u64,
    /// Points say how many stores there were.
    pub several_stores: bool,
}

impl Plan<'_> {
    /// A point without rounds.
    pub fn point(&self) -> Result<Point, Failure> {
        let Setup { code, coding, embedded, stores, .. } = self.setup;
        let shape = unprotected::parse(code)?.shape();
        Ok(Point {
            net: self.net.map(str::to_owned),
            code: code.into(),
            k: shape.k as u32,
            m: shape.m as u32,
            coding,
            embedded,
            record_bytes: self.record,
            stores: (self.several_stores && !embedded).then_some(stores),
            way: Way::Inline,
            count: self.count,
            rounds: Vec::new(),
        })
    }
}

/// Measures a round, and says whether the records went into stripes.
pub fn measure(stage: &Stage<'_>, plan: &Plan<'_>, control: &Control) -> Result<(Round, Way), Failure> {
    let mut record = vec![0; plan.record as usize];
    fastrand::Rng::with_seed(plan.record).fill(&mut record);
    let path = stage.mountpoint().join(format!("records-{}", plan.record));
    let failed = |why: std::io::Error| cannot(&path, &why);
    stage.settle();
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(rustix::fs::OFlags::DSYNC.bits() as i32)
        .open(&path)
        .map_err(failed)?;
    for _ in 0..WARM_UP_RECORDS {
        file.write_all(&record).map_err(failed)?;
    }
    let mut probe = Probe::new(stage, &record, plan.setup.embedded)?;
    let every = (plan.count / MOST_PROBES).max(RECORDS_PER_PROBE).min(plan.count);
    let (before, coded) = stage.counted()?;
    let mut wall = Duration::ZERO;
    for number in 1..=plan.count {
        control.go_on().map_err(Failure::Work)?;
        let begun = Instant::now();
        file.write_all(&record).map_err(failed)?;
        wall += begun.elapsed();
        if number % every == 0 {
            probe.take()?;
        }
    }
    let (after, now_coded) = stage.counted()?;
    let (kernel, counted_by_probes) = probe.end()?;
    let mut counted = [0.0; 7];
    for (step, time) in counted.iter_mut().enumerate() {
        *time = (after[step] - before[step] - counted_by_probes[step]).max(0.0);
    }
    drop(file);
    std::fs::remove_file(&path).map_err(failed)?;
    // Half of the records: now and then, the background puts some of those in the metadata into a
    // stripe.
    let way = if 2 * (now_coded - coded) >= plan.count { Way::Stripe } else { Way::Inline };
    Ok((Round { wall: wall.as_secs_f64(), counted, kernel: kernel * plan.count as f64 }, way))
}

/// The kernel's part of a synced write of a record: what the two calls that reach the mount for it,
/// a write and an fsync, take besides what the mount counts. Two calls in a row that ask no server
/// show it, between the records, so that the processors are as busy, caches as cold and threads as
/// asleep as for those: a write of the same size and one of a byte, into the mount's memory. (A
/// clean fsync asks the metadata server, and that takes longer between records than in a row.) A
/// mount that has the volume itself gets no write before a close: it is asked for an attribute that
/// the file does not have.
struct Probe<'a> {
    record: &'a [u8],
    path: PathBuf,
    /// The kernel keeps what is written until a file is closed, and a close commits nothing. (A
    /// mount that shares its volume gets each write, and commits at a close.)
    embedded: bool,
    /// Clean: its fsync commits nothing.
    clean: File,
    /// Written, and not synced: that goes into the mount's memory only.
    written: File,
    /// What the mount counts for each of [`CALLS`].
    counted: [[f64; 7]; CALLS.len()],
    /// How long each of those took so far.
    took: [Vec<Duration>; CALLS.len()],
}

/// What a probe does: a write into the mount's memory, with a close, if `embedded`; a call as short
/// as an fsync; a close; and what the kernel asks besides, if `embedded`.
const CALLS: [fn(&Probe<'_>) -> std::io::Result<()>; 4] =
    [|probe| probe.write(), |probe| probe.short(), |probe| probe.close(&probe.clean), |probe| probe.ask()];

impl<'a> Probe<'a> {
    fn new(stage: &Stage<'_>, record: &'a [u8], embedded: bool) -> Result<Self, Failure> {
        let path = stage.mountpoint().join("probe");
        let failed = |why: std::io::Error| cannot(&path, &why);
        let clean = File::create(path.with_extension("clean")).map_err(failed)?;
        clean.sync_all().map_err(failed)?;
        let written = File::create(&path).map_err(failed)?;
        let mut probe =
            Self { record, path, embedded, clean, written, counted: [[0.0; 7]; CALLS.len()], took: Default::default() };
        for (call, work) in CALLS.into_iter().enumerate() {
            let (before, _) = stage.counted()?;
            for _ in 0..COUNTED_CALLS {
                work(&probe).map_err(|why| cannot(&probe.path, &why))?;
            }
            let (after, _) = stage.counted()?;
            // Of a write that is not synced, only CT is in its own time.
            let is_write = call == 0 || call == 1 && !embedded;
            let own = |step: usize| step == CLIENT || !is_write;
            let counted =
                |step| if own(step) { (after[step] - before[step]).max(0.0) / f64::from(COUNTED_CALLS) } else { 0.0 };
            probe.counted[call] = std::array::from_fn(counted);
        }
        Ok(probe)
    }

    /// A write that goes as far as the mount, and a close.
    fn write(&self) -> std::io::Result<()> {
        self.written.write_all_at(self.record, 0)?;
        self.close(&self.written)
    }

    /// A call with a message as short as that of an fsync.
    fn short(&self) -> std::io::Result<()> {
        if !self.embedded {
            return self.written.write_all_at(&[0], 0);
        }
        match rustix::fs::fgetxattr(&self.clean, "user.none", &mut [0; 8]) {
            Ok(_) | Err(Errno::NODATA) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Closes one of two descriptors of a file, if that makes the kernel hand over what it has, and
    /// no more.
    fn close(&self, file: &File) -> std::io::Result<()> {
        if self.embedded { file.try_clone().map(drop) } else { Ok(()) }
    }

    /// What the kernel asks a mount that has the volume itself for each record: the attributes,
    /// because the space of the file changed with the last record. After that it asks at the next
    /// write whether the file has capabilities, which is in the time of that write. The new time
    /// goes with the data, in the close.
    fn ask(&self) -> std::io::Result<()> {
        if self.embedded {
            rustix::fs::statx(&self.written, "", AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC, StatxFlags::SIZE)?;
        }
        Ok(())
    }

    fn take(&mut self) -> Result<(), Failure> {
        // A record goes into new pages.
        let offered = rustix::fs::fadvise(&self.written, 0, None, Advice::DontNeed);
        offered.map_err(|why| cannot(&self.path, &why.into()))?;
        for (call, work) in CALLS.into_iter().enumerate() {
            let begun = Instant::now();
            work(self).map_err(|why| cannot(&self.path, &why))?;
            self.took[call].push(begun.elapsed());
        }
        Ok(())
    }

    /// The kernel's part of a record in seconds, and what the mount counted for all probes.
    fn end(self) -> Result<(f64, [f64; 7]), Failure> {
        let times = self.took[0].len() as f64;
        let [write, short, close, ask] = self.took.map(usual);
        let [of_write, of_short, _, of_ask] = self.counted.map(|counted| counted.iter().sum::<f64>());
        let kernel = (write - close - of_write).max(0.0) + (short - of_short).max(0.0) + (ask - of_ask).max(0.0);
        let all = |step: usize| self.counted.iter().map(|counted| counted[step]).sum::<f64>() * times;
        let counted = std::array::from_fn(all);
        drop((self.clean, self.written));
        for path in [self.path.with_extension("clean"), self.path.clone()] {
            std::fs::remove_file(&path).map_err(|why| cannot(&path, &why))?;
        }
        Ok((kernel, counted))
    }
}

/// The mean without the longest twentieth, in seconds: a probe that waits for something in the
/// background is no part of a record. A median is less than the mean of what varies as usual, and
/// the steps of the records are a mean. 0 without any.
fn usual(mut all: Vec<Duration>) -> f64 {
    all.sort_unstable();
    all.truncate(all.len() - all.len() / 20);
    all.iter().sum::<Duration>().as_secs_f64() / all.len().max(1) as f64
}

pub fn cannot(path: &Path, why: &std::io::Error) -> Failure {
    Failure::Other(format!("{}: {why}", Shown(path)))
}

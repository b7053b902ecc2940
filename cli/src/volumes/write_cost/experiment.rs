//! One size of records: written one after the other, each synced.

use super::stage::Stage;
use crate::failure::Failure;
use plan::coding::Coding;
use plan::cost::Way;
use plan::cost::measured::{Point, Round};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;
use volume::{Control, Shown};

/// Records that are written before anything is measured: chunk sets are begun, and connections
/// made.
const WARM_UP_RECORDS: u64 = 16;
/// Calls that do nothing, or little, for the kernel's part.
const EMPTY_CALLS: u32 = 200;
/// Bytes that are written for the kernel's part of a write: they fit into the mount's memory.
const KERNEL_TEST_BYTES: u64 = 8 << 20;
/// CT in what a mount counts.
const CLIENT: usize = 0;

/// What is measured.
pub struct Plan<'a> {
    pub net: Option<&'a str>,
    pub code: &'a str,
    pub coding: Coding,
    pub record: u64,
    pub count: u64,
    pub rounds: u64,
}

/// Measures it.
pub fn measure(stage: &Stage<'_>, plan: &Plan<'_>, control: &Control) -> Result<Point, Failure> {
    let shape = ec::parse(plan.code)?.shape();
    let mut record = vec![0; plan.record as usize];
    fastrand::Rng::with_seed(plan.record).fill(&mut record);
    let path = stage.mountpoint().join(format!("records-{}", plan.record));
    let failed = |why: std::io::Error| cannot(&path, &why);
    let (mut rounds, mut stripes) = (Vec::new(), 0);
    for _ in 0..plan.rounds {
        let kernel = kernel(stage, &record)?;
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
        let (before, coded) = stage.counted()?;
        let begun = Instant::now();
        for _ in 0..plan.count {
            control.go_on().map_err(Failure::Work)?;
            file.write_all(&record).map_err(failed)?;
        }
        let wall = begun.elapsed().as_secs_f64();
        let (after, now_coded) = stage.counted()?;
        let mut counted = [0.0; 7];
        for (step, time) in counted.iter_mut().enumerate() {
            *time = (after[step] - before[step]).max(0.0);
        }
        stripes += now_coded - coded;
        rounds.push(Round { wall, counted, kernel: kernel * plan.count as f64 });
        drop(file);
        std::fs::remove_file(&path).map_err(failed)?;
    }
    // Half of the records: now and then, the background puts some of those in the metadata into a
    // stripe.
    let way = if 2 * stripes >= plan.count * plan.rounds { Way::Stripe } else { Way::Inline };
    Ok(Point {
        net: plan.net.map(str::to_owned),
        code: plan.code.into(),
        k: shape.k as u32,
        m: shape.m as u32,
        coding: plan.coding,
        record_bytes: plan.record,
        way,
        count: plan.count,
        rounds,
    })
}

/// The kernel's part of a synced write of a record, in seconds: what a write and an fsync take that
/// the mount does not count. Measured with a file that is synced although nothing was written, and
/// with writes that only go into the mount's memory.
fn kernel(stage: &Stage<'_>, record: &[u8]) -> Result<f64, Failure> {
    let path = stage.mountpoint().join("empty-calls");
    let failed = |why: std::io::Error| cannot(&path, &why);
    let file = File::create(&path).map_err(failed)?;
    file.write_all_at(record, 0).and_then(|()| file.sync_all()).map_err(failed)?;
    let uncounted = |calls: u32, steps: std::ops::Range<usize>, call: &dyn Fn() -> std::io::Result<()>| {
        let (before, _) = stage.counted()?;
        let begun = Instant::now();
        for _ in 0..calls {
            call().map_err(failed)?;
        }
        let wall = begun.elapsed().as_secs_f64();
        let (after, _) = stage.counted()?;
        let counted: f64 = steps.map(|step| after[step] - before[step]).sum();
        Ok::<f64, Failure>((wall - counted).max(0.0) / f64::from(calls))
    };
    let syncs = uncounted(EMPTY_CALLS, 0..7, &|| file.sync_all())?;
    // Of a write that is not synced, only CT is in its own time.
    let calls =
        u32::try_from(KERNEL_TEST_BYTES / record.len().max(1) as u64).unwrap_or(EMPTY_CALLS).clamp(4, EMPTY_CALLS);
    let writes = uncounted(calls, CLIENT..CLIENT + 1, &|| file.write_all_at(record, 0))?;
    file.sync_all().map_err(failed)?;
    drop(file);
    std::fs::remove_file(&path).map_err(failed)?;
    Ok(syncs + writes)
}

fn cannot(path: &Path, why: &std::io::Error) -> Failure {
    Failure::Other(format!("{}: {why}", Shown(path)))
}

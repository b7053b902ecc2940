//! Threads that write files of their own to a mount.

use super::Stage;
use crate::failure::Failure;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::Instant;
use volume::Shown;

/// What a thread writes with one call: that of the ExSTorus study.
pub const RECORD_BYTES: u64 = 128 << 10;

fn cannot(path: &Path, why: &std::io::Error) -> Failure {
    Failure::Other(format!("{}: {why}", Shown(path)))
}

/// Writes with a number of threads, each `bytes` bytes to a new file, and syncs the files. Returns
/// how long that took, in seconds. The files are removed.
pub fn write_streams(stage: &Stage<'_>, threads: u32, bytes: u64) -> Result<f64, Failure> {
    let mut record = vec![0; RECORD_BYTES as usize];
    fastrand::Rng::with_seed(bytes).fill(&mut record);
    let paths: Vec<PathBuf> = (0..threads).map(|number| stage.mountpoint().join(format!("stream-{number}"))).collect();
    let files: Vec<(File, &PathBuf)> = (paths.iter())
        .map(|path| Ok((File::create(path).map_err(|why| cannot(path, &why))?, path)))
        .collect::<Result<_, Failure>>()?;
    let (begin, record) = (Barrier::new(files.len() + 1), &record);
    let (begin, mut begun) = (&begin, Instant::now());
    let ended: Result<Vec<Instant>, Failure> = std::thread::scope(|scope| {
        let writers: Vec<_> = (files.into_iter())
            .map(|(mut file, path)| {
                scope.spawn(move || {
                    begin.wait();
                    let records = bytes.div_ceil(RECORD_BYTES);
                    let written = (0..records).try_for_each(|_| file.write_all(record)).and_then(|()| file.sync_all());
                    written.map_err(|why| cannot(path, &why)).map(|()| Instant::now())
                })
            })
            .collect();
        begin.wait();
        begun = Instant::now();
        let ends =
            writers.into_iter().map(|writer| writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ends.collect()
    });
    let last = ended?.into_iter().max().unwrap_or(begun);
    for path in &paths {
        std::fs::remove_file(path).map_err(|why| cannot(path, &why))?;
    }
    Ok(last.duration_since(begun).as_secs_f64())
}

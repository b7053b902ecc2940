//! Threads that write files of their own, without waiting for each record, and sync them at the
//! end: the study's comparison of codes.

use super::{Run, entry, experiment::cannot};
use crate::failure::{Failure, Outcome};
use crate::unprotected;
use crate::volumes::bench_lab::{Lab, Stage};
use plan::cost::Measurement;
use plan::cost::streams::{Stream, StreamRound};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Barrier;
use std::time::Instant;

/// What a thread writes with one call: the study's.
const RECORD_BYTES: u64 = 128 << 10;
/// What is written before anything is measured.
const WARM_UP_BYTES: u64 = 32 << 20;

/// A round of all codes, sides that code, and numbers of threads, on one network.
pub fn measure(run: &mut Run, result: &mut Measurement, lab: Option<&Lab>, net: Option<&str>, bytes: u64) -> Outcome {
    let arguments = run.arguments;
    let codes = arguments.stream_codes();
    for (&coding, code) in arguments.coding.iter().flat_map(|coding| codes.iter().map(move |code| (coding, code))) {
        let setup = arguments.setup(code, coding);
        run.say(net, &setup, "threads");
        let shape = unprotected::parse(setup.code)?.shape();
        let stage = run.stage(&setup, lab)?;
        write(&stage, 1, WARM_UP_BYTES.min(bytes))?;
        for &threads in &arguments.threads {
            run.control.go_on().map_err(Failure::Work)?;
            // Whole records, and as many for each thread.
            let each = (bytes / RECORD_BYTES / u64::from(threads)).max(1) * RECORD_BYTES;
            let (before, _) = stage.counted()?;
            let processors = stage.processors();
            let wall = write(&stage, threads, each)?;
            let now = stage.processors();
            let (after, _) = stage.counted()?;
            let new = Stream {
                net: net.map(str::to_owned),
                code: setup.code.into(),
                kernel: setup.kernel.map(str::to_owned),
                k: shape.k as u32,
                m: shape.m as u32,
                coding,
                threads,
                record_bytes: RECORD_BYTES,
                bytes: each * u64::from(threads),
                rounds: Vec::new(),
            };
            let stream = entry(&mut result.streams, new, |stream| {
                (stream.net.clone(), stream.code.clone(), stream.kernel.clone(), stream.coding, stream.threads)
            });
            stream.rounds.push(StreamRound {
                wall,
                counted: std::array::from_fn(|step| (after[step] - before[step]).max(0.0)),
                processors: std::array::from_fn(|process| (now[process] - processors[process]).max(0.0)),
            });
        }
        stage.clear()?;
    }
    Ok(())
}

/// Writes with so many threads, each so many bytes to a new file, and syncs them. Returns how long
/// that took, in seconds. The files are removed.
pub fn write(stage: &Stage<'_>, threads: u32, bytes: u64) -> Result<f64, Failure> {
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

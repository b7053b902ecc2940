//! Threads that write files of their own, without waiting for each record, and sync them at the
//! end: the study's comparison of codes.

use super::{Run, entry};
use crate::failure::{Failure, Outcome};
use crate::unprotected;
use crate::volumes::bench_lab::{Lab, RECORD_BYTES, write_streams};
use plan::cost::Measurement;
use plan::cost::streams::{Stream, StreamRound};

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
        write_streams(&stage, 1, WARM_UP_BYTES.min(bytes))?;
        for &threads in &arguments.threads {
            run.control.go_on().map_err(Failure::Work)?;
            // Whole records, and as many for each thread.
            let each = (bytes / RECORD_BYTES / u64::from(threads)).max(1) * RECORD_BYTES;
            let (before, _) = stage.counted()?;
            let processors = stage.processors();
            let wall = write_streams(&stage, threads, each)?;
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
            let stream = entry(&mut result.streams, new, |a, b| {
                (&a.net, &a.code, &a.kernel, a.coding, a.threads) == (&b.net, &b.code, &b.kernel, b.coding, b.threads)
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

//! The clients of a bench: processes with a session each, that begin together and write for a
//! while. Both sides of the pipe between them and the bench are here.

use super::arguments::{Arguments, Sizes};
use crate::failure::{Failure, Outcome};
use crate::volumes::bench_lab::{Lab, Stage, inside};
use crate::volumes::{Open, Writing, open_with};
use fs::{FileKind, New, ROOT};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use volume::Control;

/// What is written with one call.
const PIECE_BYTES: usize = 1 << 20;
/// What a client says when it can begin.
const READY: &str = "ready";

/// What a client did.
#[derive(Serialize, Deserialize)]
pub struct Written {
    /// Bytes of all its writers.
    pub bytes: u64,
    /// Until all of them had synced, in seconds.
    pub seconds: f64,
}

/// A client. It is killed when this goes.
pub struct Writer {
    process: Child,
    output: BufReader<ChildStdout>,
    log: PathBuf,
}

impl Writer {
    /// Starts a client, which waits until it is told to go on.
    pub fn start(
        stage: &Stage<'_>,
        lab: Option<&Lab>,
        number: u32,
        writers: u32,
        sizes: &Sizes,
    ) -> Result<Self, Failure> {
        let failed = |why: std::io::Error| Failure::Other(format!("cannot start a client: {why}"));
        let program = std::env::current_exe().map_err(failed)?;
        let log = stage.place().join(format!("client{number}.err"));
        let mut command = Command::new(program);
        command.args(["bench", "placement", "--writer", stage.volume(), "--writers", &writers.to_string()]);
        command.args(["--seconds", &sizes.seconds.to_string(), "--stripe-bytes", &sizes.stripe_bytes.to_string()]);
        command.current_dir(stage.place());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&log).map_err(failed)?);
        let mut process = inside(lab, || command.spawn().map_err(failed))?;
        let output = process.stdout.take().expect("it is a pipe");
        let mut writer = Self { process, output: BufReader::new(output), log };
        match writer.line()?.trim_end() {
            READY => Ok(writer),
            _ => Err(writer.failure()),
        }
    }

    /// Lets it write.
    pub fn go(&mut self) -> Outcome {
        let input = self.process.stdin.as_mut().expect("it is a pipe");
        input.write_all(b"go\n").map_err(|_| self.failure())
    }

    /// Waits until it is done.
    pub fn wait(mut self, control: &Control) -> Result<Written, Failure> {
        let line = self.line()?;
        control.go_on().map_err(Failure::Work)?;
        serde_json::from_str(&line).map_err(|_| self.failure())
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(|why| Failure::Other(format!("a client: {why}")))?;
        Ok(line)
    }

    fn failure(&self) -> Failure {
        let said = std::fs::read_to_string(&self.log).unwrap_or_default();
        let last = said.lines().last().map_or("it ended without a word", |line| line.trim_start_matches("weft: "));
        Failure::Other(format!("a client failed: {last}"))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The client's side.
pub fn run(volume: &Path, arguments: &Arguments) -> Outcome {
    let (writers, seconds) = (arguments.writers, arguments.seconds.unwrap_or_default());
    let writing = Writing { stripe_bytes: arguments.stripe_bytes, ..Writing::default() };
    let volume = open_with(volume, false, &writing)?;
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let new = New { kind: FileKind::File, mode: 0o644, uid, gid, device: 0, link: Vec::new() };
    let file = |number: u32| {
        let name = format!("client-{}-{number}", std::process::id());
        Ok(volume.make(ROOT, name.as_bytes(), &new)?.ino)
    };
    let files: Vec<plan::Ino> = (0..writers).map(file).collect::<Result<_, Failure>>()?;
    say(READY)?;
    let mut go = String::new();
    let told = std::io::stdin().lock().read_line(&mut go);
    if !told.is_ok_and(|bytes| bytes > 0) {
        return Err(Failure::Other("the bench is gone".into()));
    }
    let begun = Instant::now();
    let until = begun + Duration::from_secs_f64(seconds);
    let volume = &volume;
    let written: Result<Vec<u64>, Failure> = std::thread::scope(|scope| {
        let writers: Vec<_> = files.iter().map(|&file| scope.spawn(move || write(volume, file, until))).collect();
        let ends =
            writers.into_iter().map(|writer| writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ends.collect()
    });
    let written = Written { bytes: written?.into_iter().sum(), seconds: begun.elapsed().as_secs_f64() };
    say(&serde_json::to_string(&written).map_err(|why| Failure::Other(why.to_string()))?)
}

fn say(line: &str) -> Outcome {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).map_err(|_| Failure::OutputClosed)
}

/// Writes to a file until then, and syncs it. Returns the bytes.
fn write(volume: &Open, file: plan::Ino, until: Instant) -> Result<u64, Failure> {
    let mut piece = vec![0; PIECE_BYTES];
    fastrand::Rng::with_seed(file.0).fill(&mut piece);
    let mut bytes = 0;
    while bytes == 0 || Instant::now() < until {
        volume.write(file, bytes, &piece)?;
        bytes += piece.len() as u64;
    }
    volume.sync(file)?;
    Ok(bytes)
}

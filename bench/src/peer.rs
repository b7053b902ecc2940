//! Another library as a subject: a child process that answers lines (the protocol is in
//! `bench/peers/README.md`).
//!
//! Nothing a peer does is fatal. One that crashes or does not answer in time is killed and started
//! again for its next job, some times; then it is left alone.

use crate::subject::{Job, Subject};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// The peers there can be, and what builds them.
pub const EXPECTED: [&str; 6] = ["isal", "jerasure", "zfec", "klauspost", "reed-solomon-erasure", "reed-solomon-simd"];

/// A peer that failed this often is not started again.
const MAX_FAILURES: usize = 3;

/// A library in a process of its own.
pub struct Peer {
    name: String,
    version: String,
    kernel: String,
    codes: Vec<String>,
    executable: PathBuf,
    wanted_kernel: &'static str,
    deadline: Duration,
    process: Option<Process>,
    failures: usize,
}

struct Process {
    child: Child,
    requests: ChildStdin,
    answers: Receiver<String>,
}

impl Peer {
    /// Starts the executable with `PEER_KERNEL` set and asks what it is. `name` is what columns
    /// will call it.
    ///
    /// # Errors
    /// When it does not start, answer in time, or keep to the protocol.
    pub fn start(
        name: &str,
        executable: &Path,
        wanted_kernel: &'static str,
        deadline: Duration,
    ) -> Result<Self, String> {
        let mut peer = Self {
            name: name.to_owned(),
            version: String::new(),
            kernel: String::new(),
            codes: vec![],
            executable: executable.to_owned(),
            wanted_kernel,
            deadline,
            process: None,
            failures: 0,
        };
        let hello = peer.ask("hello")?;
        let strange = || format!("it introduces itself by {hello:?}");
        let mut words = hello.split_whitespace().skip(1);
        peer.version = words.next().ok_or_else(strange)?.to_owned();
        for word in words {
            match word.split_once('=') {
                Some(("codes", codes)) => peer.codes = codes.split(',').map(str::to_owned).collect(),
                Some(("kernel", kernel)) => peer.kernel = kernel.to_owned(),
                _ => {}
            }
        }
        if peer.codes.is_empty() { Err(strange()) } else { Ok(peer) }
    }

    /// One request and what follows "ok" in its answer.
    fn ask(&mut self, request: &str) -> Result<String, String> {
        if self.process.is_none() {
            if self.failures >= MAX_FAILURES {
                return Err(format!("given up after {MAX_FAILURES} failures"));
            }
            self.process = Some(Process::start(&self.executable, self.wanted_kernel)?);
        }
        let process = self.process.as_mut().expect("it was just started");
        match process.exchange(request, self.deadline) {
            Ok(answer) => match answer.split_once(' ') {
                Some(("ok", rest)) => Ok(rest.trim_end().to_owned()),
                Some(("no", reason)) => Err(reason.trim_end().to_owned()),
                _ => Err(self.failed(format!("it answers {answer:?}"))),
            },
            Err(why) => Err(self.failed(why)),
        }
    }

    /// After a failure nothing in the pipe can be trusted, so the process goes.
    fn failed(&mut self, why: String) -> String {
        self.failures += 1;
        self.process = None;
        why
    }

    fn time(&mut self, request: &str) -> Result<f64, String> {
        let answer = self.ask(request)?;
        let seconds = answer.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
        seconds.filter(|s| s.is_finite() && *s > 0.0).ok_or_else(|| format!("it took {answer:?} seconds"))
    }
}

/// The words that follow the verb of a timing request.
fn words(job: &Job) -> String {
    let Job { code, k, m, block_bytes, packet, stripes, iterations, .. } = job;
    format!("{code} {k} {m} {block_bytes} {packet} {stripes} {iterations}")
}

impl Subject for Peer {
    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn kernel(&self) -> &str {
        &self.kernel
    }

    fn supports(&self, code: &str) -> bool {
        self.codes.iter().any(|known| known == code)
    }

    fn time_encode(&mut self, job: &Job) -> Result<f64, String> {
        assert_eq!(job.threads, 1, "peers are measured on one core");
        self.time(&format!("time-encode {}", words(job)))
    }

    fn time_decode(&mut self, job: &Job, lost: &[usize]) -> Result<f64, String> {
        let lost: Vec<String> = lost.iter().map(usize::to_string).collect();
        self.time(&format!("time-decode {} {}", words(job), lost.join(",")))
    }
}

impl Process {
    fn start(executable: &Path, kernel: &str) -> Result<Self, String> {
        let mut child = Command::new(executable)
            .env("PEER_KERNEL", kernel)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("it does not start: {e}"))?;
        let requests = child.stdin.take().expect("piped");
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        let (send, answers) = channel();
        // A thread reads, so that waiting for an answer can have an end.
        std::thread::spawn(move || {
            let mut line = String::new();
            while lines.read_line(&mut line).is_ok_and(|read| read > 0) && send.send(std::mem::take(&mut line)).is_ok()
            {
            }
        });
        Ok(Self { child, requests, answers })
    }

    fn exchange(&mut self, request: &str, deadline: Duration) -> Result<String, String> {
        let crashed = |child: &mut Child| match child.wait() {
            Ok(status) => format!("it ended early ({status})"),
            Err(e) => format!("it ended early ({e})"),
        };
        if writeln!(self.requests, "{request}").and_then(|()| self.requests.flush()).is_err() {
            return Err(crashed(&mut self.child));
        }
        self.answers.recv_timeout(deadline).map_err(|e| match e {
            RecvTimeoutError::Timeout => format!("no answer within {} s", deadline.as_secs()),
            RecvTimeoutError::Disconnected => crashed(&mut self.child),
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It holds nothing worth a polite end; killing also ends one that hangs, and waiting leaves
        // no zombie.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

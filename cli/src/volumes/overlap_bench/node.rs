//! The nodes: processes that write, begin together, and say what they did. Both sides of the pipe
//! between them and the bench are here.

use super::engine::{REGION_BYTES, Senders, Way, Writer};
use crate::failure::{Failure, Outcome};
use crate::volumes::bench_lab::{Lab, STORES};
use cluster::ClusterPlaces;
use plan::{Position, SetId};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use volume::lock;
use volume::target::{Target, TargetFile};

/// What a node says when it can begin.
const READY: &str = "ready";

/// What a node does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The targets of all nodes: `store://...`.
    pub targets: Vec<String>,
    pub node: usize,
    pub code: String,
    pub block_bytes: usize,
    pub way: Way,
    pub in_flight: usize,
    pub seconds: f64,
}

/// What a node did.
#[derive(Serialize, Deserialize)]
pub struct Written {
    /// Bytes of user data.
    pub bytes: u64,
    /// Until all was synced, in seconds.
    pub seconds: f64,
}

/// A node. It is killed when this goes.
pub struct Node {
    process: Child,
    output: BufReader<ChildStdout>,
    log: PathBuf,
}

impl Node {
    /// Starts a node on its machine; it waits until it is told to go on.
    pub fn start(place: &Path, lab: Option<&Lab>, job: &Job) -> Result<Self, Failure> {
        let failed = |why: std::io::Error| Failure::Other(format!("cannot start a node: {why}"));
        let program = std::env::current_exe().map_err(failed)?;
        let log = place.join(format!("node{}.err", job.node));
        let text = serde_json::to_string(job).map_err(|why| Failure::Other(why.to_string()))?;
        let mut command = Command::new(program);
        command.args(["bench", "overlap", "--node", &text]).current_dir(place);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&log).map_err(failed)?);
        let mut spawn = || command.spawn().map_err(failed);
        let mut process = match lab {
            Some(lab) => lab.inside(STORES + job.node, spawn)?,
            None => spawn()?,
        };
        let output = process.stdout.take().expect("it is a pipe");
        let mut node = Self { process, output: BufReader::new(output), log };
        if node.line()?.trim_end() == READY { Ok(node) } else { Err(node.failure()) }
    }

    /// Lets it write.
    pub fn go(&mut self) -> Outcome {
        let input = self.process.stdin.as_mut().expect("it is a pipe");
        input.write_all(b"go\n").map_err(|_| self.failure())
    }

    /// Waits until it is done.
    pub fn wait(mut self) -> Result<Written, Failure> {
        let line = self.line()?;
        serde_json::from_str(&line).map_err(|_| self.failure())
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(|why| Failure::Other(format!("a node: {why}")))?;
        Ok(line)
    }

    fn failure(&self) -> Failure {
        let said = std::fs::read_to_string(&self.log).unwrap_or_default();
        let last = said.lines().last().map_or("it ended without a word", |line| line.trim_start_matches("weft: "));
        Failure::Other(format!("a node failed: {last}"))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The node's side.
pub fn run(job: &str) -> Outcome {
    let job: Job = serde_json::from_str(job).map_err(|why| Failure::Usage(format!("--node: {why}")))?;
    let code = ec::parse(&job.code)?;
    let places = ClusterPlaces::default();
    // Each node makes its own target; all of them are ready before any begins.
    let open = |(node, target): (usize, &String)| {
        let place = Path::new(target);
        Ok(if node == job.node { fs::Places::format(&places, place)? } else { fs::Places::open(&places, place)? })
    };
    let targets: Vec<Arc<dyn Target>> = job.targets.iter().enumerate().map(open).collect::<Result<_, Failure>>()?;
    let targets = Arc::new(targets);
    let senders = Senders::new(code.shape().blocks(), &targets);
    let mut source = vec![0; REGION_BYTES];
    fastrand::Rng::with_seed(job.node as u64).fill(&mut source);
    say(READY)?;
    let mut go = String::new();
    if !std::io::stdin().lock().read_line(&mut go).is_ok_and(|bytes| bytes > 0) {
        return Err(Failure::Other("the bench is gone".into()));
    }
    let failed = |why: std::io::Error| Failure::Other(format!("cannot write: {why}"));
    let begun = Instant::now();
    let written = Mutex::default();
    let writer = Writer {
        code: &*code,
        block_bytes: job.block_bytes,
        node: job.node,
        nodes: targets.len(),
        senders: &senders,
        source: &source,
        written: &written,
    };
    let stripes = writer.run(job.way, job.in_flight, begun + Duration::from_secs_f64(job.seconds)).map_err(failed)?;
    let files = std::mem::take(&mut *lock(&written));
    std::thread::scope(|scope| {
        let sync = |(to, position, set): (usize, u16, u64)| {
            let file = TargetFile::Chunk { set: SetId(set), position: Position(position) };
            let target = &targets[to];
            scope.spawn(move || target.sync(file).map(drop))
        };
        let all: Vec<_> = files.into_iter().map(sync).collect();
        all.into_iter().try_for_each(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
    .map_err(failed)?;
    let bytes = stripes * (code.shape().k * job.block_bytes) as u64;
    let written = Written { bytes, seconds: begun.elapsed().as_secs_f64() };
    say(&serde_json::to_string(&written).map_err(|why| Failure::Other(why.to_string()))?)
}

fn say(line: &str) -> Outcome {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).map_err(|_| Failure::OutputClosed)
}

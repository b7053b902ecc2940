//! A thread per target, so that targets work in parallel and one that hangs delays the others no
//! longer than the deadline.

use super::super::panics::caught;
use plan::late::straggler_timeout;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};
use volume::target::Target;

/// The name of these threads.
const MIRROR: &str = "weft-mirror";

/// Work to do on a target.
pub(in crate::journal) type Job = Box<dyn FnOnce(&dyn Target) -> io::Result<()> + Send>;

type Answer = (usize, io::Result<()>);

/// A thread that runs the jobs of one target in order. When the worker is dropped, the thread ends
/// after the current job.
#[derive(Debug)]
pub(in crate::journal) struct Worker {
    jobs: Sender<(Job, usize, Sender<Answer>)>,
    running: Weak<()>,
}

impl Worker {
    pub fn start(target: Arc<dyn Target>) -> io::Result<Self> {
        let (sender, receiver) = channel::<(Job, usize, Sender<Answer>)>();
        let alive = Arc::new(());
        let running = Arc::downgrade(&alive);
        thread::Builder::new().name(MIRROR.into()).spawn(move || {
            serve(&*target, &receiver);
            drop(alive);
        })?;
        Ok(Self { jobs: sender, running })
    }

    /// Runs a job whose result nobody waits for.
    pub fn post(&self, job: Job) {
        let (nobody, _) = channel();
        let _ = self.jobs.send((job, 0, nobody));
    }

    /// Gone when the thread has ended.
    pub fn running(&self) -> Weak<()> {
        self.running.clone()
    }
}

fn serve(target: &dyn Target, jobs: &Receiver<(Job, usize, Sender<Answer>)>) {
    while let Ok((job, number, answers)) = jobs.recv() {
        // A panic is this target's failure: the others still have everything. After a deadline the
        // receiver may be gone.
        let done = caught(MIRROR, || job(target)).unwrap_or_else(|why| Err(io::Error::other(why)));
        let _ = answers.send((number, done));
    }
}

/// Runs a job on all workers in parallel. A worker that exceeds the deadline has failed, even if it
/// finishes later.
pub(in crate::journal) fn all<'a>(
    workers: impl Iterator<Item = &'a Worker>,
    job: impl FnMut(usize) -> Job,
    deadline: Duration,
) -> Vec<io::Result<()>> {
    gather(workers, job, |_| deadline)
}

/// The same. When `least` have done it well, late ones are not waited for; they do it later.
pub(in crate::journal) fn most<'a>(
    workers: impl Iterator<Item = &'a Worker>,
    job: impl FnMut(usize) -> Job,
    least: usize,
    deadline: Duration,
) -> Vec<io::Result<()>> {
    gather(workers, job, |took| straggler_timeout(took, least, least, deadline))
}

/// `timeout` gets how long those took that have done it well.
fn gather<'a>(
    workers: impl Iterator<Item = &'a Worker>,
    mut job: impl FnMut(usize) -> Job,
    timeout: impl Fn(&[Duration]) -> Duration,
) -> Vec<io::Result<()>> {
    let (sender, receiver) = channel();
    let (begun, mut took) = (Instant::now(), Vec::new());
    let mut results = Vec::new();
    for (number, worker) in workers.enumerate() {
        results.push(Err(io::Error::from(io::ErrorKind::TimedOut)));
        // A dead thread sends no answer, which counts as a failure.
        let _ = worker.jobs.send((job(number), number, sender.clone()));
    }
    drop(sender);
    for _ in 0..results.len() {
        match receiver.recv_timeout(timeout(&took).saturating_sub(begun.elapsed())) {
            Ok((number, result)) => {
                if result.is_ok() {
                    took.push(begun.elapsed());
                }
                results[number] = result;
            }
            Err(_) => break,
        }
    }
    results
}

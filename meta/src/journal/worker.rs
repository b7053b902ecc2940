//! A thread per target, so that targets work at the same time and one that hangs holds nobody up for longer than the deadline.

use plan::late::patience;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};
use volume::target::Target;

/// Something to do on a target.
pub(super) type Job = Box<dyn FnOnce(&dyn Target) -> io::Result<()> + Send>;

type Answer = (usize, io::Result<()>);

/// A thread that does the jobs of one target in order. It ends after the job in hand when the worker is dropped.
#[derive(Debug)]
pub(super) struct Worker {
    jobs: Sender<(Job, usize, Sender<Answer>)>,
    running: Weak<()>,
}

impl Worker {
    pub fn start(target: Arc<dyn Target>) -> io::Result<Self> {
        let (sender, receiver) = channel::<(Job, usize, Sender<Answer>)>();
        let alive = Arc::new(());
        let running = Arc::downgrade(&alive);
        thread::Builder::new().name("weft-mirror".into()).spawn(move || {
            serve(&*target, &receiver);
            drop(alive);
        })?;
        Ok(Self { jobs: sender, running })
    }

    /// Gone when the thread has ended.
    pub fn running(&self) -> Weak<()> {
        self.running.clone()
    }
}

fn serve(target: &dyn Target, jobs: &Receiver<(Job, usize, Sender<Answer>)>) {
    while let Ok((job, number, answers)) = jobs.recv() {
        // Nobody may listen any more, after a deadline.
        let _ = answers.send((number, job(target)));
    }
}

/// Does a job on each worker at the same time. One that takes longer than the deadline has failed, whatever becomes of it later.
pub(super) fn all<'a>(
    workers: impl Iterator<Item = &'a Worker>,
    job: impl FnMut(usize) -> Job,
    deadline: Duration,
) -> Vec<io::Result<()>> {
    most(workers, job, usize::MAX, deadline)
}

/// As `all`; once `least` have done it, and better all but one, one that is late has failed.
pub(super) fn most<'a>(
    workers: impl Iterator<Item = &'a Worker>,
    mut job: impl FnMut(usize) -> Job,
    least: usize,
    deadline: Duration,
) -> Vec<io::Result<()>> {
    let (sender, receiver) = channel();
    let begun = Instant::now();
    let mut results = Vec::new();
    for (number, worker) in workers.enumerate() {
        results.push(Err(io::Error::from(io::ErrorKind::TimedOut)));
        // A dead thread gives no answer, which is an answer.
        let _ = worker.jobs.send((job(number), number, sender.clone()));
    }
    drop(sender);
    let (mut took, wanted) = (Vec::new(), results.len().saturating_sub(1).max(least.saturating_add(1)));
    for _ in 0..results.len() {
        let left = patience(&took, least, wanted, deadline).saturating_sub(begun.elapsed());
        match receiver.recv_timeout(left) {
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

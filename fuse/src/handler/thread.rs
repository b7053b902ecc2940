//! Threads for what may wait long.

use std::io;
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// How long to wait at a time while the system has no thread.
const RETRY_AFTER: Duration = Duration::from_millis(10);
/// How long to wait in all.
const GIVE_UP_AFTER: Duration = Duration::from_secs(1);

/// Runs work on a thread of its own, with true. While the system has none, it waits a little, and
/// then runs the work on this thread, with false: the kernel waits for an answer, which only the
/// work gives.
pub(super) fn start(name: &str, work: impl FnOnce(bool) + Send + 'static) {
    start_by(work, |run| Builder::new().name(name.into()).spawn(run).map(drop));
}

fn start_by(work: impl FnOnce(bool) + Send + 'static, spawn: impl Fn(Box<dyn FnOnce() + Send>) -> io::Result<()>) {
    let work = Arc::new(Mutex::new(Some(work)));
    let run = |is_own: bool| {
        let work = work.clone();
        move || {
            let work = fs::lock(&work).take();
            work.into_iter().for_each(|work| work(is_own));
        }
    };
    let begun = Instant::now();
    while spawn(Box::new(run(true))).is_err() {
        if begun.elapsed() > GIVE_UP_AFTER {
            return run(false)();
        }
        std::thread::sleep(RETRY_AFTER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc::channel;

    #[test]
    fn work_is_done_once_when_there_is_a_thread_again() {
        let (tries, (sender, done)) = (AtomicU32::new(0), channel());
        let work = move |is_own| sender.send(is_own).unwrap();
        start_by(work, |run| match tries.fetch_add(1, Ordering::Relaxed) {
            0..3 => Err(io::ErrorKind::WouldBlock.into()),
            _ => Builder::new().spawn(run).map(drop),
        });
        assert!(done.recv().unwrap());
        assert!(done.recv().is_err(), "it is done once");
        assert_eq!(tries.into_inner(), 4);
    }

    #[test]
    fn work_is_done_without_a_thread_in_the_end() {
        let (sender, done) = channel();
        start_by(move |is_own| sender.send(is_own).unwrap(), |_| Err(io::ErrorKind::WouldBlock.into()));
        assert!(!done.recv().unwrap());
        assert!(done.recv().is_err(), "it is done once");
    }
}

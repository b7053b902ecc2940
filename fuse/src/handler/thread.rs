//! Threads for what may wait long.

use std::io;
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::Duration;

/// How long to wait while the system has no thread.
const RETRY_AFTER: Duration = Duration::from_millis(10);

/// Runs work on a thread of its own. Waits while the system has none: the kernel waits for an
/// answer that only the work gives.
pub(super) fn start(name: &str, work: impl FnOnce() + Send + 'static) {
    start_by(work, |run| Builder::new().name(name.into()).spawn(run).map(drop));
}

fn start_by(work: impl FnOnce() + Send + 'static, spawn: impl Fn(Box<dyn FnOnce() + Send>) -> io::Result<()>) {
    let work = Arc::new(Mutex::new(Some(work)));
    let run = || {
        let work = work.clone();
        Box::new(move || {
            let work = fs::lock(&work).take();
            work.into_iter().for_each(|work| work());
        })
    };
    while spawn(run()).is_err() {
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
        let work = move || sender.send(()).unwrap();
        start_by(work, |run| match tries.fetch_add(1, Ordering::Relaxed) {
            0..3 => Err(io::ErrorKind::WouldBlock.into()),
            _ => Builder::new().spawn(run).map(drop),
        });
        done.recv().unwrap();
        assert!(done.recv().is_err(), "it is done once");
        assert_eq!(tries.into_inner(), 4);
    }
}

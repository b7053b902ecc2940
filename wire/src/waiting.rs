//! Runs a future on the calling thread, with a time limit. The thread itself sleeps until that
//! limit. A timer of the runtime would cost more: if it is earlier than all others, it wakes the
//! thread that waits for messages only to make it wait again, and a call with a short deadline sets
//! such a timer every time.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

struct Sleeper {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Returns the future's result; None when it is not ready by `until`. Timers in it must be created
/// within a runtime.
pub(crate) fn wait_until<T>(until: Instant, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let sleeper = Arc::new(Sleeper { thread: thread::current(), is_woken: AtomicBool::new(false) });
    let waker = Waker::from(sleeper.clone());
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return Some(result);
        }
        while !sleeper.is_woken.swap(false, Ordering::Acquire) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            thread::park_timeout(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};
    use std::time::Duration;
    use tokio::sync::oneshot;

    #[test]
    fn it_waits_until_there_is_an_answer_or_no_time_left() {
        let soon = || Instant::now() + Duration::from_millis(50);
        assert_eq!(wait_until(Instant::now(), ready(1)), Some(1));
        let begun = Instant::now();
        assert_eq!(wait_until(soon(), pending::<()>()), None);
        assert!(begun.elapsed() >= Duration::from_millis(50));
        // An earlier wake-up for another purpose does not end the wait.
        thread::current().unpark();
        let (sender, receiver) = oneshot::channel();
        let answers = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            sender.send(7)
        });
        assert_eq!(wait_until(Instant::now() + Duration::from_secs(60), receiver), Some(Ok(7)));
        assert_eq!(answers.join().unwrap(), Ok(()));
    }
}

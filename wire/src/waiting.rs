//! Waiting for a future on a thread of its own, until a moment. The thread sleeps that long at most
//! by itself: a timer of the runtime that is sooner than all others wakes the thread that waits for
//! messages, only to have it wait anew, and a call that hurries has one every time.

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

/// What a future comes to, if it does before `until`. Timers in it must be made within a runtime.
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
        // A wake-up of before, that was for something else, ends nothing.
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

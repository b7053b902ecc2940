//! Questions to several targets that do not belong to a volume yet. Each runs on a thread of its
//! own. The wait for all ends when it is known which ones are late.

use plan::late::straggler_timeout;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// How long to wait for answers.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// With this many good answers the caller can go on: it waits for late ones no longer than
    /// [`straggler_timeout`] says.
    pub least: usize,
    /// With this many it would like to go on.
    pub wanted: usize,
    /// The longest wait.
    pub deadline: Duration,
}

/// Asks all at the same time. Returns the answers in the order of the questions; None for one that
/// is late. Its thread goes on, and its answer is dropped.
pub fn ask_all<T: Send + 'static, Q: FnOnce() -> T + Send + 'static>(
    questions: impl IntoIterator<Item = Q>,
    is_good: impl Fn(&T) -> bool,
    wait: Wait,
) -> Vec<Option<T>> {
    let (sender, receiver) = channel();
    let mut all = Vec::new();
    for (number, question) in questions.into_iter().enumerate() {
        let sender = sender.clone();
        std::thread::spawn(move || {
            // If the receiver is gone, the answer is dropped.
            let _ = sender.send((number, question()));
        });
        all.push(None);
    }
    drop(sender);
    let (begun, mut took) = (Instant::now(), Vec::new());
    let Wait { least, wanted, deadline } = wait;
    let left = |took: &[Duration]| straggler_timeout(took, least, wanted, deadline).saturating_sub(begun.elapsed());
    while let Ok((number, answer)) = receiver.recv_timeout(left(&took)) {
        if is_good(&answer) {
            took.push(begun.elapsed());
        }
        all[number] = Some(answer);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn who_is_late_is_not_waited_for_and_who_panics_has_no_answer() {
        let (release, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let questions = (0..4).map(|number| {
            let held = held.clone();
            move || match number {
                1 => panic!("on purpose"),
                3 => held.lock().unwrap().recv().map_or(number, |()| number),
                number => number,
            }
        });
        let wait = Wait { least: 2, wanted: 2, deadline: Duration::from_secs(3600) };
        assert_eq!(ask_all(questions, |_| true, wait), [Some(0), None, Some(2), None]);
        drop(release);
    }
}

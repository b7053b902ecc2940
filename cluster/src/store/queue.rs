//! The queue of a target: what it does, and what waits for it. A member has at most half of it: one that asks too
//! much at a time is refused, and not the others with it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// Operations of all together.
const SLOTS: usize = 256;
/// Members that are remembered before those that wait for nothing are forgotten.
const MEMBERS: usize = 256;

/// Who asks a target for something, and how much.
#[derive(Debug)]
pub(super) struct Queue {
    all: Semaphore,
    members: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// A place in it, until it is dropped.
#[derive(Debug)]
pub(super) struct Slot<'a> {
    _one: SemaphorePermit<'a>,
    _share: Option<OwnedSemaphorePermit>,
}

impl Default for Queue {
    fn default() -> Self {
        Self { all: Semaphore::new(SLOTS), members: Mutex::default() }
    }
}

impl Queue {
    /// A place for an operation of a member, or of somebody without a name, where there are no certificates; None
    /// when there is none.
    pub fn enter(&self, member: Option<&str>) -> Option<Slot<'_>> {
        let share = match member {
            Some(name) => Some(self.share(name).try_acquire_owned().ok()?),
            None => None,
        };
        Some(Slot { _one: self.all.try_acquire().ok()?, _share: share })
    }

    /// How much is in it.
    pub fn length(&self) -> usize {
        SLOTS - self.all.available_permits()
    }

    fn share(&self, name: &str) -> Arc<Semaphore> {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = members.get(name) {
            return share.clone();
        }
        if members.len() >= MEMBERS {
            // What is in use is held by its slots, too.
            members.retain(|_, share| Arc::strong_count(share) > 1);
        }
        let share = Arc::new(Semaphore::new(SLOTS / 2));
        members.insert(name.to_owned(), share.clone());
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_has_half_of_the_queue_at_most() {
        let queue = Queue::default();
        let mut greedy: Vec<Slot<'_>> = std::iter::from_fn(|| queue.enter(Some("greedy"))).take(SLOTS).collect();
        assert_eq!((greedy.len(), queue.length()), (SLOTS / 2, SLOTS / 2));
        let modest = queue.enter(Some("modest")).expect("there is room for others");
        greedy.pop();
        greedy.push(queue.enter(Some("greedy")).expect("what is done makes room"));
        assert!(queue.enter(Some("greedy")).is_none());
        drop((greedy, modest));
        assert_eq!(queue.length(), 0);
    }

    #[test]
    fn who_has_no_name_may_have_all_of_it_and_names_are_forgotten() {
        let queue = Queue::default();
        let all: Vec<Slot<'_>> = std::iter::from_fn(|| queue.enter(None)).take(SLOTS + 1).collect();
        assert_eq!(all.len(), SLOTS);
        assert!(queue.enter(Some("late")).is_none());
        drop(all);
        let kept = queue.enter(Some("kept"));
        for number in 0..3 * MEMBERS {
            assert!(queue.enter(Some(&number.to_string())).is_some());
        }
        let members = queue.members.lock().unwrap();
        assert!(kept.is_some() && members.len() <= MEMBERS && members.contains_key("kept"));
    }
}

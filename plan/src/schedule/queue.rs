//! The queue of work: objects go in as they are found, tasks come out as workers ask for them.

use std::collections::{BinaryHeap, VecDeque};

/// Which worker gets which object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// A worker that asks gets the next one, the largest first where sizes are known (DBWA).
    #[default]
    Demand,
    /// Objects are dealt out to the workers in turn, whatever their size and whichever worker is
    /// idle (RRWA).
    RoundRobin,
}

impl Policy {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Demand => "demand",
            Self::RoundRobin => "round-robin",
        }
    }
}

/// How much one task has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// An object of as many bytes, or more, is a task by itself; tasks of several objects have no
    /// more together.
    pub bytes: u64,
    /// Objects of a task.
    pub objects: usize,
}

/// An object by itself: larger ones come first, of equal ones the one that was found first.
struct Large<T> {
    bytes: u64,
    number: u64,
    object: T,
}

impl<T> Large<T> {
    fn rank(&self) -> (u64, std::cmp::Reverse<u64>) {
        (self.bytes, std::cmp::Reverse(self.number))
    }
}

impl<T> PartialEq for Large<T> {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl<T> Eq for Large<T> {}

impl<T> PartialOrd for Large<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Large<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank().cmp(&other.rank())
    }
}

/// Objects that wait for a worker.
pub struct Queue<T> {
    policy: Policy,
    limits: QueueLimits,
    large: BinaryHeap<Large<T>>,
    /// Of each worker that objects are dealt out to; one for all under demand.
    lanes: Vec<VecDeque<(T, u64)>>,
    turn: usize,
    number: u64,
    objects: usize,
}

impl<T> Queue<T> {
    /// An empty queue for `workers` workers, at least one.
    pub fn new(policy: Policy, limits: QueueLimits, workers: usize) -> Self {
        let lanes = if policy == Policy::Demand { 1 } else { workers.max(1) };
        Self {
            policy,
            limits,
            large: BinaryHeap::new(),
            lanes: std::iter::repeat_with(VecDeque::new).take(lanes).collect(),
            turn: 0,
            number: 0,
            objects: 0,
        }
    }

    /// Adds an object of `bytes` bytes.
    pub fn push(&mut self, object: T, bytes: u64) {
        self.objects += 1;
        self.number += 1;
        if self.policy == Policy::Demand && bytes >= self.limits.bytes {
            self.large.push(Large { bytes, number: self.number, object });
            return;
        }
        self.lanes[self.turn].push_back((object, bytes));
        self.turn = (self.turn + 1) % self.lanes.len();
    }

    /// The next task for a worker, if there is one for it: never none while there is an object that
    /// it may have.
    pub fn take(&mut self, worker: usize) -> Option<Vec<T>> {
        if let Some(Large { object, .. }) = self.large.pop() {
            self.objects -= 1;
            return Some(vec![object]);
        }
        let lanes = self.lanes.len();
        let lane = &mut self.lanes[worker % lanes];
        let (mut task, mut sum) = (Vec::new(), 0u64);
        while let Some((_, bytes)) = lane.front() {
            let small = *bytes < self.limits.bytes && sum < self.limits.bytes;
            let fits = sum.saturating_add(*bytes) <= self.limits.bytes && task.len() < self.limits.objects;
            let fits = task.is_empty() || small && fits;
            if !fits {
                break;
            }
            let Some((object, bytes)) = lane.pop_front() else { break };
            sum = sum.saturating_add(bytes);
            task.push(object);
        }
        self.objects -= task.len();
        (!task.is_empty()).then_some(task)
    }

    /// Objects that wait.
    pub fn len(&self) -> usize {
        self.objects
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.objects == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: QueueLimits = QueueLimits { bytes: 100, objects: 4 };

    #[test]
    fn demand_gives_the_largest_first_and_small_ones_together() {
        let mut queue = Queue::new(Policy::Demand, LIMITS, 3);
        for (n, bytes) in [10, 500, 20, 100, 500, 30, 60, 1, 1].into_iter().enumerate() {
            queue.push(n, bytes);
        }
        let tasks: Vec<Vec<usize>> = std::iter::from_fn(|| queue.take(2)).collect();
        assert_eq!(tasks, [vec![1], vec![4], vec![3], vec![0, 2, 5], vec![6, 7, 8]]);
        assert!(queue.is_empty());
    }

    #[test]
    fn round_robin_deals_out_whatever_the_size() {
        let mut queue = Queue::new(Policy::RoundRobin, LIMITS, 2);
        for (n, bytes) in [500, 1, 90, 2, 20, 3].into_iter().enumerate() {
            queue.push(n, bytes);
        }
        assert_eq!(queue.take(0), Some(vec![0]));
        assert_eq!(queue.take(1), Some(vec![1, 3, 5]));
        assert_eq!(queue.take(1), None, "what others have is not its own");
        assert_eq!((queue.take(0), queue.take(0)), (Some(vec![2]), Some(vec![4])));
    }

    proptest! {
        /// Whatever comes in goes out once, in tasks within the limits, and each under its policy.
        #[test]
        fn nothing_is_lost_or_done_twice(
            sizes in prop::collection::vec(0u64..300, 0..80),
            asks in prop::collection::vec(0usize..5, 0..200),
            demand: bool,
        ) {
            let policy = if demand { Policy::Demand } else { Policy::RoundRobin };
            let mut queue = Queue::new(policy, LIMITS, 5);
            let (mut given, mut coming) = (Vec::new(), sizes.iter().copied().enumerate());
            for worker in asks.into_iter().chain((0..5).cycle().take(500)) {
                if let Some((n, bytes)) = coming.next() {
                    queue.push((n, bytes), bytes);
                }
                let before = queue.len();
                let Some(task) = queue.take(worker) else {
                    prop_assert!(policy == Policy::RoundRobin || before == 0);
                    continue;
                };
                let sum: u64 = task.iter().map(|(_, bytes)| bytes).sum();
                let together = task.len() <= LIMITS.objects && sum <= LIMITS.bytes;
                prop_assert!(task.len() == 1 || together && task.iter().all(|(_, bytes)| *bytes < LIMITS.bytes));
                prop_assert!(policy == Policy::Demand || task.iter().all(|(n, _)| n % 5 == worker));
                given.extend(task.into_iter().map(|(n, _)| n));
            }
            prop_assert_eq!(queue.len(), 0);
            given.sort_unstable();
            prop_assert_eq!(given, (0..sizes.len()).collect::<Vec<_>>());
        }
    }
}

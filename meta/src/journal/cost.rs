//! What the journal took for the last batch, for those who waited for it.

use std::sync::Mutex;
use std::time::Instant;
use volume::{Carried, lock};

/// The cost of the last durable batch, and how many there were.
#[derive(Debug, Default)]
pub(super) struct LastCost(Mutex<(u64, Carried)>);

impl LastCost {
    /// A batch has become durable. Tell those who wait afterwards.
    pub fn set(&self, cost: Carried) {
        let mut last = lock(&self.0);
        *last = (last.0.wrapping_add(1), cost);
    }

    fn get(&self) -> (u64, Carried) {
        *lock(&self.0)
    }

    /// Runs a wait for the journal. If a batch has become durable meanwhile, the calling thread
    /// carries its cost from then on, as far as it fits into the wait.
    pub fn carried<T>(&self, wait: impl FnOnce() -> T) -> T {
        let (begun, (before, _)) = (Instant::now(), self.get());
        let done = wait();
        let (now, cost) = self.get();
        if now != before {
            cost.within(begun.elapsed()).carry();
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn only_those_carry_it_who_waited() {
        let last = LastCost::default();
        let cost = Carried { distribution: Duration::from_nanos(1), slave: Duration::from_nanos(2) };
        last.set(cost);
        Carried::take();
        last.carried(|| ());
        assert_eq!(Carried::take(), Carried::default());
        last.carried(|| {
            std::thread::sleep(Duration::from_millis(1));
            last.set(cost);
        });
        assert_eq!(Carried::take(), cost);
    }
}

//! What a policy gives when the time of each object is known: for comparing them on more workers
//! than a machine has.

use super::{Policy, Queue, QueueLimits};

/// An object whose time is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Object {
    /// Its size.
    pub bytes: u64,
    /// How long a worker takes for it.
    pub seconds: f64,
}

/// When each worker is done with its last object, if all objects are there at the beginning and
/// none is done together with others.
pub fn finishes(policy: Policy, objects: &[Object], workers: usize) -> Vec<f64> {
    // Of no bytes, so that each counts as large: the demand policy knows sizes, and that is what it
    // is judged for.
    let mut queue = Queue::new(policy, QueueLimits { bytes: 0, objects: 1 }, workers);
    objects.iter().for_each(|object| queue.push(object.seconds, object.bytes));
    let mut done = vec![0.0f64; workers.max(1)];
    let mut idle = vec![false; done.len()];
    // The one that is done first asks first.
    while let Some(next) = (0..done.len()).filter(|&worker| !idle[worker]).min_by(|&a, &b| done[a].total_cmp(&done[b]))
    {
        match queue.take(next) {
            Some(task) => done[next] += task.iter().sum::<f64>(),
            None => idle[next] = true,
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 600 objects of 1 to about 1000 units, most small, as the study's job had (its sizes are not
    /// published).
    fn mixed() -> Vec<Object> {
        let mut state = 88_172_645_463_325_252u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let size = |uniform: f64| 1000f64.powf(uniform);
        (0..600).map(|_| size(next())).map(|size| Object { bytes: (size * 1e6) as u64, seconds: size / 50.0 }).collect()
    }

    fn utilization(done: &[f64]) -> f64 {
        done.iter().sum::<f64>() / done.len() as f64 / done.iter().copied().fold(0.0, f64::max)
    }

    #[test]
    fn demand_uses_the_workers_and_round_robin_does_not() {
        let objects = mixed();
        let all: f64 = objects.iter().map(|object| object.seconds).sum();
        let demand = finishes(Policy::Demand, &objects, 32);
        let round_robin = finishes(Policy::RoundRobin, &objects, 32);
        for done in [&demand, &round_robin] {
            assert_eq!(done.len(), 32);
            assert!((done.iter().sum::<f64>() - all).abs() < 1e-6, "nobody waits while there is work for him");
        }
        assert!(utilization(&demand) >= 0.98, "{}", utilization(&demand));
        assert!(utilization(&round_robin) < 0.8, "{}", utilization(&round_robin));
        let last = |done: &[f64]| done.iter().copied().fold(0.0, f64::max);
        let first = demand.iter().copied().fold(f64::INFINITY, f64::min);
        assert!(last(&demand) - first <= 0.03 * last(&demand), "{demand:?}");
    }

    #[test]
    fn one_object_and_no_objects() {
        assert_eq!(finishes(Policy::Demand, &[], 3), [0.0; 3]);
        let one = [Object { bytes: 5, seconds: 2.0 }];
        assert_eq!(finishes(Policy::RoundRobin, &one, 2), [2.0, 0.0]);
        assert_eq!(finishes(Policy::Demand, &one, 0), [2.0]);
    }
}

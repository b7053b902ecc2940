//! Choosing between maps that give the same bytes: a model drops the hopeless, a measurement of a
//! millisecond or so on this processor decides between the rest. The choice never changes a byte.

use crate::transform::Transform;
use std::time::{Duration, Instant};

/// Candidates costlier than this many times the cheapest are not measured.
const MAX_COST_RATIO: usize = 4;

/// Bytes of every block in a trial: long enough to be typical, short enough to stay in cache.
const TRIAL_BYTES: usize = 4096;

/// Rounds of trials: at least, and as many more as this time allows. The median time of each
/// candidate counts.
const TRIAL_ROUNDS: std::ops::Range<usize> = 5..40;
const TRIAL_TIME: Duration = Duration::from_millis(1);

/// A transform and its modelled cost in multiplications.
pub(crate) struct Candidate {
    pub transform: Transform,
    pub cost: usize,
}

impl Candidate {
    pub fn new(transform: Transform, cost: usize) -> Self {
        Self { transform, cost }
    }
}

pub(crate) fn fastest(mut candidates: Vec<Candidate>) -> Transform {
    let least = candidates.iter().map(|c| c.cost).min().unwrap_or(0);
    candidates.retain(|c| c.cost <= MAX_COST_RATIO * least);
    if candidates.len() > 1 {
        let times = measure(&candidates);
        let best = (0..times.len()).min_by_key(|&i| times[i]).unwrap_or(0);
        candidates.swap(0, best);
    }
    candidates.swap_remove(0).transform
}

fn measure(candidates: &[Candidate]) -> Vec<Duration> {
    let (inputs, outputs) = (candidates[0].transform.inputs(), candidates[0].transform.outputs());
    // Blocks follow each other with a gap of one line, so that they do not all fall into the same
    // cache set.
    let stride = TRIAL_BYTES + 64;
    let source = vec![0x5Au8; inputs * stride];
    let mut target = vec![0u8; outputs * stride];
    let sources: Vec<&[u8]> = source.chunks_exact(stride).map(|b| &b[..TRIAL_BYTES]).collect();
    let mut targets: Vec<&mut [u8]> = target.chunks_exact_mut(stride).map(|b| &mut b[..TRIAL_BYTES]).collect();
    let mut times = vec![Vec::new(); candidates.len()];
    let begun = Instant::now();
    for round in 0..TRIAL_ROUNDS.end {
        if round >= TRIAL_ROUNDS.start && begun.elapsed() > TRIAL_TIME {
            break;
        }
        for (candidate, times) in candidates.iter().zip(&mut times) {
            let start = Instant::now();
            candidate.transform.run(&sources, &mut targets);
            times.push(start.elapsed());
        }
    }
    let median = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    times.into_iter().map(median).collect()
}

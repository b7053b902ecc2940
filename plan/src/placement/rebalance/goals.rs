//! How full each target should be.

/// A target that takes chunks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holder {
    /// Its domain, as a number.
    pub domain: usize,
    /// Its capacity, above 0.
    pub total: f64,
    /// Bytes that are used and do not move.
    pub fixed: f64,
}

/// Bisections of a ratio: more change no byte.
const STEPS: usize = 64;

/// The bytes that each holder should have used when `moving` bytes are spread over them: the same
/// ratio of its capacity everywhere, but no more than `most_each` of the moving bytes on one, and
/// no more than `most_in_domain` of them in a domain. Where that leaves no space for all, all get
/// as much as they may.
pub(super) fn goals(holders: &[Holder], moving: f64, most_each: f64, most_in_domain: f64) -> Vec<f64> {
    let most_each = most_each.min(moving);
    let share = |holder: &Holder, ratio: f64| (ratio * holder.total - holder.fixed).clamp(0.0, most_each);
    let domains = holders.iter().map(|holder| holder.domain + 1).max().unwrap_or(0);
    let sums = |ratio: f64| {
        let mut sums = vec![0.0; domains];
        holders.iter().for_each(|holder| sums[holder.domain] += share(holder, ratio));
        sums
    };
    // Above this ratio nobody gets more.
    let highest = holders.iter().map(|holder| (holder.fixed + most_each) / holder.total).fold(0.0, f64::max);
    let bisect = |enough: &dyn Fn(f64) -> bool| {
        let (mut low, mut high) = (0.0, highest);
        for _ in 0..STEPS {
            let middle = f64::midpoint(low, high);
            if enough(middle) { high = middle } else { low = middle }
        }
        high
    };
    let all = |ratio: f64| sums(ratio).into_iter().map(|sum| sum.min(most_in_domain)).sum::<f64>();
    let ratio = bisect(&|ratio| all(ratio) >= moving);
    // The ratio of a domain that may not have what the others have.
    let of_domain: Vec<f64> = sums(ratio)
        .into_iter()
        .enumerate()
        .map(|(domain, sum)| {
            if sum <= most_in_domain {
                return ratio;
            }
            let members: Vec<&Holder> = holders.iter().filter(|holder| holder.domain == domain).collect();
            bisect(&|ratio| members.iter().map(|holder| share(holder, ratio)).sum::<f64>() >= most_in_domain)
        })
        .collect();
    holders.iter().map(|holder| holder.fixed + share(holder, of_domain[holder.domain])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goals_of(holders: &[(usize, f64, f64)], moving: f64, each: f64, domain: f64) -> Vec<f64> {
        let holders: Vec<Holder> =
            holders.iter().map(|&(domain, total, fixed)| Holder { domain, total, fixed }).collect();
        goals(&holders, moving, each, domain).into_iter().map(|goal| (goal * 1000.0).round() / 1000.0).collect()
    }

    #[test]
    fn targets_are_filled_by_ratio_as_far_as_they_may() {
        let free = f64::MAX;
        assert_eq!(goals_of(&[(0, 100.0, 0.0), (1, 300.0, 0.0)], 80.0, free, free), [20.0, 60.0]);
        // What others have there counts, and does not move.
        assert_eq!(goals_of(&[(0, 100.0, 50.0), (1, 100.0, 0.0)], 30.0, 1e9, free), [50.0, 30.0]);
        assert_eq!(goals_of(&[(0, 100.0, 50.0), (1, 100.0, 0.0)], 60.0, 1e9, free), [55.0, 55.0]);
        // One chunk of each set: a large target gets no more.
        assert_eq!(
            goals_of(&[(0, 900.0, 0.0), (1, 100.0, 0.0), (2, 100.0, 0.0)], 90.0, 50.0, free),
            [50.0, 20.0, 20.0]
        );
        // A domain with three quarters of the space may have half of the data.
        let racks = [(0, 100.0, 0.0), (0, 200.0, 0.0), (1, 50.0, 0.0), (2, 50.0, 0.0)];
        assert_eq!(goals_of(&racks, 60.0, 1e9, 30.0), [10.0, 20.0, 15.0, 15.0]);
        // Too much for all: as much as they may.
        assert_eq!(goals_of(&[(0, 10.0, 0.0), (1, 20.0, 0.0)], 90.0, 20.0, 15.0), [15.0, 15.0]);
        assert_eq!(goals_of(&[], 90.0, 20.0, 15.0), [0.0; 0]);
    }
}

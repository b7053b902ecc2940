//! How many sets lacked how many chunks, and for how long.

/// Bins of the time of a run.
pub const BINS: usize = 120;

/// Sets by the chunks that they have lost, over time.
#[derive(Clone, Debug)]
pub struct Exposure {
    /// Sets with so many chunks lost now; at 0 none is counted.
    now: Vec<u64>,
    /// Milliseconds of sets with so many lost.
    pub time: Vec<u128>,
    /// How often a set with so many lost became whole.
    pub repaired: Vec<u64>,
    /// Of each bin, the most sets with so many lost at once.
    pub most: Vec<[u64; BINS]>,
    last: u64,
    end: u64,
}

impl Exposure {
    /// Of a run of so many milliseconds, with sets that survive the loss of `spare`.
    pub fn new(spare: usize, end: u64) -> Self {
        let levels = spare + 2;
        Self {
            now: vec![0; levels],
            time: vec![0; levels],
            repaired: vec![0; levels],
            most: vec![[0; BINS]; levels],
            last: 0,
            end: end.max(1),
        }
    }

    fn bin(&self, at: u64) -> usize {
        ((u128::from(at) * BINS as u128 / u128::from(self.end)) as usize).min(BINS - 1)
    }

    /// Time has passed.
    pub fn advance(&mut self, to: u64) {
        let passed = u128::from(to.saturating_sub(self.last));
        if passed == 0 {
            return;
        }
        let (from, until) = (self.bin(self.last), self.bin(to));
        for level in (1..self.now.len()).filter(|&level| self.now[level] > 0) {
            self.time[level] += passed * u128::from(self.now[level]);
            for bin in from..=until {
                self.most[level][bin] = self.most[level][bin].max(self.now[level]);
            }
        }
        self.last = to;
    }

    /// A set has lost so many chunks, and had lost so many before. More than can be lost count as
    /// one too many.
    pub fn change(&mut self, before: u32, now: u32) {
        let top = self.now.len() - 1;
        let [before, now] = [before, now].map(|lost| (lost as usize).min(top));
        if before > 0 {
            self.now[before] -= 1;
        }
        if now > 0 {
            self.now[now] += 1;
        }
        if now == 0 {
            self.repaired[before] += 1;
        }
    }

    /// A lost set is not counted any more.
    pub fn forget(&mut self, lost: u32) {
        let top = self.now.len() - 1;
        self.now[(lost as usize).min(top)] -= 1;
    }

    /// Adds what another run saw.
    pub fn add(&mut self, other: &Self) {
        for level in 0..self.now.len() {
            self.time[level] += other.time[level];
            self.repaired[level] += other.repaired[level];
            for (most, theirs) in self.most[level].iter_mut().zip(&other.most[level]) {
                *most = (*most).max(*theirs);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_added_up_by_level() {
        let mut seen = Exposure::new(2, 1200);
        seen.advance(100);
        seen.change(0, 1);
        seen.change(0, 1);
        seen.advance(200);
        seen.change(1, 2);
        seen.advance(210);
        seen.change(2, 0);
        seen.advance(1200);
        assert_eq!(seen.time, [0, 200 + 10 + 990, 10, 0]);
        assert_eq!((seen.repaired[1], seen.repaired[2]), (0, 1));
        assert_eq!((seen.most[1][9], seen.most[1][10], seen.most[1][119], seen.most[2][20]), (0, 2, 1, 1));
        // So many at once that the set is lost.
        seen.change(1, 9);
        seen.forget(9);
        seen.advance(1300);
        assert_eq!(seen.time[3], 0);
    }
}

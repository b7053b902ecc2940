//! Records of bounded size: busy spans, sums over time, sizes, lines.
//!
//! Each of them drops detail, but never a total: its sums are exact.

use serde::{Deserialize, Serialize};

/// The most busy spans that a worker keeps.
pub const MAX_SPANS: usize = 240;
/// The most intervals of a series.
pub const MAX_INTERVALS: usize = 240;
/// The most lines of a list.
pub const MAX_LINES: usize = 100;

/// A time in which a worker was busy for a part of it: neighbours are merged, so that it may
/// contain pauses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// Seconds since the job began.
    pub start: f64,
    /// Seconds since the job began.
    pub end: f64,
    /// Seconds of work in it.
    pub busy: f64,
}

/// When a worker was busy. All times are seconds since the job began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// The start of its first task.
    pub first_start: Option<f64>,
    /// The end of its first task.
    pub first_finish: Option<f64>,
    /// The end of its last task so far.
    pub last_finish: Option<f64>,
    /// Seconds of work.
    pub busy_seconds: f64,
    /// The busy spans in order: at most [`MAX_SPANS`] at the end of a job, and twice that while it
    /// runs.
    pub spans: Vec<Span>,
}

impl Timeline {
    /// Adds a task. It must not start before the last one ended.
    pub fn add(&mut self, start: f64, end: f64) {
        let end = end.max(start);
        self.first_start.get_or_insert(start);
        self.first_finish.get_or_insert(end);
        self.last_finish = Some(self.last_finish.map_or(end, |last| last.max(end)));
        self.busy_seconds += end - start;
        self.spans.push(Span { start, end, busy: end - start });
        if self.spans.len() >= 2 * MAX_SPANS {
            self.merge(MAX_SPANS);
        }
    }

    /// Merges spans over the shortest pauses until at most `most` are left.
    pub fn merge(&mut self, most: usize) {
        let surplus = self.spans.len().saturating_sub(most.max(1));
        if surplus == 0 {
            return;
        }
        let pause = |after: &usize| self.spans[after + 1].start - self.spans[*after].end;
        let mut pauses: Vec<usize> = (0..self.spans.len() - 1).collect();
        pauses.sort_by(|a, b| pause(a).total_cmp(&pause(b)));
        let mut closed = vec![false; self.spans.len()];
        pauses[..surplus].iter().for_each(|&after| closed[after] = true);
        let mut merged: Vec<Span> = Vec::with_capacity(most);
        for (at, span) in self.spans.iter().enumerate() {
            match merged.last_mut() {
                Some(last) if closed[at - 1] => {
                    last.end = last.end.max(span.end);
                    last.busy += span.busy;
                }
                _ => merged.push(*span),
            }
        }
        self.spans = merged;
    }
}

/// Amounts over time, in intervals of equal length. The length doubles when there would be too
/// many.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The length of an interval, in seconds.
    pub interval_seconds: f64,
    /// The amount in each interval, from the beginning of the job on.
    pub amounts: Vec<u64>,
}

impl Default for Series {
    fn default() -> Self {
        Self { interval_seconds: 0.25, amounts: vec![] }
    }
}

impl Series {
    /// Adds an amount at a time in seconds after the beginning.
    pub fn add(&mut self, at: f64, amount: u64) {
        if !at.is_finite() {
            return;
        }
        while at / self.interval_seconds >= MAX_INTERVALS as f64 {
            self.interval_seconds *= 2.0;
            self.amounts =
                self.amounts.chunks(2).map(|two| two.iter().fold(0, |a: u64, b| a.saturating_add(*b))).collect();
        }
        let interval = (at.max(0.0) / self.interval_seconds) as usize;
        if self.amounts.len() <= interval {
            self.amounts.resize(interval + 1, 0);
        }
        self.amounts[interval] = self.amounts[interval].saturating_add(amount);
    }

    /// The sum of all amounts.
    pub fn total(&self) -> u64 {
        self.amounts.iter().fold(0, |all, amount| all.saturating_add(*amount))
    }
}

/// How many files have which size: one class for empty files, then one for each power of two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// Files and bytes by class; class 0 is empty files, class n those from 2^(n-1) bytes to one
    /// less than 2^n.
    pub classes: Vec<SizeClass>,
}

/// Files of similar size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeClass {
    /// How many there are.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Sizes {
    /// Adds a file.
    pub fn add(&mut self, bytes: u64) {
        let class = (u64::BITS - bytes.leading_zeros()) as usize;
        if self.classes.len() <= class {
            self.classes.resize(class + 1, SizeClass::default());
        }
        let class = &mut self.classes[class];
        class.files += 1;
        class.bytes = class.bytes.saturating_add(bytes);
    }

    /// The first size above the class.
    pub fn below(class: usize) -> u128 {
        1 << class.min(64)
    }

    /// Adds the files of another histogram.
    pub fn merge(&mut self, other: &Self) {
        if self.classes.len() < other.classes.len() {
            self.classes.resize(other.classes.len(), SizeClass::default());
        }
        for (own, theirs) in self.classes.iter_mut().zip(&other.classes) {
            own.files += theirs.files;
            own.bytes = own.bytes.saturating_add(theirs.bytes);
        }
    }
}

/// Lines, of which only the first are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// The first lines.
    pub lines: Vec<String>,
    /// How many more lines there were.
    pub unlisted: u64,
}

impl Listed {
    /// Adds a line.
    pub fn add(&mut self, line: impl Into<String>) {
        if self.lines.len() < MAX_LINES {
            self.lines.push(line.into());
        } else {
            self.unlisted += 1;
        }
    }

    /// How many lines there were, kept or not.
    pub fn count(&self) -> u64 {
        self.lines.len() as u64 + self.unlisted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeline_forgets_pauses_and_no_work() {
        let mut timeline = Timeline::default();
        for task in 0..100_000 {
            // Every hundredth pause is long.
            let start = f64::from(task) * 0.5 + f64::from(task / 1000) * 30.0;
            timeline.add(start, start + 0.25);
            assert!(timeline.spans.len() <= 2 * MAX_SPANS);
        }
        timeline.merge(MAX_SPANS);
        assert!(timeline.spans.len() <= MAX_SPANS && timeline.spans.len() >= 100, "{}", timeline.spans.len());
        let busy: f64 = timeline.spans.iter().map(|span| span.busy).sum();
        assert!((busy - 25_000.0).abs() < 1e-6 && (timeline.busy_seconds - 25_000.0).abs() < 1e-6);
        assert!(timeline.spans.windows(2).all(|two| two[0].end <= two[1].start), "in order, apart");
        assert!(timeline.spans.iter().all(|span| span.end - span.start < 501.0), "long pauses stay");
        assert_eq!((timeline.first_start, timeline.first_finish), (Some(0.0), Some(0.25)));
        assert_eq!(timeline.last_finish, Some(timeline.spans.last().unwrap().end));
    }

    #[test]
    fn a_series_stays_short_and_exact() {
        let mut series = Series::default();
        for at in 0..36_000 {
            series.add(f64::from(at), 10);
            assert!(series.amounts.len() <= MAX_INTERVALS);
        }
        series.add(5.0, 7);
        series.add(-1.0, 1);
        series.add(f64::NAN, 1);
        assert_eq!(series.total(), 360_008);
        assert_eq!(series.interval_seconds, 256.0);
        assert_eq!(series.amounts[0], 2568);
    }

    #[test]
    fn sizes_have_classes_of_powers_of_two() {
        let mut sizes = Sizes::default();
        [0, 1, 1023, 1024, 1025, u64::MAX, u64::MAX].into_iter().for_each(|bytes| sizes.add(bytes));
        let files = |class: usize| sizes.classes[class].files;
        assert_eq!([files(0), files(1), files(10), files(11), files(64)], [1, 1, 1, 2, 2]);
        assert_eq!(sizes.classes[64].bytes, u64::MAX);
        assert_eq!((Sizes::below(0), Sizes::below(10), Sizes::below(64)), (1, 1024, 1 << 64));
        let mut more = Sizes::default();
        more.add(5);
        more.merge(&sizes);
        assert_eq!(more.classes.iter().map(|class| class.files).sum::<u64>(), 8);
    }

    #[test]
    fn lists_count_what_they_do_not_keep() {
        let mut list = Listed::default();
        (0..250).for_each(|n| list.add(format!("line {n}")));
        assert_eq!((list.lines.len(), list.unlisted, list.count()), (MAX_LINES, 150, 250));
    }
}

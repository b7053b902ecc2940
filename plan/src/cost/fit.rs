//! A straight line through measured times, by least squares, with what is known before.

use super::Line;
use serde::{Deserialize, Serialize};

/// A line through measurements, and how far they are from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// The line.
    pub line: Line,
    /// Half the width of the 95 % confidence interval of `line.fixed`, in seconds. None with fewer
    /// than three points: nothing is left to say how good the line is.
    pub fixed_within: Option<f64>,
    /// The same of `line.per_byte`, in seconds a byte.
    pub per_byte_within: Option<f64>,
    /// The root of the mean square of the relative residuals: 0.1 is 10 %. Points of no time do
    /// not count.
    pub residual: f64,
    /// How many points there were.
    pub points: usize,
}

/// A point of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// What the line is over.
    pub bytes: f64,
    /// How often what is fixed is in it.
    pub times: f64,
    /// The time, in seconds, also where it is part of a longer one.
    pub seconds: f64,
    /// The whole that was measured. The error is a part of that.
    pub whole: f64,
    /// How much of the time the processors waited, see [`super::serial::waiting`].
    pub waiting: f64,
}

impl Seen {
    /// A time that is no part of another one, without a wait.
    pub fn of(bytes: f64, seconds: f64) -> Self {
        Self { bytes, times: 1.0, seconds, whole: seconds, waiting: 0.0 }
    }
}

/// A value that is expected before anything is measured, and about how far from it the true one
/// is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// The value.
    pub value: f64,
    /// A standard deviation.
    pub within: f64,
}

/// How far measured times are from their line, as a part of them: what an expectation is weighed
/// against. Rounds of the write-cost bench had standard deviations of 0.6 to 23 %.
const RELATIVE_NOISE: f64 = 0.08;
/// How much longer a step takes after a wait, as a part of its usual time: 0 is expected, with this
/// standard deviation.
const COLD_WITHIN: f64 = 0.3;

/// 97.5 % quantiles of Student's distribution for 1 to 30 degrees of freedom.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// The quantile for any number of degrees of freedom but 0.
fn student(freedom: usize) -> f64 {
    STUDENT.get(freedom.wrapping_sub(1)).copied().unwrap_or(1.96)
}

/// The line for which the sum of the squared relative errors is smallest: a microsecond more
/// matters where a record takes ten, and not where it takes a thousand. With points of one size
/// only, a time that does not depend on the size; with points that waited equally long, one that
/// does not depend on that. No points give zero.
///
/// An expectation counts as a further point. It matters where the points say little: few sizes, or
/// small parts of long times.
pub fn line(points: &[Seen], per_byte: Option<Expected>) -> Fit {
    let count = points.len();
    let greatest = points.iter().map(|seen| seen.whole.abs()).fold(0.0, f64::max);
    if greatest == 0.0 {
        return Fit { points: count, ..Fit::default() };
    }
    // A point of nearly no time must not outweigh all others.
    let noise = |seen: &Seen| RELATIVE_NOISE * seen.whole.abs().max(greatest / 1000.0);
    let scale = points.iter().map(|seen| seen.bytes).fold(f64::MIN_POSITIVE, f64::max);
    let differ = |of: fn(&Seen) -> f64| {
        let (least, most) =
            points.iter().map(of).fold((f64::MAX, f64::MIN), |(least, most), x| (least.min(x), most.max(x)));
        most - least > 1e-6 * most.abs()
    };
    let used = [true, differ(|seen| seen.bytes), differ(|seen| seen.waiting)];
    let mut equations = Equations::default();
    for seen in points {
        let row = [seen.times, seen.bytes / scale, seen.waiting];
        equations.add(row, used, seen.seconds, noise(seen));
    }
    if let Some(expected) = per_byte {
        equations.add([0.0, 1.0, 0.0], used, expected.value * scale, expected.within * scale);
    }
    let mut usual: Vec<f64> = points.iter().map(|seen| seen.seconds).collect();
    usual.sort_by(f64::total_cmp);
    let usual = usual[count / 2].max(greatest / 1000.0);
    equations.add([0.0, 0.0, 1.0], used, 0.0, COLD_WITHIN * usual);
    let (inverse, [fixed, slope, cold]) = equations.solve(used);
    let line = Line { fixed, per_byte: slope / scale, cold };

    let missed =
        |seen: &Seen| line.fixed * seen.times + line.per_byte * seen.bytes + line.cold * seen.waiting - seen.seconds;
    let squares: f64 = points.iter().map(|seen| (missed(seen) / noise(seen)).powi(2)).sum();
    let freedom = count.saturating_sub(used.iter().filter(|used| **used).count());
    let within = |variance: f64| (freedom > 0).then(|| student(freedom) * (squares / freedom as f64 * variance).sqrt());
    let counted = points.iter().filter(|seen| seen.whole != 0.0);
    let relative: Vec<f64> = counted.map(|seen| (missed(seen) / seen.whole).powi(2)).collect();
    Fit {
        line,
        fixed_within: within(inverse[0][0]),
        per_byte_within: if used[1] { within(inverse[1][1] / scale / scale) } else { None },
        residual: (relative.iter().sum::<f64>() / relative.len().max(1) as f64).sqrt(),
        points: count,
    }
}

/// The normal equations of three unknowns.
#[derive(Default)]
struct Equations {
    matrix: [[f64; 3]; 3],
    right: [f64; 3],
}

impl Equations {
    /// One more observation: row times unknowns is `value`, about as exactly as `noise` says.
    fn add(&mut self, row: [f64; 3], used: [bool; 3], value: f64, noise: f64) {
        let row: [f64; 3] = std::array::from_fn(|at| if used[at] { row[at] / noise } else { 0.0 });
        for (i, of_row) in row.into_iter().enumerate() {
            for (j, other) in row.into_iter().enumerate() {
                self.matrix[i][j] += of_row * other;
            }
            self.right[i] += of_row * value / noise;
        }
    }

    /// The inverse and the unknowns, by Gauss and Jordan. Unknowns that are not used are 0.
    fn solve(self, used: [bool; 3]) -> ([[f64; 3]; 3], [f64; 3]) {
        // Each row of the matrix, and beside it that of the inverse.
        let mut rows: [[f64; 6]; 3] = std::array::from_fn(|i| {
            let of_identity = |j: usize| f64::from(u8::from(i == j && used[i]));
            std::array::from_fn(|j| if j < 3 { self.matrix[i][j] } else { of_identity(j - 3) })
        });
        for at in (0..3).filter(|at| used[*at]) {
            // The matrix is symmetric and positive, so no row needs another one's place.
            let pivot = rows[at][at];
            let row = rows[at].map(|value| value / pivot);
            for other in &mut rows {
                let times = other[at];
                other.iter_mut().zip(row).for_each(|(value, of_row)| *value -= times * of_row);
            }
            rows[at] = row;
        }
        let inverse = rows.map(|[.., a, b, c]| [a, b, c]);
        let unknown = |row: [f64; 3]| row.into_iter().zip(self.right).map(|(a, b)| a * b).sum();
        (inverse, inverse.map(unknown))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-9), "{a} is not {b}");
    }

    fn of(points: &[(f64, f64)]) -> Fit {
        line(&points.iter().map(|&(x, y)| Seen::of(x, y)).collect::<Vec<_>>(), None)
    }

    const SIZES: [f64; 7] = [4096.0, 8192.0, 16384.0, 32768.0, 65536.0, 131_072.0, 1_048_576.0];

    #[test]
    fn exact_points_give_their_line() {
        for (fixed, per_byte) in [(1e-4, 2e-9), (0.0, 1e-9), (5e-3, 0.0)] {
            let fit = of(&SIZES.map(|x| (x, fixed + per_byte * x)));
            assert!((fit.line.fixed - fixed).abs() < 1e-12 && (fit.line.per_byte - per_byte).abs() < 1e-15, "{fit:?}");
            assert!(fit.residual < 1e-9 && fit.fixed_within.unwrap() < 1e-9 && fit.points == 7);
        }
    }

    #[test]
    fn few_points() {
        assert_eq!(of(&[]), Fit::default());
        let one = of(&[(10.0, 3.0)]);
        near(one.line.fixed, 3.0);
        assert_eq!((one.line.per_byte, one.fixed_within), (0.0, None));
        let two = of(&[(1.0, 3.0), (2.0, 5.0)]);
        near(two.line.per_byte, 2.0);
        near(two.line.fixed, 1.0);
        assert_eq!((two.fixed_within, two.per_byte_within), (None, None));
        let same = of(&[(8.0, 3.0), (8.0, 3.0), (8.0, 6.0)]);
        assert_eq!((same.line.per_byte, same.per_byte_within), (0.0, None));
        assert!(same.fixed_within.unwrap() > 0.0);
        assert_eq!(of(&[(1.0, 0.0), (2.0, 0.0)]).line, Line::default());
    }

    /// What is left of a long time on the wire is less sure than the same time without a wire.
    #[test]
    fn parts_of_long_times_weigh_less() {
        let seen = |bytes, seconds, whole| Seen { whole, ..Seen::of(bytes, seconds) };
        let points = [
            seen(1.0, 1.0, 1.0),
            seen(2.0, 2.0, 2.0),
            seen(3.0, 3.0, 3.0),
            seen(2.0, 0.1, 100.0),
            seen(3.0, -5.0, 150.0),
        ];
        let fit = line(&points, None);
        assert!((fit.line.per_byte - 1.0).abs() < 0.02 && fit.line.fixed.abs() < 0.02, "{fit:?}");
        // Alone they are the line.
        let fit = line(&points[3..], None);
        assert!((fit.line.at(2.0) - 0.1).abs() < 1e-9, "{fit:?}");
    }

    /// Two sizes that are nearly equal say little of what a byte costs.
    #[test]
    fn an_expectation_counts_where_the_points_say_little() {
        let expected = Expected { value: 1e-9, within: 1e-9 };
        let sure: Vec<Seen> = SIZES.map(|x| Seen::of(x, 1e-4 + 5e-9 * x)).to_vec();
        near(line(&sure, Some(Expected { within: 1.0, ..expected })).line.per_byte, 5e-9);
        assert!((line(&sure, Some(expected)).line.per_byte / 5e-9 - 1.0).abs() < 0.1, "the points count more");
        let unsure = [Seen::of(65_536.0, 1e-3), Seen::of(131_072.0, 1.2e-3)];
        let (without, with) = (line(&unsure, None).line, line(&unsure, Some(expected)).line);
        assert!((without.per_byte - 3.05e-9).abs() < 1e-11 && with.per_byte < 1.5e-9, "{without:?} {with:?}");
        // One size alone has no slope, whatever is expected.
        assert_eq!(line(&unsure[..1], Some(expected)).line.per_byte, 0.0);
    }

    /// A step that takes a third longer after a wait.
    #[test]
    fn what_a_wait_costs_is_not_taken_for_the_bytes() {
        let both = |waiting: f64| {
            SIZES.map(|x| {
                let seconds = 1e-4 + 1e-9 * x + 3e-5 * waiting;
                Seen { waiting, ..Seen::of(x, seconds) }
            })
        };
        let all = [both(0.0), both(0.5), both(1.0)].concat();
        let fit = line(&all, None);
        assert!((fit.line.cold / 3e-5 - 1.0).abs() < 0.1 && (fit.line.fixed / 1e-4 - 1.0).abs() < 0.03, "{fit:?}");
        // Where all waited equally long, it is part of the fixed time.
        let fit = line(&both(0.5), None);
        assert_eq!(fit.line.cold, 0.0);
        assert!((fit.line.fixed - 1.15e-4).abs() < 1e-12, "{fit:?}");
    }

    /// Equal weights by equal times: the textbook's line. x 1, 2, 3; y 10, 10, 10 + a little.
    #[test]
    fn the_interval_is_that_of_the_textbook() {
        let fit = of(&[(1.0, 10.0), (2.0, 10.001), (3.0, 10.0)]);
        assert!(fit.line.per_byte.abs() < 1e-6 && (fit.line.fixed - 10.000_333).abs() < 1e-4);
        // s² = (2·0.000333² + 0.000667²) / 1, the variance of the slope is s² / 2.
        let s = (6.0f64 * 0.001f64.powi(2) / 9.0).sqrt();
        assert!((fit.per_byte_within.unwrap() / (12.706 * s / 2.0f64.sqrt()) - 1.0).abs() < 1e-3, "{fit:?}");
    }

    /// The interval holds the truth about 95 times of 100.
    #[test]
    fn the_interval_holds_the_truth() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut held = 0;
        for _ in 0..400 {
            // The sum of twelve is nearly normal.
            let mut noise = || (0..12).map(|_| rng.f64()).sum::<f64>() - 6.0;
            let fit = of(&SIZES.map(|x| (x, (1e-4 + 2e-9 * x) * (1.0 + 0.01 * noise()))));
            held += usize::from((fit.line.per_byte - 2e-9).abs() <= fit.per_byte_within.unwrap());
        }
        assert!((364..=396).contains(&held), "{held} of 400");
    }

    #[test]
    fn the_quantile_falls_to_that_of_the_normal_distribution() {
        assert_eq!((student(1), student(30), student(31), student(0)), (12.706, 2.042, 1.96, 1.96));
        assert!(STUDENT.is_sorted_by(|a, b| a > b));
    }
}

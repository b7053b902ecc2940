//! A straight line through measured times, by least squares.

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

/// 97.5 % quantiles of Student's distribution for 1 to 30 degrees of freedom.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// The quantile for any number of degrees of freedom but 0.
fn student(freedom: usize) -> f64 {
    STUDENT.get(freedom.wrapping_sub(1)).copied().unwrap_or(1.96)
}

/// The line for which the sum of the squared relative errors is smallest, through points of bytes
/// and seconds: a microsecond more matters where a record takes ten, and not where it takes a
/// thousand. With points of one size only, a time that does not depend on the size. No points give
/// zero.
pub fn line(points: &[(f64, f64)]) -> Fit {
    let points: Vec<(f64, f64, f64)> = points.iter().map(|&(x, y)| (x, y, y)).collect();
    line_of_parts(&points)
}

/// The same for times that are a part of what was measured: points of bytes, seconds, and the
/// seconds that were measured. Errors are relative to those: what is left of 70 ms on the wire is
/// known to a millisecond, and must not be taken for as exact as a millisecond without a wire.
pub fn line_of_parts(points: &[(f64, f64, f64)]) -> Fit {
    let count = points.len();
    let greatest = points.iter().map(|(_, _, whole)| whole.abs()).fold(0.0, f64::max);
    if greatest == 0.0 {
        return Fit { points: count, ..Fit::default() };
    }
    // A point of nearly no time must not outweigh all others.
    let weight = |whole: f64| whole.abs().max(greatest / 1000.0).powi(-2);
    let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|&(x, y, whole)| weight(whole) * of(x, y)).sum::<f64>();
    let all = sum(&|_, _| 1.0);
    let (x_mean, y_mean) = (sum(&|x, _| x) / all, sum(&|_, y| y) / all);
    let spread = sum(&|x, _| (x - x_mean).powi(2));
    let flat = spread <= 1e-12 * all * x_mean.powi(2);
    let per_byte = if flat { 0.0 } else { sum(&|x, y| (x - x_mean) * (y - y_mean)) / spread };
    let line = Line { fixed: y_mean - per_byte * x_mean, per_byte };
    let missed = sum(&|x, y| (y - line.fixed - per_byte * x).powi(2));
    let used = if flat { 1 } else { 2 };
    let freedom = count.saturating_sub(used);
    let within = |variance: f64| (freedom > 0).then(|| student(freedom) * (missed / freedom as f64 * variance).sqrt());
    let counted = points.iter().filter(|(_, _, whole)| *whole != 0.0);
    let relative: Vec<f64> = counted.map(|&(x, y, whole)| ((line.at(x) - y) / whole).powi(2)).collect();
    Fit {
        line,
        fixed_within: within(1.0 / all + if flat { 0.0 } else { x_mean.powi(2) / spread }),
        per_byte_within: if flat { None } else { within(1.0 / spread) },
        residual: (relative.iter().sum::<f64>() / relative.len().max(1) as f64).sqrt(),
        points: count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-9), "{a} is not {b}");
    }

    const SIZES: [f64; 7] = [4096.0, 8192.0, 16384.0, 32768.0, 65536.0, 131_072.0, 1_048_576.0];

    #[test]
    fn exact_points_give_their_line() {
        for (fixed, per_byte) in [(1e-4, 2e-9), (0.0, 1e-9), (5e-3, 0.0)] {
            let fit = line(&SIZES.map(|x| (x, fixed + per_byte * x)));
            assert!((fit.line.fixed - fixed).abs() < 1e-12 && (fit.line.per_byte - per_byte).abs() < 1e-15, "{fit:?}");
            assert!(fit.residual < 1e-9 && fit.fixed_within.unwrap() < 1e-9 && fit.points == 7);
        }
    }

    #[test]
    fn few_points() {
        assert_eq!(line(&[]), Fit::default());
        let one = line(&[(10.0, 3.0)]);
        assert_eq!((one.line, one.fixed_within), (Line { fixed: 3.0, per_byte: 0.0 }, None));
        let two = line(&[(1.0, 3.0), (2.0, 5.0)]);
        near(two.line.per_byte, 2.0);
        near(two.line.fixed, 1.0);
        assert_eq!((two.fixed_within, two.per_byte_within), (None, None));
        let same = line(&[(8.0, 3.0), (8.0, 3.0), (8.0, 6.0)]);
        assert_eq!((same.line.per_byte, same.per_byte_within), (0.0, None));
        assert!(same.fixed_within.unwrap() > 0.0);
        assert_eq!(line(&[(1.0, 0.0), (2.0, 0.0)]).line, Line::default());
    }

    /// What is left of a long time on the wire is less sure than the same time without a wire.
    #[test]
    fn parts_of_long_times_weigh_less() {
        let near_zero = [(1.0, 1.0, 1.0), (2.0, 2.0, 2.0), (3.0, 3.0, 3.0), (2.0, 0.1, 100.0), (3.0, -5.0, 150.0)];
        let fit = line_of_parts(&near_zero);
        assert!((fit.line.per_byte - 1.0).abs() < 0.02 && fit.line.fixed.abs() < 0.02, "{fit:?}");
        // Alone they are the line.
        let fit = line_of_parts(&near_zero[3..]);
        assert!((fit.line.at(2.0) - 0.1).abs() < 1e-9, "{fit:?}");
    }

    /// Equal weights by equal times: the textbook's line. x 1, 2, 3; y 10, 10, 10 + a little.
    #[test]
    fn the_interval_is_that_of_the_textbook() {
        let fit = line(&[(1.0, 10.0), (2.0, 10.001), (3.0, 10.0)]);
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
            let fit = line(&SIZES.map(|x| (x, (1e-4 + 2e-9 * x) * (1.0 + 0.01 * noise()))));
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

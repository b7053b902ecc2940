//! Figures of the rounds of a bench.

/// The middle one; the mean of the two in the middle.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        count => f64::midpoint(sorted[(count - 1) / 2], sorted[count / 2]),
    }
}

/// By how much the largest and the smallest differ, in percent of the median.
pub fn spread(values: &[f64]) -> f64 {
    let (most, least) = values.iter().fold((0.0f64, f64::MAX), |(most, least), it| (most.max(*it), least.min(*it)));
    let middle = median(values);
    if middle > 0.0 { 100.0 * (most - least) / middle } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_spread() {
        assert_eq!((median(&[]), median(&[3.0]), median(&[4.0, 1.0]), median(&[9.0, 1.0, 2.0])), (0.0, 3.0, 2.5, 2.0));
        assert_eq!((spread(&[2.0, 2.0]), spread(&[1.0, 2.0, 3.0]), spread(&[])), (0.0, 100.0, 0.0));
    }
}

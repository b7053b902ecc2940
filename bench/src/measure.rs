//! Interleaved turns: every contestant runs once per turn, in an order that rotates, so that a
//! drift or a disturbance of the machine hits all of them. A figure is the median of its turns.

use crate::results::Figure;

/// Runs `sample(contestant)` for contestants `0..count` in `turns` turns. A contestant that fails
/// once is out.
pub fn interleaved(
    turns: usize,
    count: usize,
    mut sample: impl FnMut(usize) -> Result<f64, String>,
) -> Vec<Result<Figure, String>> {
    let mut samples: Vec<Result<Vec<f64>, String>> = vec![Ok(Vec::with_capacity(turns)); count];
    for turn in 0..turns {
        for place in 0..count {
            let contestant = (turn + place) % count;
            if let Ok(taken) = &mut samples[contestant] {
                match sample(contestant) {
                    Ok(value) => taken.push(value),
                    Err(why) => samples[contestant] = Err(why),
                }
            }
        }
    }
    samples.into_iter().map(|taken| taken.map(Figure::of)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_runs_once_a_turn_in_rotated_order() {
        let mut order = vec![];
        let figures = interleaved(3, 3, |who| {
            order.push(who);
            if who == 1 && order.len() > 3 { Err("tired".into()) } else { Ok((order.len() * (who + 1)) as f64) }
        });
        assert_eq!(order, [0, 1, 2, 1, 2, 0, 2, 0]);
        assert_eq!(figures[1].as_ref().unwrap_err(), "tired");
        assert_eq!(figures[0].as_ref().unwrap().median, 6.0);
    }
}

//! What a console remembers: the last looks in all points, and two days by minutes.

use serde::Serialize;
use std::collections::VecDeque;

/// Points of the near past, and of the far one.
const NEAR: usize = 900;
const FAR: usize = 2880;
/// Seconds between two points of the far past.
const MINUTE: u64 = 60;

/// A moment. What is not known is null.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Point {
    /// Seconds since 1970.
    pub t: u64,
    pub used: Option<f64>,
    pub total: Option<f64>,
    /// Bytes a second that stores move.
    pub network: Option<f64>,
    /// Bytes a second that programs read and write, where metrics tell.
    pub read: Option<f64>,
    pub written: Option<f64>,
    /// Milliseconds: the mean of the targets, and of operations where metrics tell.
    pub delay: Option<f64>,
    pub read_ms: Option<f64>,
    pub write_ms: Option<f64>,
    /// Bytes a second that are rebuilt and moved.
    pub repair: Option<f64>,
}

#[derive(Default)]
pub struct History {
    near: VecDeque<Point>,
    far: VecDeque<Point>,
}

impl History {
    pub fn push(&mut self, point: Point) {
        if self.far.back().is_none_or(|last| point.t >= last.t + MINUTE) {
            self.far.push_back(point);
        }
        self.near.push_back(point);
        while self.near.len() > NEAR {
            self.near.pop_front();
        }
        while self.far.len() > FAR {
            self.far.pop_front();
        }
    }

    /// All points, the oldest first: minutes, and then every point of the near past.
    pub fn points(&self) -> Vec<Point> {
        let begins = self.near.front().map_or(u64::MAX, |first| first.t);
        self.far.iter().filter(|point| point.t < begins).chain(&self.near).copied().collect()
    }

    /// By how many bytes a day what is used grows: the slope of the line through all points (least
    /// squares). None before there are points of an hour.
    pub fn growth(&self) -> Option<f64> {
        let points: Vec<(f64, f64)> = self.far.iter().filter_map(|point| Some((point.t as f64, point.used?))).collect();
        let (first, last) = (points.first()?.0, points.last()?.0);
        if last - first < 3600.0 {
            return None;
        }
        let n = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
        let (t, used) = (mean(|point| point.0), mean(|point| point.1));
        let (mut above, mut below) = (0.0, 0.0);
        for point in &points {
            above += (point.0 - t) * (point.1 - used);
            below += (point.0 - t).powi(2);
        }
        Some(above / below * 86_400.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(t: u64, used: f64) -> Point {
        Point { t, used: Some(used), ..Point::default() }
    }

    #[test]
    fn the_far_past_has_minutes_and_the_near_one_all() {
        let mut history = History::default();
        (0..10_000).for_each(|n| history.push(at(n * 2, 0.0)));
        let points = history.points();
        assert_eq!(points.len(), 900 + (20_000 - 1800) / 60 + 1);
        assert!(points.windows(2).all(|pair| pair[0].t < pair[1].t));
        assert_eq!(points.last().unwrap().t, 19_998);
    }

    #[test]
    fn growth_is_a_slope_and_none_is_said_too_early() {
        let mut history = History::default();
        (0..60).for_each(|n| history.push(at(n * 60, 1000.0 * n as f64)));
        assert_eq!(history.growth(), None);
        (60..120).for_each(|n| history.push(at(n * 60, 1000.0 * n as f64)));
        let growth = history.growth().unwrap();
        assert!((growth - 1000.0 * 1440.0).abs() < 1.0, "{growth}");
    }
}

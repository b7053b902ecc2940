//! Round numbers for axes.

/// A tick on an axis: its position from 0 to 1, and its label.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// The position.
    pub at: f64,
    /// The label.
    pub label: String,
}

/// Readable steps of time, in seconds.
const AXIS_STEPS_SECONDS: [f64; 26] = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0,
    1200.0, 1800.0, 3600.0, 7200.0, 10_800.0, 21_600.0, 43_200.0,
];

/// Ticks of a time axis from 0 to `end` seconds: five to nine where possible.
pub fn times(end: f64) -> Vec<Tick> {
    if !(end.is_finite() && end > 0.0) {
        return vec![];
    }
    let fits = |step: &f64| end / step <= 8.0;
    let step = AXIS_STEPS_SECONDS.into_iter().find(fits).unwrap_or_else(|| (end / 8.0 / 86_400.0).ceil() * 86_400.0);
    let count = (end / step + 1e-9).floor() as u32;
    (0..=count)
        .map(|n| Tick { at: (f64::from(n) * step / end).min(1.0), label: time(f64::from(n) * step, step) })
        .collect()
}

fn time(seconds: f64, step: f64) -> String {
    let in_unit = |unit: f64| {
        let value = seconds / unit;
        let digits = if (step / unit).fract() == 0.0 { 0 } else { 1 };
        format!("{value:.digits$}")
    };
    match step {
        _ if seconds == 0.0 => "0".into(),
        step if step < 0.1 => format!("{:.0} ms", seconds * 1e3),
        step if step < 60.0 => format!("{} s", in_unit(1.0)),
        step if step < 1800.0 => format!("{} min", in_unit(60.0)),
        step if step < 86_400.0 => format!("{} h", in_unit(3600.0)),
        _ => format!("{} d", in_unit(86_400.0)),
    }
}

/// The end of an axis of byte rates up to `most`, and its ticks: four steps of a round number in
/// its unit.
pub fn rates(most: f64) -> (f64, Vec<Tick>) {
    let units = ["B/s", "KiB/s", "MiB/s", "GiB/s", "TiB/s", "PiB/s"];
    let unit = (0..units.len()).rev().find(|&n| most >= 1024f64.powi(n as i32)).unwrap_or(0);
    let scale = 1024f64.powi(unit as i32);
    let value = (most / scale).max(1.0);
    let power = 10f64.powf(value.log10().floor());
    let top = [1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 6.0, 8.0, 10.0].map(|step| step * power);
    let top = top.into_iter().find(|&top| top >= value).unwrap_or(value);
    let ticks = (0..=4u32).map(|n| {
        let value = top * f64::from(n) / 4.0;
        let digits = (2.0 - (top / 4.0).log10().floor()).clamp(0.0, 2.0) as usize;
        let number = format!("{value:.digits$}");
        let number = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { &number };
        Tick { at: f64::from(n) / 4.0, label: if n == 0 { "0".into() } else { format!("{number} {}", units[unit]) } }
    });
    (top * scale, ticks.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: &[Tick]) -> Vec<&str> {
        ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn time_axes_have_a_few_round_numbers() {
        assert_eq!(labels(&times(1.0)), ["0", "0.2 s", "0.4 s", "0.6 s", "0.8 s", "1.0 s"]);
        assert_eq!(labels(&times(72.0)), ["0", "10 s", "20 s", "30 s", "40 s", "50 s", "60 s", "70 s"]);
        assert_eq!(labels(&times(36_000.0)), ["0", "2 h", "4 h", "6 h", "8 h", "10 h"]);
        assert_eq!(times(0.0), []);
        for end in [0.004, 0.3, 7.0, 61.0, 599.0, 7000.0, 1e6, 1e8] {
            let ticks = times(end);
            assert!(ticks.len() >= 3 && ticks.len() <= 9, "{end}: {ticks:?}");
            assert!(ticks.windows(2).all(|two| two[0].at < two[1].at && two[0].label != two[1].label), "{ticks:?}");
        }
    }

    #[test]
    fn rate_axes_end_above_the_greatest() {
        for most in [0.0, 3.0, 1023.0, 5e8, 1.5 * 1024f64.powi(3), 1e14] {
            let (top, ticks) = rates(most);
            assert!(top >= most && ticks.len() == 5 && ticks[4].at == 1.0, "{most}: {ticks:?}");
        }
        assert_eq!(
            labels(&rates(450.0 * 1024.0 * 1024.0).1),
            ["0", "150 MiB/s", "300 MiB/s", "450 MiB/s", "600 MiB/s"]
        );
        assert_eq!(labels(&rates(1.4 * 1024f64.powi(3)).1), ["0", "0.4 GiB/s", "0.8 GiB/s", "1.2 GiB/s", "1.6 GiB/s"]);
    }
}

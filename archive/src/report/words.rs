//! Quantities in words, for both the text and the page.

pub use plan::words::bytes;

/// A rate in bytes a second.
pub fn rate(bytes_per_second: f64) -> String {
    format!("{}/s", bytes(bytes_per_second as u64))
}

/// A time in seconds: `4.0 ms`, `0.25 s`, `72.0 s`, `12 min 30 s`, `10 h 05 min`.
pub fn time(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match whole {
        _ if seconds == 0.0 => "0 s".into(),
        _ if seconds < 0.1 => format!("{:.1} ms", seconds * 1e3),
        _ if seconds < 10.0 => format!("{seconds:.2} s"),
        _ if seconds < 120.0 => format!("{seconds:.1} s"),
        0..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        3600..360_000 => format!("{} h {:02} min", whole / 3600, whole / 60 % 60),
        _ => format!("{:.1} days", seconds / 86_400.0),
    }
}

/// An energy in joules or, from a tenth of a kilowatt-hour on, in kilowatt-hours.
pub fn energy(joules: f64) -> String {
    let kwh = joules / plan::energy::JOULES_PER_KWH;
    match joules.abs() {
        _ if kwh >= 0.1 => format!("{} kWh", plain(kwh)),
        1000.0.. => format!("{} kJ", short(joules / 1000.0)),
        _ => format!("{} J", short(joules)),
    }
}

/// A share as a percentage.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A share as a percentage with its sign.
pub fn signed_percent(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

/// A whole number with separated thousands.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The word for `number` things: with an s, unless it is one.
pub fn plural(number: u64, word: &str) -> String {
    if number == 1 { word.into() } else { format!("{word}s") }
}

/// A number with three digits, or with all digits before the point.
pub fn plain(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        size if size < 1e15 => {
            let whole = count(value.abs().round() as u64);
            if value < 0.0 { format!("-{whole}") } else { whole }
        }
        _ => format!("{value:.2e}"),
    }
}

/// The same without zeroes behind the point of a whole number.
fn short(value: f64) -> String {
    let text = plain(value);
    if value.fract() == 0.0 { text.trim_end_matches(".00").trim_end_matches(".0").into() } else { text }
}

/// A moment, in seconds since 1970, in universal time.
pub fn moment(unix_seconds: u64) -> String {
    format!("{} UTC", plan::words::date(unix_seconds as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_well() {
        let times = [0.004, 1.0, 72.04, 750.0, 36_300.0, 864_000.0].map(time);
        assert_eq!(times, ["4.0 ms", "1.00 s", "72.0 s", "12 min 30 s", "10 h 05 min", "10.0 days"]);
        assert_eq!([12.0, 1200.0, 3.6e6].map(energy), ["12 J", "1.20 kJ", "1.00 kWh"]);
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([-1234.5, 0.0, 0.123, 56.78].map(plain), ["-1,235", "0", "0.12", "56.8"]);
        assert_eq!([signed_percent(-0.69), percent(0.9523)], ["-69.0 %", "95.2 %"]);
    }
}

//! Quantities in words, for both the text and the page.

/// A number of bytes in the largest unit that gives at least one.
pub fn bytes(count: f64) -> String {
    scaled(count, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
}

/// A rate in bytes a second.
pub fn rate(bytes_per_second: f64) -> String {
    format!("{}/s", bytes(bytes_per_second))
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
    if kwh >= 0.1 { format!("{} kWh", plain(kwh)) } else { scaled(joules, 1000.0, &["J", "kJ"]) }
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

/// A moment in universal time in the form of ISO 8601, without the letter between date and time.
pub fn moment(unix_seconds: u64) -> String {
    let (days, second) = (unix_seconds / 86_400, unix_seconds % 86_400);
    let (year, month, day) = date(days);
    format!("{year}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", second / 3600, second / 60 % 60, second % 60)
}

/// Year, month and day of a day since 1970. Years are counted from March on, so that the leap day
/// comes last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let march_month = (5 * day + 2) / 153;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day - (153 * march_month + 2) / 5 + 1)
}

fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut unit = 0;
    while value.abs() >= step && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let whole = value.fract() == 0.0 && value.abs() < 1e15;
    if whole {
        format!("{} {}", plain(value).trim_end_matches(".00").trim_end_matches(".0"), units[unit])
    } else {
        format!("{} {}", plain(value), units[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_well() {
        let lengths = [0.0, 1.0, 1023.0, 1024.0, 1536.0, 123_456_789.0, 8.0 * 1024.0 * 1024.0].map(bytes);
        assert_eq!(lengths, ["0 B", "1 B", "1,023 B", "1 KiB", "1.50 KiB", "118 MiB", "8 MiB"]);
        let times = [0.004, 1.0, 72.04, 750.0, 36_300.0, 864_000.0].map(time);
        assert_eq!(times, ["4.0 ms", "1.00 s", "72.0 s", "12 min 30 s", "10 h 05 min", "10.0 days"]);
        assert_eq!([12.0, 1200.0, 3.6e6].map(energy), ["12 J", "1.20 kJ", "1.00 kWh"]);
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([-1234.5, 0.0, 0.123, 56.78].map(plain), ["-1,235", "0", "0.12", "56.8"]);
        assert_eq!([signed_percent(-0.69), percent(0.9523)], ["-69.0 %", "95.2 %"]);
    }

    #[test]
    fn moments_are_those_of_the_calendar() {
        let moments = [0, 951_782_400, 1_735_689_599, 4_107_542_400].map(moment);
        let expected = [
            "1970-01-01 00:00:00 UTC",
            "2000-02-29 00:00:00 UTC",
            "2024-12-31 23:59:59 UTC",
            "2100-03-01 00:00:00 UTC",
        ];
        assert_eq!(moments, expected);
    }
}

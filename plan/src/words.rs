//! Quantities in words, for people.

/// A number of things.
pub fn count(of: usize, what: &str) -> String {
    if of == 1 { format!("1 {what}") } else { format!("{of} {what}s") }
}

/// A length in a unit that suits it.
pub fn bytes(count: u64) -> String {
    let mut value = count as f64;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if unit == "B" { format!("{count} B") } else { format!("{value:.1} {unit}") }
}

/// A size that was chosen, such as that of records: `64 KiB` where it is a whole number of the
/// unit, as [`bytes()`] has it otherwise.
pub fn size(count: u64) -> String {
    let shown = bytes(count);
    let units = count.checked_ilog2().unwrap_or(0) / 10;
    if count.trailing_zeros() >= 10 * units { shown.replace(".0 ", " ") } else { shown }
}

/// The nearest number with so many significant digits, at least one. It is the one that is shown
/// with these digits and no others.
pub fn rounded(value: f64, digits: usize) -> f64 {
    if !value.is_finite() {
        return value;
    }
    format!("{value:.*e}", digits.max(1) - 1).parse().expect("a number in exponential form is a number")
}

/// A time in UTC, as `2024-02-29 12:00:00`, from seconds since 1970 (days to date after Howard
/// Hinnant's civil_from_days).
pub fn date(seconds: i64) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    #[test]
    fn lengths_have_the_unit_that_suits_them() {
        let shown = [0, 1023, 1024, 1 << 20, 5 << 29, u64::MAX].map(super::bytes);
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "1.0 MiB", "2.5 GiB", "16.0 EiB"]);
    }

    #[test]
    fn numbers_keep_the_digits_that_count() {
        let shown = |value: f64, digits| super::rounded(value, digits).to_string();
        let small = [0.000_428_333_3, -0.012_351, 0.999_6, 2e-9 / 3.0].map(|value| shown(value, 3));
        assert_eq!(small, ["0.000428", "-0.0124", "1", "0.000000000667"]);
        let large = [123_456.789, 10_800.0, 1e17 / 3.0].map(|value| shown(value, 6));
        assert_eq!(large, ["123457", "10800", "33333300000000000"]);
        assert_eq!([0.0, f64::INFINITY].map(|value| shown(value, 3)), ["0", "inf"]);
        assert_eq!(shown(0.16, 0), "0.2");
    }

    #[test]
    fn whole_sizes_have_no_decimals() {
        let shown = [0, 512, 4096, 131_072, 1536, (64 << 10) + 1, 1 << 30].map(super::size);
        assert_eq!(shown, ["0 B", "512 B", "4 KiB", "128 KiB", "1.5 KiB", "64.0 KiB", "1 GiB"]);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, date) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_709_251_199, "2024-02-29 23:59:59"),
            (1_735_689_599, "2024-12-31 23:59:59"),
            (4_107_542_400, "2100-03-01 00:00:00"),
            (-1, "1969-12-31 23:59:59"),
        ] {
            assert_eq!(super::date(seconds), date);
        }
        assert!(!super::date(i64::MIN).is_empty() && !super::date(i64::MAX).is_empty());
    }
}

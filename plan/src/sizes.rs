//! Lengths in bytes on the command line: one way to write them, for all options.

/// Units, and how many bytes each has. A letter alone is a power of 1024.
const UNITS: [(&str, u64); 20] = [
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("kib", 1 << 10),
    ("kb", 1000),
    ("m", 1 << 20),
    ("mib", 1 << 20),
    ("mb", 1_000_000),
    ("g", 1 << 30),
    ("gib", 1 << 30),
    ("gb", 1_000_000_000),
    ("t", 1 << 40),
    ("tib", 1 << 40),
    ("tb", 1_000_000_000_000),
    ("p", 1 << 50),
    ("pib", 1 << 50),
    ("pb", 1_000_000_000_000_000),
    ("e", 1 << 60),
    ("eib", 1 << 60),
    ("eb", 1_000_000_000_000_000_000),
];

/// Reads a number of bytes above 0, such as `1048576`, `64k`, `1.5GiB`, `2 GB` or `1,000 B`.
///
/// # Errors
/// A sentence for the person who wrote it.
pub fn bytes(text: &str) -> Result<u64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ',').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = &without_commas(number);
    let unit = unit.trim();
    let scale = UNITS.iter().find(|(name, _)| *name == unit.to_ascii_lowercase()).map(|(_, scale)| *scale);
    let scale =
        scale.ok_or_else(|| format!("{unit:?} is no unit; units are k, M, G, T, P, KiB, MiB, .. and kB, MB, .."))?;
    let no_number = || format!("{text:?} is no number of bytes; give one such as 1048576, 64k or 1.5GiB");
    let count = match number.split_once('.') {
        None => number.parse::<u64>().map_err(|_| no_number())?.checked_mul(scale),
        Some(_) => {
            let product = number.parse::<f64>().map_err(|_| no_number())? * scale as f64;
            (product < u64::MAX as f64).then_some(product as u64)
        }
    };
    match count {
        Some(0) => Err("it must be at least 1".into()),
        Some(count) => Ok(count),
        None => Err("that is more than 16 EiB".into()),
    }
}

/// A number without the commas between groups of three digits. Other commas stay.
fn without_commas(number: &str) -> String {
    let whole = number.split('.').next().unwrap_or(number);
    let mut groups = whole.split(',');
    let first = groups.next().map_or(0, str::len);
    let is_grouped = (1..=3).contains(&first) && groups.all(|group| group.len() == 3);
    if is_grouped { whole.replace(',', "") + &number[whole.len()..] } else { number.to_owned() }
}

/// The same for lengths that have a limit by their type.
///
/// # Errors
/// As `bytes`, and when it is above the limit.
pub fn length<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    // An option that takes 0 says itself what is wrong with it.
    let count = if text == "0" { 0 } else { bytes(text)? };
    count.try_into().map_err(|_| format!("{text} is too much"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_units() {
        for (text, count) in [
            ("1", 1),
            ("7B", 7),
            ("1k", 1024),
            ("64KiB", 65536),
            ("1.5MiB", 3 << 19),
            ("2 GB", 2_000_000_000),
            ("1GiB", 1 << 30),
            ("200M", 200 << 20),
            ("200MB", 200_000_000),
            ("0.5k", 512),
            ("120PB", 120_000_000_000_000_000),
            ("15E", 15 << 60),
            ("18446744073709551615", u64::MAX),
            ("127 MiB", 127 << 20),
            ("1,000 B", 1000),
            ("12,345,678", 12_345_678),
            ("1,024.5 KiB", 1_049_088),
        ] {
            assert_eq!(bytes(text), Ok(count), "{text}");
        }
        for text in [
            "", "x", "1x", "-1", "0", "0.1", ".", "1.2.3", "1e300", "16E", "1 MiBs", "off", "1,00", ",100", "1,",
            "1234,567", "1.5,000",
        ] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn lengths_have_limits() {
        assert_eq!(length::<u32>("64MiB"), Ok(64 << 20));
        assert_eq!(length::<usize>("0"), Ok(0));
        assert!(length::<u32>("4GiB").is_err());
    }
}

//! Reading a spec from its text.

use super::{MAX_SPEC_BYTES, Spec};
use crate::invalid::InvalidCode;
use std::str::FromStr;

impl FromStr for Spec {
    type Err = InvalidCode;

    fn from_str(text: &str) -> Result<Self, InvalidCode> {
        let malformed = || InvalidCode::Malformed(text.to_owned());
        if text.len() > MAX_SPEC_BYTES {
            return Err(InvalidCode::TooLong);
        }
        let mut parts = text.split(',');
        let (name, numbers) = parts.next().and_then(|head| head.split_once(':')).ok_or_else(malformed)?;
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
            return Err(malformed());
        }
        let number = |digits: &str| {
            let plain = !digits.is_empty() && digits.len() <= 7 && digits.bytes().all(|b| b.is_ascii_digit());
            plain.then(|| digits.parse::<usize>().ok()).flatten().ok_or_else(malformed)
        };
        let numbers = numbers.split('+').map(number).collect::<Result<Vec<_>, _>>()?;
        if numbers.len() > 3 {
            return Err(malformed());
        }
        let mut parameters = Vec::new();
        for part in parts {
            let (key, value) = part.split_once('=').ok_or_else(malformed)?;
            if parameters.iter().any(|(k, _)| k == key) {
                return Err(InvalidCode::Repeated { text: text.to_owned(), parameter: key.to_owned() });
            }
            parameters.push((key.to_owned(), number(value)?));
        }
        Ok(Self { name: name.to_owned(), numbers, parameters })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_reads_back_as_it_was_written() {
        for text in ["rs:4+2", "lrc:12+2+2", "cauchy-good:8+3,packet=2048", "none:4", "none:4+2,unsafe=1"] {
            assert_eq!(text.parse::<Spec>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn malformed_specs_are_refused() {
        for text in [
            "",
            "rs",
            "rs:",
            ":4+2",
            "rs:4+",
            "rs:4+-2",
            "rs:4+2,",
            "rs:4+2,w",
            "rs:1+2+3+4",
            "rs:99999999+1",
            "RS:4+2",
            "rs:4+2,w=3,w=3",
        ] {
            assert!(text.parse::<Spec>().is_err(), "{text}");
        }
    }
}

//! Speeds of links as networks are named: 10G is 10^10 bits a second.

/// A link that an option names; None for one that does not limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed(pub Option<f64>);

impl Speed {
    /// In words.
    pub fn words(self) -> String {
        let Some(bits) = self.0 else { return "no limit".into() };
        let (scale, unit) = match bits {
            bits if bits >= 1e9 => (1e9, "G"),
            bits if bits >= 1e6 => (1e6, "M"),
            _ => (1e3, "k"),
        };
        format!("{}{unit}", bits / scale)
    }
}

/// Reads `none`, or a number of bits a second with `k`, `M`, `G` or `T`.
pub fn parse(text: &str) -> Result<Speed, String> {
    if text == "none" {
        return Ok(Speed(None));
    }
    let units = [('k', 1e3), ('K', 1e3), ('M', 1e6), ('m', 1e6), ('G', 1e9), ('g', 1e9), ('T', 1e12), ('t', 1e12)];
    let last = text.chars().last();
    let unit = units.iter().find(|(name, _)| Some(*name) == last).map(|(_, scale)| *scale);
    let number = unit.map_or("", |_| &text[..text.len() - 1]).parse::<f64>().ok();
    let bits = number.zip(unit).map(|(number, unit)| number * unit).filter(|bits| (1e3..=1e15).contains(bits));
    bits.map(|bits| Speed(Some(bits))).ok_or_else(|| "give bits a second such as 200M, 10G or 100G, or none".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_have_units() {
        for (text, bits) in [("1G", 1e9), ("2.5G", 2.5e9), ("200M", 2e8), ("64k", 64e3), ("1t", 1e12)] {
            assert_eq!(parse(text), Ok(Speed(Some(bits))), "{text}");
        }
        assert_eq!(parse("none"), Ok(Speed(None)));
        for wrong in ["", "G", "10", "-1G", "nanG", "infG", "1e9", "10GB", "0G", "1ü"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn and_words() {
        for text in ["1G", "2.5G", "200M", "64k", "100G"] {
            assert_eq!(parse(text).unwrap().words(), text);
        }
        assert_eq!(Speed(None).words(), "no limit");
    }
}

//! How a code is written down: `rs:4+2`, `lrc:12+2+2`, `cauchy-good:8+3,packet=2048`,
//! `liberation:5+2,w=7`.

mod parse;

use std::fmt;

/// The most blocks in a stripe: points of GF(2^8).
pub const MAX_BLOCKS: usize = 256;

/// The longest spec as text.
pub const MAX_SPEC_BYTES: usize = 100;

/// The parameter without which `none` has no parity blocks.
pub(crate) const UNSAFE: &str = "unsafe";

/// Data and parity blocks of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape {
    /// Data blocks.
    pub k: usize,
    /// Parity blocks.
    pub m: usize,
}

impl Shape {
    /// All blocks of a stripe.
    pub fn blocks(self) -> usize {
        self.k + self.m
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.k, self.m)
    }
}

/// A code's name, shape and parameters: its whole identity. Equal specs give equal bytes, for ever.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Spec {
    /// The family, `rs`.
    pub name: String,
    /// The numbers after the colon, `[4, 2]`, `[12, 2, 2]`.
    pub numbers: Vec<usize>,
    /// `packet=2048`, by name.
    pub parameters: Vec<(String, usize)>,
}

impl Spec {
    /// A spec from its parts; [`build`](crate::build) says whether there is such a code.
    ///
    /// ```
    /// let spec = weft_ec::Spec::new("cauchy-good", &[8, 3], &[("packet", 2048)]);
    /// assert_eq!(spec.to_string(), "cauchy-good:8+3,packet=2048");
    /// ```
    pub fn new(name: &str, numbers: &[usize], parameters: &[(&str, usize)]) -> Self {
        let parameters = parameters.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
        Self { name: name.to_owned(), numbers: numbers.to_vec(), parameters }
    }

    /// The first number is that of the data blocks; all others are parity blocks.
    pub fn shape(&self) -> Shape {
        match &self.numbers[..] {
            [k, parity @ ..] => Shape { k: *k, m: parity.iter().fold(0, |m, &n| m.saturating_add(n)) },
            [] => Shape { k: 0, m: 0 },
        }
    }

    /// `none:4+2,unsafe=1`: parity blocks that are zeroes, so that what coding costs can be
    /// compared with storing and sending as much without it. Nothing can be rebuilt from them.
    pub fn stores_zeroes(&self) -> bool {
        self.name == "none" && self.shape().m > 0 && self.parameter(UNSAFE) == Some(1)
    }

    /// The parameter of that name.
    pub fn parameter(&self, name: &str) -> Option<usize> {
        self.parameters.iter().find(|(n, _)| n == name).map(|&(_, value)| value)
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.numbers.iter().map(usize::to_string).collect();
        write!(f, "{}:{}", self.name, numbers.join("+"))?;
        self.parameters.iter().try_for_each(|(name, value)| write!(f, ",{name}={value}"))
    }
}

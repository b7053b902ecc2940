//! The instruction sets that kernels are written for, and their names.

use std::fmt;
use std::str::FromStr;

/// What a kernel's inner loops are made of. A later value is the faster one where both run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Isa {
    /// One byte at a time, straight from the definitions. Runs everywhere.
    Naive,
    /// Products from a table, sums 64 bits at a time: no SIMD. Runs everywhere.
    Plain,
    /// Nibble shuffles on 16 bytes.
    Ssse3,
    /// Nibble shuffles on 32 bytes.
    Avx2,
    /// Nibble shuffles on 64 bytes.
    Avx512,
    /// Affine products on 32 bytes.
    GfniAvx2,
    /// Affine products on 64 bytes.
    GfniAvx512,
}

impl Isa {
    /// All of them, slowest first.
    pub const ALL: [Self; 7] =
        [Self::Naive, Self::Plain, Self::Ssse3, Self::Avx2, Self::Avx512, Self::GfniAvx2, Self::GfniAvx512];

    /// The name that `WEFT_KERNEL` takes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Naive => "naive",
            Self::Plain => "plain",
            Self::Ssse3 => "ssse3",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::GfniAvx2 => "gfni-avx2",
            Self::GfniAvx512 => "gfni-avx512",
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no kernel has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownIsa(pub String);

impl fmt::Display for UnknownIsa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no kernel is called {:?}; there are {}", self.0, Isa::ALL.map(Isa::name).join(", "))
    }
}

impl std::error::Error for UnknownIsa {}

impl FromStr for Isa {
    type Err = UnknownIsa;

    fn from_str(name: &str) -> Result<Self, UnknownIsa> {
        Self::ALL.into_iter().find(|isa| isa.name() == name).ok_or_else(|| UnknownIsa(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_others_are_refused_with_those_there_are() {
        for isa in Isa::ALL {
            assert_eq!(isa.to_string().parse(), Ok(isa));
        }
        assert!(Isa::ALL.is_sorted());
        let error = "sse9".parse::<Isa>().unwrap_err().to_string();
        assert!(error.contains("sse9") && error.contains("naive"), "{error}");
    }
}

//! Failure domains: what fails together. A path from the large to the small, such as `rack1/host3`.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// No path is longer, and none has more parts.
const MAX_PATH_BYTES: usize = 255;
const MAX_DEPTH: usize = 8;

/// Where a target is: names from the large to the small, `cabinet/row/node`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Domain(Arc<str>);

/// What is no domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoDomain(String);

impl fmt::Display for NoDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not a domain; one is a path such as rack1/host3: at most {MAX_DEPTH} names of letters, digits, \
             '-', '_', '.' and ':'",
            self.0
        )
    }
}

impl std::error::Error for NoDomain {}

impl FromStr for Domain {
    type Err = NoDomain;

    fn from_str(text: &str) -> Result<Self, NoDomain> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
        let name = |name: &str| !name.is_empty() && name.chars().all(plain);
        let good = text.len() <= MAX_PATH_BYTES && text.split('/').count() <= MAX_DEPTH && text.split('/').all(name);
        if good { Ok(Self(text.into())) } else { Err(NoDomain(text.chars().take(MAX_PATH_BYTES).collect())) }
    }
}

impl TryFrom<String> for Domain {
    type Error = NoDomain;

    fn try_from(text: String) -> Result<Self, NoDomain> {
        text.parse()
    }
}

impl From<Domain> for String {
    fn from(domain: Domain) -> Self {
        domain.0.as_ref().into()
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Domain {
    /// The domain that it is in at a level: its first `level` names. All of it if it has no more,
    /// or without a level.
    pub fn at(&self, level: Option<u8>) -> &str {
        let end = level.and_then(|level| self.0.match_indices('/').nth(usize::from(level).saturating_sub(1)));
        end.map_or(&self.0, |(end, _)| &self.0[..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_a_path_of_names() {
        for good in ["a", "rack1/host3", "a/b/c/d/e/f/g/h", "10.0.0.1:7701"] {
            assert_eq!(good.parse::<Domain>().unwrap().to_string(), good);
        }
        let long = "x".repeat(256);
        for bad in ["", "/", "a/", "/a", "a//b", "a b", "ä", "a/b/c/d/e/f/g/h/i", &long] {
            assert!(bad.parse::<Domain>().unwrap_err().to_string().contains("rack1/host3"), "{bad}");
        }
    }

    #[test]
    fn a_level_is_so_many_names() {
        let domain: Domain = "a/bc/d".parse().unwrap();
        let at = [None, Some(1), Some(2), Some(3), Some(4)].map(|level| domain.at(level));
        assert_eq!(at, ["a/bc/d", "a", "a/bc", "a/bc/d", "a/bc/d"]);
    }
}

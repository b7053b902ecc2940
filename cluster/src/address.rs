//! How a volume and a target of a storage server are written down: `weft://host:port/volume` and `store://host:port/target`.

use fs::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where a metadata server is, and which volume is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeAddress {
    /// `host:port`.
    pub server: String,
    /// The volume's name; any if it is empty.
    pub volume: String,
}

/// A target of a storage server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreAddress {
    /// `host:port`.
    pub server: String,
    /// What the store calls the target.
    pub target: String,
}

const VOLUME: &str = "weft://";
const STORE: &str = "store://";

/// The parts of an address behind its scheme.
fn parts<'a>(text: &'a str, scheme: &str, form: &str) -> Result<(&'a str, &'a str), Error> {
    let bad = || Error::Invalid(format!("{text:?} is not an address; one is {form}"));
    let rest = text.strip_prefix(scheme).ok_or_else(bad)?;
    let (server, name) = rest.split_once('/').unwrap_or((rest, ""));
    let port =
        server.rsplit_once(':').filter(|(host, _)| !host.is_empty()).and_then(|(_, port)| port.parse::<u16>().ok());
    port.ok_or_else(bad)?;
    Ok((server, name.trim_end_matches('/')))
}

impl VolumeAddress {
    /// Whether a text is meant to be one.
    pub fn is_one(text: &Path) -> bool {
        text.to_str().is_some_and(|text| text.starts_with(VOLUME))
    }
}

impl FromStr for VolumeAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (server, volume) = parts(text, VOLUME, "weft://HOST:PORT/VOLUME")?;
        Ok(Self { server: server.into(), volume: volume.into() })
    }
}

impl fmt::Display for VolumeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{VOLUME}{}/{}", self.server, self.volume)
    }
}

impl StoreAddress {
    /// The address in a label's path, if it is one and not a directory.
    ///
    /// # Errors
    /// When it looks like one and is none.
    pub fn of(path: &Path) -> Option<Result<Self, Error>> {
        path.to_str().filter(|text| text.starts_with(STORE)).map(str::parse)
    }

    /// As the path in a label.
    pub fn to_path(&self) -> PathBuf {
        self.to_string().into()
    }
}

impl FromStr for StoreAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let form = "store://HOST:PORT/TARGET";
        let (server, target) = parts(text, STORE, form)?;
        if target.is_empty() || target.contains('/') {
            return Err(Error::Invalid(format!("{text:?} is not an address; one is {form}")));
        }
        Ok(Self { server: server.into(), target: target.into() })
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{STORE}{}/{}", self.server, self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for text in ["weft://localhost:7600/films", "weft://[::1]:7600/a b", "weft://10.0.0.1:1/"] {
            assert_eq!(text.parse::<VolumeAddress>().unwrap().to_string(), text);
        }
        assert_eq!("weft://h:1".parse::<VolumeAddress>().unwrap().volume, "");
        assert_eq!("store://h:1/d0".parse::<StoreAddress>().unwrap().to_string(), "store://h:1/d0");
        assert!(StoreAddress::of(Path::new("/srv/d0")).is_none());
        for text in ["weft://", "weft://h", "weft://h:/v", "weft://:7/v", "weft://h:70000/v", "h:1/v"] {
            assert!(text.parse::<VolumeAddress>().is_err(), "{text}");
        }
        for text in ["store://h:1", "store://h:1/", "store://h:1/a/b", "store:///x"] {
            assert!(text.parse::<StoreAddress>().is_err(), "{text}");
        }
    }
}

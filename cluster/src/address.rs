//! Addresses of a volume and of a target of a storage server: `weft://host:port,host:port/volume`
//! and `store://host:port/target`.

use fs::Error;
use std::fmt;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The addresses of a volume's metadata servers, and the name of the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeAddress {
    /// `host:port` of each, at least one. One of them that is up is enough.
    pub servers: Vec<String>,
    /// The volume's name. An empty name means any volume.
    pub volume: String,
}

/// The address of a target of a storage server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreAddress {
    /// `host:port`.
    pub server: String,
    /// The name of the target at its store.
    pub target: String,
}

const VOLUME: &str = "weft://";
const STORE: &str = "store://";
/// The port of a metadata server whose address names none.
const PORT: u16 = 7600;
/// The most servers in an address.
pub(crate) const MAX_SERVERS: usize = 16;

/// Splits the part of an address after its scheme into server and name.
fn parts<'a>(text: &'a str, scheme: &str, form: &str) -> Result<(&'a str, &'a str), Error> {
    let bad = || Error::Invalid(format!("{text:?} is not an address; one is {form}"));
    let rest = text.strip_prefix(scheme).ok_or_else(bad)?;
    let (server, name) = rest.split_once('/').unwrap_or((rest, ""));
    let port =
        server.rsplit_once(':').filter(|(host, _)| !host.is_empty()).and_then(|(_, port)| port.parse::<u16>().ok());
    port.ok_or_else(bad)?;
    Ok((server, name.trim_end_matches('/')))
}

/// The address of a metadata server with its port, `host:port`; None when it is not valid. A host
/// that is an IPv6 address is in brackets.
pub(crate) fn server(text: &str) -> Option<String> {
    let (host, port) = match text.strip_prefix('[').map(|rest| rest.split_once(']')) {
        Some(inside) => {
            let (address, rest) = inside?;
            address.parse::<Ipv6Addr>().ok()?;
            (&text[..address.len() + 2], rest)
        }
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let is_plain = |host: &str| !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || c.is_control());
    let port = match port {
        "" => PORT,
        port => port.strip_prefix(':')?.parse().ok()?,
    };
    is_plain(host).then(|| format!("{host}:{port}"))
}

impl VolumeAddress {
    /// The servers as one text, for messages.
    pub fn server_list(&self) -> String {
        self.servers.join(",")
    }

    /// Whether a path has the scheme of a volume address.
    pub fn is_one(text: &Path) -> bool {
        text.to_str().is_some_and(|text| text.starts_with(VOLUME))
    }

    /// The volume address that a path is; None when the path is a directory.
    ///
    /// # Errors
    /// When the path has the scheme of a volume address but is not a valid one.
    pub fn of(path: &Path) -> Option<Result<Self, Error>> {
        path.to_str().filter(|text| text.starts_with(VOLUME)).map(str::parse)
    }
}

impl FromStr for VolumeAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let form = "weft://HOST:PORT/VOLUME, or weft://HOST:PORT,HOST:PORT/VOLUME with several metadata servers";
        let bad = || Error::Invalid(format!("{text:?} is not an address; one is {form}"));
        let rest = text.strip_prefix(VOLUME).ok_or_else(bad)?;
        let (servers, volume) = rest.split_once('/').unwrap_or((rest, ""));
        let servers: Vec<String> = servers.split(',').map(server).collect::<Option<_>>().ok_or_else(bad)?;
        if servers.len() > MAX_SERVERS {
            return Err(Error::Invalid(format!("{text:?} names more than {MAX_SERVERS} metadata servers")));
        }
        Ok(Self { servers, volume: volume.trim_end_matches('/').into() })
    }
}

impl fmt::Display for VolumeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{VOLUME}{}/{}", self.server_list(), self.volume)
    }
}

impl StoreAddress {
    /// The store address in a label's path; None when the path is a directory.
    ///
    /// # Errors
    /// When the path has the scheme of a store address but is not a valid one.
    pub fn of(path: &Path) -> Option<Result<Self, Error>> {
        path.to_str().filter(|text| text.starts_with(STORE)).map(str::parse)
    }

    /// The server and the target in a label's path, without a copy; None for a directory, and for
    /// what is no address.
    pub(crate) fn parts_of(path: &Path) -> Option<(&str, &str)> {
        let text = path.to_str().filter(|text| text.starts_with(STORE))?;
        parts(text, STORE, "").ok()
    }

    /// The address as a path for a label.
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
        for text in
            ["weft://localhost:7600/films", "weft://[::1]:7600/a b", "weft://10.0.0.1:1/", "weft://a:1,[::2]:3/v"]
        {
            assert_eq!(text.parse::<VolumeAddress>().unwrap().to_string(), text);
        }
        let several: VolumeAddress = "weft://a,b:1,[fe80::1]/films".parse().unwrap();
        assert_eq!(several.servers, ["a:7600", "b:1", "[fe80::1]:7600"]);
        assert_eq!(several.volume, "films");
        assert_eq!("weft://h:1".parse::<VolumeAddress>().unwrap().volume, "");
        assert_eq!("store://h:1/d0".parse::<StoreAddress>().unwrap().to_string(), "store://h:1/d0");
        assert!(StoreAddress::of(Path::new("/srv/d0")).is_none());
        assert!(VolumeAddress::of(Path::new("/srv/films")).is_none());
        assert!(VolumeAddress::of(Path::new("weft://h:1/v")).unwrap().is_ok());
        assert!(VolumeAddress::of(Path::new("weft://:1/v")).unwrap().is_err());
        let many = format!("weft://{}/v", vec!["h"; MAX_SERVERS + 1].join(","));
        for text in [
            "weft://",
            "weft://h:/v",
            "weft://:7/v",
            "weft://h:70000/v",
            "h:1/v",
            "weft://a,/v",
            "weft://,a/v",
            "weft://::1/v",
            "weft://[::1/v",
            "weft://[a]:1/v",
            "weft://a b/v",
            &many,
        ] {
            assert!(text.parse::<VolumeAddress>().is_err(), "{text}");
        }
        for text in ["store://h:1", "store://h:1/", "store://h:1/a/b", "store:///x"] {
            assert!(text.parse::<StoreAddress>().is_err(), "{text}");
        }
    }
}

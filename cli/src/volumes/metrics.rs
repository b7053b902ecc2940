//! Options that servers and mounts share: where metrics are served, and bytes a second.

use crate::failure::Failure;
use cluster::metrics::{Subject, serve_metrics};
use plan::sizes;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// Reads `PORT`, which is one of this machine alone, or `ADDRESS:PORT`.
pub fn metrics_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| "give PORT, which only this machine reaches, or ADDRESS:PORT".into())
}

/// Serves metrics at this address, if there is one. Returns the address that the system chose.
pub fn tell(
    address: Option<SocketAddr>,
    subject: impl FnOnce() -> Arc<dyn Subject>,
) -> Result<Option<SocketAddr>, Failure> {
    Ok(address.map(|address| serve_metrics(address, subject())).transpose()?)
}

/// Reads bytes a second: a number of bytes, or `off`.
pub fn rate(text: &str) -> Result<Option<u64>, String> {
    if text == "off" { Ok(None) } else { sizes::bytes(text).map(Some).map_err(|why| format!("{why}, or off")) }
}

/// Bytes a second, or as many as possible.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rate(pub Option<u64>);

/// Reads it as [`rate`] does.
pub fn rate_option(text: &str) -> Result<Rate, String> {
    rate(text).map(Rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_units() {
        assert_eq!(rate("off"), Ok(None));
        for (text, bytes) in
            [("1", 1), ("64K", 65536), ("64KiB", 65536), ("2MB", 2_000_000), ("3G", 3 << 30), ("1T", 1 << 40)]
        {
            assert_eq!(rate(text), Ok(Some(bytes)), "{text}");
        }
        for text in ["", "0", "M", "-1", "1X", "1MiBs", "99999999999T"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_port_alone_is_this_machines() {
        assert_eq!(metrics_address("9100"), Ok(([127, 0, 0, 1], 9100).into()));
        assert_eq!(metrics_address("0.0.0.0:9100"), Ok(([0, 0, 0, 0], 9100).into()));
        assert!(metrics_address("[::1]:9").is_ok());
        for text in ["", "x", "127.0.0.1", "70000", "localhost:9100"] {
            assert!(metrics_address(text).is_err(), "{text}");
        }
    }
}

//! Options that servers and mounts share: where metrics are told, and bytes a second.

use crate::failure::Failure;
use cluster::metrics::{Subject, serve_metrics};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// Reads `PORT`, which is one of this machine alone, or `ADDRESS:PORT`.
pub fn metrics_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| "give PORT, which only this machine reaches, or ADDRESS:PORT".into())
}

/// Tells metrics there, if anywhere. Returns where, as the system says.
pub fn tell(
    address: Option<SocketAddr>,
    subject: impl FnOnce() -> Arc<dyn Subject>,
) -> Result<Option<SocketAddr>, Failure> {
    Ok(address.map(|address| serve_metrics(address, subject())).transpose()?)
}

/// Reads bytes a second: `500M`, `1G`, `64KiB`, all in powers of 1024, or `off`.
pub fn rate(text: &str) -> Result<Option<u64>, String> {
    if text == "off" {
        return Ok(None);
    }
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.strip_suffix("iB").or(unit.strip_suffix('B')).unwrap_or(unit);
    let power = match unit {
        "" => 0,
        "K" | "k" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(format!("{text:?} is no number of bytes; give one like 500M, 64KiB or 1048576, or off")),
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << power)).filter(|bytes| *bytes > 0);
    bytes.map(Some).ok_or_else(|| format!("{text:?} is no number of bytes above 0; give one like 500M, or off"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_units() {
        assert_eq!(rate("off"), Ok(None));
        for (text, bytes) in
            [("1", 1), ("64K", 65536), ("64KiB", 65536), ("2MB", 2 << 20), ("3G", 3 << 30), ("1T", 1 << 40)]
        {
            assert_eq!(rate(text), Ok(Some(bytes)), "{text}");
        }
        for text in ["", "0", "M", "1.5M", "-1", "1X", "1MiBs", "99999999999T", "1 M"] {
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

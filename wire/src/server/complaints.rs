//! The log of clients' violations: at most one line per address and minute.

use crate::lock;
use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of addresses that are remembered. With more within a minute, the others are not
/// logged.
const MAX_ADDRESSES: usize = 4096;

/// Logs violations by clients, at a limited rate, so that clients cannot fill the log.
#[derive(Debug, Default)]
pub struct Complaints {
    last: Mutex<HashMap<String, Instant>>,
}

impl Complaints {
    /// Logs a line, unless the same host had one less than a minute ago.
    pub fn complain(&self, address: &str, what: &dyn fmt::Display) {
        if self.is_due(host(address), Instant::now()) {
            tracing::warn!(peer = address, "{what}");
        }
    }

    fn is_due(&self, host: &str, now: Instant) -> bool {
        let mut last = lock(&self.last);
        if last.get(host).is_some_and(|then| now.duration_since(*then) < LOG_INTERVAL) {
            return false;
        }
        if last.len() >= MAX_ADDRESSES {
            last.retain(|_, then| now.duration_since(*then) < LOG_INTERVAL);
            if last.len() >= MAX_ADDRESSES {
                return false;
            }
        }
        last.insert(host.to_owned(), now);
        true
    }
}

/// The address without the port, which differs between connections.
fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_an_address_and_minute() {
        let (complaints, now) = (Complaints::default(), Instant::now());
        assert!(complaints.is_due(host("10.0.0.1:5"), now));
        assert!(!complaints.is_due(host("10.0.0.1:6"), now));
        assert!(complaints.is_due(host("10.0.0.2:6"), now));
        assert!(complaints.is_due(host("10.0.0.1:7"), now + LOG_INTERVAL));
        for number in 0..2 * MAX_ADDRESSES {
            complaints.is_due(&number.to_string(), now + LOG_INTERVAL);
        }
        assert!(lock(&complaints.last).len() <= MAX_ADDRESSES);
    }
}

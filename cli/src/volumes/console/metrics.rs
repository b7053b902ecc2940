//! Metrics of other processes, in the text format of Prometheus.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long a process may take to answer.
const LIMIT: Duration = Duration::from_secs(2);
/// No page is longer, in bytes.
const LENGTH: u64 = 4 << 20;

/// Values by name and labels, as they are written.
pub type Values = BTreeMap<String, f64>;

/// Asks a process for its metrics.
pub fn get(address: SocketAddr) -> std::io::Result<Values> {
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    stream.write_all(format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.take(LENGTH).read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    if !head.starts_with("HTTP/1.1 200 ") {
        return Err(std::io::Error::other(head.lines().next().unwrap_or("no answer").to_owned()));
    }
    Ok(read(body))
}

/// Reads such a text. Lines that make no sense are left out.
pub fn read(text: &str) -> Values {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let values = lines.filter_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    });
    values.collect()
}

/// Adds the values of one process to those of others.
pub fn add(all: &mut Values, more: Values) {
    for (name, value) in more {
        *all.entry(name).or_default() += value;
    }
}

/// The sum of the values of a name with a label, with any others.
pub fn sum(values: &Values, name: &str, label: &str) -> Option<f64> {
    let is_it = |key: &&String| {
        let (is, labels) = key.split_once('{').unwrap_or((key, ""));
        is == name && labels.contains(label)
    };
    let found: Vec<f64> = values.keys().filter(is_it).map(|key| values[key]).collect();
    (!found.is_empty()).then(|| found.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_name_and_label() {
        let text = "# HELP a b\n# TYPE a counter\na{operation=\"read\"} 2\na{operation=\"write\"} 5\nb 1.5\nodd\n";
        let mut values = read(text);
        assert_eq!(sum(&values, "a", "operation=\"read\""), Some(2.0));
        assert_eq!((sum(&values, "a", ""), sum(&values, "b", ""), sum(&values, "c", "")), (Some(7.0), Some(1.5), None));
        add(&mut values, read("b 2\n"));
        assert_eq!(sum(&values, "b", ""), Some(3.5));
    }
}

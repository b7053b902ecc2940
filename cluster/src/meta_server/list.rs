//! The list of a volume's metadata servers, in the volume directory of each.

use super::seat::Peer;
use crate::whole;
use std::path::Path;

/// The file.
const SERVERS: &str = "servers";
/// The longest list of servers, in bytes.
const MAX_LIST: u64 = 64 << 10;

/// Keeps a list of servers in a volume directory: a line for each.
///
/// # Errors
/// When it cannot be written.
pub fn write_list(directory: &Path, list: &[Peer]) -> std::io::Result<()> {
    let lines: String = list.iter().map(|Peer { name, address }| format!("{name} {address}\n")).collect();
    whole::replace(&directory.join(SERVERS), &lines, 0o644)
}

/// Reads the list. What cannot be read is left out.
pub(super) fn read_list(directory: &Path) -> Vec<Peer> {
    let mut text = String::new();
    let read = std::fs::File::open(directory.join(SERVERS))
        .and_then(|file| std::io::Read::read_to_string(&mut std::io::Read::take(file, MAX_LIST), &mut text));
    let peer = |line: &str| {
        let (name, address) = line.split_once(' ')?;
        Some(Peer { name: name.into(), address: address.into() })
    };
    if read.is_ok() { text.lines().filter_map(peer).collect() } else { Vec::new() }
}

//! Opening a volume wherever its metadata is: in a directory of this machine, or with a server.

use crate::{VolumeAddress, connect};
use fs::{FileSystem, OpenOptions};
use std::path::Path;
use std::sync::Arc;

/// Opens a volume: as a client of the metadata servers of a `weft://` address, else the volume of a
/// directory, which is then open in this process alone.
///
/// # Errors
/// When the address is not valid, those of [`connect`], and those of [`FileSystem::open_volume`].
pub fn open(volume: &Path, options: OpenOptions) -> fs::Result<Arc<FileSystem>> {
    match VolumeAddress::of(volume) {
        Some(address) => connect(&address?, &client_name(), options),
        None => FileSystem::open_volume(volume, options),
    }
}

/// What a server calls this process: `HOST:PID`.
pub fn client_name() -> String {
    let host = volume::machine::host();
    format!("{}:{}", host.trim(), std::process::id())
}

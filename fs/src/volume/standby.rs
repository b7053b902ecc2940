//! The index of a server that stands by: that of the volume directory, which this server uses when
//! it opens the volume.

use crate::Result;
use crate::volume::opened::INDEX;
use meta::kv::{Index, KvError, RedbIndex};
use std::path::Path;

/// Memory for a standby's index, in bytes.
const CACHE_BYTES: usize = 16 << 20;

/// Opens the index in a volume directory while another server has the volume. A damaged one is
/// created again. It must be closed before this process opens the volume.
///
/// # Errors
/// When it is still open, or the directory cannot be used.
pub fn standby_index(directory: &Path) -> Result<Box<dyn Index>> {
    let path = directory.join(INDEX);
    let index = RedbIndex::open_with(&path, CACHE_BYTES).or_else(|why| match why {
        KvError::Corrupt(_) => {
            let _ = std::fs::remove_file(&path);
            RedbIndex::open_with(&path, CACHE_BYTES)
        }
        why => Err(why),
    });
    Ok(Box::new(index.map_err(meta::Error::from)?))
}

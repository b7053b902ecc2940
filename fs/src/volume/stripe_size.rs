//! How long stripes are, by the code of the volume.

use crate::{Error, Result};

/// The approximate bytes of user data in a full stripe.
const STRIPE_BYTES: usize = 4 << 20;

/// The length of the blocks of a full stripe of k data blocks, in bytes. Long blocks need fewer
/// requests and fewer checksums. But a stripe of a wide code must not take all memory.
pub(crate) fn block_bytes(k: usize) -> usize {
    (STRIPE_BYTES / k).clamp(64 << 10, 1 << 20).next_multiple_of(4096)
}

/// User data and manifest of a full stripe of k data blocks, in bytes. A Master needs memory for
/// it.
pub fn full_stripe_bytes(k: usize) -> usize {
    k * block_bytes(k)
}

/// The longest block of a stripe of k data blocks, in bytes, and the most user data of a stripe of
/// one file with blocks of `block` bytes: the rest of it is the manifest.
///
/// # Errors
/// When no stripe has such blocks.
pub fn stripe_of_blocks(k: usize, block: usize) -> Result<usize> {
    let most = block_bytes(k);
    if !(LEAST_BYTES..=most).contains(&block) || !block.is_multiple_of(LEAST_BYTES) {
        return Err(Error::Invalid(format!(
            "a block of {k} has whole pages, {LEAST_BYTES} to {most} bytes: a process has whole stripes in memory. For \
             more of a file on one target, before the next set of targets, make chunks longer"
        )));
    }
    Ok((k * block).saturating_sub(MANIFEST_BYTES).max(LEAST_BYTES))
}

/// Room for the manifest of a stripe of one file, in bytes.
pub(crate) const MANIFEST_BYTES: usize = 4096;
/// The shortest stripe that a process may ask for, in bytes of user data.
const LEAST_BYTES: usize = 4096;

/// User data and manifest of the longest stripe that a process writes: a full one, or one with so
/// many bytes of user data.
///
/// # Errors
/// When it is longer than a full one, or very short.
pub(crate) fn of_process(k: usize, wanted: Option<usize>) -> Result<usize> {
    let full = full_stripe_bytes(k);
    let Some(wanted) = wanted else { return Ok(full) };
    let most = full - MANIFEST_BYTES;
    if !(LEAST_BYTES..=most).contains(&wanted) {
        return Err(Error::Invalid(format!("a stripe has {LEAST_BYTES} to {most} bytes of user data here")));
    }
    Ok(wanted + MANIFEST_BYTES)
}

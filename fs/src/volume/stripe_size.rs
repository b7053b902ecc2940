//! How long stripes are, by the code of the volume.

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

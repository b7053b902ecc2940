//! The machine that this process runs on.

/// A number that is another one whenever the machine was started: what a process wrote outlives it, and not the machine. Never 0.
pub fn start_of_machine() -> u64 {
    let mut hash = blake3::Hasher::new();
    match std::fs::read("/proc/sys/kernel/random/boot_id") {
        Ok(id) => hash.update(&id),
        // Where that is not told, every process counts as a start.
        Err(_) => hash.update(format!("{:?} {}", std::time::SystemTime::now(), std::process::id()).as_bytes()),
    };
    let first = *hash.finalize().as_bytes().first_chunk().expect("a hash has 32 bytes");
    u64::from_le_bytes(first).max(1)
}

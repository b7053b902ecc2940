//! The machine on which this process runs.

use volume::target::boot_id;

/// A number that changes with every boot of the machine. Data that a process wrote but did not sync
/// survives a crash of the process, but not of the machine. Never 0.
pub fn start_of_machine() -> u64 {
    let mut hash = blake3::Hasher::new();
    match boot_id() {
        Some(id) => hash.update(&id),
        // Where the system has no boot ID, every process counts as a boot.
        None => hash.update(format!("{:?} {}", std::time::SystemTime::now(), std::process::id()).as_bytes()),
    };
    let first = *hash.finalize().as_bytes().first_chunk().expect("a hash has 32 bytes");
    u64::from_le_bytes(first).max(1)
}

//! The machine that a process runs on.

use gf::checksum::crc64;
use std::sync::OnceLock;

/// The id of this boot of the machine, where the system has one.
pub fn boot_id() -> Option<Vec<u8>> {
    std::fs::read("/proc/sys/kernel/random/boot_id").ok()
}

/// A number for a file system with this device number. Machines of the same kind give their disks
/// the same device numbers: the file systems of others have other numbers.
pub(super) fn file_system(device: u64) -> u64 {
    // A service may be without most of /proc.
    let id = || boot_id().or_else(|| std::fs::read("/etc/machine-id").ok());
    static MACHINE: OnceLock<Vec<u8>> = OnceLock::new();
    let known = MACHINE.get().or_else(|| id().map(|id| MACHINE.get_or_init(|| id)));
    of_machine(known.map_or(&[], Vec::as_slice), device)
}

fn of_machine(machine: &[u8], device: u64) -> u64 {
    crc64(&[machine, &device.to_le_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_device_of_another_machine_is_another_file_system() {
        let numbers = [(1, 8), (1, 9), (2, 8), (2, 9)].map(|(machine, device)| of_machine(&[machine; 36], device));
        assert!((1..4).all(|one| !numbers[..one].contains(&numbers[one])), "{numbers:?}");
        assert_eq!(numbers[0], of_machine(&[1; 36], 8));
    }

    #[test]
    fn directories_of_a_file_system_have_its_number() {
        assert_eq!(file_system(8), file_system(8));
        assert_ne!(file_system(8), file_system(9));
    }
}

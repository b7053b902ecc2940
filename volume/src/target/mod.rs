//! Targets: where chunk files are stored. A target is a local directory, memory for tests, or a
//! decorator that counts, fails or crashes.

mod claim;
mod claim_conformance;
mod claim_file;
#[cfg(test)]
mod claim_tests;
mod clock;
mod conformance;
mod crash;
mod directory;
mod disk;
mod faulty;
mod file;
mod lock;
mod loose;
mod memory;
mod names;
mod open;
mod plain;
mod port;
mod private;
mod records;
mod regular;
mod rename;
mod shadow;
mod tags;
mod temporary;
mod traced;
mod unsynced;
mod vectored;
mod volume_names;

pub use crate::format::{Claim, Epoch, Holder, MAX_LEASE};
pub use claim::{ClaimRequest, ClaimState, ClaimedChange, Lease, RENEWAL, Refusal, Seat};
pub use clock::{Clock, boot_time, simulate_boot_time};
pub use conformance::conformance;
pub use crash::Crash;
pub use directory::Directory;
pub use disk::Disk;
pub use faulty::{Faults, Faulty};
pub use file::TargetFile;
pub use lock::Lock;
pub use loose::Loose;
pub use memory::Memory;
pub use names::{FileName, fragment_file_name, stem};
pub use plain::{ReadAt, look_by_reading, read_each, read_to_vec, timed};
pub use port::{Allocation, Durable, Owner, Presence, ReadPart, Space, Target, Wait};
pub use private::make_private;
pub use records::checksum_of_records;
pub(crate) use regular::{open_regular, read_at_most};
pub use rename::rename_new;
pub use shadow::Shadow;
pub use tags::{ChunkTags, fragment_tags};
pub use temporary::Temporary;
pub use traced::{Cost, Trace, Traced};
pub(crate) use vectored::{read_at, read_cached_parts, read_parts, write_at};
pub(crate) use volume_names::chunk_of_name;

//! Targets: where chunk files live. So far one kind, a local directory.

mod directory;
mod lock;
mod names;
mod regular;
mod temporary;
mod vectored;

pub use directory::Directory;
pub use lock::Lock;
pub use names::{FileName, fragment_file_name, stem};
pub(crate) use regular::open_regular;
pub use temporary::Temporary;
pub(crate) use temporary::rename_new;
pub(crate) use vectored::{read_at, write_at};

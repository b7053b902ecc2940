//! Targets: where chunk files live. So far one kind, a local directory.

mod directory;
mod names;
mod temporary;
mod vectored;

pub use directory::Directory;
pub use names::{FileName, fragment_file_name, stem};
pub use temporary::Temporary;
pub(crate) use vectored::{read_at, write_at};

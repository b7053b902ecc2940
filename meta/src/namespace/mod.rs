//! Operations on names, attributes and content. Each operation is one transaction.
//!
//! The caller checks permissions (for a mount, the kernel does). Content changes of one file must
//! come one at a time; all other operations may run in any number of threads.

mod attributes;
mod bulk_create;
mod content;
mod create;
mod find;
mod list;
mod ordered;
mod remove;
mod rename;

pub use attributes::{AttributeChange, Attributes, FILE_CAPABILITIES, SetTime, unprivileged};
pub use bulk_create::{BulkFile, BulkResult};
pub use content::{ContentEdit, MAX_EXTENTS, Resize};
pub use create::New;
pub use list::Listed;
pub use ordered::{KeyEntry, KeyPage};
pub use remove::Removed;
pub use rename::{Rename, RenameMode};

/// The longest name, in bytes.
pub const MAX_NAME: usize = 255;
/// The longest target of a symbolic link, in bytes.
pub const MAX_LINK: usize = 4095;
/// The largest number of names of a file.
pub const MAX_LINKS: u32 = 65_000;
/// The largest size of a file, in bytes.
pub const MAX_SIZE: u64 = i64::MAX as u64;
/// The number of the root directory.
pub const ROOT: plan::Ino = plan::Ino::ROOT;

/// Refuses invalid names.
///
/// # Errors
/// `NameTooLong`, `Invalid`.
pub fn check_name(name: &[u8]) -> crate::Result<()> {
    match name {
        _ if name.len() > MAX_NAME => Err(crate::Error::NameTooLong),
        b"" | b"." | b".." => Err(crate::Error::Invalid("not a name for a file".into())),
        _ if name.iter().any(|byte| matches!(byte, 0 | b'/')) => {
            Err(crate::Error::Invalid("not a name for a file".into()))
        }
        _ => Ok(()),
    }
}

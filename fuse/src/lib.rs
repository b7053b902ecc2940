//! The file system behind a mount point, by FUSE.
//!
//! The kernel keeps names, attributes and pages for a day or until this process invalidates them,
//! since it is the only one that changes the volume. So `stat` and repeated reads do not leave the
//! kernel, and writes come in requests of up to 1 MiB when the kernel writes its cache back.
//!
//! - [`mount()`] shows a file system under a directory; [`Mounted`] waits for its end.
//! - [`parse_options`] reads a list as `mount -o` takes it.
//! - [`mounts()`] is what is mounted where.
//! - [`unmount()`] takes a mount away that another process serves.
#![forbid(unsafe_code)]

mod device;
mod error;
mod files;
mod handler;
#[cfg(test)]
mod memory;
mod mount;
mod mounts;
mod options;
#[cfg(test)]
mod tests;
mod unmount;

pub use error::Error;
pub use mount::{Mounted, mount};
pub use mounts::{Mount, mounts};
pub use options::{Log, Options, parse_options};
pub use unmount::unmount;
